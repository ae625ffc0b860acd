"""What is put right on every object before anything else: the migrated-to note, and who guards a deletion."""

from collections.abc import Mapping

from volsched.kube.meta import (
    BETA_STORAGE_PROVISIONER,
    EXTERNAL_PROVISIONER_FINALIZER,
    MIGRATED_TO,
    PROVISIONED_BY,
    PV_CONTROLLER_FINALIZER,
    STORAGE_PROVISIONER,
)
from volsched.kube.storage import Claim, Volume
from volsched.pv_controller.rules.manifest_edits import with_annotations, with_finalizers
from volsched.pv_controller.rules.modes import ControllerRules
from volsched.pv_controller.rules.requests import Manifest, Steps
from volsched.pv_controller.rules.view import Held
from volsched.pv_controller.rules.writes import save_claim, save_volume

DELETE = "Delete"
RETAIN = "Retain"
RECYCLE = "Recycle"


def keep_claim_up(claim: Held[Claim], *, rules: ControllerRules) -> Steps[Held[Claim]]:
    manifest = with_migration(claim.manifest, claim_provisioner(claim.meta.annotations), rules=rules)
    if manifest is not claim.manifest:
        kept = yield from save_claim(manifest)
    else:
        kept = claim
    return kept


def keep_volume_up(volume: Held[Volume], *, rules: ControllerRules) -> Steps[Held[Volume]]:
    """One write for both; on a volume that is being deleted the store may refuse it, and the sync ends there."""
    manifest = with_migration(volume.manifest, volume.meta.annotations.get(PROVISIONED_BY), rules=rules)
    finalizers = guarding_finalizers(volume.value, rules=rules)
    if finalizers != volume.meta.finalizers:
        manifest = with_finalizers(manifest, finalizers)
    else:
        # Guarded as it should be, or not ours to guard.
        pass
    if manifest is not volume.manifest:
        kept = yield from save_volume(manifest)
    else:
        kept = volume
    return kept


def claim_provisioner(annotations: Mapping[str, str]) -> str | None:
    return annotations.get(STORAGE_PROVISIONER, annotations.get(BETA_STORAGE_PROVISIONER))


def with_migration(manifest: Manifest, provisioner: str | None, *, rules: ControllerRules) -> Manifest:
    """The note that a CSI driver took over, made to agree with the provisioner; the same manifest if it does."""
    noted = (manifest["metadata"].get("annotations") or {}).get(MIGRATED_TO)
    if provisioner is None:
        # Nobody provisions it through us; whatever the note says is somebody else's.
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
    """The finalizers as they should be: the one whose storage is deleted by us is kept until we have done so."""
    wanted = list(volume.meta.finalizers)
    provisioner = volume.meta.annotations.get(PROVISIONED_BY)
    if provisioner is None:
        # Made by an administrator, who also removes the storage.
        pass
    elif provisioner in rules.migrated:
        wanted = [name for name in wanted if name != PV_CONTROLLER_FINALIZER]
    elif rules.is_in_tree(provisioner):
        if volume.reclaim_policy == DELETE and PV_CONTROLLER_FINALIZER not in wanted:
            wanted.append(PV_CONTROLLER_FINALIZER)
        elif volume.reclaim_policy in (RETAIN, RECYCLE):
            wanted = [name for name in wanted if name != PV_CONTROLLER_FINALIZER]
        else:
            # Guarded already, or of a policy that nobody knows: then nothing is deleted.
            pass
        wanted = [name for name in wanted if name != EXTERNAL_PROVISIONER_FINALIZER]
    else:
        # An external provisioner guards its volumes itself.
        pass
    return tuple(wanted)
