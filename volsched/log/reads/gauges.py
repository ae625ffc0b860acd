"""How the store stands, in a few numbers: what a monitoring system asks for every few seconds."""

from dataclasses import dataclass

from sqlalchemy import Connection, func, select, text

from volsched.log import tables
from volsched.log.effects import EffectState
from volsched.log.reads.tail import read_head


@dataclass(frozen=True, slots=True, kw_only=True)
class InFlight:
    """Open bindings of one state, and when the oldest of them was planned."""

    state: str
    count: int
    oldest: int


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueGauge:
    """Effects of one queue and state, and when the first of them was or will be due."""

    queue: str
    state: str
    count: int
    first_due: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Gauges:
    position: int
    in_flight: tuple[InFlight, ...]
    effects: tuple[QueueGauge, ...]
    attempts: dict[str, int]
    """Outcome → how often."""
    at: int
    """When the last event was written, by the clock of whoever wrote it."""
    leases: tuple[str, ...]
    """The names of all there are."""

    @property
    def parked(self) -> int:
        return sum(it.count for it in self.effects if it.state == EffectState.PARKED)


def read_gauges(connection: Connection) -> Gauges:
    bindings, effects, attempts, leases = tables.bindings, tables.effects, tables.attempts, tables.leases
    open_ = (
        select(bindings.c.state, func.count(), func.min(bindings.c.planned_at))
        .where(text("bindings.open"))
        .group_by(bindings.c.state)
    )
    queued = select(effects.c.queue, effects.c.state, func.count(), func.min(effects.c.due)).group_by(
        effects.c.queue, effects.c.state
    )
    outcomes = select(attempts.c.outcome, func.sum(attempts.c.count)).group_by(attempts.c.outcome)
    head = read_head(connection)
    return Gauges(
        position=head.position,
        in_flight=tuple(
            InFlight(state=state, count=count, oldest=oldest) for state, count, oldest in connection.execute(open_)
        ),
        effects=tuple(
            QueueGauge(queue=queue, state=state, count=count, first_due=due)
            for queue, state, count, due in connection.execute(queued)
        ),
        attempts={outcome: int(times) for outcome, times in connection.execute(outcomes)},
        at=head.at,
        leases=tuple(connection.execute(select(leases.c.name)).scalars()),
    )
