"""Giving a released volume back by hand: an operator has dealt with its data and says so.

Only volumes that nobody can come back for: the claim is gone, nothing is under way, no node has it attached. The
volume says afterwards who gave it back and why, and whose data it held.
"""

from collections.abc import Iterator

from volsched.kube.manifest import Manifest, claim_of, is_being_deleted, metadata, spec, status, uid
from volsched.kube.meta import BINDING_STAMP, BOUND_BY_CONTROLLER
from volsched.kube.storage import AVAILABLE
from volsched.log.events.decision import States
from volsched.log.events.envelope import NewEvent
from volsched.log.events.fold import BindingState, LegState
from volsched.log.events.object_states import manifest_of
from volsched.objects.rules.notices import notice_event, notice_stream
from volsched.pv_controller.rules.normalization import RETAIN
from volsched.pv_controller.rules.phases import GIVEN_UP

RETURNED = "ReturnedByOperator"
COMPONENT = "volsched-cli"
VOLUME = "PersistentVolume"


class ReleaseRefusedError(Exception):
    """The volume stays as it is; the message says why, and what to do about it."""


def claim_stream(volume: Manifest) -> str | None:
    ref = claim_of(volume)
    return None if ref is None else f"claim/{ref.get('namespace')}/{ref.get('name')}"


def returned_notice(volume: Manifest) -> str:
    return notice_stream(VOLUME, str(metadata(volume).get("name")), uid(volume), RETURNED, RETURNED)


def return_volume(name: str, states: States, *, reason: str, by: str, now: str) -> tuple[NewEvent, ...]:
    """`states` hold the volume, its claim, the notice, and every binding and attachment that names the volume."""
    volume = manifest_of(states, f"volume/{name}")
    if volume is None:
        raise ReleaseRefusedError(f'PersistentVolume "{name}" does not exist; see volsched orphans')
    refusal = next(_refusals(name, volume, states), None)
    if refusal is not None:
        raise ReleaseRefusedError(f'PersistentVolume "{name}" {refusal}')
    ref = claim_of(volume) or {}
    held = f"{ref.get('namespace')}/{ref.get('name')} with uid {ref.get('uid')}" if ref else "no claim"
    patch = {
        "metadata": {"annotations": {BOUND_BY_CONTROLLER: None, BINDING_STAMP: None}},
        "spec": {"claimRef": None},
        "status": {"phase": AVAILABLE, "message": None},
    }
    place = returned_notice(volume)
    return (
        NewEvent(stream=f"volume/{name}", type="VolumeChanged", data={"patch": patch, "reason": reason}),
        notice_event(
            states.get(place), place, kind=VOLUME, key=name, uid=uid(volume), type_="Normal", reason=RETURNED,
            message=f"returned to {AVAILABLE} by {by}: {reason} (it held the data of {held})",
            component=COMPONENT, now=now,
        ),
    )  # fmt: skip


def _refusals(name: str, volume: Manifest, states: States) -> Iterator[str]:
    phase, policy = status(volume).get("phase"), spec(volume).get("persistentVolumeReclaimPolicy")
    if is_being_deleted(volume):
        yield "is being deleted; make a new one when it is gone"
    if phase == "Bound":
        yield "is Bound: its claim has it; delete the claim first, if its data is not needed"
    elif phase not in GIVEN_UP:
        yield f"is {phase}; only a volume that is Released or Failed can be returned"
    stream, ref = claim_stream(volume), claim_of(volume) or {}
    claim = None if stream is None else manifest_of(states, stream)
    if claim is not None and uid(claim) == ref.get("uid"):
        yield (
            f'belongs to claim "{ref.get("namespace")}/{ref.get("name")}", which still exists with the uid that '
            "the volume names; delete the claim first, if its data is not needed"
        )
    if policy != RETAIN:
        yield (
            f"has the reclaim policy {policy}, so that its storage may be deleted at any moment; "
            f"set persistentVolumeReclaimPolicy to {RETAIN} first"
        )
    for stream, state in states.items():
        if isinstance(state, BindingState) and state.open and any(_names(leg, name, ref) for leg in state.legs):
            yield (
                f"is in the open binding {stream.partition('/')[2]} of pod {state.plan['pod']}; "
                "wait until that has ended (volsched recover --dry-run shows it)"
            )
        attached = manifest_of(states, stream) if stream.startswith("attachment/") else None
        if attached is not None and (spec(attached).get("source") or {}).get("persistentVolumeName") == name:
            yield (
                f'is still attached to node "{spec(attached).get("nodeName")}"; '
                f'delete the pods that use it there, or VolumeAttachment "{metadata(attached).get("name")}"'
            )


def _names(leg: LegState, volume: str, ref: Manifest) -> bool:
    return leg.open and (leg.volume == volume or (bool(leg.claim_uid) and leg.claim_uid == ref.get("uid")))
