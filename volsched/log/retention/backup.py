"""A backup: everything that cannot be derived, of one moment, in one file that proves itself.

That is the log with its base, and the work that stands beside it: queued and done effects, leases, the results of
idempotent commands. Views are left out; whoever restores folds them from the log. So the same file restores a
store on either engine, and a store that was damaged in its views is restored whole.

The first line says where the log ended (`verify --anchor` takes it for an anchor), then one line per row, then a
sum over all lines before. Rows are read in one read transaction while writers go on.

Rejected: a copy of the SQLite file, which is one engine's and carries a damaged view along; and history alone
(`volsched export`), which leaves queued work to be found again by recovery and forgets idempotency keys.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import IO, Any

import orjson
from sqlalchemy import Connection, LargeBinary, Table, func, select

from volsched.log import tables
from volsched.log.base import read_base
from volsched.log.batch import Head
from volsched.log.database import Database
from volsched.log.dialects import dialect_of
from volsched.log.durable_files import lines_of_file, write_whole
from volsched.log.events.envelope import GENESIS, Event
from volsched.log.integrity.findings import BrokenLogError
from volsched.log.integrity.replay import Progress
from volsched.log.integrity.seals import Seals, read_seals
from volsched.log.reads.tail import read_head
from volsched.log.retention.export import ExportError, Manifest, events_of, linked, manifest_of
from volsched.log.rows import FOLDED

BACKUP_FORMAT = "volsched-backup/1"
_EARLY = (tables.log_head, tables.checkpoints, tables.snapshots, tables.events)
CARRIED: tuple[Table, ...] = (
    *_EARLY,
    *(it for it in tables.metadata.sorted_tables if it not in FOLDED and it not in _EARLY),
)
"""Every table whose rows do not follow from others, in the order in which they are restored."""
Row = tuple[Table, dict[str, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Backup:
    """What a backup says of itself."""

    head: Head
    """Where the log ended."""
    base: Head
    taken_at: int
    rows: dict[str, int]
    """Table → how many."""
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
        """The events in it, as an export would describe them."""
        return Manifest(
            first=self.base.position + 1, last=self.head.position, before=self.base.hash, hash=self.head.hash,
            count=self.head.position - self.base.position, at=self.head.at, exported_at=self.taken_at,
            redacted=self.redacted,
        )  # fmt: skip


def back_up(database: Database, *, out: Path, now: int, progress: Progress | None = None) -> Backup:
    """Write the store into a new file; BrokenLogError where its log does not hold."""
    with database.read() as connection:
        made = _described(connection, now)

        def fill(text: IO[str]) -> None:
            lines = _Summed()
            text.write(lines.add(made.dump()))
            for line in _lines(connection, made, progress):
                text.write(lines.add(line))
            text.write(lines.end())

        write_whole(out, fill, lambda aside: check_backup(lines_of_file(aside)) == made)
    return made


def check_backup(lines: Iterable[str]) -> Backup:
    """Prove a file without any store: its sum, its number of rows, and the chain of its events."""
    made, rows = read_backup(lines)
    for table, found in groupby(rows, key=lambda row: row[0]):
        if table is not tables.events:
            _exhaust(found)
            continue
        try:
            _exhaust(linked((Event(**values) for _, values in found), made.log))
        except BrokenLogError as broken:
            raise ExportError(str(broken)) from None
    return made


def _exhaust(found: Iterable[object]) -> None:
    for _ in found:
        pass


def read_backup(lines: Iterable[str]) -> tuple[Backup, Iterator[Row]]:
    """What the file says of itself, and its rows; behind the last of them stands the proof that these were all."""
    rest, sums = iter(lines), _Summed()
    first = next(rest, "")
    made = _parsed(first)
    sums.add(first.rstrip("\n"))
    return made, _rows(made, rest, sums)


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


def _lines(connection: Connection, made: Backup, progress: Progress | None) -> Iterator[str]:
    scan = dialect_of(connection.engine).scan
    for table in CARRIED:
        if table is tables.events:
            events = (
                ()
                if made.head.position == made.base.position
                else events_of(connection, manifest_of(connection, now=made.taken_at), progress=progress)
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
            raise ExportError(f"line 1: the format is {given['format']} and this program reads {BACKUP_FORMAT}")
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


def _rows(made: Backup, lines: Iterator[str], sums: _Summed) -> Iterator[Row]:
    readers = {name: _reader(name, columns) for name, columns in made.columns.items() if made.rows.get(name)}
    left = dict(made.rows)
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
    """From the values of a line to a row of this program's table."""
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
    """Nothing was ever written here: a store that a backup may become."""
    head = read_head(connection)
    if (head.position, head.hash) != (0, GENESIS):
        return False
    others = (it for it in CARRIED if it is not tables.log_head)
    return all(connection.execute(select(1).select_from(it).limit(1)).first() is None for it in others)
