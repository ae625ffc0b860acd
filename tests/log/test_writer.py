"""The coalescing writer: shared commits, isolation, back-pressure, shutdown and lost connections."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from sqlalchemy import func, select, text

from tests.support.patience import HANG_SECONDS
from tests.support.store_samples import NOW, change_volume, create_volume
from volsched.log import tables
from volsched.log.commands import Command, ConflictError
from volsched.log.database import Database, open_database
from volsched.log.errors import CommitMark, ConnectionLostError
from volsched.log.events.fold import Decision, States
from volsched.log.transaction import execute
from volsched.runtime.clock import SECOND, system_clock
from volsched.runtime.runner import running
from volsched.runtime.writer import (
    MOST_TRIES,
    RETRY_FIRST,
    EndedError,
    OverloadedError,
    Writer,
    WriterClosedError,
    _Interrupted,
)


def count_events(database: Database) -> int:
    with database.read() as connection:
        return int(connection.execute(select(func.count()).select_from(tables.events)).scalar_one())


def test_one_step_carries_out_all_that_waits_in_one_commit(database: Database) -> None:
    writer = Writer(database)
    futures = [writer.submit(create_volume(f"v{index}")) for index in range(20)]
    assert not any(future.done() for future in futures)
    assert writer.step(NOW) == 20
    assert [future.result().position for future in futures] == list(range(1, 21))
    assert writer.step(NOW) == 0


def test_a_batch_is_limited(database: Database) -> None:
    writer = Writer(database, max_batch=8)
    futures = [writer.submit(create_volume(f"v{index}")) for index in range(20)]
    assert [writer.step(NOW) for _ in range(4)] == [8, 8, 4, 0]
    assert all(future.done() for future in futures)


def test_one_bad_command_never_fails_its_neighbours(database: Database) -> None:
    writer = Writer(database)
    good = writer.submit(create_volume("a"))
    bad = writer.submit(create_volume("a", versions={"volume/a": 7}))
    also_good = writer.submit(change_volume("a", {"status": {"phase": "Bound"}}))
    writer.step(NOW)
    assert good.result().position == 1
    assert isinstance(bad.exception(), ConflictError)
    assert also_good.result().position == 2


def test_a_full_queue_refuses_at_once(database: Database) -> None:
    writer = Writer(database, max_queued=2)
    writer.submit(create_volume("a"))
    writer.submit(create_volume("b"))
    with pytest.raises(OverloadedError, match="2 commands are waiting"):
        writer.submit(create_volume("c"))
    writer.step(NOW)
    writer.submit(create_volume("c"))


def test_closing_carries_out_what_was_queued_and_takes_no_more(database: Database) -> None:
    with running(Writer(database), clock=system_clock) as writer:
        futures = [writer.submit(create_volume(f"v{index}")) for index in range(200)]
    assert all(future.result().events == 1 for future in futures)
    with pytest.raises(WriterClosedError):
        writer.submit(create_volume("late"))
    assert count_events(database) == 200


def test_a_cancelled_command_that_has_not_begun_is_not_answered(database: Database) -> None:
    writer = Writer(database)
    future = writer.submit(create_volume("a"))
    assert future.cancel()
    writer.step(NOW)
    assert future.cancelled()


def test_many_threads_share_commits_and_none_is_lost(database: Database) -> None:
    with running(Writer(database), clock=system_clock) as writer, ThreadPoolExecutor(16) as pool:
        started = threading.Barrier(16)

        def client(name: int) -> list[int]:
            started.wait()
            return [writer.submit(create_volume(f"c{name}-{i}")).result().position for i in range(20)]

        positions = [position for mine in pool.map(client, range(16)) for position in mine]
    assert sorted(positions) == list(range(1, 321))


def terminate_others(database: Database) -> None:
    with database.engine.connect() as connection:
        connection.execute(
            text(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )
        )


@pytest.mark.parametrize("url", ["postgres"], indirect=True)
def test_a_connection_killed_by_the_server_loses_and_doubles_nothing(database: Database, url: str) -> None:
    assassin = open_database(url)
    with running(Writer(database), clock=system_clock) as writer:
        futures = []
        for index in range(300):
            futures.append(writer.submit(create_volume(f"v{index}", versions={f"volume/v{index}": 0})))
            if index % 50 == 25:
                terminate_others(assassin)
        positions = [future.result(timeout=HANG_SECONDS).position for future in futures]
    assassin.close()
    assert sorted(positions) == list(range(1, 301))
    assert count_events(database) == 300


@pytest.mark.parametrize("url", ["postgres"], indirect=True)
def test_a_commit_that_happened_although_its_answer_was_lost_is_not_repeated(database: Database) -> None:
    """The connection is cut right after the commit: the log itself says that it happened."""
    writer = Writer(database)
    future = writer.submit(create_volume("a"))
    (command,) = [waiting.command for waiting in writer._queue]
    outcomes = execute(database, [command], now=NOW)
    with database.read() as connection:
        head = connection.execute(select(tables.log_head)).one()
    lost = ConnectionLostError("cut", CommitMark(head.position, bytes(head.hash)), outcomes)
    writer._interrupted = _Interrupted(list(writer._queue), lost, NOW)
    writer._queue.clear()
    assert writer.step(NOW + SECOND) == 1
    assert future.result().position == 1
    assert count_events(database) == 1


def test_a_clock_that_is_set_back_keeps_no_write_waiting(database: Database) -> None:
    """The time of the next try was taken of the clock before."""
    writer = Writer(database)
    future = writer.submit(create_volume("a"))
    lost = ConnectionLostError("cut", CommitMark(7, b"never committed"), [])
    writer._interrupted = _Interrupted(list(writer._queue), lost, NOW + RETRY_FIRST)
    writer._queue.clear()
    assert writer.step(NOW) == 0
    assert writer.step(NOW - 7200 * SECOND) == 1
    assert future.result().position == 1


@pytest.mark.parametrize("url", ["postgres"], indirect=True)
def test_a_transaction_that_the_server_ends_is_not_begun_again_without_end(database: Database, url: str) -> None:
    """One command of a batch costs its transaction the connection, every time; the others do not pay for it."""
    assassin = open_database(url)
    begun = 0

    def ended(_: States) -> Decision:
        nonlocal begun
        begun += 1
        terminate_others(assassin)
        return Decision()

    writer = Writer(database)
    others = [writer.submit(create_volume(f"v{index}")) for index in range(3)]
    culprit = writer.submit(Command(actor="test", streams=("volume/x",), decide=ended))
    others += [writer.submit(create_volume(f"v{index}")) for index in range(3, 6)]
    now = NOW
    while not (culprit.done() and all(it.done() for it in others)):
        writer.step(now)
        now += SECOND
        assert now < NOW + 50 * SECOND
    assassin.close()
    assert isinstance(culprit.exception(), EndedError)
    assert begun == MOST_TRIES
    assert sorted(it.result().position for it in others) == list(range(1, 7))
