"""The fields of a foreign cluster's objects that are stored: an allow-list by kind, applied before queueing.

This is not a later redaction: fields that are in no shape below (environments, commands, images, unlisted
annotations, secrets' names, a driver's attributes) never reach the log. An object keeps its structure, so rules
read it like the original.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from volsched.kube.kinds import KINDS
from volsched.kube.manifest import status
from volsched.kube.meta import (
    ALPHA_SELECTED_NODES,
    BETA_STORAGE_CLASS,
    BETA_STORAGE_PROVISIONER,
    BIND_COMPLETED,
    BIND_TIMEOUT_SECONDS,
    BINDING_STAMP,
    BOUND_BY_CONTROLLER,
    DEFAULT_CLASS_KEYS,
    MIGRATED_PLUGINS,
    MIGRATED_TO,
    ON_FAILURE,
    PRE_RESIZE_CAPACITY,
    PROVISIONED_BY,
    ROLLBACK,
    SELECTED_NODE,
    STORAGE_PROVISIONER,
)
from volsched.scheduling.rules.dynamic_volumes import PROMISED_ROOM
from volsched.scheduling.rules.failure_memory import REJECTED_NODES

Manifest = Mapping[str, Any]
Projection = Callable[[str, Manifest], Manifest | None]
"""Maps an object of a kind to its stored part; None: the object is dropped."""


@dataclass(frozen=True, slots=True)
class KeptValue:
    """A value kept unchanged: a scalar, or with `tree` the whole subtree (labels, selectors, amounts)."""

    tree: bool = False


@dataclass(frozen=True, slots=True)
class Items:
    """A list with entries of this shape; with `named`, only entries whose `type` is in it."""

    shape: "Shape"
    named: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Words:
    """A message of a component: its first line, shortened, without anything that looks like a credential."""


Shape = KeptValue | Items | Words | Mapping[str, "Shape"]

ONE, TREE, WORDS = KeptValue(), KeptValue(tree=True), Words()
LONGEST_WORDS = 512
_SECRET_NAME = r"[\w-]*(?:pass|pwd|secret|token|key|sig|cred|authorization)[\w-]*"
_VALUE = r"""("(?:[^"\\]|\\.)*"|'[^']*'|(?:(?:bearer|basic)\s+)?\S+)"""
_CREDENTIAL = re.compile(rf"""(?i)({_SECRET_NAME}[\\"']*\s*[=:]\s*|--{_SECRET_NAME}\s+){_VALUE}""")
"""A name that indicates a credential, with its value: plain, in JSON, quoted, after a scheme, of a flag."""
_BEARER = re.compile(r"(?i)\b(bearer\s+)\S+")
_USER_OF_URL = re.compile(r"://[^/\s@]+@")

ANNOTATIONS = (
    BIND_COMPLETED,
    BOUND_BY_CONTROLLER,
    SELECTED_NODE,
    *ALPHA_SELECTED_NODES,
    BETA_STORAGE_CLASS,
    MIGRATED_PLUGINS,
    ROLLBACK,
    STORAGE_PROVISIONER,
    BETA_STORAGE_PROVISIONER,
    PROVISIONED_BY,
    MIGRATED_TO,
    PRE_RESIZE_CAPACITY,
    BINDING_STAMP,
    BIND_TIMEOUT_SECONDS,
    ON_FAILURE,
    PROMISED_ROOM,
    REJECTED_NODES,
    *DEFAULT_CLASS_KEYS,
)
"""Kept annotations, by exact key: those that rules read, or that show who bound an object."""
CLASS_PARAMETERS = ("type", "fsType", "csi.storage.k8s.io/fstype")
"""Kept parameters of a class; others may name secrets."""


def _fields(*names: str, **shapes: Shape) -> dict[str, Shape]:
    return dict.fromkeys(names, ONE) | shapes


_METADATA: Shape = _fields(
    "name",
    "namespace",
    "uid",
    "resourceVersion",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    labels=TREE,
    finalizers=TREE,
    annotations=_fields(*ANNOTATIONS),
    ownerReferences=Items(_fields("apiVersion", "kind", "name", "uid", "controller")),
)
_AMOUNTS: Shape = {"requests": TREE, "limits": TREE}
_CONTAINER: Shape = _fields(
    "name",
    "restartPolicy",
    resources=_AMOUNTS,
    ports=Items(_fields("hostPort", "hostIP", "protocol")),
)

# Volume sources: the fields that show whether two volumes are the same disk. A pod's other sources are kept empty:
# rules check only their presence.
_DISKS: dict[str, Shape] = {
    "awsElasticBlockStore": _fields("volumeID", "partition", "readOnly"),
    "azureDisk": _fields("diskName", "diskURI", "readOnly"),
    "cinder": _fields("volumeID", "readOnly"),
    "gcePersistentDisk": _fields("pdName", "partition", "readOnly"),
    "iscsi": _fields("targetPortal", "iqn", "lun", "readOnly"),
    "rbd": _fields("image", "pool", "readOnly", monitors=TREE),
}
_EMPTY_SOURCES: dict[str, Shape] = {
    name: {}
    for name in (
        "azureFile", "cephfs", "configMap", "downwardAPI", "emptyDir", "fc", "flexVolume", "flocker", "gitRepo",
        "glusterfs", "hostPath", "image", "local", "nfs", "photonPersistentDisk", "portworxVolume", "projected",
        "quobyte", "scaleIO", "secret", "storageos", "vsphereVolume",
    )
}  # fmt: skip
_POD_SOURCES: dict[str, Shape] = {**_EMPTY_SOURCES, **_DISKS, "csi": _fields("driver", "readOnly")}
_VOLUME_SOURCES: dict[str, Shape] = {
    **_EMPTY_SOURCES,
    **_DISKS,
    "csi": _fields("driver", "volumeHandle", "readOnly", "fsType"),
    "local": _fields("path", "fsType"),
    "hostPath": _fields("path", "type"),
    "nfs": _fields("server", "path", "readOnly"),
    "fc": _fields("lun", "readOnly", targetWWNs=TREE, wwids=TREE),
    "portworxVolume": _fields("volumeID", "readOnly"),
    "vsphereVolume": _fields("volumePath"),
}

_CLAIM_SPEC: Shape = _fields(
    "storageClassName",
    "volumeName",
    "volumeMode",
    "volumeAttributesClassName",
    accessModes=TREE,
    resources=_AMOUNTS,
    selector=TREE,
    dataSource=_fields("apiGroup", "kind", "name"),
    dataSourceRef=_fields("apiGroup", "kind", "name", "namespace"),
)
_CLAIM_TEMPLATE: Shape = {
    "metadata": {"name": ONE, "labels": TREE, "annotations": _fields(*ANNOTATIONS)},
    "spec": _CLAIM_SPEC,
}
_POD_SPEC: Shape = _fields(
    "nodeName",
    "schedulerName",
    "priority",
    "priorityClassName",
    "preemptionPolicy",
    "restartPolicy",
    "hostNetwork",
    "terminationGracePeriodSeconds",
    schedulingGates=Items(_fields("name")),
    readinessGates=Items(_fields("conditionType")),
    nodeSelector=TREE,
    affinity=TREE,
    tolerations=TREE,
    topologySpreadConstraints=TREE,
    containers=Items(_CONTAINER),
    initContainers=Items(_CONTAINER),
    overhead=TREE,
    resources=_AMOUNTS,
    volumes=Items(
        {
            "name": ONE,
            "persistentVolumeClaim": _fields("claimName", "readOnly"),
            "ephemeral": {"volumeClaimTemplate": _CLAIM_TEMPLATE},
            **_POD_SOURCES,
        }
    ),
)
_CONDITION: dict[str, Shape] = _fields("type", "status", "reason", "lastTransitionTime")
_POD_CONDITIONS = frozenset({"PodScheduled", "Ready", "DisruptionTarget"})

SHAPES: Mapping[str, Mapping[str, Shape]] = {
    "Node": {
        "spec": _fields("unschedulable", taints=Items(_fields("key", "value", "effect"))),
        "status": {
            "allocatable": TREE,
            "conditions": Items(_fields("type", "status", "reason")),
            "nodeInfo": _fields("kubeletVersion"),
            "volumesInUse": TREE,
            "volumesAttached": Items(_fields("name")),
        },
    },
    "Namespace": {"status": _fields("phase")},
    "PersistentVolume": {
        "spec": {
            **_fields(
                "persistentVolumeReclaimPolicy",
                "storageClassName",
                "volumeMode",
                "volumeAttributesClassName",
                capacity=TREE,
                accessModes=TREE,
                claimRef=_fields("apiVersion", "kind", "namespace", "name", "uid", "resourceVersion"),
                nodeAffinity=TREE,
            ),
            **_VOLUME_SOURCES,
        },
        "status": _fields("phase", "reason", "lastPhaseTransitionTime", message=WORDS),
    },
    "PersistentVolumeClaim": {
        "spec": _CLAIM_SPEC,
        "status": _fields(
            "phase",
            "currentVolumeAttributesClassName",
            "dataState",
            capacity=TREE,
            accessModes=TREE,
            allocatedResources=TREE,
            conditions=Items({**_CONDITION, "message": WORDS}),
        ),
    },
    "Pod": {
        "spec": _POD_SPEC,
        "status": _fields(
            "phase",
            "reason",
            "nominatedNodeName",
            conditions=Items({**_CONDITION, "message": WORDS}, named=_POD_CONDITIONS),
            containerStatuses=Items(_fields("name", "ready", "started")),
        ),
    },
    "StatefulSet": {
        "spec": _fields(
            "replicas",
            "podManagementPolicy",
            "serviceName",
            ordinals=_fields("start"),
            selector=TREE,
            template={"metadata": {"labels": TREE, "annotations": _fields(*ANNOTATIONS)}, "spec": _POD_SPEC},
            volumeClaimTemplates=Items(_CLAIM_TEMPLATE),
            persistentVolumeClaimRetentionPolicy=_fields("whenDeleted", "whenScaled"),
        ),
        "status": _fields("replicas", "readyReplicas", "currentReplicas", "updatedReplicas", "availableReplicas"),
    },
    "StorageClass": _fields(
        "provisioner",
        "reclaimPolicy",
        "volumeBindingMode",
        "allowVolumeExpansion",
        allowedTopologies=TREE,
        parameters=_fields(*CLASS_PARAMETERS),
    ),
    "CSIDriver": {
        "spec": _fields(
            "attachRequired", "storageCapacity", "preventPodSchedulingIfMissing", volumeLifecycleModes=TREE
        )
    },
    "CSINode": {
        "spec": {
            "drivers": Items(_fields("name", "nodeID", topologyKeys=TREE, allocatable=_fields("count"))),
        }
    },
    "CSIStorageCapacity": _fields("storageClassName", "capacity", "maximumVolumeSize", nodeTopology=TREE),
    "VolumeAttachment": {
        "spec": _fields("attacher", "nodeName", source=_fields("persistentVolumeName")),
        "status": _fields(
            "attached",
            attachError=_fields("time", message=WORDS),
            detachError=_fields("time", message=WORDS),
        ),
    },
    "Event": _fields(
        "type",
        "reason",
        "count",
        "eventTime",
        "firstTimestamp",
        "lastTimestamp",
        "reportingComponent",
        involvedObject=_fields("apiVersion", "kind", "namespace", "name", "uid"),
        message=WORDS,
        source=_fields("component"),
        series=_fields("count", "lastObservedTime"),
    ),
}
"""The observed kinds, and the kept fields of each besides its metadata."""
OBSERVED_KINDS = tuple(SHAPES)
"""Kinds with few objects first: objects that refer to others come after them."""

EVENT_REASONS = frozenset(
    {
        "FailedScheduling", "ProvisioningFailed", "FailedBinding", "VolumeMismatch", "ClaimLost", "ClaimMisbound",
        "VolumeFailedDelete", "VolumeFailedRecycle", "FailedMount", "FailedMapVolume", "FailedAttachVolume",
        "FailedDetachVolume", "OutOfcpu", "OutOfmemory", "OutOfpods", "VolumeConditionAbnormal",
        "VolumeResizeFailed", "WaitForFirstConsumer", "ExternalProvisioning", "WaitForPodScheduled",
    }
)  # fmt: skip
"""Events of the cluster's own components about volumes and placement; no others are kept."""


class ProjectedManifest(dict[str, Any]):
    """An object that is already projected. The adapter projects while it decodes; the mirror projects the objects
    of every cluster, and skips these."""

    __slots__ = ()


def project(kind: str, manifest: Manifest) -> ProjectedManifest | None:
    """The stored part of the object; None if no question needs the object."""
    if isinstance(manifest, ProjectedManifest):
        return manifest
    if kind == "Event" and manifest.get("reason") not in EVENT_REASONS:
        return None
    projected = ProjectedManifest(apiVersion=KINDS[kind].api_version, kind=kind)
    projected |= _KEPT[kind](dict(manifest))
    return projected


def everything(_: str, manifest: Manifest) -> Manifest:
    """The projection of processes that write to the cluster: an object must be written as it was read."""
    return manifest


def without_readiness(pod: Manifest) -> Manifest:
    """The part of an observed pod whose history is kept. Readiness changes with every probe, so only its present
    state is stored."""
    pod_status = status(pod)
    projected = {name: it for name, it in pod_status.items() if name != "containerStatuses"}
    if "conditions" in pod_status:
        projected["conditions"] = [it for it in pod_status["conditions"] if it.get("type") != "Ready"]
    return {**pod, "status": projected}


def words(text: str) -> str:
    """The first line with credentials masked; further lines are commands, arguments and output."""
    # Shortened before and after masking: masking a long text is slow, and a value cut in half is not recognised.
    line = text.split("\n", 1)[0][: 2 * LONGEST_WORDS]
    if not line.isprintable():
        # A store refuses NUL and half surrogate pairs, and a terminal must not get escapes.
        line = "".join(it if it.isprintable() else " " for it in line)
    masked = _USER_OF_URL.sub("://…@", _BEARER.sub(r"\1…", _CREDENTIAL.sub(r"\1…", line)))
    return masked[:LONGEST_WORDS]


def _filter_of(shape: Shape) -> Callable[[Any], Any]:
    """A function that returns the kept part of a value of this shape; None for a value of another type.

    Built once for every kind: every object of a cluster passes through it, and interpreting shapes each time would
    cost more than decoding the object.
    """
    match shape:
        case KeptValue(tree=True):
            return lambda value: value
        case KeptValue():
            return lambda value: None if isinstance(value, dict | list) else value
        case Words():
            return lambda value: words(value) if isinstance(value, str) else None
        case Items():
            return _items_filter(_filter_of(shape.shape), shape.named)
        case _:
            return _fields_filter({name: _filter_of(below) for name, below in shape.items()})


def _items_filter(keep: Callable[[Any], Any], named: frozenset[str]) -> Callable[[Any], list[Any] | None]:
    def projected(value: Any) -> list[Any] | None:
        if not isinstance(value, list):
            return None
        chosen = [it for it in value if isinstance(it, dict) and it.get("type") in named] if named else value
        # An entry without kept fields stays as an empty one, because the number of containers is shown.
        return [found for it in chosen if (found := keep(it)) is not None]

    return projected


def _fields_filter(keeps: Mapping[str, Callable[[Any], Any]]) -> Callable[[Any], dict[str, Any] | None]:
    def projected(value: Any) -> dict[str, Any] | None:
        if not isinstance(value, dict):
            return None
        kept_fields = {}
        # In the object's own order: of two volume sources the first one counts.
        for name, below in value.items():
            keep = keeps.get(name)
            if keep is not None and (part := keep(below)) is not None and (part or name != "annotations"):
                kept_fields[name] = part
        return kept_fields

    return projected


_KEPT = {kind: _filter_of({"metadata": _METADATA, **shapes}) for kind, shapes in SHAPES.items()}


def fingerprint() -> int:
    """A hash of all shapes: versions of volsched with the same fingerprint keep the same fields."""
    masks = (_CREDENTIAL.pattern, _BEARER.pattern, _USER_OF_URL.pattern, str(LONGEST_WORDS))
    text = "\n".join([*shown_projection(), *sorted(EVENT_REASONS), *sorted(_POD_CONDITIONS), *masks])
    return int.from_bytes(sha256(text.encode()).digest()[:7], "big")


def shown_projection() -> list[str]:
    """Every kept path, one per line, for people who review the projection."""
    return [line for kind in OBSERVED_KINDS for line in _paths(kind, {"metadata": _METADATA, **SHAPES[kind]})]


def _paths(prefix: str, shape: Shape) -> list[str]:
    match shape:
        case KeptValue(tree=tree):
            return [f"{prefix}.*" if tree else prefix]
        case Words():
            return [f"{prefix} (first line, credentials masked)"]
        case Items():
            return _paths(f"{prefix}[]", shape.shape)
        case _ if not shape:
            return [f"{prefix} (empty)"]
        case _:
            return [
                line
                for name, below in shape.items()
                for line in _paths(f"{prefix}.{name}" if "/" not in name else f'{prefix}["{name}"]', below)
            ]
