"""Reads of one statement take no transaction, and a lost connection costs one error at most."""

from contextlib import suppress
from pathlib import Path

import pytest
from sqlalchemy import delete, select

from tests.support.log_reads import log
from tests.support.store_samples import NOW, create_volume, must
from volsched.lab.bench.statement_count import counted
from volsched.log import tables
from volsched.log.database import Database
from volsched.log.effects import due_queues, next_due
from volsched.log.errors import ConnectionLostError
from volsched.runtime.world import World


def test_following_the_log_and_asking_for_due_work_begin_no_transaction(sqlite: Database) -> None:
    world = World(sqlite)
    world.catch_up()
    must(sqlite, create_volume("a"))
    with counted(sqlite) as count:
        changed = world.catch_up()
        assert due_queues(sqlite, ["prebind", "bind_pod"], now=NOW) == []
        assert next_due(sqlite, queues=["prebind", "bind_pod"]) is None
    assert list(changed) == ["volume/a"]
    assert count is not None
    assert count.statements > 0
    assert count.transactions == 0


def test_the_driver_gives_a_prepared_statement_the_rows_that_core_gives_it(database: Database) -> None:
    must(database, *(create_volume(f"v{number}") for number in range(3)))
    events = tables.events
    asked = select(events.c.position, events.c.stream, events.c.hash).where(events.c.position > 1)
    asked = asked.order_by(events.c.position)
    with database.read() as connection:
        by_core = [(row.position, row.stream, bytes(row.hash)) for row in connection.execute(asked)]
        prepared = database.dialect.run(connection, asked)
    with database.glance() as connection:
        alone = database.dialect.run(connection, asked)
    for rows in (prepared, alone):
        assert [(row.position, row.stream, bytes(row.hash)) for row in rows] == by_core


@pytest.mark.parametrize("url", ["postgres"], indirect=True)
def test_a_connection_that_the_server_ended_is_replaced(database: Database) -> None:
    """At once, without the pool having been idle: the first use may fail, and no other does."""
    must(database, create_volume("before"))
    with database.engine.connect() as first, database.engine.connect() as second:
        ids = [it.connection.driver_connection.info.backend_pid for it in (first, second)]  # type: ignore[union-attr]
    with database.engine.connect() as ender:
        own = ender.connection.driver_connection.info.backend_pid  # type: ignore[union-attr]
        for pid in ids:
            if pid != own:
                ender.exec_driver_sql("SELECT pg_terminate_backend(%s)", (pid,))
    failures = 0
    # A single read keeps its connection, and a longer one takes one from the pool.
    for read in (lambda: due_queues(database, ["prebind"], now=NOW), lambda: log(database)) * 3:
        try:
            read()
        except ConnectionLostError:
            failures += 1
    assert failures <= 1
    must(database, create_volume("after"))
    assert len(log(database)) == 2


@pytest.mark.parametrize("url", ["postgres"], indirect=True)
def test_a_kept_connection_that_the_server_ended_costs_one_error(database: Database) -> None:
    must(database, create_volume("before"))
    due_queues(database, ["prebind"], now=NOW)
    with database.engine.connect() as ender:
        mates = "FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND datname = current_database()"
        ender.exec_driver_sql(f"SELECT pg_terminate_backend(pid) {mates}")
    failures = 0
    for number in range(3):
        try:
            must(database, create_volume(f"after-{number}"))
            due_queues(database, ["prebind"], now=NOW)
        except ConnectionLostError:
            failures += 1
    assert failures == 1
    assert len(log(database)) == 1 + 2


def test_a_transaction_that_fails_leaves_nothing_to_the_next_one_on_its_connection(database: Database) -> None:
    must(database, create_volume("before"))
    with suppress(ZeroDivisionError), database.write_beside_log() as connection:
        connection.execute(delete(tables.events))
        raise ZeroDivisionError
    must(database, create_volume("after"))
    assert len(log(database)) == 2


def test_connections_are_closed_with_the_store(sqlite: Database) -> None:
    must(sqlite, create_volume("a"))
    due_queues(sqlite, ["prebind"], now=NOW)
    assert sqlite.file.path is not None
    opened = [it for it in Path("/proc/self/fd").iterdir() if _leads_to(it, sqlite.file.path)]
    sqlite.close()
    assert opened
    assert not [it for it in Path("/proc/self/fd").iterdir() if _leads_to(it, sqlite.file.path)]


def _leads_to(descriptor: Path, file: Path) -> bool:
    with suppress(OSError):
        return str(descriptor.readlink()).startswith(str(file.resolve()))
    return False
