"""Finalizers that protect claims and volumes in use, and repairs that every object gets."""

from collections.abc import Iterable, Mapping
from enum import Enum

from volsched.kube.meta import (
    BETA_STORAGE_PROVISIONER,
    EXTERNAL_PROVISIONER_FINALIZER,
    MIGRATED_TO,
    PROVISIONED_BY,
    PV_CONTROLLER_FINALIZER,
    PV_PROTECTION,
    PVC_PROTECTION,
    STORAGE_PROVISIONER,
    Metadata,
)
from volsched.kube.storage import Claim, Volume
from volsched.kube.workloads import Pod
from volsched.pv_controller.rules.bind_writes import save_claim, save_volume, with_annotations, with_finalizers
from volsched.pv_controller.rules.reasons import BOUND
from volsched.pv_controller.rules.requests import (
    CLAIM,
    VOLUME,
    ControllerRules,
    Enqueue,
    LivePods,
    Manifest,
    Steps,
)
from volsched.pv_controller.rules.view import ParsedObject, View, parsed_pod, protects


class Protection(Enum):
    """The action on the finalizer."""

    ADD = "add"
    KEEP = "keep"
    REMOVE = "remove"


def after_claim_deleted(claim: Claim) -> Enqueue | None:
    """Sync a deleted claim's volume at once, so that it is released before the next resync."""
    return Enqueue(VOLUME, claim.volume_name) if claim.volume_name else None


def after_volume_deleted(volume: Volume) -> Enqueue | None:
    """Sync a deleted volume's claim at once, so that it reports the lost data."""
    ref = volume.claim_ref
    return None if ref is None else Enqueue(CLAIM, f"{ref.namespace}/{ref.name}")


def claim_protection(claim: Claim, pods: Iterable[ParsedObject[Pod]]) -> Protection:
    return _protection(claim.meta, PVC_PROTECTION, in_use=any(protects(pod, claim) for pod in pods))


def volume_protection(volume: Volume) -> Protection:
    return _protection(volume.meta, PV_PROTECTION, in_use=volume.phase == BOUND)


def protect_claim(view: View, claim: ParsedObject[Claim]) -> Steps[None]:
    wanted = claim_protection(claim.value, view.pods_using(claim.meta.key))
    if wanted is Protection.REMOVE:
        # A pod that our cache does not know yet may be starting; only the store is certain.
        manifests = yield LivePods(claim.meta.namespace)
        wanted = claim_protection(claim.value, [parsed_pod(manifest) for manifest in manifests])
    else:
        pass
    finalizers = _changed(claim.meta.finalizers, PVC_PROTECTION, wanted)
    if finalizers != claim.meta.finalizers:
        yield from save_claim(with_finalizers(claim.manifest, finalizers))
    else:
        # Protected already, or no longer ours to protect.
        pass


def protect_volume(volume: ParsedObject[Volume]) -> Steps[None]:
    finalizers = _changed(volume.meta.finalizers, PV_PROTECTION, volume_protection(volume.value))
    if finalizers != volume.meta.finalizers:
        yield from save_volume(with_finalizers(volume.manifest, finalizers))
    else:
        pass


def _protection(meta: Metadata, finalizer: str, *, in_use: bool) -> Protection:
    if not meta.being_deleted:
        return Protection.KEEP if finalizer in meta.finalizers else Protection.ADD
    if finalizer not in meta.finalizers:
        # A finalizer cannot be added during deletion.
        return Protection.KEEP
    return Protection.KEEP if in_use else Protection.REMOVE


def _changed(finalizers: tuple[str, ...], finalizer: str, wanted: Protection) -> tuple[str, ...]:
    if wanted is Protection.ADD:
        changed = (*finalizers, finalizer)
    elif wanted is Protection.REMOVE:
        changed = tuple(name for name in finalizers if name != finalizer)
    else:
        changed = finalizers
    return changed


# Repairs that run first on every object: the migrated-to annotation, and the deletion finalizers.

DELETE = "Delete"
RETAIN = "Retain"
RECYCLE = "Recycle"


def keep_claim_up(claim: ParsedObject[Claim], *, rules: ControllerRules) -> Steps[ParsedObject[Claim]]:
    manifest = with_migration(claim.manifest, claim_provisioner(claim.meta.annotations), rules=rules)
    if manifest is not claim.manifest:
        kept = yield from save_claim(manifest)
    else:
        kept = claim
    return kept


def keep_volume_up(volume: ParsedObject[Volume], *, rules: ControllerRules) -> Steps[ParsedObject[Volume]]:
    """Make both repairs in one write; if the store refuses it on a volume being deleted, the sync ends there."""
    manifest = with_migration(volume.manifest, volume.meta.annotations.get(PROVISIONED_BY), rules=rules)
    finalizers = guarding_finalizers(volume.value, rules=rules)
    if finalizers != volume.meta.finalizers:
        manifest = with_finalizers(manifest, finalizers)
    else:
        # Its finalizers are correct, or not ours.
        pass
    if manifest is not volume.manifest:
        kept = yield from save_volume(manifest)
    else:
        kept = volume
    return kept


def claim_provisioner(annotations: Mapping[str, str]) -> str | None:
    return annotations.get(STORAGE_PROVISIONER, annotations.get(BETA_STORAGE_PROVISIONER))


def with_migration(manifest: Manifest, provisioner: str | None, *, rules: ControllerRules) -> Manifest:
    """The migrated-to annotation, made consistent with the provisioner; the same manifest if it is already."""
    noted = (manifest["metadata"].get("annotations") or {}).get(MIGRATED_TO)
    if provisioner is None:
        # Not provisioned through us, so the annotation belongs to another component.
        agreed = manifest
    elif provisioner in rules.migrated:
        driver = rules.migrated[provisioner]
        agreed = manifest if noted == driver else with_annotations(manifest, add={MIGRATED_TO: driver})
    elif noted:
        agreed = with_annotations(manifest, drop=(MIGRATED_TO,))
    else:
        agreed = manifest
    return agreed


def guarding_finalizers(volume: Volume, *, rules: ControllerRules) -> tuple[str, ...]:
    """The correct finalizers: a volume whose storage we delete keeps ours until the storage is deleted."""
    wanted = list(volume.meta.finalizers)
    provisioner = volume.meta.annotations.get(PROVISIONED_BY)
    if provisioner is None:
        # Created by an administrator, who also deletes the storage.
        pass
    elif provisioner in rules.migrated:
        wanted = [name for name in wanted if name != PV_CONTROLLER_FINALIZER]
    elif rules.is_in_tree(provisioner):
        if volume.reclaim_policy == DELETE and PV_CONTROLLER_FINALIZER not in wanted:
            wanted.append(PV_CONTROLLER_FINALIZER)
        elif volume.reclaim_policy in (RETAIN, RECYCLE):
            wanted = [name for name in wanted if name != PV_CONTROLLER_FINALIZER]
        else:
            # It has our finalizer already, or an unknown policy: then nothing is deleted.
            pass
        wanted = [name for name in wanted if name != EXTERNAL_PROVISIONER_FINALIZER]
    else:
        # An external provisioner protects its volumes itself.
        pass
    return tuple(wanted)
