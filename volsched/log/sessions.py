"""Sessions prove that a process is alive; observers decide when another process's lease is over."""

import fcntl
import os
import struct
import threading
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from secrets import randbits
from typing import Any, Protocol

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import SQLAlchemyError

# Every lease names its holder's session. A process that finds the session gone need not wait for the lease to run
# out: on SQLite the session is a lock on one byte of a file beside the store, which the kernel releases with the
# process; on PostgreSQL it is an advisory lock of a dedicated connection, which the server releases when the
# connection ends.
#
# If a live process loses its session (the server was restarted, the file was deleted), other processes only take
# its leases: epochs and fences keep that safe. Where no proof is possible (an in-memory store, a file system
# without locks, a server that accepts no more connections) there is no session, and leases run out.
#
# Rejected: a row with a heartbeat (it is a lease again, and runs out), process ids (reused, and meaningless across
# machines), a file per process (those of dead processes need removal, which may remove a live one's).

ASK_SECONDS = 1.0
"""How long a server connection is assumed alive without a check."""
ID_BITS = 62
"""An id is an offset in a file and a key of the server, both signed 64-bit numbers."""
_FLOCK = "hhqqi4x"
"""The kernel's struct flock: type, whence, start, length, pid."""
_HELD = """SELECT (classid::bigint << 32) | objid::bigint FROM pg_locks
WHERE locktype = 'advisory' AND objsubid = 1 AND granted
AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"""


class Session(Protocol):
    def id(self) -> int | None:
        """This process's session, begun on first use; None where nothing can prove that we are alive."""

    def ended(self, connection: Connection, ids: Collection[int]) -> frozenset[int]:
        """The sessions among these whose processes are known to be gone."""

    def close(self) -> None:
        """End the session: leases that name it are over."""


class NoSession:
    """The session of a store that offers no proof of liveness."""

    def id(self) -> None:
        return None

    def ended(self, connection: Connection, ids: Collection[int]) -> frozenset[int]:  # noqa: ARG002 - a Session's
        return frozenset()

    def close(self) -> None:
        """There is nothing to release."""


def session_of(engine: Engine) -> Session:
    if engine.dialect.name != "sqlite":
        return _ServerSession(engine)
    file = engine.url.database
    named = file and not file.startswith((":", "file:"))
    return _FileSession(f"{file}-alive") if named and hasattr(fcntl, "F_OFD_SETLK") else NoSession()


class _FileSession:
    """A lock of an open file, not of a process: closing another store of this process does not release it."""

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

    def ended(self, connection: Connection, ids: Collection[int]) -> frozenset[int]:  # noqa: ARG002 - a Session's
        try:
            with self._lock:
                file = self._file()
                # Our own lock does not conflict with us, so the kernel would not report it.
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
    """A new connection is a new session: claims under the one before are open to all, ourselves included."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._connection: Any = None
        self._id: int | None = None
        self._checked_at = 0.0
        self._lock = threading.Lock()

    def id(self) -> int | None:
        with self._lock:
            now = time.monotonic()
            try:
                if self._connection is not None and now - self._checked_at >= ASK_SECONDS:
                    self._connection.execute("SELECT 1")
                    self._checked_at = now
                if self._connection is None:
                    self._begin()
                    self._checked_at = now
            except (SQLAlchemyError, self._engine.dialect.loaded_dbapi.Error):
                # The caller is about to use the server, and will get the proper error.
                self._end()
            return self._id

    def ended(self, connection: Connection, ids: Collection[int]) -> frozenset[int]:
        raw: Any = connection.connection.driver_connection
        held = {row[0] for row in raw.execute(_HELD)}
        return frozenset(ids) - held

    def close(self) -> None:
        with self._lock:
            self._end()

    def _begin(self) -> None:
        pooled = self._engine.raw_connection()
        self._connection = pooled.driver_connection
        # It is never returned to the pool, and does not count among the working connections.
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


# One process's observations of others' leases: the holder's clock alone does not decide whether a lease is over.
#
# A clock may be wrong by hours, and its process dead. So a lease is over when any of these holds:
#
# - the session of its holder is gone;
# - it has run out on our clock;
# - it was not renewed for its whole length, on our own monotonic clock, which cannot be set;
# - its end lies more than two lengths ahead: a clock that disagrees with ours wrote it. Not while we observe
#   renewals: then its holder is alive, and two processes whose clocks disagree would take it from each other
#   endlessly.
#
# A wrong verdict costs only a change of holder, because of epochs and fences.

CHECK_EVERY = 100_000
"""Microseconds between two checks of others' claims: most of the time all their holders are alive."""


class Over(StrEnum):
    """Why a lease no longer excludes other processes."""

    HOLDER_GONE = "its holder is gone"
    RAN_OUT = "it has run out"
    NOT_RENEWED = "it was not renewed for its whole length"
    TOO_FAR_AHEAD = "it was written by a clock that is ahead"


@dataclass(frozen=True, slots=True)
class LeaseTerm:
    """The term in a lease's row; a renewal changes `stamp`."""

    stamp: tuple[object, ...]
    until: int
    length: int
    session: int | None


@dataclass(frozen=True, slots=True)
class _LastStamp:
    stamp: tuple[object, ...]
    since: int
    renewed: bool
    """Whether we also observed the stamp before it."""


def monotonic_clock() -> int:
    return time.monotonic_ns() // 1_000


@dataclass(slots=True)
class Observer:
    session: Session = field(default_factory=NoSession)
    clock: Callable[[], int] = monotonic_clock
    """Monotonic microseconds from an arbitrary start."""
    _stamps: dict[str, _LastStamp] = field(default_factory=dict)
    _last_checks: dict[str, int] = field(default_factory=dict)

    def check(self, connection: Connection, terms: dict[str, LeaseTerm], *, now: int) -> dict[str, Over]:
        """Which of these leases are over, and why."""
        gone = self._ended_sessions(connection, {it.session for it in terms.values() if it.session is not None})
        over = {name: self._judge(name, term, gone, now) for name, term in terms.items()}
        return {name: why for name, why in over.items() if why is not None}

    def may_check(self, what: str) -> bool:
        """Throttles repeated checks."""
        now = self.clock()
        if what in self._last_checks and now - self._last_checks[what] < CHECK_EVERY:
            return False
        self._last_checks[what] = now
        return True

    def forget(self, prefix: str, kept: Collection[str]) -> None:
        """Forget observations under these names, except those that still exist."""
        for name in [it for it in self._stamps if it.startswith(prefix) and it not in kept]:
            self._stamps.pop(name, None)

    def unchanged_for(self, name: str) -> int | None:
        """How long we have observed the lease unchanged; None: never observed."""
        seen = self._stamps.get(name)
        return None if seen is None else self.clock() - seen.since

    def _ended_sessions(self, connection: Connection, sessions: set[int]) -> frozenset[int]:
        return self.session.ended(connection, sessions) if sessions else frozenset()

    def _judge(self, name: str, term: LeaseTerm, gone: frozenset[int], now: int) -> Over | None:
        at, before = self.clock(), self._stamps.get(name)
        if before is None or before.stamp != term.stamp:
            before = self._stamps[name] = _LastStamp(term.stamp, at, renewed=before is not None)
        if term.session in gone:
            return Over.HOLDER_GONE
        if term.until < now:
            return Over.RAN_OUT
        # Before NOT_RENEWED: valid for a new observer as well as for one that has watched for long.
        if term.until > now + 2 * term.length and not before.renewed:
            return Over.TOO_FAR_AHEAD
        if at - before.since > term.length:
            return Over.NOT_RENEWED
        return None
