"""`pyfence timeline`: the story that is told, and the page that tells it."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from cli.command import CommandLine
from guards.scene import acquire, expire
from harness import Database

from pyfence.cli._markup import DETAILED

EVIL = """</script><script>alert(1)</script> "'><img src=x onerror=alert(2)>&amp;"""


@pytest.fixture
def cli(db: Database) -> CommandLine:
    return CommandLine(db.url("monitor"))


@pytest.fixture
def eventful(db: Database) -> list[int]:
    """A resource with every kind of event: the tokens granted for it."""
    db.execute("create table public.report (id int primary key, body text); insert into public.report values (1)")
    db.execute("select fence.protect('public.report', 'report:{id}', p_writes => 'once')")
    released = acquire(db, "report:1")
    db.execute("select fence.release(%s, %s, %s)", released.parameters, user="app")
    expired = acquire(db, "report:1")
    expire(db, "report:1")
    revoked = acquire(db, "report:1")
    db.execute("select fence.revoke('report:1', 'host is gone')")
    db.execute("begin; select fence.enter('report:1'); update public.report set body = 'x'; commit", user="app")
    db.execute("select fence.set_mode('public.report', 'observe')")
    db.execute("update public.report set body = 'unaware'", user="outsider")
    db.execute("select fence.confirm_lineage()")
    last = acquire(db, "report:1")
    ((entered,),) = db.execute("select token from fence.history where event = 'entered'")
    return [released.token, expired.token, revoked.token, entered, last.token]


class Page(HTMLParser):
    """The page's parts: texts of its table's rows, and its elements."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.rows: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self._in_row = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag == "tr":
            self._in_row = True
            self.rows.append("")

    def handle_endtag(self, tag: str) -> None:
        self._in_row = self._in_row and tag != "tr"

    def handle_data(self, data: str) -> None:
        if self._in_row:
            self.rows[-1] += data + " "

    def of(self, tag: str, kind: str) -> list[dict[str, str | None]]:
        return [attrs for name, attrs in self.elements if name == tag and kind in (attrs.get("class") or "").split()]


def written(cli: CommandLine, *arguments: str) -> str:
    return cli("timeline", *arguments, "--html", "-").out


@pytest.mark.usefixtures("eventful")
def test_the_story_says_who_held_it_and_what_ended_that(cli: CommandLine, eventful: list[int]) -> None:
    story = cli("timeline", "report:1", "--json").json
    assert [span["token"] for span in story["spans"]] == eventful
    endings = [span["ending"] for span in story["spans"]]
    assert endings[0] == "released"
    assert re.fullmatch(r"expired 20.*, then taken over", endings[1])
    assert endings[2] == "revoked by app_owner: host is gone"
    assert endings[3:] == ["over at commit", "open"]
    kinds = [event["kind"] for event in story["events"]]
    # the newest lease follows one that was over, the third follows an expired one, the fourth a revoked one
    assert {kind: kinds.count(kind) for kind in set(kinds) if kind} == {
        "takeover": 2,
        "revoked": 1,
        "refused": 1,
        "accepted": 1,
        "lineage": 1,
        "guard": 2,
    }
    assert [event["at"] for event in story["events"]] == sorted(event["at"] for event in story["events"])
    text = cli("timeline", "report:1").out.splitlines()
    assert len(text) == 1 + len(eventful)
    assert "revoked by app_owner: host is gone" in text[3]


def test_the_page_tells_all_of_it_without_javascript(cli: CommandLine, eventful: list[int], tmp_path: Path) -> None:
    file = tmp_path / "report.html"
    done = cli("timeline", "report:1", "--html", str(file))
    assert (done.out, done.err) == ("", f"written: {file}\n")
    text = file.read_text("utf-8")
    page = Page(text)
    rows = re.sub(" +", " ", "\n".join(page.rows))
    for token in eventful:
        assert f"granted (takeover) {token} " in rows or f"granted {token} " in rows
    for words in (
        "host is gone",
        "LF004 on public.report",
        "the last accepted write",
        "public.report report:{id} observe",
    ):
        assert words in rows
    assert len(page.of("rect", "s")) == len(eventful)
    assert len(page.of("rect", "open")) == 1
    assert [len(page.of("circle", kind)) for kind in ("takeover", "revoked", "refused", "lineage")] == [2, 1, 1, 1]
    anchors = {attrs["href"] for name, attrs in page.elements if name == "a"}
    assert anchors <= {f"#{attrs['id']}" for name, attrs in page.elements if name == "tr" and "id" in attrs}
    # nothing is asked of the network
    assert not re.findall(r"(?:src|href)=\"(?!#)|url\(|@import|https?://(?!www\.w3\.org)", text)
    assert "default-src 'none'" in text


def test_nothing_of_a_name_becomes_markup(cli: CommandLine, db: Database) -> None:
    db.execute("select fence.acquire(%s, '1 minute', %s)", (EVIL, EVIL + "\u202e\x1b[31m"), user="app")
    db.execute("select fence.revoke(%s, %s)", (EVIL, EVIL))
    text = written(cli, EVIL)
    page = Page(text)
    assert [name for name, _ in page.elements].count("script") == 1
    assert not [name for name, _ in page.elements if name == "img"]
    assert not [attrs for _, attrs in page.elements if any(key.startswith("on") for key in attrs)]
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert EVIL in " ".join(page.rows)


def test_a_stretch_of_time_and_the_newest_few(cli: CommandLine, db: Database, eventful: list[int]) -> None:
    assert len(cli("timeline", "report:1", "--since", "1h", "--json").json["spans"]) == len(eventful)
    assert cli("timeline", "report:1", "--until", "2020-01-01", "--json").json["events"] == []
    assert "nothing recorded" in written(cli, "report:1", "--until", "2020-01-01")
    ((middle,),) = db.execute("select at::text from fence.history where event = 'entered'")
    after = cli("timeline", "report:1", "--since", middle, "--json").json
    assert [span["token"] for span in after["spans"]] == eventful[-1:]
    done = cli("timeline", "report:1", "--limit", "2", "--json")
    assert done.json["truncated"] is True
    assert "only the newest 2" in done.err
    assert cli("timeline", "report:1", "--since", "yesterday", code=2).out == ""


def test_a_resource_without_a_lease(cli: CommandLine, db: Database) -> None:
    assert cli("timeline", "unknown", "--json", code=1).error["code"] == "not_found"
    acquire(db, "pruned")
    db.execute("delete from fence._history", user="fence_owner")
    assert "held: " in written(cli, "pruned")


@pytest.mark.parametrize("grants", [8_000, pytest.param(49_999, marks=pytest.mark.stress)])
def test_a_page_is_bounded_however_much_happened(cli: CommandLine, db: Database, grants: int) -> None:
    """By its size, not by the clock: a page of 100,000 events is hardly larger than one of 5,000."""
    acquire(db, "busy")
    sizes = []
    for begin, end in ((1, 2_500), (2_501, grants)):
        db.execute(
            "insert into fence._history (at, event, resource, token, owner, role, application, detail)"
            " select now() - interval '1 hour' + n * interval '50 ms' + k * interval '20 ms',"
            "   (array['granted', 'closed'])[k + 1], 'busy', 1000000 + n, 'worker-' || n % 40, 'app', 'load',"
            '   case k when 0 then \'{"ttl": "00:00:30"}\' else \'{"reason": "released"}\' end::jsonb'
            f" from generate_series({begin}, {end}) n, generate_series(0, 1) k order by n, k",
            user="fence_owner",
        )
        text = written(cli, "busy")
        page = Page(text)
        sizes.append(len(text))
        assert len([1 for name, _ in page.elements if name == "rect"]) < 3 * DETAILED
        assert len(page.rows) < 1.3 * DETAILED
    assert f"{grants + 1:,}</dd>" in text  # grants are all counted
    assert sizes[1] < 1.5 * sizes[0] < 3_000_000
