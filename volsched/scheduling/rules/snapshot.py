"""What the rules see: all objects at one moment, with assumptions laid over the stored volumes and claims."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from volsched.kube.claim_reference import YES, reference_to
from volsched.kube.kinds import Object
from volsched.kube.meta import BIND_COMPLETED
from volsched.kube.storage import (
    WAIT_FOR_FIRST_CONSUMER,
    Claim,
    CSIDriver,
    CSINode,
    StorageCapacity,
    StorageClass,
    Volume,
    VolumeAttachment,
)
from volsched.kube.workloads import Namespace, Node, Pod
from volsched.scheduling.rules.matching import is_asked_for, is_given_to
from volsched.scheduling.rules.overlay import Overlay

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
    promised: Mapping[str, str] = field(default_factory=dict)
    """Claims (by uid) whose room is part of what is reserved, each with its capacity object."""
    naming: Mapping[str, Iterable[str]] | None = None
    """Claim → the volumes that name it. With it, a claim is seen as bound as soon as a volume was given to it;
    None: only once the claim says so itself, as the reference sees it."""
    asking: Mapping[str, Iterable[str]] | None = None
    """Volume → the claims that name it. With it, a volume is seen as claimed as soon as a claim asks for it."""

    def volume(self, name: str) -> Volume | None:
        """As it is, or as it is about to be where a claim asks for it by name."""
        stored = self.stored_volumes.get(name)
        return None if stored is None else self._claimed(self.assumed_volumes.effective(stored))

    def claim(self, key: str) -> Claim | None:
        """As it is, or as it is about to be where a volume was given to it already."""
        stored = self.stored_claims.get(key)
        if stored is None:
            return None
        claim = self.assumed_claims.effective(stored)
        if self.naming is None or claim.volume_name or key not in self.naming:
            return claim
        return self._completed(claim)

    def _completed(self, claim: Claim) -> Claim:
        """What is in flight counts as what it will be. Of a class that does not delay binding, the controller
        has to be waited for."""
        storage_class = self.classes.get(claim.class_name)
        if storage_class is None or storage_class.volume_binding_mode != WAIT_FOR_FIRST_CONSUMER:
            return claim
        for name in sorted(self.naming[claim.key] if self.naming is not None else ()):
            volume = self.volume(name)
            if volume is not None and is_given_to(volume, claim):
                annotations = {**claim.meta.annotations, BIND_COMPLETED: YES}
                return replace(claim, volume_name=name, meta=replace(claim.meta, annotations=annotations))
        return claim

    def _claimed(self, volume: Volume) -> Volume:
        if self.asking is None or volume.name not in self.asking:
            return volume
        askers = (self.stored_claims.get(key) for key in sorted(self.asking[volume.name]))
        asker = next((claim for claim in askers if claim is not None and is_asked_for(volume, claim)), None)
        return volume if asker is None else replace(volume, claim_ref=reference_to(asker))

    def with_naming(self) -> "Snapshot":
        """The same, with what is in flight seen as bound."""
        asking: dict[str, list[str]] = {}
        for key, claim in self.stored_claims.items():
            if claim.volume_name:
                asking.setdefault(claim.volume_name, []).append(key)
        naming: dict[str, list[str]] = {}
        for stored in self.stored_volumes.values():
            ref = self.assumed_volumes.effective(stored).claim_ref
            if ref is not None:
                naming.setdefault(f"{ref.namespace}/{ref.name}", []).append(stored.name)
        return replace(self, naming=naming, asking=asking)

    def as_written(self) -> "Snapshot":
        """The same, with what is in flight seen as far as it is written."""
        return self if self.naming is None else replace(self, naming=None, asking=None)

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
        effective = map(self.assumed_volumes.effective, members)
        return tuple(effective if self.asking is None else map(self._claimed, effective))


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
