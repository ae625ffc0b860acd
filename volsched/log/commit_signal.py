"""Hearing of commits: what wakes a process when another one has written to the log.

A hint and no more. Whoever hears one looks into the log, and looks from time to time anyway; so one that is lost,
late or doubled costs a little time and nothing else.
"""

import time
from typing import Any, Protocol

from sqlalchemy import Engine

from volsched.log.database import Database
from volsched.log.dialects.postgres import CHANNEL

LOOK_SECONDS = 0.01
"""How often an SQLite file is asked whether it has changed; asking costs some ten microseconds."""


class Commits(Protocol):
    def heard(self, seconds: float) -> bool:
        """Somebody has committed since the last time; waits for it so long. May raise what the driver raises."""

    def close(self) -> None:
        """Give the connection back."""


def commits(database: Database) -> Commits:
    """Hears of every commit from now on, on a connection of its own."""
    engine = database.engine
    return _File(engine) if engine.dialect.name == "sqlite" else _Server(engine)


class _File:
    """SQLite counts, for each connection, the commits that others have made."""

    def __init__(self, engine: Engine) -> None:
        self._connection = engine.raw_connection()
        self._seen = self._version()

    def heard(self, seconds: float) -> bool:
        end = time.monotonic() + seconds
        while (version := self._version()) == self._seen:
            if time.monotonic() >= end:
                return False
            time.sleep(LOOK_SECONDS)
        self._seen = version
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
    """PostgreSQL tells those who listen; the head's mover notifies, in the transaction itself."""

    def __init__(self, engine: Engine) -> None:
        # Not from the pool: a connection that listens is never given back to others.
        arguments, options = engine.dialect.create_connect_args(engine.url)
        driver: Any = engine.dialect.loaded_dbapi
        self._connection = driver.connect(*arguments, **options, autocommit=True)
        self._connection.execute(f"LISTEN {CHANNEL}")

    def heard(self, seconds: float) -> bool:
        # All that came by the time the first one is here count as one.
        return any(True for _ in self._connection.notifies(timeout=seconds, stop_after=1))

    def close(self) -> None:
        self._connection.close()
