"""Which rules are those of a kind. Kinds without any of their own have those of metadata."""

from collections.abc import Callable, Mapping

from volsched.kube.kinds import Kind
from volsched.kube.validation import claims, disruptions, metadata, nodes, pods, stateful_sets, storage, volumes
from volsched.kube.validation.field_errors import FieldErrors
from volsched.kube.validation.fields import Fields

_CREATION: Mapping[str, Callable[[Fields], FieldErrors]] = {
    "Pod": pods.pod_creation_errors,
    "Node": nodes.node_creation_errors,
    "PersistentVolume": volumes.volume_creation_errors,
    "PersistentVolumeClaim": claims.claim_creation_errors,
    "StatefulSet": stateful_sets.stateful_set_creation_errors,
    "StorageClass": storage.class_creation_errors,
    "CSINode": storage.csi_node_creation_errors,
    "CSIDriver": storage.csi_driver_creation_errors,
    "CSIStorageCapacity": storage.capacity_creation_errors,
    "VolumeAttachment": storage.attachment_creation_errors,
    "PriorityClass": disruptions.priority_class_creation_errors,
    "PodDisruptionBudget": disruptions.budget_creation_errors,
}
_UPDATE: Mapping[str, Callable[[Fields, Fields], FieldErrors]] = {
    "Pod": pods.pod_update_errors,
    "Node": nodes.node_update_errors,
    "PersistentVolume": volumes.volume_update_errors,
    "PersistentVolumeClaim": claims.claim_update_errors,
    "StatefulSet": stateful_sets.stateful_set_update_errors,
    "StorageClass": storage.class_update_errors,
    "CSINode": storage.csi_node_update_errors,
    "CSIDriver": storage.csi_driver_update_errors,
    "CSIStorageCapacity": storage.capacity_update_errors,
    "VolumeAttachment": storage.attachment_update_errors,
    "PriorityClass": disruptions.priority_class_update_errors,
    "PodDisruptionBudget": disruptions.budget_update_errors,
}
_STATUS: Mapping[str, Callable[[Fields, Fields], FieldErrors]] = {
    "Pod": pods.pod_status_errors,
    "PersistentVolumeClaim": claims.claim_status_errors,
    "StatefulSet": stateful_sets.stateful_set_status_errors,
}


def creation_errors(kind: Kind, manifest: Fields) -> FieldErrors:
    """Why the API would not make this object; the manifest has its defaults."""
    found = metadata.creation_errors(kind, manifest)
    if kind.name in _CREATION:
        found += _CREATION[kind.name](manifest)
    return _once(found)


def update_errors(kind: Kind, old: Fields, new: Fields) -> FieldErrors:
    """Why `new` may not replace `old`. What was wrong with an object before is no reason against its update."""
    found = metadata.update_errors(old, new)
    if kind.name not in _UPDATE:
        return _once(found)
    found += _UPDATE[kind.name](old, new)
    if not found:
        return found
    known = {str(error) for error in creation_errors(kind, old)}
    return [error for error in _once(found) if str(error) not in known]


def status_errors(kind: Kind, old: Fields, new: Fields) -> FieldErrors:
    return _STATUS[kind.name](old, new) if kind.name in _STATUS else []


def _once(found: FieldErrors) -> FieldErrors:
    return list({str(error): error for error in found}.values())
