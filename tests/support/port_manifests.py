"""Ready objects for clusters: valid, small, and different where it matters."""

from typing import Any

from volsched.kube.meta import HOSTNAME


def node(name: str = "n1", **labels: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": {HOSTNAME: name, **labels}}}


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
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Gi"}},
            "storageClassName": "fast",
        },
    }


def pod(name: str = "app", *claims: str, namespace: str = "db") -> dict[str, Any]:
    volumes = [{"name": it, "persistentVolumeClaim": {"claimName": it}} for it in claims]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"containers": [{"name": "main", "image": "app"}], "volumes": volumes},
    }
