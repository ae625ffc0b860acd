"""The aspects of an object's change that may matter to waiting pods: most changes have none.

Hints are selected by aspect, so that an irrelevant change such as a heartbeat is known before any pod is examined.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from volsched.kube.meta import BIND_COMPLETED, MIGRATED_PLUGINS, SELECTED_NODE_KEYS
from volsched.kube.object_values import Object
from volsched.kube.quantity import Quantity
from volsched.kube.storage import (
    Claim,
    CSIDriver,
    CSINode,
    StorageCapacity,
    StorageClass,
    Volume,
    VolumeAttachment,
)
from volsched.kube.workloads import TERMINATED, Namespace, Node, Pod
from volsched.scheduling.rules.nominations import is_nominated


class Aspect(StrEnum):
    """Named as Kubernetes registers them: resource, then action."""

    POD_PLACED = "AssignedPod/Add"
    POD_LEFT = "AssignedPod/Delete"
    POD_LABELS = "AssignedPod/UpdateLabel"
    POD_SHRANK = "AssignedPod/ScaleDown"
    NODE_ADDED = "Node/Add"
    NODE_REMOVED = "Node/Delete"
    NODE_LABELS = "Node/UpdateLabel"
    NODE_TAINTS = "Node/UpdateTaint"
    NODE_ALLOCATABLE = "Node/UpdateAllocatable"
    NAMESPACE_LABELS = "Namespace/UpdateLabel"
    CLASS_ADDED = "StorageClass/Add"
    CLASS_TOPOLOGIES = "StorageClass/UpdateAllowedTopologies"
    CLAIM_ADDED = "PersistentVolumeClaim/Add"
    CLAIM_CHANGED = "PersistentVolumeClaim/Update"
    CLAIM_LET_GO = "PersistentVolumeClaim/LetGo"
    """Our own: a claim was deleted that named a volume and did not get it."""
    VOLUME_ADDED = "PersistentVolume/Add"
    VOLUME_CHANGED = "PersistentVolume/Update"
    CSINODE_ADDED = "CSINode/Add"
    CSINODE_DRIVERS = "CSINode/UpdateDrivers"
    CSINODE_MIGRATED = "CSINode/UpdateMigratedPlugins"
    DRIVER_CHANGED = "CSIDriver/Update"
    CAPACITY_ADDED = "CSIStorageCapacity/Add"
    CAPACITY_GREW = "CSIStorageCapacity/Grow"
    CAPACITY_LET_GO = "CSIStorageCapacity/LetGo"
    """Our own: a binding in flight holds less of it than before."""
    ATTACHMENT_REMOVED = "VolumeAttachment/Delete"


@dataclass(frozen=True, slots=True)
class ObjectChange:
    """An object before and after a change, both with assumptions; None: it did not, or does not, exist."""

    old: Object | None
    new: Object | None
    let_go: bool = False
    """Whether the object is unchanged, but a binding in flight holds less of it."""


Aspects = frozenset[Aspect]
NONE: Aspects = frozenset()


def aspects_of(change: ObjectChange) -> Aspects:
    """The aspects of the change that a pod might wait for."""
    if change.let_go:
        return frozenset({Aspect.CAPACITY_LET_GO})
    subject = change.new if change.new is not None else change.old
    look = _ASPECTS.get(type(subject))
    return NONE if look is None else frozenset(look(change.old, change.new))


def claim_concerned(change: ObjectChange) -> str | None:
    """The only claim whose users the change can affect; None if it may affect any pod."""
    match change.old, change.new:
        case _, Claim(meta=meta):
            return meta.key
        case Volume() as old, None:
            return _claim_of(old)
        case None, Volume() as created:
            return _claim_of(created)
        case Volume() as old, Volume() as new if new.claim_ref is not None:
            # A volume that moves between claims may be what kept the first one waiting.
            claim = _claim_of(new)
            return claim if _claim_of(old) in (None, claim) else None
    return None


def is_placed(pod: Pod | None) -> bool:
    """Whether the pod is on a node and uses room there; a finished pod does not, even if its object remains."""
    return pod is not None and pod.node_name != "" and pod.phase not in TERMINATED


def _pod(old: Pod | None, new: Pod | None) -> set[Aspect]:
    if not is_placed(old):
        left = {Aspect.POD_LEFT} if _gives_seat_up(old, new) else set()
        return {*left, Aspect.POD_PLACED} if is_placed(new) else left
    if not is_placed(new):
        return {Aspect.POD_LEFT}
    assert old is not None
    assert new is not None
    if old.node_name != new.node_name or old.meta.uid != new.meta.uid:
        return {Aspect.POD_LEFT, Aspect.POD_PLACED}
    aspects = set()
    if (old.meta.labels, old.meta.being_deleted) != (new.meta.labels, new.meta.being_deleted):
        # Not all plugins count a pod that is being deleted, so this is like losing its labels.
        aspects.add(Aspect.POD_LABELS)
    if (old.containers, old.init_containers, old.overhead) != (new.containers, new.init_containers, new.overhead):
        aspects.add(Aspect.POD_SHRANK)
    return aspects


def _gives_seat_up(old: Pod | None, new: Pod | None) -> bool:
    """Whether the pod was nominated for a node, but is not there and no longer nominated for it."""
    if old is None or not is_nominated(old):
        return False
    return new is None or new.phase in TERMINATED or old.nominated_node != (new.node_name or new.nominated_node)


def _node(old: Node | None, new: Node | None) -> set[Aspect]:
    if old is None or new is None:
        return {Aspect.NODE_ADDED if old is None else Aspect.NODE_REMOVED}
    aspects = set()
    if old.labels != new.labels:
        aspects.add(Aspect.NODE_LABELS)
    if (old.taints, old.unschedulable) != (new.taints, new.unschedulable):
        aspects.add(Aspect.NODE_TAINTS)
    if old.allocatable != new.allocatable:
        aspects.add(Aspect.NODE_ALLOCATABLE)
    return aspects


def _namespace(old: Namespace | None, new: Namespace | None) -> set[Aspect]:
    before, after = old.meta.labels if old else {}, new.meta.labels if new else {}
    return {Aspect.NAMESPACE_LABELS} if before != after else set()


def _class(old: StorageClass | None, new: StorageClass | None) -> set[Aspect]:
    if old is None:
        return {Aspect.CLASS_ADDED}
    changed = new is not None and old.allowed_topologies != new.allowed_topologies
    return {Aspect.CLASS_TOPOLOGIES} if changed else set()


def _claim(old: Claim | None, new: Claim | None) -> set[Aspect]:
    if old is None or new is None:
        return {Aspect.CLAIM_ADDED} if old is None else {Aspect.CLAIM_LET_GO} if _asks(old) else set()
    if _is_written(old, new):
        return {Aspect.CLAIM_CHANGED}
    return {Aspect.CLAIM_CHANGED} if any(_loses(key, old, new) for key in SELECTED_NODE_KEYS) else set()


def _volume(old: Volume | None, new: Volume | None) -> set[Aspect]:
    if old is None:
        return {Aspect.VOLUME_ADDED}
    if new is None:
        # [D] A claim that was given the volume, and is not bound yet, may have another one now.
        return {Aspect.VOLUME_CHANGED} if old.claim_ref is not None else set()
    if _is_written(old, new):
        return {Aspect.VOLUME_CHANGED}
    # Only an assumption changed. A new assumption helps no pod.
    return {Aspect.VOLUME_CHANGED} if old.claim_ref is not None and new.claim_ref is None else set()


def _csi_node(old: CSINode | None, new: CSINode | None) -> set[Aspect]:
    if old is None or new is None:
        # [D] A deleted CSINode's limits are gone too; Kubernetes registers changes only.
        return {Aspect.CSINODE_ADDED if old is None else Aspect.CSINODE_DRIVERS}
    aspects = set()
    if old.drivers != new.drivers:
        aspects.add(Aspect.CSINODE_DRIVERS)
    if old.meta.annotations.get(MIGRATED_PLUGINS) != new.meta.annotations.get(MIGRATED_PLUGINS):
        aspects.add(Aspect.CSINODE_MIGRATED)
    return aspects


def _driver(old: CSIDriver | None, _: CSIDriver | None) -> set[Aspect]:
    # [D] A deleted driver requires nothing any more; Kubernetes registers changes only.
    return {Aspect.DRIVER_CHANGED} if old is not None else set()


def _capacity(old: StorageCapacity | None, new: StorageCapacity | None) -> set[Aspect]:
    if old is None or new is None:
        return {Aspect.CAPACITY_ADDED} if old is None else set()
    # [D] Both values count: in Kubernetes, no pod has claims that must share the total capacity.
    grew = _grew(old.limit, new.limit) or _grew(old.capacity, new.capacity)
    return {Aspect.CAPACITY_GREW} if grew else set()


def _attachment(_: VolumeAttachment | None, new: VolumeAttachment | None) -> set[Aspect]:
    return {Aspect.ATTACHMENT_REMOVED} if new is None else set()


def _grew(before: Quantity | None, after: Quantity | None) -> bool:
    return after is not None and (before is None or after.value() > before.value())


def _claim_of(volume: Volume) -> str | None:
    reference = volume.claim_ref
    return None if reference is None else f"{reference.namespace}/{reference.name}"


def _asks(claim: Claim) -> bool:
    return claim.volume_name != "" and BIND_COMPLETED not in claim.meta.annotations


def _is_written(old: Volume | Claim, new: Volume | Claim) -> bool:
    return old.meta.resource_version != new.meta.resource_version


def _loses(annotation: str, old: Claim, new: Claim) -> bool:
    return annotation in old.meta.annotations and annotation not in new.meta.annotations


_ASPECTS: Mapping[type[Any], Callable[[Any, Any], set[Aspect]]] = {
    Pod: _pod,
    Node: _node,
    Namespace: _namespace,
    StorageClass: _class,
    Claim: _claim,
    Volume: _volume,
    CSINode: _csi_node,
    CSIDriver: _driver,
    StorageCapacity: _capacity,
    VolumeAttachment: _attachment,
}
