"""The writes to the cluster for a leg, or for the pod: one at a time, each conditional.

An act reads the objects as they are now and returns the next write, or the outcome. Repeated after a crash it
continues from what it finds, so it needs no memory of its own. On our own log all writes of an act and its record
are one transaction; on a foreign cluster each is a call.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from volsched.binding.rules.late_writes import ENDED_WITHOUT, UNDO
from volsched.binding.rules.leg_conditions import Failed, Wait, judge_leg, judge_pod
from volsched.binding.rules.phases import ALL_GUARDS, SETTLED, Guards, LegPhase, Phase
from volsched.binding.rules.plan import claim_patch, volume_patch
from volsched.binding.rules.reasons import (
    BINDING_VOLUMES,
    CHANGED,
    CLAIM_GONE,
    FAILED_BEFORE_WRITE,
    HOLDS_DATA,
    KEPT,
    NOT_FOUND,
    NOT_OURS,
    STILL_PROVISIONING,
    claim_gone,
    claim_not_bound_any_more,
    pod_bound_meanwhile,
    volume_gone,
)
from volsched.binding.rules.safe_release import (
    ACTIONS,
    REASONS,
    SafeAction,
    SafeRow,
    Undecided,
    dynamic_row,
    static_row,
)
from volsched.binding.rules.saga import (
    ANNOTATE,
    BIND_POD,
    NOMINATE,
    PREBIND,
    RELEASE,
    UNNOMINATE,
    LegOutcome,
    NominationOutcome,
    PodOutcome,
    claim_unseen,
    open_binding,
)
from volsched.kube.manifest import (
    BINDING_MARKS,
    Manifest,
    annotations,
    claim_is_bound,
    claim_of,
    has_gate,
    is_being_deleted,
    may_hold_data,
    spec,
    status,
    uid,
    unbind_patch,
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
from volsched.log.events.fold import (
    BindingState,
    LegState,
    ObjectState,
    States,
    binding_stream,
    living,
    node_stream,
    origin_version,
    pod_stream,
    version,
)
from volsched.scheduling.rules.attempts import nomination, placing_patch

_ANY_NODE = ObjectState(version=0, manifest={})
"""A nomination reads the pod alone; whether its node exists is judged with the legs."""
USED_PHASES = ("Bound", "Released", "Failed")
"""Phases of a volume that its claim may have been bound to; nothing else is known once the claim is gone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EffectWrite:
    """A merge patch of one object, refused unless the object is at `version`."""

    kind: str
    key: str
    patch: Mapping[str, Any]
    version: str
    status: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class FenceWrite:
    """A harmless write of one object at `version`: a late write that was made on that version must fail then."""

    kind: str
    key: str
    version: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GateWrite:
    """Our scheduling gate is removed from the pod, and nothing else; refused unless the pod is at `version`."""

    key: str
    version: str
    kind: str = "Pod"


Outcome = LegOutcome | PodOutcome | NominationOutcome


def next_step(
    kind: str,
    binding: str,
    index: int,
    states: States,
    *,
    now: str,
    guards: Guards = ALL_GUARDS,
    can_unbind: bool = True,
    may_land: bool = False,
    patient: bool = True,
    places_pods: bool = True,
) -> EffectWrite | FenceWrite | GateWrite | Undecided | Outcome | None:
    """The next write for an effect of this kind, or its outcome; None if the effect has become void.

    `now` is an RFC 3339 time. `may_land`: an earlier attempt may have sent the effect's write, and it may still
    be carried out. Before such an effect ends without its write, the object is fenced. Without `patient`, a
    release that waits for others ends now. Without `places_pods`, the pod's own scheduler places it: nothing is
    nominated, and the last step removes our gate.
    """
    if kind == UNDO:
        step = _undo(binding, index, states, guards, can_unbind)
        return _patient(step, patient)
    if kind == UNNOMINATE:
        return _unnominate(binding, states, may_land) if places_pods else None
    state = open_binding(binding, states)
    if state is None:
        return None
    if kind == NOMINATE:
        return _nominate(state, states) if places_pods else NominationOutcome()
    if kind == BIND_POD and not places_pods:
        return _open_gate(state, states, may_land)
    if kind == BIND_POD:
        return _bind_pod(state, states, now, may_land)
    leg = state.legs[index]
    if kind in (PREBIND, ANNOTATE):
        return _forward(kind, binding, state, leg, states, guards, may_land)
    if kind == RELEASE and leg.state == LegPhase.RELEASING:
        return _patient(_release(binding, leg, states, guards, can_unbind), patient)
    return None


Step = TypeVar("Step")


def _patient(step: Step | Undecided, patient: bool) -> Step | Undecided | LegOutcome:
    return _retained(REASONS[step.row]) if isinstance(step, Undecided) and not patient else step


def _nominate(state: BindingState, states: States) -> EffectWrite | Outcome | None:
    """Others see where the pod will run before the first write, so no autoscaler removes that node."""
    if state.state != Phase.PREBINDING:
        return None
    lost = judge_pod(state, {**states, node_stream(state): _ANY_NODE})
    pod = living(states, pod_stream(state))
    if lost is not None or pod is None or pod.manifest is None:
        return NominationOutcome(reason=None if lost is None else lost.why)
    runs_on = spec(pod.manifest).get("nodeName")
    if state.plan["node"] in (runs_on, status(pod.manifest).get("nominatedNodeName")):
        # It runs there already where this store was restored from a backup: the legs are found written, too.
        return NominationOutcome()
    if runs_on:
        return NominationOutcome(reason=pod_bound_meanwhile(state.plan["pod"], runs_on))
    return _nomination_write(state, pod, state.plan["node"])


def _unnominate(binding: str, states: States, may_land: bool) -> EffectWrite | FenceWrite | Outcome | None:
    state = states.get(binding_stream(binding))
    pod = living(states, f"pod/{state.plan['pod']}") if isinstance(state, BindingState) else None
    if not isinstance(state, BindingState) or pod is None or pod.manifest is None:
        return None
    if uid(pod.manifest) != state.plan["pod_uid"] or spec(pod.manifest).get("nodeName"):
        return None
    if pod.assumed is not None and pod.assumed.binding != binding:
        # The pod's next binding nominates it by itself.
        return None
    if status(pod.manifest).get("nominatedNodeName") == state.plan["node"]:
        return _nomination_write(state, pod, None)
    if may_land:
        return FenceWrite(kind="Pod", key=state.plan["pod"], version=version(pod))
    return NominationOutcome()


def _nomination_write(state: BindingState, pod: ObjectState, node: str | None) -> EffectWrite:
    patch = nomination(node)
    return EffectWrite(kind="Pod", key=state.plan["pod"], patch=patch, version=version(pod), status=True)


def _forward(
    kind: str, binding: str, state: BindingState, leg: LegState, states: States, guards: Guards, may_land: bool
) -> EffectWrite | FenceWrite | Outcome | None:
    if leg.state != LegPhase.ASSUMED:
        return None
    written = _written_object(kind, leg, states)
    if written is not None and _stamp(written) == binding:
        return LegOutcome(phase=LegPhase.WRITTEN, rv=origin_version(written))
    if state.state == Phase.COMPENSATING:
        if may_land and written is not None and version(written) == leg.rv:
            return _fence(kind, leg)
        return _voided(state.reason or FAILED_BEFORE_WRITE)
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
    """The volume points at the claim already: a provisioner made it, or the PV controller began to bind it.

    The leg waits for it without our stamp. A link that we did not write is not undone: a provisioned volume that
    loses its claim is offered to other claims and never deleted.
    """
    reference = claim_of(volume)
    return reference is not None and bool(leg.claim_uid) and reference.get("uid") == leg.claim_uid


def _assumed_patch(claim: ObjectState, binding: str) -> dict[str, Any] | None:
    """The write equals the plan's assumption, which knows the names under which the node is selected."""
    assumed = claim.assumed
    return dict(assumed.patch) if assumed is not None and assumed.binding == binding else None


def _undo(
    binding: str, index: int, states: States, guards: Guards, can_unbind: bool
) -> EffectWrite | Undecided | Outcome | None:
    """Release a write that arrived after its leg had ended, whatever the state of its binding."""
    state = states.get(binding_stream(binding))
    leg = state.legs[index] if isinstance(state, BindingState) else None
    if leg is None or leg.state not in SETTLED:
        return None
    if leg.state not in ENDED_WITHOUT:
        return _unmark(binding, leg, _claim(leg, states))
    step = _release(binding, leg, states, guards, can_unbind)
    # "Not ours" means here that there is nothing left to undo.
    not_ours = (NOT_OURS, REASONS[SafeRow.NOT_OURS])
    return None if isinstance(step, LegOutcome) and step.reason in not_ours else step


def _release(
    binding: str, leg: LegState, states: States, guards: Guards, can_unbind: bool
) -> EffectWrite | Undecided | Outcome:
    if not can_unbind:
        return _release_safely(binding, leg, states)
    if leg.dynamic:
        return _release_dynamic(binding, leg, states, guards)
    step, claim = _release_static(binding, leg, states, guards), _claim(leg, states)
    if isinstance(step, LegOutcome):
        # This release has removed any mark on the claim up to this version.
        return replace(step, rv=claim_unseen(leg) if claim is None else origin_version(claim))
    return step


def _release_safely(binding: str, leg: LegState, states: States) -> EffectWrite | Undecided | Outcome:
    """On a cluster that never unbinds: clear what the safe table allows, at the versions that were judged."""
    claim, volume = _claim(leg, states), living(states, f"volume/{leg.volume}")
    manifest = None if claim is None else claim.manifest
    if leg.dynamic:
        row = dynamic_row(binding, leg.claim_uid, manifest)
    elif volume is None or volume.manifest is None:
        return LegOutcome(phase=LegPhase.RELEASED, reason=volume_gone(leg.volume))
    else:
        row = static_row(binding, leg.volume or "", leg.claim_uid, manifest, volume.manifest)
    match ACTIONS[row]:
        case SafeAction.RETAIN:
            return _retained(REASONS[row])
        case SafeAction.WAIT:
            return Undecided(row)
        case SafeAction.NOTHING:
            if volume is None or leg.dynamic or _stamp(volume) != binding:
                return LegOutcome(phase=LegPhase.RELEASED, reason=leg.reason)
            # Somebody else has freed the volume and left our stamp on it.
            unmarked = {"metadata": {"annotations": dict.fromkeys(BINDING_MARKS)}}
            return EffectWrite(
                kind="PersistentVolume", key=leg.volume or "", patch=unmarked, version=version(volume)
            )
    if leg.dynamic:
        assert claim is not None
        dropped = dict.fromkeys((*selections(manifest or {}), BINDING_STAMP))
        return _claim_write(leg, claim, {"metadata": {"annotations": dropped}})
    assert volume is not None
    patch = unbind_patch(volume.manifest or {})
    return EffectWrite(kind="PersistentVolume", key=leg.volume or "", patch=patch, version=version(volume))


def _release_static(binding: str, leg: LegState, states: States, guards: Guards) -> EffectWrite | Outcome:
    """Claim before volume, mark last: no process can complete the binding or take the volume half way."""
    volume, claim = living(states, f"volume/{leg.volume}"), _claim(leg, states)
    manifest = {} if claim is None or claim.manifest is None else claim.manifest
    if volume is None or volume.manifest is None or not _is_written(volume.manifest, binding, leg, guards):
        return _unmark(binding, leg, claim) or _nothing_left(volume, leg)
    if claim is None and status(volume.manifest).get("phase") in USED_PHASES:
        return _retained(CLAIM_GONE)
    # A claim that points at another volume can never be bound to this one.
    elsewhere = spec(manifest).get("volumeName", leg.volume) not in ("", leg.volume)
    if claim is not None and not elsewhere:
        kept = _why_kept(manifest, guards)
        if kept is not None:
            return _unmark(binding, leg, claim) or _retained(kept)
        if not is_being_deleted(manifest):
            if ROLLBACK not in annotations(manifest):
                return _claim_write(leg, claim, {"metadata": {"annotations": {ROLLBACK: binding}}})
            if spec(manifest).get("volumeName"):
                dropped = {
                    "metadata": {"annotations": dict.fromkeys((BOUND_BY_CONTROLLER, *selections(manifest)))}
                }
                return _claim_write(leg, claim, {"spec": {"volumeName": None}, **dropped})
    return EffectWrite(
        kind="PersistentVolume", key=leg.volume or "", patch=unbind_patch(volume.manifest), version=version(volume)
    )


def _unmark(binding: str, leg: LegState, claim: ObjectState | None) -> EffectWrite | None:
    """Every release removes its mark before it ends: a claim that keeps the mark is never bound again.

    The mark names its binding, so that a release removes only its own and a late mark is recognised.
    """
    if claim is None or annotations(claim.manifest or {}).get(ROLLBACK) != binding:
        return None
    return _claim_write(leg, claim, {"metadata": {"annotations": {ROLLBACK: None}}})


def _why_kept(claim: Manifest, guards: Guards) -> str | None:
    if claim_is_bound(claim):
        return _why_bound_is_kept(claim, guards)
    return HOLDS_DATA if guards.dirty and may_hold_data(status(claim).get("dataState"), bound=False) else None


def _nothing_left(volume: ObjectState | None, leg: LegState) -> Outcome:
    """The volume is gone, free again, or taken by another claim: nothing of this leg is left to undo."""
    if volume is None or volume.manifest is None:
        return LegOutcome(phase=LegPhase.RELEASED, reason=volume_gone(leg.volume))
    reference = claim_of(volume.manifest)
    if reference is not None and reference.get("uid"):
        return _retained(NOT_OURS)
    return LegOutcome(phase=LegPhase.RELEASED)


def _release_dynamic(binding: str, leg: LegState, states: States, guards: Guards) -> EffectWrite | Outcome:
    claim = _claim(leg, states)
    if claim is None or claim.manifest is None:
        return LegOutcome(phase=LegPhase.RELEASED, reason=claim_gone(leg.claim))
    manifest = claim.manifest
    if claim_is_bound(manifest):
        return _retained(_why_bound_is_kept(manifest, guards))
    if _stamp(claim) != binding and (guards.stamp or SELECTED_NODE not in annotations(manifest)):
        return LegOutcome(phase=LegPhase.RELEASED, reason=leg.reason if leg.state == LegPhase.RELEASING else None)
    ordered = any(key in annotations(manifest) for key in (STORAGE_PROVISIONER, BETA_STORAGE_PROVISIONER))
    # A provisioner that removes the node has refused for good; one that is not sure keeps it.
    if spec(manifest).get("volumeName") or (ordered and SELECTED_NODE in annotations(manifest)):
        return _retained(STILL_PROVISIONING)
    dropped = dict.fromkeys((*selections(manifest), BINDING_STAMP))
    return _claim_write(leg, claim, {"metadata": {"annotations": dropped}})


def selections(claim: Manifest) -> tuple[str, ...]:
    """All annotations that commit the claim to a node: the stable name, and the alpha names if present."""
    return (SELECTED_NODE, *(key for key in ALPHA_SELECTED_NODES if key in annotations(claim)))


def _bind_pod(
    state: BindingState, states: States, now: str, may_land: bool
) -> EffectWrite | FenceWrite | Outcome | None:
    if state.state != Phase.COMMITTING:
        return None
    pod = living(states, pod_stream(state))
    manifest = {} if pod is None or pod.manifest is None else pod.manifest
    if pod is not None and uid(manifest) == state.plan["pod_uid"] and spec(manifest).get("nodeName"):
        runs_on = spec(manifest)["nodeName"]
        if runs_on == state.plan["node"]:
            return PodOutcome(bound=True)
        return PodOutcome(bound=False, reason=pod_bound_meanwhile(state.plan["pod"], runs_on))
    blocked = _why_not_bound(state, states)
    if blocked is None and pod is not None:
        patch = placing_patch(manifest, state.plan["node"], now)
        return EffectWrite(kind="Pod", key=state.plan["pod"], patch=patch, version=version(pod))
    if may_land and pod is not None and uid(manifest) == state.plan["pod_uid"]:
        return FenceWrite(kind="Pod", key=state.plan["pod"], version=version(pod))
    return blocked


def _open_gate(state: BindingState, states: States, may_land: bool) -> FenceWrite | GateWrite | Outcome | None:
    if state.state != Phase.COMMITTING:
        return None
    pod = living(states, pod_stream(state))
    if pod is not None and uid(pod.manifest or {}) == state.plan["pod_uid"] and not has_gate(pod.manifest or {}):
        # Removed: by us, or by a person who did not want to wait.
        return PodOutcome(bound=True, stays_free=True)
    blocked = _why_not_bound(state, states)
    if blocked is None and pod is not None:
        return GateWrite(key=state.plan["pod"], version=version(pod))
    if may_land and pod is not None and uid(pod.manifest or {}) == state.plan["pod_uid"]:
        return FenceWrite(kind="Pod", key=state.plan["pod"], version=version(pod))
    return blocked


def _why_not_bound(state: BindingState, states: States) -> PodOutcome | None:
    lost = judge_pod(state, states)
    if lost is not None:
        return PodOutcome(bound=False, reason=lost.why)
    for index, leg in enumerate(state.legs):
        verdict = judge_leg(state, leg, states)
        if isinstance(verdict, Failed):
            return PodOutcome(bound=False, reason=f"{BINDING_VOLUMES}{verdict.why}", leg=index)
        if isinstance(verdict, Wait):
            reason = f"{BINDING_VOLUMES}{claim_not_bound_any_more(leg.claim)}"
            return PodOutcome(bound=False, reason=reason, leg=index)
    return None


def _is_written(volume: Manifest, binding: str, leg: LegState, guards: Guards) -> bool:
    reference = claim_of(volume)
    if guards.stamp:
        # Another writer that took the volume may have left our stamp on it.
        taken = reference is not None and reference.get("uid") not in (None, "", leg.claim_uid)
        return annotations(volume).get(BINDING_STAMP) == binding and not taken
    return reference is not None and f"{reference.get('namespace')}/{reference.get('name')}" == leg.claim


def _why_bound_is_kept(claim: Manifest, guards: Guards) -> str:
    return HOLDS_DATA if guards.dirty and may_hold_data(status(claim).get("dataState"), bound=True) else KEPT


def _written_object(kind: str, leg: LegState, states: States) -> ObjectState | None:
    return _claim(leg, states) if kind == ANNOTATE else living(states, f"volume/{leg.volume}")


def _claim(leg: LegState, states: States) -> ObjectState | None:
    """The claim that the leg was planned for, not a later one of the same name."""
    claim = living(states, f"claim/{leg.claim}")
    if claim is None or claim.manifest is None or uid(claim.manifest) != leg.claim_uid:
        return None
    return claim


def _claim_write(leg: LegState, claim: ObjectState, patch: Mapping[str, Any]) -> EffectWrite:
    return EffectWrite(kind="PersistentVolumeClaim", key=leg.claim, patch=patch, version=version(claim))


def _fence(kind: str, leg: LegState) -> FenceWrite:
    if kind == ANNOTATE:
        return FenceWrite(kind="PersistentVolumeClaim", key=leg.claim, version=leg.rv)
    return FenceWrite(kind="PersistentVolume", key=leg.volume or "", version=leg.rv)


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
