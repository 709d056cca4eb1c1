"""A resource's story as one HTML page that needs no network: a chart, and everything in it as a table, too.

Newest events are drawn one by one, older ones together, by stretch of time: so the page's size has a bound.
"""

from __future__ import annotations

import hashlib
from base64 import b64encode
from collections import Counter
from datetime import datetime
from importlib.resources import files

from pyfence.cli._chart import Chart
from pyfence.cli._markup import DETAILED, stretches, text, utc
from pyfence.cli._output import duration
from pyfence.cli._story import Moment, Story, held


def page(story: Story, *, state: str, now: datetime, truncated: bool = False) -> str:
    """The page. Nothing of the story is trusted.

    `state`: of the lease at this moment, in words. `now`: the database's clock, up to which an open lease is drawn.
    """
    css, js = (_asset(name) for name in ("timeline.css", "timeline.js"))
    policy = f"default-src 'none'; style-src '{_hash(css)}'; script-src '{_hash(js)}'"
    name = text(story.resource)
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{name}: timeline</title>
<style>{css}</style>
</head>
<body>
<main>
{_header(story, state, now)}
{Chart(story, now).figure()}
{_holders(story, now)}
{_table(story)}
{_notes(truncated)}
</main>
<script>{js}</script>
</body>
</html>
"""


def _asset(name: str) -> str:
    return (files("pyfence.cli") / "_assets" / name).read_text("utf-8")


def _hash(text: str) -> str:
    return "sha256-" + b64encode(hashlib.sha256(text.encode()).digest()).decode()


# -- text around the chart --------------------------------------------------------------------------------------------


def _header(story: Story, state: str, now: datetime) -> str:
    counts = Counter(moment.kind for moment in story.moments)
    facts = {
        "grants": len(story.spans),
        "holders": len({span.owner for span in story.spans}),
        "takeovers": counts["takeover"],
        "ended by administrators": counts["revoked"],
        "let pass": counts["refused"],
        "changes of lineage": sum(moment.event == "lineage" for moment in story.moments),
    }
    times = [moment.at for moment in story.moments]
    stretch = f"{utc(min(times))} to {utc(max(times))} UTC" if times else "nothing recorded"
    items = "".join(f"<div><dt>{label}</dt><dd>{count:,}</dd></div>" for label, count in facts.items())
    return f"""<header>
<p class="eyebrow">pyfence timeline</p>
<h1>{text(story.resource)}</h1>
<p class="range">{stretch}; written {utc(now)} UTC</p>
<p class="now {"held" if state.startswith("held") else "free"}">{text(state)}</p>
<dl>{items}</dl>
</header>"""


def _holders(story: Story, now: datetime) -> str:
    seconds = held(story.spans, now)
    leases = Counter(span.owner for span in story.spans)
    most = sorted(seconds, key=lambda owner: -seconds[owner])
    rows = [
        f'<tr><td>{text(owner)}</td><td class="number">{leases[owner]:,}</td>'
        f'<td class="number">{duration(max(0.0, seconds[owner]))}</td></tr>'
        for owner in most[:20]
    ]
    if len(most) > 20:
        count, time = sum(leases[owner] for owner in most[20:]), sum(seconds[owner] for owner in most[20:])
        rows.append(
            f'<tr class="grouped"><td>{len(most) - 20:,} others</td><td class="number">{count:,}</td>'
            f'<td class="number">{duration(max(0.0, time))}</td></tr>'
        )
    if not rows:
        return ""
    return f"""<h2>Holders</h2>
<div class="scroll"><table>
<thead><tr><th>holder</th><th class="number">leases</th><th class="number">held for</th></tr></thead>
<tbody>{"".join(rows)}</tbody>
</table></div>"""


def _table(story: Story) -> str:
    older, newest = story.moments[:-DETAILED], story.moments[-DETAILED:]
    rows = [_row(moment) for moment in reversed(newest)]
    for stretch in reversed(stretches(older)):
        what = ", ".join(f"{count:,} {text(event)}" for event, count in Counter(m.event for m in stretch).most_common())
        rows.append(
            f'<tr class="grouped"><td class="when">{utc(stretch[0].at)}<br>to {utc(stretch[-1].at)}</td>'
            f'<td colspan="5">{what}</td></tr>'
        )
    lines = "\n".join(rows)
    head = "".join(f"<th>{name}</th>" for name in ("at (UTC)", "event", "token", "holder", "by", "detail"))
    note = f" <small>(the newest {DETAILED:,} one by one, older ones counted)</small>" if older else ""
    return f"""<h2>Events{note}</h2>
<div class="scroll"><table>
<thead><tr>{head}</tr></thead>
<tbody>
{lines}
</tbody>
</table></div>"""


def _row(moment: Moment) -> str:
    event = f"{moment.event} (takeover)" if moment.kind == "takeover" else moment.event
    cells = (moment.owner, moment.actor, moment.detail)
    token = f'<td class="number">{"" if moment.token is None else moment.token}</td>'
    rest = token + "".join(f"<td>{'' if cell is None else text(cell)}</td>" for cell in cells)
    kind = f' class="{moment.kind}"' if moment.kind else ""
    when = f'<td class="when">{utc(moment.at, fine=True)}</td>'
    return f'<tr id="{moment.id}"{kind}>{when}<td>{text(event)}</td>{rest}</tr>'


def _notes(truncated: bool) -> str:
    paragraphs = [
        "A lease is drawn from its grant to what ended it. Renewals are not recorded: one that expired and that nobody "
        "has asked for is drawn as if it went on.",
        "Writes that were accepted are not recorded one by one; where a table counts writes, the last one is shown. "
        "Writes that were refused leave no row: they stand in the server log, in lines that begin with pyfence. Shown "
        "in red is what tables in mode observe, and exemptions, let pass.",
        "Zoom: drag over the chart, or the keys + and -; arrows move, 0 or a double click shows all. The address then "
        "holds what is shown.",
    ]
    if truncated:
        paragraphs.insert(0, "Only the newest events were read: more with --limit, older ones with --until.")
    return f'<section class="notes">{"".join(f"<p>{words}</p>" for words in paragraphs)}</section>'
