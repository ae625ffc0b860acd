"""The kinds that volsched knows, some of them only stored, and how a manifest becomes a value.

A kind names the class of its values and loads it on first use: a command needs all kinds, but values of few.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pydantic import TypeAdapter

    from volsched.kube.object_values import Object

Manifest = Mapping[str, Any]


@dataclass(frozen=True)
class Kind:
    name: str
    api_version: str
    namespaced: bool
    values: str
    """The class of its values, as module:name in this room."""

    @cached_property
    def value(self) -> "type[Object]":
        module, _, name = self.values.partition(":")
        value: type[Object] = getattr(import_module(f"volsched.kube.{module}"), name)
        return value

    @cached_property
    def _adapter(self) -> "TypeAdapter[Object]":
        from pydantic import TypeAdapter

        return TypeAdapter(self.value)

    def read(self, manifest: Manifest) -> "Object":
        """The manifest as a value, undefaulted; raises pydantic's ValidationError where a type is wrong."""
        return self._adapter.validate_python(manifest)


KINDS = {
    kind.name: kind
    for kind in (
        Kind("Node", "v1", False, "workloads:Node"),
        Kind("Namespace", "v1", False, "workloads:Namespace"),
        Kind("PersistentVolume", "v1", False, "storage:Volume"),
        Kind("PersistentVolumeClaim", "v1", True, "storage:Claim"),
        Kind("Pod", "v1", True, "workloads:Pod"),
        Kind("Event", "v1", True, "workloads:EventObject"),
        Kind("StatefulSet", "apps/v1", True, "workloads:StatefulSet"),
        Kind("StorageClass", "storage.k8s.io/v1", False, "storage:StorageClass"),
        Kind("CSIDriver", "storage.k8s.io/v1", False, "storage:CSIDriver"),
        Kind("CSINode", "storage.k8s.io/v1", False, "storage:CSINode"),
        Kind("CSIStorageCapacity", "storage.k8s.io/v1", True, "storage:StorageCapacity"),
        Kind("VolumeAttachment", "storage.k8s.io/v1", False, "storage:VolumeAttachment"),
        Kind("Service", "v1", True, "object_values:Service"),
        Kind("ControllerRevision", "apps/v1", True, "object_values:ControllerRevision"),
        Kind("PodDisruptionBudget", "policy/v1", True, "workloads:PodDisruptionBudget"),
        Kind("PriorityClass", "scheduling.k8s.io/v1", False, "object_values:PriorityClass"),
    )
}


def key_of(kind: str, manifest: Manifest) -> str:
    """`name`, or `namespace/name` for a namespaced kind."""
    names = manifest.get("metadata") or {}
    name = str(names.get("name", ""))
    return f"{names.get('namespace') or 'default'}/{name}" if KINDS[kind].namespaced else name
