"""Proving that a store is what it says: the chain, the head, the views and the snapshots, all from the log again.

One read transaction sees one picture, so writers go on meanwhile. Memory follows the number of objects, not the
length of the log. What was archived is taken as the base says it, or proven too where the archives are given.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from sqlalchemy import Connection, select

from volsched.log import tables
from volsched.log.base import archived, archived_files, read_base
from volsched.log.batch import Head
from volsched.log.database import Database
from volsched.log.garbage_pause import collector_resting
from volsched.log.integrity.anchors import REWRITTEN, Anchor
from volsched.log.integrity.differences import compare_views
from volsched.log.integrity.findings import BrokenLogError, Finding
from volsched.log.integrity.replay import Folded, Progress, fold_log
from volsched.log.integrity.side_tables import check_side_tables
from volsched.log.reads.tail import event, fold_event, read_head, read_stream
from volsched.log.retention.archive_files import Proof, check_base, fold_archives
from volsched.log.snapshots import EVERY, dumped, newest_snapshot

KEPT = 1_000
"""Findings that a report holds; of the rest it gives the number."""


@dataclass(slots=True)
class VerifyReport:
    head: Head
    """Where the log ends: what an anchor is made of."""
    after: int = 0
    """The position after which events were proven: 0, or the base where the archives were not given."""
    archives: list[str] = field(default_factory=list)
    """Range and file of what was archived, as the store has noted it."""
    streams: int = 0
    findings: list[Finding] = field(default_factory=list)
    more: int = 0
    """Findings beyond those that are held."""
    proven: Anchor | None = None
    """The newest anchor that the log holds, before the first that it does not: whoever has the database could have
    rewritten what came after it, or everything where there is none."""
    anchors: int = 0
    """That were compared; one from before the base only where the archives were given."""
    gaps: list[str] = field(default_factory=list)
    """What the log cannot say of rows beside it."""
    redacted: list[int] = field(default_factory=list)
    """Positions of events that the log itself says were redacted, as it left them."""

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
    """Check everything that can be known for certain. What is wrong is reported, never repaired.

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
    """What the archives say of the base; None where there are none to ask."""
    noted = [it.position for it in anchors]
    if archives:
        return fold_archives(archives, until=base.position, noted=noted, progress=progress)
    newest = max(noted, default=0)
    if 0 < newest < base.position:
        raise archived(connection, f"position {newest}, of which the anchor was taken,", base)
    return None


def _anchors(anchors: Iterable[Anchor], base: Head, proof: Proof | None) -> list[Anchor]:
    """What was kept outside of the store, by position: anchors, and the end of the last archive."""
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
    """The hash of a position; of an archived one as the archives have it."""
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
    """The head row is the last event."""
    if head.position > last.position:
        yield Finding(
            problem=f"the log ends here, its tail is cut: the head says {head.position}", position=last.position
        )
    elif head.position < last.position:
        yield Finding(
            problem=f"the event came past the writer: the head says {head.position}", position=head.position + 1
        )
    elif head != last:
        for column in ("hash", "at"):
            wanted, got = getattr(last, column), getattr(head, column)
            if wanted != got:
                problem = "the head is not the log's last event"
                yield Finding(problem=problem, table="log_head", key="1", column=column, expected=wanted, got=got)


def _check_anchor(found: bytes | None, anchor: Anchor, *, last: int) -> Iterator[Finding]:
    if found is None:
        yield Finding(
            problem=f"the log ends at {last}; the anchor was taken of a longer one", position=anchor.position
        )
    elif found != anchor.hash:
        yield Finding(problem=REWRITTEN, position=anchor.position, column="hash", expected=anchor.hash, got=found)


def wrong_snapshots(connection: Connection) -> Iterator[tuple[tuple[str, int], Finding]]:
    """Snapshots behind the base that are not the fold of their stream, each with its stream and version."""
    kept, base = tables.snapshots, read_base(connection).position
    for stream in (
        connection.execute(select(kept.c.stream).where(kept.c.position > base).distinct()).scalars().all()
    ):
        asked = select(kept.c.version, kept.c.position, kept.c.state)
        rows = connection.execute(asked.where(kept.c.stream == stream, kept.c.position > base))
        left = {row.version: (row.position, row.state) for row in rows}
        state = newest_snapshot(connection, stream, position=base)
        version = 0 if state is None else state.version
        while chunk := read_stream(connection, stream, after_version=version, limit=EVERY):
            for it in chunk:
                state = fold_event(state, it.position, it.version, it.type, it.schema, it.at, it.data)
                version = it.version
                if version in left and left[version] == (it.position, dumped(state)):
                    del left[version]
        for version in left:
            problem = "the snapshot is not what the log says"
            yield (stream, version), Finding(problem=problem, table=kept.name, key=f"{stream}@{version}")


def _check_operations(connection: Connection, *, last: int) -> Iterator[Finding]:
    """Of the tables that are not folded, only what holds at every moment whatever workers are doing."""
    queue, done, bindings = tables.effects, tables.effects_done, tables.bindings
    for table in (queue, done):
        orphans = select(table.c.key, table.c.binding).where(
            table.c.binding.is_not(None), table.c.binding.not_in(select(bindings.c.id))
        )
        for row in connection.execute(orphans.order_by(table.c.key)):
            yield Finding(
                problem="the effect is of a binding that never was", table=table.name, key=row.key,
                column="binding", got=row.binding,
            )  # fmt: skip
    for key in connection.execute(select(queue.c.key).where(queue.c.key.in_(select(done.c.key)))).scalars():
        yield Finding(problem="the effect is queued and done at once", table=queue.name, key=key)
    for table in (queue, tables.commands):
        ahead = select(table.c.key, table.c.position).where(table.c.position > last)
        for row in connection.execute(ahead.order_by(table.c.key)):
            yield Finding(
                problem="it belongs to an event that is not there", table=table.name, key=row.key,
                column="position", got=row.position,
            )  # fmt: skip
