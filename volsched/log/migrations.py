"""Migrating a database to the tables of this program, by Alembic alone; and temporary migrated stores."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

from alembic.config import Config
from sqlalchemy import create_engine, make_url, text

from alembic import command
from volsched.log.database import Database, normal_url, open_database
from volsched.log.revisions import scripts


def migrate(database: Database, *, to: str = "head") -> None:
    """Upgrade to a revision, in one transaction."""
    with database.migrating() as connection:
        config = _config()
        config.attributes["connection"] = connection
        command.upgrade(config, to)


def downgrade(database: Database, *, to: str) -> None:
    with database.migrating() as connection:
        config = _config()
        config.attributes["connection"] = connection
        command.downgrade(config, to)


def _config() -> Config:
    config = Config()
    config.set_main_option("script_location", str(scripts()))
    return config


# A temporary migrated store, for measurements and rehearsals.

MEMORY = Path("/dev/shm")


@contextmanager
def scratch_store(server: str | None = None, *, in_memory: bool = False) -> Iterator[Database]:
    """On SQLite in a temporary directory, or in a database of its own on a PostgreSQL server.

    `in_memory`: on an in-memory file system, where there is one, so that nothing is written to a disk.
    """
    if server is None:
        place = MEMORY if in_memory and MEMORY.is_dir() else None
        with (
            tempfile.TemporaryDirectory(prefix="volsched-", dir=place) as directory,
            _opened(f"sqlite:///{Path(directory) / 'scratch.db'}") as database,
        ):
            yield database
        return
    name = f"volsched_scratch_{uuid4().hex[:12]}"
    administer(server, f"CREATE DATABASE {name}")
    try:
        with _opened(make_url(server).set(database=name).render_as_string(hide_password=False)) as database:
            yield database
    finally:
        administer(server, f"DROP DATABASE {name} WITH (FORCE)")


@contextmanager
def _opened(url: str) -> Iterator[Database]:
    database = open_database(url)
    try:
        migrate(database)
        yield database
    finally:
        database.close()


def administer(server: str, statement: str) -> None:
    """A statement that PostgreSQL accepts only outside transactions, such as CREATE DATABASE."""
    engine = create_engine(normal_url(server), isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.execute(text(statement))
    engine.dispose()
