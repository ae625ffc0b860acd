"""Two schedulers on one store."""

from typing import Any

from tests.support.clusters import Stepped, claim, node, pod
from volsched.lab.manifests import storage_class


def follow(stepped: Stepped) -> None:
    """One round of the scheduler alone."""
    stepped.system.catch_up(stepped.now)
    stepped.system.scheduler.step(stepped.now)


def capacity_cluster() -> list[dict[str, Any]]:
    driver = {"apiVersion": "storage.k8s.io/v1", "kind": "CSIDriver", "metadata": {"name": "csi.example.com"}}
    made = storage_class("made", "csi.example.com")
    room = {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "CSIStorageCapacity",
        "metadata": {"name": "pool", "namespace": "default"},
        "storageClassName": "made",
        "nodeTopology": {},
        "capacity": "10Gi",
    }
    return [
        {**driver, "spec": {"storageCapacity": True}}, made, room, node("node-0"), node("node-1"),
        claim("a", "6Gi", "made"), claim("b", "6Gi", "made"), pod("a", "a"), pod("b", "b"),
    ]  # fmt: skip
