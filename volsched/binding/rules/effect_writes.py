"""What is done to the cluster for a leg, or for the pod: one write at a time, each conditional.

An act looks at the objects as they are now and answers the next write, or the outcome. Carried out again after a
crash it finds what was done and goes on from there, so it needs no memory of its own. On our own log all writes of
an act and its record are one transaction; on a foreign cluster each is a call.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from volsched.binding.rules.late_writes import ENDED_WITHOUT, UNDO
from volsched.binding.rules.leg_conditions import Failed, Wait, judge_leg, judge_pod
from volsched.binding.rules.phases import ALL_GUARDS, SETTLED, STILL_PROVISIONING, Guards, LegPhase, Phase
from volsched.binding.rules.plan import claim_patch, volume_patch
from volsched.binding.rules.saga import ANNOTATE, BIND_POD, PREBIND, RELEASE, LegOutcome, PodOutcome, open_binding
from volsched.kube.data_state import may_hold_data
from volsched.kube.manifest import (
    Manifest,
    annotations,
    claim_is_bound,
    claim_of,
    is_being_deleted,
    spec,
    status,
    uid,
)
from volsched.kube.meta import (
    ALPHA_SELECTED_NODES,
    BETA_STORAGE_PROVISIONER,
    BINDING_STAMP,
    BOUND_BY_CONTROLLER,
    ROLLBACK,
    SELECTED_NODE,
    STORAGE_PROVISIONER,
)
from volsched.kube.update_rules import BOUND
from volsched.log.events.decision import States
from volsched.log.events.fold import BindingState, LegState, ObjectState
from volsched.log.events.object_states import binding_stream, living, origin_version, pod_stream, version
from volsched.scheduling.rules.pod_scheduled import placing_patch

NOT_FOUND = "not found"
CHANGED = "was changed by somebody else since the plan: Conflict"
KEPT = "bound and clean: kept for the next plan, which is pinned to it"
HOLDS_DATA = "the claim may hold data and is never unbound; delete the claim to give it up"
CLAIM_GONE = "its claim is gone and may have held data; the volume is reclaimed as its policy says"
USED_PHASES = ("Bound", "Released", "Failed")
"""Phases of a volume that its claim may have been bound to, which is all that is known once the claim is gone."""
NOT_OURS = "it does not carry this binding's stamp: somebody else has written it since"
CANNOT_UNBIND = "half bound, and this cluster does not let go of a claim's volume; delete the claim to free it"


@dataclass(frozen=True, slots=True, kw_only=True)
class EffectWrite:
    """A merge patch of one object, refused unless the object is at `version`."""

    kind: str
    key: str
    patch: Mapping[str, Any]
    version: str
    status: bool = False


Outcome = LegOutcome | PodOutcome


def next_step(
    kind: str,
    binding: str,
    index: int,
    states: States,
    *,
    now: str,
    guards: Guards = ALL_GUARDS,
    can_unbind: bool = True,
) -> EffectWrite | Outcome | None:
    """The next write for an effect of this kind, or its outcome; None where the effect has become void.

    `now` is an RFC 3339 time.
    """
    if kind == UNDO:
        return _undo(binding, index, states, guards, can_unbind)
    state = open_binding(binding, states)
    if state is None:
        return None
    if kind == BIND_POD:
        return _bind_pod(state, states, now)
    leg = state.legs[index]
    if kind in (PREBIND, ANNOTATE):
        return _forward(kind, binding, state, leg, states, guards)
    if kind == RELEASE and leg.state == LegPhase.RELEASING:
        return _release(binding, leg, states, guards, can_unbind)
    return None


def _forward(
    kind: str, binding: str, state: BindingState, leg: LegState, states: States, guards: Guards
) -> EffectWrite | Outcome | None:
    if leg.state != LegPhase.ASSUMED:
        return None
    written = _written_object(kind, leg, states)
    if written is not None and _stamp(written) == binding:
        return LegOutcome(phase=LegPhase.WRITTEN, rv=origin_version(written))
    if state.state == Phase.COMPENSATING:
        return _voided(state.reason or "the binding failed before this leg was written")
    if written is None or written.manifest is None:
        return _voided(f"{_named(kind, leg)} {NOT_FOUND}")
    if kind == PREBIND and _was_given(written.manifest, leg):
        return LegOutcome(phase=LegPhase.WRITTEN, rv=origin_version(written), given=True)
    if guards.precondition and version(written) != leg.rv:
        return _voided(f"{_named(kind, leg)} {CHANGED}")
    stamp = {"metadata": {"annotations": {BINDING_STAMP: binding}}}
    if kind == ANNOTATE:
        patch = _joined(_assumed_patch(written, binding) or claim_patch(state.plan["node"], alpha=False), stamp)
        return EffectWrite(kind="PersistentVolumeClaim", key=leg.claim, patch=patch, version=version(written))
    patch = _joined(volume_patch(written.manifest, leg.claim, leg.claim_uid), stamp)
    return EffectWrite(kind="PersistentVolume", key=leg.volume or "", patch=patch, version=version(written))


def _was_given(volume: Manifest, leg: LegState) -> bool:
    """It points at the claim already: a provisioner made it for the claim, or the PV controller began to bind it.

    It is waited for without our stamp. What we have not given we do not take back: a provisioned volume that loses
    its claim is offered to others, and nobody deletes it.
    """
    reference = claim_of(volume)
    return reference is not None and bool(leg.claim_uid) and reference.get("uid") == leg.claim_uid


def _assumed_patch(claim: ObjectState, binding: str) -> dict[str, Any] | None:
    """What the plan laid over the claim is what is written: it says under which names the node is selected."""
    assumed = claim.assumed
    return dict(assumed.patch) if assumed is not None and assumed.binding == binding else None


def _undo(
    binding: str, index: int, states: States, guards: Guards, can_unbind: bool
) -> EffectWrite | Outcome | None:
    """Release what was written after the leg had ended, whatever has become of its binding."""
    state = states.get(binding_stream(binding))
    leg = state.legs[index] if isinstance(state, BindingState) else None
    if leg is None or leg.state not in SETTLED:
        return None
    if leg.state not in ENDED_WITHOUT:
        return _unmark(binding, leg, _claim(leg, states))
    step = _release(binding, leg, states, guards, can_unbind)
    # Not ours any more means here that there is nothing left to undo.
    return None if isinstance(step, LegOutcome) and step.reason == NOT_OURS else step


def _release(
    binding: str, leg: LegState, states: States, guards: Guards, can_unbind: bool
) -> EffectWrite | Outcome:
    if leg.dynamic:
        return _release_dynamic(binding, leg, states, guards)
    step, claim = _release_static(binding, leg, states, guards, can_unbind), _claim(leg, states)
    if isinstance(step, LegOutcome) and claim is not None:
        # Up to this version of the claim, a mark on it is one that this release has taken off again.
        return replace(step, rv=origin_version(claim))
    return step


def _release_static(
    binding: str, leg: LegState, states: States, guards: Guards, can_unbind: bool
) -> EffectWrite | Outcome:
    """Claim before volume, and its mark last: nobody can complete the binding, or take the volume, half way."""
    volume, claim = living(states, f"volume/{leg.volume}"), _claim(leg, states)
    held = {} if claim is None or claim.manifest is None else claim.manifest
    if volume is None or volume.manifest is None or not _is_written(volume.manifest, binding, leg, guards):
        return _unmark(binding, leg, claim) or _nothing_left(volume, leg)
    if claim is None and status(volume.manifest).get("phase") in USED_PHASES:
        return _retained(CLAIM_GONE)
    # A claim that points at another volume can never be bound to this one.
    elsewhere = spec(held).get("volumeName", leg.volume) not in ("", leg.volume)
    if claim is not None and not elsewhere:
        kept = _why_kept(held, volume.manifest, guards, can_unbind)
        if kept is not None:
            return _unmark(binding, leg, claim) or _retained(kept)
        if not is_being_deleted(held):
            if ROLLBACK not in annotations(held):
                return _claim_write(leg, claim, {"metadata": {"annotations": {ROLLBACK: binding}}})
            if spec(held).get("volumeName"):
                dropped = {"metadata": {"annotations": dict.fromkeys((BOUND_BY_CONTROLLER, *_selections(held)))}}
                return _claim_write(leg, claim, {"spec": {"volumeName": None}, **dropped})
    return EffectWrite(
        kind="PersistentVolume", key=leg.volume or "", patch=unbind_patch(volume.manifest), version=version(volume)
    )


def _unmark(binding: str, leg: LegState, claim: ObjectState | None) -> EffectWrite | None:
    """Before a release ends, whichever way, its mark goes: a claim that keeps it is never bound again.

    The mark says which binding made it, so that nobody takes off another's and a late one is known for what it is.
    """
    if claim is None or annotations(claim.manifest or {}).get(ROLLBACK) != binding:
        return None
    return _claim_write(leg, claim, {"metadata": {"annotations": {ROLLBACK: None}}})


def _why_kept(claim: Manifest, volume: Manifest, guards: Guards, can_unbind: bool) -> str | None:
    if claim_is_bound(claim):
        return _why_bound_is_kept(claim, guards)
    if guards.dirty and may_hold_data(status(claim).get("dataState"), bound=False):
        return HOLDS_DATA
    # Where the controller does not know our mark, a volume that it calls bound may get its claim at any moment.
    begun = spec(claim).get("volumeName") or status(volume).get("phase") == BOUND
    return CANNOT_UNBIND if begun and not can_unbind else None


def _nothing_left(volume: ObjectState | None, leg: LegState) -> Outcome:
    """The volume is gone, free again, or somebody else's: there is nothing of this leg to undo."""
    if volume is None or volume.manifest is None:
        return LegOutcome(phase=LegPhase.RELEASED, reason=f'PersistentVolume "{leg.volume}" is gone')
    reference = claim_of(volume.manifest)
    if reference is not None and reference.get("uid"):
        return _retained(NOT_OURS)
    return LegOutcome(phase=LegPhase.RELEASED)


def _release_dynamic(binding: str, leg: LegState, states: States, guards: Guards) -> EffectWrite | Outcome:
    claim = _claim(leg, states)
    if claim is None or claim.manifest is None:
        return LegOutcome(phase=LegPhase.RELEASED, reason=f'PersistentVolumeClaim "{leg.claim}" is gone')
    held = claim.manifest
    if claim_is_bound(held):
        return _retained(_why_bound_is_kept(held, guards))
    if _stamp(claim) != binding and (guards.stamp or SELECTED_NODE not in annotations(held)):
        return LegOutcome(phase=LegPhase.RELEASED, reason=leg.reason if leg.state == LegPhase.RELEASING else None)
    ordered = any(key in annotations(held) for key in (STORAGE_PROVISIONER, BETA_STORAGE_PROVISIONER))
    # A provisioner that gives the node back has refused for good: whoever is not sure keeps it.
    if spec(held).get("volumeName") or (ordered and SELECTED_NODE in annotations(held)):
        return _retained(STILL_PROVISIONING)
    dropped = dict.fromkeys((*_selections(held), BINDING_STAMP))
    return _claim_write(leg, claim, {"metadata": {"annotations": dropped}})


def _selections(claim: Manifest) -> tuple[str, ...]:
    """All that commits the claim to a node: the stable name, and those of old where they are."""
    return (SELECTED_NODE, *(key for key in ALPHA_SELECTED_NODES if key in annotations(claim)))


def _bind_pod(state: BindingState, states: States, now: str) -> EffectWrite | Outcome | None:
    if state.state != Phase.COMMITTING:
        return None
    node = state.plan["node"]
    lost = judge_pod(state, states)
    pod = living(states, pod_stream(state))
    if lost is not None or pod is None or pod.manifest is None:
        return PodOutcome(bound=False, reason=None if lost is None else lost.why)
    found = spec(pod.manifest).get("nodeName")
    if found == node:
        return PodOutcome(bound=True)
    if found:
        return PodOutcome(bound=False, reason=f'pod "{state.plan["pod"]}" was bound to node "{found}" meanwhile')
    for index, leg in enumerate(state.legs):
        verdict = judge_leg(state, leg, states)
        if isinstance(verdict, Failed):
            return PodOutcome(bound=False, reason=f"binding volumes: {verdict.why}", leg=index)
        if isinstance(verdict, Wait):
            reason = f'binding volumes: PVC "{leg.claim}" is not bound any more'
            return PodOutcome(bound=False, reason=reason, leg=index)
    patch = placing_patch(pod.manifest, node, now)
    return EffectWrite(kind="Pod", key=state.plan["pod"], patch=patch, version=version(pod))


def unbind_patch(volume: Manifest) -> dict[str, Any]:
    """A volume that the system bound becomes free; one that a user reserved stays reserved, for any such claim."""
    dropped = {"metadata": {"annotations": {BOUND_BY_CONTROLLER: None, BINDING_STAMP: None}}}
    if BOUND_BY_CONTROLLER in annotations(volume) or claim_of(volume) is None:
        return {"spec": {"claimRef": None}, **dropped}
    return {"spec": {"claimRef": {"uid": None}}, **dropped}


def _is_written(volume: Manifest, binding: str, leg: LegState, guards: Guards) -> bool:
    reference = claim_of(volume)
    if guards.stamp:
        # Whoever takes the volume away from us may know nothing of our stamp and leave it on.
        taken = reference is not None and reference.get("uid") not in (None, "", leg.claim_uid)
        return annotations(volume).get(BINDING_STAMP) == binding and not taken
    return reference is not None and f"{reference.get('namespace')}/{reference.get('name')}" == leg.claim


def _why_bound_is_kept(claim: Manifest, guards: Guards) -> str:
    return HOLDS_DATA if guards.dirty and may_hold_data(status(claim).get("dataState"), bound=True) else KEPT


def _written_object(kind: str, leg: LegState, states: States) -> ObjectState | None:
    return _claim(leg, states) if kind == ANNOTATE else living(states, f"volume/{leg.volume}")


def _claim(leg: LegState, states: States) -> ObjectState | None:
    """The claim the leg was planned for, not a namesake made since."""
    claim = living(states, f"claim/{leg.claim}")
    if claim is None or claim.manifest is None or uid(claim.manifest) != leg.claim_uid:
        return None
    return claim


def _claim_write(leg: LegState, claim: ObjectState, patch: Mapping[str, Any]) -> EffectWrite:
    return EffectWrite(kind="PersistentVolumeClaim", key=leg.claim, patch=patch, version=version(claim))


def _stamp(state: ObjectState) -> str | None:
    found: str | None = annotations(state.manifest or {}).get(BINDING_STAMP)
    return found


def _joined(patch: dict[str, Any], stamp: Mapping[str, Any]) -> dict[str, Any]:
    marks = {**patch.get("metadata", {}).get("annotations", {}), **stamp["metadata"]["annotations"]}
    return {**patch, "metadata": {"annotations": marks}}


def _named(kind: str, leg: LegState) -> str:
    return f'PersistentVolumeClaim "{leg.claim}"' if kind == ANNOTATE else f'PersistentVolume "{leg.volume}"'


def _voided(reason: str) -> LegOutcome:
    return LegOutcome(phase=LegPhase.VOIDED, reason=reason)


def _retained(reason: str) -> LegOutcome:
    return LegOutcome(phase=LegPhase.RETAINED, reason=reason)
