"""The starting points of folds: the snapshots of long streams, and the base behind archived events."""

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import orjson
from sqlalchemy import Connection, select

from volsched.log import tables
from volsched.log.batch import Head
from volsched.log.dialects import Dialect, dialect_of
from volsched.log.errors import ArchivedError, BrokenLogError, Finding
from volsched.log.events.envelope import GENESIS, Event, canonical
from volsched.log.events.fold import (
    Assumed,
    AttemptState,
    BindingState,
    LeaseState,
    LegState,
    ObjectState,
    State,
    TokenState,
    UnknownState,
)
from volsched.log.events.streams import ATTEMPT, BINDING, LEASE, TOKEN, noun_and_key

# Snapshots of long streams bound the number of events that reading an object at any position costs.
#
# A snapshot is only a cache of the fold: `verify` folds it again, `rebuild` drops a wrong one. The snapshots at or
# before the base of an archived log are more than a cache: every fold begins there.

EVERY = 200
"""Versions between two snapshots of a stream; folding that many costs about a millisecond."""


def write_snapshots(
    dialect: Dialect, connection: Connection, events: Iterable[Event], states: Mapping[str, State]
) -> None:
    """Keep the state of every object whose stream has reached or passed a multiple of EVERY with these events.

    One per transaction and stream, of the state after its last event: the states between are gone by then. Objects
    only: a writer loads bindings and attempts from their columns, which do not hold the whole fold.
    """
    due = {event.stream for event in events if event.version % EVERY == 0}
    if not due:
        return
    last = {event.stream: event.position for event in events if event.stream in due}
    rows = [
        (stream, state.version, position, dumped(state))
        for stream, position in last.items()
        if isinstance(state := states[stream], ObjectState)
    ]
    dialect.insert(connection, tables.snapshots, rows)


def newest_snapshot(connection: Connection, stream: str, *, position: int) -> State | None:
    kept = tables.snapshots
    query = select(kept.c.state).where(kept.c.stream == stream, kept.c.position <= position)
    text = connection.execute(query.order_by(kept.c.version.desc()).limit(1)).scalar()
    return None if text is None else loaded(stream, text)


def dumped(state: State) -> str:
    fields = state._asdict()
    if isinstance(state, ObjectState) and state.assumed is not None:
        fields["assumed"] = state.assumed._asdict()
    if isinstance(state, BindingState):
        fields["legs"] = [leg._asdict() for leg in state.legs]
    return canonical(fields)


def loaded(stream: str, text: str) -> State:
    fields: dict[str, Any] = orjson.loads(text)
    noun, _ = noun_and_key(stream)
    if fields.keys() == set(UnknownState._fields):
        return UnknownState(**fields)
    if noun == BINDING:
        return BindingState(**fields | {"legs": tuple(LegState(**leg) for leg in fields["legs"])})
    if noun == ATTEMPT:
        return AttemptState(**fields)
    if noun == TOKEN:
        within = fields["namespaces"]
        lists = {"roles": tuple(fields["roles"]), "namespaces": None if within is None else tuple(within)}
        return TokenState(**fields | lists)
    if noun == LEASE:
        return LeaseState(**fields)
    assumed = fields["assumed"]
    return ObjectState(**fields | {"assumed": None if assumed is None else Assumed(**assumed)})


# The base is the place in the chain that the archived events led to, with the state of every stream there: a row
# of `checkpoints`, and one row of `snapshots` per stream at or before that position. Deleted objects have one too,
# because their versions continue. Every fold of the log starts here.
#
# The base states cannot be derived again: their events are gone. A sum over the states, kept beside the
# checkpoint, shows that one was lost or edited, so that nothing is rebuilt from a damaged base. The archives show
# which one it was, and detect a forged sum (`verify --archive`).

PLACE = "base"
STATES = "base-states"
ARCHIVE = "archive"
"""Names of checkpoints. Each archive has its own: `archive FIRST-LAST FILE`."""
MOST_NAMED = 3
"""The most archives that a message names."""
SUM_BYTES = 32
_PLACE = select(tables.checkpoints).where(tables.checkpoints.c.name == PLACE)
"""Built once: every poll of the log executes it."""
DAMAGED = "the states of the streams at the base differ from the archived ones; to compare: verify --archive FILE"


class BaseRow(NamedTuple):
    """The state of a stream at the base, as it is stored."""

    stream: str
    version: int
    state: str

    def mark(self) -> int:
        """The row's part of the sum. A sum can be updated stream by stream; a hash over all could not."""
        text = f"{self.stream}\x1f{self.version}\x1f{self.state}"
        return int.from_bytes(hashlib.sha256(text.encode()).digest(), "big")


@dataclass(slots=True)
class Base:
    head: Head
    states: dict[str, State]
    marks: dict[str, int]
    """Stream → its part of the sum."""


def read_base(connection: Connection) -> Head:
    """The last archived position, its hash and time; position 0 where nothing was archived yet."""
    row = connection.execute(_PLACE).one_or_none()
    return Head(0, GENESIS, 0) if row is None else Head(row.position, bytes(row.hash), row.at)


def load_base(connection: Connection) -> Base:
    """The base with all its states; BrokenLogError where they are not the archived ones."""
    head = read_base(connection)
    if head.position == 0:
        return Base(head, {}, {})
    rows = list(base_rows(connection, head.position))
    marks = {row.stream: row.mark() for row in rows}
    if len(marks) != len(rows) or read_sum(connection) != sum_of(marks.values()):
        raise BrokenLogError(Finding(problem=DAMAGED, table=tables.checkpoints.name, key=STATES))
    return Base(head, {row.stream: loaded(row.stream, row.state) for row in rows}, marks)


def base_rows(connection: Connection, position: int) -> Iterator[BaseRow]:
    for chunk in dialect_of(connection.engine).scan(connection, tables.snapshots, order="stream"):
        for stream, version, at_position, state in chunk:
            if at_position <= position:
                yield BaseRow(stream, version, state)


def read_sum(connection: Connection) -> bytes | None:
    kept = tables.checkpoints
    found = connection.execute(select(kept.c.hash).where(kept.c.name == STATES)).scalar()
    return None if found is None else bytes(found)


def sum_of(marks: Iterable[int]) -> bytes:
    return (sum(marks) % (1 << 8 * SUM_BYTES)).to_bytes(SUM_BYTES, "big")


def archived_files(connection: Connection) -> list[str]:
    """`FIRST-LAST FILE` of every archive, in log order; the store does not know where the files are now."""
    kept = tables.checkpoints
    named = select(kept.c.name).where(kept.c.name.startswith(f"{ARCHIVE} ")).order_by(kept.c.position)
    return [name.removeprefix(f"{ARCHIVE} ") for name in connection.execute(named).scalars()]


def archives_text(connection: Connection) -> str:
    """The archives for a message: with a daily one there are hundreds."""
    files = archived_files(connection) or ["a file that the store does not name"]
    if len(files) <= MOST_NAMED:
        return "; ".join(files)
    return f"{files[0]}; {len(files) - 2} more, which volsched verify names; {files[-1]}"


def archived(connection: Connection, what: str, base: Head) -> ArchivedError:
    """The error for a read of events before the base."""
    files = archives_text(connection)
    return ArchivedError(
        f"{what} is archived: the log begins at position {base.position + 1} and earlier events are in {files}; "
        "to read them, create a store from the archives: volsched import-log --db COPY ARCHIVE…"
    )
