"""Verifying a store, view by view, and rebuilding the views from the log."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection, Table, delete, select

from volsched.log import tables
from volsched.log.base import EVERY, archived, archived_files, dumped, newest_snapshot, read_base
from volsched.log.batch import Head, lock_head
from volsched.log.database import Database
from volsched.log.dialects import dialect_of
from volsched.log.errors import BrokenLogError, Finding
from volsched.log.events.fold import State
from volsched.log.events.streams import ATTEMPT, BINDING, noun_and_key
from volsched.log.garbage_pause import collector_resting
from volsched.log.integrity.anchors import REWRITTEN, Anchor
from volsched.log.integrity.replay import Folded, Progress, fold_log, fold_tail
from volsched.log.integrity.side_tables import check_side_tables
from volsched.log.reads.tail import event, fold_event, read_head, read_stream
from volsched.log.retention.archive import Proof, check_base, fold_archives
from volsched.log.rows import FOLDED, VIEWS, rows_of

# Views against the fold, row by row: missing rows, extra rows, differing columns.

Key = tuple[Any, ...]
Values = tuple[Any, ...]
NOUN_OF_TABLE: Mapping[str, str] = {
    **{table.name: noun for noun, (table, _) in VIEWS.items()},
    tables.bindings.name: BINDING,
    tables.binding_legs.name: BINDING,
    tables.attempts.name: ATTEMPT,
}
MISSING = "the view lacks a row that the log has"
EXTRA = "the view has a row that the log does not have"
DIFFERS = "the view differs from the log"


def compare_views(
    connection: Connection, states: Mapping[str, State]
) -> Iterator[tuple[Table, Key, list[Finding]]]:
    """Every row of a folded table that differs from these states. Holds one table's rows at a time."""
    by_noun: dict[str, list[tuple[str, State]]] = {}
    for stream, state in states.items():
        noun, name = noun_and_key(stream)
        by_noun.setdefault(noun, []).append((name, state))
    scan = dialect_of(connection.engine).scan
    for table in FOLDED:
        expected = rows_expected(table, by_noun.get(NOUN_OF_TABLE[table.name], ()))
        first = table.primary_key.columns[0].name
        for chunk in scan(connection, table, order=first):
            for row in chunk:
                key = key_of(table, row)
                findings = list(findings_of(table, key, expected.pop(key, None), row))
                if findings:
                    yield table, key, findings
        for key, values in expected.items():
            yield table, key, list(findings_of(table, key, values, None))


def rows_expected(table: Table, states: Iterable[tuple[str, State]]) -> dict[Key, Values]:
    """The rows of a table for these keys and states, values in the order of its columns."""
    noun = NOUN_OF_TABLE[table.name]
    rows: dict[Key, Values] = {}
    for name, state in states:
        for place, row in rows_of(noun, name, state):
            if place is table:
                values = tuple(row[column.name] for column in table.columns)
                rows[key_of(table, values)] = values
    return rows


def findings_of(table: Table, key: Key, expected: Values | None, got: Values | None) -> Iterator[Finding]:
    name = "/".join(map(str, key))
    if expected is None:
        yield Finding(problem=EXTRA, table=table.name, key=name)
    elif got is None:
        yield Finding(problem=MISSING, table=table.name, key=name)
    elif expected != got:
        for column, wanted, stored in zip(table.columns, expected, got, strict=True):
            if wanted != stored:
                yield Finding(
                    problem=DIFFERS, table=table.name, key=name, column=column.name, expected=wanted, got=stored
                )


def key_of(table: Table, values: Values) -> Key:
    """Primary keys are the first columns of every folded table, in order."""
    return values[: len(table.primary_key.columns)]


# One read transaction has one consistent view, so writers continue meanwhile. Memory follows the number of
# objects, not the length of the log. Archived history is taken from the base, or proven too where the archives
# are given.

KEPT = 1_000
"""Findings that a report holds; the rest are only counted."""


@dataclass(slots=True)
class VerifyReport:
    head: Head
    """Where the log ends: the content of an anchor."""
    after: int = 0
    """The position after which events were proven: 0, or the base where the archives were not given."""
    archives: list[str] = field(default_factory=list)
    """Range and file of each archive, as recorded in the store."""
    streams: int = 0
    findings: list[Finding] = field(default_factory=list)
    more: int = 0
    """Findings beyond those that are held."""
    proven: Anchor | None = None
    """The newest anchor that the log holds, before the first that it does not: a process with write access to the
    database could have rewritten everything after it, or everything where there is none."""
    anchors: int = 0
    """Anchors compared; one from before the base only where the archives were given."""
    gaps: list[str] = field(default_factory=list)
    """Facts about rows beside the log that it does not record."""
    redacted: list[int] = field(default_factory=list)
    """Positions of events that the log records as redacted, unchanged since."""

    @property
    def ok(self) -> bool:
        return not self.findings

    def add(self, *findings: Finding) -> None:
        room = KEPT - len(self.findings)
        self.findings += findings[:room]
        self.more += len(findings[room:])


def verify(
    database: Database,
    *,
    anchors: Sequence[Anchor] = (),
    archives: Sequence[Iterable[str]] = (),
    progress: Progress | None = None,
) -> VerifyReport:
    """Check everything that can be known for certain. Faults are reported, never repaired.

    `archives` are the lines of archived files, in order: with them the proof begins with the very first event.
    """
    with database.read() as connection, collector_resting():
        head, base = read_head(connection), read_base(connection)
        report = VerifyReport(head, after=0 if archives else base.position, archives=archived_files(connection))
        try:
            proof = _prove(connection, base, anchors, archives, progress)
            if proof is not None:
                report.add(*check_base(connection, base, proof))
            folded = fold_log(connection, progress=progress, start=None if proof is None else proof.folded)
        except BrokenLogError as broken:
            # Views cannot be compared with a log that cannot be trusted.
            report.add(broken.finding)
            return report
        report.streams = len(folded.states)
        report.redacted = sorted({*folded.redacted, *(() if proof is None else proof.redacted)})
        report.add(*_check_head(folded.head, head))
        known = _anchors(anchors, base, proof)
        report.anchors = len(known)
        _check_anchors(connection, report, known, base, proof)
        for finding in _check_derived(connection, folded, report.gaps):
            report.add(finding)
        return report


def _prove(
    connection: Connection,
    base: Head,
    anchors: Sequence[Anchor],
    archives: Sequence[Iterable[str]],
    progress: Progress | None,
) -> Proof | None:
    """The proof of the base by the archives; None without archives."""
    noted = [it.position for it in anchors]
    if archives:
        return fold_archives(archives, until=base.position, noted=noted, progress=progress)
    newest = max(noted, default=0)
    if 0 < newest < base.position:
        raise archived(connection, f"position {newest}, the position of the anchor,", base)
    return None


def _anchors(anchors: Iterable[Anchor], base: Head, proof: Proof | None) -> list[Anchor]:
    """The anchors to compare, by position: those given, and the end of the last archive."""
    known = [it for it in anchors if it.position > 0 and (proof is not None or it.position >= base.position)]
    if proof is not None and proof.end is not None:
        known.append(Anchor(proof.end.last, proof.end.hash, proof.end.at))
    return sorted(known, key=lambda it: it.position)


def _check_anchors(
    connection: Connection, report: VerifyReport, anchors: Iterable[Anchor], base: Head, proof: Proof | None
) -> None:
    holds = True
    for wanted in anchors:
        found = _known_hash(connection, wanted.position, base, proof)
        wrong = list(_check_anchor(found, wanted, last=report.head.position))
        report.add(*wrong)
        holds = holds and not wrong
        if holds:
            report.proven = wanted


def _known_hash(connection: Connection, position: int, base: Head, proof: Proof | None) -> bytes | None:
    """The hash at a position; from the archives if it is archived."""
    if position == base.position:
        return base.hash
    if position < base.position:
        return None if proof is None else proof.noted.get(position)
    found = event(connection, position)
    return None if found is None else found.hash


def _check_derived(connection: Connection, folded: Folded, gaps: list[str]) -> Iterator[Finding]:
    for _, _, findings in compare_views(connection, folded.states):
        yield from findings
    for _, finding in wrong_snapshots(connection):
        yield finding
    yield from _check_operations(connection, last=folded.head.position)
    yield from check_side_tables(connection, folded.states, gaps)


def _check_head(last: Head, head: Head) -> Iterator[Finding]:
    """Whether the head row is the log's last event."""
    if head.position > last.position:
        yield Finding(
            problem=f"the log ends here, its tail is cut: the head says {head.position}", position=last.position
        )
    elif head.position < last.position:
        yield Finding(
            problem=f"the event bypassed the writer: the head says {head.position}", position=head.position + 1
        )
    elif head != last:
        for column in ("hash", "at"):
            wanted, got = getattr(last, column), getattr(head, column)
            if wanted != got:
                problem = "the head is not the log's last event"
                yield Finding(problem=problem, table="log_head", key="1", column=column, expected=wanted, got=got)


def _check_anchor(stored_hash: bytes | None, anchor: Anchor, *, last: int) -> Iterator[Finding]:
    if stored_hash is None:
        yield Finding(
            problem=f"the log ends at {last}; the anchor was taken of a longer log", position=anchor.position
        )
    elif stored_hash != anchor.hash:
        yield Finding(
            problem=REWRITTEN, position=anchor.position, column="hash", expected=anchor.hash, got=stored_hash
        )


def wrong_snapshots(connection: Connection) -> Iterator[tuple[tuple[str, int], Finding]]:
    """Snapshots behind the base that are not the fold of their stream, each with its stream and version."""
    kept, base = tables.snapshots, read_base(connection).position
    for stream in (
        connection.execute(select(kept.c.stream).where(kept.c.position > base).distinct()).scalars().all()
    ):
        query = select(kept.c.version, kept.c.position, kept.c.state)
        rows = connection.execute(query.where(kept.c.stream == stream, kept.c.position > base))
        left = {row.version: (row.position, row.state) for row in rows}
        state = newest_snapshot(connection, stream, position=base)
        version = 0 if state is None else state.version
        while chunk := read_stream(connection, stream, after_version=version, limit=EVERY):
            for logged in chunk:
                state = fold_event(
                    state, logged.position, logged.version, logged.type, logged.schema, logged.at, logged.data
                )
                version = logged.version
                if version in left and left[version] == (logged.position, dumped(state)):
                    del left[version]
        for version in left:
            problem = "the snapshot differs from the log"
            yield (stream, version), Finding(problem=problem, table=kept.name, key=f"{stream}@{version}")


def _check_operations(connection: Connection, *, last: int) -> Iterator[Finding]:
    """Tables that are not folded: checks only invariants that hold whatever the workers are doing."""
    queue, done, bindings = tables.effects, tables.effects_done, tables.bindings
    for table in (queue, done):
        orphans = select(table.c.key, table.c.binding).where(
            table.c.binding.is_not(None), table.c.binding.not_in(select(bindings.c.id))
        )
        for row in connection.execute(orphans.order_by(table.c.key)):
            yield Finding(
                problem="the effect belongs to a binding that never existed", table=table.name, key=row.key,
                column="binding", got=row.binding,
            )  # fmt: skip
    for key in connection.execute(select(queue.c.key).where(queue.c.key.in_(select(done.c.key)))).scalars():
        yield Finding(problem="the effect is queued and done at once", table=queue.name, key=key)
    for table in (queue, tables.commands):
        ahead = select(table.c.key, table.c.position).where(table.c.position > last)
        for row in connection.execute(ahead.order_by(table.c.key)):
            yield Finding(
                problem="it belongs to an event that does not exist", table=table.name, key=row.key,
                column="position", got=row.position,
            )  # fmt: skip


# Rebuilding the views: fold the log aside, compare, replace the rows that differ. Events are not touched.
#
# Writers continue meanwhile. The long part (fold and comparison) reads one consistent view without any lock; only
# the rows that differed are checked again and replaced under the head lock, after catching up with later writes.
# That is enough: a writer turns a right row into a right row, so no other row can have become wrong.
#
# Rejected: filling shadow tables and swapping them by name. It needs the lock for a whole copy and twice the
# space, and does not report the differences.

BRIEF = 1_000
"""Events that may be left to fold under the lock: some ten milliseconds."""
ROUNDS = 10
"""The most attempts to get that close before the lock is taken anyway."""


@dataclass(slots=True)
class Repair:
    position: int
    """The position of the log when the views were repaired."""
    findings: list[Finding] = field(default_factory=list)
    """The repaired rows."""


def rebuild(database: Database, *, progress: Progress | None = None) -> Repair:
    """Make every folded table match the fold of the log; BrokenLogError where the log itself cannot be trusted."""
    with database.read() as connection, collector_resting():
        read_head(connection)
        folded = fold_log(connection, progress=progress)
        suspects: dict[Table, list[Key]] = {}
        for table, key, _ in compare_views(connection, folded.states):
            suspects.setdefault(table, []).append(key)
        snapshots = dict(wrong_snapshots(connection))
    _catch_up(database, folded)
    with database.write() as connection:
        head = lock_head(database, connection)
        fold_tail(connection, folded)
        if folded.head != head:
            problem = f"the log ends with another event than the head, which says {head.position}"
            raise BrokenLogError(Finding(problem=problem, position=folded.head.position))
        repair = Repair(head.position)
        for table, keys in suspects.items():
            repair.findings += _repair(database, connection, folded, table, keys)
        kept, base = tables.snapshots, read_base(connection)
        for (stream, version), finding in snapshots.items():
            # Not those of a base that an archive wrote meanwhile: they are right, and the only ones there are.
            wrong = (kept.c.stream == stream, kept.c.version == version, kept.c.position > base.position)
            connection.execute(delete(kept).where(*wrong))
            repair.findings.append(finding)
    return repair


def _catch_up(database: Database, folded: Folded) -> None:
    for _ in range(ROUNDS):
        with database.read() as connection:
            if read_head(connection).position - folded.head.position <= BRIEF:
                return
            fold_tail(connection, folded)


def _repair(
    database: Database, connection: Connection, folded: Folded, table: Table, keys: list[Key]
) -> list[Finding]:
    """Replace those rows of a table that are still wrong.

    They are deleted before any is inserted: a wrong row may occupy a value of a unique index.
    """
    noun, first = NOUN_OF_TABLE[table.name], table.primary_key.columns[0]
    names = {key[0] for key in keys}
    states = [(name, state) for name in names if (state := folded.states.get(f"{noun}/{name}")) is not None]
    expected = rows_expected(table, states)
    rows = database.dialect.fetch(connection, table, first.name, names)
    stored = {
        key_of(table, values): values for values in (tuple(row[c.name] for c in table.columns) for row in rows)
    }
    findings: list[Finding] = []
    wrong: set[str] = set()
    for key in sorted(expected.keys() | stored.keys()):
        different = list(findings_of(table, key, expected.get(key), stored.get(key)))
        if different:
            findings += different
            wrong.add(key[0])
    if wrong:
        connection.execute(delete(table).where(database.dialect.among(first, wrong)))
        right = [values for key, values in expected.items() if key[0] in wrong]
        database.dialect.insert(connection, table, right)
    return findings
