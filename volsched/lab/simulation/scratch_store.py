"""A store for simulated runs, wiped in no time: what a run costs is its own steps, not the making of tables.

The tables are made once; every run begins with a copy of that file. The engine stays, and with it every statement
that SQLAlchemy has compiled. Nothing waits for a disk: what a stepped crash loses is memory, never the file.
"""

import os
import shutil
import tempfile
from collections.abc import Callable
from multiprocessing.util import Finalize
from pathlib import Path
from typing import Any

from sqlalchemy import event

from volsched.log.database import Database, open_database
from volsched.log.lease_observer import Observer, monotonic_clock
from volsched.log.migrations import migrate

IN_MEMORY = Path("/dev/shm")


class Slate:
    def __init__(self) -> None:
        usable = IN_MEMORY.is_dir() and os.access(IN_MEMORY, os.W_OK)
        self._directory = Path(tempfile.mkdtemp(prefix="volsched-drill-", dir=IN_MEMORY if usable else None))
        # At the end of a pool's process too, which ends without what atexit would do.
        self._remove = Finalize(self, shutil.rmtree, (self._directory, True), exitpriority=1)
        self._file = self._directory / "store.db"
        self._opened = open_database(f"sqlite:///{self._file}")
        event.listen(self._opened.engine, "connect", _unsynced)
        migrate(self._opened)
        self._opened.close()
        self._empty = self._file.read_bytes()

    def wiped(self) -> Database:
        """An empty, migrated store; the one that was handed out before is gone."""
        self._opened.close()
        for beside in ("-wal", "-shm"):
            Path(f"{self._file}{beside}").unlink(missing_ok=True)
        self._file.write_bytes(self._empty)
        return self.another()

    def another(self, clock: Callable[[], int] = monotonic_clock) -> Database:
        """The same store as another process sees it: with a memory of its own of what it has read.

        `clock` is its monotonic one. It has no session: a crash that is only played does not end a process.
        """
        return Database(self._opened.engine, self._opened.dialect, observer=Observer(clock=clock))

    def close(self) -> None:
        self._opened.close()
        self._remove()


def _unsynced(raw: Any, _record: object) -> None:
    raw.execute("PRAGMA synchronous = OFF")
