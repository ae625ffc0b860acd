"""Whose process a pid is. A pid alone proves nothing: it is given out again after its process has ended.

A process is ours where pid *and* start time are those that we wrote down, or where it carries our mark: the
stack's directory in its environment (PostgreSQL writes over its own, and is known by its data directory).
What cannot be proven ours is never sent a signal.
"""

import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

MARK = "VOLSCHED_STACK_DIRECTORY"
SAME_START = 0.05
"""Seconds by which a start time may differ from itself: it is counted in hundredths from a boot time."""


@dataclass(frozen=True, slots=True)
class Identity:
    pid: int
    started: float
    """Seconds since 1970."""


def identify(pid: int) -> Identity | None:
    """None where it has ended already."""
    try:
        return Identity(pid, psutil.Process(pid).create_time())
    except psutil.NoSuchProcess:
        return None


def process_of(identity: Identity) -> psutil.Process | None:
    """The process itself, alive and the one that was written down; None where that cannot be proven."""
    try:
        process = psutil.Process(identity.pid)
        same = abs(process.create_time() - identity.started) < SAME_START
        return process if same and process.status() != psutil.STATUS_ZOMBIE else None
    except (psutil.NoSuchProcess, psutil.AccessDenied):
        return None


def send(identity: Identity, number: signal.Signals, *, group: bool = False) -> bool:
    """Send a signal; False where the process is not there any more. With `group`, to its whole session at once."""
    if process_of(identity) is None:
        return False
    with suppress(ProcessLookupError):
        if group:
            os.killpg(identity.pid, number)
        else:
            os.kill(identity.pid, number)
        return True
    return False


def marked(directory: Path) -> Iterator[Identity]:
    """Leaders of sessions that carry the mark of the stack in this directory, whoever their parent is by now."""
    wanted, data = str(directory), str(directory / "postgres")
    for process in psutil.process_iter():
        with suppress(psutil.NoSuchProcess, psutil.AccessDenied, ProcessLookupError, PermissionError):
            if os.getsid(process.pid) != process.pid or process.status() == psutil.STATUS_ZOMBIE:
                continue
            serves = process.name() == "postgres" and data in process.cmdline()
            if serves or process.environ().get(MARK) == wanted:
                yield Identity(process.pid, process.create_time())


def resident_bytes(identity: Identity) -> int | None:
    """What the process and its descendants hold in memory; pages that they share are counted in each."""
    process = process_of(identity)
    if process is None:
        return None
    total = 0
    with suppress(psutil.NoSuchProcess, psutil.AccessDenied):
        total = process.memory_info().rss
        for child in process.children(recursive=True):
            with suppress(psutil.NoSuchProcess, psutil.AccessDenied):
                total += child.memory_info().rss
    return total
