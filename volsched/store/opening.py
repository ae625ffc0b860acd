"""Opening a store for use: it is there, its tables are this program's, and it does not ask for a newer one."""

from pathlib import Path

from alembic.migration import MigrationContext
from sqlalchemy import Connection

from volsched.store.database import MIGRATE, Database, open_database
from volsched.store.errors import NewerStoreError, NotMigratedError, StoreError
from volsched.store.log import read_head
from volsched.store.migrations import is_known, migrate, newest


def open_store(url: str) -> Database:
    """The store at a URL; raises what is wrong with it, with the remedy, before anything else is done."""
    database = open_database(url)
    file = _file(database)
    if file is not None and not file.exists():
        # SQLite would make an empty database there, and people would look for their data in it.
        raise NotMigratedError(f"{file}: there is no store yet; {MIGRATE}")
    with database.read() as connection:
        revision = _revision(connection)
        if revision != newest():
            told = (
                "there are no tables of volsched yet"
                if revision is None
                else "the tables are of an older volsched"
            )
            raise NotMigratedError(f"{_shown(database)}: {told}; {MIGRATE}")
        read_head(connection)
    return database


def migrate_store(url: str) -> tuple[str | None, str]:
    """Bring the store at a URL to this program's tables, making it if need be; the revisions before and after."""
    database = open_database(url)
    file = _file(database)
    if file is not None and not file.parent.is_dir():
        raise StoreError(f"directory {file.parent} does not exist; create it, or name another file with --db")
    with database.read() as connection:
        before = _revision(connection)
    if before != newest():
        migrate(database)
    database.close()
    return before, newest()


def _revision(connection: Connection) -> str | None:
    found = MigrationContext.configure(connection).get_current_revision()
    if found is not None and not is_known(found):
        raise NewerStoreError(
            f"the tables are of revision {found}, which this program does not know; install the newer volsched"
        )
    return found


def _file(database: Database) -> Path | None:
    """The file of an SQLite store; None for a server, memory, or a URI that SQLite reads itself."""
    url = database.engine.url
    named = url.get_backend_name() == "sqlite" and url.database and not url.database.startswith((":", "file:"))
    return Path(url.database) if named and url.database else None


def _shown(database: Database) -> str:
    return database.engine.url.render_as_string(hide_password=True)
