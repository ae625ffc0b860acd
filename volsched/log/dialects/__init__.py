"""The few statements that are hot enough to be written per engine. Everything else is SQLAlchemy Core.

Both modules offer the same functions; `dialect_of` picks one by the engine's name.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Protocol

from sqlalchemy import Column, ColumnElement, Connection, Engine, Executable, Select, Table

from volsched.log.dialects.driver_statement import NO_VALUES
from volsched.log.dialects.postgres import Postgres, postgres_options
from volsched.log.dialects.sqlite import Sqlite, sqlite_options
from volsched.log.dialects.writer_queue import Turn
from volsched.log.row_states import Row

Values = Sequence[Any]


class Dialect(Protocol):
    def __hash__(self) -> int:
        """Equal for all dialects of one engine: statements are cached per dialect."""

    def configure(self, engine: Engine) -> None:
        """Set up every connection of the engine."""

    def place(self, connection: Connection) -> str:
        """The identity of the store's location: the same by every path or URL, and different for a copy."""

    def turn(self, connection: Connection) -> AbstractContextManager[Turn]:
        """Wait until this connection may write; its turn ends when the context is left."""

    def begin_write(self, connection: Connection) -> tuple[Any, ...] | None:
        """Start a write transaction, lock the head row until commit, and return it."""

    def begin_without_head_lock(self, connection: Connection) -> None:
        """Start a write transaction that does not touch the log and so need not wait for the head row."""

    def claim_rows(self, rows: Select[Any], table: Table) -> Select[Any]:
        """The rows that no other transaction is claiming, locked until this one ends."""

    def lock_rows(self, rows: Select[Any]) -> Select[Any]:
        """All of the rows, locked until this transaction ends; waits for locks of other transactions."""

    def move_head(self, connection: Connection, position: int, hash_: bytes, at: int) -> None:
        """Set the head row to the transaction's last event, and notify listeners of the commit."""

    def run(
        self, connection: Connection, statement: Executable, values: Mapping[str, Any] = NO_VALUES
    ) -> list[Any]:
        """The rows, as named tuples, of a Core statement that is built once and executed by the driver."""

    def run_all(
        self, connection: Connection, statements: Sequence[Executable], values: Mapping[str, Any]
    ) -> list[list[Any]]:
        """The rows of each of these queries, in one round trip; none depends on another."""

    def together(self, connection: Connection, rows: int) -> AbstractContextManager[None]:
        """Send the statements that are executed here in one round trip, if they affect few rows. Results
        cannot be read inside the context, and database errors are raised when it ends.
        """

    def insert(self, connection: Connection, table: Table, rows: Sequence[Values]) -> None:
        """Add rows, values in the order of the table's columns."""

    def upsert(self, connection: Connection, table: Table, rows: Sequence[Values]) -> None:
        """Add rows, or replace the ones that have the same primary key."""

    def update(self, connection: Connection, table: Table, columns: Sequence[str], rows: Sequence[Values]) -> None:
        """Change some columns of existing rows; each row's key follows its values."""

    def fetch(
        self, connection: Connection, table: Table, column: str, keys: Iterable[str]
    ) -> list[dict[str, Any]]:
        """The rows whose column is one of the keys."""

    def rows(self, connection: Connection, table: str, rest: str, values: Mapping[str, Any]) -> Iterator[Row]:
        """The rows of a table; `rest` is the statement from WHERE or ORDER BY on, with values as `:name`."""

    def json_text(self, column: Column[str], path: Sequence[str]) -> ColumnElement[str | None]:
        """The value at a path of a column that holds JSON: a string as it is, anything else as JSON."""

    def json_without(self, column: Column[str], paths: Sequence[Sequence[str]]) -> ColumnElement[str]:
        """A column that holds JSON, without the parts at these paths: equal values give equal text."""

    def among(self, column: ColumnElement[str], keys: Iterable[str]) -> ColumnElement[bool]:
        """The column is one of the keys, as one parameter: Core's IN has one per key, which is slow with many."""

    def among_named(self, column: Column[str], name: str) -> ColumnElement[bool]:
        """`among` in a statement that is built once: the keys are bound to the name when it is executed."""

    def named(self, keys: Iterable[str]) -> Any:
        """Keys in the form that `among_named` binds."""

    def scan(
        self, connection: Connection, table: Table, *, order: str, after: Any = None, until: Any = None
    ) -> Iterator[list[tuple[Any, ...]]]:
        """Raw driver rows in chunks, ordered by a column, with values in (after, until]; None is no bound."""

    def fetch_versions(self, connection: Connection, streams: Iterable[str]) -> dict[str, int]:
        """The last version of each of these streams that has one, whether its events are archived or not."""

    def begin_migration(self, connection: Connection) -> None:
        """Start a transaction that changes tables, without a limit on how long its statements may take."""

    def is_alive(self, connection: Connection) -> bool:
        """Whether a connection that was not used for a while still leads to the store."""

    def is_lost(self, error: BaseException) -> bool:
        """The driver's error means that the connection is gone, not that a statement was refused."""


def engine_options(backend: str, name: str, file: Path | None) -> dict[str, Any]:
    """How connections are opened and how many are kept; `name` identifies us to a server; `file` is SQLite's."""
    return sqlite_options(file) if backend == "sqlite" else postgres_options(name)


def dialect_of(engine: Engine) -> Dialect:
    return Sqlite() if engine.dialect.name == "sqlite" else Postgres()
