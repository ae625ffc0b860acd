"""What stands beside the log and is of no use any more after a while: found by age, deleted in small batches.

Rows are looked for without any lock and deleted by key, so that writers never wait for a walk through a table.
"""

from collections.abc import Collection
from typing import NamedTuple

from sqlalchemy import Connection, Table, delete, select

from volsched.log import tables
from volsched.log.base import read_base
from volsched.log.database import Database
from volsched.log.reads.tail import last_until

BATCH = 1_000
_events, _notices = tables.events, tables.notices


class OldNotice(NamedTuple):
    """A Kubernetes event that was last told long ago."""

    key: str
    rv: int
    about: str | None
    reason: str | None


def expire_commands(database: Database, *, before: int) -> int:
    """Forget the results of idempotent commands; a key that comes again after that is a new command."""
    kept = tables.commands
    with database.read() as connection:
        keys = list(connection.execute(select(kept.c.key).where(kept.c.at < before).limit(BATCH)).scalars())
    return _delete(database, kept, keys)


def expire_done(database: Database, *, before: int) -> int:
    """Forget work that was done for bindings that have ended; of open ones recovery still asks."""
    done, bindings = tables.effects_done, tables.bindings
    opened = select(bindings.c.id).where(bindings.c.open)
    old = select(done.c.key).where(
        done.c.done_at < before, done.c.binding.is_(None) | done.c.binding.not_in(opened)
    )
    with database.read() as connection:
        keys = list(connection.execute(old.limit(BATCH)).scalars())
    return _delete(database, done, keys)


def old_notices(connection: Connection, *, before: int, limit: int) -> list[OldNotice]:
    """Notices that were not told again since; the oldest first."""
    last = last_until(connection, before)
    base = read_base(connection)
    position = last if last is not None else base.position if base.at <= before else 0
    asked = select(_notices.c.key, _notices.c.rv, _notices.c.about, _notices.c.reason)
    found = connection.execute(asked.where(_notices.c.rv <= position).order_by(_notices.c.rv).limit(limit))
    return [OldNotice(*row) for row in found]


def _delete(database: Database, table: Table, keys: Collection[str]) -> int:
    if keys:
        with database.write() as connection:
            database.dialect.begin_beside_log(connection)
            connection.execute(delete(table).where(database.dialect.among(table.c.key, keys)))
    return len(keys)
