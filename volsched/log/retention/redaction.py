"""Redacting old events in place, in the closed part of the log."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import Connection, Select, bindparam, delete, func, literal, select, update

from volsched.log import tables
from volsched.log.base import read_base
from volsched.log.batch import Head, begin_batch, load, lock_head, stage
from volsched.log.database import Database
from volsched.log.dialects import dialect_of
from volsched.log.errors import BrokenLogError, Finding, StoreError
from volsched.log.events.catalogue import CATALOGUE, StateChange
from volsched.log.events.envelope import REDACTION, REDACTIONS, Event, NewEvent, Redact, redacted, seal_of
from volsched.log.events.streams import BINDING
from volsched.log.integrity.replay import MISSING, Progress
from volsched.log.reads.tail import event, last_until, position_at, read_head
from volsched.log.transaction import report, write

# The closed part of the log: no process needs its events any more, so they may be archived or redacted.
#
# Not closed, however old:
#
# - everything from the first event of the oldest open binding on: a rollback or an explanation may read it;
# - events of the last minutes: a writer whose connection broke looks for its last event for a minute, and readers
#   may be that far behind;
# - the last event, which the head is checked against;
# - events of unknown types or schemas: this program cannot tell their consequences.

SETTLED_AFTER_US = 120_000_000

_events, _bindings = tables.events, tables.bindings


def check_closed(connection: Connection, base: Head, until: int, *, now: int, done: str = "archived") -> None:
    """Raises unless everything up to the position is closed; `done` names the caller's operation."""
    head, last = read_head(connection), event(connection, until)
    if until >= head.position:
        raise StoreError(
            f"position {until} cannot be {done}: the log ends at {head.position} and its last event stays; "
            f"give {head.position - 1} or less"
        )
    if last is None:
        raise BrokenLogError(Finding(problem=MISSING, position=until))
    if last.at > now - SETTLED_AFTER_US:
        raise StoreError(
            f"position {until} was written within the last {SETTLED_AFTER_US // 1_000_000} seconds, and a writer "
            "or reader may still need it; give an earlier position, or wait"
        )
    check_bindings(connection, until, done)
    _check_known(connection, base, until, done)


def closed_until(connection: Connection, base: Head, until: int, *, now: int) -> int:
    """The last position up to the given one that is closed; the base's where none is."""
    settled = now - SETTLED_AFTER_US
    last = min(
        until, read_head(connection).position - 1, position_at(connection, settled) if settled > base.at else 0
    )
    opened = _opened().subquery()
    oldest = connection.execute(select(func.min(opened.c.first))).scalar()
    unknown = next(_unknown(connection, base, last), None)
    limits = [at - 1 for at in (oldest, None if unknown is None else unknown[2]) if at is not None]
    # Not one stamped by a clock that was ahead: the log would seem to begin in the future.
    closed = last_until(connection, settled, within=min([last, *limits]))
    return max(closed or 0, base.position)


def check_bindings(connection: Connection, until: int, done: str = "archived") -> None:
    """No binding whose history begins in the range is open."""
    opened = _opened().subquery()
    oldest = connection.execute(select(opened).where(opened.c.first <= until).order_by(opened.c.first)).first()
    if oldest is not None:
        raise StoreError(
            f'position {until} cannot be {done}: binding "{oldest.id}" is open and its history begins at '
            f"{oldest.first}; give {oldest.first - 1} or less, or wait until the binding has ended"
        )


def _opened() -> Select[Any]:
    stream = literal(f"{BINDING}/") + _bindings.c.id
    # Its plan, or the first event after it where the plan is archived and the binding was reopened.
    first = select(func.min(_events.c.position)).where(_events.c.stream == stream).scalar_subquery()
    return select(_bindings.c.id, first.label("first")).where(_bindings.c.open)


def _check_known(connection: Connection, base: Head, until: int, done: str) -> None:
    for type_, schema, first in _unknown(connection, base, until):
        raise StoreError(
            f"position {first} holds {type_} of schema {schema}, which this program does not know, so it "
            f"cannot tell its consequences; have it {done} by the newer volsched"
        )


def _unknown(connection: Connection, base: Head, until: int) -> Iterator[tuple[str, int, int]]:
    """Type, schema and first position of unknown events, oldest first."""
    first = func.min(_events.c.position).label("first")
    kinds = select(_events.c.type, _events.c.schema, first)
    kinds = kinds.where(_events.c.position > base.position, _events.c.position <= until)
    for type_, schema, position in connection.execute(
        kinds.group_by(_events.c.type, _events.c.schema).order_by(first)
    ):
        entry = CATALOGUE.get(type_)
        if entry is None or entry.schema < schema:
            yield type_, schema, position


# A range can be redacted once it is closed, as for an archive. A concurrent reader sees an event before or after.
# Annotations of a deleted object, and of an earlier object of the same name, are redacted too: nothing present
# depends on them. Snapshots of such a life are dropped; they are only a cache of it.
#
# Not reached: archives and backups that were written before (the store does not own those files), and the base
# states behind an archive until the next archive moves past the end of the object.

STEP = 500
"""Events that are redacted in one transaction; the event that seals them holds some 80 bytes for each."""
_DELETIONS = [name for name, entry in CATALOGUE.items() if entry.change is StateChange.DELETE]


@dataclass(frozen=True, slots=True, kw_only=True)
class Redacted:
    until: int
    """The last position examined."""
    events: int = 0
    first: int | None = None
    """The first position redacted."""


def redact(
    database: Database,
    *,
    until: int,
    what: Collection[Redact],
    actor: str,
    now: int,
    reason: str | None = None,
    dry_run: bool = False,
    progress: Progress | None = None,
) -> Redacted:
    """Redact all events up to a position that hold such data; the others are left unchanged.

    Each step is complete in itself: after an interruption the same command continues, and redacted events stay so.
    """
    with database.read() as connection:
        base = read_base(connection)
        check_closed(connection, base, until, now=now, done="redacted")
        ends = _ends(connection, until)
    done, after = Redacted(until=until), base.position
    while after < until:
        with database.read() as connection:
            events = list(_redacted_events(connection, after, until, what, ends))
        if events:
            done = replace(done, events=done.events + len(events), first=done.first or events[0].position)
            if not dry_run:
                _write(database, base, events, what, ends, actor=actor, now=now, reason=reason)
        after = events[-1].position if len(events) == STEP else until
        if progress is not None:
            progress(after)
    return done


def _ends(connection: Connection, until: int) -> dict[str, int]:
    """Stream → where its last life ended; no present object needs earlier events."""
    last = select(_events.c.stream, func.max(_events.c.position)).where(
        _events.c.type.in_(_DELETIONS), _events.c.position <= until
    )
    return {row[0]: row[1] for row in connection.execute(last.group_by(_events.c.stream))}


def _redacted_events(
    connection: Connection, after: int, until: int, what: Collection[Redact], ends: dict[str, int]
) -> Iterator[Event]:
    """The next step's events, redacted."""
    count = 0
    for chunk in dialect_of(connection.engine).scan(
        connection, _events, order="position", after=after, until=until
    ):
        for row in chunk:
            event = Event._make(row)
            left = redacted(event, what, ended=event.position <= ends.get(event.stream, 0))
            if left is not event:
                yield left
                count += 1
            if count == STEP:
                return


def _write(
    database: Database,
    base: Head,
    rewritten: list[Event],
    what: Collection[Redact],
    ends: dict[str, int],
    *,
    actor: str,
    now: int,
    reason: str | None,
) -> None:
    first, last = rewritten[0].position, rewritten[-1].position
    data = {
        "first": first,
        "last": last,
        "what": sorted(what),
        "seals": {str(it.position): seal_of(it).hex() for it in rewritten},
    } | ({} if reason is None else {"reason": reason})
    with database.write() as connection:
        head = lock_head(database, connection)
        if read_base(connection) != base:
            raise StoreError("this store is being archived; nothing was lost, run it again")
        batch = begin_batch(database, connection, head, now=now, actor=actor)
        load(database, connection, batch, [REDACTIONS])
        events, states = stage(batch, actor, [NewEvent(stream=REDACTIONS, type=REDACTION, data=data)], None)
        batch.take(events, states, ())
        write(database, connection, batch)
        changed = (
            update(_events)
            .where(_events.c.position == bindparam("at_position"))
            .values(actor=bindparam("new_actor"), data=bindparam("new_data"))
        )
        connection.execute(
            changed,
            [{"at_position": it.position, "new_actor": it.actor, "new_data": it.data} for it in rewritten],
        )
        kept = tables.snapshots
        for stream in {it.stream for it in rewritten if it.stream in ends}:
            of_ended = (kept.c.position > base.position, kept.c.position <= ends[stream])
            connection.execute(delete(kept).where(kept.c.stream == stream, *of_ended))
    report(database, batch)
