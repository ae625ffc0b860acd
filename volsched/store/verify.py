"""Proving that a store is what it says: the chain, the head, the views and the snapshots, all from the log again.

One read transaction sees one picture, so writers go on meanwhile. Memory follows the number of objects, not the
length of the log.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection, select

from volsched.store import tables
from volsched.store.collector import collector_resting
from volsched.store.database import Database
from volsched.store.differences import compare_views
from volsched.store.errors import StoreError
from volsched.store.findings import BrokenLogError, Finding
from volsched.store.log import event, fold_event, read_head, read_stream
from volsched.store.replay import Folded, Progress, fold_log
from volsched.store.snapshots import EVERY, dumped
from volsched.store.transaction import Head

KEPT = 1_000
"""Findings that a report holds; of the rest it gives the number."""


@dataclass(slots=True)
class Report:
    head: Head
    """Where the log ends: what an anchor is made of."""
    streams: int = 0
    findings: list[Finding] = field(default_factory=list)
    more: int = 0
    """Findings beyond those that are held."""

    @property
    def ok(self) -> bool:
        return not self.findings

    def add(self, finding: Finding) -> None:
        if len(self.findings) < KEPT:
            self.findings.append(finding)
        else:
            self.more += 1


@dataclass(frozen=True, slots=True)
class Anchor:
    """A place in the log, kept outside the store: whoever rewrites or cuts the log cannot rewrite that too."""

    position: int
    hash: bytes
    at: int

    def dump(self) -> str:
        return json.dumps({"position": self.position, "hash": self.hash.hex(), "at": self.at}) + "\n"


def parse_anchor(text: str) -> Anchor:
    """An anchor file, or an export: its first line is the anchor of its last event."""
    try:
        given: dict[str, Any] = json.loads(text.partition("\n")[0])
        position = given["position"] if "position" in given else given["last"]
        return Anchor(int(position), bytes.fromhex(given["hash"]), int(given["at"]))
    except (ValueError, TypeError, KeyError):
        raise StoreError(
            "this is not an anchor; give a file that was written by verify --write-anchor or by export"
        ) from None


def verify(database: Database, *, anchor: Anchor | None = None, progress: Progress | None = None) -> Report:
    """Check everything that can be known for certain. What is wrong is reported, never repaired."""
    with database.read() as connection, collector_resting():
        head = read_head(connection)
        report = Report(head)
        try:
            folded = fold_log(connection, progress=progress)
        except BrokenLogError as broken:
            # Views cannot be compared with a log that cannot be trusted.
            report.add(broken.finding)
            return report
        report.streams = len(folded.states)
        for finding in _check_all(connection, folded, head, anchor):
            report.add(finding)
        return report


def _check_all(connection: Connection, folded: Folded, head: Head, anchor: Anchor | None) -> Iterator[Finding]:
    yield from _check_head(folded.head, head)
    if anchor is not None:
        yield from _check_anchor(connection, anchor, last=folded.head.position)
    for _, _, findings in compare_views(connection, folded.states):
        yield from findings
    for _, finding in wrong_snapshots(connection):
        yield finding
    yield from _check_operations(connection, last=folded.head.position)


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


def _check_anchor(connection: Connection, anchor: Anchor, *, last: int) -> Iterator[Finding]:
    if anchor.position == 0:
        return
    found = event(connection, anchor.position)
    if found is None:
        yield Finding(
            problem=f"the log ends at {last}; the anchor was taken of a longer one", position=anchor.position
        )
    elif found.hash != anchor.hash:
        problem = "the log was rewritten at or before the anchor"
        yield Finding(
            problem=problem, position=anchor.position, column="hash", expected=anchor.hash, got=found.hash
        )


def wrong_snapshots(connection: Connection) -> Iterator[tuple[tuple[str, int], Finding]]:
    """Snapshots that are not the fold of their stream, each with its stream and version."""
    kept = tables.snapshots
    for stream in connection.execute(select(kept.c.stream).distinct()).scalars().all():
        asked = select(kept.c.version, kept.c.position, kept.c.state).where(kept.c.stream == stream)
        left = {row.version: (row.position, row.state) for row in connection.execute(asked)}
        state, version = None, 0
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
