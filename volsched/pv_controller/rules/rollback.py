"""Undoing a binding that no pod has used yet, so that a pod's claims can be bound somewhere else together.

The claim lets go first and the volumes are freed after it, so nobody can take a volume to which the claim still
points. The annotation that asked for it goes last: whatever stops in between is found again and finished.
"""

from collections.abc import Collection

from volsched.kube.data_state import may_hold_data
from volsched.kube.meta import (
    BETA_STORAGE_PROVISIONER,
    BIND_COMPLETED,
    BINDING_STAMP,
    BOUND_BY_CONTROLLER,
    PROVISIONED_BY,
    ROLLBACK,
    SELECTED_NODE_KEYS,
    STORAGE_PROVISIONER,
)
from volsched.kube.storage import LOST, WAIT_FOR_FIRST_CONSUMER, Claim, StorageClass, Volume
from volsched.pv_controller.rules.bind_writes import unbind
from volsched.pv_controller.rules.claim_users import placed_pods
from volsched.pv_controller.rules.manifest_edits import with_annotations, with_spec
from volsched.pv_controller.rules.modes import ControllerRules
from volsched.pv_controller.rules.normalization import DELETE
from volsched.pv_controller.rules.provision import provisioned_name
from volsched.pv_controller.rules.reasons import (
    NORMAL,
    ROLLBACK_COMPLETED,
    ROLLBACK_REJECTED,
    ROLLBACK_STALLED,
    ROLLED_BACK,
    WARNING,
    rollback_refused,
    rollback_waits_for,
)
from volsched.pv_controller.rules.requests import Steps
from volsched.pv_controller.rules.view import Held, View
from volsched.pv_controller.rules.writes import reset_claim, save_claim, save_volume, tell_claim
from volsched.scheduling.rules.pod_claims import is_fully_bound

STALLED_AFTER_SECONDS = 600

NOT_BOUND = "the claim is not completely bound"
NOT_DELAYED = "its class does not wait for the first consumer, so it would be bound to the same volume again"
MAY_HOLD_DATA = "a pod may have written to the volume"
NAMED_BY_USER = "a user asked for this volume by name"
BEING_DELETED = "the claim is being deleted"
UNDER_WAY = "a rollback is under way already"
VOLUME_GONE = "its volume does not exist"
RESERVED_BY_USER = "a user reserved the volume for this claim, so it would come back to it"
KEPT_AFTER_RELEASE = (
    "its volume was provisioned for it and is not deleted when released, so no new one could be provisioned"
)


def in_use(pods: Collection[str]) -> str:
    return f"pods that have a node use the claim: {', '.join(sorted(pods))}"


def rollback_refusal(
    claim: Claim,
    *,
    volume: Volume | None,
    storage_class: StorageClass | None,
    used_by: Collection[str],
    under_way: bool = False,
) -> str | None:
    """Why the claim's binding may not be undone, or None.

    `volume` is the one that the claim names; `used_by` are the keys of the pods, besides the one that asks, that
    are not terminated and have a node or are about to get one. The controller, which acts on a request, asks
    with `under_way`.
    """
    if not is_fully_bound(claim):
        return NOT_BOUND
    if storage_class is None or storage_class.volume_binding_mode != WAIT_FOR_FIRST_CONSUMER:
        return NOT_DELAYED
    if may_hold_data(claim.data_state, bound=True):
        return MAY_HOLD_DATA
    if BOUND_BY_CONTROLLER not in claim.meta.annotations:
        return NAMED_BY_USER
    if claim.meta.being_deleted:
        return BEING_DELETED
    if ROLLBACK in claim.meta.annotations and not under_way:
        return UNDER_WAY
    if used_by:
        return in_use(used_by)
    if volume is None:
        return VOLUME_GONE
    if PROVISIONED_BY in volume.meta.annotations:
        return None if volume.reclaim_policy == DELETE else KEPT_AFTER_RELEASE
    return None if BOUND_BY_CONTROLLER in volume.meta.annotations else RESERVED_BY_USER


def released_uid(claim: Claim) -> str:
    """The uid in the claimRef of a volume that was provisioned for the claim and is to be deleted: no claim has
    it, so the volume is released and reclaimed like that of a deleted claim."""
    return f"rollback-{claim.meta.uid}"


def roll_back(view: View, claim: Held[Claim], *, rules: ControllerRules) -> Steps[Held[Claim] | None]:
    """The claim if its sync is to go on as usual, None if nothing more may be done to it now."""
    if claim.meta.being_deleted:
        # It gives its volume up anyway.
        return (yield from _end(claim))
    bound = claim.value.volume_name != "" or BIND_COMPLETED in claim.meta.annotations
    refusal = _refusal(view, claim.value) if bound else None
    if claim.value.phase == LOST:
        # There is no binding left to undo, and nothing that may be done to a lost one.
        yield from _end(claim)
    elif not bound and not _related(view, claim.value):
        yield from _complete(claim)
    elif refusal is not None:
        rejected = yield from _end(claim)
        yield from tell_claim(rejected, WARNING, ROLLBACK_REJECTED, rollback_refused(refusal))
    else:
        # Begun before, or allowed. Once the claim has let go, no pod can start to use it: it would be turned away.
        yield from _undo(view, claim, rules=rules)
    return None


def _refusal(view: View, claim: Claim) -> str | None:
    volume = view.volume(claim.volume_name)
    storage_class = view.storage_class(claim.class_name)
    return rollback_refusal(
        claim,
        volume=None if volume is None else volume.value,
        storage_class=None if storage_class is None else storage_class.value,
        used_by=placed_pods(view.pods_using(claim.key)),
        under_way=True,
    )


def _undo(view: View, claim: Held[Claim], *, rules: ControllerRules) -> Steps[None]:
    claim = yield from _let_go(claim)
    claim = yield from reset_claim(claim, rules=rules)
    for volume in _pointing(view, claim.value):
        yield from _give_up(volume, claim.value)
    waiting = {volume.value.name for volume in _pointing(view, claim.value)}
    if view.volume(provisioned_name(claim.value)) is not None:
        # A new volume would get the same name.
        waiting.add(provisioned_name(claim.value))
    else:
        pass
    if waiting:
        message = rollback_waits_for(sorted(waiting))
        yield from tell_claim(claim, WARNING, ROLLBACK_STALLED, message, patience=STALLED_AFTER_SECONDS)
    else:
        yield from _complete(claim)


def _let_go(claim: Held[Claim]) -> Steps[Held[Claim]]:
    if claim.value.volume_name == "":
        free = claim
    else:
        links = (
            BIND_COMPLETED,
            BOUND_BY_CONTROLLER,
            *SELECTED_NODE_KEYS,
            STORAGE_PROVISIONER,
            BETA_STORAGE_PROVISIONER,
        )
        free = yield from save_claim(with_annotations(with_spec(claim.manifest, volumeName=None), drop=links))
    return free


def _give_up(volume: Held[Volume], claim: Claim) -> Steps[None]:
    provisioned = PROVISIONED_BY in volume.meta.annotations
    if provisioned and volume.value.reclaim_policy == DELETE:
        # It was made where the claim must leave. It is empty, so it goes the way of a deleted claim's volume.
        ref = {**volume.manifest["spec"]["claimRef"], "uid": released_uid(claim)}
        yield from save_volume(with_annotations(with_spec(volume.manifest, claimRef=ref), drop=(BINDING_STAMP,)))
    else:
        # Straight back, whatever its policy: it holds no data of this claim.
        yield from unbind(volume)


def _pointing(view: View, claim: Claim) -> list[Held[Volume]]:
    return _volumes_with(view, claim, claim.meta.uid)


def _related(view: View, claim: Claim) -> bool:
    return bool(_volumes_with(view, claim, claim.meta.uid) or _volumes_with(view, claim, released_uid(claim)))


def _volumes_with(view: View, claim: Claim, uid: str) -> list[Held[Volume]]:
    found = [
        held
        for held in view.volumes_reserved_for(claim.key)
        if held.value.claim_ref is not None and held.value.claim_ref.uid == uid
    ]
    return sorted(found, key=lambda held: held.value.name)


def _complete(claim: Held[Claim]) -> Steps[None]:
    free = yield from _end(claim)
    yield from tell_claim(free, NORMAL, ROLLBACK_COMPLETED, ROLLED_BACK)


def _end(claim: Held[Claim]) -> Steps[Held[Claim]]:
    return (yield from save_claim(with_annotations(claim.manifest, drop=(ROLLBACK,))))
