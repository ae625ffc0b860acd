"""What the PV controller asks of a provisioner that it calls itself.

A call never blocks and is never the last word: what takes long answers `Unfinished`, and the same call is made
again later. So every call must be repeatable. The volume's name decides what is meant: asked twice for one name, a
provisioner makes one volume; what is gone is deleted. That is all a crash needs.

A refusal is a `PluginError` and means that nothing is left behind. Any other exception leaves open what happened,
and counts as not finished.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from volsched.pv_controller.rules import Provision, VolumePlugin

Manifest = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Unfinished:
    """Not yet: the call is to be made again, and there is no use in doing so before `again_at`."""

    again_at: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What a provisioner may know of the cluster: classes that name it, volumes that it made, all nodes."""

    classes: Sequence[Manifest] = ()
    nodes: Sequence[Manifest] = ()
    volumes: Mapping[str, Manifest] = field(default_factory=dict)
    """By name."""
    changed: Collection[str] = ()
    """Names of volumes that came, changed or went since it was last told: there may be many more of them."""


class Provisioner(Protocol):
    @property
    def plugin(self) -> VolumePlugin:
        """Its name, and what it can do."""
        ...

    def provision(self, request: Provision, now: int) -> Manifest | Unfinished:
        """A volume's manifest, with at least its source; the controller adds whose it is."""
        ...

    def delete(self, volume: Manifest, now: int) -> Unfinished | None:
        """Destroy the storage behind the volume. Storage that is gone already is deleted."""
        ...

    def recycle(self, volume: Manifest, now: int) -> Unfinished | None:
        """Destroy what was written, and keep the storage; asked only of a plugin that recycles."""
        ...

    def observe(self, seen: Surroundings) -> None:
        """Told before any other call, and again when something has changed."""
        ...

    def capacities(self) -> Sequence[Manifest]:
        """The CSIStorageCapacity objects to be published, without metadata; none where room is not counted."""
        ...

    def made(self) -> Collection[str]:
        """Names of the volumes for which there is storage, finished or not."""
        ...

    def discard(self, name: str) -> bool:
        """Remove storage for which there is neither a volume nor a claim, if it is certain that nobody has ever
        used it; False where it is kept."""
        ...
