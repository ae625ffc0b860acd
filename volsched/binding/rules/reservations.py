"""Reservations: volumes and room held for a pod until somebody confirms it, gives it up, or lets its lease end.

A reservation is a binding that waits before its first write. So what it holds is held by the rules that hold
everything else: its legs are open, its assumptions lie over the objects, its capacity is reserved, and one pod has
one. Nothing of it is seen by a cluster, and its end needs no undoing.

All three commands are total: said again, or too late, they are no event. What became of it is to be seen from the
binding. Rejected: a table of its own for holds, which every rule about legs would have to ask as well.
"""

from volsched.binding.rules.phases import Phase
from volsched.binding.rules.reservation_conditions import LEASE_EXPIRED, RESERVATION_LOST, judge_reserved
from volsched.binding.rules.saga import begin, let_go, moved, open_binding
from volsched.kube.manifest import spec
from volsched.log.events.decision import NOTHING, Decision, States
from volsched.log.events.fold import BindingState
from volsched.log.events.object_states import manifest_of, pod_stream


class GatedError(Exception):
    """The pod must not be bound yet."""


def confirm(binding: str, states: States, *, now: int, deadline: int) -> Decision:
    """Let the binding go on, with this deadline; raises GatedError while the pod has scheduling gates."""
    state = _reserved(binding, states)
    if state is None:
        return NOTHING
    if _is_over(state, now):
        return let_go(binding, state, LEASE_EXPIRED, states)
    lost = judge_reserved(state, states)
    if lost is not None:
        return let_go(binding, state, f"{RESERVATION_LOST}: {lost.why}", states)
    gates = spec(manifest_of(states, pod_stream(state)) or {}).get("schedulingGates")
    if gates:
        named = ", ".join(str(it.get("name")) for it in gates)
        raise GatedError(
            f'pod "{state.plan["pod"]}" is held back by its scheduling gates ({named}); remove them first'
        )
    return begin(binding, state, deadline=deadline)


def renew(binding: str, states: States, *, now: int, until: int) -> Decision:
    """Let the lease end at another time. A lease that has ended cannot be renewed."""
    state = _reserved(binding, states)
    if state is None or state.plan.get("deadline") == until:
        return NOTHING
    if _is_over(state, now):
        return let_go(binding, state, LEASE_EXPIRED, states)
    return Decision(events=(moved(binding, Phase.RESERVED, deadline=until),))


def cancel(binding: str, states: States, *, reason: str) -> Decision:
    """Give it up. Too late once it is confirmed."""
    state = _reserved(binding, states)
    return NOTHING if state is None else let_go(binding, state, reason, states)


def _reserved(binding: str, states: States) -> BindingState | None:
    state = open_binding(binding, states)
    return state if state is not None and state.state == Phase.RESERVED else None


def _is_over(state: BindingState, now: int) -> bool:
    deadline = state.plan.get("deadline")
    return deadline is not None and now >= deadline
