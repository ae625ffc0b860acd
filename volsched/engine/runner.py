"""Threads and waiting, for everything that is a `step(now)`."""

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from volsched.engine.clock import SECOND, Clock
from volsched.engine.system import System
from volsched.engine.writer import Writer
from volsched.store.collector import collect_seldom
from volsched.store.errors import StoreError

IDLE_WAIT_SECONDS = 0.05
"""How long a loop sleeps when nothing wakes it; also how soon it looks again at what became due."""
RETRY_SECONDS = 1.0
"""After the store has failed us."""
Failed = Callable[[Exception], None]
"""Told what a loop has died of."""
_log = logging.getLogger("volsched.runner")


class Loop:
    """A step that a thread repeats: at once while there is something to do, else when woken or after a while."""

    def __init__(self, step: Callable[[int], int], *, clock: Clock, failed: Failed, linger: float) -> None:
        self._step, self._clock, self._failed, self._linger = step, clock, failed, linger
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
                    self._woken.wait(IDLE_WAIT_SECONDS)
                elif self._linger:
                    self._stopped.wait(self._linger)


@contextmanager
def looping(
    step: Callable[[int], int], *, clock: Clock, name: str, failed: Failed, linger: float = 0
) -> Iterator[Loop]:
    """The step repeated by a thread of its own; leaving it lets the step that is under way end.

    `linger` is waited after each step that found something, so that the next one finds more at a time (seconds).
    """
    loop = Loop(step, clock=clock, failed=failed, linger=linger)
    thread = threading.Thread(target=loop.run, name=name, daemon=True)
    thread.start()
    try:
        yield loop
    finally:
        loop.stop()
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


def _run(writer: Writer, clock: Clock) -> None:
    while not writer.drained:
        if writer.step(clock()) == 0:
            writer.wait_for_work(IDLE_WAIT_SECONDS)
