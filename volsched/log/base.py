"""Where a store begins: at the first event there ever was, or behind the events that were archived.

The base is the place in the chain that the archived events led to, and what every stream had become there: a row
of `checkpoints`, and one row of `snapshots` per stream at or before that position. Deleted objects have theirs
too, because their versions go on. Whoever folds the log starts here.

The events that the base states follow from are no longer there to derive them from again. A sum over the states,
kept beside the checkpoint, shows that one was lost or edited, so that nothing is rebuilt from a damaged base.
Which one it was, and a forger who made the sum fit too, is found with the archives (`verify --archive`).
"""

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from sqlalchemy import Connection, select

from volsched.log import tables
from volsched.log.batch import Head
from volsched.log.dialects import dialect_of
from volsched.log.errors import ArchivedError
from volsched.log.events.envelope import GENESIS
from volsched.log.events.fold import State
from volsched.log.integrity.findings import BrokenLogError, Finding
from volsched.log.snapshots import loaded

PLACE = "base"
STATES = "base-states"
ARCHIVE = "archive"
"""Names of checkpoints. Each archive has one of its own: `archive FIRST-LAST FILE`."""
SUM_BYTES = 32
_PLACE = select(tables.checkpoints).where(tables.checkpoints.c.name == PLACE)
"""Made once: whoever follows the log asks it with every look."""
DAMAGED = (
    "what the streams had become at the base is not what was archived; see what differs: verify --archive FILE"
)


class BaseRow(NamedTuple):
    """What a stream had become at the base, as it is stored."""

    stream: str
    version: int
    state: str

    def mark(self) -> int:
        """Its part of the sum. A sum can be carried forward stream by stream; a hash over all could not."""
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
    """The base with all its states; BrokenLogError where they are not those that were archived."""
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
    """`FIRST-LAST FILE` of every archive, in the order of the log; where the files are now, only people know."""
    kept = tables.checkpoints
    named = select(kept.c.name).where(kept.c.name.startswith(f"{ARCHIVE} ")).order_by(kept.c.position)
    return [name.removeprefix(f"{ARCHIVE} ") for name in connection.execute(named).scalars()]


def archived(connection: Connection, what: str, base: Head) -> ArchivedError:
    """The error to raise for something that was before the base."""
    files = "; ".join(archived_files(connection)) or "a file that nobody noted"
    return ArchivedError(
        f"{what} is archived: the log begins at position {base.position + 1} and what was before lies in {files}; "
        "make a store of the archives to look into it: volsched migrate --db COPY && "
        "volsched import-log --db COPY ARCHIVE…"
    )
