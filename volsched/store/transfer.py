"""A range of the log as a file that proves itself, and a store made from one.

The first line is the manifest: where the range begins and ends and the hashes there. Every other line is one event
with its hash. So a file can be checked anywhere without a store, and its first line serves as an anchor of the
store it came from. Data is written as JSON, not as text in text: people read these files.
"""

import csv
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import IO, Any

from pydantic_core import from_json
from sqlalchemy import Connection

from volsched.events.envelope import GENESIS, Event, canonical, links_to
from volsched.store import tables
from volsched.store.database import Database
from volsched.store.dialects import dialect_of
from volsched.store.errors import IntegrityBrokenError, StoreError
from volsched.store.findings import BrokenLogError, Finding
from volsched.store.log import event, read_head
from volsched.store.replay import MISSING, NOT_LINKED, Folded, Progress, check_nouns, fold_chunks
from volsched.store.snapshots import write_snapshots
from volsched.store.transaction import lock_head, write_views

FORMAT_NAME = "volsched-log/1"
CHUNK = 2_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    first: int
    last: int
    before: bytes
    """Hash of the event before the first."""
    hash: bytes
    """Hash of the last event."""
    count: int
    at: int
    """Time of the last event."""
    exported_at: int

    def dump(self) -> str:
        return json.dumps(
            {
                "format": FORMAT_NAME,
                "first": self.first,
                "last": self.last,
                "before": self.before.hex(),
                "hash": self.hash.hex(),
                "count": self.count,
                "at": self.at,
                "exportedAt": self.exported_at,
            }
        )


class ExportError(IntegrityBrokenError):
    """A file that is not what an export writes. Names the line, and the position where it is known."""


def manifest_of(connection: Connection, *, first: int = 1, last: int | None = None, now: int) -> Manifest:
    """What an export of this range will say of itself."""
    head = read_head(connection)
    last = head.position if last is None else last
    if head.position == 0:
        raise StoreError("the log is empty; there is nothing to export")
    if not 1 <= first <= last <= head.position:
        raise StoreError(f"there is no range {first} to {last}; the log has positions 1 to {head.position}")
    before, end = event(connection, first - 1), event(connection, last)
    if end is None or (before is None and first > 1):
        missing = last if end is None else first - 1
        raise BrokenLogError(Finding(problem=MISSING, position=missing))
    return Manifest(
        first=first,
        last=last,
        before=GENESIS if before is None else before.hash,
        hash=end.hash,
        count=last - first + 1,
        at=end.at,
        exported_at=now,
    )


def events_of(connection: Connection, manifest: Manifest, *, progress: Progress | None = None) -> Iterator[Event]:
    """The events of the range; a broken log is not carried on elsewhere."""
    scan = dialect_of(connection.engine).scan
    before = manifest.first - 1
    chunks = scan(connection, tables.events, order="position", after=before, until=manifest.last)
    rows = (Event._make(row) for chunk in chunks for row in chunk)
    for it in _linked(rows, manifest):
        if progress is not None and it.position % CHUNK == 0:
            progress(it.position)
        yield it


def _linked(events: Iterable[Event], manifest: Manifest) -> Iterator[Event]:
    """The events, as long as each is linked to the one before and they end where the manifest says."""
    position, previous, at = manifest.first - 1, manifest.before, manifest.at
    for position, it in enumerate(events, start=manifest.first):
        if it.position != position:
            raise BrokenLogError(Finding(problem=MISSING, position=position))
        if position > manifest.last:
            raise BrokenLogError(Finding(problem=f"the manifest ends at {manifest.last}", position=position))
        if not links_to(it, previous):
            raise BrokenLogError(Finding(problem=NOT_LINKED, position=position))
        previous, at = it.hash, it.at
        yield it
    if position != manifest.last:
        raise BrokenLogError(Finding(problem=MISSING, position=position + 1))
    if (previous, at) != (manifest.hash, manifest.at):
        raise BrokenLogError(Finding(problem="the manifest has another hash or time for it", position=position))


def write_jsonl(out: IO[str], manifest: Manifest, events: Iterable[Event]) -> None:
    out.write(manifest.dump() + "\n")
    for it in events:
        envelope = {name: value for name, value in it._asdict().items() if name not in ("data", "hash")}
        # The data is canonical JSON already and goes in as it is.
        out.write(
            f'{json.dumps(envelope, ensure_ascii=False)[:-1]}, "data": {it.data}, "hash": "{it.hash.hex()}"}}\n'
        )


def write_csv(out: IO[str], events: Iterable[Event]) -> None:
    """For spreadsheets; a CSV file has no manifest and cannot be imported."""
    writer = csv.writer(out)
    writer.writerow(Event._fields)
    writer.writerows((*it[:-1], it.hash.hex()) for it in events)


def read_manifest(lines: Iterator[str]) -> Manifest:
    try:
        given: dict[str, Any] = json.loads(next(lines, ""))
        if given["format"] != FORMAT_NAME:
            raise ExportError(f"line 1: the format is {given['format']} and this program reads {FORMAT_NAME}")
        return Manifest(
            first=int(given["first"]),
            last=int(given["last"]),
            before=bytes.fromhex(given["before"]),
            hash=bytes.fromhex(given["hash"]),
            count=int(given["count"]),
            at=int(given["at"]),
            exported_at=int(given["exportedAt"]),
        )
    except (ValueError, TypeError, KeyError):
        raise ExportError("line 1: this is not the manifest of an export; give a file that export wrote") from None


def read_events(lines: Iterator[str], manifest: Manifest) -> Iterator[Event]:
    """The events after the manifest; ExportError at the first that cannot be what was once exported."""
    try:
        yield from _linked((_parsed(line, number) for number, line in enumerate(lines, start=2)), manifest)
    except BrokenLogError as broken:
        raise _at_line(broken, manifest) from None


def _parsed(line: str, number: int) -> Event:
    try:
        given: dict[str, Any] = from_json(line)
        given["data"] = canonical(given["data"])
        given["hash"] = bytes.fromhex(given["hash"])
        return Event(**given)
    except (ValueError, TypeError, KeyError):
        raise ExportError(f"line {number}: this is not an event; the file is damaged or was edited") from None


def _at_line(broken: BrokenLogError, manifest: Manifest) -> ExportError:
    number = (broken.finding.position or manifest.first) - manifest.first + 2
    return ExportError(f"line {number}: {broken}")


def verify_export(lines: Iterable[str]) -> Manifest:
    """Check a file without any store."""
    rest = iter(lines)
    manifest = read_manifest(rest)
    for _ in read_events(rest, manifest):
        pass
    return manifest


def import_log(database: Database, lines: Iterable[str], *, progress: Progress | None = None) -> Manifest:
    """Make an empty store into what the file is the log of, views included; all of it or nothing."""
    rest = iter(lines)
    manifest = read_manifest(rest)
    if manifest.first != 1 or manifest.before != GENESIS:
        raise StoreError(
            f"the file begins at position {manifest.first} and a store can only be made from a log that begins "
            "at 1; check the file alone with: volsched import-log --check"
        )
    with database.write() as connection:
        head = lock_head(database, connection)
        if head.position != 0:
            raise StoreError(
                f"the store has {head.position} events already; import into an empty one (volsched migrate)"
            )
        folded = Folded()
        try:
            fold_chunks(
                _inserted(database, connection, rest, manifest, folded), folded, check=False, progress=progress
            )
            check_nouns(folded.states)
        except BrokenLogError as broken:
            raise _at_line(broken, manifest) from None
        write_views(database, connection, folded.states)
        database.dialect.move_head(connection, folded.head.position, folded.head.hash, folded.head.at)
    return manifest


def _inserted(
    database: Database, connection: Connection, lines: Iterator[str], manifest: Manifest, folded: Folded
) -> Iterator[list[Event]]:
    """The file's events in chunks, each in the store, with its snapshots, before the next is read."""
    events = read_events(lines, manifest)
    while chunk := list(islice(events, CHUNK)):
        database.dialect.insert(connection, tables.events, chunk)
        yield chunk
        write_snapshots(database.dialect, connection, chunk, folded.states)
