"""Threads that repeat a `step(now)` and wait between steps, and a system that restarts itself when necessary."""

import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Protocol

from volsched.binding.executor import SideBySide
from volsched.cluster.observer import WrongClusterError
from volsched.log.commit_signal import commits
from volsched.log.database import Database
from volsched.log.errors import StoreError
from volsched.log.garbage_pause import collect_as_usual, collect_seldom
from volsched.runtime.clock import SECOND, Clock
from volsched.runtime.system import System
from volsched.runtime.writer import Writer

IDLE_WAIT_SECONDS = 0.05
"""How long a loop sleeps when nothing wakes it; also the delay until it sees due work."""
WRITER_WAIT_SECONDS = 1.0
"""How long the writer waits; a submitted command wakes it."""
HEARING_SECONDS = 0.2
"""How long one wait for other processes' commits lasts, and so the delay of a stop."""
RETRY_SECONDS = 1.0
"""Delay after a failure of the store."""
Failed = Callable[[Exception], None]
"""Called with the exception that ended a loop."""
Rest = Callable[[int], int]
"""Given the time, when the next step is due at the latest."""
_log = logging.getLogger("volsched.runner")


class Loop:
    """A step that a thread repeats: at once while there is work, else when woken or after a while."""

    def __init__(
        self, step: Callable[[int], int], *, clock: Clock, failed: Failed, linger: float, rest: Rest | None
    ) -> None:
        self._step, self._clock, self._failed = step, clock, failed
        self._linger, self._rest = linger, rest
        self._woken = threading.Event()
        self._stopped = threading.Event()

    def wake(self) -> None:
        """Wake the loop: there may be work."""
        self._woken.set()

    def stop(self) -> None:
        self._stopped.set()
        self._woken.set()

    def run(self) -> None:
        while not self._stopped.is_set():
            self._woken.clear()
            try:
                progress = self._step(self._clock())
                idle = 0 if progress else self._idle()
            except StoreError as error:
                # The database may be restarting; uncommitted work is repeated.
                _log.warning("%s; retrying", error)
                self._stopped.wait(RETRY_SECONDS)
            except WrongClusterError as error:
                # Not a defect, and its message has the remedy: no traceback is needed.
                self._failed(error)
                return
            except Exception as error:
                _log.exception("%s ended", threading.current_thread().name)
                self._failed(error)
                return
            else:
                if not progress:
                    self._woken.wait(idle)
                elif self._linger:
                    self._stopped.wait(self._linger)

    def _idle(self) -> float:
        """Seconds until the next step, if nothing wakes us."""
        if self._rest is None:
            return IDLE_WAIT_SECONDS
        now = self._clock()
        return max((self._rest(now) - now) / SECOND, IDLE_WAIT_SECONDS)


@contextmanager
def looping(
    step: Callable[[int], int],
    *,
    clock: Clock,
    name: str,
    failed: Failed,
    linger: float = 0,
    rest: Rest | None = None,
) -> Iterator[Loop]:
    """Repeat the step in its own thread; leaving the context waits for the step in progress.

    `linger`: seconds to wait after each step that found work, so that the next one gets a larger batch.
    `rest`: how long a loop that `waking` wakes may sleep; without it, the loop polls.
    """
    loop = Loop(step, clock=clock, failed=failed, linger=linger, rest=rest)
    thread = threading.Thread(target=loop.run, name=name, daemon=True)
    thread.start()
    try:
        yield loop
    finally:
        loop.stop()
        thread.join()


def repeat_until(step: Callable[[int], int], is_over: Callable[[], bool], *, clock: Clock) -> None:
    """Repeat the step until a condition holds, at the start of a process that needs it."""
    step(clock())
    while not is_over():
        time.sleep(IDLE_WAIT_SECONDS)
        step(clock())


@contextmanager
def waking(database: Database, *wakes: Callable[[], None]) -> Iterator[None]:
    """Wake the loops after every commit to the store, by any process."""
    stopped = threading.Event()
    thread = threading.Thread(target=_hear, args=(database, wakes, stopped), name="volsched-commits", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stopped.set()
        thread.join()


@contextmanager
def calls_side_by_side(most: int) -> Iterator[SideBySide]:
    """Threads that make at most `most` calls to a cluster concurrently."""
    with ThreadPoolExecutor(max_workers=most, thread_name_prefix="volsched-call") as pool:
        yield pool.map


@contextmanager
def running(writer: Writer, *, clock: Clock) -> Iterator[Writer]:
    """Step the writer in its own thread; leaving the context completes all queued commands."""
    thread = threading.Thread(target=_run, args=(writer, clock), name="volsched-writer", daemon=True)
    thread.start()
    try:
        yield writer
    finally:
        writer.close()
        thread.join()


def run_until_idle(
    system: System, *, clock: Clock, timeout: float, progress: Callable[[int], None] | None = None
) -> bool:
    """Step until there is no work left; False if work was left at the timeout.

    Waits for back-offs and deadlines while the time lasts, but not for pods that fit nowhere.
    """
    system.catch_up(clock())
    collect_seldom()
    give_up_at = clock() + int(timeout * SECOND)
    while True:
        now = clock()
        if now >= give_up_at:
            return False
        if system.step(now):
            if progress is not None:
                progress(system.world.position)
            continue
        due = system.next_due()
        if due is None:
            return True
        time.sleep(min(max(due - now, 0) / SECOND, IDLE_WAIT_SECONDS))


def _hear(database: Database, wakes: Sequence[Callable[[], None]], stopped: threading.Event) -> None:
    while not stopped.is_set():
        try:
            with closing(commits(database)) as heard:
                # Once at first, for commits before we listened.
                news = True
                while not stopped.is_set():
                    if news:
                        for wake in wakes:
                            wake()
                    news = heard.heard(HEARING_SECONDS)
        except Exception as error:
            # Any driver error: the loops also poll, a little later.
            _log.debug("commits of others are not heard: %s", error)
            stopped.wait(RETRY_SECONDS)


def _run(writer: Writer, clock: Clock) -> None:
    while not writer.drained:
        if writer.step(clock()) == 0:
            writer.wait_for_work(IDLE_WAIT_SECONDS if writer.retries else WRITER_WAIT_SECONDS)


# A self-restarting system: it is recreated when its memory may be stale.
#
# That is after a failure of the store, and after the machine's clock was set back: otherwise all deferred work
# (a pod, a sweep, a lease renewal) would wait until that time is reached again.

STEP_BACK = 10 * SECOND
"""The smallest step back that restarts; a smaller one only delays work by as much."""


class Restartable(Protocol):
    def step(self, now: int) -> int: ...
    def rests_until(self, now: int) -> int: ...
    def close(self) -> None: ...


@dataclass(slots=True)
class RestartingSystem:
    """Stepped in place of the system itself."""

    make: Callable[[], Restartable]
    system: Restartable | None = None
    failed: bool = False
    _loaded: bool = False
    """Whether it has made its first step, which reads the whole store."""
    _last: int = 0
    """The time of the previous step."""

    def step(self, now: int) -> int:
        went_back, self._last = now < self._last - STEP_BACK, now
        if self.failed or went_back:
            # The next system would have to wait until its leases expire.
            self.close()
        if self.system is None:
            self.system, self.failed = self.make(), False
        try:
            progress = self.system.step(now)
        except StoreError:
            self.failed = True
            raise
        if not self._loaded:
            self._loaded = True
            collect_seldom()
        return progress

    def rests_until(self, now: int) -> int:
        """When to step again at the latest."""
        return now if self.system is None else self.system.rests_until(now)

    def close(self) -> None:
        if self.system is not None:
            self.system.close()
            self.system = None
        if self._loaded:
            self._loaded = False
            collect_as_usual()
