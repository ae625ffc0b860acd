"""Sessions: the proof that a process lives, which ends with the process and not a moment later.

Every lease names its holder's session. Whoever finds that session gone need not wait for the lease to run out: on
SQLite the session is a lock on one byte of a file beside the store, which the kernel lets go with the process; on
PostgreSQL it is an advisory lock of a connection that does nothing else, which the server lets go when it ends.

A session that was lost by a process that lives (the server was restarted, somebody deleted the file) only means
that others take its leases: epochs and fences keep that safe. Where there can be no proof (a store in memory, a
file system without locks, a server that takes no more connections) there is no session, and leases run out.

Rejected: a row with a heartbeat (it is a lease again, and runs out), process ids (given out anew, and nobody's
across machines), a file per process (somebody has to remove those of the dead, and may remove a living one's).
"""

import fcntl
import os
import struct
import threading
import time
from collections.abc import Collection
from contextlib import suppress
from secrets import randbits
from typing import Any, Protocol

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import SQLAlchemyError

ASK_SECONDS = 1.0
"""How long a connection to a server is taken for alive without being asked."""
ID_BITS = 62
"""An id is a place in a file and a key of the server's, both of which are signed numbers of 64 bits."""
_FLOCK = "hhqqi4x"
"""The kernel's struct flock: type, whence, start, length, pid."""
_HELD = """SELECT (classid::bigint << 32) | objid::bigint FROM pg_locks
WHERE locktype = 'advisory' AND objsubid = 1 AND granted
AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"""


class Session(Protocol):
    def id(self) -> int | None:
        """This process's, begun when it is first asked for; None where nothing can prove that we live."""

    def gone(self, connection: Connection, ids: Collection[int]) -> frozenset[int]:
        """Those of them whose processes are known to be gone."""

    def close(self) -> None:
        """Leases that name it are over from now on."""


class NoSession:
    """Where nothing can be proven."""

    def id(self) -> None:
        return None

    def gone(self, connection: Connection, ids: Collection[int]) -> frozenset[int]:  # noqa: ARG002 - a Session's
        return frozenset()

    def close(self) -> None:
        """There is nothing to be given back."""


def session_of(engine: Engine) -> Session:
    if engine.dialect.name != "sqlite":
        return _ServerSession(engine)
    file = engine.url.database
    named = file and not file.startswith((":", "file:"))
    return _FileSession(f"{file}-alive") if named and hasattr(fcntl, "F_OFD_SETLK") else NoSession()


class _FileSession:
    """A lock of an open file and not of a process: another store of this process does not let it go by closing."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._descriptor: int | None = None
        self._id: int | None = None
        self._lock = threading.Lock()

    def id(self) -> int | None:
        with self._lock:
            if self._id is None:
                wanted = randbits(ID_BITS)
                with suppress(OSError):
                    fcntl.fcntl(self._file(), fcntl.F_OFD_SETLK, _byte(fcntl.F_WRLCK, wanted))
                    self._id = wanted
            return self._id

    def gone(self, connection: Connection, ids: Collection[int]) -> frozenset[int]:  # noqa: ARG002 - a Session's
        try:
            with self._lock:
                file = self._file()
                # Our own lock is in nobody's way, so the kernel would not tell of it.
                return frozenset(it for it in ids if it != self._id and not _is_locked(file, it))
        except OSError:
            return frozenset()

    def close(self) -> None:
        with self._lock:
            if self._descriptor is not None:
                os.close(self._descriptor)
            self._descriptor = self._id = None

    def _file(self) -> int:
        if self._descriptor is None:
            self._descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        return self._descriptor


def _byte(kind: int, place: int) -> bytes:
    return struct.pack(_FLOCK, kind, os.SEEK_SET, place, 1, 0)


def _is_locked(file: int, place: int) -> bool:
    told = fcntl.fcntl(file, fcntl.F_OFD_GETLK, _byte(fcntl.F_WRLCK, place))
    return bool(struct.unpack(_FLOCK, told)[0] != fcntl.F_UNLCK)


class _ServerSession:
    """A new connection is a new session: what was claimed under the one before is for everybody, ourselves too."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._connection: Any = None
        self._id: int | None = None
        self._asked = 0.0
        self._lock = threading.Lock()

    def id(self) -> int | None:
        with self._lock:
            now = time.monotonic()
            try:
                if self._connection is not None and now - self._asked >= ASK_SECONDS:
                    self._connection.execute("SELECT 1")
                    self._asked = now
                if self._connection is None:
                    self._begin()
                    self._asked = now
            except (SQLAlchemyError, self._engine.dialect.loaded_dbapi.Error):
                # Who asked is about to use the server, and will be told properly what is wrong with it.
                self._end()
            return self._id

    def gone(self, connection: Connection, ids: Collection[int]) -> frozenset[int]:
        raw: Any = connection.connection.driver_connection
        held = {row[0] for row in raw.execute(_HELD)}
        return frozenset(ids) - held

    def close(self) -> None:
        with self._lock:
            self._end()

    def _begin(self) -> None:
        pooled = self._engine.raw_connection()
        self._connection = pooled.driver_connection
        # It is never given back to others, and does not count among those that work.
        pooled.detach()
        self._connection.autocommit = True
        wanted = randbits(ID_BITS)
        self._connection.execute("SELECT pg_advisory_lock(%s::bigint)", (wanted,))
        self._id = wanted

    def _end(self) -> None:
        if self._connection is not None:
            with suppress(Exception):
                self._connection.close()
        self._connection = self._id = None
