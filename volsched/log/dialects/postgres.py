"""Hot statements on PostgreSQL: COPY for the log, arrays unnested into one statement for the views."""

import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import cache
from typing import Any

from sqlalchemy import (
    ARRAY,
    JSON,
    BigInteger,
    Boolean,
    Column,
    ColumnElement,
    Connection,
    Engine,
    Executable,
    Integer,
    LargeBinary,
    Select,
    Table,
    Text,
    any_,
    bindparam,
    cast,
    event,
    func,
    literal,
    literal_column,
)
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.dialects.postgresql.psycopg import dialect as compiler_of_postgres
from sqlalchemy.exc import InvalidatePoolError

from volsched.log.dialects.driver_statement import NO_VALUES, driver_statement, whole_rows
from volsched.log.dialects.writer_queue import Turn
from volsched.log.row_states import Row
from volsched.log.tables import HEAD, all_columns, metadata

# admin_shutdown, crash_shutdown, cannot_connect_now, idle_session_timeout, idle_in_transaction_session_timeout,
# too_many_connections. Errors without a state come from the connection itself.
SHUTDOWN_STATES = frozenset({"57P01", "57P02", "57P03", "57P05", "25P03", "53300"})
ABANDONED_AFTER_MS = 30_000
"""A writer that is idle this long inside a transaction loses it, and its locks. Otherwise the server would hold
the head row for a frozen process, or for hours for a machine that is gone."""
CHANNEL = "volsched_commits"
"""The notification channel of commits to the log."""
STATEMENT_MS = 300_000
"""The timeout of a statement: none of ours takes so long, as exports and checks read chunks through a cursor."""
LOCK_MS = 60_000
"""Twice the timeout of an abandoned transaction. A longer wait for the head row fails, and is retried."""
PING_AFTER_SECONDS = 1.0
"""A pooled connection that was idle for longer is checked before it is used again. Checking every time would cost
a round trip per transaction; a server that was restarted within a second costs one error, and its caller retries.
"""
RETURNED_AT = "volsched_returned_at"
"""When a connection was returned to the pool, on the monotonic clock."""
KEPT_CONNECTIONS = 5
MOST_CONNECTIONS = 15
"""Per process; docs/operations.md adds them up. They are opened on demand: most processes have one or two."""
POOL_SECONDS = 30
CONNECTING = {
    "connect_timeout": 10,
    # A machine that is gone sends nothing: without these a reader would wait for hours, with them half a minute.
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 25_000,
}
MOST_TOGETHER = 64
"""Events whose writing is sent in one round trip. COPY is quicker for more, and cannot be sent with others."""
SCAN_CHUNK = 2_000
"""Rows per round trip of a scan."""
_COMPILER = compiler_of_postgres()  # type: ignore[no-untyped-call]


def postgres_options(name: str) -> dict[str, Any]:
    """Options of an engine."""
    return {
        "pool_size": KEPT_CONNECTIONS,
        "max_overflow": MOST_CONNECTIONS - KEPT_CONNECTIONS,
        "pool_timeout": POOL_SECONDS,
        # Reuses the same few connections, so that the others are the first to be closed.
        "pool_use_lifo": True,
        "connect_args": CONNECTING | {"fallback_application_name": name},
    }


@dataclass(frozen=True)
class Postgres:
    def configure(self, engine: Engine) -> None:
        """The server's defaults fit (read committed, durable commits), except that every wait gets a timeout."""

        @event.listens_for(engine, "connect")
        def _connected(raw: Any, _record: object) -> None:
            raw.autocommit = True
            raw.execute(
                f"SELECT set_config('lock_timeout', '{LOCK_MS}', false), "
                f"set_config('statement_timeout', '{STATEMENT_MS}', false)"
            )
            raw.autocommit = False

        @event.listens_for(engine, "checkin")
        def _on_checkin(_raw: Any, record: Any) -> None:
            record.info[RETURNED_AT] = time.monotonic()

        @event.listens_for(engine, "checkout")
        def _on_checkout(raw: Any, record: Any, _proxy: object) -> None:
            returned_at = record.info.get(RETURNED_AT)
            if returned_at is not None and time.monotonic() - returned_at > PING_AFTER_SECONDS:
                try:
                    engine.dialect.do_ping(raw)
                except engine.dialect.loaded_dbapi.Error as error:
                    raise InvalidatePoolError from error

    def turn(self, connection: Connection) -> AbstractContextManager[Turn]:  # noqa: ARG002 - for SQLite
        """The server queues the waiters for the head row in order of arrival."""
        return nullcontext(Turn())

    def begin_migration(self, connection: Connection) -> None:
        _driver(connection).execute(
            "SELECT set_config('lock_timeout', '0', true), set_config('statement_timeout', '0', true)"
        )

    def begin_write(self, connection: Connection) -> tuple[Any, ...] | None:
        # In one round trip, because every commit pays for it.
        cursor = _driver(connection).execute(f"BEGIN; SELECT {_limit()}, {HEAD} FROM log_head FOR UPDATE")
        cursor.nextset()
        row: tuple[Any, ...] | None = cursor.fetchone()
        return None if row is None else row[1:]

    def begin_without_head_lock(self, connection: Connection) -> None:
        """Each changed row is locked on its own."""
        _driver(connection).execute(f"BEGIN; SELECT {_limit()}")

    def claim_rows(self, rows: Select[Any], table: Table) -> Select[Any]:
        """Workers that claim at the same time get different rows, and none waits for another."""
        return rows.with_for_update(of=table, skip_locked=True)

    def lock_rows(self, rows: Select[Any]) -> Select[Any]:
        return rows.with_for_update()

    def move_head(self, connection: Connection, position: int, hash_: bytes, at: int) -> None:
        # Both in one statement, because every commit pays for it. The notification is sent at commit.
        _driver(connection).execute(
            "WITH moved AS (UPDATE log_head SET position = %s, hash = %s, at = %s RETURNING 1) "
            f"SELECT pg_notify('{CHANNEL}', '') FROM moved",
            (position, hash_, at),
        )

    def run(
        self, connection: Connection, statement: Executable, values: Mapping[str, Any] = NO_VALUES
    ) -> list[Any]:
        compiled = driver_statement(statement, _COMPILER)
        cursor = _driver(connection).execute(compiled.text, compiled.named(values))
        return list(map(compiled.row, cursor)) if compiled.has_rows else []

    def run_all(
        self, connection: Connection, statements: Sequence[Executable], values: Mapping[str, Any]
    ) -> list[list[Any]]:
        raw = _driver(connection)
        compiled = [driver_statement(statement, _COMPILER) for statement in statements]
        with raw.pipeline():
            cursors = [raw.execute(it.text, it.named(values)) for it in compiled]
        return [list(map(it.row, cursor)) for it, cursor in zip(compiled, cursors, strict=True)]

    @contextmanager
    def together(self, connection: Connection, rows: int) -> Iterator[None]:
        if rows > MOST_TOGETHER:
            yield
            return
        with _driver(connection).pipeline():
            yield

    def insert(self, connection: Connection, table: Table, rows: Sequence[Sequence[Any]]) -> None:
        if _driver(connection).pgconn.pipeline_status:
            # There is no COPY among statements that are sent together.
            columns = [list(values) for values in zip(*rows, strict=True)]
            _driver(connection).execute(_insert(table), columns)
            return
        names = ", ".join(f'"{column.name}"' for column in table.columns)
        with (
            _driver(connection).cursor() as cursor,
            cursor.copy(f"COPY {table.name} ({names}) FROM STDIN (FORMAT BINARY)") as copy,
        ):
            copy.set_types(_types(table))
            for row in rows:
                copy.write_row(row)

    def upsert(self, connection: Connection, table: Table, rows: Sequence[Sequence[Any]]) -> None:
        columns = [list(values) for values in zip(*rows, strict=True)]
        _driver(connection).execute(_upsert(table), columns)

    def update(
        self, connection: Connection, table: Table, columns: Sequence[str], rows: Sequence[Sequence[Any]]
    ) -> None:
        names = [*columns, "key"]
        arrays = ", ".join(f"%b::{_type_name(table.c[name].type)}[]" for name in names)
        changed = ", ".join(f'"{name}" = new."{name}"' for name in columns)
        _driver(connection).execute(
            f"UPDATE {table.name} AS old SET {changed} FROM unnest({arrays}) "
            f"AS new({', '.join(names)}) WHERE old.key = new.key",
            [list(values) for values in zip(*rows, strict=True)],
        )

    def fetch(
        self, connection: Connection, table: Table, column: str, keys: Iterable[str]
    ) -> list[dict[str, Any]]:
        cursor = _driver(connection).execute(
            f'SELECT {all_columns(table)} FROM {table.name} WHERE "{column}" = ANY(%s)', (list(keys),)
        )
        names = [entry.name for entry in cursor.description]
        return [dict(zip(names, row, strict=True)) for row in cursor]

    def rows(self, connection: Connection, table: str, rest: str, values: Mapping[str, Any]) -> Iterator[Row]:
        cursor = _driver(connection).execute(_selected(table, rest), values)
        names = [entry.name for entry in cursor.description]
        return (dict(zip(names, row, strict=True)) for row in cursor)

    def json_text(self, column: Column[str], path: Sequence[str]) -> ColumnElement[str | None]:
        steps: list[ColumnElement[str]] = [literal_column(f"'{step}'", Text) for step in path]
        return func.json_extract_path_text(cast(column, JSON), *steps, type_=Text)

    def json_without(self, column: Column[str], paths: Sequence[Sequence[str]]) -> ColumnElement[str]:
        left: ColumnElement[Any] = cast(column, JSONB)
        for path in paths:
            left = left.op("#-")(literal_column(f"'{{{','.join(path)}}}'", ARRAY(Text)))
        return cast(left, Text)

    def among(self, column: ColumnElement[str], keys: Iterable[str]) -> ColumnElement[bool]:
        return column == any_(literal(list(keys), ARRAY(Text)))

    def among_named(self, column: Column[str], name: str) -> ColumnElement[bool]:
        return column == any_(bindparam(name, type_=ARRAY(Text)))

    def named(self, keys: Iterable[str]) -> list[str]:
        return list(keys)

    def scan(
        self, connection: Connection, table: Table, *, order: str, after: Any = None, until: Any = None
    ) -> Iterator[list[tuple[Any, ...]]]:
        names = all_columns(table)
        bounds = {f'"{order}" > %s': after, f'"{order}" <= %s': until}
        condition = " AND ".join(words for words, bound in bounds.items() if bound is not None)
        # A server-side cursor: the client would hold the whole table otherwise.
        with _driver(connection).cursor(name="volsched_scan", binary=True) as cursor:
            cursor.execute(
                f'SELECT {names} FROM {table.name} {"WHERE " + condition if condition else ""} ORDER BY "{order}"',
                [bound for bound in bounds.values() if bound is not None],
            )
            while chunk := cursor.fetchmany(SCAN_CHUNK):
                yield whole_rows(table, chunk)

    def fetch_versions(self, connection: Connection, streams: Iterable[str]) -> dict[str, int]:
        return dict(
            _driver(connection)
            .execute(
                "SELECT * FROM (SELECT asked.stream, coalesce("
                "(SELECT max(version) FROM events WHERE events.stream = asked.stream), "
                "(SELECT max(version) FROM snapshots WHERE snapshots.stream = asked.stream)) AS last "
                "FROM unnest(%s::text[]) AS asked(stream)) AS versions WHERE last IS NOT NULL",
                (list(streams),),
            )
            .fetchall()
        )

    def place(self, connection: Connection) -> str:
        statement = (
            "SELECT s.system_identifier || '/' || d.oid FROM pg_control_system() s, pg_database d "
            "WHERE d.datname = current_database()"
        )
        (identity,) = _driver(connection).execute(statement).fetchone()
        return str(identity)

    def is_alive(self, connection: Connection) -> bool:
        engine = connection.engine
        try:
            return engine.dialect.do_ping(_driver(connection))
        except engine.dialect.loaded_dbapi.Error:
            return False

    def is_lost(self, error: BaseException) -> bool:
        state = getattr(error, "sqlstate", None)
        return state is None or state[:2] == "08" or state in SHUTDOWN_STATES


def _limit() -> str:
    return f"set_config('idle_in_transaction_session_timeout', '{ABANDONED_AFTER_MS}', true)"


def _driver(connection: Connection) -> Any:
    return connection.connection.driver_connection


@cache
def _selected(table: str, rest: str) -> str:
    named = re.sub(":([a-z_]+)", r"%(\1)s", rest)
    return f"SELECT {all_columns(metadata.tables[table])} FROM {table} {named}"


@cache
def _types(table: Table) -> list[str]:
    return [_type_name(column.type) for column in table.columns]


def _type_name(type_: object) -> str:
    # BigInteger is an Integer too, so it is tested first.
    if isinstance(type_, BigInteger):
        return "int8"
    if isinstance(type_, Integer):
        return "int4"
    if isinstance(type_, Boolean):
        return "bool"
    return "bytea" if isinstance(type_, LargeBinary) else "text"


@cache
def _insert(table: Table) -> str:
    names = ", ".join(f'"{column.name}"' for column in table.columns)
    arrays = ", ".join(f"%b::{name}[]" for name in _types(table))
    return f"INSERT INTO {table.name} ({names}) SELECT * FROM unnest({arrays})"


@cache
def _upsert(table: Table) -> str:
    names = [f'"{column.name}"' for column in table.columns]
    key = [f'"{column.name}"' for column in table.primary_key.columns]
    changed = ", ".join(f"{name} = excluded.{name}" for name in names if name not in key)
    return f"{_insert(table)} ON CONFLICT ({', '.join(key)}) DO UPDATE SET {changed}"
