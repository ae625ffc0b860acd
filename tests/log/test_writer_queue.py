"""Writers of one SQLite file get their turn in the order in which they came, however busy the machine is."""

import logging
import os
import sqlite3
import stat
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event

from tests.support.fresh_stores import unsynced
from tests.support.log_chain import ROOT
from tests.support.log_reads import log
from tests.support.patience import HANG_SECONDS, wait_until
from tests.support.store_samples import create_volume
from volsched.log.batch import lock_head
from volsched.log.commands import Done
from volsched.log.database import Database, open_database
from volsched.log.transaction import execute

PROCESSES = 4
TURNS = 60
BUSY_LOOPS = 4

Process = subprocess.Popen[str]


@contextmanager
def process(*arguments: str) -> Iterator[Process]:
    with subprocess.Popen(
        [sys.executable, *arguments],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as started:
        try:
            yield started
        finally:
            started.kill()


def hammer(url: str, *what: object) -> Any:
    return process("-m", "tests.log.hammer_process", url, *map(str, what))


def heard(started: Process) -> str:
    assert started.stdout is not None
    return started.stdout.readline().strip()


def tell(started: Process) -> None:
    assert started.stdin is not None
    started.stdin.write("go\n")
    started.stdin.flush()


@pytest.fixture
def url(store_file: Path) -> str:
    return f"sqlite:///{store_file}"


@pytest.fixture
def opened(url: str) -> Iterator[Callable[[], Database]]:
    """Databases on the file, each with connections of its own, as another process would have."""
    with ExitStack() as stack:

        def open_one() -> Database:
            database = open_database(url)
            unsynced(database)
            stack.callback(database.close)
            return database

        yield open_one


def queue_of(file: Path) -> Path:
    return file.with_name("store.db-queue")


def drawn(file: Path) -> int:
    """Tickets that were drawn so far."""
    (ticket,) = struct.unpack("=q", queue_of(file).read_bytes()[:8])
    return int(ticket)


def writes(database: Database, name: str) -> bool:
    (outcome,) = execute(database, [create_volume(name)], now=1)
    return isinstance(outcome, Done)


@contextmanager
def waiting_writer(database: Database, file: Path, done: list[str], name: str) -> Iterator[None]:
    """One that stands in the queue; when it is left, it has written."""
    before = drawn(file)

    def write() -> None:
        assert writes(database, name)
        done.append(name)

    thread = threading.Thread(target=write, daemon=True)
    thread.start()
    wait_until(lambda: drawn(file) > before)
    yield
    thread.join(timeout=HANG_SECONDS)
    assert not thread.is_alive()


def test_all_get_their_turn_while_others_keep_the_machine_busy(url: str) -> None:
    with ExitStack() as stack:
        for _ in range(BUSY_LOOPS):
            stack.enter_context(process("-c", "while True: pass"))
        writers = [stack.enter_context(hammer(url, TURNS)) for _ in range(PROCESSES)]
        assert [heard(it) for it in writers] == ["ready"] * PROCESSES
        for it in writers:
            tell(it)
        told = [it.communicate(timeout=HANG_SECONDS) for it in writers]
        assert [it.returncode for it in writers] == [0] * PROCESSES, told
    # However long it took: nobody was passed by anybody twice.
    passed = [int(out.split()[1]) for out, _ in told]
    assert max(passed) <= PROCESSES - 1
    assert max(passed) > 0, "nobody ever waited, which proves nothing"


def test_threads_of_a_process_queue_as_well(opened: Callable[[], Database]) -> None:
    database = opened()
    threads = 6
    begin = threading.Barrier(threads)

    def write(number: int) -> None:
        begin.wait()
        for turn in range(20):
            assert writes(database, f"disk-{number}-{turn}")

    writers = [threading.Thread(target=write, args=(number,)) for number in range(threads)]
    for it in writers:
        it.start()
    for it in writers:
        it.join(timeout=HANG_SECONDS)
    with database.read() as connection:
        assert connection.exec_driver_sql("SELECT count(*) FROM events").scalar() == threads * 20
    assert database.waits.most_passed <= threads - 1


@pytest.mark.parametrize("more", [(), ("fork",)], ids=["alone", "with a child that lives on"])
def test_the_next_one_writes_when_the_one_whose_turn_it_is_was_killed(
    url: str, store_file: Path, opened: Callable[[], Database], more: tuple[str, ...]
) -> None:
    with hammer(url, "hold", *more) as holder:
        assert heard(holder) == "has it"
        done: list[str] = []
        with waiting_writer(opened(), store_file, done, "disk"):
            assert not done
            holder.kill()
    assert done == ["disk"]


def test_whoever_dies_in_the_queue_lets_nobody_pass_who_stands_behind(
    url: str, store_file: Path, opened: Callable[[], Database]
) -> None:
    holder = opened()
    done: list[str] = []
    with ExitStack() as stack, holder.write() as connection:
        lock_head(holder, connection)
        stack.enter_context(waiting_writer(opened(), store_file, done, "first"))
        with hammer(url, 1) as dies:
            assert heard(dies) == "ready"
            before = drawn(store_file)
            tell(dies)
            wait_until(lambda: drawn(store_file) > before)
            stack.enter_context(waiting_writer(opened(), store_file, done, "second"))
            dies.kill()
            dies.wait()
        assert not done
    assert [it.stream for it in log(holder)] == ["volume/first", "volume/second"]


def test_a_command_that_waits_says_so_and_goes_on_waiting(url: str, opened: Callable[[], Database]) -> None:
    holder = opened()
    command = ("-m", "volsched", "token", "create", "ci", "--role", "viewer", "--db", url)
    with ExitStack() as stack:
        with holder.write() as connection:
            lock_head(holder, connection)
            waits = stack.enter_context(process(*command))
            assert waits.stderr is not None
            said = waits.stderr.readline()
            assert waits.poll() is None
        assert "waiting for" in said
        assert f"process {os.getpid()} had the last" in said
        waits.communicate(timeout=HANG_SECONDS)
        assert waits.returncode == 0


def test_a_program_that_does_not_queue_is_waited_for(
    store_file: Path, opened: Callable[[], Database], caplog: pytest.LogCaptureFixture
) -> None:
    database = opened()

    @event.listens_for(database.engine, "connect")
    def _impatient(raw: Any, _record: object) -> None:
        raw.execute("PRAGMA busy_timeout = 10")

    other = sqlite3.connect(store_file, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    done: list[bool] = []
    thread = threading.Thread(target=lambda: done.append(writes(database, "disk")), daemon=True)
    with caplog.at_level(logging.WARNING, logger="volsched.log"):
        thread.start()
        wait_until(lambda: "a program that does not queue" in caplog.text)
    assert not done
    other.execute("COMMIT")
    other.close()
    thread.join(timeout=HANG_SECONDS)
    assert done == [True]


def test_the_file_has_the_rights_of_the_database_and_goes_with_the_last_who_uses_it(
    store_file: Path, opened: Callable[[], Database]
) -> None:
    store_file.chmod(0o640)
    first, second = opened(), opened()
    assert writes(first, "one")
    assert writes(second, "two")
    assert stat.S_IMODE(queue_of(store_file).stat().st_mode) == 0o640
    first.close()
    assert queue_of(store_file).exists()
    second.close()
    assert not queue_of(store_file).exists()


def test_readers_do_not_queue(store_file: Path, opened: Callable[[], Database]) -> None:
    holder, reader = opened(), opened()
    with holder.write() as connection:
        lock_head(holder, connection)
        before = drawn(store_file)
        with reader.read() as reading:
            assert reading.exec_driver_sql("SELECT position FROM log_head").scalar() == 0
        assert drawn(store_file) == before


def test_a_queue_that_was_removed_or_spoiled_is_made_anew(
    store_file: Path, opened: Callable[[], Database]
) -> None:
    first, second = opened(), opened()
    assert writes(first, "one")
    queue_of(store_file).unlink()
    assert writes(second, "two")
    done: list[str] = []
    with second.write() as connection:
        lock_head(second, connection)
        # Both are in the new one again, or the first could not be waiting there.
        stack = ExitStack()
        stack.enter_context(waiting_writer(first, store_file, done, "three"))
    stack.close()
    queue_of(store_file).write_bytes(b"\xff" * 40)
    assert writes(first, "four")
    assert writes(second, "five")


def test_without_room_for_a_queue_writers_write_all_the_same(
    store_file: Path, opened: Callable[[], Database], caplog: pytest.LogCaptureFixture
) -> None:
    queue_of(store_file).mkdir()
    first, second = opened(), opened()
    with caplog.at_level(logging.WARNING, logger="volsched.log"):
        assert writes(first, "one")
        assert writes(second, "two")
        assert writes(first, "three")
    assert [it.message.count("cannot queue") for it in caplog.records] == [1, 1]
    # As soon as there is room they do.
    queue_of(store_file).rmdir()
    assert writes(first, "four")
    assert drawn(store_file)


def test_memory_has_no_queue() -> None:
    database = open_database("sqlite://")
    with database.migrating() as connection:
        connection.exec_driver_sql("CREATE TABLE log_head (one INTEGER)")
    database.close()


def test_a_store_is_made_once_by_many_who_make_it_at_once(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'new.db'}"
    with ExitStack() as stack:
        makers = [stack.enter_context(process("-m", "volsched", "migrate", "--db", url)) for _ in range(PROCESSES)]
        told = [it.communicate(timeout=HANG_SECONDS) for it in makers]
        assert [it.returncode for it in makers] == [0] * PROCESSES, told
