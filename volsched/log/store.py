"""Opening a store: it must exist, at a table revision that this program knows, and not require a newer one."""

from pathlib import Path

from sqlalchemy import Connection, inspect, text

from volsched.log.database import MIGRATE, Database, open_database
from volsched.log.errors import NoStoreError, NotMigratedError, StoreError
from volsched.log.reads.tail import read_head
from volsched.log.revisions import is_older, newest, revision_ids


def revision_of(connection: Connection) -> str | None:
    """The store's table revision; None if it was never migrated."""
    if not inspect(connection).has_table("alembic_version"):
        return None
    found: str | None = connection.execute(text("SELECT version_num FROM alembic_version")).scalar()
    return found


def open_store(url: str, *, name: str = "volsched") -> Database:
    """The store at a URL; raises a StoreError with the remedy before anything else is done."""
    database = open_database(url, name=name)
    file = database.file.path
    if file is not None and not _exists(file):
        # SQLite would create an empty database there, and people would look for their data in it.
        raise NoStoreError(
            f"nothing here yet: there is no store in {file}; volsched apply and up create one, or {MIGRATE}"
        )
    with database.read() as connection:
        revision = revision_of(connection)
        if revision is None or is_older(revision):
            problem = (
                "there are no tables of volsched yet"
                if revision is None
                else "the tables are of an older volsched"
            )
            # Another process may be creating the store and have created only its file yet.
            empty = file is not None and not inspect(connection).get_table_names()
            raise (NoStoreError if empty else NotMigratedError)(f"{_url_text(database)}: {problem}; {MIGRATE}")
        # Tables of a newer program are accepted: during an upgrade, both versions work on them. The head records
        # the version from which they are not.
        read_head(connection)
    return database


def migrate_store(url: str, *, make_directory: bool = False) -> tuple[str | None, str]:
    """Migrate the store at a URL to this program's tables, creating it if needed; the revisions before and after.

    Tables of a newer program are left unchanged. `make_directory`: the store is in the user's data directory.
    """
    database = open_database(url)
    make_file(database, make_directory=make_directory)
    with database.read() as connection:
        before = revision_of(connection)
        if before is not None and before not in revision_ids():
            read_head(connection)
    if before is None or is_older(before):
        # Alembic is loaded only when it has something to do.
        from volsched.log.migrations import migrate

        migrate(database)
        after = newest()
    else:
        after = before
    database.close()
    return before, after


def make_file(database: Database, *, make_directory: bool = False) -> None:
    """Create the file of an SQLite store that does not exist yet; nothing for a server."""
    file = database.file.path
    if file is None or _exists(file):
        return
    try:
        if make_directory:
            file.parent.mkdir(parents=True, exist_ok=True)
        elif not file.parent.is_dir():
            raise StoreError(f"directory {file.parent} does not exist; create it, or name another file with --db")
        database.file.create()
    except OSError as error:
        raise StoreError(
            f"{file} cannot be created: {error.strerror}; check the directory and its permissions, or name "
            "another file with --db"
        ) from None


def _exists(file: Path) -> bool:
    try:
        return file.exists()
    except OSError as error:
        raise StoreError(f"{file} cannot be accessed: {error.strerror}; name another file with --db") from None


def _url_text(database: Database) -> str:
    return database.engine.url.render_as_string(hide_password=True)
