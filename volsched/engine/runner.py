"""Threads and waiting, for everything that is a `step(now)`."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from volsched.engine.clock import Clock
from volsched.engine.writer import Writer

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


def _run(writer: Writer, clock: Clock) -> None:
    while not writer.drained:
        if writer.step(clock()) == 0:
            writer.wait_for_work(IDLE_WAIT_SECONDS)
