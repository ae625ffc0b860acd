"""Small valid objects that the demo, the drills and the simulation put into their clusters."""

from collections.abc import Mapping
from typing import Any

from volsched.kube.meta import DEFAULT_NAMESPACE, HOSTNAME

Manifest = dict[str, Any]
NAMESPACE = DEFAULT_NAMESPACE


def storage_class(name: str, provisioner: str, **fields: Any) -> Manifest:
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": name},
        "provisioner": provisioner,
        "volumeBindingMode": "WaitForFirstConsumer",
        **fields,
    }


def node(name: str, **labels: str) -> Manifest:
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": {HOSTNAME: name, **labels}}}


def local_volume(
    name: str, size: str, host: str, class_name: str = "local", *, directory: str = "/disks", **metadata: Any
) -> Manifest:
    """A disk that only one node reaches."""
    term = {"key": HOSTNAME, "operator": "In", "values": [host]}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name, **metadata},
        "spec": {
            "capacity": {"storage": size},
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": class_name,
            "persistentVolumeReclaimPolicy": "Retain",
            "local": {"path": f"{directory}/{name}"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [term]}]}},
        },
    }


def claim(
    name: str, size: str, class_name: str = "local", *, namespace: str = NAMESPACE, **fields: Any
) -> Manifest:
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": class_name,
            "resources": {"requests": {"storage": size}},
            **fields,
        },
    }


def pod(
    name: str, claims: Mapping[str, str], *, namespace: str = NAMESPACE, scheduler: str = "", **metadata: Any
) -> Manifest:
    """`claims`: by the names of the pod's volumes."""
    volumes = [{"name": name, "persistentVolumeClaim": {"claimName": claim}} for name, claim in claims.items()]
    spec = {"containers": [{"name": "main", "image": "app"}], "volumes": volumes}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, **metadata},
        "spec": {"schedulerName": scheduler, **spec} if scheduler else spec,
    }
