"""The writes that undo a leg: one at a time, each conditional, claim before volume.

Called again after a crash, or after each write, a release continues from the objects that it reads. A volume that
may hold data, that others have taken since, or that a provisioner may still create is retained, with the reason.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, TypeVar

from volsched.binding.rules.effects import EffectWrite, LegOutcome, Outcome, planned_claim
from volsched.binding.rules.late_writes import ENDED_WITHOUT, stamp_of
from volsched.binding.rules.phases import SETTLED, Guards, LegPhase
from volsched.binding.rules.reasons import (
    CLAIM_GONE,
    HOLDS_DATA,
    KEPT,
    NOT_OURS,
    STILL_PROVISIONING,
    claim_gone,
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
from volsched.binding.rules.saga import claim_unseen
from volsched.kube.manifest import (
    BINDING_MARKS,
    Manifest,
    annotations,
    claim_is_bound,
    claim_of,
    is_being_deleted,
    may_hold_data,
    spec,
    status,
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
    origin_version,
    version,
)

USED_PHASES = ("Bound", "Released", "Failed")
"""Phases of a volume that may have been bound; once its claim is deleted, nothing else shows it."""
Step = TypeVar("Step")


def patiently(step: Step | Undecided, patient: bool) -> Step | Undecided | LegOutcome:
    """The step; a release that has waited long enough for others is retained."""
    return _retained(REASONS[step.row]) if isinstance(step, Undecided) and not patient else step


def undo(
    binding: str, index: int, states: States, guards: Guards, can_unbind: bool
) -> EffectWrite | Undecided | Outcome | None:
    """Release a write that arrived after its leg had ended, whatever the state of its binding."""
    state = states.get(binding_stream(binding))
    leg = state.legs[index] if isinstance(state, BindingState) else None
    if leg is None or leg.state not in SETTLED:
        return None
    if leg.state not in ENDED_WITHOUT:
        return _unmark(binding, leg, planned_claim(leg, states))
    step = release(binding, leg, states, guards, can_unbind)
    # "Not ours" means here that there is nothing left to undo.
    not_ours = (NOT_OURS, REASONS[SafeRow.NOT_OURS])
    return None if isinstance(step, LegOutcome) and step.reason in not_ours else step


def release(
    binding: str, leg: LegState, states: States, guards: Guards, can_unbind: bool
) -> EffectWrite | Undecided | Outcome:
    if not can_unbind:
        return _release_safely(binding, leg, states)
    if leg.dynamic:
        return _release_dynamic(binding, leg, states, guards)
    step, claim = _release_static(binding, leg, states, guards), planned_claim(leg, states)
    if isinstance(step, LegOutcome):
        # This release has removed any mark on the claim up to this version.
        return replace(step, rv=claim_unseen(leg) if claim is None else origin_version(claim))
    return step


def _release_safely(binding: str, leg: LegState, states: States) -> EffectWrite | Undecided | Outcome:
    """On a cluster that never unbinds: clear what the safe table allows, at the versions that were judged."""
    claim, volume = planned_claim(leg, states), living(states, f"volume/{leg.volume}")
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
            if volume is None or leg.dynamic or stamp_of(volume.manifest or {}) != binding:
                return LegOutcome(phase=LegPhase.RELEASED, reason=leg.reason)
            # Another writer has released the volume and left our stamp on it.
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
    """Claim before volume, mark last: no other process can complete the binding or take the volume midway."""
    volume, claim = living(states, f"volume/{leg.volume}"), planned_claim(leg, states)
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
    """Remove the release's mark before it ends: a claim that keeps the mark is never bound again.

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
    """The outcome if the volume is deleted, free again, or taken by another claim: nothing is left to undo."""
    if volume is None or volume.manifest is None:
        return LegOutcome(phase=LegPhase.RELEASED, reason=volume_gone(leg.volume))
    reference = claim_of(volume.manifest)
    if reference is not None and reference.get("uid"):
        return _retained(NOT_OURS)
    return LegOutcome(phase=LegPhase.RELEASED)


def _release_dynamic(binding: str, leg: LegState, states: States, guards: Guards) -> EffectWrite | Outcome:
    claim = planned_claim(leg, states)
    if claim is None or claim.manifest is None:
        return LegOutcome(phase=LegPhase.RELEASED, reason=claim_gone(leg.claim))
    manifest = claim.manifest
    if claim_is_bound(manifest):
        return _retained(_why_bound_is_kept(manifest, guards))
    if stamp_of(manifest) != binding and (guards.stamp or SELECTED_NODE not in annotations(manifest)):
        return LegOutcome(phase=LegPhase.RELEASED, reason=leg.reason if leg.state == LegPhase.RELEASING else None)
    ordered = any(key in annotations(manifest) for key in (STORAGE_PROVISIONER, BETA_STORAGE_PROVISIONER))
    # A provisioner that removes the node has refused permanently; one that is not sure keeps it.
    if spec(manifest).get("volumeName") or (ordered and SELECTED_NODE in annotations(manifest)):
        return _retained(STILL_PROVISIONING)
    dropped = dict.fromkeys((*selections(manifest), BINDING_STAMP))
    return _claim_write(leg, claim, {"metadata": {"annotations": dropped}})


def selections(claim: Manifest) -> tuple[str, ...]:
    """All annotations that commit the claim to a node: the stable name, and the alpha names if present."""
    return (SELECTED_NODE, *(key for key in ALPHA_SELECTED_NODES if key in annotations(claim)))


def _is_written(volume: Manifest, binding: str, leg: LegState, guards: Guards) -> bool:
    reference = claim_of(volume)
    if guards.stamp:
        # Another writer that took the volume may have left our stamp on it.
        taken = reference is not None and reference.get("uid") not in (None, "", leg.claim_uid)
        return stamp_of(volume) == binding and not taken
    return reference is not None and f"{reference.get('namespace')}/{reference.get('name')}" == leg.claim


def _why_bound_is_kept(claim: Manifest, guards: Guards) -> str:
    return HOLDS_DATA if guards.dirty and may_hold_data(status(claim).get("dataState"), bound=True) else KEPT


def _claim_write(leg: LegState, claim: ObjectState, patch: Mapping[str, Any]) -> EffectWrite:
    return EffectWrite(kind="PersistentVolumeClaim", key=leg.claim, patch=patch, version=version(claim))


def _retained(reason: str) -> LegOutcome:
    return LegOutcome(phase=LegPhase.RETAINED, reason=reason)
