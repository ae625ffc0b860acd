"""What a storage back end does for whoever provisions with it: a CSI driver's controller, without the wire.

Like a provisioner's, its calls are repeatable and never block: one that is still at work answers `Refused` with a
code after which the same call must be made again.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from volsched.provisioning.protocol import Manifest, Surroundings
from volsched.provisioning.rules.driver_outcomes import Created, DriverRefusal
from volsched.provisioning.rules.topology_requirement import TopologyRequirement


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateVolume:
    name: str
    bytes: int
    class_name: str
    parameters: Mapping[str, str]
    requirement: TopologyRequirement | None
    """None: wherever the driver likes."""
    pinned: bool
    """A pod waits for it where the first of the preferred terms is."""


class Driver(Protocol):
    @property
    def topology(self) -> bool:
        """Its volumes are reachable from some nodes only."""
        ...

    def create(self, request: CreateVolume, now: int) -> Created | DriverRefusal:
        """What it raises is no answer: the volume may have come to be, or still come."""
        ...

    def delete(self, handle: str, now: int) -> DriverRefusal | None:
        """What is gone already is deleted."""
        ...

    def observe(self, seen: Surroundings) -> None: ...

    def capacities(self) -> Sequence[Manifest]: ...

    def made(self) -> Collection[str]: ...

    def discard(self, name: str) -> bool: ...
