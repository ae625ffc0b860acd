"""Workers may be killed, frozen or doubled at any moment: leases run out, fences hold, and others go on."""

import os
import signal
from collections import Counter
from typing import Any

import psutil
import pytest
from sqlalchemy import delete, func, select

from tests.stack.processes import Redis, Worker, worker
from tests.stack.work import delete_pods, done, head, leg_moves, manifests, phases, plan_legs, queued
from tests.support.patience import HANG_SECONDS, wait_until
from tests.support.written_legs import every_leg_was_written_once
from volsched.binding.executor import QUEUES
from volsched.kube.meta import BINDING_STAMP
from volsched.log import tables
from volsched.log.database import Database
from volsched.log.integrity.verify import verify

pytestmark = pytest.mark.parametrize("url", ["postgres"], indirect=True)
SLEEPING = {"DRILL": "1", "FAULT": "executor.claimed:stop"}
"""A worker of which every process falls asleep with its first batch in hand."""


def test_another_worker_finishes_what_a_killed_one_had_claimed(
    database: Database, url: str, broker: Redis
) -> None:
    plan_legs(database, pods=50, each=5)
    with worker(url, broker, **SLEEPING) as victim:
        wait_until(lambda: len(victim.stopped) == 2 and queued(database, state="leased") > 0)
        assert done(database) == 0
        victim.kill()
    with worker(url, broker, name="heir"):
        wait_until(lambda: done(database) >= 250, progress=lambda: (done(database), queued(database)))
    every_leg_was_written_once(database, 250)


def test_a_worker_that_wakes_after_its_lease_changes_nothing(database: Database, url: str, broker: Redis) -> None:
    plan_legs(database, pods=50, each=5)
    with worker(url, broker, **SLEEPING) as zombie:
        wait_until(lambda: len(zombie.stopped) == 2 and queued(database, state="leased") > 0)
        with worker(url, broker, name="heir") as heir:
            wait_until(lambda: done(database) >= 250, progress=lambda: (done(database), queued(database)))
            assert heir.end() == 0
        wake_and_let_it_end(database, zombie)
        every_leg_was_written_once(database, 250)
        # Awake again, it is a worker like any other.
        plan_legs(database, pods=10, each=5, start=50)
        wait_until(lambda: done(database) >= 300, progress=lambda: (done(database), queued(database)))
    every_leg_was_written_once(database, 300)


def test_a_worker_that_wakes_after_its_bindings_were_undone_writes_nothing(
    database: Database, url: str, broker: Redis
) -> None:
    """The pods go while their writes are in its hands: compensation has to wait for the lease, and then wins."""
    plan_legs(database, pods=20, each=5)
    with worker(url, broker, **SLEEPING) as zombie:
        wait_until(lambda: queued(database, state="leased") == 100)
        delete_pods(database, range(20))
        assert set(phases(database)) == {"compensating"}
        with worker(url, broker, name="heir") as heir:
            wait_until(lambda: set(phases(database)) == {"rolled-back"}, progress=lambda: phases(database))
            assert heir.end() == 0
        wake_and_let_it_end(database, zombie, processes=1)
    assert len(leg_moves(database, "voided")) == 100
    assert not leg_moves(database, "written")
    nothing_is_stamped(database)


def wake_and_let_it_end(database: Database, zombie: Worker, *, processes: int = 2) -> None:
    """Every sleeper goes on with the batch it had, and nothing of that reaches the log."""
    before = head(database)
    for process in zombie.stopped:
        os.kill(process, signal.SIGCONT)
    wait_until(lambda: zombie.ended("prebind") >= processes)
    assert head(database) == before


def nothing_is_stamped(database: Database) -> None:
    assert [it for it in manifests(database, tables.volumes) if BINDING_STAMP in str(it)] == []
    assert verify(database).ok


def test_two_workers_never_overlap_on_a_lane(database: Database, url: str, broker: Redis) -> None:
    """Every leg is written and, because its pod is deleted meanwhile, released: two effects on each lane."""
    lanes = select(func.count()).select_from(tables.effects).where(tables.effects.c.state == "leased")
    shared = lanes.group_by(tables.effects.c.lane).having(func.count() > 1)
    overlaps: list[Any] = []

    def settled() -> bool:
        with database.read() as connection:
            overlaps.extend(connection.execute(shared).all())
        return set(phases(database)) == {"rolled-back"} and queued(database) == 0

    with worker(url, broker) as one, worker(url, broker, name="two") as two:
        wait_until(lambda: one.ready() and two.ready())
        plan_legs(database, pods=80, each=5)
        wait_until(lambda: done(database) > 0)
        delete_pods(database, range(80))
        wait_until(settled, progress=lambda: (phases(database), queued(database)))
    assert overlaps == []
    ended = leg_moves(database, "voided") + leg_moves(database, "released")
    assert len(ended) == 400
    assert set(ended.values()) == {1}
    assert set(leg_moves(database, "written").values()) == {1}
    assert _order_of_outcomes(database) <= {("prebind",), ("prebind", "release")}
    nothing_is_stamped(database)


def test_a_worker_that_starts_queues_work_again_that_was_lost(database: Database, url: str, broker: Redis) -> None:
    """As after a repair by hand: the bindings are open, and of their effects nothing is known."""
    plan_legs(database, pods=10, each=5)
    with database.write() as connection:
        connection.execute(delete(tables.effects))
    with worker(url, broker) as one:
        wait_until(lambda: done(database) >= 50, progress=lambda: (done(database), queued(database)))
        every_leg_was_written_once(database, 50)
        _a_worker_without_its_beat_ends(one)


def test_a_worker_that_starts_looks_into_every_queue_before_anybody_rings(url: str, broker: Redis) -> None:
    """Nothing is due in this store, so nobody else wakes it for that."""
    with worker(url, broker) as one:
        wait_until(lambda: all(one.ended(queue) > 0 for queue in QUEUES))


def _a_worker_without_its_beat_ends(one: Worker) -> None:
    """It would go on without ever sweeping again, and its health check would find nothing wrong with it."""
    # All look alike. Those of its pool would be replaced.
    for child in psutil.Process(one.process.pid).children():
        child.kill()
    assert one.process.wait(timeout=HANG_SECONDS) != 0
    assert one.said("the beat of this worker has died") == 1


def test_arming_a_worker_without_the_drill_flag_is_refused(url: str, broker: Redis) -> None:
    with worker(url, broker, FAULT="executor.claimed:kill") as one:
        assert one.process.wait(timeout=HANG_SECONDS) != 0
    assert one.said("VOLSCHED_DRILL=1") == 1


def _order_of_outcomes(database: Database) -> set[tuple[str, ...]]:
    """In which orders the effects of lanes were done."""
    effects = tables.effects_done
    asked = select(effects.c.lane, effects.c.kind).order_by(effects.c.done_at, effects.c.kind)
    found: dict[str, list[str]] = {}
    with database.read() as connection:
        for row in connection.execute(asked):
            found.setdefault(row.lane, []).append(row.kind)
    return set(Counter(tuple(kinds) for kinds in found.values()))
