"""Reading the log: its head, its tail, one stream, one binding, and an object at a position.

This is the one place where stored events are turned into the fold's input (`fold_event`): data parsed and upcast
to today's schema.

Where events were archived, a reader that must miss nothing gets an ArchivedError; a timeline (`read_stream`,
`events_of_binding`) begins with the first event in the store.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import orjson
from sqlalchemy import Connection, Select, bindparam, func, select, true

from volsched.log import tables
from volsched.log.base import archived, newest_snapshot, read_base
from volsched.log.batch import Head
from volsched.log.dialects import dialect_of
from volsched.log.errors import NewerStoreError, NotMigratedError
from volsched.log.events.catalogue import CATALOGUE
from volsched.log.events.envelope import Event, upcast
from volsched.log.events.fold import State, evolve
from volsched.log.events.streams import LOG_CLOCK
from volsched.log.revisions import FORMAT

_events = tables.events
CHUNK = 5_000
"""The most events that a follower of the log holds at once."""
NEVER_REACHED = 2**62
_SCHEMAS = {name: entry.schema for name, entry in CATALOGUE.items()}
_HEAD = select(tables.log_head)
_TAIL = (
    select(_events)
    .where(_events.c.position > bindparam("after"))
    .order_by(_events.c.position)
    .limit(bindparam("limit"))
)
"""Built once: every process executes it all the time, and building takes longer than executing."""


def read_head(connection: Connection) -> Head:
    """Where the log ends; refuses a store that requires newer readers."""
    rows = dialect_of(connection.engine).run(connection, _HEAD)
    if not rows:
        raise NotMigratedError("the store has no head; run: volsched migrate")
    row = rows[0]
    if row.min_reader > FORMAT:
        raise NewerStoreError(
            f"the store asks for readers of format {row.min_reader} or newer and this program reads format "
            f"{FORMAT}; install the newer volsched"
        )
    return Head(row.position, bytes(row.hash), row.at)


def tail(connection: Connection, *, after: int, limit: int) -> list[Event]:
    """The events that follow a position, in order. Positions are commit-ordered: none is inserted later."""
    rows = dialect_of(connection.engine).run(connection, _TAIL, {"after": after, "limit": limit})
    events = [Event._make(row) for row in rows]
    # An archive always leaves the last event, so a reader that fell behind one sees a gap, never just nothing.
    if events and events[0].position > after + 1:
        base = read_base(connection)
        if after < base.position:
            raise archived(connection, f"position {after + 1}", base)
    return events


def tails(connection: Connection, *, after: int) -> Iterator[list[Event]]:
    """All events that follow a position, in chunks. Positions are dense, so this needs no read transaction."""
    while events := tail(connection, after=after, limit=CHUNK):
        yield events
        if len(events) < CHUNK:
            return
        after = events[-1].position


def read_stream(
    connection: Connection, stream: str, *, after_version: int = 0, limit: int | None = None
) -> list[Event]:
    query = select(_events).where(_events.c.stream == stream, _events.c.version > after_version)
    return _read(connection, query.limit(limit), by_version=True)


def events_of_binding(connection: Connection, binding: str) -> list[Event]:
    """All events of a binding, over all streams."""
    return _read(connection, select(_events).where(_events.c.binding == binding))


def event(connection: Connection, position: int) -> Event | None:
    found = _read(connection, select(_events).where(_events.c.position == position))
    return found[0] if found else None


def position_at(connection: Connection, time: int) -> int:
    """The last position written at or before a time; 0 where there is none."""
    base = read_base(connection)
    if time < base.at:
        raise archived(connection, "that time", base)
    return last_until(connection, time) or base.position


def last_until(connection: Connection, time: int, *, within: int = NEVER_REACHED) -> int | None:
    """The last position, up to a given one, with this time or an earlier one; None: there is none.

    Between two clock corrections time never goes back, so that the index on it answers in two steps.
    """
    last = within
    for first in (*reversed([it.position for it in corrections(connection)]), 0):
        here = _events.c.position.between(first, last) if (first, last) != (0, NEVER_REACHED) else true()
        at = connection.execute(select(func.max(_events.c.at)).where(_events.c.at <= time, here)).scalar()
        if at is not None:
            found = select(func.max(_events.c.position)).where(_events.c.at == at, here)
            return int(connection.execute(found).scalar_one())
        last = min(last, first - 1)
    return None


@dataclass(frozen=True, slots=True)
class Correction:
    """Where the log's time went back, because the previous clock had been far ahead."""

    position: int
    before: int
    after: int


def corrections(connection: Connection) -> list[Correction]:
    """The corrections in log order; few logs have any."""
    query = select(_events.c.position, _events.c.data).where(_events.c.stream == LOG_CLOCK)
    rows = connection.execute(query.order_by(_events.c.version)).all()
    return [Correction(row.position, **orjson.loads(row.data)) for row in rows]


def state_as_of(connection: Connection, stream: str, *, position: int) -> State | None:
    """The state of a stream at a position: its newest snapshot until then, and the few events since."""
    base = read_base(connection)
    if position < base.position:
        raise archived(connection, f"position {position}", base)
    state = newest_snapshot(connection, stream, position=position)
    since = 0 if state is None else state.version
    # Not beyond the next snapshot: later events of a long stream are not needed.
    kept = tables.snapshots
    following = select(func.min(kept.c.version)).where(kept.c.stream == stream, kept.c.position > position)
    query = select(_events).where(
        _events.c.stream == stream,
        _events.c.version > since,
        _events.c.version <= func.coalesce(following.scalar_subquery(), NEVER_REACHED),
        _events.c.position <= position,
    )
    for it in _read(connection, query, by_version=True):
        state = fold_event(state, it.position, it.version, it.type, it.schema, it.at, it.data)
    return state


def fold_event(
    state: State | None, position: int, version: int, type_: str, schema: int, at: int, text: str
) -> State:
    """The stream's state after a stored event of any schema. Every replay calls this."""
    data = orjson.loads(text)
    if schema != _SCHEMAS.get(type_):
        data = upcast(type_, schema, data)
    return evolve(state, type_, version, position, at, data)


def _read(connection: Connection, query: Select[tuple[object, ...]], *, by_version: bool = False) -> list[Event]:
    ordered = query.order_by(_events.c.version if by_version else _events.c.position)
    return [Event._make(row) for row in connection.execute(ordered)]
