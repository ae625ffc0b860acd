"""Open bindings: which there are, which are overdue, and what of their work is parked or missing."""

from collections.abc import Iterable
from dataclasses import dataclass

from sqlalchemy import Connection, select, text

from volsched.binding.rules.late_writes import UNDO
from volsched.binding.rules.phases import UNDER_WAY, Phase
from volsched.binding.rules.saga import BIND_POD, context_of, deadline_of
from volsched.log import tables
from volsched.log.batch import load_states
from volsched.log.database import Database
from volsched.log.effects import EffectState
from volsched.log.events.fold import BindingState, State
from volsched.log.events.object_states import binding_stream

_OPEN = text("bindings.open")
_bindings = tables.bindings
_CAN_FAIL = _bindings.c.state.in_(sorted(UNDER_WAY))


@dataclass(frozen=True, slots=True, kw_only=True)
class Parked:
    """An effect that was given up, and the phase that its binding is in."""

    key: str
    kind: str
    binding: str
    leg: str
    phase: str
    error: str


def bindings_of_effects(connection: Connection) -> list[tuple[str, str]]:
    """The key of every effect, and the binding that it is done for."""
    effects = tables.effects
    return [(row.key, row.binding) for row in connection.execute(select(effects.c.key, effects.c.binding))]


def open_bindings(
    connection: Connection, *, after: str = "", limit: int | None = None, planned_before: int | None = None
) -> list[str]:
    """Ids in order; a page at a time, from behind `after`."""
    asked = select(_bindings.c.id).where(_OPEN, _bindings.c.id > after).order_by(_bindings.c.id)
    if planned_before is not None:
        asked = asked.where(_bindings.c.planned_at < planned_before)
    return list(connection.execute(asked.limit(limit)).scalars())


def overdue_bindings(connection: Connection, *, now: int, limit: int) -> list[str]:
    """Those whose deadline has passed while they can still fail by it, the oldest first."""
    asked = select(_bindings.c.id).where(_OPEN, _bindings.c.deadline <= now, _CAN_FAIL)
    return list(connection.execute(asked.order_by(_bindings.c.deadline).limit(limit)).scalars())


def next_deadline(connection: Connection) -> int | None:
    """When the next binding can be timed out; one that is still written has a minute at least."""
    asked = select(_bindings.c.state, _bindings.c.deadline, _bindings.c.planned_at).where(
        _OPEN, _CAN_FAIL, _bindings.c.deadline.is_not(None)
    )
    times = (deadline_of(*row) for row in connection.execute(asked))
    return min(times, default=None)


def parked_effects(connection: Connection, *, limit: int, hopeless_at: int | None = None) -> list[Parked]:
    """Effects that were given up, by key. With a time, only those whose binding ends without them: it has failed,
    or its deadline has passed and only the pod is left to be bound."""
    effects = tables.effects
    asked = (
        select(effects, _bindings.c.state.label("phase"))
        .join(_bindings, _bindings.c.id == effects.c.binding)
        .where(effects.c.state == EffectState.PARKED)
        .order_by(effects.c.key)
        .limit(limit)
    )
    if hopeless_at is not None:
        failed = (_bindings.c.state == Phase.COMPENSATING) & (effects.c.kind != UNDO)
        late = (effects.c.kind == BIND_POD) & (_bindings.c.deadline <= hopeless_at)
        asked = asked.where(_OPEN, failed | late)
    return [
        Parked(
            key=row.key,
            kind=row.kind,
            binding=row.binding,
            leg=row.lane.rpartition("/")[2],
            phase=row.phase,
            error=row.error or "no error kept",
        )
        for row in connection.execute(asked)
    ]


def known_effects(database: Database, connection: Connection, keys: Iterable[str]) -> tuple[set[str], set[str]]:
    """Which of these effects are queued, and which are done."""
    wanted = list(keys)
    queued, done = (
        {row["key"] for row in database.dialect.fetch(connection, table, "key", wanted)}
        for table in (tables.effects, tables.effects_done)
    )
    return queued, done


def surroundings(database: Database, connection: Connection, bindings: Iterable[str]) -> dict[str, State]:
    """The bindings, and all that decides how they go on."""
    states, _ = load_states(database, connection, map(binding_stream, bindings))
    for _ in range(2):
        # Twice: only a claim that is loaded tells which volume was provisioned for it.
        known = [state for state in states.values() if isinstance(state, BindingState)]
        missing = {it for state in known for it in context_of(state, states)} - states.keys()
        more, _ = load_states(database, connection, missing)
        states |= more
    return states
