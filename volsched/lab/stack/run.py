"""Running a supervisor until it is stopped: in the foreground of a terminal, or detached.

`python -m volsched.lab.stack.run DIRECTORY` is the detached one.
"""

import fcntl
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from volsched.lab.stack.services import read_definition
from volsched.lab.stack.states import Line, Merger
from volsched.lab.stack.supervisor import Supervisor, clean
from volsched.runtime.clock import system_clock

IDLE_SECONDS = 0.05
RETRY_SECONDS = 1.0
"""After an operating-system error, such as a full disk."""
GLANCE_SECONDS = 0.5
"""Longer than a check for a running supervisor holds the lock."""
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Ctrl-C, `kill`, and a closed terminal."""


class AlreadyRunningError(Exception):
    """Another supervisor has this directory."""


@contextmanager
def alone(directory: Path) -> Iterator[None]:
    """The lock of the directory, which the system releases when a process dies."""
    with (directory / "lock").open("a") as lock:
        end = time.monotonic() + GLANCE_SECONDS
        while not _locked(lock.fileno(), fcntl.LOCK_EX):
            if time.monotonic() > end:
                raise AlreadyRunningError(
                    f"a stack runs in {directory} already; see it with: volsched stack status"
                )
            time.sleep(IDLE_SECONDS)
        yield


def is_locked(directory: Path) -> bool:
    """Whether a supervisor runs there. Any number of callers may check at the same time, without interference."""
    try:
        with (directory / "lock").open() as lock:
            return not _locked(lock.fileno(), fcntl.LOCK_SH)
    except (FileNotFoundError, NotADirectoryError):
        return False


def _locked(descriptor: int, how: int) -> bool:
    try:
        fcntl.flock(descriptor, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def supervise(
    directory: Path,
    *,
    on_line: Callable[[Line], None] = lambda _: None,
    cleaned: Callable[[list[tuple[int, str]]], None] = lambda _: None,
    changed: Callable[[Supervisor], None] = lambda _: None,
) -> None:
    """Run what `stack.json` says until SIGINT, SIGTERM or SIGHUP, then end it gracefully.

    `on_line` gets every line that a service prints, `cleaned` the leftovers of an earlier supervisor, `changed`
    the supervisor after every change. Any exception of theirs also ends everything gracefully: only SIGKILL leaves
    services behind.
    """
    with alone(directory):
        cleaned(clean(directory, read_definition(directory / "stack.json")))
        supervisor = Supervisor(directory)
        merger = Merger(directory / "logs", on_line)
        woken = threading.Event()

        def ask(*_: object) -> None:
            supervisor.stop()
            woken.set()

        # Under `nohup` a closed terminal must not end it.
        heard = [it for it in ENDING if it != signal.SIGHUP or signal.getsignal(it) != signal.SIG_IGN]
        before = {number: signal.signal(number, ask) for number in heard}
        try:
            _repeat(supervisor, merger, woken, changed)
        finally:
            supervisor.stop()
            merger.on_line = lambda _: None
            _repeat(supervisor, merger, woken, lambda _: None)
            for number, handler in before.items():
                signal.signal(number, handler)


def _repeat(
    supervisor: Supervisor, merger: Merger, woken: threading.Event, changed: Callable[[Supervisor], None]
) -> None:
    """Step the supervisor until it has stopped. A full disk delays it, but must not end it: services continue."""
    refused = ""
    while not supervisor.stopped:
        now = system_clock()
        try:
            progress = supervisor.step(now)
            merger.step(now)
            refused = ""
        except OSError as error:
            progress = 0
            if str(error) != refused:
                refused = str(error)
                with suppress(OSError):
                    print(f"the supervisor cannot do all of its work: {error}", file=sys.stderr, flush=True)
            woken.wait(IDLE_SECONDS if supervisor.stopping else RETRY_SECONDS)
        if not supervisor.directory.is_dir():
            # The directory was removed, and with it the only way to control us.
            supervisor.stop()
        if progress:
            changed(supervisor)
        else:
            woken.wait(IDLE_SECONDS)
            woken.clear()
    with suppress(OSError):
        merger.step(system_clock())


if __name__ == "__main__":
    # A shell that starts us in the background makes us ignore Ctrl-C, and every service would inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    supervise(Path(sys.argv[1]).resolve())
