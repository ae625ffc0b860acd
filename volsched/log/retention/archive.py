"""Moving old events out of the store into files, and reading the whole history from such files."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

from sqlalchemy import Connection, delete

from volsched.log import tables
from volsched.log.base import (
    ARCHIVE,
    DAMAGED,
    PLACE,
    STATES,
    Base,
    BaseRow,
    archives_text,
    base_rows,
    dumped,
    load_base,
    loaded,
    read_base,
    read_sum,
    sum_of,
)
from volsched.log.batch import Head, lock_head
from volsched.log.database import Database
from volsched.log.durable_files import LogFiles, lines_of_file, verify_export, write_durably
from volsched.log.errors import BrokenLogError, Finding, StoreError
from volsched.log.events.envelope import Event
from volsched.log.events.fold import LeaseState, State, TokenState, UnknownState
from volsched.log.garbage_pause import collector_resting
from volsched.log.integrity.replay import MISSING, Folded, Progress, check_nouns, fold_chunks, read_seals
from volsched.log.reads.tail import event
from volsched.log.retention.export import CHUNK, Manifest, events_of, manifest_of
from volsched.log.retention.redaction import check_bindings, check_closed

# The file is an export like any other. It is written, synced, read back and named before the first row is deleted.
# Then the base moves to the end of the range in steps. Each is one short transaction under the head lock that
# writes the base and deletes the events before it, so writers never wait for more than a step, and between any two
# steps the store is consistent. After an interruption the same command continues with the existing file.
#
# Only closed ranges are archived (`retention.redaction`), whatever the caller requests.
#
# Rejected: all rows in one transaction (300,000 block writers for 1.3 s on SQLite and 0.7 s on PostgreSQL, a step
# for less than 0.2 s), and deleting after the base has moved (leaves orphaned rows).

STEP = 5_000
"""Events per transaction."""

_events = tables.events


@dataclass(frozen=True, slots=True, kw_only=True)
class Archive:
    file: Path
    first: int
    last: int
    removed: int
    """Events that this run removed from the store; fewer than the file holds after an interrupted run."""


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
    return StoreError(
        f"position {until} is archived already ({archives_text(connection)}); the log begins at "
        f"{base.position + 1}, give that or more"
    )


def _adopted(connection: Connection, base: Head, until: int, out: Path) -> Manifest:
    """The file of an interrupted archive; a chain of hashes that ends with ours is our history."""
    exported = verify_export(lines_of_file(out))
    end = base if until == base.position else event(connection, until)
    if end is None or (exported.last, exported.hash) != (until, end.hash) or exported.first > base.position + 1:
        raise StoreError(
            f"{out} exists already and is not the archive of positions {base.position + 1} to {until}; "
            "name another file"
        )
    return exported


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
        raise StoreError("another archive of this store is being created; nothing was lost, run it again")


def _row_of(manifest: Manifest, out: Path) -> tuple[object, ...]:
    name = f"{ARCHIVE} {manifest.first}-{manifest.last} {out.absolute()}"
    return name, manifest.last, manifest.hash, manifest.at


# The whole history, from archived files: the proof of a base.

NOT_ARCHIVED = "it differs from the archives"
NOT_SAID = "an archive holds it redacted, and the log has no record of the redaction"
TOO_SHORT = (
    "the archives end before it and the store begins after position {base}: give the file that is missing too"
)


@dataclass(slots=True)
class Proof:
    """The proof of a store's base by the archives."""

    folded: Folded = field(default_factory=Folded)
    """The states of all streams at the base."""
    noted: dict[int, bytes] = field(default_factory=dict)
    """Hashes of the requested positions up to the base."""
    end: Manifest | None = None
    """Manifest of the last file. It may reach beyond the base: an interrupted archive has removed only a part."""
    redacted: dict[int, bytes] = field(default_factory=dict)
    """Seals of redacted events in the files, as the files themselves record."""
    sealed: dict[int, bytes] = field(default_factory=dict)
    """Seals from the log, as far as the files reach."""


def fold_archives(
    files: Sequence[Iterable[str]], *, until: int, noted: Iterable[int] = (), progress: Progress | None = None
) -> Proof:
    """Fold files from the very first event to a position.

    ExportError where they differ from the files written, BrokenLogError where they do not reach that far.
    """
    chain, proof = LogFiles(files), Proof()
    events, wanted = chain.events(), sorted(set(noted))

    def before_base() -> Iterator[list[Event]]:
        while chunk := list(islice(events, min(CHUNK, until - proof.folded.head.position))):
            chain.check_genesis()
            first = chunk[0].position
            within = wanted[bisect_left(wanted, first) : bisect_right(wanted, chunk[-1].position)]
            proof.noted |= {position: chunk[position - first].hash for position in within}
            yield chunk

    try:
        fold_chunks(before_base(), proof.folded, check=False, progress=progress)
        check_nouns(proof.folded.states)
    except BrokenLogError as broken:
        raise chain.located(broken) from None
    for _ in events:
        # Events behind the base are in the store too; here only their links are checked.
        pass
    proof.end = chain.manifests[-1]
    proof.redacted, proof.sealed = chain.redacted, chain.sealed
    if proof.folded.head.position < until:
        raise BrokenLogError(Finding(problem=TOO_SHORT.format(base=until), position=proof.end.last + 1))
    return proof


def check_base(connection: Connection, base: Head, proof: Proof) -> Iterator[Finding]:
    """Whether the archives lead to the base: its place in the chain, and the state of every stream."""
    proven = proof.folded
    for column in ("hash", "at"):
        wanted, got = getattr(proven.head, column), getattr(base, column)
        if wanted != got:
            yield Finding(
                problem=NOT_ARCHIVED,
                table=tables.checkpoints.name,
                key=PLACE,
                column=column,
                expected=wanted,
                got=got,
            )
    known = proof.sealed | read_seals(connection)
    for position, seal in proof.redacted.items():
        if known.get(position) != seal:
            yield Finding(problem=NOT_SAID, position=position)
    left = {(stream, state.version): state for stream, state in proven.states.items()}
    marks = []
    for row in base_rows(connection, base.position):
        marks.append(row.mark())
        if not _is(row, left.pop((row.stream, row.version), None)):
            key = f"{row.stream}@{row.version}"
            yield Finding(problem=NOT_ARCHIVED, table=tables.snapshots.name, key=key)
    for stream, version in left:
        problem = "the base lacks a state that the archives have"
        yield Finding(problem=problem, table=tables.snapshots.name, key=f"{stream}@{version}")
    if base.position > 0 and read_sum(connection) != sum_of(marks):
        yield Finding(problem=DAMAGED, table=tables.checkpoints.name, key=STATES)


def _is(row: BaseRow, state: State | None) -> bool:
    """Compared as states, not as text: a state from an earlier program may lack fields that have a default."""
    try:
        stored = loaded(row.stream, row.state)
        if isinstance(stored, UnknownState) and isinstance(state, TokenState | LeaseState):
            # For tokens and leases, too, an earlier program kept only the version.
            return stored.version == state.version
        return stored == state
    except (ValueError, TypeError, LookupError, AttributeError):
        return False
