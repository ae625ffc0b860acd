"""The installation lock: a Lease in the cluster ensures that only one installation acts on it at a time.

All processes of an installation share one store, and hold the lock together: its holder is the store, not a
process. A process that renewed the lock may act for `DEADLINE_SECONDS`; other installations take it only after
they have seen no renewal for `DURATION_SECONDS`. Each process measures both by its own monotonic clock: clocks of
two machines never agree, so times written in the record are never compared.

Rejected: the Lease in the namespace of the installation. Two installations in two namespaces would not exclude
each other. Rejected: one process of an installation as the holder. Each crash would stop all of them for 15 s.
"""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Protocol

from volsched.cluster.port import CallRefusedError, ClusterError, Manifest, Refusal
from volsched.log.database import Database
from volsched.log.observed_cluster import attached_cluster, first_attached, require_mode
from volsched.runtime.clock import Clock, rfc3339_micro

DURATION_SECONDS = 15
"""The lock is free after this time without a renewal."""
DEADLINE_SECONDS = 10.0
"""A process that could not renew the lock for this long stops acting; the rest is for calls in flight."""
RETRY_SECONDS = 2.0
TRIES = 3
"""Attempts to write per check, because other processes of this installation renew the same record."""
NAMESPACE = "kube-system"
GATE_LOCK = "volsched-gate"
_log = logging.getLogger("volsched.lock")


class LeaseCalls(Protocol):
    def lease(self, key: str) -> Manifest | None: ...

    def create_lease(self, manifest: Manifest) -> Manifest: ...

    def update_lease(self, manifest: Manifest) -> Manifest:
        """Replace the Lease; CONFLICT if it is at another version."""


def lock_name(scheduler: str | None) -> str:
    """The lock of installations that place pods of this schedulerName; None: that only bind gated pods' claims."""
    return GATE_LOCK if scheduler is None else f"volsched-{scheduler}"


def holder_of(database: Database, mode: str) -> str | None:
    """The name of the installation: one for all processes on this store, another for a copy of the store.

    None: the store does not belong to a cluster yet. Raises WrongModeError where it decides in another mode.
    """
    with database.read() as connection:
        place, origin = database.dialect.place(connection), first_attached(connection)
        attached = attached_cluster(connection)
    require_mode(None if attached is None else attached.get("mode"), mode)
    return None if origin is None else sha256(f"{origin}/{place}".encode()).hexdigest()[:16]


@dataclass(slots=True)
class InstallationLock:
    calls: LeaseCalls
    name: str
    find_holder: Callable[[], str | None]
    """The name of our installation, once it has one."""
    clock: Clock
    """For the times in the record, which are for people only."""
    monotonic: Callable[[], float]
    trouble: str | None = None
    """Why we did not hold the lock after the last check."""
    rival_is_alive: bool = False
    """Whether another installation has renewed the lock while we watched it."""
    holder: str = ""
    _record: Manifest | None = None
    _changed_at: float = 0.0
    """When the record of another installation was last seen to change."""
    _renewed_at: float | None = None
    """When the last successful renewal was sent."""
    _look_at: float | None = None

    def is_held(self) -> bool:
        """Whether we may act now."""
        return self._renewed_at is not None and self.monotonic() - self._renewed_at < DEADLINE_SECONDS

    def step(self, _now: int = 0) -> int:
        """Check, and renew or take the lock; at most every two seconds, however often it is called."""
        at = self.monotonic()
        if self._look_at is not None and at < self._look_at:
            return 0
        self._look_at = at + RETRY_SECONDS
        self.holder = self.holder or self.find_holder() or ""
        if not self.holder:
            self.trouble = "the store does not belong to a cluster yet; its scheduler attaches it"
            return 0
        was_held = self.is_held()
        try:
            for _ in range(TRIES):
                if self._check_record():
                    break
        except ClusterError as error:
            self.trouble = str(error)
        if was_held and not self.is_held():
            _log.error("the lock of this installation is lost, nothing is written any more: %s", self.trouble)
        return 0

    def renew_and_check(self) -> bool:
        """For a process without a thread that renews the lock: it checks just before it acts."""
        self.step()
        return self.is_held()

    def _check_record(self) -> bool:
        """Whether the check has ended; False if others changed the record meanwhile, so that it is repeated."""
        sent_at = self.monotonic()
        # Our own record is renewed without reading it: if it was changed meanwhile, the write is refused.
        if self._record is None or self._is_rivals(self._record):
            self._note(self.calls.lease(f"{NAMESPACE}/{self.name}"))
        record = self._record
        if record is not None and self._is_rivals(record):
            self._renewed_at, self.trouble = None, _other_holder_text(self.name, record)
            if self.monotonic() - self._changed_at < _duration(record):
                return True
            _log.warning("%s was not renewed for %d s: this installation takes it", self.name, _duration(record))
        try:
            write = self.calls.create_lease if record is None else self.calls.update_lease
            self._record = write(self._our_record(record or {}))
        except CallRefusedError as refused:
            self._record = None
            if refused.refusal not in (Refusal.CONFLICT, Refusal.EXISTS, Refusal.NOT_FOUND):
                raise
            self.trouble = "other processes changed the lock at every attempt to renew it"
            return False
        self._renewed_at, self.trouble, self.rival_is_alive = sent_at, None, False
        return True

    def _note(self, record: Manifest | None) -> None:
        """Notes the record, and whether a rival has changed it since we last read it."""
        previous, self._record = self._record, record
        if record is None or not self._is_rivals(record):
            return
        if previous is None or _version(previous) != _version(record):
            self._changed_at, self.rival_is_alive = self.monotonic(), previous is not None

    def _is_rivals(self, record: Manifest) -> bool:
        return _holder(record) not in ("", self.holder)

    def _our_record(self, record: Manifest) -> dict[str, Any]:
        spec, now = record.get("spec") or {}, rfc3339_micro(self.clock())
        is_new = spec.get("holderIdentity") != self.holder
        lease_spec = {
            "holderIdentity": self.holder,
            "leaseDurationSeconds": DURATION_SECONDS,
            "acquireTime": now if is_new else spec.get("acquireTime", now),
            "renewTime": now,
            "leaseTransitions": int(spec.get("leaseTransitions") or 0) + (1 if is_new and spec else 0),
        }
        metadata = record.get("metadata") or {"name": self.name, "namespace": NAMESPACE}
        return {"metadata": metadata, "spec": lease_spec}


def _holder(record: Manifest) -> str:
    return str((record.get("spec") or {}).get("holderIdentity") or "")


def _version(record: Manifest) -> str:
    metadata: Mapping[str, Any] = record["metadata"]
    return f"{metadata.get('uid')}/{metadata['resourceVersion']}"


def _duration(record: Manifest) -> int:
    return int((record.get("spec") or {}).get("leaseDurationSeconds") or DURATION_SECONDS)


def _other_holder_text(name: str, record: Manifest) -> str:
    spec = record.get("spec") or {}
    return (
        f"Lease {NAMESPACE}/{name} is held by another installation, {_holder(record)}, since "
        f"{spec.get('acquireTime', 'unknown')}, last renewed {spec.get('renewTime', 'unknown')}; two "
        "installations must not write into one cluster: stop the other one, or run this one on its store"
    )
