"""What the PV controller asks of whoever drives it, and what it is told when something fails.

A sync is a generator: it yields these requests, is sent their answers, and has errors thrown in. So the same rules
run against our log in one transaction, against a foreign API call by call, and in a test that stops half way.
"""

from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from volsched.log.commands import RejectedError

CLAIM = "PersistentVolumeClaim"
VOLUME = "PersistentVolume"

Manifest = Mapping[str, Any]
T = TypeVar("T")


class SyncError(Exception):
    """The sync cannot go on and must be tried again later. Failed writes arrive as RejectedError instead."""


class PluginError(Exception):
    """A volume plugin could not do what was asked; nothing is left behind."""


class VolumeInUseError(PluginError):
    """Something still uses the volume; deleting it later will do."""


class UnfinishedError(PluginError):
    """Provisioning gave no final answer and may still be running."""


@dataclass(frozen=True, slots=True)
class Update:
    """Write the whole object if it is still at the manifest's resourceVersion. Answer: what is stored, `Held`."""

    kind: str
    manifest: Manifest
    status: bool = False
    """Write the status alone; otherwise everything but the status."""


@dataclass(frozen=True, slots=True)
class Create:
    """Make the object; there must be none of its name."""

    kind: str
    manifest: Manifest


@dataclass(frozen=True, slots=True)
class Delete:
    """Delete the object of that name if it is the one with that uid."""

    kind: str
    key: str
    uid: str


@dataclass(frozen=True, slots=True)
class LiveGet:
    """The object as the store has it now, never a cached one. Answer: the manifest, or None."""

    kind: str
    key: str


@dataclass(frozen=True, slots=True)
class LivePods:
    """All pods of a namespace as the store has them now. Answer: manifests."""

    namespace: str


@dataclass(frozen=True, slots=True)
class Notice:
    """A Kubernetes event about an object."""

    kind: str
    key: str
    uid: str
    type: str
    reason: str
    message: str
    patience_seconds: int = 0
    """Given only after the same notice has been asked for during so long on end, and then once in that time."""


@dataclass(frozen=True, slots=True)
class Enqueue:
    """Sync that object soon."""

    kind: str
    key: str


@dataclass(frozen=True, slots=True)
class StartOperation:
    """Run a long operation after the sync, unless one of that name runs or is backing off after an error."""

    name: str
    operation: "Steps[None]"


@dataclass(frozen=True, slots=True)
class Pause:
    """Go on after so many seconds. Only operations ask for it."""

    seconds: int


@dataclass(frozen=True, slots=True)
class Provision:
    """Make storage for a claim. Answer: a volume's manifest with at least its capacity, modes and source."""

    plugin: str
    volume_name: str
    claim: Manifest
    storage_class: Manifest
    node: Manifest | None
    """Where the first consumer will run; None: anywhere the class allows."""


@dataclass(frozen=True, slots=True)
class DeleteAsset:
    """Destroy the storage behind a volume."""

    plugin: str
    volume: Manifest


@dataclass(frozen=True, slots=True)
class Recycle:
    """Scrub the storage behind a volume so that another claim may have it."""

    plugin: str
    volume: Manifest


Request = (
    Update
    | Create
    | Delete
    | LiveGet
    | LivePods
    | Notice
    | Enqueue
    | StartOperation
    | Pause
    | Provision
    | DeleteAsset
    | Recycle
)
Steps = Generator[Request, Any, T]
"""A sync or a part of one: yields requests, is sent answers, returns T."""


def drive(steps: Steps[T], answer: Callable[[Request], Any]) -> T:
    """Run to the end. What `answer` raises of RejectedError and PluginError is the controller's to judge."""
    try:
        request = next(steps)
        while True:
            try:
                given = answer(request)
            except (RejectedError, PluginError) as error:
                request = steps.throw(error)
            else:
                request = steps.send(given)
    except StopIteration as end:
        result: T = end.value
        return result
