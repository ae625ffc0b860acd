"""The objects of the demo: a small cluster with local disks and zonal storage, and pods that want some of it."""

from typing import Any

from volsched.kube.meta import HOSTNAME, ZONE
from volsched.provisioning.simulated import SIMULATED

Manifest = dict[str, Any]
NO_PROVISIONER = "kubernetes.io/no-provisioner"
SHOP = "shop"
LATENCY_SECONDS = "0.2"
"""What the provisioner takes for a volume."""


def node(name: str, zone: str) -> Manifest:
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": {HOSTNAME: name, ZONE: zone}}}


def storage_class(name: str, provisioner: str = NO_PROVISIONER, **parameters: str) -> Manifest:
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": name},
        "provisioner": provisioner,
        "volumeBindingMode": "WaitForFirstConsumer",
        "parameters": parameters,
    }


def disk(name: str, size: str, host: str, class_name: str = "local", **labels: str) -> Manifest:
    term = {"key": HOSTNAME, "operator": "In", "values": [host]}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name, "labels": labels},
        "spec": {
            "capacity": {"storage": size},
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": class_name,
            "persistentVolumeReclaimPolicy": "Retain",
            "local": {"path": f"/mnt/{name}"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [term]}]}},
        },
    }


def pod(name: str, claims: dict[str, tuple[str, str]], **wanted: dict[str, str]) -> list[Manifest]:
    """A pod behind its claims, each of a size and a class; `wanted` are labels that a claim's volume must have."""
    made: list[Manifest] = []
    for claim, (size, class_name) in claims.items():
        spec: Manifest = {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": class_name,
            "resources": {"requests": {"storage": size}},
        }
        if claim in wanted:
            spec["selector"] = {"matchLabels": wanted[claim]}
        metadata = {"name": f"{claim}-{name}", "namespace": SHOP}
        made.append({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": spec})
    volumes = [{"name": it, "persistentVolumeClaim": {"claimName": f"{it}-{name}"}} for it in claims]
    spec = {"containers": [{"name": "main", "image": "app"}], "volumes": volumes}
    metadata = {"name": name, "namespace": SHOP}
    return [*made, {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}]


CLUSTER = [
    storage_class("local"),
    storage_class("zonal", SIMULATED, capacityPerDomain="500Gi", latencySeconds=LATENCY_SECONDS),
    node("node-a1", "a"),
    node("node-a2", "a"),
    node("node-b1", "b"),
    disk("ssd-a1", "50Gi", "node-a1", tier="ssd"),
    disk("hdd-a1", "200Gi", "node-a1", tier="hdd"),
    disk("ssd-a2-0", "30Gi", "node-a2", tier="ssd"),
    disk("ssd-a2-1", "30Gi", "node-a2", tier="ssd"),
    disk("ssd-b1", "50Gi", "node-b1", tier="ssd"),
    disk("hdd-b1", "60Gi", "node-b1", tier="hdd"),
]
DATABASE = pod(
    "db-0",
    {"journal": ("20Gi", "local"), "data": ("150Gi", "local"), "backup": ("300Gi", "zonal")},
    journal={"tier": "ssd"},
)
CONTENDER = pod("analytics-0", {"model": ("150Gi", "local"), "scratch": ("300Gi", "zonal")})
"""The only disk of that size is the database's by then, and so is most of the room in zone a."""
LEDGER = pod("ledger-0", {"log": ("25Gi", "local"), "book": ("25Gi", "local")})
RACK = [
    storage_class("rack"),
    node("node-0", "c"),
    node("node-1", "c"),
    disk("n1-small", "3Gi", "node-1", "rack"),
    disk("n1-large", "7Gi", "node-1", "rack"),
    disk("n0-small", "4Gi", "node-0", "rack"),
    disk("n0-large", "8Gi", "node-0", "rack"),
]
"""Node 1 fits closest, so that it is chosen first."""
QUEUE = pod("queue-0", {"small": ("2Gi", "rack"), "large": ("6Gi", "rack")})
