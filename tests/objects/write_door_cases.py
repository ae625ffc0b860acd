"""Manifests, good and bad, and what every door says to them."""

import copy
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.support.clusters import claim, node, pod, volume
from volsched.kube.patches import merged

Manifest = dict[str, Any]
ZONE = "topology.kubernetes.io/zone"
CLASS: Manifest = {
    "apiVersion": "storage.k8s.io/v1",
    "kind": "StorageClass",
    "metadata": {"name": "fixed"},
    "provisioner": "x.io/p",
}
SET: Manifest = {
    "apiVersion": "apps/v1",
    "kind": "StatefulSet",
    "metadata": {"name": "set", "namespace": "default"},
    "spec": {
        "serviceName": "set",
        "replicas": 1,
        "selector": {"matchLabels": {"app": "set"}},
        "template": {
            "metadata": {"labels": {"app": "set"}},
            "spec": {"containers": [{"name": "main", "image": "app:1"}]},
        },
    },
}


def but(manifest: Manifest, patch: Mapping[str, Any]) -> Manifest:
    """The manifest with some fields as they should, or should not, be; None takes a field away."""
    return dict(merged(copy.deepcopy(manifest), patch))


def disk(patch: Mapping[str, Any]) -> Manifest:
    return but(volume("disk", "10Gi", "n1"), patch)


def data(patch: Mapping[str, Any]) -> Manifest:
    return but(claim("data", "1Gi"), patch)


def app_(patch: Mapping[str, Any]) -> Manifest:
    return but(pod("app"), patch)


def spec(**fields: Any) -> dict[str, Any]:
    return {"spec": fields}


def meta(**fields: Any) -> dict[str, Any]:
    return {"metadata": fields}


def ref(name: str, **fields: str) -> dict[str, Any]:
    return {"claimRef": {"kind": "PersistentVolumeClaim", "namespace": "shop", "name": name, **fields}}


def nested(levels: int) -> dict[str, Any]:
    return {"below": nested(levels - 1)} if levels else {}


@dataclass(frozen=True)
class Case:
    manifest: Manifest
    reason: str | None = None
    """A part of why it is refused; None: it is accepted."""
    kept_by_controllers: bool = False
    """An unknown field: controllers copy it from what was admitted with it, and are not refused."""
    not_applied: str = ""
    """A part of why server-side apply alone refuses it, as a real server does."""
    reader: bool = False
    """A value of a wrong type: the reader of files reports it in its own words."""
    holds: Mapping[str, Any] = field(default_factory=dict)
    """A merge patch that changes nothing of what is stored: a part of it."""
    before: Manifest | None = None
    """There already: the manifest changes it."""


CREATED = {
    "node": Case(node("plain")),
    "class": Case(but(CLASS, meta(name="new"))),
    "namespace": Case({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "fresh"}}),
    "statefulset": Case(SET),
    "volume": Case(disk({})),
    "claim of a class that is not there": Case(data(spec(storageClassName="nowhere"))),
    "claim without a class": Case(data(spec(storageClassName=None))),
    "claim for one pod": Case(data(spec(accessModes=["ReadWriteOncePod"]))),
    "claim in another namespace": Case(data(meta(namespace="shop"))),
    "pod with a claim": Case(but(pod("app", "data"), {})),
    "pod with a gate": Case(app_(spec(schedulingGates=[{"name": "x.io/wait"}]))),
    "size as a number": Case(disk(spec(capacity={"storage": 1073741824}))),
    "status is dropped": Case(disk({"status": {"phase": "Bound"}}), holds={"status": {"phase": "Pending"}}),
    "finalizers are kept": Case(
        data(meta(finalizers=["x.io/mine"])),
        holds=meta(finalizers=["x.io/mine", "kubernetes.io/pvc-protection"]),
    ),
    "bookkeeping of another server is dropped": Case(
        data(meta(managedFields=[{"manager": "kubectl"}], selfLink="/x")),
        holds=meta(managedFields=None),
        not_applied="metadata.managedFields must be nil",
    ),
    "volume reserved by name": Case(disk(spec(**ref("any")))),
    "volume of a claim that lives": Case(disk(spec(**ref("known", uid="uid-known")))),
    "volume of a claim that lived": Case(disk(spec(**ref("lived", uid="uid-lived")))),
    "volume of an unknown claim": Case(
        disk(spec(**ref("known", uid="uid-other"))), "names a claim that this store has never seen"
    ),
    "zone label becomes an affinity": Case(
        disk({**meta(labels={ZONE: "a"}), **spec(nodeAffinity=None, local=None, hostPath={"path": "/disk"})}),
        holds=spec(
            nodeAffinity={
                "required": {
                    "nodeSelectorTerms": [{"matchExpressions": [{"key": ZONE, "operator": "In", "values": ["a"]}]}]
                }
            }
        ),
    ),
    "zone label beside an affinity": Case(disk(meta(labels={ZONE: "a"}))),
    "priority of a class": Case(app_(spec(priorityClassName="high")), holds=spec(priority=1000)),
    "priority of the system": Case(
        app_(spec(priorityClassName="system-node-critical")), holds=spec(priority=2_000_001_000)
    ),
    "priority class that nobody defined": Case(
        app_(spec(priorityClassName="nope")), "no PriorityClass with name nope was found"
    ),
    "priority without a class": Case(
        app_(spec(priority=7)), "the integer value of priority (7) must not be provided"
    ),
    "namespace that is going": Case(data(meta(namespace="dying")), "because it is being terminated"),
    "unknown field": Case(
        app_(spec(frobs=1)),
        'strict decoding error: unknown field "spec.frobs"',
        kept_by_controllers=True,
        holds=spec(frobs=1),
    ),
    "unknown field of metadata": Case(
        data(meta(lables={"a": "b"})),
        'strict decoding error: unknown field "metadata.lables"',
        kept_by_controllers=True,
        holds=meta(lables={"a": "b"}),
    ),
    "unread field of a wrong type": Case(
        app_(spec(containers=[{"name": "main", "image": "app", "tty": "yes"}])), "cannot unmarshal string"
    ),
    "list that is a text": Case(app_(spec(containers="main")), "cannot unmarshal string", reader=True),
    "bad quantity": Case(disk(spec(capacity={"storage": "10Gib"})), "quantities must match", reader=True),
    "negative size": Case(data(spec(resources={"requests": {"storage": "-1Gi"}})), "greater than zero"),
    "no size": Case(data(spec(resources=None)), "spec.resources"),
    "no access modes": Case(data(spec(accessModes=[])), "spec.accessModes"),
    "one pod beside others": Case(
        data(spec(accessModes=["ReadWriteOncePod", "ReadWriteOnce"])), "spec.accessModes"
    ),
    "bad name": Case(disk(meta(name="Bad_Name")), "metadata.name"),
    "bad label": Case(data(meta(labels={"a": "not valid!"})), "metadata.labels"),
    "bad operator of a selector": Case(
        disk(
            spec(
                nodeAffinity={
                    "required": {"nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "Is"}]}]}
                }
            )
        ),
        "operator",
    ),
    "bad binding mode": Case(but(CLASS, {**meta(name="new"), "volumeBindingMode": "Later"}), "volumeBindingMode"),
    "no containers": Case(app_(spec(containers=[])), "spec.containers"),
    "too large": Case(data(meta(annotations={"a": "x" * 300_000})), "metadata.annotations"),
}
GROWN: Manifest = {"volumeName": "disk", "resources": {"requests": {"storage": "2Gi"}}}
CHANGED = {
    "label": Case(data(meta(labels={"a": "b"})), before=data({}), holds=meta(labels={"a": "b"})),
    "nothing": Case(data({}), before=data({})),
    "image of a pod": Case(
        app_(spec(containers=[{"name": "main", "image": "app:2"}])),
        before=app_(spec(containers=[{"name": "main", "image": "app:1"}])),
    ),
    "template of a set": Case(
        but(SET, spec(template={"spec": {"containers": [{"name": "main", "image": "app:2"}]}})), before=SET
    ),
    "service of a set": Case(but(SET, spec(serviceName="other")), "field is immutable", before=SET),
    "volumes of a pod": Case(
        app_(spec(volumes=[{"name": "v", "emptyDir": {}}])), "pod updates may not change fields", before=app_({})
    ),
    "class of a claim": Case(data(spec(storageClassName="other")), "spec is immutable", before=data({})),
    "source of a volume": Case(
        disk(spec(local={"path": "/elsewhere"})), "spec.persistentvolumesource is immutable", before=disk({})
    ),
    "provisioner of a class": Case(but(CLASS, {"provisioner": "y.io/p"}), "provisioner", before=CLASS),
    "size where the class says nothing": Case(
        data(spec(storageClassName="fixed", **GROWN)),
        "only dynamically provisioned pvc can be resized",
        before=data(spec(storageClassName="fixed", volumeName="disk")),
    ),
    "size where the class allows it": Case(
        data(spec(storageClassName="growing", **GROWN)),
        "volume expansion is not supported yet",
        before=data(spec(storageClassName="growing", volumeName="disk")),
    ),
    "size of a claim that is not bound": Case(
        data(spec(resources=GROWN["resources"])), "spec is immutable", before=data({})
    ),
    "new unknown field": Case(
        data(spec(frobs=1)), 'strict decoding error: unknown field "spec.frobs"', before=data({})
    ),
}  # fmt: skip
