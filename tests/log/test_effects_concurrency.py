"""Real processes on one queue: everything is done once, lanes keep their order, the dead are replaced.

What each worker did is read from the log, since an outcome is recorded with an event of its lane's stream. That no
lane has two leases at once is watched by the database: an index that exists in these tests only.
"""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from multiprocessing.sharedctypes import Synchronized
from multiprocessing.synchronize import Barrier, Event

import pytest
from sqlalchemy import select, text

from tests.support.forked import forking
from tests.support.log_reads import log
from tests.support.patience import HANG_SECONDS, wait_until
from tests.support.store_samples import NOW, create_volume, must, run
from volsched.log import tables
from volsched.log.commands import Command, DeposedError, Done, EffectDone, Precondition
from volsched.log.database import Database, open_database
from volsched.log.effects import Claimed, claim, counts, retry_later
from volsched.log.events.envelope import NewEvent
from volsched.log.events.fold import Decision, NewEffect
from volsched.log.transaction import execute

processes = forking()
LANES = 250
STEPS = 8
LEASE = 60_000_000
LOOK_AGAIN_S = 0.01
LOOK_AGAIN = threading.Event()
QUEUES = ("prebind", "annotate")


def steps(first: int, last: int, lanes: int = LANES) -> list[Command]:
    """For each of the steps and lanes an effect; a lane's steps take turns in two queues."""
    return [
        Command(actor="test", streams=(), decide=lambda _, step=step: Decision(effects=tuple(  # type: ignore[misc]
            NewEffect(key=f"{(lane * 7919 + step * 31) % 100_003}-{lane}-{step}", lane=f"lane-{lane}",
                      queue=QUEUES[step % 2], kind="step", data={"step": step})
            for lane in range(lanes)
        )))
        for step in range(first, last)
    ]  # fmt: skip


def record(claimed: Claimed, *, actor: str) -> Command:
    event = NewEvent(
        stream=f"volume/{claimed.lane}",
        type="VolumeChanged",
        data={"patch": {"spec": {"step": claimed.data["step"]}}},
    )
    return Command(
        actor=actor,
        streams=(event.stream,),
        decide=lambda _: Decision(events=(event,)),
        precondition=Precondition(effect=EffectDone(key=claimed.key, fence=claimed.fence, outcome="done")),
    )


def take(database: Database, name: str, queue: str, now: int) -> list[Claimed]:
    return claim(database, queue=queue, owner=name, limit=25, now=now, lease_for=LEASE, max_attempts=1_000)


def carry_out(database: Database, name: str, claimed: list[Claimed], clock: "Synchronized[int]") -> None:
    """The first effect of a batch fails once; the others are recorded."""
    if claimed and claimed[0].attempts == 1:
        failed = claimed.pop(0)
        retry_later(database, key=failed.key, fence=failed.fence, due=clock.value, error="flaky")
    for outcome in execute(database, [record(entry, actor=name) for entry in claimed], now=clock.value):
        # While time stands still no lease runs out, and a lost one means that an effect was claimed twice.
        if not isinstance(outcome, Done) and (clock.value == NOW or not isinstance(outcome, DeposedError)):
            raise outcome


def drain(url: str, name: str, clock: "Synchronized[int]", start: Barrier, finish: Event) -> None:
    """Work until told to finish and nothing is left."""
    database = open_database(url)
    # All hold a batch before any goes on: SQLite's lock is unfair, and one could do everything before the others.
    first = take(database, name, QUEUES[0], clock.value)
    start.wait(HANG_SECONDS)
    carry_out(database, name, first, clock)
    while True:
        told_to_finish, worked = finish.is_set(), False
        for queue in QUEUES:
            claimed = take(database, name, queue, clock.value)
            worked = worked or bool(claimed)
            carry_out(database, name, claimed, clock)
        if not worked:
            if told_to_finish and not counts(database):
                return
            LOOK_AGAIN.wait(LOOK_AGAIN_S)


def claim_and_hang(url: str, pipe: Connection) -> None:
    """Take a batch, say so, and never come back."""
    pipe.send(claim(open_database(url), queue="prebind", owner="victim", limit=25, now=NOW, lease_for=LEASE))
    pipe.recv()


@contextmanager
def workers(database: Database, url: str, count: int) -> Iterator[tuple[list[BaseProcess], "Synchronized[int]"]]:
    """Processes that drain; all of them must have ended well unless they were killed by the test."""
    clock, start, finish = processes.Value("q", NOW), processes.Barrier(count), processes.Event()
    started: list[BaseProcess] = [
        processes.Process(target=drain, args=(url, f"w{number}", clock, start, finish)) for number in range(count)
    ]
    for process in started:
        process.start()
    try:
        yield started, clock
        finish.set()
        # One that failed keeps its leases, so the others would never come to an end.
        wait_until(
            lambda: ended(started) == {0} or not ended(started) <= {None, 0}, progress=lambda: position(database)
        )
        assert ended(started) == {0}
    finally:
        for process in started:
            process.kill()


def ended(started: list[BaseProcess]) -> set[int | None]:
    """How processes that the test did not kill have ended; None stands for those that have not."""
    return {process.exitcode for process in started} - {-signal.SIGKILL}


def position(database: Database) -> int:
    with database.read() as connection:
        return int(connection.execute(select(tables.log_head.c.position)).scalar_one())


def assert_all_done_once_and_in_order(database: Database, *, lanes: int = LANES, steps: int = STEPS) -> None:
    assert counts(database) == {}
    done: dict[str, list[str]] = {}
    for event in log(database):
        if event.type == "VolumeChanged":
            done.setdefault(event.stream, []).append(event.data)
    expected = [f'{{"patch":{{"spec":{{"step":{step}}}}}}}' for step in range(steps)]
    assert done == {f"volume/lane-{lane}": expected for lane in range(lanes)}


@pytest.fixture
def queue(database: Database) -> Database:
    """A store with the lanes' volumes, in which a second lease in a lane is an error of the database."""
    must(database, *(create_volume(f"lane-{lane}") for lane in range(LANES)))
    with database.migrating() as connection:
        connection.execute(text("CREATE UNIQUE INDEX one_lease ON effects (lane) WHERE state = 'leased'"))
    return database


def test_workers_do_everything_once_and_each_lane_in_order(queue: Database, url: str) -> None:
    """Half of the 2,000 effects are there at the start, the other half is added while they work."""
    must(queue, *steps(0, STEPS // 2))
    with workers(queue, url, 4):
        wait_until(lambda: position(queue) > LANES + 50)
        for command in steps(STEPS // 2, STEPS):
            must(queue, command)
    assert_all_done_once_and_in_order(queue)
    assert {event.actor for event in log(queue)} == {"test", "w0", "w1", "w2", "w3"}


def test_a_killed_worker_is_replaced_when_its_leases_run_out(queue: Database, url: str) -> None:
    """Killed somewhere in the middle; then time jumps under the others too, who lose leases they still use."""
    must(queue, *steps(0, STEPS))
    with workers(queue, url, 3) as (started, clock):
        wait_until(lambda: position(queue) > LANES + 300)
        victim = started[0].pid
        assert victim is not None
        os.kill(victim, signal.SIGKILL)
        started[0].join(HANG_SECONDS)
        for done in range(400, LANES * STEPS, 200):
            wait_until(
                lambda done=done: position(queue) > LANES + done,  # type: ignore[misc]
                progress=lambda: position(queue),
            )
            clock.value += LEASE + 1
    assert_all_done_once_and_in_order(queue)


def test_a_zombie_records_nothing(queue: Database, url: str) -> None:
    must(queue, *steps(0, 2))
    here, there = processes.Pipe()
    zombie = processes.Process(target=claim_and_hang, args=(url, there))
    zombie.start()
    assert here.poll(HANG_SECONDS)
    stale: list[Claimed] = here.recv()
    os.kill(zombie.pid or 0, signal.SIGKILL)
    zombie.join(HANG_SECONDS)
    assert len(stale) == 25
    # Its leases are over with it, whatever the clock says.
    with workers(queue, url, 2):
        wait_until(lambda: set(counts(queue)) <= {("prebind", "done"), ("annotate", "done")})
    assert_all_done_once_and_in_order(queue, steps=2)
    before = log(queue)
    outcomes = run(queue, *(record(entry, actor="zombie") for entry in stale))
    assert {type(outcome) for outcome in outcomes} == {DeposedError}
    assert log(queue) == before
