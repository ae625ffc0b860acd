"""What the rules see: all objects at one moment, with assumptions laid over the stored volumes and claims."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from volsched.core.overlay import Overlay
from volsched.model.kinds import Object
from volsched.model.storage import (
    Claim,
    CSIDriver,
    CSINode,
    StorageCapacity,
    StorageClass,
    Volume,
    VolumeAttachment,
)
from volsched.model.workloads import Namespace, Node, Pod

NAMESPACE_NAME = "kubernetes.io/metadata.name"


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """Cluster-scoped objects by name, namespaced ones by `namespace/name`."""

    nodes: Mapping[str, Node] = field(default_factory=dict)
    classes: Mapping[str, StorageClass] = field(default_factory=dict)
    stored_volumes: Mapping[str, Volume] = field(default_factory=dict)
    stored_claims: Mapping[str, Claim] = field(default_factory=dict)
    assumed_volumes: Overlay[Volume] = field(default_factory=Overlay)
    assumed_claims: Overlay[Claim] = field(default_factory=Overlay)
    pods: Mapping[str, Pod] = field(default_factory=dict)
    namespaces: Mapping[str, Namespace] = field(default_factory=dict)
    drivers: Mapping[str, CSIDriver] = field(default_factory=dict)
    csi_nodes: Mapping[str, CSINode] = field(default_factory=dict)
    capacities: Mapping[str, StorageCapacity] = field(default_factory=dict)
    attachments: Mapping[str, VolumeAttachment] = field(default_factory=dict)
    reserved: Mapping[str, int] = field(default_factory=dict)
    """Bytes of a capacity object (by key) promised to bindings that are in flight."""

    def volume(self, name: str) -> Volume | None:
        stored = self.stored_volumes.get(name)
        return None if stored is None else self.assumed_volumes.effective(stored)

    def claim(self, key: str) -> Claim | None:
        stored = self.stored_claims.get(key)
        return None if stored is None else self.assumed_claims.effective(stored)

    def namespace_labels(self, name: str) -> Mapping[str, str]:
        """With the one that every namespace has, whether anybody made an object of it or not."""
        held = self.namespaces.get(name)
        return {NAMESPACE_NAME: name} if held is None else {NAMESPACE_NAME: name, **held.meta.labels}

    def volumes_of_class(self, class_name: str) -> tuple[Volume, ...]:
        """In name order, assumptions included. An assumption never changes the class."""
        if not self.stored_volumes:
            return ()
        members = sorted(
            (stored for stored in self.stored_volumes.values() if stored.class_name == class_name),
            key=lambda stored: stored.name,
        )
        return tuple(self.assumed_volumes.effective(stored) for stored in members)


FIELD_OF: Mapping[type[Object], str] = {
    Node: "nodes",
    StorageClass: "classes",
    Volume: "stored_volumes",
    Claim: "stored_claims",
    Pod: "pods",
    Namespace: "namespaces",
    CSIDriver: "drivers",
    CSINode: "csi_nodes",
    StorageCapacity: "capacities",
    VolumeAttachment: "attachments",
}


def snapshot_of(objects: Iterable[Object]) -> Snapshot:
    """A snapshot of these objects; the later of two with one kind and key replaces the earlier."""
    fields: dict[str, Any] = {name: {} for name in FIELD_OF.values()}
    for value in objects:
        name = FIELD_OF.get(type(value))
        if name is not None:
            fields[name][value.meta.key] = value
    return Snapshot(**fields)
