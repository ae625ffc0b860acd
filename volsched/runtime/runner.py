"""Threads and waiting, for everything that is a `step(now)`, and a system that is recreated when necessary."""

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
"""How long a loop sleeps when nothing wakes it; also the delay until it sees what became due."""
WRITER_WAIT_SECONDS = 1.0
"""How long the writer waits; who submits a command wakes it."""
HEARING_SECONDS = 0.2
"""How long one wait for commits of others lasts, and so the delay of a stop."""
RETRY_SECONDS = 1.0
"""Delay after a failure of the store."""
Failed = Callable[[Exception], None]
"""Called with the exception that ended a loop."""
Rest = Callable[[int], int]
"""When the next step is due at the latest, given the time."""
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
        """There may be something to do now."""
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
                # A restarted database comes back; uncommitted work is repeated.
                _log.warning("%s; trying again", error)
                self._stopped.wait(RETRY_SECONDS)
            except WrongClusterError as error:
                # No defect, and its message says what to do: nobody needs to see where it was found.
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
    """The step repeated by a thread of its own; leaving the context lets the step in progress end.

    `linger` (seconds) is waited after each step that found work, so that the next one finds more at a time. A loop
    that `waking` wakes says with `rest` how long it may sleep; without, it polls.
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
    """For the start of a process that cannot begin before something is so."""
    step(clock())
    while not is_over():
        time.sleep(IDLE_WAIT_SECONDS)
        step(clock())


@contextmanager
def waking(database: Database, *wakes: Callable[[], None]) -> Iterator[None]:
    """Every commit to the store wakes the loops, whichever process makes it."""
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
    """Threads that make up to so many calls to a cluster at a time."""
    with ThreadPoolExecutor(max_workers=most, thread_name_prefix="volsched-call") as pool:
        yield pool.map


@contextmanager
def running(writer: Writer, *, clock: Clock) -> Iterator[Writer]:
    """The writer stepped by a thread of its own; leaving the context completes all queued commands."""
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
    """Step until nothing moves and nothing will; False if work was left when the time was up.

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
                # Once at first, for commits made before we listened.
                news = True
                while not stopped.is_set():
                    if news:
                        for wake in wakes:
                            wake()
                    news = heard.heard(HEARING_SECONDS)
        except Exception as error:
            # Any driver error: the loops poll by themselves, a little later.
            _log.debug("commits of others are not heard: %s", error)
            stopped.wait(RETRY_SECONDS)


def _run(writer: Writer, clock: Clock) -> None:
    while not writer.drained:
        if writer.step(clock()) == 0:
            writer.wait_for_work(IDLE_WAIT_SECONDS if writer.retries else WRITER_WAIT_SECONDS)


# A self-restarting system: recreated when its memory may be stale.
#
# That is after the store has failed, and after the machine's clock was set back: otherwise everything it has
# deferred (a pod, a sweep, a lease renewal) would wait until that time comes again.

STEP_BACK = 10 * SECOND
"""A smaller step back only delays work by as much."""


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
            # Its leases would keep the next system waiting until they run out.
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
