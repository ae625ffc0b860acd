"""The controller's writes: bind and unbind a volume and a claim, save, change a phase, write a notice."""

from collections.abc import Iterable, Mapping
from typing import Any

from volsched.kube.manifest import (
    BINDING_MARKS,
    CLEAN,
    YES,
    bind_volume,
    is_bound_to,
    reference_to,
    reservation_of,
)
from volsched.kube.meta import (
    BIND_COMPLETED,
    BOUND_BY_CONTROLLER,
    PRE_RESIZE_CAPACITY,
    PROVISIONED_BY,
    SELECTED_NODE_KEYS,
)
from volsched.kube.quantity import Quantity, QuantityError, parse_quantity
from volsched.kube.storage import AVAILABLE, LOST, Claim, Volume
from volsched.pv_controller.rules.reasons import BOUND, FAILED, PENDING, WARNING
from volsched.pv_controller.rules.requests import (
    CLAIM,
    VOLUME,
    ControllerRules,
    Manifest,
    Notice,
    Steps,
    SyncError,
    Update,
)
from volsched.pv_controller.rules.view import ParsedObject

# Small changes of manifests. The argument is not modified; all other fields are kept.

Changed = dict[str, Any]


def with_spec(manifest: Manifest, **fields: Any) -> Changed:
    """Set fields of the spec. None removes a field, here and below: a stored manifest holds no nulls."""
    return _within(manifest, "spec", fields)


def with_status(manifest: Manifest, **fields: Any) -> Changed:
    return _within(manifest, "status", fields)


def with_annotations(
    manifest: Manifest, *, drop: Iterable[str] = (), add: Mapping[str, str] | None = None
) -> Changed:
    before: Mapping[str, str] = manifest["metadata"].get("annotations") or {}
    dropped = frozenset(drop)
    kept = {key: value for key, value in before.items() if key not in dropped} | dict(add or {})
    return _within(manifest, "metadata", {"annotations": kept or None})


def without_selected_node(claim: Manifest) -> Changed:
    """The claim without its selected node, so that the scheduler chooses again."""
    return with_annotations(claim, drop=SELECTED_NODE_KEYS)


def with_finalizers(manifest: Manifest, finalizers: Iterable[str]) -> Changed:
    return _within(manifest, "metadata", {"finalizers": list(finalizers) or None})


def _within(manifest: Manifest, part: str, fields: Mapping[str, Any]) -> Changed:
    below = {**(manifest.get(part) or {}), **fields}
    return {**manifest, part: {key: value for key, value in below.items() if value is not None}}


# The controller's writes and events in its own terms: save, move to a phase, notify.


def save_claim(manifest: Manifest, *, status: bool = False) -> Steps[ParsedObject[Claim]]:
    saved: ParsedObject[Claim] = yield Update(CLAIM, manifest, status)
    return saved


def save_volume(manifest: Manifest, *, status: bool = False) -> Steps[ParsedObject[Volume]]:
    saved: ParsedObject[Volume] = yield Update(VOLUME, manifest, status)
    return saved


def notify_claim(
    claim: ParsedObject[Claim], type_: str, reason: str, message: str, *, patience: int = 0
) -> Steps[None]:
    yield Notice(CLAIM, claim.meta.key, claim.meta.uid, type_, reason, message, patience)


def notify_volume(volume: ParsedObject[Volume], type_: str, reason: str, message: str) -> Steps[None]:
    yield Notice(VOLUME, volume.meta.key, volume.meta.uid, type_, reason, message)


def move_volume(volume: ParsedObject[Volume], phase: str, *, message: str = "") -> Steps[ParsedObject[Volume]]:
    if volume.value.phase == phase:
        # Nothing is written, not even a newer message: the message of the phase's change still holds.
        moved = volume
    else:
        status = with_status(volume.manifest, phase=phase, message=message or None)
        moved = yield from save_volume(status, status=True)
    return moved


def fail_volume(volume: ParsedObject[Volume], reason: str, message: str) -> Steps[None]:
    """Set phase Failed and write a Warning, both once, however often the operation fails again."""
    if volume.value.phase == FAILED:
        # Every sync retries the operation. A notice each time would hide all others.
        pass
    else:
        failed = yield from move_volume(volume, FAILED, message=message)
        yield from notify_volume(failed, WARNING, reason, message)


def reset_claim(claim: ParsedObject[Claim], *, rules: ControllerRules) -> Steps[ParsedObject[Claim]]:
    """Set phase Pending, and remove an earlier volume from the status."""
    status = _unbound(claim, PENDING, rules)
    if status == claim.manifest:
        # The usual case: the claim has waited since it was created.
        reset = claim
    else:
        reset = yield from save_claim(status, status=True)
    return reset


def lose_claim(claim: ParsedObject[Claim], reason: str, message: str, *, rules: ControllerRules) -> Steps[None]:
    if claim.value.phase == LOST:
        # Reported once, when it happened. Leftovers in the status stay, as in the reference.
        pass
    else:
        lost = yield from save_claim(_unbound(claim, LOST, rules), status=True)
        yield from notify_claim(lost, WARNING, reason, message)


def _unbound(claim: ParsedObject[Claim], phase: str, rules: ControllerRules) -> Manifest:
    ours = {"dataState": None} if rules.data_state else {}
    return with_status(
        claim.manifest,
        phase=phase,
        accessModes=None,
        capacity=None,
        currentVolumeAttributesClassName=None,
        **ours,
    )


# The volume is written first: once its claimRef carries the claim's uid, no other claim can take it. A
# controller that stops after any write resumes the half-done binding from the stored objects.


def bind(volume: ParsedObject[Volume], claim: ParsedObject[Claim], *, rules: ControllerRules) -> Steps[None]:
    """Bind volume and claim. Writes that would change nothing are skipped, so a healthy binding costs none."""
    # Computed before the writes below, which make every volume look Bound.
    clean = starts_clean(volume.value, claim.value)
    volume = yield from _point_volume_at(volume, claim)
    volume = yield from move_volume(volume, BOUND)
    claim = yield from _point_claim_at(claim, volume)
    yield from _complete(claim, volume, clean=clean, rules=rules)


def unbind(volume: ParsedObject[Volume]) -> Steps[ParsedObject[Volume]]:
    freed = with_spec(volume.manifest, claimRef=reservation_of(volume.manifest))
    freed = with_annotations(freed, drop=BINDING_MARKS)
    saved = yield from save_volume(freed)
    return (yield from move_volume(saved, AVAILABLE))


def starts_clean(volume: Volume, claim: Claim) -> bool:
    """Whether no pod can have written through this binding: a search made it, with an unused volume.

    A volume created for the claim is still Pending when it is bound; any other Pending volume was not synced yet.
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


def _point_volume_at(volume: ParsedObject[Volume], claim: ParsedObject[Claim]) -> Steps[ParsedObject[Volume]]:
    wanted, changed = bind_volume(volume.value, claim.value)
    if changed:
        manifest = with_spec(volume.manifest, claimRef=claim_reference(claim.value))
        if BOUND_BY_CONTROLLER in wanted.meta.annotations:
            manifest = with_annotations(manifest, add={BOUND_BY_CONTROLLER: YES})
        else:
            # The user reserved the volume; marked as bound by us, unbinding would free it.
            pass
        pointing = yield from save_volume(manifest)
    else:
        # Fully reserved already: by a provisioner, the scheduler, or an earlier attempt.
        pointing = volume
    return pointing


def _point_claim_at(claim: ParsedObject[Claim], volume: ParsedObject[Volume]) -> Steps[ParsedObject[Claim]]:
    marks: dict[str, str] = {}
    manifest: Manifest = claim.manifest
    if claim.value.volume_name != volume.value.name:
        manifest = with_spec(manifest, volumeName=volume.value.name)
        marks[BOUND_BY_CONTROLLER] = YES
    else:
        # The user named the volume, or an earlier attempt named and marked it.
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


def _complete(
    claim: ParsedObject[Claim], volume: ParsedObject[Volume], *, clean: bool, rules: ControllerRules
) -> Steps[None]:
    fields: dict[str, Any] = {"phase": BOUND, "accessModes": volume.manifest["spec"].get("accessModes")}
    if claim.value.phase != BOUND:
        fields |= _granted(claim.value, volume)
    else:
        # A difference to the volume's capacity may be intended: the file system has not been grown yet.
        pass
    if claim.value.phase == PENDING:
        fields["currentVolumeAttributesClassName"] = volume.value.attributes_class
    else:
        # Bound or lost before: the modifier of attributes maintains this field.
        pass
    if not rules.data_state or claim.value.phase == BOUND:
        # Not maintained at all; or, for an existing binding, maintained by the node agent.
        pass
    elif clean:
        fields["dataState"] = CLEAN
    elif claim.value.data_state == CLEAN:
        # From an earlier binding. The state of this one is unknown; absent means Dirty.
        fields["dataState"] = None
    else:
        # Absent or Dirty, which mean the same.
        pass
    status = with_status(claim.manifest, **fields)
    if status != claim.manifest:
        yield from save_claim(status, status=True)
    else:
        # Nothing to change, the usual end of a sync.
        pass


def _granted(claim: Claim, volume: ParsedObject[Volume]) -> dict[str, Any]:
    """The size that a claim gets when it becomes Bound; empty if its status has it already."""
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
    """A volume that is being grown still has its old file system."""
    noted = volume.meta.annotations.get(PRE_RESIZE_CAPACITY)
    try:
        return None if noted is None else parse_quantity(noted)
    except QuantityError:
        return None
