"""What every command on a store shares: `--db`, opening it, and how its failures end the command."""

import shlex
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Annotated

import typer
from rich.progress import Progress

from volsched.cli.console import Exit, fail, stderr
from volsched.cli.remote.server_choice import refuse_server
from volsched.kube.problems import ConfigurationError
from volsched.log.database import Database
from volsched.log.errors import ArchivedError, IntegrityBrokenError, NotMigratedError, StoreError
from volsched.log.retention.export import ExportError
from volsched.log.store import open_store
from volsched.questions.audit.answers import UnknownError
from volsched.questions.history import moments
from volsched.questions.history.moments import EPOCH, MomentError
from volsched.runtime.settings import database_url

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
    """A store's error ends the command with its message: 5 where what is stored is wrong, 3 where it lies in an
    archive, else 1. `files` are those that are read: the message names the one that is wrong. Settings that cannot
    be used are a mistake in calling it.
    """
    try:
        yield
    except ConfigurationError as error:
        fail(Exit.USAGE, *error.problems)
    except ExportError as error:
        fail(Exit.INTEGRITY, f"{files[error.file]}: {error}" if files else str(error))
    except ArchivedError as error:
        fail(Exit.NOT_FOUND, str(error))
    except IntegrityBrokenError as error:
        fail(Exit.INTEGRITY, str(error))
    except StoreError as error:
        fail(Exit.FAILURE, str(error))


@contextmanager
def opened(db: str | None, *files: str, name: str = "volsched cli") -> Iterator[Database]:
    """The store, ready for use; `files` as in `explained`, `name` as PostgreSQL shows it.

    Whoever opens one has not asked the server that was named: it cannot be asked for that.
    """
    refuse_server(db)
    with explained(*files):
        try:
            database = open_store(database_url(db), name=name)
        except NotMigratedError as error:
            # The remedy ends the message; it is to make the store that was asked for, and not the user's own.
            fail(Exit.FAILURE, str(error) + ("" if db is None else f" --db {_quoted(db)}"))
        try:
            yield database
        finally:
            database.close()


def _quoted(db: str) -> str:
    """For the shell; a URL may hold a password, which is not to be printed."""
    return "URL" if "@" in db else shlex.quote(db)


@contextmanager
def bar(label: str, total: int | None) -> Iterator[Callable[[int], None]]:
    """Progress by position, shown on stderr where that is a terminal; None: nobody knows how far it goes."""
    with Progress(console=stderr, disable=not stderr.is_terminal, transient=True) as progress:
        task = progress.add_task(label, total=total)
        yield lambda done: progress.update(task, completed=done)


def position_of(database: Database, until: str | None) -> int:
    """The position that a person means: a number, the last one at a time, or that of the log's end."""
    with database.read() as connection:
        try:
            return moments.position_of(connection, until, now=now_us())
        except UnknownError as error:
            fail(Exit.NOT_FOUND, str(error))
        except MomentError as error:
            fail(Exit.USAGE, str(error))


def now_us() -> int:
    return (datetime.now(UTC) - EPOCH) // timedelta(microseconds=1)
