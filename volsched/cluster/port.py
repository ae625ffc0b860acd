"""What volsched asks of a cluster. Kept as small as it is so that a real API server fits behind it.

Every write is conditional on the version its writer saw (`metadata.resourceVersion`). Versions are decimal numbers
that grow with every write of an object, its deletion and a later object of its name included. A call that fails
says which of two things it means: nothing was written (`RefusedError`), or nobody knows (`UnansweredError`).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol

Manifest = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """What differs between clusters; a leg that cannot be undone where it is gets retained instead."""

    can_unbind: bool
    """A claim's volumeName may be cleared."""
    has_data_state: bool
    """Whoever mounts volumes marks claims dirty first; where nobody does, absent means dirty."""
    can_unassign: bool
    """A pod may be taken off its node again."""
    is_own_log: bool = False
    """The objects live in the log that records what is done about them: a write and its record are one
    transaction. Elsewhere writes are calls, and what becomes of the objects is observed (`cluster.mirror`)."""


class Refusal(StrEnum):
    CONFLICT = "conflict"
    """The object is at another version than the writer saw."""
    NOT_FOUND = "not found"
    EXISTS = "already exists"
    INVALID = "invalid"


class ClusterError(Exception):
    """A call that did not do what was asked."""


class CallRefusedError(ClusterError):
    """Nothing was written."""

    def __init__(self, refusal: Refusal, message: str) -> None:
        super().__init__(message)
        self.refusal = refusal


class UnansweredError(ClusterError):
    """The call may have been carried out, or may still be: time-out, broken connection, overloaded server."""


class ExpiredError(ClusterError):
    """The cursor of a watch is too old; list everything and watch from there."""


@dataclass(frozen=True, slots=True)
class PortChange:
    """An object as it has become; without a manifest it is gone."""

    kind: str
    key: str
    manifest: Manifest | None
    version: str
    """The object's, or that of its going: only so can a deletion that is told late be known as such."""


@dataclass(frozen=True, slots=True)
class Watched:
    changes: tuple[PortChange, ...]
    cursor: str
    """Where to go on from."""


@dataclass(frozen=True, slots=True)
class Listed:
    objects: tuple[Manifest, ...]
    cursor: str
    """A watch from here misses nothing that came after the list."""


class Cluster(Protocol):
    @property
    def capabilities(self) -> Capabilities: ...

    def get(self, kind: str, key: str) -> Manifest | None:
        """The object as it is now, not as some cache has it."""

    def list(self, kind: str) -> Listed: ...

    def watch(self, *, cursor: str, limit: int = 1_000) -> Watched:
        """What changed since the cursor, per object in the order of its versions, perhaps late, perhaps twice."""

    def create(self, kind: str, manifest: Manifest) -> Manifest: ...

    def update(self, kind: str, manifest: Manifest, *, status: bool = False) -> Manifest:
        """Replace the object, or its status alone, if it still has the manifest's resourceVersion.

        Where this takes the last finalizer off an object that is being deleted, it is answered and gone.
        """

    def delete(self, kind: str, key: str, *, uid: str | None = None, version: str | None = None) -> None: ...

    def bind_pod(self, key: str, *, uid: str, node: str) -> Manifest:
        """Assign a pod that has no node; refused if it has one, or is another pod of that name."""

    def unassign_pod(self, key: str, *, uid: str, reason: str) -> Manifest:
        """Take the pod off the node that rejected it; refused once any of its containers has started."""
