"""An external provisioner as a process of its own: it knows the Kubernetes API and nothing else of volsched.

    python tests/api/provisioner_process.py URL DRIVER

It lists and watches claims; for each that is ordered from it and has a node, it makes a volume in that node's zone
and leaves the binding to the controller.
"""

import sys
from typing import Any

from kubernetes import client, watch

ORDERED = ("volume.kubernetes.io/storage-provisioner", "volume.beta.kubernetes.io/storage-provisioner")
SELECTED_NODE = "volume.kubernetes.io/selected-node"
FINALIZER = "external-provisioner.volume.kubernetes.io/finalizer"


def main(url: str, driver: str) -> None:
    with client.ApiClient(client.Configuration(host=url)) as connection:
        core, storage = client.CoreV1Api(connection), client.StorageV1Api(connection)
        listed = core.list_persistent_volume_claim_for_all_namespaces()
        for claim in listed.items:
            provision(core, storage, driver, claim)
        following = watch.Watch().stream(
            core.list_persistent_volume_claim_for_all_namespaces,
            resource_version=listed.metadata.resource_version,
        )
        for event in following:
            if event["type"] != "DELETED":
                provision(core, storage, driver, event["object"])


def provision(core: client.CoreV1Api, storage: client.StorageV1Api, driver: str, claim: Any) -> None:
    notes = claim.metadata.annotations or {}
    ordered = next((notes[key] for key in ORDERED if key in notes), None)
    if claim.spec.volume_name or ordered != driver or SELECTED_NODE not in notes:
        return
    wanted = storage.read_storage_class(claim.spec.storage_class_name)
    csi_node = storage.read_csi_node(notes[SELECTED_NODE])
    (keys,) = [it.topology_keys for it in csi_node.spec.drivers if it.name == driver]
    labels = core.read_node(notes[SELECTED_NODE]).metadata.labels
    terms = [{"key": key, "operator": "In", "values": [labels[key]]} for key in keys]
    volume = {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {
            "name": f"pvc-{claim.metadata.uid}",
            "annotations": {"pv.kubernetes.io/provisioned-by": driver},
            "finalizers": [FINALIZER],
        },
        "spec": {
            "capacity": {"storage": claim.spec.resources.requests["storage"]},
            "accessModes": claim.spec.access_modes,
            "persistentVolumeReclaimPolicy": wanted.reclaim_policy,
            "storageClassName": claim.spec.storage_class_name,
            "claimRef": {
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "namespace": claim.metadata.namespace,
                "name": claim.metadata.name,
                "uid": claim.metadata.uid,
            },
            "csi": {"driver": driver, "volumeHandle": f"disk-of-{claim.metadata.uid}"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": terms}]}},
        },
    }
    try:
        core.create_persistent_volume(volume)
    except client.ApiException as error:
        if error.status != 409:
            raise


if __name__ == "__main__":
    main(*sys.argv[1:])
