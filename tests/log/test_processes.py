"""Several processes on one store: nothing missed, nothing lost, nothing twice, whoever is killed."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select

from tests.support.log_chain import ROOT, check_chain
from tests.support.log_reads import log
from tests.support.patience import HANG_SECONDS, wait_until
from tests.support.store_samples import create_volume
from volsched.log import tables
from volsched.log.database import Database, open_database
from volsched.log.migrations import migrate
from volsched.runtime.clock import system_clock
from volsched.runtime.runner import running
from volsched.runtime.writer import Writer


@contextmanager
def writer_process(url: str, name: str, count: int, batch: int) -> Iterator["subprocess.Popen[str]"]:
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.log.writer_process", url, name, str(count), str(batch)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def acknowledged(process: "subprocess.Popen[str]") -> dict[int, str]:
    assert process.stdout is not None
    return {int(position): name for position, name in map(str.split, process.stdout)}


def test_eight_writers_and_a_tailing_reader_that_misses_nothing(database: Database, url: str) -> None:
    """The reader asks only for positions above the last one it saw, while eight processes commit."""
    writers, each = 8, 60
    with ExitStack() as stack:
        processes = [stack.enter_context(writer_process(url, f"w{n}", each, 3)) for n in range(writers)]
        seen: list[int] = []
        reader = open_database(url)
        while len(seen) < writers * each:
            with reader.read() as connection:
                after = seen[-1] if seen else 0
                rows = connection.execute(
                    select(tables.events.c.position)
                    .where(tables.events.c.position > after)
                    .order_by(tables.events.c.position)
                )
                seen += [row.position for row in rows]
            assert any(process.poll() is None for process in processes) or len(seen) == writers * each
        reader.close()
        told = [acknowledged(process) for process in processes]
    assert seen == list(range(1, writers * each + 1))
    positions = [position for mine in told for position in mine]
    assert sorted(positions) == seen
    check_chain(database)


def test_what_was_acknowledged_survives_a_kill_and_is_there_once(database: Database, url: str) -> None:
    with writer_process(url, "victim", 100_000, 16) as process:
        assert process.stdout is not None
        told: dict[int, str] = {}
        for line in process.stdout:
            position, name = line.split()
            told[int(position)] = name
            if len(told) == 120:
                os.kill(process.pid, signal.SIGKILL)
                break
    stored = {event.position: event.stream.removeprefix("volume/") for event in log(database)}
    assert told.items() <= stored.items()
    assert len(set(stored.values())) == len(stored)
    check_chain(database)


@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
def test_two_processes_share_one_sqlite_file(database: Database, url: str) -> None:
    with writer_process(url, "one", 200, 5) as one, writer_process(url, "two", 200, 5) as two:
        told = acknowledged(one) | acknowledged(two)
    assert sorted(told) == list(range(1, 401))
    check_chain(database)


def test_postgres_restarted_in_the_middle_of_appends(own_postgres: Any) -> None:
    """The server is shut down at once and started again while a writer goes on."""
    database = open_database(own_postgres.get_uri())
    migrate(database)
    with running(Writer(database), clock=system_clock) as writer:
        futures = [writer.submit(create_volume(f"a{i}", versions={f"volume/a{i}": 0})) for i in range(300)]
        futures[10].result(timeout=HANG_SECONDS)
        pid = own_postgres.get_pid()
        assert pid is not None
        os.kill(pid, signal.SIGQUIT)
        wait_until(lambda: not (Path(own_postgres.pgdata) / "postmaster.pid").exists())
        futures += [writer.submit(create_volume(f"b{i}", versions={f"volume/b{i}": 0})) for i in range(300)]
        own_postgres.ensure_postgres_running()
        positions = [future.result(timeout=HANG_SECONDS).position for future in futures]
    assert sorted(positions) == list(range(1, 601))
    check_chain(database)
    database.close()
