"""Tying a volume and a claim together in four writes, and untying them in two.

The volume is written first: once its claimRef carries the claim's uid nobody else can take it. A controller that
stops after any write finds the half-done binding again from what is stored.
"""

from typing import Any

from volsched.kube.claim_reference import YES, bind_volume, is_bound_to, reference_to
from volsched.kube.data_state import CLEAN
from volsched.kube.meta import (
    BIND_COMPLETED,
    BINDING_STAMP,
    BOUND_BY_CONTROLLER,
    PRE_RESIZE_CAPACITY,
    PROVISIONED_BY,
)
from volsched.kube.quantity import Quantity, QuantityError, parse_quantity
from volsched.kube.storage import AVAILABLE, Claim, Volume
from volsched.pv_controller.rules.manifest_edits import with_annotations, with_spec, with_status
from volsched.pv_controller.rules.modes import ControllerRules
from volsched.pv_controller.rules.phases import BOUND, PENDING
from volsched.pv_controller.rules.requests import Manifest, Steps, SyncError
from volsched.pv_controller.rules.view import Held
from volsched.pv_controller.rules.writes import move_volume, save_claim, save_volume


def bind(volume: Held[Volume], claim: Held[Claim], *, rules: ControllerRules) -> Steps[None]:
    """Every write is skipped where it would change nothing, so a healthy binding costs none."""
    # Judged on the volume as it was found: the writes below make every volume look Bound.
    clean = starts_clean(volume.value, claim.value)
    volume = yield from _point_volume_at(volume, claim)
    volume = yield from move_volume(volume, BOUND)
    claim = yield from _point_claim_at(claim, volume)
    yield from _complete(claim, volume, clean=clean, rules=rules)


def unbind(volume: Held[Volume]) -> Steps[Held[Volume]]:
    """Free, or, where a user made the reservation, free for any claim of that name."""
    if BOUND_BY_CONTROLLER in volume.meta.annotations:
        freed = with_spec(volume.manifest, claimRef=None)
    else:
        ref = {key: value for key, value in volume.manifest["spec"]["claimRef"].items() if key != "uid"}
        freed = with_spec(volume.manifest, claimRef=ref)
    freed = with_annotations(freed, drop=(BOUND_BY_CONTROLLER, BINDING_STAMP))
    saved = yield from save_volume(freed)
    return (yield from move_volume(saved, AVAILABLE))


def starts_clean(volume: Volume, claim: Claim) -> bool:
    """No pod can have written through this binding: it is made by a search, of a volume that nobody was using.

    A volume made for the claim is still Pending when it is bound; any other Pending one was not looked at yet.
    """
    made_for_it = (
        volume.phase == PENDING
        and PROVISIONED_BY in volume.meta.annotations
        and volume.claim_ref is not None
        and volume.claim_ref.uid == claim.meta.uid
    )
    return (
        claim.phase == PENDING
        and claim.volume_name == ""
        and claim.data_state is None
        and (volume.phase == AVAILABLE or made_for_it)
        and (volume.claim_ref is None or is_bound_to(volume, claim))
    )


def claim_reference(claim: Claim) -> dict[str, str]:
    ref = reference_to(claim)
    parts = {
        "apiVersion": ref.api_version,
        "kind": ref.kind,
        "namespace": ref.namespace,
        "name": ref.name,
        "uid": ref.uid,
        "resourceVersion": ref.resource_version,
    }
    return {key: value for key, value in parts.items() if value}


def _point_volume_at(volume: Held[Volume], claim: Held[Claim]) -> Steps[Held[Volume]]:
    wanted, changed = bind_volume(volume.value, claim.value)
    if changed:
        manifest = with_spec(volume.manifest, claimRef=claim_reference(claim.value))
        if BOUND_BY_CONTROLLER in wanted.meta.annotations:
            manifest = with_annotations(manifest, add={BOUND_BY_CONTROLLER: YES})
        else:
            # The user reserved the volume; it must not look as if we had found it, or unbinding would free it.
            pass
        pointing = yield from save_volume(manifest)
    else:
        # Reserved completely: by a provisioner, by the scheduler, or by an earlier attempt.
        pointing = volume
    return pointing


def _point_claim_at(claim: Held[Claim], volume: Held[Volume]) -> Steps[Held[Claim]]:
    marks: dict[str, str] = {}
    manifest: Manifest = claim.manifest
    if claim.value.volume_name != volume.value.name:
        manifest = with_spec(manifest, volumeName=volume.value.name)
        marks[BOUND_BY_CONTROLLER] = YES
    else:
        # The user named the volume, or an earlier attempt did and left its mark then.
        pass
    marks[BIND_COMPLETED] = YES
    missing = {key: value for key, value in marks.items() if key not in claim.meta.annotations}
    manifest = with_annotations(manifest, add=missing)
    if manifest != claim.manifest:
        pointing = yield from save_claim(manifest)
    else:
        # Bound before; only the status may be behind.
        pointing = claim
    return pointing


def _complete(claim: Held[Claim], volume: Held[Volume], *, clean: bool, rules: ControllerRules) -> Steps[None]:
    fields: dict[str, Any] = {"phase": BOUND, "accessModes": volume.manifest["spec"].get("accessModes")}
    if claim.value.phase != BOUND:
        fields |= _granted(claim.value, volume)
    else:
        # A difference to the volume's capacity may be meant: the file system has not been grown yet.
        pass
    if claim.value.phase == PENDING:
        fields["currentVolumeAttributesClassName"] = volume.value.attributes_class
    else:
        # Bound or lost before: whoever changes attributes keeps this field.
        pass
    if not rules.data_state or claim.value.phase == BOUND:
        # Not kept at all; or kept by the node agent, for a binding that exists.
        pass
    elif clean:
        fields["dataState"] = CLEAN
    elif claim.value.data_state == CLEAN:
        # Said of an earlier binding. Of this one nobody knows, and absent reads as Dirty.
        fields["dataState"] = None
    else:
        # Absent or Dirty, which is the same.
        pass
    status = with_status(claim.manifest, **fields)
    if status != claim.manifest:
        yield from save_claim(status, status=True)
    else:
        # Everything is as it should be, the usual end of a sync.
        pass


def _granted(claim: Claim, volume: Held[Volume]) -> dict[str, Any]:
    """The size that a claim gets when it becomes Bound; nothing where it says so already."""
    if "storage" not in volume.value.capacity:
        raise SyncError(f'PersistentVolume "{volume.value.name}" is without a storage capacity')
    capacity = {name: str(amount) for name, amount in volume.value.capacity.items()}
    size = volume.value.size
    before = _size_before_growth(volume.value)
    if before is not None:
        capacity["storage"] = str(before)
        size = before
    same = claim.status_capacity.get("storage") == size
    return {} if same else {"capacity": capacity}


def _size_before_growth(volume: Volume) -> Quantity | None:
    """A volume in the middle of growing still has its old file system."""
    noted = volume.meta.annotations.get(PRE_RESIZE_CAPACITY)
    try:
        return None if noted is None else parse_quantity(noted)
    except QuantityError:
        return None
