"""The controller's writes and events in its own words: save, move to a phase, tell."""

from volsched.kube.storage import LOST, Claim, Volume
from volsched.pv_controller.rules.manifest_edits import with_status
from volsched.pv_controller.rules.modes import ControllerRules
from volsched.pv_controller.rules.phases import FAILED, PENDING
from volsched.pv_controller.rules.reasons import WARNING
from volsched.pv_controller.rules.requests import CLAIM, VOLUME, Manifest, Notice, Steps, Update
from volsched.pv_controller.rules.view import Held


def save_claim(manifest: Manifest, *, status: bool = False) -> Steps[Held[Claim]]:
    saved: Held[Claim] = yield Update(CLAIM, manifest, status)
    return saved


def save_volume(manifest: Manifest, *, status: bool = False) -> Steps[Held[Volume]]:
    saved: Held[Volume] = yield Update(VOLUME, manifest, status)
    return saved


def tell_claim(claim: Held[Claim], type_: str, reason: str, message: str, *, patience: int = 0) -> Steps[None]:
    yield Notice(CLAIM, claim.meta.key, claim.meta.uid, type_, reason, message, patience)


def tell_volume(volume: Held[Volume], type_: str, reason: str, message: str) -> Steps[None]:
    yield Notice(VOLUME, volume.meta.key, volume.meta.uid, type_, reason, message)


def move_volume(volume: Held[Volume], phase: str, *, message: str = "") -> Steps[Held[Volume]]:
    if volume.value.phase == phase:
        # Nothing is written, not even a newer message: what was said when the phase changed still holds.
        moved = volume
    else:
        status = with_status(volume.manifest, phase=phase, message=message or None)
        moved = yield from save_volume(status, status=True)
    return moved


def fail_volume(volume: Held[Volume], reason: str, message: str) -> Steps[None]:
    """Failed, and a Warning; both once, however often the same thing fails again."""
    if volume.value.phase == FAILED:
        # The operation is tried at every sync. To say so each time would bury everything else.
        pass
    else:
        failed = yield from move_volume(volume, FAILED, message=message)
        yield from tell_volume(failed, WARNING, reason, message)


def reset_claim(claim: Held[Claim], *, rules: ControllerRules) -> Steps[Held[Claim]]:
    """Pending, with nothing left in the status of a volume that it may have had."""
    status = _unbound(claim, PENDING, rules)
    if status == claim.manifest:
        # The usual case: the claim has been waiting since it was made.
        reset = claim
    else:
        reset = yield from save_claim(status, status=True)
    return reset


def lose_claim(claim: Held[Claim], reason: str, message: str, *, rules: ControllerRules) -> Steps[None]:
    if claim.value.phase == LOST:
        # Said once, when it happened. Left-overs in the status stay, as they do in the reference.
        pass
    else:
        lost = yield from save_claim(_unbound(claim, LOST, rules), status=True)
        yield from tell_claim(lost, WARNING, reason, message)


def _unbound(claim: Held[Claim], phase: str, rules: ControllerRules) -> Manifest:
    ours = {"dataState": None} if rules.data_state else {}
    return with_status(
        claim.manifest,
        phase=phase,
        accessModes=None,
        capacity=None,
        currentVolumeAttributesClassName=None,
        **ours,
    )
