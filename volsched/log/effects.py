"""The queue of effects: work outside the log, claimed in batches under a lease and a fence.

An effect is ready, leased or parked; a done one has left the queue (`Command.effect`, in the transaction of the
events it caused). Every claim raises its fence, and a write under an older fence changes nothing.

Effects of a lane are done one after the other: only the first one can be claimed, and while it waits, is leased
or is parked, the ones behind it wait too. Claiming does not take the head lock, so that workers never queue
behind writers; lanes are safe all the same:

- Effects are only added behind all others of their lane: under the head lock, with a growing (position, seq).
  So a reader that sees an effect sees every earlier one that is not done yet, and a first effect stays first.
- A claimant with a stale view can only mistake a done effect for the first one. It then finds no row to lock. An
  effect that another process has claimed meanwhile is read again under its row lock, and skipped.
- A writer that records an outcome holds the effect's row lock from its check of the fence to its commit
  (`fences_of`), so an expired lease cannot be taken over in between.

Rejected: an advisory lock or a row per lane (one more lock per effect; the order of adding is enough), and marking
effects as blocked (two more writes per effect on the hot path).

Lock order after the head row: effects by key, wherever a transaction waits for more than one.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from enum import StrEnum
from functools import cache
from typing import Any

from pydantic_core import from_json
from sqlalchemy import (
    BindParameter,
    ColumnElement,
    CompoundSelect,
    Connection,
    Select,
    Update,
    bindparam,
    delete,
    func,
    insert,
    literal,
    select,
    tuple_,
    union_all,
    update,
)

from volsched.log import tables
from volsched.log.database import Database
from volsched.log.dialects import Dialect
from volsched.log.sessions import LeaseTerm

MAX_ATTEMPTS = 8
FIRST_BACKOFF_US = 500_000
LONGEST_BACKOFF_US = 300_000_000
MAX_ERROR_CHARS = 4_000
DEFAULT_LENGTH_US = 30_000_000
"""The length of a lease whose writer (an older program) did not record it: the default of that setting."""
LEASE_RAN_OUT = "The lease of the last attempt ran out: its worker died, hung, or took too long."

effects = tables.effects


class EffectState(StrEnum):
    READY = "ready"
    LEASED = "leased"
    PARKED = "parked"


class Retry(StrEnum):
    """The result for an effect whose attempt failed."""

    RETRYING = "retrying"
    PARKED = "parked"
    DEPOSED = "deposed"
    """Nothing changed: the effect is no longer ours."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Claimed:
    """An effect to be carried out by us, and by no other process while the lease lasts."""

    key: str
    lane: str
    queue: str
    kind: str
    binding: str | None
    data: Mapping[str, Any]
    position: int
    """Position of the event that the effect was queued with."""
    fence: int
    attempts: int
    """Attempts so far, including this one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuedEffect:
    """An effect as an operator sees it."""

    key: str
    lane: str
    queue: str
    kind: str
    binding: str | None
    data: Mapping[str, Any]
    position: int
    due: int
    state: EffectState
    lease_owner: str | None
    lease_until: int | None
    attempts: int
    error: str | None


def claim(
    database: Database,
    *,
    queue: str,
    owner: str,
    limit: int,
    now: int,
    lease_for: int,
    max_attempts: int = MAX_ATTEMPTS,
) -> list[Claimed]:
    """Take up to `limit` effects that are due; attempts count from here on, so a crash counts as one.

    Oldest trouble first: expired leases, then effects whose backoff is over, then new ones in log order. By time
    alone, an effect that failed once would wait behind every new one in a burst.

    An effect that lost its lease in its last attempt is parked instead, so fewer than `limit` does not mean that
    the queue is empty.
    """
    session = database.observer.session.id()
    with database.write_beside_log() as connection:
        abandoned = _abandoned(database, connection, (queue,), now, "claim")
        given = {"queue": queue, "now": now, "abandoned": database.dialect.named(abandoned), "room": limit}
        ranges = database.dialect.run_all(connection, _claimable(database.dialect), given)
        # An effect whose lease was renewed, or that was claimed again, before we locked its row is not abandoned.
        rows = [row for it in ranges for row in it if row.key not in abandoned or _is_free(row, abandoned, now)]
        exhausted = {row.key for row in rows if row.state == EffectState.LEASED and row.attempts >= max_attempts}
        taken = [row for row in rows if row.key not in exhausted][:limit]
        if exhausted:
            _give_back(database, connection, exhausted, state=EffectState.PARKED, error=LEASE_RAN_OUT)
        if taken:
            values = {"owner": owner, "until": now + lease_for, "length": lease_for, "session": session}
            these = database.dialect.named({row.key for row in taken})
            database.dialect.run(connection, _taking(database.dialect), {**values, "these": these})
    return [
        Claimed(
            key=row.key,
            lane=row.lane,
            queue=row.queue,
            kind=row.kind,
            binding=row.binding,
            data=from_json(row.data),
            position=row.position,
            fence=row.fence + 1,
            attempts=row.attempts + 1,
        )
        for row in taken
    ]


def backoff(attempts: int, *, first: int = FIRST_BACKOFF_US, longest: int = LONGEST_BACKOFF_US) -> int:
    """How long to wait after this many attempts, in microseconds: doubling, up to a bound.

    Without jitter: however many become due at once, they are claimed a batch at a time.
    """
    return min(first << min(max(attempts - 1, 0), 63), longest)


def retry_later(
    database: Database, *, key: str, fence: int, due: int, error: str, max_attempts: int = MAX_ATTEMPTS
) -> Retry:
    """Return an effect whose attempt failed: claimable again at `due`, or parked if that was the last attempt."""
    with database.write_beside_log() as connection:
        attempts = _attempts_if_leased(database, connection, key, fence)
        if attempts is None:
            return Retry.DEPOSED
        if attempts >= max_attempts:
            _give_back(database, connection, {key}, state=EffectState.PARKED, error=error)
            return Retry.PARKED
        _give_back(database, connection, {key}, state=EffectState.READY, due=max(due, 0), error=error)
        return Retry.RETRYING


def unpark(database: Database, *, key: str, now: int) -> bool:
    """An operator's retry: due at once, with its attempts reset; False if the effect is not parked.

    The error stays readable until the next attempt has ended.
    """
    with database.write_beside_log() as connection:
        parked = select(effects.c.key).where(effects.c.key == key, effects.c.state == EffectState.PARKED)
        was_parked = connection.execute(database.dialect.lock_rows(parked)).first() is not None
        if was_parked:
            _change(database, connection, {key}, state=EffectState.READY, due=max(now, 0), attempts=0)
    return was_parked


def cancel(database: Database, *, key: str, outcome: str, now: int) -> bool:
    """Remove a parked effect from the queue for good; False if it is not parked. Its lane continues after it."""
    done = tables.effects_done
    with database.write_beside_log() as connection:
        parked = select(effects).where(effects.c.key == key, effects.c.state == EffectState.PARKED)
        row = connection.execute(database.dialect.lock_rows(parked)).first()
        if row is not None:
            kept = {name: getattr(row, name) for name in ("key", "lane", "queue", "kind", "binding", "data")}
            connection.execute(
                insert(done).values(**kept, outcome=outcome, attempts=row.attempts, done_at=max(now, 0))
            )
            connection.execute(delete(effects).where(effects.c.key == key))
    return row is not None


def extend(database: Database, fences: Mapping[str, int], *, until: int) -> set[str]:
    """The heartbeat of a batch, key → fence: extends leases to `until`; returns the keys that are still ours."""
    if not fences:
        return set()
    with database.write_beside_log() as connection:
        ours = tuple_(effects.c.key, effects.c.fence).in_(list(fences.items()))
        held = select(effects.c.key).where(ours, effects.c.state == EffectState.LEASED).order_by(effects.c.key)
        keys = set(connection.execute(database.dialect.lock_rows(held)).scalars())
        if keys:
            _change(database, connection, keys, lease_until=until)
    return keys


def fences_of(database: Database, connection: Connection, keys: Iterable[str], *, locked: bool) -> dict[str, int]:
    """The fences of the leased effects; `locked`: no other process can claim them until this transaction ends.

    For the process that records outcomes. A claim skips the locked rows; if they were only read, it could take
    over an expired lease between the check of the fence and the commit, and both would have done the effect.
    """
    asked = _leased(database.dialect, locked=locked)
    rows = database.dialect.run(connection, asked, {"these": database.dialect.named(keys)})
    return {row.key: row.fence for row in rows}


@cache
def _leased(dialect: Dialect, *, locked: bool) -> Select[Any]:
    these = dialect.among_named(effects.c.key, "these"), effects.c.state == EffectState.LEASED
    rows = select(effects.c.key, effects.c.fence).where(*these).order_by(effects.c.key)
    return dialect.lock_rows(rows) if locked else rows


def list_effects(
    database: Database,
    *,
    state: EffectState | None = None,
    queue: str | None = None,
    limit: int = 100,
    after: str | None = None,
) -> list[QueuedEffect]:
    """A page of the queue by key; `after` is the last key of the page before."""
    page = select(*(effects.c[entry.name] for entry in fields(QueuedEffect))).order_by(effects.c.key).limit(limit)
    if state is not None:
        page = page.where(effects.c.state == state)
    if queue is not None:
        page = page.where(effects.c.queue == queue)
    if after is not None:
        page = page.where(effects.c.key > after)
    with database.read() as connection:
        rows = connection.execute(page).all()
    return [
        QueuedEffect(**{**row._mapping, "data": from_json(row.data), "state": EffectState(row.state)})
        for row in rows
    ]


def counts(database: Database) -> dict[tuple[str, EffectState], int]:
    """How many effects there are by queue and state; combinations without effects are missing."""
    grouped = select(effects.c.queue, effects.c.state, func.count()).group_by(effects.c.queue, effects.c.state)
    with database.read() as connection:
        return {(queue, EffectState(state)): count for queue, state, count in connection.execute(grouped)}


def next_due(database: Database, *, queues: Iterable[str]) -> int | None:
    """When something can be claimed next if nothing else happens; None: not before an effect is added or done."""
    with database.glance() as connection:
        times = database.dialect.run(connection, _next_times(tuple(queues)))
    return min((time for (time,) in times if time is not None), default=None)


def due_queues(database: Database, queues: Iterable[str], *, now: int) -> list[str]:
    """The queues among these in which something can be claimed now."""
    names = tuple(queues)
    with database.glance() as connection:
        # Two reads at different times suffice: a claim checks the rows again that it locks.
        abandoned = database.dialect.named(_abandoned(database, connection, names, now, "due"))
        values = {"now": now, "abandoned": abandoned}
        return [queue for (queue,) in database.dialect.run(connection, _some_due(database.dialect, names), values)]


_mate = effects.alias("mate")
# A subquery per candidate, not an anti-join: PostgreSQL could hash the whole queue for an anti-join.
_FIRST_OF_LANE = effects.c.key == (
    select(_mate.c.key)
    .where(_mate.c.lane == effects.c.lane)
    .order_by(_mate.c.position, _mate.c.seq)
    .limit(1)
    .correlate(effects)
    .scalar_subquery()
)


@cache
def _claimable(dialect: Dialect) -> tuple[Select[Any], ...]:
    """The claimable effects, oldest trouble first; each a range of `ix_effects_claim` in its own order.

    Built once: building a statement costs several times the query of an empty queue.
    """
    state, due, place = effects.c.state, effects.c.due, (effects.c.position, effects.c.seq)
    ranges: tuple[tuple[ColumnElement[bool], tuple[ColumnElement[int], ...]], ...] = (
        (_is_left(dialect), place),
        ((state == EffectState.READY) & (due > 0) & _is_due(), (due, *place)),
        ((state == EffectState.READY) & (due == 0), place),
    )

    def one(condition: ColumnElement[bool], order: tuple[ColumnElement[int], ...]) -> Select[Any]:
        found = select(effects).where(effects.c.queue == bindparam("queue"), condition, _FIRST_OF_LANE)
        return dialect.claim_rows(found.order_by(*order).limit(bindparam("room")), effects)

    return tuple(one(*it) for it in ranges)


@cache
def _next_times(queues: tuple[str, ...]) -> CompoundSelect[Any]:
    def ready(queue: str) -> Select[Any]:
        here = effects.c.queue == queue, effects.c.state == EffectState.READY, _FIRST_OF_LANE
        return select(select(effects.c.due).where(*here).order_by(effects.c.due).limit(1).scalar_subquery())

    def leased(queue: str) -> Select[Any]:
        until = select(func.min(effects.c.lease_until) + 1)
        return until.where(effects.c.queue == queue, effects.c.state == EffectState.LEASED)

    return union_all(*(it(queue) for queue in queues for it in (ready, leased)))


@cache
def _taking(dialect: Dialect) -> Update:
    return (
        update(effects)
        .where(dialect.among_named(effects.c.key, "these"))
        .values(
            state=EffectState.LEASED,
            lease_owner=bindparam("owner"),
            lease_until=bindparam("until"),
            lease_length=bindparam("length"),
            lease_session=bindparam("session"),
            fence=effects.c.fence + 1,
            attempts=effects.c.attempts + 1,
        )
    )


@cache
def _some_due(dialect: Dialect, queues: tuple[str, ...]) -> CompoundSelect[Any]:
    ready = (effects.c.state == EffectState.READY) & _is_due()
    some = select(effects.c.key).where(ready | _is_left(dialect), _FIRST_OF_LANE)
    return union_all(*(select(literal(it)).where(some.where(effects.c.queue == it).exists()) for it in queues))


def _is_due() -> ColumnElement[bool]:
    """Whether an effect is due. No backoff exceeds the longest one: a later due time comes from a wrong clock."""
    now: BindParameter[int] = bindparam("now")
    return (effects.c.due <= now) | (effects.c.due > now + LONGEST_BACKOFF_US)


def _is_left(dialect: Dialect) -> ColumnElement[bool]:
    """Claimed by a process that has lost its lease."""
    now: BindParameter[int] = bindparam("now")
    over = (effects.c.lease_until < now) | dialect.among_named(effects.c.key, "abandoned")
    return (effects.c.state == EffectState.LEASED) & over


@cache
def _leased_in(queues: tuple[str, ...]) -> Select[Any]:
    query = select(
        effects.c.key, effects.c.fence, effects.c.lease_until, effects.c.lease_length, effects.c.lease_session
    )
    return query.where(effects.c.queue.in_(queues), effects.c.state == EffectState.LEASED)


def _abandoned(
    database: Database, connection: Connection, queues: tuple[str, ...], now: int, why: str
) -> dict[str, tuple[int, int]]:
    """Keys whose leases have ended early (`log.sessions`), each with its fence and end."""
    observer, place = database.observer, f"{why}/{'/'.join(queues)}"
    if not observer.may_check(place):
        return {}
    rows = {_observed_name(place, row.key): row for row in database.dialect.run(connection, _leased_in(queues))}
    observer.forget(_observed_name(place, ""), rows.keys())
    terms = {
        name: LeaseTerm(
            stamp=(row.fence, row.lease_until),
            until=row.lease_until,
            length=DEFAULT_LENGTH_US if row.lease_length is None else row.lease_length,
            session=row.lease_session,
        )
        for name, row in rows.items()
        if row.lease_until >= now
    }
    over = observer.check(connection, terms, now=now) if terms else {}
    return {rows[name].key: (rows[name].fence, rows[name].lease_until) for name in over}


def _is_free(row: Any, abandoned: Mapping[str, tuple[int, int]], now: int) -> bool:
    same = abandoned[row.key] == (row.fence, row.lease_until)
    return same or row.state != EffectState.LEASED or row.lease_until < now


def _observed_name(place: str, key: str) -> str:
    return f"effect/{place}/{key}"


def _attempts_if_leased(database: Database, connection: Connection, key: str, fence: int) -> int | None:
    query = select(effects.c.attempts).where(
        effects.c.key == key, effects.c.fence == fence, effects.c.state == EffectState.LEASED
    )
    attempts: int | None = connection.execute(database.dialect.lock_rows(query)).scalar()
    return attempts


def _give_back(
    database: Database, connection: Connection, keys: set[str], *, state: EffectState, error: str, **values: Any
) -> None:
    # Text in a database holds neither NUL nor half a surrogate pair; an exception's message may.
    message = error.encode(errors="replace").decode().replace("\0", "?")[:MAX_ERROR_CHARS]
    nobody = {"lease_length": None, "lease_session": None}
    _change(
        database,
        connection,
        keys,
        state=state,
        error=message,
        lease_owner=None,
        lease_until=None,
        **nobody,
        **values,
    )


def _change(database: Database, connection: Connection, keys: set[str], **values: Any) -> None:
    """Change rows that this transaction has locked."""
    connection.execute(update(effects).where(database.dialect.among(effects.c.key, keys)).values(**values))
