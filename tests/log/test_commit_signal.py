"""A process hears of what others commit, on both engines, and is woken by it."""

import threading

from tests.support.log_reads import log
from tests.support.patience import HANG_SECONDS
from tests.support.store_samples import create_volume
from volsched.log.commit_signal import commits
from volsched.log.database import Database, open_database
from volsched.log.transaction import execute
from volsched.runtime.clock import SECOND, system_clock
from volsched.runtime.runner import looping, waking

QUIET_SECONDS = 0.6
"""After which the interval of looks is at its longest."""


def test_a_commit_of_another_connection_is_heard_once(database: Database, url: str) -> None:
    other = open_database(url)
    ear = commits(database)
    try:
        assert not ear.heard(0)
        execute(other, [create_volume("a")], now=1)
        assert ear.heard(HANG_SECONDS)
        assert not ear.heard(0)
    finally:
        ear.close()
        other.close()


def test_a_commit_after_a_quiet_time_is_heard(database: Database, url: str) -> None:
    """On SQLite nobody looks any more by then: the kernel reports the write."""
    other = open_database(url)
    ear = commits(database)
    try:
        assert not ear.heard(QUIET_SECONDS)
        for name in ("a", "b"):
            execute(other, [create_volume(name)], now=1)
            assert ear.heard(HANG_SECONDS)
            assert not ear.heard(QUIET_SECONDS)
    finally:
        ear.close()
        other.close()


def test_a_loop_is_woken_by_a_commit_elsewhere_and_not_only_by_its_own_clock(database: Database, url: str) -> None:
    """The loop counts what it finds; a commit is found although the loop waits much longer than the test."""
    other = open_database(url)
    found = threading.Event()

    def look(_: int) -> int:
        if log(database):
            found.set()
        return 0

    try:
        with (
            looping(
                look,
                clock=system_clock,
                name="looking",
                failed=lambda _: None,
                rest=lambda now: now + int(2 * HANG_SECONDS) * SECOND,
            ) as loop,
            waking(database, loop.wake),
        ):
            execute(other, [create_volume("a")], now=1)
            assert found.wait(HANG_SECONDS)
    finally:
        other.close()
