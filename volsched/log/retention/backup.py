"""A backup: everything that cannot be derived, in one self-proving file; and restoring a store from it."""

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import groupby, islice
from pathlib import Path
from typing import IO, Any

import orjson
from sqlalchemy import Connection, LargeBinary, Table, func, select, update

from volsched.log import tables
from volsched.log.base import read_base
from volsched.log.batch import Head, lock_head
from volsched.log.database import Database
from volsched.log.dialects import dialect_of
from volsched.log.durable_files import lines_of_file, write_whole
from volsched.log.effects import EffectState
from volsched.log.errors import BrokenLogError, StoreError
from volsched.log.events.envelope import GENESIS, REDACTION, Event, seals_in
from volsched.log.integrity.replay import (
    Folded,
    Progress,
    Seals,
    check_nouns,
    fold_chunks,
    folded_base,
    read_seals,
)
from volsched.log.leases import NOBODY
from volsched.log.reads.tail import read_head
from volsched.log.retention.export import (
    BACKUP_FORMAT,
    CHUNK,
    ExportError,
    Manifest,
    events_of,
    linked,
    manifest_of,
    other_format,
)
from volsched.log.rows import FOLDED
from volsched.log.transaction import write_views

# That is the log with its base, and the work beside it: queued and done effects, leases, the results of idempotent
# commands. Views are left out; a restore folds them from the log. So the same file restores a store on either
# engine, and repairs a store whose views were damaged.
#
# The first line records where the log ended (`verify --anchor` accepts it as an anchor), then one line per row,
# then a sum over all lines before. Rows are read in one read transaction while writers continue.
#
# Rejected: a copy of the SQLite file, which fits one engine and copies a damaged view; and history alone
# (`volsched export`), which leaves queued work to recovery and loses idempotency keys.

_EARLY = (tables.log_head, tables.checkpoints, tables.snapshots, tables.events)
CARRIED: tuple[Table, ...] = (
    *_EARLY,
    *(it for it in tables.metadata.sorted_tables if it not in FOLDED and it not in _EARLY),
)
"""Every table that cannot be derived, in the order of restoring."""
Row = tuple[Table, dict[str, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Backup:
    """The header of a backup."""

    head: Head
    """Where the log ended."""
    base: Head
    taken_at: int
    rows: dict[str, int]
    """Table → the number of its rows."""
    columns: dict[str, list[str]]
    redacted: Seals = field(default_factory=dict)

    def dump(self) -> str:
        return json.dumps(
            {
                "format": BACKUP_FORMAT,
                "position": self.head.position,
                "hash": self.head.hash.hex(),
                "at": self.head.at,
                "base": {"position": self.base.position, "hash": self.base.hash.hex(), "at": self.base.at},
                "takenAt": self.taken_at,
                "rows": self.rows,
                "columns": self.columns,
                "redacted": {str(position): seal.hex() for position, seal in self.redacted.items()},
            }
        )

    @property
    def log(self) -> Manifest:
        """The manifest of the backup's events, as an export would write it."""
        return Manifest(
            first=self.base.position + 1, last=self.head.position, before=self.base.hash, hash=self.head.hash,
            count=self.head.position - self.base.position, at=self.head.at, exported_at=self.taken_at,
            redacted=self.redacted,
        )  # fmt: skip


def back_up(database: Database, *, out: Path, now: int, progress: Progress | None = None) -> Backup:
    """Write the store into a new file; BrokenLogError where its log is broken."""
    with database.read() as connection:
        backup = _described(connection, now)

        def fill(text: IO[str]) -> None:
            lines = _Summed()
            text.write(lines.add(backup.dump()))
            for line in _lines(connection, backup, progress):
                text.write(lines.add(line))
            text.write(lines.end())

        write_whole(out, fill, lambda aside: check_backup(lines_of_file(aside)) == backup)
    return backup


def check_backup(lines: Iterable[str]) -> Backup:
    """Prove a file without any store: its sum, its number of rows, and the chain of its events."""
    backup, rows = read_backup(lines)
    for table, table_rows in groupby(rows, key=lambda row: row[0]):
        if table is not tables.events:
            _exhaust(table_rows)
            continue
        try:
            _exhaust(linked((Event(**values) for _, values in table_rows), backup.log))
        except BrokenLogError as broken:
            raise ExportError(str(broken)) from None
    return backup


def _exhaust(items: Iterable[object]) -> None:
    for _ in items:
        pass


def read_backup(lines: Iterable[str]) -> tuple[Backup, Iterator[Row]]:
    """The file's header, and its rows; after the last row comes the proof that they are complete."""
    rest, sums = iter(lines), _Summed()
    first = next(rest, "")
    backup = _parsed(first)
    sums.add(first.rstrip("\n"))
    return backup, _rows(backup, rest, sums)


def _described(connection: Connection, now: int) -> Backup:
    head, base = read_head(connection), read_base(connection)
    return Backup(
        head=head,
        base=base,
        taken_at=now,
        rows={it.name: connection.execute(select(func.count()).select_from(it)).scalar_one() for it in CARRIED},
        columns={it.name: [column.name for column in it.columns] for it in CARRIED},
        redacted=read_seals(connection),
    )


def _lines(connection: Connection, backup: Backup, progress: Progress | None) -> Iterator[str]:
    scan = dialect_of(connection.engine).scan
    for table in CARRIED:
        if table is tables.events:
            events = (
                ()
                if backup.head.position == backup.base.position
                else events_of(connection, manifest_of(connection, now=backup.taken_at), progress=progress)
            )
            yield from (_line(table, it) for it in events)
            continue
        for chunk in scan(connection, table, order=next(iter(table.primary_key.columns)).name):
            yield from (_line(table, row) for row in chunk)


def _line(table: Table, values: Iterable[Any]) -> str:
    plain = [bytes(it).hex() if isinstance(it, bytes | memoryview) else it for it in values]
    return json.dumps([table.name, *plain], ensure_ascii=False, separators=(",", ":"))


class _Summed:
    """Lines as they are written or read, and the sum over them."""

    def __init__(self) -> None:
        self._sum = hashlib.sha256()
        self.count = 0

    def add(self, line: str) -> str:
        whole = f"{line}\n"
        self._sum.update(whole.encode())
        self.count += 1
        return whole

    def end(self) -> str:
        return json.dumps({"lines": self.count, "sha256": self._sum.hexdigest()}) + "\n"


def _parsed(line: str) -> Backup:
    try:
        given: dict[str, Any] = json.loads(line)
        if given["format"] != BACKUP_FORMAT:
            raise other_format(given["format"], BACKUP_FORMAT)
        base = given["base"]
        return Backup(
            head=Head(int(given["position"]), bytes.fromhex(given["hash"]), int(given["at"])),
            base=Head(int(base["position"]), bytes.fromhex(base["hash"]), int(base["at"])),
            taken_at=int(given["takenAt"]),
            rows={str(name): int(count) for name, count in given["rows"].items()},
            columns={str(name): [*map(str, columns)] for name, columns in given["columns"].items()},
            redacted={int(at): bytes.fromhex(seal) for at, seal in given["redacted"].items()},
        )
    except (ValueError, TypeError, KeyError, AttributeError):
        raise ExportError("line 1: this is not a backup; give a file that volsched backup wrote") from None


def _rows(backup: Backup, lines: Iterator[str], sums: _Summed) -> Iterator[Row]:
    readers = {name: _reader(name, columns) for name, columns in backup.columns.items() if backup.rows.get(name)}
    left = dict(backup.rows)
    for line in lines:
        if line.startswith("{"):
            if line != sums.end() or any(left.values()) or next(lines, None) is not None:
                break
            return
        sums.add(line.rstrip("\n"))
        try:
            name, *values = orjson.loads(line)
            row = readers[name](values)
            left[name] -= 1
        except (ValueError, TypeError, KeyError, AttributeError):
            raise ExportError(f"line {sums.count}: this is not a row; the file is damaged or was edited") from None
        yield row
    raise ExportError(f"line {sums.count + 1}: the file is cut, damaged or was edited; restore a copy of it")


def _reader(name: str, columns: list[str]) -> Any:
    """Converts the values of a line to a row of this program's table."""
    table = tables.metadata.tables.get(name)
    if table is None or not {*columns} <= {*table.columns.keys()}:
        raise ExportError(f"the backup holds more of {name} than this program knows; install the newer volsched")
    binary = [isinstance(table.c[column].type, LargeBinary) for column in columns]

    def read(values: list[Any]) -> Row:
        pairs = zip(columns, values, binary, strict=True)
        return table, {
            column: bytes.fromhex(value) if is_bytes and value is not None else value
            for column, value, is_bytes in pairs
        }

    return read


def is_pristine(connection: Connection) -> bool:
    """Whether nothing was ever written here, so that a backup may be restored into it."""
    head = read_head(connection)
    if (head.position, head.hash) != (0, GENESIS):
        return False
    others = (it for it in CARRIED if it is not tables.log_head)
    return all(connection.execute(select(1).select_from(it).limit(1)).first() is None for it in others)


# Restoring a backup: all or nothing, proven on the way, and only into an empty store.
#
# It is unknown whether work in progress at the time of the backup has continued since. So no lease survives, and
# fences and epochs begin far beyond any that processes of the lost store can have reached: their late writes are
# refused. Recovery then examines every open binding, and the mirror the present state of a foreign cluster.

LEAP = 1 << 32
"""Added to epochs and fences: more than were ever issued after the backup."""
NOT_EMPTY = (
    "the store is not empty, and a backup can be restored only into an empty one; name another database with "
    "--db, or drop this one"
)
UNSAID = "the backup holds position {position} redacted, and its log has no record of the redaction"


def restore(database: Database, lines: Iterable[str], *, progress: Progress | None = None) -> Backup:
    """Restore the backup into an empty, migrated store; ExportError where the file was altered."""
    backup, rows = read_backup(lines)
    with database.write() as connection:
        lock_head(database, connection)
        if not is_pristine(connection):
            raise StoreError(NOT_EMPTY)
        folded: Folded | None = None
        sealed: dict[int, bytes] = {}
        head: dict[str, Any] = {}
        for table, table_rows in groupby(rows, key=lambda row: row[0]):
            if table is tables.log_head:
                head = next(table_rows)[1]
            elif table is tables.events:
                folded = _fold(database, connection, backup, table_rows, sealed, progress)
            else:
                _insert(database, connection, table, table_rows)
        folded = folded or folded_base(connection)
        _check(backup, folded, sealed)
        write_views(database, connection, folded.states)
        connection.execute(update(tables.log_head).values(head))
    return backup


def _fold(
    database: Database,
    connection: Connection,
    backup: Backup,
    rows: Iterator[Row],
    sealed: dict[int, bytes],
    progress: Progress | None,
) -> Folded:
    """Insert the events and fold them, from the base that was inserted before."""
    folded = folded_base(connection)

    def chunks() -> Iterator[list[Event]]:
        while chunk := [Event(**values) for _, values in islice(rows, CHUNK)]:
            database.dialect.insert(connection, tables.events, chunk)
            for event in chunk:
                if event.type == REDACTION:
                    sealed.update(seals_in(event.data))
            yield chunk

    try:
        fold_chunks(chunks(), folded, progress=progress, seals=backup.redacted)
        check_nouns(folded.states)
    except BrokenLogError as broken:
        raise ExportError(str(broken)) from None
    return folded


def _check(backup: Backup, folded: Folded, sealed: dict[int, bytes]) -> None:
    if folded.head != backup.head:
        raise ExportError(f"its log ends at {folded.head.position} with another hash than its first line says")
    for position in folded.redacted:
        if sealed.get(position) != backup.redacted[position]:
            raise ExportError(UNSAID.format(position=position))


def _insert(database: Database, connection: Connection, table: Table, rows: Iterator[Row]) -> None:
    change = _CHANGED.get(table.name, dict)
    names = [column.name for column in table.columns]
    while chunk := [change(values) for _, values in islice(rows, CHUNK)]:
        # A column added after the backup is empty, as it was for rows that existed when it was added.
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
