"""SQLite stores that do not wait for the disk; an empty one of one's own for a test that hypothesis repeats."""

import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from sqlalchemy import event

from volsched.log.database import Database, open_database
from volsched.log.migrations import migrate


def unsynced(database: Database) -> None:
    """A test that kills processes, or none at all, never loses the disk: to wait for it would only take longer."""
    if database.engine.dialect.name == "sqlite":

        @event.listens_for(database.engine, "connect")
        def _connected(raw: Any, _record: object) -> None:
            raw.execute("PRAGMA synchronous = OFF")


@cache
def migrated_bytes() -> bytes:
    """A migrated file, which is copied instead of migrating every store."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "template.db"
        database = open_database(f"sqlite:///{path}")
        migrate(database)
        with database.read() as connection:
            connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)")
        database.close()
        return path.read_bytes()


@contextmanager
def unsynced_store(path: Path | str) -> Iterator[Database]:
    with closing(open_database(f"sqlite:///{path}")) as database:
        unsynced(database)
        yield database


@contextmanager
def fresh_store() -> Iterator[Database]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "store.db"
        path.write_bytes(migrated_bytes())
        with unsynced_store(path) as database:
            yield database
