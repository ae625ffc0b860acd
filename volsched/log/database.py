"""The database behind a store: its URL, its SQLite file, and a cache of states from our last transactions."""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from weakref import ref

from sqlalchemy import URL, Connection, Engine, bindparam, create_engine, make_url, select
from sqlalchemy.exc import ArgumentError, DataError, DBAPIError, IntegrityError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from volsched.log import tables
from volsched.log.commit_listeners import Commit, CommitListener, OwnCommits
from volsched.log.dialects import Dialect, dialect_of, engine_options
from volsched.log.dialects.writer_queue import Turn
from volsched.log.errors import (
    ConnectionLostError,
    FullError,
    IntegrityBrokenError,
    NotMigratedError,
    ReplacedError,
    StoreError,
)
from volsched.log.events.fold import BindingState, ObjectState, State
from volsched.log.kept_connections import kept_connections
from volsched.log.meters import Meters
from volsched.log.sessions import Observer, session_of
from volsched.runtime.extras import install_command

# The file of an SQLite store: readable only by its owner, and the same file for as long as a process has it open.
#
# SQLite keeps using a file that was removed or replaced: its writes are lost with the process, and its reads are
# stale. Checking the name before every transaction costs a microsecond.

OWN = 0o600


@dataclass(slots=True)
class StoreFile:
    path: Path | None = None
    """None: there is no file, or only SQLite knows which."""
    _known: tuple[int, int] | None = field(default=None)
    """Device and inode, from the first time that the file existed."""

    def check(self) -> None:
        """ReplacedError where the name leads to another file than before."""
        if self.path is None:
            return
        try:
            status = os.stat(self.path)
        except OSError:
            if self._known is None:
                # The file is about to be created, or cannot be opened; SQLite has the better message for that.
                return
            raise self._replaced("was removed") from None
        if self._known is None:
            self._known = status.st_dev, status.st_ino
        elif self._known != (status.st_dev, status.st_ino):
            raise self._replaced("was replaced by another")

    def _replaced(self, what: str) -> ReplacedError:
        remedy = f"the store's file {what} while this process had it open; nothing is written to it, restart"
        error = ReplacedError(f"{self.path}: {remedy}")
        error.remedy = remedy
        return error

    def free_bytes(self) -> int | None:
        """Free space on its disk; None where it is unknown."""
        if self.path is None:
            return None
        try:
            disk = os.statvfs(self.path.parent)
        except OSError:
            return None
        return disk.f_bavail * disk.f_frsize

    def create(self) -> None:
        """Create an empty file that only its owner can read; SQLite copies the mode to the files beside it."""
        if self.path is not None:
            os.close(os.open(self.path, os.O_RDWR | os.O_CREAT, OWN))


def sqlite_file(url: URL) -> Path | None:
    """The file of an SQLite store; None for a server, memory, or a URI that SQLite reads itself."""
    named = url.get_backend_name() == "sqlite" and url.database and not url.database.startswith((":", "file:"))
    return Path(url.database) if named and url.database else None


# States of streams from this process's last transactions, so that the next one need not read them again.
#
# The cache is trusted only under the head lock and only as far as the log agrees: it records the position and hash
# of the event it was valid at, and drops the streams that other writers have appended to since. After a rollback,
# or with another log, that event does not exist, and the whole cache is dropped.

MOST = 10_000
"""The most streams in the cache; a state takes a few kilobytes."""
MOST_BEHIND = 500
"""Events of other writers after which starting over is quicker than finding out which streams they touched."""

_events = tables.events
_SINCE = (
    select(_events.c.position, _events.c.hash, _events.c.stream)
    .where(_events.c.position >= bindparam("position"))
    .order_by(_events.c.position)
    .limit(MOST_BEHIND + 1)
)


Place = tuple[int, bytes]
"""An event of the log: its position and its hash."""


@dataclass(slots=True)
class Recent:
    _at: Place = (0, b"")
    _states: dict[str, State] = field(default_factory=dict)
    _mutex: threading.Lock = field(default_factory=threading.Lock)

    def catch_up(self, dialect: Dialect, connection: Connection, head: Place) -> None:
        """Bring the cache up to the log, whose last event is this one."""
        with self._mutex:
            self._catch_up(dialect, connection, head)

    def _catch_up(self, dialect: Dialect, connection: Connection, head: Place) -> None:
        if self._at == head:
            return
        if self._states:
            since = dialect.run(connection, _SINCE, {"position": self._at[0]})
            known = bool(since) and (since[0].position, bytes(since[0].hash)) == self._at
            if known and len(since) <= MOST_BEHIND:
                for event in since[1:]:
                    self._states.pop(event.stream, None)
            else:
                self._states.clear()
        self._at = head

    def get(self, stream: str) -> State | None:
        return self._states.get(stream)

    def copy(self) -> "Recent":
        """A copy for a reader without the head lock, which must not change the cache of writers."""
        with self._mutex:
            return Recent(self._at, dict(self._states))

    def keep(self, began: Place, ended: Place, states: dict[str, State]) -> None:
        """Keep the states a transaction read and wrote; if committed, it takes the log from `began` to `ended`."""
        with self._mutex:
            self._keep(began, ended, states)

    def _keep(self, began: Place, ended: Place, states: dict[str, State]) -> None:
        if self._at != began:
            # The transaction lost its lock, and another one is running.
            return
        self._at = ended
        for stream, state in states.items():
            # Removed first, so that the least recently used is dropped first.
            self._states.pop(stream, None)
            # Ended bindings are never read again and would grow without bound.
            opened = isinstance(state, BindingState) and state.open
            if opened or (isinstance(state, ObjectState) and state.manifest is not None):
                self._states[stream] = state
        while len(self._states) > MOST:
            del self._states[next(iter(self._states))]


LONG_ALONE = 64
"""Consecutive transactions of this process after which no other process is assumed to wait for the head."""
DRAFTED = 4
"""The fewest commands for which a draft pays: the data read for it must be checked again under the lock."""


@dataclass(slots=True)
class OtherWriters:
    """Whether other processes append to the log: only then deciding before the head is locked pays."""

    drafts: bool | None = None
    """Overrides the observation."""
    _ended: Place | None = None
    _alone_for: int = LONG_ALONE

    def wait_for(self, commands: int) -> bool:
        """Whether other processes would wait while this many commands are decided under the lock."""
        if self.drafts is not None:
            return self.drafts
        return commands >= DRAFTED and self._alone_for < LONG_ALONE

    def note(self, began: Place, ended: Place) -> None:
        """A transaction of this process takes the log from `began` to `ended`."""
        alone = self._ended in (None, began)
        self._alone_for = min(self._alone_for + 1, LONG_ALONE) if alone else 0
        self._ended = ended


DRIVERS = {"sqlite": "sqlite", "postgresql": "postgresql+psycopg", "postgres": "postgresql+psycopg"}
MIGRATE = "run: volsched migrate"
FULL = "the disk is full; nothing was lost, free some space and retry"
MISHAPS: tuple[tuple[str, type[StoreError], str], ...] = (
    ("no such table", NotMigratedError, f"there are no tables of volsched yet; {MIGRATE}"),
    ("UndefinedTable", NotMigratedError, f"there are no tables of volsched yet; {MIGRATE}"),
    ('relation "log_head" does not exist', NotMigratedError, f"there are no tables of volsched yet; {MIGRATE}"),
    ("file is not a database", StoreError, "this is not an SQLite database; check the path, or restore a backup"),
    ("malformed", IntegrityBrokenError, "the file is damaged; restore a backup, or export what verify accepts"),
    ("database or disk is full", FullError, FULL),
    ("No space left on device", FullError, FULL),
    ("could not extend file", FullError, FULL),
    ("unable to open database file", StoreError, "the file cannot be opened; check the directory and permissions"),
    ("readonly database", StoreError, "the database is read-only; check the file's permissions"),
    ("database is locked", StoreError, "another process has held the write lock for too long; find and end it"),
    ("due to lock timeout", StoreError, "another process has held the write lock for too long; find and end it"),
    ("due to statement timeout", StoreError, "a statement took longer than allowed; look at the server's load"),
    ("permission denied", StoreError, "the database role lacks the right; use the URL of the tables' owner"),
    ("must be owner of", StoreError, "the database role lacks the right; use the URL of the tables' owner"),
    ("password authentication failed", StoreError, "the server refuses the password; check VOLSCHED_DATABASE_URL"),
)
"""Part of the driver's message, the error class, and the message to show instead."""


@dataclass(slots=True)
class LockWaits:
    """The longest wait of this process for its turn to write; only SQLite has a queue of writers."""

    longest: float = 0
    """Seconds."""
    most_passed: int = 0
    """Turns of other writers while one writer waited."""

    def note(self, turn: Turn) -> None:
        self.longest = max(self.longest, turn.waited)
        self.most_passed = max(self.most_passed, turn.passed)


@dataclass(frozen=True, slots=True)
class Database:
    engine: Engine
    dialect: Dialect
    recent: Recent = field(default_factory=Recent, compare=False)
    others: OtherWriters = field(default_factory=OtherWriters, compare=False)
    file: StoreFile = field(default_factory=StoreFile, compare=False)
    waits: LockWaits = field(default_factory=LockWaits, compare=False)
    observer: Observer = field(default_factory=Observer, compare=False)
    meters: Meters = field(default_factory=Meters, compare=False)
    listeners: list[CommitListener] = field(default_factory=list, compare=False)
    """Called with every commit of this process, in the thread that made it."""
    _followers: "list[ref[OwnCommits]]" = field(default_factory=list, compare=False)

    def follow(self) -> OwnCommits:
        """The commits of this process from now on, for as long as the caller keeps the result."""
        commits = OwnCommits()
        self._followers.append(ref(commits, self._followers.remove))
        return commits

    def report(self, commit: Commit) -> None:
        """Notify the listeners and followers in this process of the commit."""
        for follower in tuple(self._followers):
            commits = follower()
            if commits is not None:
                commits.add(commit)
        for listener in self.listeners:
            listener.committed(commit)

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """A read transaction: one consistent view of the database from its first statement on."""
        self.file.check()
        with _explained(self.engine, self.dialect), self.engine.connect() as connection:
            if connection.dialect.name == "postgresql":
                connection = connection.execution_options(isolation_level="REPEATABLE READ")
            with connection.begin():
                yield connection

    @contextmanager
    def glance(self) -> Iterator[Connection]:
        """A connection for reads of one statement, by the driver (`dialect.run`). Each is consistent by itself,
        and a transaction around it would cost more than the read.
        """
        self.file.check()
        with _explained(self.engine, self.dialect), self._kept_connection("glance") as connection:
            yield connection

    @contextmanager
    def write(self) -> Iterator[Connection]:
        """A write transaction; the caller starts it with `dialect.begin_write`, which locks the head row."""
        self.file.check()
        with (
            _explained(self.engine, self.dialect),
            self._kept_connection("write", volsched_write=True) as connection,
            self.dialect.turn(connection) as turn,
        ):
            self.waits.note(turn)
            try:
                yield connection
            except BaseException:
                # Before the next writer's turn. A lost connection has no transaction any more.
                with suppress(DBAPIError, self.engine.dialect.loaded_dbapi.Error):
                    _transaction(connection).rollback()
                raise
            _transaction(connection).commit()

    @contextmanager
    def write_beside_log(self) -> Iterator[Connection]:
        """A write transaction, begun, on tables beside the log: writers of the log are not blocked."""
        with self.write() as connection:
            self.dialect.begin_without_head_lock(connection)
            yield connection

    @contextmanager
    def migrating(self) -> Iterator[Connection]:
        """A transaction that changes tables, without a time limit: an index of a long log takes long."""
        with _explained(self.engine, self.dialect), self.engine.connect() as connection:
            connection = connection.execution_options(volsched_write=True)
            with self.dialect.turn(connection), connection.begin():
                self.dialect.begin_migration(connection)
                yield connection

    @contextmanager
    def _kept_connection(self, use: str, **options: Any) -> Iterator[Connection]:
        if self.file.path is None and self.engine.dialect.name == "sqlite":
            # In memory: SQLAlchemy gives each thread a connection of its own.
            with self.engine.connect() as connection:
                yield connection.execution_options(**options)
        else:
            if self.engine.dialect.name == "postgresql":
                # Otherwise the driver begins a transaction, in a round trip of its own.
                options["isolation_level"] = "AUTOCOMMIT"
            with kept_connections(self.engine, use, self.dialect.is_alive, **options).borrowed() as connection:
                yield connection

    @property
    def place(self) -> str:
        """The location of the store, the same text for every process on the machine, and without secrets."""
        url = self.engine.url
        if self.engine.dialect.name == "sqlite":
            return str(Path(url.database or "").resolve())
        return f"{url.host}:{url.port}/{url.database}"

    @property
    def refusals(self) -> tuple[type[Exception], ...]:
        """The errors that the database raises for a refused row, through SQLAlchemy or the driver."""
        driver = self.engine.dialect.loaded_dbapi
        return (IntegrityError, DataError, driver.IntegrityError, driver.DataError)

    def close(self) -> None:
        self.observer.session.close()
        self.engine.dispose()


def _transaction(connection: Connection) -> Any:
    """The object that ends the transaction: SQLAlchemy's if Core has executed a statement, else the driver's."""
    return connection if connection.in_transaction() else connection.connection.driver_connection


def open_database(url: str, *, name: str = "volsched") -> Database:
    """The database at a URL such as sqlite:///volsched.db or postgresql://user@host/name.

    `name` identifies this process to the server's administrator.
    """
    address = normal_url(url)
    try:
        parsed = make_url(address)
        engine = create_engine(address, **engine_options(parsed.get_backend_name(), name, sqlite_file(parsed)))
    except ModuleNotFoundError as error:
        raise StoreError(
            f"PostgreSQL needs {error.name}, which is not installed; run: {install_command('stack')}"
        ) from None
    dialect = dialect_of(engine)
    dialect.configure(engine)
    return Database(
        engine,
        dialect,
        file=StoreFile(sqlite_file(engine.url)),
        observer=Observer(session_of(engine)),
    )


def normal_url(url: str) -> str:
    """The URL with the driver that we use; refuses a scheme that we do not know."""
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError):
        # A URL that cannot be parsed may still hold a password, anywhere before its last "@".
        shown = url if "@" not in url else f"…@{url.rpartition('@')[2]}"
        raise StoreError(
            f'"{shown}" is not a database URL; use sqlite:///FILE or postgresql://HOST/NAME'
        ) from None
    scheme = parsed.drivername.partition("+")[0]
    if scheme not in DRIVERS:
        known = "sqlite and postgresql"
        raise StoreError(f'database URL scheme "{parsed.drivername}" is not known; there are {known}')
    return parsed.set(drivername=DRIVERS[scheme]).render_as_string(hide_password=False)


def _error_with_remedy(kind: type[StoreError], url: str, remedy: str) -> StoreError:
    error = kind(f"{url}: {remedy}")
    error.remedy = remedy
    return error


@contextmanager
def _explained(engine: Engine, dialect: Dialect) -> Iterator[None]:
    """Translates the driver's messages for common failures into ones that a person can act on."""
    try:
        yield
    except PoolTimeoutError as error:
        told = f"{engine.url.render_as_string(hide_password=True)}: all connections of this process are in use"
        raise StoreError(f"{told}; retry, or find out what holds them") from error
    except (DBAPIError, engine.dialect.loaded_dbapi.Error) as error:
        driver_error = (error.orig if isinstance(error, DBAPIError) else None) or error
        cause, url = str(driver_error), engine.url.render_as_string(hide_password=True)
        for words, kind, remedy in MISHAPS:
            if words in cause:
                raise _error_with_remedy(kind, url, remedy) from error
        if dialect.is_lost(driver_error):
            # The other connections of the pool are lost too; those in use are returned to the old pool.
            engine.dispose()
            why = " ".join(cause.split())
            raise ConnectionLostError(
                f"{url}: the server does not answer ({why}); start it, or check VOLSCHED_DATABASE_URL"
            ) from error
        if isinstance(driver_error, engine.dialect.loaded_dbapi.OperationalError):
            # A full disk, a deadlock, a standby: the statement is not wrong, and may succeed on retry.
            raise StoreError(f"{url}: {' '.join(cause.split())}; see the server's log") from error
        raise
