"""The few statements that are hot enough to be written per engine. Everything else is SQLAlchemy Core.

Both modules offer the same functions; `dialect_of` picks one by the engine's name.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

from sqlalchemy import Column, ColumnElement, Connection, Engine, Table

from volsched.log.dialects.postgres import Postgres, postgres_options
from volsched.log.dialects.sqlite import Sqlite
from volsched.log.dialects.writer_queue import Turn

Values = Sequence[Any]


class Dialect(Protocol):
    def __hash__(self) -> int:
        """Equal for all of one engine's: statements are made once for each."""

    def configure(self, engine: Engine) -> None:
        """Set up every connection of the engine."""

    def turn(self, connection: Connection) -> AbstractContextManager[Turn]:
        """Wait until this connection may write; the next one may when the context is left."""

    def begin_write(self, connection: Connection) -> tuple[Any, ...] | None:
        """Start a write transaction, lock the head row until commit, and answer it."""

    def begin_beside_log(self, connection: Connection) -> None:
        """Start a write transaction that leaves the log alone, so that it need not wait for the head row."""

    def move_head(self, connection: Connection, position: int, hash_: bytes, at: int) -> None:
        """The head row after the transaction's last event; those who listen for commits are told of it."""

    def insert(self, connection: Connection, table: Table, rows: Sequence[Values]) -> None:
        """Add rows, values in the order of the table's columns."""

    def upsert(self, connection: Connection, table: Table, rows: Sequence[Values]) -> None:
        """Add rows, or replace the ones that have the same primary key."""

    def update(self, connection: Connection, table: Table, columns: Sequence[str], rows: Sequence[Values]) -> None:
        """Change some columns of rows that are there; each row's key stands behind its values."""

    def fetch(
        self, connection: Connection, table: Table, column: str, keys: Iterable[str]
    ) -> list[dict[str, Any]]:
        """The rows whose column is one of the keys."""

    def among(self, column: Column[str], keys: Iterable[str]) -> ColumnElement[bool]:
        """The column is one of the keys, as one parameter: Core's IN has one per key, which is slow with many."""

    def among_named(self, column: Column[str], name: str) -> ColumnElement[bool]:
        """The same in a statement that is made once: the keys are given under the name when it is executed."""

    def named(self, keys: Iterable[str]) -> Any:
        """Keys as they are given to such a statement."""

    def scan(
        self, connection: Connection, table: Table, *, order: str, after: Any = None, until: Any = None
    ) -> Iterator[list[tuple[Any, ...]]]:
        """The rows as the driver gives them, in chunks, by a column in (after, until]; None is no bound."""

    def fetch_versions(self, connection: Connection, streams: Iterable[str]) -> dict[str, int]:
        """The last version of each of these streams that has any, be its events archived or not."""

    def begin_migration(self, connection: Connection) -> None:
        """Start a transaction that changes tables; there is no limit on how long its statements may take."""

    def is_lost(self, error: BaseException) -> bool:
        """The driver's error means that the connection is gone, not that a statement was refused."""


def engine_options(backend: str, name: str) -> dict[str, Any]:
    """How connections are opened and how many are kept; `name` is what the server is told of us."""
    return {} if backend == "sqlite" else postgres_options(name)


def dialect_of(engine: Engine) -> Dialect:
    return Sqlite() if engine.dialect.name == "sqlite" else Postgres()
