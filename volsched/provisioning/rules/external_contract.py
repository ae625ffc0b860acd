"""When an external provisioner acts on a claim or a volume, and what it writes."""

from collections.abc import Mapping, Sequence
from typing import Any

from volsched.kube.meta import (
    EXTERNAL_PROVISIONER_FINALIZER,
    MIGRATED_TO,
    PROVISIONED_BY,
    ROLLBACK,
    SELECTED_NODE_KEYS,
)
from volsched.kube.quantity import NANO, Quantity, SuffixFamily
from volsched.kube.storage import WAIT_FOR_FIRST_CONSUMER, Claim, StorageClass, Volume
from volsched.provisioning.rules.driver_outcomes import Created
from volsched.provisioning.rules.topology_requirement import Term
from volsched.pv_controller.rules.bind_writes import claim_reference
from volsched.pv_controller.rules.manifest_edits import with_annotations
from volsched.pv_controller.rules.normalization import DELETE, claim_provisioner
from volsched.pv_controller.rules.phases import BOUND, RELEASED
from volsched.pv_controller.rules.provision import provisioned_name

Manifest = Mapping[str, Any]


def selected_node(claim: Claim) -> str:
    """The node of the first consumer; empty: none is chosen."""
    return next((claim.meta.annotations[key] for key in SELECTED_NODE_KEYS if key in claim.meta.annotations), "")


def wants_volume(
    claim: Claim, storage_class: StorageClass | None, *, driver: str, own_node: str | None = None
) -> bool:
    """`own_node`: a deployment that serves one node alone."""
    notes = claim.meta.annotations
    ours = driver in (claim_provisioner(notes), notes.get(MIGRATED_TO))
    if claim.volume_name or not ours or storage_class is None or ROLLBACK in notes:
        return False
    if own_node is not None:
        return selected_node(claim) == own_node
    return storage_class.volume_binding_mode != WAIT_FOR_FIRST_CONSUMER or selected_node(claim) != ""


def made_volume(
    claim: Claim, storage_class: StorageClass, created: Created, *, driver: str, mount_options: Sequence[str] = ()
) -> dict[str, Any]:
    """The volume's object. No phase and no claim's volumeName: the PV controller completes the binding."""
    size = Quantity(created.bytes * NANO, SuffixFamily.BINARY) if created.bytes else claim.size
    spec: dict[str, Any] = {
        "capacity": {"storage": str(size)},
        "accessModes": list(claim.access_modes),
        "volumeMode": claim.mode,
        "persistentVolumeReclaimPolicy": storage_class.reclaim_policy or DELETE,
        "storageClassName": claim.class_name,
        "claimRef": claim_reference(claim),
        "csi": {"driver": driver, "volumeHandle": created.handle},
    }
    terms = [term_selector(term) for term in created.topologies if term]
    if terms:
        spec["nodeAffinity"] = {"required": {"nodeSelectorTerms": terms}}
    if mount_options:
        spec["mountOptions"] = list(mount_options)
    if claim.attributes_class:
        # An empty one means none, which a volume says by leaving the field out.
        spec["volumeAttributesClassName"] = claim.attributes_class
    metadata = {
        "name": provisioned_name(claim),
        "annotations": {PROVISIONED_BY: storage_class.provisioner},
        "finalizers": [EXTERNAL_PROVISIONER_FINALIZER],
    }
    return {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": metadata, "spec": spec}


def term_selector(term: Term) -> dict[str, Any]:
    return {"matchExpressions": [{"key": key, "operator": "In", "values": [value]} for key, value in term]}


def is_ours(volume: Volume, *, driver: str) -> bool:
    notes = volume.meta.annotations
    return driver in (notes.get(PROVISIONED_BY), notes.get(MIGRATED_TO))


def is_to_be_deleted(volume: Volume, *, driver: str) -> bool:
    guarded = EXTERNAL_PROVISIONER_FINALIZER in volume.meta.finalizers
    return (
        is_ours(volume, driver=driver)
        and volume.phase == RELEASED
        and volume.reclaim_policy == DELETE
        and (guarded or not volume.meta.being_deleted)
    )


def guarding(volume: Volume, *, driver: str) -> tuple[str, ...]:
    """The finalizers as they should be: a volume whose storage we must delete is not gone before we have."""
    held = volume.meta.finalizers
    if not is_ours(volume, driver=driver):
        return held
    guarded = EXTERNAL_PROVISIONER_FINALIZER in held
    if volume.reclaim_policy != DELETE:
        return tuple(name for name in held if name != EXTERNAL_PROVISIONER_FINALIZER)
    if volume.phase == BOUND and not guarded and not volume.meta.being_deleted:
        return (*held, EXTERNAL_PROVISIONER_FINALIZER)
    return held


def without_node(manifest: Manifest) -> dict[str, Any]:
    """The claim with the choice of a node given back to the scheduler."""
    return with_annotations(manifest, drop=SELECTED_NODE_KEYS)
