"""What every command on a store shares: `--db`, opening it, and how its failures end the command."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Annotated

import typer
from rich.progress import Progress

from volsched.cli.console import Exit, fail, stderr
from volsched.cli.durations import read_duration
from volsched.core.configuration import ConfigurationError
from volsched.settings import database_url
from volsched.store.database import Database
from volsched.store.errors import ArchivedError, IntegrityBrokenError, StoreError
from volsched.store.log import position_at, read_head
from volsched.store.opening import open_store
from volsched.store.transfer import ExportError

Db = Annotated[
    str | None,
    typer.Option(
        "--db",
        metavar="URL|FILE",
        help="The store: an SQLite file, or a URL; else VOLSCHED_DATABASE_URL, else a file of the user's.",
    ),
]
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


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
def opened(db: str | None, *files: str) -> Iterator[Database]:
    """The store, ready for use; `files` as in `explained`."""
    with explained(*files):
        database = open_store(database_url(db))
        try:
            yield database
        finally:
            database.close()


@contextmanager
def bar(label: str, total: int | None) -> Iterator[Callable[[int], None]]:
    """Progress by position, shown on stderr where that is a terminal; None: nobody knows how far it goes."""
    with Progress(console=stderr, disable=not stderr.is_terminal, transient=True) as progress:
        task = progress.add_task(label, total=total)
        yield lambda done: progress.update(task, completed=done)


def position_of(database: Database, until: str | None) -> int:
    """The position that a person means: a number, the last one at a time, or that of the log's end."""
    with database.read() as connection:
        end = read_head(connection).position
        if until is None:
            return end
        if not until.isdecimal():
            return position_at(connection, parse_time(until))
    if int(until) > end:
        fail(Exit.NOT_FOUND, f"position {until} is not there yet; the log ends at {end}")
    return int(until)


def parse_time(text: str) -> int:
    """Microseconds since 1970 of a time such as 2025-11-16T22:00:00Z, or 2h ago; without a zone it is UTC."""
    ago = read_duration(text.removesuffix(" ago"))
    if ago is not None:
        return now_us() - ago
    try:
        given = datetime.fromisoformat(text)
    except ValueError:
        fail(
            Exit.USAGE,
            f'"{text}" is neither a position nor a time; give 1234, 2025-11-16T22:00:00Z, or 2h for ago',
        )
    return _microseconds(given if given.tzinfo else given.replace(tzinfo=UTC))


def now_us() -> int:
    return _microseconds(datetime.now(UTC))


def _microseconds(moment: datetime) -> int:
    return (moment - EPOCH) // timedelta(microseconds=1)
