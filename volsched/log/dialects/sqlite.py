"""Hot statements on SQLite.

The driver's own transaction handling is switched off: a write transaction takes the lock when it begins
(BEGIN IMMEDIATE), so that it never has to be thrown away for having read something stale. It asks for the lock
when its turn has come (`writer_queue`).
"""

import json
import logging
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any

from sqlalchemy import (
    BindParameter,
    Column,
    ColumnElement,
    Connection,
    Engine,
    Table,
    Text,
    bindparam,
    event,
    func,
    select,
)

from volsched.log.dialects.columns import HEAD, all_columns
from volsched.log.dialects.writer_queue import Turn, WriterQueue

BUSY_TIMEOUT_MS = 30_000
UNDECODABLE = "Could not decode to UTF-8"
SCAN_CHUNK = 500
"""Rows held at once in a scan; from 50 to 2,000 it makes no difference to the speed."""
PRAGMAS = (
    # First, because the next one may have to wait.
    f"busy_timeout = {BUSY_TIMEOUT_MS}",
    "journal_mode = WAL",
    "synchronous = FULL",
    "temp_store = MEMORY",
    "cache_size = -65536",
    "mmap_size = 268435456",
)
QUEUE = "volsched_queue"
"""Where a connection keeps its place in the queue of writers."""
BUSY = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_PROTOCOL})
"""Somebody has the lock, or so many are after it that SQLite gives up."""
_log = logging.getLogger("volsched.log")


@dataclass(frozen=True)
class Sqlite:
    def configure(self, engine: Engine) -> None:
        @event.listens_for(engine, "connect")
        def _connected(raw: Any, record: Any) -> None:
            raw.isolation_level = None
            for pragma in PRAGMAS:
                raw.execute(f"PRAGMA {pragma}")
            (_, _, file), *_ = raw.execute("PRAGMA database_list")
            # A database in memory has no file, and nobody to share it with.
            if file:
                record.info[QUEUE] = WriterQueue(file)

        @event.listens_for(engine, "close")
        def _closed(_raw: Any, record: Any) -> None:
            queue: WriterQueue | None = record.info.pop(QUEUE, None)
            if queue is not None:
                queue.close()

        @event.listens_for(engine, "begin")
        def _begun(connection: Connection) -> None:
            # A reader takes a snapshot; a writer asks for the lock itself.
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

    def begin_beside_log(self, connection: Connection) -> None:
        # There is one write lock for the whole file; all that can be spared is reading the head.
        _take_lock(_driver(connection))

    def move_head(self, connection: Connection, position: int, hash_: bytes, at: int) -> None:
        _driver(connection).execute("UPDATE log_head SET position = ?, hash = ?, at = ?", (position, hash_, at))

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

    def among(self, column: Column[str], keys: Iterable[str]) -> ColumnElement[bool]:
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
                yield chunk
                after = chunk[-1][place]
        except raw.OperationalError as error:
            if UNDECODABLE not in str(error):
                raise
            # Somebody wrote bytes that are no text. The rows are read all the same, so that a check says where.
            raw.text_factory = _lenient
            yield from _scan(raw, table, order, after, until)
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

    def is_lost(self, error: BaseException) -> bool:  # noqa: ARG002 - a file does not hang up
        return False


def _among(column: Column[str], listed: str | BindParameter[str]) -> ColumnElement[bool]:
    return column.in_(select(func.json_each(listed).table_valued("value").c.value))


def _driver(connection: Connection) -> Any:
    return connection.connection.driver_connection


def _take_lock(raw: Any) -> None:
    """Begin to write. Only a program that does not queue can have the lock now; it is waited for all the same."""
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
    asked = " AND ".join(words for words, bound in bounds.items() if bound is not None)
    cursor = raw.execute(
        f"SELECT {names} FROM {table.name} {'WHERE ' + asked if asked else ''} ORDER BY {order}",
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
