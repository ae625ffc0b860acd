"""Expiry of rows beside the log, deleted by age in small batches; and a report of stored data and its limits."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import NamedTuple

from sqlalchemy import Column, Connection, Table, delete, func, select

from volsched.log import tables
from volsched.log.base import read_base
from volsched.log.database import Database
from volsched.log.reads.tail import last_until

# Rows are selected without any lock and deleted by key, so that writers never wait for a table scan.

BATCH = 1_000
_events, _notices = tables.events, tables.notices


class OldNotice(NamedTuple):
    """A Kubernetes event that was last emitted long ago."""

    key: str
    rv: int
    about: str | None
    reason: str | None


def expire_commands(database: Database, *, before: int) -> int:
    """Delete the results of idempotent commands; after that, a repeated key is a new command."""
    kept = tables.commands
    with database.read() as connection:
        keys = list(connection.execute(select(kept.c.key).where(kept.c.at < before).limit(BATCH)).scalars())
    return _delete(database, kept, keys)


def expire_done(database: Database, *, before: int) -> int:
    """Delete done effects of ended bindings; recovery still reads those of open ones."""
    done, bindings = tables.effects_done, tables.bindings
    opened = select(bindings.c.id).where(bindings.c.open)
    old = select(done.c.key).where(
        done.c.done_at < before, done.c.binding.is_(None) | done.c.binding.not_in(opened)
    )
    with database.read() as connection:
        keys = list(connection.execute(old.limit(BATCH)).scalars())
    return _delete(database, done, keys)


def old_notices(connection: Connection, *, before: int, limit: int) -> list[OldNotice]:
    """Notices not repeated since; oldest first."""
    last = last_until(connection, before)
    base = read_base(connection)
    position = last if last is not None else base.position if base.at <= before else 0
    query = select(_notices.c.key, _notices.c.rv, _notices.c.about, _notices.c.reason)
    found = connection.execute(query.where(_notices.c.rv <= position).order_by(_notices.c.rv).limit(limit))
    return [OldNotice(*row) for row in found]


def _delete(database: Database, table: Table, keys: Collection[str]) -> int:
    if keys:
        with database.write_beside_log() as connection:
            connection.execute(delete(table).where(database.dialect.among(table.c.key, keys)))
    return len(keys)


# Stored data that grows with the work, and its limits: the table of docs/retention.md, for this store.

POLICY = "by retention apply --keep"
BY_ITSELF = "expires by itself (VOLSCHED_{name}_TTL_SECONDS)"
FOREVER = "for ever"


@dataclass(frozen=True, slots=True, kw_only=True)
class Retained:
    name: str
    rows: int
    oldest: int | None
    """Time of the oldest row, in microseconds; None where rows do not record it."""
    kept: str


def retained(connection: Connection) -> list[Retained]:
    def of(name: str, table: Table, at: Column[int] | None, kept: str) -> Retained:
        query = select(func.count(), func.min(table.c[at.name]) if at is not None else func.max(None))
        rows, oldest = connection.execute(query.select_from(table)).one()
        return Retained(name=name, rows=rows, oldest=oldest, kept=kept)

    return [
        of("events of the log", tables.events, tables.events.c.at, POLICY),
        of("states at the base", tables.snapshots, None, "as long as the log"),
        of("Kubernetes events", tables.notices, None, BY_ITSELF.format(name="EVENT")),
        of("results of commands", tables.commands, tables.commands.c.at, BY_ITSELF.format(name="COMMAND")),
        of("finished effects", tables.effects_done, tables.effects_done.c.done_at, BY_ITSELF.format(name="DONE")),
        of("queued effects", tables.effects, None, "until done or cancelled"),
        of("bindings", tables.bindings, tables.bindings.c.planned_at, FOREVER),
        of("attempts", tables.attempts, tables.attempts.c.first_at, FOREVER),
    ]
