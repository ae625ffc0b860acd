"""Commit notification: wakes a process when another one has written to the log.

It is only a hint. The listener reads the log, and polls it anyway; a lost, late or duplicate signal costs a little
time and nothing else.
"""

import ctypes
import os
import select
import sys
import time
from pathlib import Path
from typing import Any, Protocol

from sqlalchemy import Engine

from volsched.log.database import Database
from volsched.log.dialects.postgres import CHANNEL

LOOK_SECONDS = 0.01
"""Polling interval for changes of an SQLite file, while there are some."""
LOOK_SECONDS_MOST = 0.05
LOOK_LESS_OFTEN = 1.1
"""Growth of the interval with every poll that finds none. Waking up costs more than the poll. Once the
interval is at its maximum, the kernel reports the next write to the file, where it can."""
LOOK_ANYWAY_SECONDS = 1.0
"""A commit is visible only after the last write to the file, so a slow disk's may be missed."""
IN_MODIFY, IN_IGNORED = 0x2, 0x8000
"""`inotify` masks: the file was written; its watch was removed."""


class Commits(Protocol):
    def heard(self, seconds: float) -> bool:
        """Whether a commit happened since the last call; waits for one that long. May raise driver errors."""

    def close(self) -> None:
        """Release the connection."""


def commits(database: Database) -> Commits:
    """Receives every commit from now on, on a connection of its own."""
    engine = database.engine
    return _File(engine) if engine.dialect.name == "sqlite" else _Server(engine)


class _File:
    """SQLite counts, for each connection, the commits of the other connections."""

    def __init__(self, engine: Engine) -> None:
        self._connection = engine.raw_connection()
        self._last_version = self._version()
        self._look_seconds = LOOK_SECONDS
        (_, _, file), *_ = self._driver.execute("PRAGMA database_list")
        self._writes = _Writes(Path(f"{file}-wal")) if file and sys.platform == "linux" else None

    def heard(self, seconds: float) -> bool:
        end = time.monotonic() + seconds
        while (version := self._version()) == self._last_version:
            left = end - time.monotonic()
            if left <= 0:
                return False
            self._rest(left)
        self._last_version, self._look_seconds = version, LOOK_SECONDS
        return True

    def close(self) -> None:
        self._connection.close()
        if self._writes is not None:
            self._writes.close()

    def _rest(self, seconds: float) -> None:
        if self._look_seconds < LOOK_SECONDS_MOST or self._writes is None or not self._writes.are_watched():
            time.sleep(self._look_seconds)
            self._look_seconds = min(self._look_seconds * LOOK_LESS_OFTEN, LOOK_SECONDS_MOST)
        elif self._writes.wait(min(seconds, LOOK_ANYWAY_SECONDS)):
            self._look_seconds = LOOK_SECONDS

    def _version(self) -> int:
        (version,) = self._driver.execute("PRAGMA data_version").fetchone()
        return int(version)

    @property
    def _driver(self) -> Any:
        return self._connection.driver_connection


class _Writes:
    """Writes to a file by any process, as Linux reports them (`inotify`)."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._libc = ctypes.CDLL(None)
        self._queue: int = self._libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        self._watched = False

    def are_watched(self) -> bool:
        """Start watching; False if the file does not exist yet or the system has no watch left."""
        if not self._watched and self._queue >= 0:
            self._watched = self._libc.inotify_add_watch(self._queue, os.fsencode(self._file), IN_MODIFY) >= 0
        return self._watched

    def wait(self, seconds: float) -> bool:
        """Whether the file was written; waits for it that long."""
        ready, _, _ = select.select([self._queue], [], [], seconds)
        if not ready:
            return False
        events = os.read(self._queue, 4096)
        # An event is a watch, a mask, a cookie and the length of a name (0 for a file), 4 bytes each.
        masks = memoryview(events).cast("I")[1::4]
        self._watched = not any(mask & IN_IGNORED for mask in masks)
        return True

    def close(self) -> None:
        if self._queue >= 0:
            os.close(self._queue)


class _Server:
    """PostgreSQL notifies listeners; `move_head` sends the notification in the transaction itself."""

    def __init__(self, engine: Engine) -> None:
        # Not from the pool: a listening connection is never returned to it.
        arguments, options = engine.dialect.create_connect_args(engine.url)
        driver: Any = engine.dialect.loaded_dbapi
        self._connection = driver.connect(*arguments, **options, autocommit=True)
        self._connection.execute(f"LISTEN {CHANNEL}")
        self._arrivals = select.poll()
        self._arrivals.register(self._connection.fileno(), select.POLLIN)

    def heard(self, seconds: float) -> bool:
        # Waited for here: the driver's own wait wakes up ten times a second.
        if self._have_come():
            return True
        self._arrivals.poll(seconds * 1_000)
        return self._have_come()

    def close(self) -> None:
        self._connection.close()

    def _have_come(self) -> bool:
        """Takes all notifications that have arrived; they count as one."""
        return bool(list(self._connection.notifies(timeout=0)))
