"""Taking old events out of the store: into a file first, and out of the table only when that file is safe.

The file is an export like any other. It is written, synced, read back and named before the first row goes. Then
the base moves to the end of the range in steps. Each is one short transaction under the head lock that writes the
base and deletes the events before it, so writers never wait for more than a step, and between any two steps the
store is whole. Whoever is interrupted runs the same command again: the file that is there is taken as it is.

Only closed ranges go (`store.closed`), whatever is asked for.

Rejected: all rows in one transaction (300,000 keep writers waiting for 1.3 s on SQLite and 0.7 s on PostgreSQL, a
step for less than 0.2 s), and deleting behind a base that has moved already (leaves rows that belong to nothing).
"""

from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import Connection, delete

from volsched.log import tables
from volsched.log.base import ARCHIVE, PLACE, STATES, Base, BaseRow, archived_files, load_base, read_base, sum_of
from volsched.log.batch import Head, lock_head
from volsched.log.database import Database
from volsched.log.durable_files import lines_of_file, write_durably
from volsched.log.errors import StoreError
from volsched.log.garbage_pause import collector_resting
from volsched.log.integrity.findings import BrokenLogError, Finding
from volsched.log.integrity.replay import MISSING, Folded, Progress, fold_chunks
from volsched.log.integrity.seals import read_seals
from volsched.log.reads.tail import event
from volsched.log.retention.closed_range import check_bindings, check_closed
from volsched.log.retention.export import Manifest, events_of, manifest_of
from volsched.log.retention.import_files import verify_export
from volsched.log.snapshots import dumped

STEP = 5_000
"""Events per transaction."""

_events = tables.events


@dataclass(frozen=True, slots=True, kw_only=True)
class Archive:
    file: Path
    first: int
    last: int
    removed: int
    """Events that were in the store until now; fewer than the file holds where an earlier run was interrupted."""


def archive(database: Database, *, until: int, out: Path, now: int, progress: Progress | None = None) -> Archive:
    """Move all events up to a position into a file. `now` is in microseconds."""
    with database.read() as connection:
        base = read_base(connection)
        there = out.exists()
        if until > base.position:
            check_closed(connection, base, until, now=now)
        elif until < base.position or not there:
            raise _archived_already(connection, base, until)
        if not there:
            manifest = manifest_of(connection, last=until, now=now)
            write_durably(out, manifest, events_of(connection, manifest, progress=progress))
        else:
            manifest = _adopted(connection, base, until, out)
    removed = _take_out(database, manifest, out, progress)
    return Archive(file=out, first=manifest.first, last=manifest.last, removed=removed)


def _archived_already(connection: Connection, base: Head, until: int) -> StoreError:
    if base.position == 0:
        return StoreError(f"there is no position {until}; the log begins at 1")
    files = "; ".join(archived_files(connection))
    return StoreError(
        f"position {until} is archived already ({files}); the log begins at {base.position + 1}, give that or more"
    )


def _adopted(connection: Connection, base: Head, until: int, out: Path) -> Manifest:
    """The file that an interrupted archive has left; a chain of hashes that ends with ours is our history."""
    found = verify_export(lines_of_file(out))
    end = base if until == base.position else event(connection, until)
    if end is None or (found.last, found.hash) != (until, end.hash) or found.first > base.position + 1:
        raise StoreError(
            f"{out} exists already and is not the archive of positions {base.position + 1} to {until}; "
            "name another file"
        )
    return found


def _take_out(database: Database, manifest: Manifest, out: Path, progress: Progress | None) -> int:
    """Move the base to the end of the file, step by step."""
    with database.read() as connection, collector_resting():
        base = load_base(connection)
    first = base.head.position
    while base.head.position < manifest.last:
        _step(database, base, min(base.head.position + STEP, manifest.last), _row_of(manifest, out))
        if progress is not None:
            progress(base.head.position)
    return manifest.last - first


def _step(database: Database, base: Base, until: int, noted: tuple[object, ...]) -> None:
    """Move the base to a position and delete the events up to there, in one transaction."""
    start, folded = base.head, Folded(base.head, base.states)
    with database.read() as connection:
        _check_unmoved(connection, start)
        scan = database.dialect.scan(connection, _events, order="position", after=start.position, until=until)
        rows = [row for chunk in scan for row in chunk]
        seals = read_seals(connection)
    if rows:
        fold_chunks([rows], folded, seals=seals)
    if folded.head.position != until:
        raise BrokenLogError(Finding(problem=MISSING, position=folded.head.position + 1))
    changed = {row[1] for row in rows}
    states = [BaseRow(stream, (state := base.states[stream]).version, dumped(state)) for stream in changed]
    base.marks |= {row.stream: row.mark() for row in states}
    base.head = folded.head
    kept = tables.snapshots
    with database.write() as connection:
        lock_head(database, connection)
        _check_unmoved(connection, start)
        check_bindings(connection, until)
        these = database.dialect.among(kept.c.stream, changed)
        connection.execute(delete(kept).where(these, kept.c.position <= until))
        database.dialect.insert(connection, kept, [(row.stream, row.version, until, row.state) for row in states])
        connection.execute(delete(_events).where(_events.c.position <= until))
        total = sum_of(base.marks.values())
        database.dialect.upsert(
            connection,
            tables.checkpoints,
            [
                (PLACE, until, base.head.hash, base.head.at),
                (STATES, until, total, base.head.at),
                noted,
            ],
        )


def _check_unmoved(connection: Connection, start: Head) -> None:
    if read_base(connection) != start:
        raise StoreError("another archive of this store is being made; nothing was lost, run it again")


def _row_of(manifest: Manifest, out: Path) -> tuple[object, ...]:
    name = f"{ARCHIVE} {manifest.first}-{manifest.last} {out.absolute()}"
    return name, manifest.last, manifest.hash, manifest.at
