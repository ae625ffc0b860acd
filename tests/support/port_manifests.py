"""Ready objects for clusters: valid, small, and different where it matters."""

from typing import Any

from volsched.kube.meta import HOSTNAME
from volsched.lab import manifests


def node(name: str = "n1", **labels: str) -> dict[str, Any]:
    return manifests.node(name, **labels)


def volume(name: str = "pv", *, size: str = "10Gi", on: str | None = "n1") -> dict[str, Any]:
    spec: dict[str, Any] = {
        "capacity": {"storage": size},
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": "fast",
        "csi": {"driver": "disk.example.com", "volumeHandle": name},
    }
    if on is not None:
        here = {"key": HOSTNAME, "operator": "In", "values": [on]}
        spec["nodeAffinity"] = {"required": {"nodeSelectorTerms": [{"matchExpressions": [here]}]}}
    return {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name}, "spec": spec}


def claim(name: str = "data", *, namespace: str = "db") -> dict[str, Any]:
    return manifests.claim(name, "1Gi", "fast", namespace=namespace)


def pod(name: str = "app", *claims: str, namespace: str = "db") -> dict[str, Any]:
    return manifests.pod(name, {it: it for it in claims}, namespace=namespace)
