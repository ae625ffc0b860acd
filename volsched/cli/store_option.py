"""Shared code of commands on a store: `--db`, opening it, and how its failures end the command."""

import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from volsched.cli import console
from volsched.cli.app import modules_loaded
from volsched.cli.console import Exit, fail
from volsched.cli.live import live_store
from volsched.cli.log_options import log_work_on
from volsched.cli.moment_option import absolute
from volsched.cli.remote.server_choice import refuse_server
from volsched.cli.remote.server_options import choice_of_command
from volsched.kube.problems import ConfigurationError
from volsched.log.errors import ArchivedError, IntegrityBrokenError, NoStoreError, NotMigratedError, StoreError
from volsched.questions.refusals import MomentError, UnknownError
from volsched.runtime.clock import system_clock

if TYPE_CHECKING:
    from volsched.log.database import Database

Db = Annotated[
    str | None,
    typer.Option(
        "--db",
        metavar="URL|FILE",
        help="The store: an SQLite file, or a URL; else VOLSCHED_DATABASE_URL, else a file of the user's.",
    ),
]


@contextmanager
def explained(*files: str) -> Iterator[None]:
    """An error of the store ends the command with its message: with 5 if stored data is wrong, with 3 if it is in
    an archive, else with 1; unusable settings end it with 2. `files` are those that are read: the message names
    the wrong one.
    """
    try:
        yield
    except ConfigurationError as error:
        fail(Exit.USAGE, *error.problems)
    except ArchivedError as error:
        fail(Exit.NOT_FOUND, str(error))
    except IntegrityBrokenError as error:
        from volsched.log.retention.export import ExportError

        named = f"{files[error.file]}: " if files and isinstance(error, ExportError) else ""
        fail(Exit.INTEGRITY, f"{named}{error}")
    except StoreError as error:
        fail(Exit.FAILURE, str(error))


@contextmanager
def opened(db: str | None, *files: str, name: str = "volsched cli", creates: bool = False) -> Iterator["Database"]:
    """The store, ready for use; `files` as in `explained`, `name` as PostgreSQL shows it.

    `creates`: the command writes into a store, and creates one on SQLite if there is none. Tables of an older
    version, and those of a database server, are left to `volsched migrate`. If a server of ours was named, the
    command ends: verbs that open a store cannot ask it.
    """
    if (choice := choice_of_command()).live:
        if db is not None:
            fail(Exit.USAGE, "--live and --db name two places; give one of them")
        with live_store(choice) as database, explained(*files):
            yield database
        return
    refuse_server(db)
    # Imported here: a command that asks a server opens no store.
    with modules_loaded():
        from volsched.log.store import open_store
        from volsched.runtime.settings import database_url

    with explained(*files):
        url = database_url(db)
        try:
            database = _open_or_create(url, name) if creates else open_store(url, name=name)
        except NotMigratedError as error:
            # The message ends with the remedy, a command, which must name this store and not the default one.
            fail(Exit.FAILURE, str(error) + ("" if db is None else f" --db {_shell_word(db)}"))
        log_work_on(database)
        try:
            yield database
        finally:
            database.close()


@contextmanager
def opened_or_empty(db: str | None) -> Iterator["Database"]:
    """The store; if there is none yet, an empty one that ends with the command."""
    from volsched.log.store import open_store
    from volsched.runtime.settings import database_url

    refuse_server(db)
    with explained():
        try:
            open_store(database_url(db)).close()
        except NoStoreError:
            from volsched.log.migrations import scratch_store

            with scratch_store(in_memory=True) as empty:
                yield empty
            return
    with opened(db) as database:
        yield database


def _open_or_create(url: str, name: str) -> "Database":
    from volsched.log.store import migrate_store, open_store
    from volsched.runtime.user_files import default_url

    try:
        return open_store(url, name=name)
    except NoStoreError:
        migrate_store(url, make_directory=url == default_url())
        database = open_store(url, name=name)
        console.stderr.print(f"created a new store in {database.place}", markup=False)
        return database


def _shell_word(db: str) -> str:
    """Quoted for the shell; a URL may hold a password, which must not be printed."""
    return "URL" if "@" in db else shlex.quote(db)


def position_of(database: "Database", until: str | None) -> int:
    """The position that a person means: a number, the last one at a time, or that of the log's end."""
    from volsched.questions.history import moments

    with database.read() as connection:
        try:
            return moments.position_of(connection, None if until is None else absolute(until), now=now_us())
        except UnknownError as error:
            fail(Exit.NOT_FOUND, str(error))
        except MomentError as error:
            fail(Exit.USAGE, str(error))


def now_us() -> int:
    return system_clock()
