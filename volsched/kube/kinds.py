"""The kinds volsched knows, and the one way from a manifest to a value."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from pydantic import TypeAdapter

from volsched.kube.storage import (
    Claim,
    CSIDriver,
    CSINode,
    StorageCapacity,
    StorageClass,
    Volume,
    VolumeAttachment,
)
from volsched.kube.stored_kinds import Bare, ControllerRevision, PodDisruptionBudget, PriorityClass, Service
from volsched.kube.workloads import EventObject, Namespace, Node, Pod, StatefulSet

Object = (
    Node
    | Namespace
    | StorageClass
    | Volume
    | Claim
    | Pod
    | CSIDriver
    | CSINode
    | StorageCapacity
    | VolumeAttachment
    | EventObject
    | StatefulSet
    | Service
    | ControllerRevision
    | PodDisruptionBudget
    | PriorityClass
    | Bare
)
Manifest = Mapping[str, Any]


@dataclass(frozen=True)
class Kind:
    name: str
    api_version: str
    namespaced: bool
    value: type[Object]

    @cached_property
    def _adapter(self) -> TypeAdapter[Object]:
        return TypeAdapter(self.value)

    def read(self, manifest: Manifest) -> Object:
        """The manifest as a value, undefaulted; raises pydantic's ValidationError where a type is wrong."""
        return self._adapter.validate_python(manifest)


KINDS = {
    kind.name: kind
    for kind in (
        Kind("Node", "v1", False, Node),
        Kind("Namespace", "v1", False, Namespace),
        Kind("PersistentVolume", "v1", False, Volume),
        Kind("PersistentVolumeClaim", "v1", True, Claim),
        Kind("Pod", "v1", True, Pod),
        Kind("Event", "v1", True, EventObject),
        Kind("StatefulSet", "apps/v1", True, StatefulSet),
        Kind("StorageClass", "storage.k8s.io/v1", False, StorageClass),
        Kind("CSIDriver", "storage.k8s.io/v1", False, CSIDriver),
        Kind("CSINode", "storage.k8s.io/v1", False, CSINode),
        Kind("CSIStorageCapacity", "storage.k8s.io/v1", True, StorageCapacity),
        Kind("VolumeAttachment", "storage.k8s.io/v1", False, VolumeAttachment),
        Kind("Service", "v1", True, Service),
        Kind("ControllerRevision", "apps/v1", True, ControllerRevision),
        Kind("PodDisruptionBudget", "policy/v1", True, PodDisruptionBudget),
        Kind("PriorityClass", "scheduling.k8s.io/v1", False, PriorityClass),
    )
}


def key_of(kind: str, manifest: Manifest) -> str:
    """`name`, or `namespace/name` of what is in a namespace."""
    names = manifest.get("metadata") or {}
    name = str(names.get("name", ""))
    return f"{names.get('namespace') or 'default'}/{name}" if KINDS[kind].namespaced else name
