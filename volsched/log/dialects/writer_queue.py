"""The order in which threads and processes write to an SQLite file.

SQLite gives its write lock to the first process that asks at the right moment: a process that finds it taken
sleeps, up to 100 ms, while the one that just wrote asks again at once. On a busy machine a writer can starve for
minutes. So writers draw tickets, and write in ticket order.

A ticket is a byte of a file beside the database, which its owner keeps locked until it has written. A writer's
turn has come when no byte before its own is locked. The locks belong to an open file (`F_OFD_SETLK`), one for each
connection: so threads queue as processes do, and the operating system releases the locks of a process when it
ends, however it ends. Nothing has to be cleaned up after a crash, and no writer waits for a dead process.

The queue provides fairness only; mutual exclusion is still SQLite's own lock. So where there is no queue (not on
Linux, no locks on the file system, no room for the file), only the order is lost.

Rejected: one lock for all waiters (flock), because the kernel lets a newcomer overtake those it has just woken;
and polling every few milliseconds, which leaves the file idle between two turns.
"""

import fcntl
import logging
import os
import struct
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from weakref import WeakSet

SUFFIX = "-queue"
"""Suffix of the queue file, appended to the database's name as SQLite does with its own (-wal, -shm)."""
REPORT_SECONDS = 5.0
"""Interval of the log lines of a waiting process."""
PRESENCE, COUNTER, FIRST = 0, 1, 16
"""Locked bytes: one by every process that has the file open; one to draw a ticket; from here on one per ticket."""
LAST_TICKET = 2**62
_STATE = struct.Struct("=qqq")
"""Content of the file: the last ticket drawn, the number of turns, and the process that had the last turn."""
_TURN_AT = 8
"""The offset of the last turn in it."""
_LOCK = struct.Struct("hhqqi4x")
"""`struct flock` on Linux: type, whence, start, length, process."""
_log = logging.getLogger("volsched.log")
_queues: "WeakSet[WriterQueue]" = WeakSet()


@dataclass(frozen=True, slots=True)
class Turn:
    """How long a writer waited for its turn."""

    waited: float = 0
    """Seconds."""
    passed: int = 0
    """Turns of other writers in the meantime."""


class WriterQueue:
    """One connection's place in the queue of a file's writers; used by one thread at a time."""

    def __init__(self, database_file: str) -> None:
        self._database_file, self._path = Path(database_file), Path(f"{database_file}{SUFFIX}")
        self._file: int | None = None
        self._is_left_out = False
        """Queueing failed the last time, and was reported."""
        _queues.add(self)

    def join(self) -> Turn:
        """Wait, without limit, until it is our turn; it lasts until `leave`."""
        if sys.platform != "linux":
            return Turn()
        began = time.monotonic()
        try:
            file, ticket, turns, is_first = self._draw()
            passed = 0
            if not is_first:
                self._wait(file, ticket, began)
                passed = _read(file)[1] - turns
                os.pwrite(file, _STATE.pack(ticket, turns + passed + 1, os.getpid())[_TURN_AT:], _TURN_AT)
        except OSError as error:
            self.close()
            if not self._is_left_out:
                _log.warning("%s: writers cannot queue here, and wait out of order: %s", self._path, error)
            self._is_left_out = True
            return Turn()
        self._is_left_out = False
        return Turn(time.monotonic() - began, passed)

    def leave(self) -> None:
        """End our turn: the next writer may go."""
        if self._file is not None:
            # The counter too: an interrupted process may have stopped anywhere.
            _lock(self._file, fcntl.F_OFD_SETLK, fcntl.F_UNLCK, COUNTER, 0)

    def close(self) -> None:
        """The last process that closes the file removes it, as SQLite does with the files beside the database."""
        file, self._file = self._file, None
        if file is None:
            return
        with suppress(OSError):
            _lock(file, fcntl.F_OFD_SETLK, fcntl.F_WRLCK, PRESENCE)
            _lock(file, fcntl.F_OFD_SETLK, fcntl.F_WRLCK, COUNTER)
            if os.path.samestat(os.fstat(file), self._path.stat()):
                self._path.unlink()
        os.close(file)

    def forked(self) -> None:
        """Called in the child of a fork. The locks on the file belong to the parent and must end with it."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def last_writer(self) -> int:
        """The process that had the last turn; it still has it, unless it is gone."""
        return 0 if self._file is None else _read(self._file)[2]

    def _draw(self) -> tuple[int, int, int, bool]:
        """The open file, our ticket in it, the number of turns until then, and whether the next is ours."""
        while True:
            file = self._opened()
            _lock(file, fcntl.F_OFD_SETLKW, fcntl.F_WRLCK, COUNTER)
            if os.fstat(file).st_nlink:
                break
            # The file was removed, and newcomers queue in another by now.
            self.close()
        try:
            drawn, turns, _ = _read(file)
            ticket = drawn + 1 if FIRST <= drawn < LAST_TICKET else FIRST
            _lock(file, fcntl.F_OFD_SETLK, fcntl.F_WRLCK, ticket)
            is_first = _locked_before(file, ticket) is None
            # The other fields are written at the start of a turn, and another process's turn may be starting.
            state = _STATE.pack(ticket, turns + 1, os.getpid())
            os.pwrite(file, state if is_first else state[:_TURN_AT], 0)
        finally:
            _lock(file, fcntl.F_OFD_SETLK, fcntl.F_UNLCK, COUNTER)
        return file, ticket, turns, is_first

    def _wait(self, file: int, ticket: int, began: float) -> None:
        with _reported_wait(self, began):
            # Waits for the ticket just before ours, so that a turn does not wake every waiter. If that owner gives
            # up or dies, there may be others before it.
            _lock(file, fcntl.F_OFD_SETLKW, fcntl.F_RDLCK, ticket - 1)
            while (ahead := _locked_before(file, ticket)) is not None:
                _lock(file, fcntl.F_OFD_SETLKW, fcntl.F_RDLCK, ahead)

    def _opened(self) -> int:
        if self._file is None:
            self._file = _open(self._path, like=self._database_file)
            _lock(self._file, fcntl.F_OFD_SETLKW, fcntl.F_RDLCK, PRESENCE)
        return self._file

    def __str__(self) -> str:
        return str(self._database_file)


def _open(path: Path, *, like: Path) -> int:
    """The file, created if needed with the owner and mode of the database, as SQLite creates its own."""
    flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW
    with suppress(FileNotFoundError):
        return os.open(path, flags)
    try:
        file = os.open(path, flags | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return os.open(path, flags)
    database = like.stat()
    with suppress(PermissionError):
        os.fchown(file, database.st_uid, database.st_gid)
    os.fchmod(file, database.st_mode & 0o666)
    return file


def _read(file: int) -> tuple[int, int, int]:
    state = os.pread(file, _STATE.size, 0)
    # A new file is empty.
    drawn, turns, process = _STATE.unpack(state.ljust(_STATE.size, b"\0"))
    return drawn, turns, process


def _lock(file: int, how: int, kind: int, start: int, length: int = 1) -> bytes:
    # On other systems the names are missing; there is no queue.
    return fcntl.fcntl(file, how, _LOCK.pack(kind, os.SEEK_SET, start, length, 0))


def _locked_before(file: int, ticket: int) -> int | None:
    """A held ticket before this one, if any."""
    if ticket == FIRST:
        return None
    kind, _, start, _, _ = _LOCK.unpack(_lock(file, fcntl.F_OFD_GETLK, fcntl.F_RDLCK, FIRST, ticket - FIRST))
    return None if kind == fcntl.F_UNLCK else max(start, FIRST)


class _WaitReporter:
    """Logs the waits of a whole process. The waiters cannot: they sleep in the kernel, without a timeout."""

    def __init__(self) -> None:
        self._waiting: dict[WriterQueue, float] = {}
        self._thread: threading.Thread | None = None
        self._starting = threading.Lock()

    def add(self, queue: WriterQueue, began: float) -> None:
        self._waiting[queue] = began
        # Checked without the lock first. After a fork the thread is not alive.
        if self._thread is None or not self._thread.is_alive():
            with self._starting:
                if self._thread is None or not self._thread.is_alive():
                    self._thread = threading.Thread(target=self._run, name="volsched-write-queue", daemon=True)
                    self._thread.start()

    def remove(self, queue: WriterQueue) -> None:
        self._waiting.pop(queue, None)

    def _run(self) -> None:
        while True:
            time.sleep(REPORT_SECONDS)
            for queue, began in list(self._waiting.items()):
                waited = time.monotonic() - began
                if waited >= REPORT_SECONDS:
                    with suppress(OSError):
                        _log.warning(
                            "%s: waiting for %.0f s for the turn to write; process %d had the last",
                            queue,
                            waited,
                            queue.last_writer(),
                        )


_wait_reporter = _WaitReporter()


@contextmanager
def _reported_wait(queue: WriterQueue, began: float) -> Iterator[None]:
    _wait_reporter.add(queue, began)
    try:
        yield
    finally:
        _wait_reporter.remove(queue)


def _forked() -> None:
    global _wait_reporter
    _wait_reporter = _WaitReporter()
    for queue in list(_queues):
        queue.forked()


os.register_at_fork(after_in_child=_forked)
