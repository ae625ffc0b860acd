"""How server-side apply compares lists and mappings: by keys, as a set, or as one value.

Facts of Kubernetes 1.37's OpenAPI document (`x-kubernetes-list-type`, `x-kubernetes-map-type`). A list that is not
here is one value; a mapping that is not here is compared field by field.
"""

from collections.abc import Mapping
from typing import Any

ATOMIC, SET = "atomic", "set"
Topology = tuple[str, ...] | str | None
_CONTAINER: Mapping[str, Topology] = {
    "env": ("name",),
    "ports": ("containerPort", "protocol"),
    "volumeDevices": ("devicePath",),
    "volumeMounts": ("mountPath",),
}
_CONDITIONS: Mapping[str, Topology] = {"conditions": ("type",)}
FIELD_TOPOLOGY: Mapping[str, Mapping[str, Topology]] = {
    "V1CSIDriverSpec": {"volumeLifecycleModes": SET},
    "V1CSINodeSpec": {"drivers": ("name",)},
    "V1Container": _CONTAINER,
    "V1ContainerStatus": {"volumeMounts": ("mountPath",)},
    "V1EphemeralContainer": _CONTAINER,
    "V1NamespaceStatus": _CONDITIONS,
    "V1NodeSpec": {"podCIDRs": SET},
    "V1NodeStatus": {"addresses": ("type",), **_CONDITIONS},
    "V1ObjectMeta": {"finalizers": SET, "ownerReferences": ("uid",)},
    "V1PersistentVolumeClaimStatus": _CONDITIONS,
    "V1PodDisruptionBudgetStatus": _CONDITIONS,
    "V1PodSpec": {
        "containers": ("name",),
        "ephemeralContainers": ("name",),
        "hostAliases": ("ip",),
        "imagePullSecrets": ("name",),
        "initContainers": ("name",),
        "nodeSelector": ATOMIC,
        "resourceClaims": ("name",),
        "schedulingGates": ("name",),
        "topologySpreadConstraints": ("topologyKey", "whenUnsatisfiable"),
        "volumes": ("name",),
    },
    "V1PodStatus": {"podIPs": ("ip",), "resourceClaimStatuses": ("name",), **_CONDITIONS},
    "V1ResourceRequirements": {"claims": ("name",)},
    "V1ServiceSpec": {"ports": ("port", "protocol"), "selector": ATOMIC},
    "V1ServiceStatus": _CONDITIONS,
    "V1StatefulSetStatus": _CONDITIONS,
}
ATOMIC_TYPES = frozenset(
    {
        "any",
        "V1ConfigMapKeySelector",
        "V1FileKeySelector",
        "V1LabelSelector",
        "V1LocalObjectReference",
        "V1NodeSelector",
        "V1NodeSelectorTerm",
        "V1ObjectFieldSelector",
        "V1ObjectReference",
        "V1OwnerReference",
        "V1ResourceFieldSelector",
        "V1SecretKeySelector",
        "V1SecretReference",
        "V1TopologySelectorTerm",
        "V1TypedLocalObjectReference",
    }
)
KEY_DEFAULTS: Mapping[str, Any] = {"protocol": "TCP"}
"""Default values of key fields that an item leaves out."""


def topology_of(type_: str, field: str) -> Topology:
    return FIELD_TOPOLOGY.get(type_, {}).get(field)
