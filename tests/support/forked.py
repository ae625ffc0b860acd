"""Processes that are forked from one that has imported everything: real, to be killed, and there at once.

An interpreter that imports the system takes a second; a test that kills a hundred processes would mostly wait for
that. They are forked from a server that has one thread, so nothing of the test's own is in them.
"""

import multiprocessing
from collections.abc import Callable
from functools import cache
from multiprocessing.context import ForkServerContext

from tests.support.patience import HANG_SECONDS

PRELOADED = ("tests.lab.victim", "tests.log.test_effects_concurrency")
"""What runs in such processes, with all that it imports."""


@cache
def forking() -> ForkServerContext:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(list(PRELOADED))
    return context


def exit_code_of(main: Callable[..., None], *given: object) -> int:
    """Run it in a process of its own; as a shell tells it, negative where a signal ended it."""
    process = forking().Process(target=main, args=given)
    process.start()
    process.join(HANG_SECONDS)
    code = process.exitcode
    process.kill()
    assert code is not None, f"{main.__qualname__} hangs"
    return code
