"""Threads and waiting, for everything that is a `step(now)`."""

import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager

from volsched.log.commit_signal import commits
from volsched.log.database import Database
from volsched.log.errors import StoreError
from volsched.log.garbage_pause import collect_seldom
from volsched.runtime.clock import SECOND, Clock
from volsched.runtime.system import System
from volsched.runtime.writer import Writer

IDLE_WAIT_SECONDS = 0.05
"""How long a loop sleeps when nothing wakes it; also how soon it looks again at what became due."""
HEARING_SECONDS = 0.2
"""How long we listen at a time for commits of others, and so how late we may learn that we shall stop."""
RETRY_SECONDS = 1.0
"""After the store has failed us."""
Failed = Callable[[Exception], None]
"""Told what a loop has died of."""
_log = logging.getLogger("volsched.runner")


class Loop:
    """A step that a thread repeats: at once while there is something to do, else when woken or after a while."""

    def __init__(
        self, step: Callable[[int], int], *, clock: Clock, failed: Failed, linger: float, idle: float
    ) -> None:
        self._step, self._clock, self._failed = step, clock, failed
        self._linger, self._idle = linger, idle
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
            except StoreError as error:
                # A database that is restarted comes back; what was not committed is done again.
                _log.warning("%s; trying again", error)
                self._stopped.wait(RETRY_SECONDS)
            except Exception as error:
                _log.exception("%s ended", threading.current_thread().name)
                self._failed(error)
                return
            else:
                if not progress:
                    self._woken.wait(self._idle)
                elif self._linger:
                    self._stopped.wait(self._linger)


@contextmanager
def looping(
    step: Callable[[int], int],
    *,
    clock: Clock,
    name: str,
    failed: Failed,
    linger: float = 0,
    idle: float = IDLE_WAIT_SECONDS,
) -> Iterator[Loop]:
    """The step repeated by a thread of its own; leaving it lets the step that is under way end.

    `linger` is waited after each step that found something, so that the next one finds more at a time (seconds);
    `idle` at most after one that found nothing.
    """
    loop = Loop(step, clock=clock, failed=failed, linger=linger, idle=idle)
    thread = threading.Thread(target=loop.run, name=name, daemon=True)
    thread.start()
    try:
        yield loop
    finally:
        loop.stop()
        thread.join()


@contextmanager
def waking(database: Database, *loops: Loop) -> Iterator[None]:
    """The loops are woken by every commit to the store, whichever process makes it."""
    stopped = threading.Event()
    thread = threading.Thread(target=_hear, args=(database, loops, stopped), name="volsched-commits", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stopped.set()
        thread.join()


@contextmanager
def running(writer: Writer, *, clock: Clock) -> Iterator[Writer]:
    """The writer stepped by a thread of its own; leaving it carries out all that was queued."""
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
    """Step until nothing moves and nothing will; False if something was still to come when the time was up.

    Back-offs and deadlines are waited for as long as the time lasts. Pods that fit nowhere are not waited for.
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


def _hear(database: Database, loops: Sequence[Loop], stopped: threading.Event) -> None:
    while not stopped.is_set():
        try:
            with closing(commits(database)) as heard:
                # Once at first, for what was committed while nobody listened.
                news = True
                while not stopped.is_set():
                    if news:
                        for loop in loops:
                            loop.wake()
                    news = heard.heard(HEARING_SECONDS)
        except Exception as error:
            # Whatever the driver comes up with: the loops look by themselves, a little later.
            _log.debug("commits of others are not heard: %s", error)
            stopped.wait(RETRY_SECONDS)


def _run(writer: Writer, clock: Clock) -> None:
    while not writer.drained:
        if writer.step(clock()) == 0:
            writer.wait_for_work(IDLE_WAIT_SECONDS)
