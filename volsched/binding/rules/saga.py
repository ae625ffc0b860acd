"""The steps of a binding: recorded outcomes, and the next step for the current state.

`advance` is level-triggered and idempotent: it reads the binding and its objects and returns the next step, or
nothing. The store calls it in the transaction of every event that touches a binding, and recovery calls it after a
crash. `record_leg` and `record_pod` are total: a late, repeated or stale outcome writes no event.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Literal

from volsched.binding.rules.effects import (
    ANNOTATE,
    PREBIND,
    RELEASE,
    UNNOMINATE,
    LegOutcome,
    PodOutcome,
    binding_effect,
    effects_of,
    is_unnominated,
    leg_effect,
)
from volsched.binding.rules.foreign_notice import notice_effect
from volsched.binding.rules.leg_conditions import Bound, Failed, judge_leg, judge_pod, judge_reserved
from volsched.binding.rules.phases import ALL_GUARDS, SETTLED, UNDER_WAY, Guards, LegPhase, Phase
from volsched.binding.rules.reasons import (
    BINDING_VOLUMES,
    DEADLINE_EXCEEDED,
    NOT_WRITABLE,
    REFUSED,
    RESERVATION_EXPIRED,
    RESERVATION_LOST,
    RETAIN_ASKED,
    claim_keeps_writes,
    release_given_up,
)
from volsched.kube.manifest import annotations, claim_is_bound, spec, status, uid
from volsched.kube.meta import BINDING_STAMP, SELECTED_NODE
from volsched.log.events.envelope import NewEvent
from volsched.log.events.fold import (
    NOTHING,
    BindingState,
    Decision,
    LegState,
    NewEffect,
    State,
    States,
    binding_stream,
    living,
    manifest_of,
    node_stream,
    origin_version,
    pod_stream,
)
from volsched.objects.rules.object_events import changed_event
from volsched.scheduling.rules.attempts import nomination

TIME_TO_WRITE_US = 60_000_000
TIME_TO_BIND_US = 600_000_000
"""Time to bind a pod that is on its node already: its volumes need not be bound within the rest of a lease."""
VOLUME_RETAINED = "VolumeRetained"
"""The reason of the event about a claim whose leg could not be undone."""
Stage = Literal["PreBind", "Bind"]
"""Where a decision failed, in the reference's terms: binding its volumes, or binding the pod."""


_MOVES = {
    LegPhase.ASSUMED: frozenset({LegPhase.WRITTEN, LegPhase.VOIDED}),
    LegPhase.RELEASING: frozenset({LegPhase.VOIDED, LegPhase.RELEASED, LegPhase.RETAINED}),
}
"""The outcomes that an effect may bring to a leg; all others come too late."""
_GIVEN_UP = SETTLED | {LegPhase.RELEASING}
"""A leg in one of these phases can no longer be bound."""


def open_binding(binding: str, states: States) -> BindingState | None:
    state = states.get(binding_stream(binding))
    return state if isinstance(state, BindingState) and state.open else None


def context_of(state: BindingState, states: States) -> tuple[str, ...]:
    """The streams that decide the binding's next step; volumes of provisioned claims as far as known."""
    streams = [pod_stream(state), node_stream(state)]
    for leg in state.legs:
        streams.append(f"claim/{leg.claim}")
        claim = living(states, f"claim/{leg.claim}")
        volume = leg.volume or (spec(claim.manifest).get("volumeName") if claim and claim.manifest else None)
        if volume:
            streams.append(f"volume/{volume}")
        if leg.joins is not None:
            streams.append(binding_stream(leg.joins))
    return tuple(streams)


def record_leg(binding: str, index: int, outcome: LegOutcome, states: States) -> Decision:
    """Record the outcome of a leg's effect."""
    state = open_binding(binding, states)
    if state is None or index >= len(state.legs):
        return NOTHING
    leg = state.legs[index]
    if outcome.phase not in _MOVES.get(LegPhase(leg.state), ()):
        return NOTHING
    events = [_leg_moved(binding, index, outcome.phase, reason=outcome.reason, rv=outcome.rv)]
    if outcome.phase in SETTLED or outcome.given:
        events += _freed(binding, leg, states, outcome.reason)
    retained = outcome.phase is LegPhase.RETAINED
    effects = _retained_notices(binding, index, leg, outcome, states) if retained else ()
    return Decision(events=tuple(events), effects=effects)


def _retained_notices(
    binding: str, index: int, leg: LegState, outcome: LegOutcome, states: States
) -> tuple[NewEffect, ...]:
    """An event about a foreign claim: a leg that could not be undone is always reported."""
    claim = living(states, f"claim/{leg.claim}")
    if claim is None or origin_version(claim) is None or uid(claim.manifest or {}) != leg.claim_uid:
        return ()
    message = claim_keeps_writes(binding, outcome.reason)
    return (
        notice_effect(
            f"{binding}/{index}", kind="PersistentVolumeClaim", key=leg.claim, uid=leg.claim_uid,
            type_="Warning", reason=VOLUME_RETAINED, message=message,
        ),
    )  # fmt: skip


def record_pod(binding: str, outcome: PodOutcome, states: States) -> Decision:
    """Record the outcome of binding the pod to its node."""
    state = open_binding(binding, states)
    if state is None or state.state != Phase.COMMITTING:
        return NOTHING
    if outcome.bound:
        return Decision(events=(*_pod_freed(binding, state, states, outcome), moved(binding, Phase.COMMITTED)))
    stage: Stage = "Bind" if outcome.leg is None else "PreBind"
    return _failed(binding, outcome.reason, stage=stage, leg=outcome.leg)


def record_nomination(binding: str, reason: str | None, states: States) -> Decision:
    """Record that the pod shows its future node, so that its legs may be written; or the reason why not."""
    state = open_binding(binding, states)
    if state is None or state.state != Phase.PREBINDING:
        return NOTHING
    if reason is not None:
        return _failed(binding, f"{BINDING_VOLUMES}{reason}")
    return _next_stage(binding, state)


def _pod_freed(binding: str, state: BindingState, states: States, outcome: PodOutcome) -> Iterator[NewEvent]:
    pod = living(states, pod_stream(state))
    if outcome.stays_free and pod is not None and pod.assumed is not None and pod.assumed.binding == binding:
        yield _free(pod_stream(state), "PodFreed", binding, None)


def fail(binding: str, reason: str, states: States, *, leg: int | None = None) -> Decision:
    """Fail the binding: its deadline has passed, or an operator requested it. Too late once it is committing.

    `leg`: the leg at fault.
    """
    state = open_binding(binding, states)
    if state is None or state.state not in UNDER_WAY:
        return NOTHING
    if state.state == Phase.RESERVED:
        return let_go(binding, state, reason, states)
    return _failed(binding, reason, leg=leg)


def let_go(binding: str, state: BindingState, reason: str, states: States) -> Decision:
    """End a reservation. None of its writes is in flight, so its legs end with it."""
    events = [moved(binding, Phase.COMPENSATING, reason=reason)]
    for index, leg in enumerate(state.legs):
        if leg.state == LegPhase.ASSUMED:
            events.append(_leg_moved(binding, index, LegPhase.VOIDED, reason=reason))
            events += _freed(binding, leg, states, reason)
    return Decision(events=tuple(events))


def begin(binding: str, state: BindingState, *, deadline: int | None = None) -> Decision:
    """Turn a reservation into a normal binding and queue its writes; without claims only the pod's."""
    phase = Phase.PREBINDING if state.legs else Phase.COMMITTING
    effects = effects_of(binding, state._replace(state=phase))
    return Decision(events=(moved(binding, phase, deadline=deadline),), effects=effects)


def time_out(binding: str, now: int, states: States) -> Decision:
    """Fail a binding whose deadline has passed. Writes get at least a minute: even with no time left they are made
    before the binding fails.
    """
    state = open_binding(binding, states)
    deadline = None if state is None else state.plan.get("deadline")
    if state is None or deadline is None or now < deadline_of(state.state, deadline, state.planned_at):
        return NOTHING
    missing = next((index for index, leg in enumerate(state.legs) if leg.state != LegPhase.BOUND), None)
    reason = RESERVATION_EXPIRED if state.state == Phase.RESERVED else DEADLINE_EXCEEDED
    return fail(binding, reason, states, leg=missing)


def deadline_of(phase: str, deadline: int, planned_at: int) -> int:
    return max(deadline, planned_at + TIME_TO_WRITE_US) if phase == Phase.PREBINDING else deadline


def give_up_write(binding: str, index: int, states: States) -> Decision:
    """Give up a parked write of a failed binding: the release finds out whether the write happened."""
    state = open_binding(binding, states)
    if state is None or state.state != Phase.COMPENSATING or index >= len(state.legs):
        return NOTHING
    if state.legs[index].state != LegPhase.ASSUMED:
        return NOTHING
    return _releasing(binding, index, state.legs[index], ALL_GUARDS)


def give_up_release(binding: str, index: int, why: str, states: States) -> Decision:
    """Give up a parked release: the leg is retained, undecided, and the binding can end."""
    state = open_binding(binding, states)
    leg = None if state is None or index >= len(state.legs) else state.legs[index]
    rv = None if leg is None or leg.dynamic else claim_unseen(leg)
    outcome = LegOutcome(phase=LegPhase.RETAINED, reason=release_given_up(why), rv=rv)
    return record_leg(binding, index, outcome, states)


def claim_unseen(leg: LegState) -> str | None:
    """The claim version that a volume's release records if it saw none: older than any.

    Until then `written_rv` is the volume's, and versions of two kinds are never compared. None if the cluster is
    our own log, whose objects carry no foreign version.
    """
    return None if leg.written_rv is None else "0"


def advance(binding: str, states: States, *, guards: Guards = ALL_GUARDS) -> Decision:
    """The next step for the current state; called again until there is none (`goes_on`)."""
    state = open_binding(binding, states)
    if state is None:
        return NOTHING
    if state.state == Phase.RESERVED:
        return _hold(binding, state, states)
    if state.state in UNDER_WAY:
        return _move_forward(binding, state, states)
    return _compensate(binding, state, states, guards) if state.state == Phase.COMPENSATING else NOTHING


def goes_on(state: State | None) -> bool:
    """Whether another step may follow at once: a failure is undone leg by leg, but forward is a single step."""
    return isinstance(state, BindingState) and state.state == Phase.COMPENSATING


def moved(
    binding: str,
    phase: Phase,
    *,
    reason: str | None = None,
    deadline: int | None = None,
    stage: Stage | None = None,
    leg: int | None = None,
) -> NewEvent:
    """The event of a new phase. `deadline` replaces the binding's; `stage` and `leg` show where it failed."""
    is_open = phase not in (Phase.COMMITTED, Phase.ROLLED_BACK)
    data: dict[str, object] = {"state": phase.value, "open": is_open}
    optional = {"reason": reason, "deadline": deadline, "stage": stage, "leg": leg}
    data |= {name: value for name, value in optional.items() if value is not None}
    return NewEvent(stream=binding_stream(binding), type="BindingMoved", data=data, binding=binding)


def _hold(binding: str, state: BindingState, states: States) -> Decision:
    """A reservation's step: none while all is unchanged. Binding the pod to its node implies confirmation."""
    refused = _given_up(state)
    if refused is not None:
        return let_go(binding, state, _why(state, refused), states)
    lost = judge_reserved(state, states)
    if lost is not None:
        return let_go(binding, state, f"{RESERVATION_LOST}: {lost.why}", states)
    if not spec(manifest_of(states, pod_stream(state)) or {}).get("nodeName"):
        return NOTHING
    lease = state.plan.get("deadline")
    return begin(binding, state, deadline=None if lease is None else lease + TIME_TO_BIND_US)


def _given_up(state: BindingState) -> int | None:
    """The first leg that can no longer be bound."""
    return next((index for index, leg in enumerate(state.legs) if leg.state in _GIVEN_UP), None)


def _why(state: BindingState, index: int) -> str:
    return state.legs[index].reason or NOT_WRITABLE


def _move_forward(binding: str, state: BindingState, states: States) -> Decision:
    refused = _given_up(state)
    if refused is not None:
        return _failed(binding, _why(state, refused), leg=refused)
    lost = judge_pod(state, states)
    if lost is not None:
        return _failed(binding, f"{BINDING_VOLUMES}{lost.why}")
    events, phases = [], []
    for index, leg in enumerate(state.legs):
        phase = LegPhase(leg.state)
        # Bound legs too: waiting for the others does not restore a lost one.
        verdict = judge_leg(state, leg, states)
        if isinstance(verdict, Failed):
            return _failed(binding, f"{BINDING_VOLUMES}{verdict.why}", leg=index)
        if isinstance(verdict, Bound) and phase is not LegPhase.BOUND:
            phase = LegPhase.BOUND
            events.append(_leg_moved(binding, index, phase, volume=verdict.volume))
        phases.append(phase)
    if state.state == Phase.PREBINDING:
        if LegPhase.ASSUMED in phases or (LegPhase.PLANNED in phases and is_unnominated(state)):
            return Decision(events=tuple(events))
        if LegPhase.PLANNED in phases:
            stage = _next_stage(binding, state)
            return replace(stage, events=(*events, *stage.events))
        events.append(moved(binding, Phase.WAITING))
    if all(phase is LegPhase.BOUND for phase in phases):
        # Provisioned volumes are known by now: the moves of their legs name them.
        known = {event.data["leg"]: event.data["volume"] for event in events if event.type == "LegMoved"}
        legs = tuple(leg._replace(volume=known.get(i, leg.volume)) for i, leg in enumerate(state.legs))
        effects = effects_of(binding, state._replace(state=Phase.COMMITTING, legs=legs))
        return Decision(events=(*events, moved(binding, Phase.COMMITTING)), effects=effects)
    return Decision(events=tuple(events))


def _compensate(binding: str, state: BindingState, states: States, guards: Guards) -> Decision:
    for index, leg in enumerate(state.legs):
        if leg.state == LegPhase.JOINED or (not leg.owner and leg.state == LegPhase.BOUND):
            return Decision(events=(_leg_moved(binding, index, LegPhase.VOIDED, reason=state.reason),))
        if leg.state == LegPhase.PLANNED:
            move = _leg_moved(binding, index, LegPhase.VOIDED, reason=state.reason)
            return Decision(events=(move, *_freed(binding, leg, states, state.reason)))
        if leg.state in (LegPhase.WRITTEN, LegPhase.BOUND):
            if state.plan.get("on_failure") == "retain":
                return record_retained(binding, index, RETAIN_ASKED)
            refused = _is_refused(binding, leg, states)
            return _releasing(binding, index, leg._replace(reason=REFUSED) if refused else leg, guards)
        if leg.state == LegPhase.ASSUMED and not guards.lanes:
            return _releasing(binding, index, leg, guards)
    if any(leg.state not in SETTLED for leg in state.legs):
        return NOTHING
    freed = []
    pod = living(states, pod_stream(state))
    if pod is not None and pod.assumed is not None and pod.assumed.binding == binding:
        freed.append(_free(pod_stream(state), "PodFreed", binding, state.reason))
        if (
            status(pod.manifest or {}).get("nominatedNodeName") == state.plan["node"]
            and origin_version(pod) is None
        ):
            freed.append(changed_event(pod_stream(state), nomination(None), binding=binding))
    # The pod itself shows whether it is nominated: an unanswered write may still arrive.
    effects: tuple[NewEffect, ...] = ()
    if pod is not None and origin_version(pod) is not None and any(leg.owner for leg in state.legs):
        streams = (pod_stream(state),)
        effects = (binding_effect(binding, "nomination", UNNOMINATE, {"streams": streams}, queue=RELEASE),)
    return Decision(events=(*freed, moved(binding, Phase.ROLLED_BACK, reason=state.reason)), effects=effects)


def _next_stage(binding: str, state: BindingState) -> Decision:
    """Queue the writes of static legs, or, if all of those are written, of dynamic ones.

    A conflict costs little while every leg can still be undone. The PV controller completes a static leg within
    milliseconds, and a request to a provisioner cannot be cancelled, so dynamic legs come last: they have no
    contention.
    """
    planned = [(index, leg) for index, leg in enumerate(state.legs) if leg.state == LegPhase.PLANNED]
    chosen = [it for it in planned if not it[1].dynamic] or planned
    moves = [_leg_moved(binding, index, LegPhase.ASSUMED) for index, _ in chosen]
    effects = [leg_effect(binding, index, ANNOTATE if leg.dynamic else PREBIND, leg) for index, leg in chosen]
    return Decision(events=tuple(moves), effects=tuple(effects))


def _is_refused(binding: str, leg: LegState, states: States) -> bool:
    """Whether a provisioner refused the leg: the claim has its stamp, but the node was removed."""
    claim = manifest_of(states, f"claim/{leg.claim}")
    if not leg.dynamic or claim is None or uid(claim) != leg.claim_uid or claim_is_bound(claim):
        return False
    marks = annotations(claim)
    return marks.get(BINDING_STAMP) == binding and SELECTED_NODE not in marks and not spec(claim).get("volumeName")


def record_retained(binding: str, index: int, reason: str) -> Decision:
    return Decision(events=(_leg_moved(binding, index, LegPhase.RETAINED, reason=reason),))


def _failed(binding: str, reason: str | None, *, stage: Stage = "PreBind", leg: int | None = None) -> Decision:
    return Decision(events=(moved(binding, Phase.COMPENSATING, reason=reason, stage=stage, leg=leg),))


def _releasing(binding: str, index: int, leg: LegState, guards: Guards) -> Decision:
    effect = leg_effect(binding, index, RELEASE, leg)
    if not guards.lanes:
        effect = replace(effect, lane=f"{effect.lane}/{RELEASE}")
    move = _leg_moved(binding, index, LegPhase.RELEASING, reason=leg.reason)
    return Decision(events=(move,), effects=(effect,))


def _leg_moved(
    binding: str,
    index: int,
    phase: LegPhase,
    *,
    volume: str | None = None,
    rv: str | None = None,
    reason: str | None = None,
) -> NewEvent:
    data: dict[str, object] = {"leg": index, "state": phase.value, "open": phase not in SETTLED}
    optional = {"volume": volume, "rv": rv, "reason": reason}
    data |= {name: value for name, value in optional.items() if value is not None}
    return NewEvent(stream=binding_stream(binding), type="LegMoved", data=data, binding=binding)


def _freed(binding: str, leg: LegState, states: States, reason: str | None) -> Iterator[NewEvent]:
    """Remove the leg's assumption, if it is still there."""
    for stream, type_ in ((f"volume/{leg.volume}", "VolumeFreed"), (f"claim/{leg.claim}", "ClaimFreed")):
        held = living(states, stream)
        if held is not None and held.assumed is not None and held.assumed.binding == binding:
            yield _free(stream, type_, binding, reason)


def _free(stream: str, type_: str, binding: str, reason: str | None) -> NewEvent:
    data = {"binding": binding} | ({} if reason is None else {"reason": reason})
    return NewEvent(stream=stream, type=type_, data=data, binding=binding)
