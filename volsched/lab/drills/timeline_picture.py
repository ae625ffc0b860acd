"""The timeline as a picture: a line for every binding, from its pod's creation to its end, and every fault.

Inline SVG without scripts, so that a report is one file that any browser shows.
"""

from collections.abc import Callable, Iterator, Sequence
from html import escape
from math import ceil, floor, log10

from volsched.lab.drills.timeline import Bar, DrillTimeline, TimelineMark

WIDTH, LEFT, RIGHT = 1080, 84, 24
TOP, BOTTOM = 34, 34
MOST_LABELLED = 80
Scale = Callable[[float], float]
"""Where a time stands in the picture."""
MARK_LINE = 13
"""Between two labels of marks, which would else be written over each other."""


def picture(timeline: DrillTimeline) -> str:
    """Times are milliseconds since the load began."""
    bars = sorted(timeline.bars, key=lambda it: (it.planned, it.pod))
    row = 12 if len(bars) <= MOST_LABELLED else max(4, 960 // len(bars))
    marks = [it for it in timeline.marks if not it.what.startswith("wait")]
    end = max([timeline.settled, *(it.ended or 0 for it in bars), 1.0])
    levels = _levels(marks, end)
    top = TOP + MARK_LINE * max(levels, default=0)
    height = top + row * len(bars) + BOTTOM

    def x(at: float) -> float:
        return round(LEFT + (WIDTH - LEFT - RIGHT) * min(at, end) / end, 1)

    parts = [
        f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="bindings over time" '
        f'xmlns="http://www.w3.org/2000/svg">'
    ]
    parts += _axis(end, x=x, top=top, bottom=height - BOTTOM)
    for number, bar in enumerate(bars):
        parts += _bar(bar, y=top + row * number, row=row, end=end, x=x, labelled=len(bars) <= MOST_LABELLED)
    for mark, level in zip(marks, levels, strict=True):
        at, y = x(mark.at), TOP - 12 + MARK_LINE * level
        late = mark.at > 0.75 * end
        anchor, shift = ("end", -4) if late else ("start", 4)
        parts.append(f'<line class="mark" x1="{at}" x2="{at}" y1="{y - 8}" y2="{height - BOTTOM}"/>')
        parts.append(
            f'<text class="mark" x="{at + shift}" y="{y}" text-anchor="{anchor}">{escape(mark.what)}</text>'
        )
    if timeline.settled:
        at = x(timeline.settled)
        parts.append(f'<line class="settled" x1="{at}" x2="{at}" y1="{top}" y2="{height - BOTTOM}"/>')
        parts.append(f'<text class="settled" x="{at}" y="{height - 4}" text-anchor="end">all settled</text>')
    return "".join([*parts, "</svg>"])


def _levels(marks: Sequence[TimelineMark], end: float) -> list[int]:
    """On which line each label stands."""
    levels: list[int] = []
    for number, mark in enumerate(marks):
        near = number > 0 and (mark.at - marks[number - 1].at) / end < 0.16
        levels.append(levels[-1] + 1 if near else 0)
    return levels


def _axis(end: float, *, x: Scale, top: int, bottom: int) -> Iterator[str]:
    step = _tick(end)
    for number in range(floor(end / step) + 1):
        at = number * step
        told = f"{at / 1000:g} s" if end >= 2_000 else f"{at:g} ms"
        yield f'<line class="grid" x1="{x(at)}" x2="{x(at)}" y1="{top}" y2="{bottom}"/>'
        yield f'<text class="tick" x="{x(at)}" y="{bottom + 16}" text-anchor="middle">{told}</text>'


def _tick(end: float) -> float:
    """A round number, of which six to twelve fit."""
    rough = end / 8
    power = 10 ** floor(log10(rough))
    return float(power * next(it for it in (1, 2, 5, 10) if it >= ceil(rough / power * 10) / 10))


def _bar(bar: Bar, *, y: int, row: int, end: float, x: Scale, labelled: bool) -> Iterator[str]:
    ended = end if bar.ended is None else bar.ended
    kind = "open" if bar.ended is None else "committed" if bar.committed else "undone"
    middle, thick = y + row / 2, max(row - 4, 2)
    left, width = x(bar.planned), max(x(ended) - x(bar.planned), 2)
    why = f": {bar.reason}" if bar.reason else ""
    words = f"{bar.pod}, {bar.legs} claims: {bar.state} after {ended - bar.planned:,.0f} ms{why}"
    flying = " flying" if bar.in_flight else ""
    yield f'<g class="{kind}{flying}"><title>{escape(words)}</title>'
    if x(bar.planned) - x(bar.created) >= 1:
        yield f'<line class="waits" x1="{x(bar.created)}" x2="{left}" y1="{middle}" y2="{middle}"/>'
    yield f'<rect x="{left}" y="{y + (row - thick) / 2}" width="{round(width, 1)}" height="{thick}" rx="1.5"/>'
    if labelled:
        name = escape(bar.pod.rpartition("/")[2])
        yield f'<text class="name" x="{LEFT - 8}" y="{middle + 3.5}" text-anchor="end">{name}</text>'
    yield "</g>"
