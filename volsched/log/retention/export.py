"""A range of the log as a self-proving file.

The first line is the manifest: where the range begins and ends and the hashes there. Every other line is one event
with its hash. So a file can be checked anywhere without a store, and its first line serves as an anchor of its
store. Data is written as nested JSON, not as a JSON string, because people read these files.
"""

import csv
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import IO, Any

import orjson
from sqlalchemy import Connection

from volsched.kube.display_text import plain_cell
from volsched.log import tables
from volsched.log.base import archived, read_base
from volsched.log.dialects import dialect_of
from volsched.log.errors import BrokenLogError, Finding, IntegrityBrokenError, StoreError
from volsched.log.events.envelope import Event, canonical, links_to, seal_of
from volsched.log.integrity.replay import MISSING, NOT_LINKED, Progress, Seals, read_seals
from volsched.log.reads.tail import event, read_head

FORMAT_NAME = "volsched-log/1"
BACKUP_FORMAT = "volsched-backup/1"
_READ_BY = {FORMAT_NAME: "volsched import-log", BACKUP_FORMAT: "volsched restore"}
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
    redacted: Seals = field(default_factory=dict)
    """Seals of redacted events."""

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
            | ({"redacted": {str(at): seal.hex() for at, seal in self.redacted.items()}} if self.redacted else {})
        )


class ExportError(IntegrityBrokenError):
    """A file that is not a valid export. Names the line, and the position where it is known."""

    file: int = 0
    """Index of the file among those given."""


def manifest_of(
    connection: Connection, *, first: int | None = None, last: int | None = None, now: int
) -> Manifest:
    """The manifest of an export of this range; by default of the whole log in the store."""
    head, base = read_head(connection), read_base(connection)
    first = base.position + 1 if first is None else first
    last = head.position if last is None else last
    if head.position == 0:
        raise StoreError("the log is empty; there is nothing to export")
    if 1 <= first <= base.position:
        raise archived(connection, f"position {first}", base)
    if not 1 <= first <= last <= head.position:
        raise StoreError(
            f"there is no range {first} to {last}; the log has positions {base.position + 1} to {head.position}"
        )
    before = base.hash if first == base.position + 1 else _hash_at(connection, first - 1)
    end = event(connection, last)
    if end is None:
        raise BrokenLogError(Finding(problem=MISSING, position=last))
    return Manifest(
        first=first,
        last=last,
        before=before,
        hash=end.hash,
        count=last - first + 1,
        at=end.at,
        exported_at=now,
        redacted={at: seal for at, seal in read_seals(connection).items() if first <= at <= last},
    )


def _hash_at(connection: Connection, position: int) -> bytes:
    last = event(connection, position)
    if last is None:
        raise BrokenLogError(Finding(problem=MISSING, position=position))
    return last.hash


def events_of(connection: Connection, manifest: Manifest, *, progress: Progress | None = None) -> Iterator[Event]:
    """The events of the range; a broken log is not exported."""
    scan = dialect_of(connection.engine).scan
    before = manifest.first - 1
    chunks = scan(connection, tables.events, order="position", after=before, until=manifest.last)
    rows = (Event._make(row) for chunk in chunks for row in chunk)
    for event_ in linked(rows, manifest):
        if progress is not None and event_.position % CHUNK == 0:
            progress(event_.position)
        yield event_


def linked(events: Iterable[Event], manifest: Manifest) -> Iterator[Event]:
    """The events, checked: each is linked to the one before, and they end at the manifest's last."""
    position, previous, at = manifest.first - 1, manifest.before, manifest.at
    for position, event_ in enumerate(events, start=manifest.first):
        if event_.position != position:
            raise BrokenLogError(Finding(problem=MISSING, position=position))
        if position > manifest.last:
            raise BrokenLogError(Finding(problem=f"the manifest ends at {manifest.last}", position=position))
        if not links_to(event_, previous) and manifest.redacted.get(position) != seal_of(event_):
            raise BrokenLogError(Finding(problem=NOT_LINKED, position=position))
        previous, at = event_.hash, event_.at
        yield event_
    if position != manifest.last:
        raise BrokenLogError(Finding(problem=MISSING, position=position + 1))
    if (previous, at) != (manifest.hash, manifest.at):
        raise BrokenLogError(Finding(problem="the manifest has another hash or time for it", position=position))


def write_jsonl(out: IO[str], manifest: Manifest, events: Iterable[Event]) -> None:
    out.write(manifest.dump() + "\n")
    for event_ in events:
        envelope = {name: value for name, value in event_._asdict().items() if name not in ("data", "hash")}
        # The data is canonical JSON already.
        out.write(
            f'{json.dumps(envelope, ensure_ascii=False)[:-1]}, "data": {event_.data}, '
            f'"hash": "{event_.hash.hex()}"}}\n'
        )


def write_csv(out: IO[str], events: Iterable[Event]) -> None:
    """Write events for spreadsheets; a CSV file has no manifest and cannot be imported."""
    writer = csv.writer(out)
    writer.writerow(Event._fields)
    for it in events:
        row = (*it[:-1], it.hash.hex())
        writer.writerow(plain_cell(cell) if isinstance(cell, str) else cell for cell in row)


def read_manifest(lines: Iterator[str]) -> Manifest:
    try:
        given: dict[str, Any] = json.loads(next(lines, ""))
        if given["format"] != FORMAT_NAME:
            raise other_format(given["format"], FORMAT_NAME)
        return Manifest(
            first=int(given["first"]),
            last=int(given["last"]),
            before=bytes.fromhex(given["before"]),
            hash=bytes.fromhex(given["hash"]),
            count=int(given["count"]),
            at=int(given["at"]),
            exported_at=int(given["exportedAt"]),
            redacted={int(at): bytes.fromhex(seal) for at, seal in given.get("redacted", {}).items()},
        )
    except (ValueError, TypeError, KeyError, AttributeError):
        raise ExportError("line 1: this is not the manifest of an export; give a file that export wrote") from None


def other_format(given: object, wanted: str) -> ExportError:
    """The error for a file in another format than the command reads, often that of a related command."""
    remedy = f"give it to {_READ_BY[given]}" if isinstance(given, str) and given in _READ_BY else f"give {wanted}"
    return ExportError(f"line 1: the format is {given} and this command reads {wanted}; {remedy}")


def read_events(lines: Iterator[str], manifest: Manifest) -> Iterator[Event]:
    """The events after the manifest; ExportError at the first that differs from the exported one."""
    try:
        yield from linked((_parsed(line, number) for number, line in enumerate(lines, start=2)), manifest)
    except BrokenLogError as broken:
        raise at_line(broken, manifest) from None


def _parsed(line: str, number: int) -> Event:
    try:
        given: dict[str, Any] = orjson.loads(line)
        given["data"] = canonical(given["data"])
        given["hash"] = bytes.fromhex(given["hash"])
        return Event(**given)
    except (ValueError, TypeError, KeyError):
        raise ExportError(f"line {number}: this is not an event; the file is damaged or was edited") from None


def at_line(broken: BrokenLogError, manifest: Manifest) -> ExportError:
    number = (broken.finding.position or manifest.first) - manifest.first + 2
    return ExportError(f"line {number}: {broken}")
