"""The objects of simulated clusters: small enough to be read in a schedule, rich enough to be contended for."""

from typing import Any

from volsched.kube.meta import HOSTNAME, ZONE
from volsched.lab.simulation.schedule import ScheduleChoice
from volsched.provisioning.simulated import SIMULATED
from volsched.scheduling.planner import TIMEOUT_SECONDS

Manifest = dict[str, Any]
OUTSIDE = "disks.example.com"
"""A provisioner in a process of its own."""
DISKS = "attached.example.com"
"""A driver with a limit: its volumes are made by hand, and attached to nodes."""
NAMESPACE = "default"
PROVISIONERS = {"local": "kubernetes.io/no-provisioner", "inside": SIMULATED, "outside": OUTSIDE}
"""Class → who makes its volumes."""


def made(choice: ScheduleChoice) -> list[tuple[str, Manifest]]:
    """`create NOUN name=… …` as kinds and manifests; a field that is not given has a plain value."""
    given = choice.options
    name = given.get("name", choice.who)
    match choice.who:
        case "class":
            return [("StorageClass", _class(name, given.get("seconds"), given.get("room")))]
        case "node":
            # With its drivers: to a provisioner a node without them is none, and it would refuse it for ever.
            drivers = _csi_node(name, given.get("limit"))
            return [("Node", _node(name, given.get("zone", "z1"))), ("CSINode", drivers)]
        case "misfit":
            # To the one outside a place of its own: it would neither make anything nor give the node back.
            return [("Node", _node(name, "")), ("CSINode", _csi_node(name, None, key=HOSTNAME))]
        case "volume":
            made_here = local_volume(name, given.get("size", "5"), given.get("node", "n1"))
            return [("PersistentVolume", _attachable(made_here) if "disk" in given else made_here)]
        case "claim":
            return [("PersistentVolumeClaim", claim(name, given.get("size", "1"), given.get("class", "local")))]
        case "pod":
            return [("Pod", pod(name, given.get("claims", ""), given.get("seconds", "30")))]
    return []


def _node(name: str, zone: str) -> Manifest:
    labels = {HOSTNAME: name} | ({ZONE: zone} if zone else {})
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}}


def _csi_node(name: str, limit: str | None, *, key: str = ZONE) -> Manifest:
    drivers: list[Manifest] = [{"name": OUTSIDE, "nodeID": name, "topologyKeys": [key]}]
    if limit is not None:
        drivers.append({"name": DISKS, "nodeID": name, "topologyKeys": [], "allocatable": {"count": int(limit)}})
    spec = {"drivers": drivers}
    return {"apiVersion": "storage.k8s.io/v1", "kind": "CSINode", "metadata": {"name": name}, "spec": spec}


def _attachable(volume: Manifest) -> Manifest:
    """The same on a disk that a driver attaches."""
    spec = {key: value for key, value in volume["spec"].items() if key != "local"}
    disk = {"driver": DISKS, "volumeHandle": volume["metadata"]["name"]}
    return {**volume, "spec": {**spec, "csi": disk}}


def _class(name: str, seconds: str | None, room: str | None) -> Manifest:
    parameters = {} if seconds is None else {"latencySeconds": seconds}
    parameters |= {} if room is None else {"capacityPerDomain": f"{room}Gi"}
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": name},
        "provisioner": PROVISIONERS.get(name, OUTSIDE),
        "volumeBindingMode": "WaitForFirstConsumer",
        "parameters": parameters,
    }


def local_volume(name: str, size: str, node: str, class_name: str = "local") -> Manifest:
    term = {"key": HOSTNAME, "operator": "In", "values": [node]}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name},
        "spec": {
            "capacity": {"storage": f"{size}Gi"},
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": class_name,
            "persistentVolumeReclaimPolicy": "Retain",
            "local": {"path": f"/disks/{name}"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [term]}]}},
        },
    }


def claim(name: str, size: str, class_name: str) -> Manifest:
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": class_name,
            "resources": {"requests": {"storage": f"{size}Gi"}},
        },
    }


def pod(name: str, claims: str, seconds: str) -> Manifest:
    """`claims` are names with commas between them; `seconds` is how long it waits for its volumes."""
    mounts = [
        {"name": f"v{place}", "persistentVolumeClaim": {"claimName": it}}
        for place, it in enumerate(filter(None, claims.split(",")))
    ]
    notes = {TIMEOUT_SECONDS: seconds}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": NAMESPACE, "annotations": notes},
        "spec": {"containers": [{"name": "main", "image": "app"}], "volumes": mounts},
    }
