"""Making a store of a backup. All of it or nothing, proven on the way, and into a store that holds nothing yet.

What was under way when the backup was taken has gone on since, or not: nobody knows. So no lease survives, and
fences and epochs begin far beyond any that the processes of the store that was lost can have got to: whatever one
of them still tries to record is refused. Recovery then looks at every open binding, and the mirror at what a
foreign cluster has become.
"""

from collections.abc import Callable, Iterable, Iterator
from itertools import groupby, islice
from typing import Any

from sqlalchemy import Connection, Table, update

from volsched.log import tables
from volsched.log.base import load_base
from volsched.log.batch import lock_head
from volsched.log.batch_writes import write_views
from volsched.log.database import Database
from volsched.log.effects import EffectState
from volsched.log.errors import StoreError
from volsched.log.events.envelope import Event
from volsched.log.events.redaction import REDACTION, seals_in
from volsched.log.integrity.findings import BrokenLogError
from volsched.log.integrity.replay import Folded, Progress, check_nouns, fold_chunks
from volsched.log.leases import NOBODY
from volsched.log.retention.backup import Backup, Row, is_pristine, read_backup
from volsched.log.retention.export import CHUNK, ExportError

LEAP = 1 << 32
"""Added to epochs and fences: more than were ever given out after the backup."""
NOT_EMPTY = (
    "the store is not empty, and a backup becomes a store only where there is nothing to lose; name another "
    "database with --db, or drop this one"
)
UNSAID = "the backup holds position {position} redacted, and its log says nothing of that"


def restore(database: Database, lines: Iterable[str], *, progress: Progress | None = None) -> Backup:
    """Make an empty, migrated store into what the backup holds; ExportError where the file is not what it was."""
    made, rows = read_backup(lines)
    with database.write() as connection:
        lock_head(database, connection)
        if not is_pristine(connection):
            raise StoreError(NOT_EMPTY)
        folded: Folded | None = None
        sealed: dict[int, bytes] = {}
        head: dict[str, Any] = {}
        for table, found in groupby(rows, key=lambda row: row[0]):
            if table is tables.log_head:
                head = next(found)[1]
            elif table is tables.events:
                folded = _fold(database, connection, made, found, sealed, progress)
            else:
                _insert(database, connection, table, found)
        folded = folded or _begun(connection)
        _check(made, folded, sealed)
        write_views(database, connection, folded.states)
        connection.execute(update(tables.log_head).values(head))
    return made


def _begun(connection: Connection) -> Folded:
    base = load_base(connection)
    return Folded(base.head, base.states)


def _fold(
    database: Database,
    connection: Connection,
    made: Backup,
    rows: Iterator[Row],
    sealed: dict[int, bytes],
    progress: Progress | None,
) -> Folded:
    """Insert the events and fold them, from the base that was inserted before."""
    folded = _begun(connection)

    def chunks() -> Iterator[list[Event]]:
        while chunk := [Event(**values) for _, values in islice(rows, CHUNK)]:
            database.dialect.insert(connection, tables.events, chunk)
            for it in chunk:
                if it.type == REDACTION:
                    sealed.update(seals_in(it.data))
            yield chunk

    try:
        fold_chunks(chunks(), folded, progress=progress, seals=made.redacted)
        check_nouns(folded.states)
    except BrokenLogError as broken:
        raise ExportError(str(broken)) from None
    return folded


def _check(made: Backup, folded: Folded, sealed: dict[int, bytes]) -> None:
    if folded.head != made.head:
        raise ExportError(f"its log ends at {folded.head.position} with another hash than its first line says")
    for position in folded.redacted:
        if sealed.get(position) != made.redacted[position]:
            raise ExportError(UNSAID.format(position=position))


def _insert(database: Database, connection: Connection, table: Table, rows: Iterator[Row]) -> None:
    change = _CHANGED.get(table.name, dict)
    names = [column.name for column in table.columns]
    while chunk := [change(values) for _, values in islice(rows, CHUNK)]:
        # A column that came to be after the backup is empty, as it was for rows that were there when it came.
        database.dialect.insert(connection, table, [tuple(row.get(name) for name in names) for row in chunk])


def _freed(lease: dict[str, Any]) -> dict[str, Any]:
    return lease | {"holder": NOBODY, "epoch": lease["epoch"] + LEAP, "until": 0, "session": None}


def _unclaimed(effect: dict[str, Any]) -> dict[str, Any]:
    state = EffectState.READY if effect["state"] == EffectState.LEASED else effect["state"]
    return effect | {
        "state": state,
        "lease_owner": None,
        "lease_until": None,
        "lease_length": None,
        "lease_session": None,
        "fence": effect["fence"] + LEAP,
    }


_CHANGED: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    tables.leases.name: _freed,
    tables.effects.name: _unclaimed,
}
