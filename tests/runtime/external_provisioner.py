"""What an external provisioner does, by hand, and what has become of its claims."""

from typing import Any

from tests.support.clusters import (
    Stepped,
    volume,
)
from volsched.cluster.port import whole
from volsched.log.integrity.verify import verify


def provision(stepped: Stepped, name: str, host: str) -> None:
    """What an external provisioner does: make the volume for the claim, and nothing else."""
    wanted = stepped.cluster.get("PersistentVolumeClaim", f"default/{name}") or {}
    made = volume(f"pvc-{wanted['metadata']['uid']}", "6Gi", host, "made")
    made["metadata"]["annotations"] = {"pv.kubernetes.io/provisioned-by": "disks.example.com"}
    made["spec"] |= {
        "claimRef": {"kind": "PersistentVolumeClaim", "apiVersion": "v1", "namespace": "default", "name": name,
                     "uid": wanted["metadata"]["uid"]},
        "persistentVolumeReclaimPolicy": "Delete",
    }  # fmt: skip
    stepped.create(made)


def annotations(stepped: Stepped, name: str) -> dict[str, Any]:
    found = stepped.cluster.get("PersistentVolumeClaim", f"default/{name}") or {}
    return dict(found["metadata"].get("annotations", {}))


def volumes(stepped: Stepped) -> list[str]:
    return [it["metadata"]["name"] for it in whole(stepped.cluster.list("PersistentVolume")).objects]


def ended_well(stepped: Stepped) -> None:
    assert all(not row.open for row in stepped.bindings())
    assert verify(stepped.database).ok
