"""A migrated store that exists only as long as it is used: for measurements and rehearsals."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

from sqlalchemy import create_engine, make_url, text

from volsched.log.database import Database, normal_url, open_database
from volsched.log.migrations import migrate


@contextmanager
def scratch_store(server: str | None = None) -> Iterator[Database]:
    """On SQLite in a temporary directory, or in a database of its own on a PostgreSQL server."""
    if server is None:
        with (
            tempfile.TemporaryDirectory(prefix="volsched-") as directory,
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
    """A statement that PostgreSQL takes outside of transactions only, such as CREATE DATABASE."""
    engine = create_engine(normal_url(server), isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.execute(text(statement))
    engine.dispose()
