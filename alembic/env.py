"""Runs migrations: on the connection that `volsched migrate` passes, or for `alembic` on the configured store."""

from collections.abc import Iterator
from contextlib import closing, contextmanager

from alembic.operations import MigrationScript
from alembic.runtime.migration import MigrationContext
from sqlalchemy import Connection

from alembic import context
from volsched.log.database import open_database
from volsched.log.errors import StoreError
from volsched.log.revisions import revision_ids
from volsched.log.store import make_file
from volsched.log.tables import metadata
from volsched.runtime.settings import database_url
from volsched.runtime.user_files import default_url


@contextmanager
def _connection() -> Iterator[Connection]:
    given = context.config.attributes.get("connection")
    if given is not None:
        yield given
        return
    url = database_url(None)
    try:
        with closing(open_database(url)) as database:
            make_file(database, make_directory=url == default_url())
            with database.migrating() as connection:
                yield connection
    except StoreError as error:
        raise SystemExit(f"error: {error}") from None


def _numbered(_: MigrationContext, __: object, scripts: list[MigrationScript]) -> None:
    """Names a new revision by the next number, not at random: `volsched` finds the newest revision by it."""
    for script in scripts:
        script.rev_id = f"{int(revision_ids()[-1]) + 1:04}"


if context.is_offline_mode():
    raise SystemExit("error: migrations read the tables, so they need a store; omit --sql")
with _connection() as connection:
    context.configure(
        connection=connection,
        target_metadata=metadata,
        render_as_batch=True,
        process_revision_directives=_numbered,
    )
    with context.begin_transaction():
        context.run_migrations()
