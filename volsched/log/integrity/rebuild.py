"""Making the views right again: fold the log aside, compare, replace the rows that differ. Events stay untouched.

Writers go on meanwhile. The long part (fold and comparison) reads one picture without any lock; only the rows that
differed there are looked at again and replaced under the head lock, after catching up with what was written since.
That is enough: a writer turns a right row into a right row, so no other row can have become wrong.

Rejected: filling shadow tables and swapping them by name. It needs the lock for a whole copy, and twice the room,
and says nothing about what was wrong.
"""

from dataclasses import dataclass, field

from sqlalchemy import Connection, Table, delete

from volsched.log import tables
from volsched.log.base import read_base
from volsched.log.batch import lock_head
from volsched.log.database import Database
from volsched.log.garbage_pause import collector_resting
from volsched.log.integrity.differences import (
    NOUN_OF_TABLE,
    Key,
    compare_views,
    findings_of,
    key_of,
    rows_expected,
)
from volsched.log.integrity.findings import BrokenLogError, Finding
from volsched.log.integrity.replay import Folded, Progress, fold_log, fold_tail
from volsched.log.integrity.verify import wrong_snapshots
from volsched.log.reads.tail import read_head

BRIEF = 1_000
"""Events that may be left to fold under the lock: some ten milliseconds."""
ROUNDS = 10
"""Attempts to come that close to the writers before the lock is taken anyway."""


@dataclass(slots=True)
class Repair:
    position: int
    """Of the log, when the views were made right."""
    findings: list[Finding] = field(default_factory=list)
    """What was wrong and is not any more."""


def rebuild(database: Database, *, progress: Progress | None = None) -> Repair:
    """Bring every folded table to the fold of the log; BrokenLogError where the log itself cannot be trusted."""
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
            # Not those of a base that an archive has made meanwhile: they are right, and the only ones there are.
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

    They are deleted before any is inserted: a wrong row may hold a place that a unique index grants only once.
    """
    noun, first = NOUN_OF_TABLE[table.name], table.primary_key.columns[0]
    names = {key[0] for key in keys}
    states = [(name, state) for name in names if (state := folded.states.get(f"{noun}/{name}")) is not None]
    expected = rows_expected(table, states)
    rows = database.dialect.fetch(connection, table, first.name, names)
    found = {
        key_of(table, values): values for values in (tuple(row[c.name] for c in table.columns) for row in rows)
    }
    findings: list[Finding] = []
    wrong: set[str] = set()
    for key in sorted(expected.keys() | found.keys()):
        different = list(findings_of(table, key, expected.get(key), found.get(key)))
        if different:
            findings += different
            wrong.add(key[0])
    if wrong:
        connection.execute(delete(table).where(database.dialect.among(first, wrong)))
        right = [values for key, values in expected.items() if key[0] in wrong]
        database.dialect.insert(connection, table, right)
    return findings
