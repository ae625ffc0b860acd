"""What the bindings did around a fault, as times on the clock of whoever watched.

Writers' clocks may be wrong, which is what a drill may be about: an event's time is when the watcher first saw a
log that was so long.
"""

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic import TypeAdapter
from pydantic_core import from_json
from sqlalchemy import select

from volsched.binding.rules.phases import Phase
from volsched.log import tables
from volsched.log.database import Database


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """A binding. Milliseconds since the load began."""

    binding: str
    pod: str
    legs: int
    created: float
    """The pod."""
    planned: float
    ended: float | None
    state: str
    reason: str = ""
    in_flight: bool = False
    """At a fault."""
    hit: float | None = None
    """When the first of these faults came."""
    moved: float | None = None
    """When it took its first step after processes were killed, if it was in flight then."""

    @property
    def committed(self) -> bool:
        return self.state == Phase.COMMITTED


@dataclass(frozen=True, slots=True, kw_only=True)
class TimelineMark:
    """Something that was done to the system."""

    at: float
    what: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DrillTimeline:
    bars: Sequence[Bar] = ()
    marks: Sequence[TimelineMark] = ()
    settled: float = 0
    """When everything had come to rest."""


TIMELINE = TypeAdapter(DrillTimeline)


@dataclass(slots=True)
class Positions:
    """When the log was how long."""

    times: list[float] = field(default_factory=list)
    heads: list[int] = field(default_factory=list)

    def seen(self, at: float, head: int) -> None:
        if not self.heads or head > self.heads[-1]:
            self.times.append(at)
            self.heads.append(head)

    def time_of(self, position: int) -> float:
        """What was never seen happened before the first look, or after the last."""
        number = bisect_left(self.heads, position)
        return self.times[min(number, len(self.times) - 1)] if self.times else 0.0


def read_bars(
    database: Database, positions: Positions, faults: Sequence[tuple[int, float]], killed: int | None = None
) -> list[Bar]:
    """Every binding there was, in order; `faults` are positions at which something was broken, and when.

    `killed` is the position at which processes were.
    """
    events, made = tables.events, dict[str, dict[str, Any]]()
    created: dict[str, int] = {}
    wanted = ("BindingPlanned", "BindingMoved", "LegMoved", "PodCreated")
    asked = select(events.c.position, events.c.stream, events.c.type, events.c.data).where(
        events.c.type.in_(wanted)
    )
    with database.read() as connection:
        for row in connection.execute(asked.order_by(events.c.position)):
            name = row.stream.partition("/")[2]
            if row.type == "PodCreated":
                created[name] = row.position
                continue
            made.setdefault(name, {"steps": []})["steps"].append(row.position)
            if row.type == "LegMoved":
                continue
            data = from_json(row.data)
            if row.type == "BindingPlanned":
                made[name] |= {"pod": data["pod"], "legs": len(data["legs"]), "from": row.position, "to": None}
            else:
                made[name].update(state=data["state"], reason=data.get("reason") or made[name].get("reason", ""))
                if not data["open"]:
                    made[name]["to"] = row.position
    return [_bar(name, it, created, positions, faults, killed) for name, it in made.items()]


def _bar(
    name: str,
    it: Mapping[str, Any],
    created: Mapping[str, int],
    positions: Positions,
    faults: Sequence[tuple[int, float]],
    killed: int | None,
) -> Bar:
    first, last = it["from"], it["to"]
    met = [at for position, at in faults if first <= position and (last is None or last > position)]
    was_open = killed is not None and first <= killed and (last is None or last > killed)
    moved = next((step for step in it["steps"] if step > (killed or 0)), None) if was_open else None
    return Bar(
        binding=name,
        pod=it["pod"],
        legs=it["legs"],
        created=positions.time_of(created.get(it["pod"], first)),
        planned=positions.time_of(first),
        ended=None if last is None else positions.time_of(last),
        state=it.get("state", Phase.PREBINDING),
        reason=it["reason"] if it.get("reason") else "",
        in_flight=bool(met),
        hit=min(met, default=None),
        moved=None if moved is None else positions.time_of(moved),
    )
