"""The writes to the cluster for a leg, or for the pod: one at a time, each conditional.

An act reads the present objects and returns the next write, or the outcome; the acts that undo a leg are in
`release_writes`. An act is stateless: repeated after a crash, it continues from the objects that it reads. On our
own log all writes of an act and its record are one transaction; on a foreign cluster each is a call.
"""

from collections.abc import Mapping
from typing import Any

from volsched.binding.rules.effects import (
    ANNOTATE,
    BIND_POD,
    NOMINATE,
    PREBIND,
    RELEASE,
    UNNOMINATE,
    ClusterWrite,
    EffectWrite,
    FenceWrite,
    GateWrite,
    LegOutcome,
    NominationOutcome,
    Outcome,
    PodOutcome,
    planned_claim,
)
from volsched.binding.rules.late_writes import UNDO, stamp_of
from volsched.binding.rules.leg_conditions import Failed, Wait, judge_leg, judge_pod
from volsched.binding.rules.phases import ALL_GUARDS, Guards, LegPhase, Phase
from volsched.binding.rules.plan import claim_patch, volume_patch
from volsched.binding.rules.reasons import (
    BINDING_VOLUMES,
    CHANGED,
    FAILED_BEFORE_WRITE,
    NOT_FOUND,
    claim_not_bound_any_more,
    pod_bound_meanwhile,
)
from volsched.binding.rules.release_writes import patiently, release, undo
from volsched.binding.rules.safe_release import Undecided
from volsched.binding.rules.saga import open_binding
from volsched.kube.manifest import Manifest, claim_of, has_gate, spec, status, uid
from volsched.kube.meta import BINDING_STAMP
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
"""Stands for the node in a nomination, which reads the pod alone; the legs check whether the node exists."""


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
) -> ClusterWrite | Undecided | Outcome | None:
    """The next write for an effect of this kind, or its outcome; None if the effect has become void.

    `now` is an RFC 3339 time. `may_land`: an earlier attempt may have sent the effect's write, and it may still
    be carried out. Before such an effect ends without its write, the object is fenced. Without `patient`, a
    release that waits for others ends now. Without `places_pods`, the pod's own scheduler places it: nothing is
    nominated, and the last step removes our gate.
    """
    if kind == UNDO:
        step = undo(binding, index, states, guards, can_unbind)
        return patiently(step, patient)
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
        return patiently(release(binding, leg, states, guards, can_unbind), patient)
    return None


def _nominate(state: BindingState, states: States) -> EffectWrite | Outcome | None:
    """Show the pod's future node before the first write, so that no autoscaler removes that node."""
    if state.state != Phase.PREBINDING:
        return None
    lost = judge_pod(state, {**states, node_stream(state): _ANY_NODE})
    pod = living(states, pod_stream(state))
    if lost is not None or pod is None or pod.manifest is None:
        return NominationOutcome(reason=None if lost is None else lost.why)
    runs_on = spec(pod.manifest).get("nodeName")
    if state.plan["node"] in (runs_on, status(pod.manifest).get("nominatedNodeName")):
        # After a restore from a backup the pod may run there already: the legs are found written, too.
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
        # The pod's next binding nominates the pod itself.
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
    if written is not None and stamp_of(written.manifest or {}) == binding:
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
    """Whether the volume points at the claim already: a provisioner created it, or the PV controller binds it.

    The leg waits for it without our stamp. A link that we did not write is not undone: a provisioned volume that
    loses its claim is offered to other claims and never deleted.
    """
    reference = claim_of(volume)
    return reference is not None and bool(leg.claim_uid) and reference.get("uid") == leg.claim_uid


def _assumed_patch(claim: ObjectState, binding: str) -> dict[str, Any] | None:
    """The plan's assumption as a write: it has the annotations under which the node is selected."""
    assumed = claim.assumed
    return dict(assumed.patch) if assumed is not None and assumed.binding == binding else None


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
        # The gate was removed: by us, or by a person.
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


def _written_object(kind: str, leg: LegState, states: States) -> ObjectState | None:
    return planned_claim(leg, states) if kind == ANNOTATE else living(states, f"volume/{leg.volume}")


def _fence(kind: str, leg: LegState) -> FenceWrite:
    if kind == ANNOTATE:
        return FenceWrite(kind="PersistentVolumeClaim", key=leg.claim, version=leg.rv)
    return FenceWrite(kind="PersistentVolume", key=leg.volume or "", version=leg.rv)


def _joined(patch: dict[str, Any], stamp: Mapping[str, Any]) -> dict[str, Any]:
    marks = {**patch.get("metadata", {}).get("annotations", {}), **stamp["metadata"]["annotations"]}
    return {**patch, "metadata": {"annotations": marks}}


def _named(kind: str, leg: LegState) -> str:
    return f'PersistentVolumeClaim "{leg.claim}"' if kind == ANNOTATE else f'PersistentVolume "{leg.volume}"'


def _voided(reason: str) -> LegOutcome:
    return LegOutcome(phase=LegPhase.VOIDED, reason=reason)
