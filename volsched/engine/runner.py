"""Threads and waiting, for everything that is a `step(now)`."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from volsched.engine.clock import SECOND, Clock
from volsched.engine.system import System
from volsched.engine.writer import Writer
from volsched.store.collector import collect_seldom

IDLE_WAIT_SECONDS = 0.05
"""How long a loop sleeps when nothing wakes it; also how soon it looks again at what became due."""


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
