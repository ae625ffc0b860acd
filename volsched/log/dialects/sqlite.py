"""Hot statements on SQLite.

The driver's own transaction handling is switched off: a write transaction takes the lock when it begins (BEGIN
IMMEDIATE), so that it is never aborted for a stale read. It requests the lock when its turn has come
(`writer_queue`).
"""

import json
import logging
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from sqlalchemy import (
    BindParameter,
    Column,
    ColumnElement,
    Connection,
    Engine,
    Executable,
    Select,
    Table,
    Text,
    bindparam,
    event,
    func,
    literal_column,
    select,
)
from sqlalchemy.dialects.sqlite import dialect as compiler_of_sqlite

from volsched.log.dialects.driver_statement import NO_VALUES, driver_statement, whole_rows
from volsched.log.dialects.writer_queue import Turn, WriterQueue
from volsched.log.row_states import Row
from volsched.log.sqlite_file import (
    BUSY_TIMEOUT_MS,
    PRAGMAS,
    READ_ONLY_PRAGMAS,
    is_read_only,
    opened_for_reading,
    select_rows,
    set_pragmas,
)
from volsched.log.tables import HEAD, all_columns

UNDECODABLE = "Could not decode to UTF-8"
SCAN_CHUNK = 500
"""Rows held at once in a scan; from 50 to 2,000 it makes no difference to the speed."""
QUEUE = "volsched_queue"
"""The key of a connection's `info` for its place in the queue of writers."""
BUSY = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_PROTOCOL})
"""The lock is taken, or so many processes contend for it that SQLite gives up."""
_COMPILER = compiler_of_sqlite()
_log = logging.getLogger("volsched.log")


def sqlite_options(file: Path | None) -> dict[str, Any]:
    """How connections are opened. A file that is read-only for us (another user's, or on a read-only disk) is
    opened for reading.
    """
    return {} if file is None or not is_read_only(file) else {"creator": lambda: opened_for_reading(file)}


@dataclass(frozen=True)
class Sqlite:
    def configure(self, engine: Engine) -> None:
        @event.listens_for(engine, "connect")
        def _connected(raw: Any, record: Any) -> None:
            raw.isolation_level = None
            (_, _, file), *_ = raw.execute("PRAGMA database_list")
            read_only = bool(file) and is_read_only(Path(file))
            set_pragmas(raw, READ_ONLY_PRAGMAS if read_only else PRAGMAS)
            # An in-memory database has no file, and no other process to share it with.
            if file and not read_only:
                record.info[QUEUE] = WriterQueue(file)

        @event.listens_for(engine, "close")
        def _closed(_raw: Any, record: Any) -> None:
            queue: WriterQueue | None = record.info.pop(QUEUE, None)
            if queue is not None:
                queue.close()

        @event.listens_for(engine, "begin")
        def _begun(connection: Connection) -> None:
            # A reader takes a snapshot; a writer requests the lock itself.
            if not connection.get_execution_options().get("volsched_write"):
                _driver(connection).execute("BEGIN")

    @contextmanager
    def turn(self, connection: Connection) -> Iterator[Turn]:
        queue: WriterQueue | None = connection.info.get(QUEUE)
        if queue is None:
            yield Turn()
            return
        try:
            yield queue.join()
        finally:
            queue.leave()

    def begin_write(self, connection: Connection) -> tuple[Any, ...] | None:
        raw = _driver(connection)
        _take_lock(raw)
        row: tuple[Any, ...] | None = raw.execute(f"SELECT {HEAD} FROM log_head").fetchone()
        return row

    def begin_without_head_lock(self, connection: Connection) -> None:
        # There is one write lock for the whole file; only reading the head can be skipped.
        _take_lock(_driver(connection))

    def claim_rows(self, rows: Select[Any], table: Table) -> Select[Any]:  # noqa: ARG002 - for PostgreSQL
        """The file's lock was taken when the transaction began: no other process is claiming."""
        return rows

    def lock_rows(self, rows: Select[Any]) -> Select[Any]:
        return rows

    def move_head(self, connection: Connection, position: int, hash_: bytes, at: int) -> None:
        _driver(connection).execute("UPDATE log_head SET position = ?, hash = ?, at = ?", (position, hash_, at))

    def run(
        self, connection: Connection, statement: Executable, values: Mapping[str, Any] = NO_VALUES
    ) -> list[Any]:
        compiled = driver_statement(statement, _COMPILER)
        return list(map(compiled.row, _driver(connection).execute(compiled.text, compiled.placed(values))))

    def run_all(
        self, connection: Connection, statements: Sequence[Executable], values: Mapping[str, Any]
    ) -> list[list[Any]]:
        return [self.run(connection, it, values) for it in statements]

    def together(
        self,
        connection: Connection,  # noqa: ARG002 - for PostgreSQL
        rows: int,  # noqa: ARG002
    ) -> AbstractContextManager[None]:
        """A file has no round trips to save."""
        return nullcontext()

    def insert(self, connection: Connection, table: Table, rows: Sequence[Sequence[Any]]) -> None:
        _driver(connection).executemany(_insert(table), rows)

    def upsert(self, connection: Connection, table: Table, rows: Sequence[Sequence[Any]]) -> None:
        _driver(connection).executemany(_upsert(table), rows)

    def update(
        self, connection: Connection, table: Table, columns: Sequence[str], rows: Sequence[Sequence[Any]]
    ) -> None:
        changed = ", ".join(f"{name} = ?" for name in columns)
        _driver(connection).executemany(f"UPDATE {table.name} SET {changed} WHERE key = ?", rows)

    def fetch(
        self, connection: Connection, table: Table, column: str, keys: Iterable[str]
    ) -> list[dict[str, Any]]:
        cursor = _driver(connection).execute(
            f"SELECT {all_columns(table)} FROM {table.name} WHERE {column} IN (SELECT value FROM json_each(?))",
            (json.dumps(list(keys)),),
        )
        names = [entry[0] for entry in cursor.description]
        return [dict(zip(names, row, strict=True)) for row in cursor]

    def rows(self, connection: Connection, table: str, rest: str, values: Mapping[str, Any]) -> Iterator[Row]:
        return select_rows(_driver(connection), table, rest, values)

    def json_text(self, column: Column[str], path: Sequence[str]) -> ColumnElement[str | None]:
        return func.json_extract(column, literal_column(f"'$.{'.'.join(path)}'"), type_=Text)

    def json_without(self, column: Column[str], paths: Sequence[Sequence[str]]) -> ColumnElement[str]:
        # Stored JSON is canonical, so equal values leave equal text.
        return func.json_remove(column, *(literal_column(f"'$.{'.'.join(path)}'") for path in paths), type_=Text)

    def among(self, column: ColumnElement[str], keys: Iterable[str]) -> ColumnElement[bool]:
        return _among(column, json.dumps(list(keys)))

    def among_named(self, column: Column[str], name: str) -> ColumnElement[bool]:
        return _among(column, bindparam(name, type_=Text))

    def named(self, keys: Iterable[str]) -> str:
        return json.dumps(list(keys))

    def scan(
        self, connection: Connection, table: Table, *, order: str, after: Any = None, until: Any = None
    ) -> Iterator[list[tuple[Any, ...]]]:
        place = list(table.columns.keys()).index(order)
        raw = _driver(connection)
        try:
            for chunk in _scan(raw, table, order, after, until):
                yield whole_rows(table, chunk)
                after = chunk[-1][place]
        except raw.OperationalError as error:
            if UNDECODABLE not in str(error):
                raise
            # The file holds bytes that are not UTF-8. The rows are still read, so that a check reports the place.
            raw.text_factory = _lenient
            for chunk in _scan(raw, table, order, after, until):
                yield whole_rows(table, chunk)
        finally:
            raw.text_factory = str

    def fetch_versions(self, connection: Connection, streams: Iterable[str]) -> dict[str, int]:
        return dict(
            _driver(connection).execute(
                "SELECT value, coalesce((SELECT max(version) FROM events WHERE stream = value), "
                "(SELECT max(version) FROM snapshots WHERE stream = value)) AS last FROM json_each(?) "
                "WHERE last IS NOT NULL",
                (json.dumps(list(streams)),),
            )
        )

    def begin_migration(self, connection: Connection) -> None:
        _take_lock(_driver(connection))

    def place(self, connection: Connection) -> str:
        ((_, _, file),) = _driver(connection).execute("PRAGMA database_list").fetchall()[:1]
        return str(Path(file).resolve())

    def is_alive(self, connection: Connection) -> bool:  # noqa: ARG002 - a file does not hang up
        return True

    def is_lost(self, error: BaseException) -> bool:  # noqa: ARG002 - a file does not hang up
        return False


def _among(column: ColumnElement[str], listed: str | BindParameter[str]) -> ColumnElement[bool]:
    return column.in_(select(func.json_each(listed).table_valued("value").c.value))


def _driver(connection: Connection) -> Any:
    return connection.connection.driver_connection


def _take_lock(raw: Any) -> None:
    """Begin a write. Only a program that does not queue can hold the lock now; wait for that too."""
    while True:
        try:
            raw.execute("BEGIN IMMEDIATE")
        except raw.OperationalError as error:
            if error.sqlite_errorcode & 0xFF not in BUSY:
                raise
            (_, _, file), *_ = raw.execute("PRAGMA database_list")
            _log.warning(
                "%s: waiting for the write lock; a program that does not queue for it has held it for %d s (%s)",
                file,
                BUSY_TIMEOUT_MS // 1_000,
                error,
            )
        else:
            return


def _scan(raw: Any, table: Table, order: str, after: Any, until: Any) -> Iterator[list[tuple[Any, ...]]]:
    names = ", ".join(column.name for column in table.columns)
    bounds = {f"{order} > ?": after, f"{order} <= ?": until}
    condition = " AND ".join(words for words, bound in bounds.items() if bound is not None)
    cursor = raw.execute(
        f"SELECT {names} FROM {table.name} {'WHERE ' + condition if condition else ''} ORDER BY {order}",
        [bound for bound in bounds.values() if bound is not None],
    )
    while chunk := cursor.fetchmany(SCAN_CHUNK):
        yield chunk


def _lenient(text: bytes) -> str:
    return text.decode(errors="backslashreplace")


@cache
def _insert(table: Table) -> str:
    names = ", ".join(column.name for column in table.columns)
    marks = ", ".join("?" for _ in table.columns)
    return f"INSERT INTO {table.name} ({names}) VALUES ({marks})"


@cache
def _upsert(table: Table) -> str:
    key = [column.name for column in table.primary_key.columns]
    changed = ", ".join(f"{c.name} = excluded.{c.name}" for c in table.columns if c.name not in key)
    return f"{_insert(table)} ON CONFLICT ({', '.join(key)}) DO UPDATE SET {changed}"
