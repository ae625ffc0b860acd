"""Interfaces: the provisioner that the PV controller calls, and the storage driver that a provisioner calls."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from volsched.provisioning.rules import Created, DriverRefusal, TopologyRequirement
from volsched.pv_controller.rules import Provision, VolumePlugin

# A call never blocks: a long one returns `Unfinished`, and the same call is made again later. So every call
# must be idempotent, keyed by the volume's name: called twice for one name, a provisioner creates one volume, and
# deleting an absent volume succeeds. Crash recovery needs no more.
#
# A refusal is a `PluginError` and means that no storage remains. After any other exception the outcome is unknown,
# and the call counts as unfinished.

Manifest = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Unfinished:
    """The call must be repeated, not before `again_at`."""

    again_at: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """The objects that a provisioner gets: classes that name it, volumes that it created, all nodes."""

    classes: Sequence[Manifest] = ()
    nodes: Sequence[Manifest] = ()
    volumes: Mapping[str, Manifest] = field(default_factory=dict)
    """Name → volume."""
    changed: Collection[str] = ()
    """Names of volumes created, changed or deleted since the last call: the mapping may be much larger."""


class Provisioner(Protocol):
    @property
    def plugin(self) -> VolumePlugin:
        """The provisioner's name and abilities."""
        ...

    def provision(self, request: Provision, now: int) -> Manifest | Unfinished:
        """Create a volume. Returns its manifest with at least its source; the controller adds the claim."""
        ...

    def delete(self, volume: Manifest, now: int) -> Unfinished | None:
        """Destroy the storage behind the volume; succeeds if it is already gone."""
        ...

    def recycle(self, volume: Manifest, now: int) -> Unfinished | None:
        """Erase the data, and keep the storage; called only for a plugin that recycles."""
        ...

    def observe(self, surroundings: Surroundings) -> None:
        """Called before any other call, and again after every change."""
        ...

    def capacities(self) -> Sequence[Manifest]:
        """The CSIStorageCapacity objects to publish, without metadata; none if room is not counted."""
        ...

    def volume_names(self) -> Collection[str]:
        """Names of the volumes with storage, finished or not."""
        ...

    def discard(self, name: str) -> bool:
        """Remove storage without a volume and a claim if it was certainly never used; False if it is kept."""
        ...


# The interface of a storage back end: a CSI driver's controller, without the wire protocol.
#
# Like a provisioner's, its calls are idempotent and never block: an unfinished one returns a `DriverRefusal`
# with a code after which the same call must be repeated.


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateVolume:
    name: str
    bytes: int
    class_name: str
    parameters: Mapping[str, str]
    requirement: TopologyRequirement | None
    """Where the volume must be reachable; None: anywhere."""
    pinned: bool
    """A pod waits for the volume in the first of the preferred terms."""


class Driver(Protocol):
    @property
    def topology(self) -> bool:
        """Whether its volumes are reachable from some nodes only."""
        ...

    def create(self, request: CreateVolume, now: int) -> Created | DriverRefusal:
        """Create a volume. After an exception the outcome is unknown: the volume may exist or still appear."""
        ...

    def delete(self, handle: str, now: int) -> DriverRefusal | None:
        """Delete the volume; succeeds if it is already gone."""
        ...

    def observe(self, surroundings: Surroundings) -> None: ...

    def capacities(self) -> Sequence[Manifest]: ...

    def volume_names(self) -> Collection[str]: ...

    def discard(self, name: str) -> bool: ...
