"""Exports of a log, and stores that are emptied for an import."""

import io

from tests.support.histories import sql
from volsched.log import tables
from volsched.log.database import Database
from volsched.log.events.envelope import GENESIS
from volsched.log.retention.export import events_of, manifest_of, write_jsonl

EXPORTED_AT = 1_800_000_000_000_000


Lines = list[str]


def exported(database: Database, *, first: int | None = None, last: int | None = None) -> Lines:
    out = io.StringIO()
    with database.read() as connection:
        manifest = manifest_of(connection, first=first, last=last, now=EXPORTED_AT)
        write_jsonl(out, manifest, events_of(connection, manifest))
    return list(io.StringIO(out.getvalue()))


def emptied(database: Database) -> Database:
    """The same database with nothing in it: where an import goes."""
    sql(
        database,
        *(f"DELETE FROM {table.name}" for table in tables.metadata.sorted_tables if table.name != "log_head"),
    )
    sql(database, "UPDATE log_head SET position = 0, hash = :hash, at = 0", hash=GENESIS)
    return database
