"""A vocabulary of ready objects, so that a test says only what it is about.

Objects are made from manifests by the same reader that the product uses; nothing is defaulted or validated.
"""

from dataclasses import replace
from typing import Any

from volsched.kube.kinds import KINDS, Manifest
from volsched.kube.meta import BIND_COMPLETED, BOUND_BY_CONTROLLER, HOSTNAME, SELECTED_NODE, ZONE
from volsched.kube.storage import Claim, CSIDriver, CSINode, StorageCapacity, StorageClass, Volume
from volsched.kube.workloads import Node, Pod
from volsched.scheduling.rules.profile import VOLSCHED

RWO = "ReadWriteOnce"
ROX = "ReadOnlyMany"
RWX = "ReadWriteMany"
BY_NAME = replace(VOLSCHED, ties_by_pod=False)
"""Among equally good nodes the smallest name: for tests in which ties happen that they are not about."""


def read(kind: str, manifest: Manifest) -> Any:
    return KINDS[kind].read(manifest)


def node(name: str = "n1", *, labels: dict[str, str] | None = None, **manifest: Any) -> Node:
    given = {HOSTNAME: name} if labels is None else labels
    return read("Node", {"metadata": {"name": name, "labels": given}, **manifest})


def in_zone(name: str, zone: str) -> Node:
    return node(name, labels={HOSTNAME: name, ZONE: zone})


def affinity(*terms: dict[str, Any]) -> dict[str, Any]:
    return {"required": {"nodeSelectorTerms": list(terms)}}


def needs(key: str, operator: str, *values: str) -> dict[str, Any]:
    return {"key": key, "operator": operator, "values": list(values)}


def on_node(name: str) -> dict[str, Any]:
    return affinity({"matchExpressions": [needs(HOSTNAME, "In", name)]})


def on_zone(*zones: str) -> dict[str, Any]:
    return affinity({"matchExpressions": [needs(ZONE, "In", *zones)]})


def volume(
    name: str = "pv",
    size: str = "10Gi",
    *,
    cls: str = "fast",
    modes: tuple[str, ...] = (RWO,),
    phase: str = "Available",
    labels: dict[str, str] | None = None,
    annotations: dict[str, str] | None = None,
    claim_ref: dict[str, str] | None = None,
    deleted: bool = False,
    rv: str = "1",
    **spec: Any,
) -> Volume:
    metadata: dict[str, Any] = {
        "name": name, "uid": f"uid-{name}", "resourceVersion": rv,
        "labels": labels or {}, "annotations": annotations or {},
    }  # fmt: skip
    if deleted:
        metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    if claim_ref is not None:
        spec["claimRef"] = claim_ref
    if "local" not in spec:
        spec.setdefault("csi", {"driver": "csi.example.com", "volumeHandle": name})
    full = {"capacity": {"storage": size}, "accessModes": list(modes), "storageClassName": cls, **spec}
    return read("PersistentVolume", {"metadata": metadata, "spec": full, "status": {"phase": phase}})


def local_volume(name: str, size: str, host: str, **kw: Any) -> Volume:
    return volume(name, size, nodeAffinity=on_node(host), local={"path": f"/mnt/{name}"}, **kw)


def claim(
    name: str = "data",
    size: str | None = "8Gi",
    *,
    cls: str | None = "fast",
    modes: tuple[str, ...] = (RWO,),
    namespace: str = "db",
    annotations: dict[str, str] | None = None,
    bound_to: str | None = None,
    selected: str | None = None,
    phase: str | None = None,
    deleted: bool = False,
    rv: str = "1",
    **spec: Any,
) -> Claim:
    notes = dict(annotations or {})
    if bound_to is not None:
        notes |= {BIND_COMPLETED: "yes", BOUND_BY_CONTROLLER: "yes"}
        spec["volumeName"] = bound_to
    if selected is not None:
        notes[SELECTED_NODE] = selected
    metadata: dict[str, Any] = {
        "name": name, "namespace": namespace, "uid": f"uid-{name}", "resourceVersion": rv, "annotations": notes,
    }  # fmt: skip
    if deleted:
        metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    full: dict[str, Any] = {"accessModes": list(modes), **spec}
    if size is not None:
        full["resources"] = {"requests": {"storage": size}}
    if cls is not None:
        full["storageClassName"] = cls
    status = {"phase": phase or ("Bound" if bound_to else "Pending")}
    return read("PersistentVolumeClaim", {"metadata": metadata, "spec": full, "status": status})


def ref_to(target: Claim, *, uid: str | None = None) -> dict[str, str]:
    """A claimRef that names the claim; `uid=""` pre-binds by name only."""
    return {
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": target.meta.namespace,
        "name": target.name, "uid": target.meta.uid if uid is None else uid,
    }  # fmt: skip


def storage_class(
    name: str = "fast",
    *,
    mode: str | None = "WaitForFirstConsumer",
    provisioner: str = "kubernetes.io/no-provisioner",
    topologies: list[dict[str, list[str]]] | None = None,
) -> StorageClass:
    manifest: dict[str, Any] = {"metadata": {"name": name}, "provisioner": provisioner}
    if mode is not None:
        manifest["volumeBindingMode"] = mode
    if topologies is not None:
        manifest["allowedTopologies"] = [
            {"matchLabelExpressions": [{"key": key, "values": values} for key, values in term.items()]}
            for term in topologies
        ]
    return read("StorageClass", manifest)


def dynamic_class(name: str = "dyn", **kw: Any) -> StorageClass:
    return storage_class(name, provisioner="csi.example.com", **kw)


def driver(*, name: str = "csi.example.com", storage_capacity: bool = True) -> CSIDriver:
    return read("CSIDriver", {"metadata": {"name": name}, "spec": {"storageCapacity": storage_capacity}})


def csi_node(name: str, *, migrated: str | None = None, **limits: int) -> CSINode:
    """Limits by driver; `_` in a keyword stands for `.`."""
    notes = {} if migrated is None else {"storage.alpha.kubernetes.io/migrated-plugins": migrated}
    drivers = [{"name": key.replace("_", "."), "allocatable": {"count": n}} for key, n in limits.items()]
    return read("CSINode", {"metadata": {"name": name, "annotations": notes}, "spec": {"drivers": drivers}})


def capacity(
    name: str = "cap",
    size: str | None = "100Gi",
    *,
    cls: str = "dyn",
    topology: dict[str, Any] | None = None,
    maximum: str | None = None,
) -> StorageCapacity:
    manifest: dict[str, Any] = {"metadata": {"name": name, "namespace": "csi"}, "storageClassName": cls}
    manifest["nodeTopology"] = {} if topology is None else topology
    if size is not None:
        manifest["capacity"] = size
    if maximum is not None:
        manifest["maximumVolumeSize"] = maximum
    return read("CSIStorageCapacity", manifest)


def pod(
    *claims: str,
    name: str = "app",
    namespace: str = "db",
    on: str = "",
    phase: str = "Pending",
    volumes: list[dict[str, Any]] | None = None,
    labels: dict[str, str] | None = None,
    **more: Any,
) -> Pod:
    """A pod that mounts these claims by name; `volumes` and other fields of its spec as written."""
    entries = [{"name": f"v{i}", "persistentVolumeClaim": {"claimName": c}} for i, c in enumerate(claims)]
    spec: dict[str, Any] = {"volumes": entries + (volumes or []), **more}
    if on:
        spec["nodeName"] = on
    metadata = {"name": name, "namespace": namespace, "uid": f"uid-{name}", "labels": labels or {}}
    return read("Pod", {"metadata": metadata, "spec": spec, "status": {"phase": phase}})
