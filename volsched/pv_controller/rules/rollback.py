"""Rollback of a binding that no pod has used yet; and the return of a released volume by an operator."""

from collections.abc import Collection, Iterator

from volsched.kube.manifest import (
    BINDING_MARKS,
    Manifest,
    claim_of,
    is_being_deleted,
    may_hold_data,
    metadata,
    spec,
    status,
    uid,
)
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
from volsched.kube.storage import AVAILABLE, LOST, WAIT_FOR_FIRST_CONSUMER, Claim, StorageClass, Volume
from volsched.log.events.envelope import NewEvent
from volsched.log.events.fold import BindingState, LegState, States, manifest_of
from volsched.objects.rules.object_events import changed_event, notice_event, notice_stream
from volsched.pv_controller.rules.bind_writes import (
    notify_claim,
    reset_claim,
    save_claim,
    save_volume,
    unbind,
    with_annotations,
    with_spec,
)
from volsched.pv_controller.rules.protection import DELETE, RETAIN
from volsched.pv_controller.rules.provision import provisioned_name
from volsched.pv_controller.rules.reasons import (
    BEING_DELETED,
    GIVEN_UP,
    KEPT_AFTER_RELEASE,
    MAY_HOLD_DATA,
    NAMED_BY_USER,
    NORMAL,
    NOT_BOUND,
    NOT_DELAYED,
    RESERVED_BY_USER,
    RETURN_BEING_DELETED,
    RETURN_BOUND,
    ROLLBACK_COMPLETED,
    ROLLBACK_REJECTED,
    ROLLBACK_STALLED,
    ROLLED_BACK,
    UNDER_WAY,
    VOLUME_GONE,
    WARNING,
    in_use,
    return_attached,
    return_in_binding,
    return_in_phase,
    return_not_retained,
    return_of_living_claim,
    rollback_refused,
    rollback_waits_for,
)
from volsched.pv_controller.rules.requests import VOLUME, ControllerRules, Steps
from volsched.pv_controller.rules.view import ParsedObject, View, placed_pods
from volsched.scheduling.rules.pod_claims import is_fully_bound

# The claim is unlinked first and its volumes are freed after it, so no other claim can take a volume to which
# this one still points. The annotation that requested the rollback is removed last, so an interrupted rollback
# is resumed.

STALLED_AFTER_SECONDS = 600


def rollback_refusal(
    claim: Claim,
    *,
    volume: Volume | None,
    storage_class: StorageClass | None,
    used_by: Collection[str],
    under_way: bool = False,
) -> str | None:
    """The reason why the claim's binding may not be undone, or None.

    `volume` is the one that the claim names; `used_by` are the keys of the pods, besides the requesting one, that
    are not terminated and have a node or are about to get one. The controller, which acts on a request, passes
    `under_way`.
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
    """The claimRef uid of a volume that was provisioned for the claim and is to be deleted: no claim has this uid,
    so the volume is released and reclaimed like that of a deleted claim.
    """
    return f"rollback-{claim.meta.uid}"


def roll_back(
    view: View, claim: ParsedObject[Claim], *, rules: ControllerRules
) -> Steps[ParsedObject[Claim] | None]:
    """The claim if its sync continues as usual; None if this sync must not change it any more."""
    if claim.meta.being_deleted:
        # The claim's deletion releases the volume anyway.
        return (yield from _end(claim))
    bound = claim.value.volume_name != "" or BIND_COMPLETED in claim.meta.annotations
    refusal = _refusal(view, claim.value) if bound else None
    if claim.value.phase == LOST:
        # A lost claim has no binding to undo.
        yield from _end(claim)
    elif not bound and not _related(view, claim.value):
        yield from _complete(claim)
    elif refusal is not None:
        rejected = yield from _end(claim)
        yield from notify_claim(rejected, WARNING, ROLLBACK_REJECTED, rollback_refused(refusal))
    else:
        # Started before, or allowed. Once the claim is unlinked, no pod can start to use it: its node refuses.
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


def _undo(view: View, claim: ParsedObject[Claim], *, rules: ControllerRules) -> Steps[None]:
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
        yield from notify_claim(claim, WARNING, ROLLBACK_STALLED, message, patience=STALLED_AFTER_SECONDS)
    else:
        yield from _complete(claim)


def _let_go(claim: ParsedObject[Claim]) -> Steps[ParsedObject[Claim]]:
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


def _give_up(volume: ParsedObject[Volume], claim: Claim) -> Steps[None]:
    provisioned = PROVISIONED_BY in volume.meta.annotations
    if provisioned and volume.value.reclaim_policy == DELETE:
        # It is in a place that the claim must leave, and it is empty: deleted like a deleted claim's volume.
        ref = {**volume.manifest["spec"]["claimRef"], "uid": released_uid(claim)}
        yield from save_volume(with_annotations(with_spec(volume.manifest, claimRef=ref), drop=(BINDING_STAMP,)))
    else:
        # Released at once, whatever its policy: it holds no data of this claim.
        yield from unbind(volume)


def _pointing(view: View, claim: Claim) -> list[ParsedObject[Volume]]:
    return _volumes_with(view, claim, claim.meta.uid)


def _related(view: View, claim: Claim) -> bool:
    return bool(_volumes_with(view, claim, claim.meta.uid) or _volumes_with(view, claim, released_uid(claim)))


def _volumes_with(view: View, claim: Claim, uid: str) -> list[ParsedObject[Volume]]:
    volumes = [
        held
        for held in view.volumes_reserved_for(claim.key)
        if held.value.claim_ref is not None and held.value.claim_ref.uid == uid
    ]
    return sorted(volumes, key=lambda held: held.value.name)


def _complete(claim: ParsedObject[Claim]) -> Steps[None]:
    free = yield from _end(claim)
    yield from notify_claim(free, NORMAL, ROLLBACK_COMPLETED, ROLLED_BACK)


def _end(claim: ParsedObject[Claim]) -> Steps[ParsedObject[Claim]]:
    return (yield from save_claim(with_annotations(claim.manifest, drop=(ROLLBACK,))))


# Returning a released volume by hand, after an operator has dealt with its data.
#
# Only volumes that no user can still need: the claim is deleted, no operation is in flight, no node has the volume
# attached. The volume then records the operator, the reason, and the claim whose data it held.

RETURNED = "ReturnedByOperator"
COMPONENT = "volsched-cli"


class ReleaseRefusedError(Exception):
    """The volume is unchanged; the message has the reason and the remedy."""


def claim_stream(volume: Manifest) -> str | None:
    ref = claim_of(volume)
    return None if ref is None else f"claim/{ref.get('namespace')}/{ref.get('name')}"


def returned_notice(volume: Manifest) -> str:
    return notice_stream(VOLUME, str(metadata(volume).get("name")), uid(volume), RETURNED, RETURNED)


def return_volume(name: str, states: States, *, reason: str, by: str, now: str) -> tuple[NewEvent, ...]:
    """The events that return a volume. `states`: it, its claim, the notice, its bindings and attachments."""
    volume = manifest_of(states, f"volume/{name}")
    if volume is None:
        raise ReleaseRefusedError(f'PersistentVolume "{name}" does not exist; see volsched orphans')
    refusal = next(_refusals(name, volume, states), None)
    if refusal is not None:
        raise ReleaseRefusedError(f'PersistentVolume "{name}" {refusal}')
    ref = claim_of(volume) or {}
    holder = f"{ref.get('namespace')}/{ref.get('name')} with uid {ref.get('uid')}" if ref else "no claim"
    patch = {
        "metadata": {"annotations": dict.fromkeys(BINDING_MARKS)},
        "spec": {"claimRef": None},
        "status": {"phase": AVAILABLE, "message": None},
    }
    place = returned_notice(volume)
    return (
        changed_event(f"volume/{name}", patch, reason=reason),
        notice_event(
            states.get(place), place, kind=VOLUME, key=name, uid=uid(volume), type_="Normal", reason=RETURNED,
            message=f"returned to {AVAILABLE} by {by}: {reason} (it held the data of {holder})",
            component=COMPONENT, now=now,
        ),
    )  # fmt: skip


def _refusals(name: str, volume: Manifest, states: States) -> Iterator[str]:
    phase, policy = status(volume).get("phase"), spec(volume).get("persistentVolumeReclaimPolicy")
    if is_being_deleted(volume):
        yield RETURN_BEING_DELETED
    if phase == "Bound":
        yield RETURN_BOUND
    elif phase not in GIVEN_UP:
        yield return_in_phase(phase)
    stream, ref = claim_stream(volume), claim_of(volume) or {}
    claim = None if stream is None else manifest_of(states, stream)
    if claim is not None and uid(claim) == ref.get("uid"):
        yield return_of_living_claim(ref.get("namespace"), ref.get("name"))
    if policy != RETAIN:
        yield return_not_retained(policy)
    for stream, state in states.items():
        if isinstance(state, BindingState) and state.open and any(_names(leg, name, ref) for leg in state.legs):
            yield return_in_binding(stream.partition("/")[2], state.plan["pod"])
        attached = manifest_of(states, stream) if stream.startswith("attachment/") else None
        if attached is not None and (spec(attached).get("source") or {}).get("persistentVolumeName") == name:
            yield return_attached(spec(attached).get("nodeName"), metadata(attached).get("name"))


def _names(leg: LegState, volume: str, ref: Manifest) -> bool:
    return leg.open and (leg.volume == volume or (bool(leg.claim_uid) and leg.claim_uid == ref.get("uid")))
