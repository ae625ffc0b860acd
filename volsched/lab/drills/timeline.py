"""A timeline of the bindings around a fault, as data and as a chart."""

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from math import ceil, floor, log10
from typing import Any

from pydantic import TypeAdapter
from pydantic_core import from_json
from sqlalchemy import select

from volsched.binding.rules.phases import Phase
from volsched.log import tables
from volsched.log.database import Database

# Writers' clocks may be wrong, which may be the subject of a drill: an event's time is when the watcher first
# saw a log of that length.


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """A binding. Milliseconds since the load began."""

    binding: str
    pod: str
    legs: int
    created: float
    """When the pod was created."""
    planned: float
    ended: float | None
    state: str
    reason: str = ""
    in_flight: bool = False
    """Whether it was in flight at a fault."""
    hit: float | None = None
    """When the first of these faults happened."""
    moved: float | None = None
    """When it took its first step after processes were killed, if it was in flight then."""

    @property
    def committed(self) -> bool:
        return self.state == Phase.COMMITTED


@dataclass(frozen=True, slots=True, kw_only=True)
class TimelineMark:
    """An action on the system."""

    at: float
    what: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneSpan:
    begin: float
    end: float
    state: str
    """`up`, `starts` or `down`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lane:
    """One process of the system, over time."""

    name: str
    spans: Sequence[LaneSpan] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class DrillTimeline:
    bars: Sequence[Bar] = ()
    marks: Sequence[TimelineMark] = ()
    settled: float = 0
    """When everything had come to rest."""
    lanes: Sequence[Lane] = field(default_factory=list)


TIMELINE = TypeAdapter(DrillTimeline)


@dataclass(slots=True)
class Positions:
    """The times at which the log reached its positions."""

    times: list[float] = field(default_factory=list)
    heads: list[int] = field(default_factory=list)

    def add_head(self, at: float, head: int) -> None:
        if not self.heads or head > self.heads[-1]:
            self.times.append(at)
            self.heads.append(head)

    def time_of(self, position: int) -> float:
        """An unseen position happened before the first poll, or after the last."""
        number = bisect_left(self.heads, position)
        return self.times[min(number, len(self.times) - 1)] if self.times else 0.0


def read_bars(
    database: Database, positions: Positions, faults: Sequence[tuple[int, float]], killed: int | None = None
) -> list[Bar]:
    """Every binding, in order; `faults` are positions of faults, and when they happened.

    `killed` is the position at which processes were killed.
    """
    events, bindings = tables.events, dict[str, dict[str, Any]]()
    created: dict[str, int] = {}
    wanted = ("BindingPlanned", "BindingMoved", "LegMoved", "PodCreated")
    query = select(events.c.position, events.c.stream, events.c.type, events.c.data).where(
        events.c.type.in_(wanted)
    )
    with database.read() as connection:
        for row in connection.execute(query.order_by(events.c.position)):
            name = row.stream.partition("/")[2]
            if row.type == "PodCreated":
                created[name] = row.position
                continue
            bindings.setdefault(name, {"steps": []})["steps"].append(row.position)
            if row.type == "LegMoved":
                continue
            data = from_json(row.data)
            if row.type == "BindingPlanned":
                bindings[name] |= {"pod": data["pod"], "legs": len(data["legs"]), "from": row.position, "to": None}
            else:
                bindings[name].update(
                    state=data["state"], reason=data.get("reason") or bindings[name].get("reason", "")
                )
                if not data["open"]:
                    bindings[name]["to"] = row.position
    return [_bar(name, it, created, positions, faults, killed) for name, it in bindings.items()]


def _bar(
    name: str,
    binding: Mapping[str, Any],
    created: Mapping[str, int],
    positions: Positions,
    faults: Sequence[tuple[int, float]],
    killed: int | None,
) -> Bar:
    first, last = binding["from"], binding["to"]
    met = [at for position, at in faults if first <= position and (last is None or last > position)]
    was_open = killed is not None and first <= killed and (last is None or last > killed)
    moved = next((step for step in binding["steps"] if step > (killed or 0)), None) if was_open else None
    return Bar(
        binding=name,
        pod=binding["pod"],
        legs=binding["legs"],
        created=positions.time_of(created.get(binding["pod"], first)),
        planned=positions.time_of(first),
        ended=None if last is None else positions.time_of(last),
        state=binding.get("state", Phase.PREBINDING),
        reason=binding["reason"] if binding.get("reason") else "",
        in_flight=bool(met),
        hit=min(met, default=None),
        moved=None if moved is None else positions.time_of(moved),
    )


# The timeline as a chart: a line for every binding, from its pod's creation to its end, and every fault.
#
# Inline SVG without scripts, so that a report is one file that any browser shows.

WIDTH, LEFT, RIGHT = 1080, 84, 24
TOP, BOTTOM = 34, 34
LANE, LANES_TOP = 16, 8
MOST_LABELLED = 80
Scale = Callable[[float], float]
"""Maps a time to a coordinate of the chart."""
MARK_LINE = 13
"""Pixels between two labels of marks, which would otherwise overlap."""


def lanes_picture(timeline: DrillTimeline) -> str:
    """A line for every process, on the same scale as the bindings below it."""
    end = _end(timeline)
    height = LANES_TOP + LANE * len(timeline.lanes) + BOTTOM

    x = _scale(end)
    parts = [_opening(height, "processes over time"), *_axis(end, x=x, top=LANES_TOP, bottom=height - BOTTOM)]
    for number, lane in enumerate(timeline.lanes):
        y = LANES_TOP + LANE * number
        name = escape(lane.name)
        parts.append(f'<text class="name" x="{LEFT - 8}" y="{y + LANE / 2 + 3.5}" text-anchor="end">{name}</text>')
        for span in lane.spans:
            words = f"{lane.name}: {span.state} for {span.end - span.begin:,.0f} ms"
            place = f'x="{x(span.begin)}" y="{y + 2}" width="{max(round(x(span.end) - x(span.begin), 1), 1)}"'
            parts.append(
                f'<g class="lane {escape(span.state)}"><title>{escape(words)}</title>'
                f'<rect {place} height="{LANE - 4}" rx="1.5"/></g>'
            )
    for mark in timeline.marks:
        at = x(mark.at)
        parts.append(f'<line class="mark" x1="{at}" x2="{at}" y1="{LANES_TOP}" y2="{height - BOTTOM}"/>')
    return "".join([*parts, "</svg>"])


def _end(timeline: DrillTimeline) -> float:
    return max([timeline.settled, *(it.ended or 0 for it in timeline.bars), 1.0])


def _scale(end: float) -> Scale:
    return lambda at: round(LEFT + (WIDTH - LEFT - RIGHT) * min(at, end) / end, 1)


def _opening(height: int, label: str) -> str:
    size = f'viewBox="0 0 {WIDTH} {height}"'
    return f'<svg {size} role="img" aria-label="{label}" xmlns="http://www.w3.org/2000/svg">'


def picture(timeline: DrillTimeline) -> str:
    """Times are milliseconds since the load began."""
    bars = sorted(timeline.bars, key=lambda it: (it.planned, it.created, len(it.pod), it.pod))
    row = 12 if len(bars) <= MOST_LABELLED else max(4, 960 // len(bars))
    marks = [it for it in timeline.marks if not it.what.startswith("wait")]
    end = _end(timeline)
    levels = _levels(marks, end)
    top = TOP + MARK_LINE * max(levels, default=0)
    height = top + row * len(bars) + BOTTOM

    x = _scale(end)
    parts = [_opening(height, "bindings over time"), *_axis(end, x=x, top=top, bottom=height - BOTTOM)]
    for number, bar in enumerate(bars):
        parts += _drawn_bar(bar, y=top + row * number, row=row, end=end, x=x, labelled=len(bars) <= MOST_LABELLED)
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
    """The row of each label."""
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


def _drawn_bar(bar: Bar, *, y: int, row: int, end: float, x: Scale, labelled: bool) -> Iterator[str]:
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
