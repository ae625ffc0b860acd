"""The snapshot that the rules read: all objects at one moment, with assumptions over the stored objects."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Generic, TypeVar

from volsched.kube.manifest import YES, reference_to
from volsched.kube.meta import BIND_COMPLETED, NAMESPACE_NAME_LABEL
from volsched.kube.object_values import Object
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
from volsched.scheduling.rules.matching import is_given_to, is_named_by
from volsched.scheduling.rules.status import AttemptError

# The assumption overlay: decisions that are not written yet, laid over the stored objects.
#
# An assumption counts only while the stored object still has the resourceVersion it was made on: equality, not
# order. So a foreign change silently drops it, and our own successful write replaces it without a race in which
# the object looks free. Every operation returns a new overlay; nothing is changed in place.

T = TypeVar("T", Volume, Claim)


# No slots: a frozen generic dataclass with slots cannot be instantiated as Overlay[Volume]() before Python 3.12.
@dataclass(frozen=True)
class Overlay(Generic[T]):
    assumed: Mapping[str, T] = field(default_factory=dict)

    def effective(self, stored: T) -> T:
        """The assumed version of a stored object if one is in force, else the stored one."""
        if not self.assumed:
            return stored
        assumed = self.assumed.get(stored.key)
        if assumed is not None and assumed.meta.resource_version == stored.meta.resource_version:
            return assumed
        return stored

    def assume(self, changed: T, *, stored: T | None) -> "Overlay[T]":
        """Lay `changed` over the stored object; refuse one made on another version."""
        if stored is None:
            raise AttemptError(f'could not find v1.{_KIND_OF[type(changed)]} "{changed.key}"')
        if stored.meta.resource_version != changed.meta.resource_version:
            raise AttemptError(
                f'"{changed.key}" is out of sync '
                f"(stored: {stored.meta.resource_version}, assume: {changed.meta.resource_version})"
            )
        return Overlay({**self.assumed, changed.key: changed})

    def restore(self, changed: T) -> "Overlay[T]":
        """Drop the assumption made on the version that `changed` carries; any other is kept."""
        assumed = self.assumed.get(changed.key)
        if assumed is None or assumed.meta.resource_version != changed.meta.resource_version:
            return self
        return self._without(changed.key)

    def observe(self, key: str, stored: T | None) -> "Overlay[T]":
        """The store reports a version (None = deleted): an assumption made on another one is dropped."""
        assumed = self.assumed.get(key)
        if assumed is None:
            return self
        if stored is not None and stored.meta.resource_version == assumed.meta.resource_version:
            return self
        return self._without(key)

    def _without(self, key: str) -> "Overlay[T]":
        return Overlay({name: value for name, value in self.assumed.items() if name != key})


_KIND_OF: Mapping[type, str] = {Volume: "PersistentVolume", Claim: "PersistentVolumeClaim"}


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
    """Claims (by uid) whose room is part of the reserved bytes, each with its capacity object."""
    naming: Mapping[str, Iterable[str]] | None = None
    """Claim → the volumes that name it. With it, a claim counts as bound as soon as it was given a volume; None:
    only once the claim itself says so, as in the reference."""
    asking: Mapping[str, Iterable[str]] | None = None
    """Volume → the claims that name it. With it, a volume counts as claimed as soon as a claim names it."""

    def volume(self, name: str) -> Volume | None:
        """The effective volume; claimed, if a claim names it."""
        stored = self.stored_volumes.get(name)
        return None if stored is None else self._claimed(self.assumed_volumes.effective(stored))

    def claim(self, key: str) -> Claim | None:
        """The effective claim; bound, if it was given a volume already."""
        stored = self.stored_claims.get(key)
        if stored is None:
            return None
        claim = self.assumed_claims.effective(stored)
        if self.naming is None or claim.volume_name or key not in self.naming:
            return claim
        return self._completed(claim)

    def _completed(self, claim: Claim) -> Claim:
        """The claim with in-flight changes completed; without delayed binding, that is left to the controller."""
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
        asker = next((claim for claim in askers if claim is not None and is_named_by(volume, claim)), None)
        return volume if asker is None else replace(volume, claim_ref=reference_to(asker))

    def with_naming(self) -> "Snapshot":
        """The snapshot with in-flight claims seen as bound."""
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
        """The snapshot with in-flight claims as they are stored."""
        return self if self.naming is None else replace(self, naming=None, asking=None)

    def namespace_labels(self, name: str) -> Mapping[str, str]:
        """The namespace's labels, with the one that every namespace has, even without an object."""
        held = self.namespaces.get(name)
        return {NAMESPACE_NAME_LABEL: name} if held is None else {NAMESPACE_NAME_LABEL: name, **held.meta.labels}

    def volumes_of_class(self, class_name: str) -> tuple[Volume, ...]:
        """The volumes in name order, assumptions included. An assumption never changes the class."""
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
