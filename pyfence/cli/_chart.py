"""The chart of a story: an SVG whose places are percentages of the stretch of time that is shown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

from pyfence.cli._markup import DETAILED, STRETCHES, ms, number, stretches, text, utc
from pyfence.cli._output import printable
from pyfence.cli._story import KINDS, Moment, Span, Story, held, sentence

LANES = 7  # holders with a lane of their own; all others share one
_TOP, _LANE, _ROW = 30, 50, 38  # pixels: before the first lane, a lane, a row of marks
_STEPS = [1, 10, 100, *(s * 1000 for s in (1, 5, 15, 30, 60, 300, 900, 1800, 3600, 7200, 10800, 21600, 43200))]
_STEPS += [86400000 * days for days in (1, 2, 7, 14, 30, 91, 182, 365, 730, 3650)]
_RULES = ("lineage", "revoked")
_MOST_RULES = 40
_CROWD = 60  # marks of a kind; more are drawn small


class Chart:
    """An SVG whose places are percentages of the stretch of time that is shown."""

    def __init__(self, story: Story, now: datetime) -> None:
        self._story, self._now = story, now
        times = [moment.at for moment in story.moments] + [span.end or now for span in story.spans]
        times += [span.start for span in story.spans]
        first, last = (ms(min(times)), ms(max(times))) if times else (ms(now) - 1000, ms(now))
        margin = max((last - first) * 0.01, 1)
        self._a, self._b = first - margin, last + margin
        seconds = held(story.spans, now)
        most = set(sorted(seconds, key=lambda owner: -seconds[owner])[:LANES])
        own = [owner for owner in seconds if owner in most]
        self._lane = {owner: own.index(owner) if owner in most else len(own) for owner in seconds}
        others = len(seconds) - len(own)
        self._names = [printable(owner) for owner in own] + ([f"{others:,} other holders"] if others else [])
        present = {moment.kind for moment in story.moments}
        self._rows = [kind for kind in KINDS if kind in present]
        self._marks_top = _TOP + _LANE * len(self._names) + 8
        self._height = self._marks_top + _ROW * len(self._rows) + 8
        self._linked = {moment.id for moment in story.moments[-DETAILED:]}

    def figure(self) -> str:
        parts = [*self._lanes(), *self._rules(), *self._spans(), *self._marks()]
        body = "\n".join(parts)
        buttons = (("left", "◀", "earlier"), ("right", "▶", "later"), ("out", "-", "zoom out"), ("in", "+", "zoom in"))
        bar = "".join(f'<button data-act="{act}" aria-label="{words}">{sign}</button>' for act, sign, words in buttons)
        return f"""<figure>
<div class="bar" id="bar" hidden><span class="shown" id="shown"></span>{bar}<button data-act="all">all</button></div>
<svg id="chart" role="img" aria-label="Who held the lease when" height="{self._height}" data-a="{self._a}" \
data-b="{self._b}" data-steps="{" ".join(map(str, _STEPS))}">
<g id="axis">{self._axis()}</g>
{body}
</svg>
</figure>"""

    def _x(self, ms: float) -> float:
        return 100 * (ms - self._a) / (self._b - self._a)

    def _axis(self) -> str:
        size = self._b - self._a
        step = next((step for step in _STEPS if size / step <= 8), _STEPS[-1])
        parts = []
        tick = -(-self._a // step) * step
        while tick <= self._b:
            x = self._x(tick)
            anchor = "start" if x < 4 else "end" if x > 96 else "middle"
            words = utc(datetime.fromtimestamp(tick / 1000, UTC), fine=step < 1000)
            words = words[:10] if step >= 86400000 else words[11:16] if step >= 60000 else words[11:]
            if 60000 <= step < 86400000 and tick % 86400000 == 0:
                words = f"{datetime.fromtimestamp(tick / 1000, UTC):%Y-%m-%d} {words}"
            parts.append(f'<line class="tick" x1="{number(x)}%" x2="{number(x)}%" y1="18" y2="100%"/>')
            parts.append(f'<text x="{number(x)}%" y="12" text-anchor="{anchor}">{words}</text>')
            tick += step
        return "".join(parts)

    def _lanes(self) -> Iterable[str]:
        for lane, name in enumerate(self._names):
            y = _TOP + _LANE * lane
            yield f'<rect class="base" x="0" width="100%" y="{y + 18}" height="22" rx="4"/>'
            yield f'<text class="lane" x="2" y="{y + 12}">{text(name if len(name) <= 80 else name[:79] + "…")}</text>'

    def _rules(self) -> Iterable[str]:
        found = [moment for moment in self._story.moments if moment.kind in _RULES]
        if len(found) > _MOST_RULES:  # a curtain tells nothing
            found = [moment for moment in found if moment.event == "lineage"][-_MOST_RULES:]
        for moment in found:
            x = number(self._x(ms(moment.at)))
            yield (
                f'<line class="rule {moment.kind}" data-a="{ms(moment.at)}" x1="{x}%" x2="{x}%" y1="{_TOP}" '
                f'y2="{self._height}"><title>{_said(moment)}</title></line>'
            )

    def _spans(self) -> Iterable[str]:
        older, newest = self._story.spans[:-DETAILED], self._story.spans[-DETAILED:]
        for group in self._grouped(older):
            start, end = group[0].start, max(span.end or self._now for span in group)
            words = f"{len(group):,} leases from {utc(start)} to {utc(end)}"
            yield self._bar(group[0], start, end, words, "s many", None)
        for span in newest:
            kind = "s open" if span.end is None else "s"
            yield self._bar(span, span.start, span.end or self._now, text(sentence(span, self._now)), kind, span.id)

    def _grouped(self, spans: Sequence[Span]) -> list[list[Span]]:
        step = (self._b - self._a) / STRETCHES
        found: dict[tuple[int, int], list[Span]] = {}
        for span in spans:
            found.setdefault((int((ms(span.start) - self._a) / step), self._lane[span.owner]), []).append(span)
        return list(found.values())

    def _bar(self, span: Span, start: datetime, end: datetime, words: str, kind: str, link: str | None) -> str:
        lane = self._lane[span.owner]
        a, b = ms(start), ms(end)
        x, width = self._x(a), max(self._x(b) - self._x(a), 0.15)
        y = _TOP + _LANE * lane + 18
        drawn = (
            f'<rect class="{kind} o{lane}" data-a="{a}" data-b="{b}" x="{number(x)}%" width="{number(width)}%" '
            f'y="{y}" height="22" rx="3"><title>{words}</title></rect>'
        )
        if link in self._linked:
            drawn = f'<a href="#{link}">{drawn}</a>'
        if link is not None:
            seen = "visible" if width > 13 else "hidden"
            drawn += (
                f'<text class="t" data-a="{a}" data-b="{b}" x="{number(x)}%" dx="7" y="{y + 15}" visibility="{seen}">'
                f"{span.token}</text>"
            )
        return drawn

    def _marks(self) -> Iterable[str]:
        for row, kind in enumerate(self._rows):
            y = self._marks_top + _ROW * row + 24
            yield f'<text x="2" y="{y - 12}">{KINDS[kind]}</text>'
            found = [moment for moment in self._story.moments if moment.kind == kind]
            for stretch in stretches(found[:-DETAILED]):
                words = f"{len(stretch):,} from {utc(stretch[0].at)} to {utc(stretch[-1].at)}"
                yield self._mark(stretch[0].at, f"{kind} many", y, words, 3)
            for moment in found[-DETAILED:]:
                crowded = len(found) > _CROWD
                shape = (f"{kind} many", y, _said(moment), 3) if crowded else (kind, y, _said(moment), 5)
                drawn = self._mark(moment.at, *shape)
                yield f'<a href="#{moment.id}">{drawn}</a>' if moment.id in self._linked else drawn

    def _mark(self, at: datetime, kind: str, y: int, words: str, radius: int) -> str:
        x = number(self._x(ms(at)))
        place = f'data-a="{ms(at)}" cx="{x}%" cy="{y}" r="{radius}"'
        return f'<circle class="m {kind}" {place}><title>{words}</title></circle>'


def _said(moment: Moment) -> str:
    parts = [f"{utc(moment.at, fine=True)} {moment.event}", moment.owner, moment.actor, moment.detail]
    return text(": ".join(part for part in parts if part))
