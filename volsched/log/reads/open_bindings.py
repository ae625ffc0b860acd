"""Open bindings: all, overdue ones, their parked work, and the capacity that ended ones still take."""

from collections.abc import Iterable
from dataclasses import dataclass

from sqlalchemy import Connection, and_, bindparam, func, or_, select, text

from volsched.binding.rules.effects import BIND_POD, NOMINATE, UNNOMINATE
from volsched.binding.rules.late_writes import UNDO
from volsched.binding.rules.phases import UNDER_WAY, LegPhase, Phase
from volsched.binding.rules.saga import context_of, deadline_of
from volsched.log import tables
from volsched.log.batch import load_states
from volsched.log.database import Database
from volsched.log.dialects import dialect_of
from volsched.log.effects import EffectState
from volsched.log.events.fold import BindingState, State, binding_stream
from volsched.log.reads.tail import NEVER_REACHED

_OPEN = text("bindings.open")
_bindings = tables.bindings
_CAN_FAIL = or_(*(_bindings.c.state == it for it in sorted(UNDER_WAY)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Parked:
    """A parked effect, and the phase of its binding."""

    key: str
    kind: str
    binding: str
    leg: str
    phase: str
    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RetainedLeg:
    """A leg of an ended binding that was retained, not undone."""

    binding: str
    leg: int
    claim: str
    claim_uid: str
    volume: str | None
    pod: str
    node: str
    reason: str
    ended_at: int | None

    @property
    def key(self) -> str:
        return f"{self.binding}/{self.leg}"


def retained_legs(connection: Connection, *, after: str = "", limit: int) -> list[RetainedLeg]:
    """The retained legs in the order of bindings; a page at a time, after the key `after`."""
    legs = tables.binding_legs
    binding, _, leg = after.partition("/")
    query = (
        select(legs, _bindings.c.pod, _bindings.c.node, _bindings.c.ended_at)
        .join(_bindings, _bindings.c.id == legs.c.binding)
        .where(legs.c.state == LegPhase.RETAINED)
        .order_by(legs.c.binding, legs.c.leg)
        .limit(limit)
    )
    if binding:
        behind = (legs.c.binding == binding) & (legs.c.leg > int(leg or -1))
        query = query.where((legs.c.binding > binding) | behind)
    return [
        RetainedLeg(
            binding=row.binding,
            leg=row.leg,
            claim=row.claim,
            claim_uid=row.claim_uid,
            volume=row.volume,
            pod=row.pod,
            node=row.node,
            reason=row.reason or "",
            ended_at=row.ended_at,
        )
        for row in connection.execute(query)
    ]


def bindings_of_effects(connection: Connection) -> list[tuple[str, str]]:
    """The key of every effect, and its binding."""
    effects = tables.effects
    return [(row.key, row.binding) for row in connection.execute(select(effects.c.key, effects.c.binding))]


def open_bindings(
    connection: Connection, *, after: str = "", limit: int | None = None, planned_before: int | None = None
) -> list[str]:
    """The ids of open bindings in order; a page at a time, after `after`."""
    values = {
        "after": after,
        "before": NEVER_REACHED if planned_before is None else planned_before,
        "most": NEVER_REACHED if limit is None else limit,
    }
    return [it for (it,) in dialect_of(connection.engine).run(connection, _WAITING, values)]


def overdue_bindings(connection: Connection, *, now: int, limit: int) -> list[str]:
    """Open bindings that have passed their deadline and can still fail by it, oldest first."""
    values = {"now": now, "most": limit}
    return [it for (it,) in dialect_of(connection.engine).run(connection, _OVERDUE, values)]


# Built once: executed every second.
_WAITING = (
    select(_bindings.c.id)
    .where(_OPEN, _bindings.c.id > bindparam("after"), _bindings.c.planned_at < bindparam("before"))
    .order_by(_bindings.c.id)
    .limit(bindparam("most"))
)
_OVERDUE = (
    select(_bindings.c.id)
    .where(_OPEN, _bindings.c.deadline <= bindparam("now"), _CAN_FAIL)
    .order_by(_bindings.c.deadline)
    .limit(bindparam("most"))
)
_effects = tables.effects
_PARKED = (
    select(_effects, _bindings.c.state.label("phase"))
    .join(_bindings, _bindings.c.id == _effects.c.binding)
    .where(_effects.c.state == EffectState.PARKED)
    .order_by(_effects.c.key)
    .limit(bindparam("most"))
)
_FAILED = (_bindings.c.state == Phase.COMPENSATING) & (_effects.c.kind != UNDO)
_LATE = (_effects.c.kind == BIND_POD) & (_bindings.c.deadline <= bindparam("now"))
# No leg waits for a nomination, so its binding may have ended before.
_ENDED = or_(_effects.c.kind == NOMINATE, _effects.c.kind == UNNOMINATE) & _bindings.c.open.is_(False)
_HOPELESS = _PARKED.where(or_(and_(_OPEN, _FAILED | _LATE), _ENDED))


def next_deadline(connection: Connection) -> int | None:
    """When the next binding can time out; one that is still being written has at least a minute."""
    query = select(_bindings.c.state, _bindings.c.deadline, _bindings.c.planned_at).where(
        _OPEN, _CAN_FAIL, _bindings.c.deadline.is_not(None)
    )
    times = (deadline_of(*row) for row in connection.execute(query))
    return min(times, default=None)


def parked_effects(connection: Connection, *, limit: int, hopeless_at: int | None = None) -> list[Parked]:
    """Parked effects, by key. With `hopeless_at`, only those whose binding ends without them: the binding has
    failed, or its deadline has passed and only the pod remains to be bound."""
    query = _PARKED if hopeless_at is None else _HOPELESS
    rows = dialect_of(connection.engine).run(connection, query, {"most": limit, "now": hopeless_at})
    return [
        Parked(
            key=row.key,
            kind=row.kind,
            binding=row.binding,
            leg=row.lane.rpartition("/")[2],
            phase=row.phase,
            error=row.error or "no error recorded",
        )
        for row in rows
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
    """The states of the bindings, and of all objects that their next step depends on."""
    states, _ = load_states(database, connection, map(binding_stream, bindings))
    for _ in range(2):
        # Twice: only a loaded claim shows which volume was provisioned for it.
        known = [state for state in states.values() if isinstance(state, BindingState)]
        missing = {it for state in known for it in context_of(state, states)} - states.keys()
        more, _ = load_states(database, connection, missing)
        states |= more
    return states


# Capacity that recently ended bindings took: the driver may not have published it yet.
#
# They are found by log time, so that a start costs recent work and not all history.

events, legs, bindings = tables.events, tables.binding_legs, tables.bindings


@dataclass(frozen=True, slots=True, kw_only=True)
class Promised:
    binding: str
    claim: str
    claim_uid: str
    capacity: str
    bytes: int
    appeared_at: int | None
    """The position at which the claim's volume was created; None: there is none yet."""


def promised_since(connection: Connection, time: int) -> list[Promised]:
    """The promised capacity of bindings that ended at the time or later, latest first."""
    moved = select(events.c.binding).where(events.c.at >= time, events.c.type == "BindingMoved")
    query = (
        select(legs)
        .join(bindings, bindings.c.id == legs.c.binding)
        .where(bindings.c.id.in_(moved), ~bindings.c.open, legs.c.capacity.is_not(None))
        .order_by(bindings.c.ended_at.desc(), legs.c.binding, legs.c.leg)
    )
    return [
        Promised(
            binding=row.binding,
            claim=row.claim,
            claim_uid=row.claim_uid,
            capacity=row.capacity,
            bytes=row.bytes or 0,
            appeared_at=None if row.volume is None else _created_at(connection, row.volume),
        )
        for row in connection.execute(query).all()
    ]


def _created_at(connection: Connection, volume: str) -> int | None:
    query = select(func.max(events.c.position)).where(
        events.c.stream == f"volume/{volume}", events.c.type == "VolumeCreated"
    )
    found = connection.execute(query).scalar()
    return None if found is None else int(found)
