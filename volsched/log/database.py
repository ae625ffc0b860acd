"""The database behind a store: which URLs there are, how they are opened, and what can go wrong."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from sqlalchemy import Connection, Engine, create_engine, make_url
from sqlalchemy.exc import ArgumentError, DataError, DBAPIError, IntegrityError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from volsched.log.dialects import Dialect, dialect_of, engine_options
from volsched.log.dialects.writer_queue import Turn
from volsched.log.errors import ConnectionLostError, FullError, IntegrityBrokenError, NotMigratedError, StoreError
from volsched.log.lease_observer import Observer
from volsched.log.recent_states import Recent
from volsched.log.sessions import session_of
from volsched.log.store_file import StoreFile, sqlite_file

DRIVERS = {"sqlite": "sqlite", "postgresql": "postgresql+psycopg", "postgres": "postgresql+psycopg"}
MIGRATE = "run: volsched migrate"
FULL = "the disk is full; nothing was lost, make room and try again"
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
    ("password authentication failed", StoreError, "the server refuses the password; check VOLSCHED_DATABASE_URL"),
)
"""Part of the driver's message, the kind of error, and what to say instead."""


@dataclass(slots=True)
class LockWaits:
    """How long this process had to wait for its turn to write, at worst. Only SQLite has turns."""

    longest: float = 0
    """Seconds."""
    most_passed: int = 0
    """Turns that others had while one writer waited."""

    def note(self, turn: Turn) -> None:
        self.longest = max(self.longest, turn.waited)
        self.most_passed = max(self.most_passed, turn.passed)


@dataclass(frozen=True, slots=True)
class Database:
    engine: Engine
    dialect: Dialect
    recent: Recent = field(default_factory=Recent, compare=False)
    file: StoreFile = field(default_factory=StoreFile, compare=False)
    waits: LockWaits = field(default_factory=LockWaits, compare=False)
    observer: Observer = field(default_factory=Observer, compare=False)

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """A read transaction: one picture of the database from its first statement on."""
        self.file.check()
        with _explained(self.engine, self.dialect), self.engine.connect() as connection:
            if connection.dialect.name == "postgresql":
                connection = connection.execution_options(isolation_level="REPEATABLE READ")
            with connection.begin():
                yield connection

    @contextmanager
    def write(self) -> Iterator[Connection]:
        """A write transaction; the caller starts it with `dialect.begin_write`, which locks the head row."""
        self.file.check()
        with _explained(self.engine, self.dialect), self.engine.connect() as connection:
            connection = connection.execution_options(volsched_write=True)
            with self.dialect.turn(connection) as turn, connection.begin():
                self.waits.note(turn)
                yield connection

    @contextmanager
    def migrating(self) -> Iterator[Connection]:
        """A transaction for changes of tables; an index of a long log takes as long as it takes."""
        with _explained(self.engine, self.dialect), self.engine.connect() as connection:
            connection = connection.execution_options(volsched_write=True)
            with self.dialect.turn(connection), connection.begin():
                self.dialect.begin_migration(connection)
                yield connection

    @property
    def place(self) -> str:
        """Where the store is, in the same words for every process on the machine, and without secrets."""
        url = self.engine.url
        if self.engine.dialect.name == "sqlite":
            return str(Path(url.database or "").resolve())
        return f"{url.host}:{url.port}/{url.database}"

    @property
    def refusals(self) -> tuple[type[Exception], ...]:
        """What the database raises for a row it does not take, be it through SQLAlchemy or its driver."""
        driver = self.engine.dialect.loaded_dbapi
        return (IntegrityError, DataError, driver.IntegrityError, driver.DataError)

    def close(self) -> None:
        self.observer.session.close()
        self.engine.dispose()


def open_database(url: str, *, name: str = "volsched") -> Database:
    """The database at a URL such as sqlite:///volsched.db or postgresql://user@host/name.

    `name` is what the server's administrator sees of this process.
    """
    address = normal_url(url)
    engine = create_engine(address, **engine_options(make_url(address).get_backend_name(), name))
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
        # What cannot be parsed may still hold a password, anywhere before its last "@".
        shown = url if "@" not in url else f"…@{url.rpartition('@')[2]}"
        raise StoreError(
            f'"{shown}" is not a database URL; use sqlite:///FILE or postgresql://HOST/NAME'
        ) from None
    scheme = parsed.drivername.partition("+")[0]
    if scheme not in DRIVERS:
        known = "sqlite and postgresql"
        raise StoreError(f'database URL scheme "{parsed.drivername}" is not known; there are {known}')
    return parsed.set(drivername=DRIVERS[scheme]).render_as_string(hide_password=False)


def _told(kind: type[StoreError], url: str, remedy: str) -> StoreError:
    error = kind(f"{url}: {remedy}")
    error.remedy = remedy
    return error


@contextmanager
def _explained(engine: Engine, dialect: Dialect) -> Iterator[None]:
    """The driver's words for the common mishaps, turned into what a person can act on."""
    try:
        yield
    except PoolTimeoutError as error:
        told = f"{engine.url.render_as_string(hide_password=True)}: this process has all its connections in use"
        raise StoreError(f"{told}; ask again, or find what keeps them") from error
    except (DBAPIError, engine.dialect.loaded_dbapi.Error) as error:
        driver_error = (error.orig if isinstance(error, DBAPIError) else None) or error
        cause, url = str(driver_error), engine.url.render_as_string(hide_password=True)
        for words, kind, remedy in MISHAPS:
            if words in cause:
                raise _told(kind, url, remedy) from error
        if dialect.is_lost(driver_error):
            why = " ".join(cause.split())
            raise ConnectionLostError(
                f"{url}: the server does not answer ({why}); start it, or check VOLSCHED_DATABASE_URL"
            ) from error
        if isinstance(driver_error, engine.dialect.loaded_dbapi.OperationalError):
            # A full disk, a deadlock, a standby: the statement is not wrong, and may succeed when tried again.
            raise StoreError(f"{url}: {' '.join(cause.split())}; see the server's log") from error
        raise
