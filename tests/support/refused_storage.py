"""Storage that refuses."""

from typing import Any

REFUSED = 'Failed to provision volume with StorageClass "sim": Internal: the array refuses'


ZONE = "topology.kubernetes.io/zone"


def simulated(**parameters: str) -> dict[str, Any]:
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": "sim"},
        "provisioner": "volsched.io/simulated",
        "volumeBindingMode": "WaitForFirstConsumer",
        "parameters": parameters,
    }
