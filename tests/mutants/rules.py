"""What a mutant is: the SQL with one lock, comparison, test, trigger or right taken away, by a textual rule."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

#: Files without a mutant: what they do is not enforcement (audit only reports, and has tests of its own).
LEFT_OUT = re.compile(
    r"/_?(audit|repair|rearm|fingerprint|remember|protect_call)|40_views/|schema_version|_reads?\.sql"
)


@dataclass(frozen=True)
class Mutant:
    """One change to one file of the SQL."""

    path: str
    line: int
    rule: str
    start: int
    end: int
    old: str
    new: str

    @property
    def description(self) -> str:
        def short(text: str) -> str:
            text = re.sub(r"\s+", " ", text).strip()
            return text if len(text) <= 70 else text[:67] + "..."

        return f"{self.path}:{self.line}: {self.rule}: {short(self.old)} -> {short(self.new) or 'nothing'}"

    def applied(self, text: str) -> str:
        return text[: self.start] + self.new + text[self.end :]

    def key(self, text: str) -> str:
        """Names the mutant for as long as the file stays as it is."""
        return hashlib.sha256(f"{self.path}\0{self.applied(text)}".encode()).hexdigest()[:16]


#: Rule, pattern, replacement. A pattern is applied everywhere it matches outside of comments, one place at a time.
RULES: list[tuple[str, str, str]] = [
    ("no lock", r"\n? *\bfor (?:no key update|key share|update|share)(?: of \w+)?(?: skip locked)?(?=;|\n|\))", ""),
    ("waits", r" skip locked\b", ""),
    ("null is no", r"\bis not true\b", "is false"),
    ("plain comparison", r"\bis distinct from\b", "<>"),
    ("plain comparison", r"\bis not distinct from\b", "="),
    ("the transaction's clock", r"(?<!\w)(?:pg_catalog\.)?clock_timestamp\(\)", "pg_catalog.now()"),
    ("stable", r"(?m)^volatile$", "stable"),
    ("no refusal", r"(?s)\bperform fence\._(?:raise|refuse\w*)\((?:[^;']|'(?:[^']|'')*')*\);", "null;"),
    ("no check", r"\bperform (?:from )?fence\._(?:check|lock|bound|begin)\w*\((?:[^;']|'(?:[^']|'')*')*\);", "null;"),
    ("no check", r"\bfence\._check_lease\([^;)]*\) is null", "false"),
    ("not counted", r"\bperform fence\._accept_once\([^;]*\);", "null;"),
    ("no setting", r"\bperform (?:pg_catalog\.)?set_config\([^;]*\);", "null;"),
    ("off by one", r"(?<=\w) <= (?=[\w(])", " < "),
    ("off by one", r"(?<=[\w)]) > (?=[\w(]+\.?\w*)", " >= "),
    ("off by one", r"(?<=[\w)]) < (?=[\w(]+\.?\w*)", " <= "),
    ("comparison left out", r"(?m)^ +and ", "@condition"),
    ("no null test", r"[\w.()]+ is null\b", "false"),
    ("no null test", r"[\w.()]+ is not null\b", "true"),
    ("no trigger", r"(?m)^ *\('(?:0|~~?0)_fence_\w+', [^\n]*\n?[^\n]*?\)(?=,\n|\) v)", "@trigger"),
    ("no trigger", r"(?s)create trigger token_only_grows.*?execute function \S+;\nalter table [^;]*;", ""),
    ("no trigger", r"(?s)execute pg_catalog\.format\('create trigger own_t.*?v_table\);\n *execute[^;]*;", "null;"),
    ("not for this event", r"\b(?:insert or |update or |delete or )(?=\w)", ""),
    ("not for this event", r"(?<=update) or delete\b|(?<=delete) or truncate\b", ""),
    ("not for replicas", r"\benable always\b", "enable"),
    ("not unique", r"unique \(resource, token\)", "check (true)"),
    ("no constraint", r"(?m)^  constraint \w+ check \([^\n]*\)(?=,?$)", "@constraint"),
    ("rights stay", r"(?m)^ *execute [^;\n]*'revoke [^;]*;|^revoke [^;]*;", "@nothing"),
    ("invoker", r"(?m)^security definer\n", ""),
    ("caller's path", r"(?m)^set search_path = [^\n]*\n", ""),
    ("no bound", r"(?m)^set lock_timeout = [^\n]*\n", ""),
    ("any order", r"(?m) ?\border by (?:l\.resource|q\.resource collate \"C\"|1 nulls first|m\.depth, m\.relid)", ""),
    ("waits on", r" nowait\b", ""),
]  # fmt: skip

#: Not within the words of a message.
IN_CODE_ONLY = {"no null test", "off by one"}


def _comments(text: str) -> list[tuple[int, int]]:
    return [found.span() for found in re.finditer(r"(?m)--(?!\d)[^\n]*", text)]


def _condition_end(text: str, start: int) -> int:
    """Where the condition ends that begins at `start`: with its line or its list, outside of parentheses and quotes."""
    depth, quoted = 0, False
    for place in range(start, len(text)):
        letter = text[place]
        if letter == "'":
            quoted = not quoted
        elif quoted:
            continue
        elif letter == "(":
            depth += 1
        elif letter == ")":
            depth -= 1
        if depth < 0 or (depth == 0 and (letter in ",;\n" or text.startswith((" then", " or ", " loop"), place))):
            return place
    return len(text)


def of_file(path: str, text: str) -> Iterator[Mutant]:
    """Every mutant of one file."""
    comments = _comments(text)
    clocks = re.findall(r"(\w+) timestamptz := (?:pg_catalog\.)?clock_timestamp\(\)", text)
    clock = re.compile(r"\b(?:clock_timestamp\(\)" + "".join(rf"|{name}\b" for name in clocks) + ")")
    seen: set[str] = set()
    for rule, pattern, replacement in RULES:
        for found in re.finditer(pattern, text):
            start, end = found.span()
            if any(a <= start < b for a, b in comments):
                continue
            before, after = text[:start].rpartition("\n")[2], text[start:].partition("\n")[0]
            if rule in IN_CODE_ONLY and before.count("'") % 2:
                continue
            if rule == "off by one" and (clock.search(before + after) or re.search(r"\battnum$", before)):
                continue  # no test can meet a clock to the microsecond; no column has the number 0
            if re.search(r"(?m)^create index [^;]*$", text[:start]):
                continue  # an index that is larger or smaller changes no answer
            if text.rfind("comment on", 0, start) > max(text.rfind(";\n", 0, start), 0):
                continue
            new = found.expand(replacement) if "\\" in replacement else replacement
            if new == "@trigger":
                new = ""  # goes with the comma beside it; the only tuple of a list stays
                if text[end : end + 2] == ",\n":
                    end += 2
                elif text[:start].rstrip().endswith(","):
                    start = len(text[:start].rstrip()) - 1
                else:
                    continue
            elif new == "@condition":
                start, end, new = end, _condition_end(text, end), "true"
            elif new == "@constraint":
                new = ""
                if text[end : end + 1] == ",":
                    end += 2
                else:
                    start = len(text[:start].rstrip()) - 1
            elif new == "@nothing":
                new = "null;" if text[start] == " " else ""
            mutated = text[:start] + new + text[end:]
            if mutated == text or mutated in seen:
                continue
            seen.add(mutated)
            line = text.count("\n", 0, found.start() + len(found[0]) - len(found[0].lstrip())) + 1
            yield Mutant(path, line, rule, start, end, text[start:end], new)


def of_directory(directory: Path) -> list[Mutant]:
    """Every mutant of the SQL below a directory, in the order of the files."""
    mutants: list[Mutant] = []
    for file in sorted(directory.rglob("*.sql")):
        path = file.relative_to(directory).as_posix()
        if not LEFT_OUT.search(f"/{path}"):
            mutants += of_file(path, file.read_text("utf-8"))
    return mutants
