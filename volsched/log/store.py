"""Opening a store for use: it is there, its tables are this program's, and it does not ask for a newer one."""

from pathlib import Path

from volsched.log.database import MIGRATE, Database, open_database
from volsched.log.errors import NotMigratedError, StoreError
from volsched.log.reads.tail import read_head
from volsched.log.revisions import known, newest, revision_of


def open_store(url: str, *, name: str = "volsched") -> Database:
    """The store at a URL; raises what is wrong with it, with the remedy, before anything else is done."""
    database = open_database(url, name=name)
    file = database.file.path
    if file is not None and not file.exists():
        # SQLite would make an empty database there, and people would look for their data in it.
        raise NotMigratedError(f"{file}: there is no store yet; {MIGRATE}")
    with database.read() as connection:
        revision = revision_of(connection)
        if revision is None or _is_older(revision):
            told = (
                "there are no tables of volsched yet"
                if revision is None
                else "the tables are of an older volsched"
            )
            raise NotMigratedError(f"{_shown(database)}: {told}; {MIGRATE}")
        # Tables of a newer program are welcome: while an upgrade is under way, both versions work on them. The
        # head says from which version on that is not so.
        read_head(connection)
    return database


def migrate_store(url: str) -> tuple[str | None, str]:
    """Bring the store at a URL to this program's tables, making it if need be; the revisions before and after.

    Tables of a newer program stay as they are.
    """
    database = open_database(url)
    file = database.file.path
    if file is not None and not file.parent.is_dir():
        raise StoreError(f"directory {file.parent} does not exist; create it, or name another file with --db")
    if file is not None and not file.exists():
        _made(file, database)
    with database.read() as connection:
        before = revision_of(connection)
        if before is not None and before not in known():
            read_head(connection)
    if before is None or _is_older(before):
        # Alembic is loaded where it has something to do.
        from volsched.log.migrations import migrate

        migrate(database)
        after = newest()
    else:
        after = before
    database.close()
    return before, after


def _made(file: Path, database: Database) -> None:
    try:
        database.file.make()
    except OSError as error:
        raise StoreError(f"{file} cannot be made: {error.strerror}; check the directory and permissions") from None


def _is_older(revision: str) -> bool:
    """Than this program's; one that it does not know is newer."""
    return revision in known() and revision != newest()


def _shown(database: Database) -> str:
    return database.engine.url.render_as_string(hide_password=True)
