"""Open bindings: which there are, which are overdue, and what of their work is parked or missing."""

from collections.abc import Iterable
from dataclasses import dataclass

from sqlalchemy import Connection, select, text

from volsched.core.binding.phases import Phase
from volsched.store import tables
from volsched.store.database import Database
from volsched.store.effects import EffectState

_OPEN = text("open")
_bindings = tables.bindings


@dataclass(frozen=True, slots=True, kw_only=True)
class Parked:
    """An effect that was given up, and the phase that its binding is in."""

    key: str
    kind: str
    binding: str
    leg: str
    phase: str
    error: str
    deadline: int | None
    """Of the binding."""


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
    under_way = _bindings.c.state.in_([Phase.PREBINDING, Phase.WAITING])
    asked = select(_bindings.c.id).where(_OPEN, _bindings.c.deadline <= now, under_way)
    return list(connection.execute(asked.order_by(_bindings.c.deadline).limit(limit)).scalars())


def next_deadline(connection: Connection) -> int | None:
    under_way = _bindings.c.state.in_([Phase.PREBINDING, Phase.WAITING])
    asked = select(_bindings.c.deadline).where(_OPEN, under_way, _bindings.c.deadline.is_not(None))
    found: int | None = connection.execute(asked.order_by(_bindings.c.deadline).limit(1)).scalar()
    return found


def parked_effects(connection: Connection, *, limit: int) -> list[Parked]:
    effects = tables.effects
    asked = (
        select(effects, _bindings.c.state.label("phase"), _bindings.c.deadline)
        .join(_bindings, _bindings.c.id == effects.c.binding)
        .where(effects.c.state == EffectState.PARKED)
        .order_by(effects.c.key)
        .limit(limit)
    )
    return [
        Parked(
            key=row.key,
            kind=row.kind,
            binding=row.binding,
            leg=row.lane.rpartition("/")[2],
            phase=row.phase,
            error=row.error or "no error kept",
            deadline=row.deadline,
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
