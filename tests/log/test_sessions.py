"""Leases of the dead, of wrong clocks, and of those that nobody renews are over; those of the living are not."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from itertools import pairwise

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.effect_work import effect, queue_up
from tests.support.extent import extended, extent
from tests.support.patience import wait_until
from tests.support.store_samples import NOW, must
from volsched.log.database import Database, open_database
from volsched.log.effects import Claimed, claim, due_queues, retry_later
from volsched.log.leases import Lease, acquire, current, renew, standings
from volsched.log.sessions import NoSession, Observer, Over

pytestmark = extended

TTL = 15_000_000
HOUR = 3_600_000_000
HOLDER = """
import sys
from volsched.log.database import open_database
from volsched.log.effects import claim
from volsched.log.leases import acquire
url, now = sys.argv[1], int(sys.argv[2])
database = open_database(url)
lease = acquire(database, name="controller", holder="dead", now=now, ttl=15_000_000)
claimed = claim(database, queue="prebind", owner="dead", limit=10, now=now, lease_for=30_000_000)
print(lease is not None, len(claimed), flush=True)
sys.stdin.read()
"""


class Ticking:
    """A monotonic clock that a test moves."""

    def __init__(self) -> None:
        self.time = 0

    def __call__(self) -> int:
        return self.time


def observing(database: Database, clock: Ticking) -> Database:
    """Another process on the same store, which can prove nothing and has a clock of its own."""
    return Database(database.engine, database.dialect, observer=Observer(NoSession(), clock))


def get(database: Database, holder: str, now: int = NOW) -> Lease | None:
    return acquire(database, name="controller", holder=holder, now=now, ttl=TTL)


def take(database: Database, owner: str, now: int = NOW) -> list[Claimed]:
    return claim(database, queue="prebind", owner=owner, limit=10, now=now, lease_for=TTL)


@contextmanager
def holder_process(url: str, now: int) -> Iterator["subprocess.Popen[str]"]:
    command = [sys.executable, "-c", HOLDER, url, str(now)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        assert process.stdout.readline().split() == ["True", "1"]
        yield process
    finally:
        process.kill()
        process.communicate()


def wait_until_known_as_gone(database: Database) -> None:
    """A server learns of it when its connection ends, the kernel at once."""
    wait_until(lambda: [it.over for it in standings(database, now=NOW)] == [Over.HOLDER_GONE])


def test_what_a_killed_process_held_is_free_at_once(database: Database, url: str) -> None:
    must(database, queue_up(effect("b1")))
    with holder_process(url, NOW) as process:
        assert get(database, "b") is None
        assert due_queues(database, ["prebind"], now=NOW) == []
        assert take(database, "b") == []
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        wait_until_known_as_gone(database)
    with closing(open_database(str(url))) as other:
        assert due_queues(other, ["prebind"], now=NOW) == ["prebind"]
        assert [it.attempts for it in take(other, "b")] == [2]
        lease = get(other, "b")
        assert lease is not None
        assert lease.epoch == 2


def test_a_process_that_stands_still_is_not_gone(database: Database, url: str) -> None:
    must(database, queue_up(effect("b1")))
    with holder_process(url, NOW) as process:
        os.kill(process.pid, signal.SIGSTOP)
        assert get(database, "b") is None
        assert take(database, "b") == []


def test_whoever_closes_its_store_is_gone(database: Database, url: str) -> None:
    with closing(open_database(url)) as other:
        assert get(other, "a") is not None
        assert get(database, "b") is None
    wait_until_known_as_gone(database)
    assert get(database, "b") is not None


def test_two_stores_of_one_process_are_two_holders(database: Database, url: str) -> None:
    with closing(open_database(url)) as first, closing(open_database(url)) as second:
        assert get(first, "a") is not None
        second.close()
        assert get(database, "b") is None


def test_a_session_that_was_lost_is_replaced(database: Database, url: str) -> None:
    """Its leases are for everybody, and its holder goes on in the same epoch where nobody was faster."""
    with closing(open_database(url)) as other:
        lease = get(other, "a")
        assert lease is not None
        other.observer.session.close()
        wait_until_known_as_gone(database)
        again = renew(other, lease, now=NOW, ttl=TTL)
        assert again is not None
        assert (again.epoch, again.session) == (lease.epoch, other.observer.session.id())
        assert get(database, "b") is None


def test_a_clock_that_was_ahead_holds_nobody_up(database: Database) -> None:
    must(database, queue_up(effect("b1")))
    wrong, right = observing(database, Ticking()), observing(database, Ticking())
    assert get(wrong, "ahead", NOW + 2 * HOUR) is not None
    assert len(take(wrong, "ahead", NOW + 2 * HOUR)) == 1
    assert [it.over for it in standings(right, now=NOW)] == [Over.TOO_FAR_AHEAD]
    assert due_queues(right, ["prebind"], now=NOW) == ["prebind"]
    assert len(take(right, "b")) == 1
    lease = get(right, "b")
    assert lease is not None
    assert lease.epoch == 2


def test_what_a_clock_that_was_ahead_put_off_is_due(database: Database) -> None:
    must(database, queue_up(effect("b1")))
    (claimed,) = take(database, "ahead", NOW + 2 * HOUR)
    retry_later(database, key=claimed.key, fence=claimed.fence, due=NOW + 2 * HOUR, error="no")
    assert due_queues(database, ["prebind"], now=NOW) == ["prebind"]
    assert len(take(database, "b")) == 1


def test_a_lease_that_nobody_renews_is_over_on_the_observers_own_clock(database: Database) -> None:
    """However far its end is: here within two lengths, and our wall clock stands still."""
    must(database, queue_up(effect("b1")))
    clock = Ticking()
    other = observing(database, clock)
    assert get(database, "a", NOW + TTL) is not None
    assert len(take(database, "a", NOW + TTL)) == 1
    assert get(other, "b") is None
    assert take(other, "b") == []
    clock.time += TTL
    assert get(other, "b") is None
    clock.time += 1
    assert [it.over for it in standings(other, now=NOW)] == [Over.NOT_RENEWED]
    assert get(other, "b") is not None
    assert len(take(other, "b")) == 1


def test_a_holder_that_renews_keeps_its_lease_however_wrong_its_clock_is(database: Database) -> None:
    clock = Ticking()
    other = observing(database, clock)
    lease = get(database, "ahead")
    assert lease is not None
    assert get(other, "b") is None
    for step in range(1, 40):
        clock.time += TTL // 3
        lease = renew(database, lease, now=NOW + HOUR + step * TTL // 3, ttl=TTL)
        assert lease is not None
        assert get(other, "b", NOW + step * TTL // 3) is None
    assert current(database, name="controller") == lease


@settings(max_examples=extent(16, 40), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_no_takeover_among_healthy_holders_with_a_second_of_skew(sqlite: Database, data: st.DataObject) -> None:
    """Three controllers as ours are: each asks ever so often, and renews when a third of its lease is over."""
    second = 1_000_000
    clock = Ticking()
    skews = data.draw(st.lists(st.integers(-second, second), min_size=3, max_size=3))
    pauses = data.draw(st.lists(st.integers(1, 2 * second), min_size=30, max_size=30))
    processes = [observing(sqlite, clock) for _ in skews]
    leases: list[Lease | None] = [None] * len(skews)
    epochs = []
    start = (
        current(sqlite, name="controller") or Lease(name="", holder="", epoch=0, until=NOW)
    ).until + 3 * second
    for pause in pauses:
        clock.time += pause
        for number, (process, skew) in enumerate(zip(processes, skews, strict=True)):
            now, mine = start + clock.time + skew, leases[number]
            if mine is None or now > mine.until - TTL * 2 // 3:
                leases[number] = get(process, f"{id(data)}-{number}", now)
        held = current(sqlite, name="controller")
        assert held is not None
        epochs.append(held.epoch)
    assert all(before == after for before, after in pairwise(epochs))


@pytest.mark.parametrize("path", ["missing/store.db", ":memory:"])
def test_where_nothing_can_be_proven_there_is_no_session(path: str) -> None:
    with closing(open_database(f"sqlite:///{path}")) as database:
        assert database.observer.session.id() is None
