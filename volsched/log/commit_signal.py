"""Commit notification: wakes a process when another one has written to the log.

It is only a hint. The listener reads the log, and polls it anyway; a lost, late or duplicate signal costs a little
time and nothing else.
"""

import time
from typing import Any, Protocol

from sqlalchemy import Engine

from volsched.log.database import Database
from volsched.log.dialects.postgres import CHANNEL

LOOK_SECONDS = 0.01
"""Polling interval for changes of an SQLite file, while there are some."""
LOOK_SECONDS_MOST = 0.05
LOOK_LESS_OFTEN = 1.1
"""Growth of the interval with every poll that finds none. Waking up for a poll costs more than the poll."""


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
        self._seen = self._version()
        self._look_seconds = LOOK_SECONDS

    def heard(self, seconds: float) -> bool:
        end = time.monotonic() + seconds
        while (version := self._version()) == self._seen:
            if time.monotonic() >= end:
                return False
            time.sleep(self._look_seconds)
            self._look_seconds = min(self._look_seconds * LOOK_LESS_OFTEN, LOOK_SECONDS_MOST)
        self._seen, self._look_seconds = version, LOOK_SECONDS
        return True

    def close(self) -> None:
        self._connection.close()

    def _version(self) -> int:
        (version,) = self._driver.execute("PRAGMA data_version").fetchone()
        return int(version)

    @property
    def _driver(self) -> Any:
        return self._connection.driver_connection


class _Server:
    """PostgreSQL notifies listeners; `move_head` sends the notification in the transaction itself."""

    def __init__(self, engine: Engine) -> None:
        # Not from the pool: a listening connection is never returned to it.
        arguments, options = engine.dialect.create_connect_args(engine.url)
        driver: Any = engine.dialect.loaded_dbapi
        self._connection = driver.connect(*arguments, **options, autocommit=True)
        self._connection.execute(f"LISTEN {CHANNEL}")

    def heard(self, seconds: float) -> bool:
        # All notifications that have arrived with the first one count as one.
        return any(True for _ in self._connection.notifies(timeout=seconds, stop_after=1))

    def close(self) -> None:
        self._connection.close()
