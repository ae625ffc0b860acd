"""Running a supervisor until it is told to end: in the foreground of a terminal, or detached.

`python -m volsched.stack.running DIRECTORY` is the detached one.
"""

import fcntl
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from volsched.engine.clock import system_clock
from volsched.stack.leftovers import clean
from volsched.stack.logs import Line, Merger
from volsched.stack.services import read_definition
from volsched.stack.supervisor import Supervisor

IDLE_SECONDS = 0.05


class AlreadyRunningError(Exception):
    """Another supervisor has this directory."""


@contextmanager
def alone(directory: Path) -> Iterator[None]:
    """The lock of the directory, which a process that dies cannot leave behind."""
    with (directory / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise AlreadyRunningError(
                f"a stack runs in {directory} already; see it with: volsched stack status"
            ) from None
        yield


def is_locked(directory: Path) -> bool:
    """Whether a supervisor runs there."""
    if not directory.is_dir():
        return False
    try:
        with alone(directory):
            return False
    except AlreadyRunningError:
        return True


def supervise(
    directory: Path,
    *,
    told: Callable[[Line], None] = lambda _: None,
    cleaned: Callable[[list[tuple[int, str]]], None] = lambda _: None,
    changed: Callable[[Supervisor], None] = lambda _: None,
) -> None:
    """Run what `stack.json` says until SIGINT or SIGTERM, then end it in good order.

    `told` gets every line that a service prints, `cleaned` what was left of a supervisor before, and `changed` the
    supervisor whenever something has happened.
    """
    with alone(directory):
        cleaned(clean(directory, read_definition(directory / "stack.json")))
        supervisor = Supervisor(directory)
        merger = Merger(directory / "logs", told)
        woken = threading.Event()

        def ask(*_: object) -> None:
            supervisor.stop()
            woken.set()

        before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            while not supervisor.stopped:
                now = system_clock()
                progress = supervisor.step(now)
                merger.step(now)
                if progress:
                    changed(supervisor)
                else:
                    woken.wait(IDLE_SECONDS)
                    woken.clear()
            merger.step(system_clock())
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


if __name__ == "__main__":
    # A shell that starts us in the background has Ctrl-C ignored by us, and every service would inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    supervise(Path(sys.argv[1]).resolve())
