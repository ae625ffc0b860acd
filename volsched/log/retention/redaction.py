"""Redacting old events in place: the rows are changed and the log says so, in one transaction.

A range can be redacted once it is closed, as for an archive (`store.closed`). Who reads an event meanwhile
sees it before or after. Of an object that was deleted, and of one that had its name before, annotations go too:
nothing that is there now follows from them. Snapshots of such a life are dropped; they are only a cache of it.

What is not reached: archives and backups that were made before (files are not the store's), and the base states
behind an archive until the next archive moves past the end of the object.
"""

from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace

from sqlalchemy import Connection, bindparam, delete, func, select, update

from volsched.log import tables
from volsched.log.base import read_base
from volsched.log.batch import Head, begin_batch, load, lock_head, stage
from volsched.log.batch_writes import write
from volsched.log.database import Database
from volsched.log.dialects import dialect_of
from volsched.log.errors import StoreError
from volsched.log.events.catalogue import CATALOGUE, StateChange
from volsched.log.events.envelope import Event, NewEvent
from volsched.log.events.redaction import REDACTION, REDACTIONS, Redact, redacted, seal_of
from volsched.log.integrity.replay import Progress
from volsched.log.retention.closed_range import check_closed

STEP = 500
"""Events that are redacted in one transaction; the event that seals them holds some 80 bytes for each."""
_DELETIONS = [name for name, entry in CATALOGUE.items() if entry.change is StateChange.DELETE]
_events = tables.events


@dataclass(frozen=True, slots=True, kw_only=True)
class Redacted:
    until: int
    """The last position that was looked at."""
    events: int = 0
    first: int | None = None
    """The first position that was redacted."""


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
    """Redact all events up to a position that have something of it; those that have none are left as they are.

    Each step is complete in itself: whoever is interrupted runs it again, and what is redacted already stays so.
    """
    with database.read() as connection:
        base = read_base(connection)
        check_closed(connection, base, until, now=now, done="redacted")
        ends = _ends(connection, until)
    done, after = Redacted(until=until), base.position
    while after < until:
        with database.read() as connection:
            found = list(_found(connection, after, until, what, ends))
        if found:
            done = replace(done, events=done.events + len(found), first=done.first or found[0].position)
            if not dry_run:
                _write(database, base, found, what, ends, actor=actor, now=now, reason=reason)
        after = found[-1].position if len(found) == STEP else until
        if progress is not None:
            progress(after)
    return done


def _ends(connection: Connection, until: int) -> dict[str, int]:
    """Stream → where its last life ended; what came before that is needed by no object there is."""
    last = select(_events.c.stream, func.max(_events.c.position)).where(
        _events.c.type.in_(_DELETIONS), _events.c.position <= until
    )
    return {row[0]: row[1] for row in connection.execute(last.group_by(_events.c.stream))}


def _found(
    connection: Connection, after: int, until: int, what: Collection[Redact], ends: dict[str, int]
) -> Iterator[Event]:
    """The next step's events, as they shall be."""
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
    found: list[Event],
    what: Collection[Redact],
    ends: dict[str, int],
    *,
    actor: str,
    now: int,
    reason: str | None,
) -> None:
    first, last = found[0].position, found[-1].position
    data = {
        "first": first,
        "last": last,
        "what": sorted(what),
        "seals": {str(it.position): seal_of(it).hex() for it in found},
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
            [{"at_position": it.position, "new_actor": it.actor, "new_data": it.data} for it in found],
        )
        kept = tables.snapshots
        for stream in {it.stream for it in found if it.stream in ends}:
            of_ended = (kept.c.position > base.position, kept.c.position <= ends[stream])
            connection.execute(delete(kept).where(kept.c.stream == stream, *of_ended))
