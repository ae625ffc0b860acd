"""Bindings on request: volumes and room held for a pod under a lease, and a delayed claim bound without a pod."""

from dataclasses import dataclass, replace

from volsched.binding.rules import reasons
from volsched.binding.rules.leg_conditions import judge_reserved
from volsched.binding.rules.phases import Phase
from volsched.binding.rules.plan import claim_patch, volume_patch
from volsched.binding.rules.reasons import RESERVATION_EXPIRED, RESERVATION_LOST
from volsched.binding.rules.saga import begin, let_go, moved, open_binding
from volsched.kube.manifest import is_bound_to, spec
from volsched.kube.meta import ROLLBACK, SELECTED_NODE, Metadata
from volsched.kube.storage import Claim
from volsched.kube.workloads import Pod, PodVolume
from volsched.log.events.envelope import NewEvent
from volsched.log.events.fold import NOTHING, BindingState, Decision, States, living, manifest_of, pod_stream
from volsched.objects.rules.object_events import changed_event
from volsched.scheduling.rules.cycle import attempt
from volsched.scheduling.rules.dynamic_volumes import PromisedCapacity, written_room
from volsched.scheduling.rules.pod_claims import is_delay_binding, is_fully_bound, selected_node
from volsched.scheduling.rules.profile import Profile
from volsched.scheduling.rules.snapshot import Snapshot
from volsched.scheduling.rules.status import AttemptError
from volsched.scheduling.rules.volume_filter import prefilter

# A reservation is a binding that waits before its first write, so the usual rules protect it: its legs are open,
# its assumptions lie over the objects, its capacity is reserved, and a pod has at most one. Nothing of it is
# written to the cluster, and its end needs no undo.
#
# All three commands are total: repeated or too late, they write no event, and the binding shows the outcome.
# Rejected: a separate table of holds, which every rule about legs would have to read as well.


class GatedError(Exception):
    """The pod must not be bound yet."""


def confirm(binding: str, states: States, *, now: int, deadline: int) -> Decision:
    """Let the binding continue, with this deadline; raises GatedError while the pod has scheduling gates."""
    state = _reserved(binding, states)
    if state is None:
        return NOTHING
    if _is_over(state, now):
        return let_go(binding, state, RESERVATION_EXPIRED, states)
    lost = judge_reserved(state, states)
    if lost is not None:
        return let_go(binding, state, f"{RESERVATION_LOST}: {lost.why}", states)
    gates = spec(manifest_of(states, pod_stream(state)) or {}).get("schedulingGates")
    if gates:
        named = ", ".join(str(it.get("name")) for it in gates)
        raise GatedError(reasons.pod_waits_for_gates(state.plan["pod"], named))
    return begin(binding, state, deadline=deadline)


def renew(binding: str, states: States, *, now: int, until: int) -> Decision:
    """Move the end of the lease. A lease that has ended cannot be renewed."""
    state = _reserved(binding, states)
    if state is None or state.plan.get("deadline") == until:
        return NOTHING
    if _is_over(state, now):
        return let_go(binding, state, RESERVATION_EXPIRED, states)
    return Decision(events=(moved(binding, Phase.RESERVED, deadline=until),))


def cancel(binding: str, states: States, *, reason: str) -> Decision:
    """Cancel the reservation. Too late once it is confirmed."""
    state = _reserved(binding, states)
    return NOTHING if state is None else let_go(binding, state, reason, states)


def _reserved(binding: str, states: States) -> BindingState | None:
    state = open_binding(binding, states)
    return state if state is not None and state.state == Phase.RESERVED else None


def _is_over(state: BindingState, now: int) -> bool:
    deadline = state.plan.get("deadline")
    return deadline is not None and now >= deadline


# Binding a delayed claim without a pod: the caller names the node on which it will be used.
#
# Decided as for a pod that has only this claim and runs on the node already, so taints and room for a pod are
# not checked; and written as the scheduler writes it, but conditional and in one step. The PV controller or a
# provisioner completes it. No pod waits, so nothing is undone if they do not.

BIND_REQUESTED = "BindRequested"


class NoSuchObjectError(Exception):
    """The claim or the node does not exist."""


class NotToBeBoundError(Exception):
    """The claim does not wait to be bound."""


class PromisedError(Exception):
    """The claim already has a node, or a volume that only needs completing."""


class NothingFitsError(Exception):
    """The node offers no volume, and no room for a new one."""


@dataclass(frozen=True, slots=True)
class NodeChoice:
    claim: Claim
    node: str
    volume: str | None
    """The volume to bind; None: to be provisioned."""
    alpha: bool = False
    """Whether the node is written under the alpha names too."""
    room: PromisedCapacity | None = None
    """The room in a capacity object, if the driver publishes any."""

    @property
    def written(self) -> str:
        """The stream to write."""
        return f"claim/{self.claim.key}" if self.volume is None else f"volume/{self.volume}"

    @property
    def description(self) -> str:
        what = (
            f"volume {self.volume}"
            if self.volume is not None
            else f"a new volume of class {self.claim.class_name}"
        )
        return f"gets {what} on node {self.node}"


def choose(snapshot: Snapshot, claim: str, node: str, *, profile: Profile) -> NodeChoice:
    """The choice for the claim on the node; raises one of the errors above if there is none."""
    unbound = _claim_to_bind(snapshot, claim, profile)
    place = snapshot.nodes.get(node)
    if place is None:
        raise NoSuchObjectError(f'node "{node}" does not exist; see volsched get nodes')
    user = Pod(
        meta=Metadata(name=f"{unbound.name}-user", namespace=unbound.meta.namespace),
        volumes=(PodVolume(name="data", claim_name=unbound.name),),
    )
    volumes_alone = replace(profile, before_volumes=(), after_volumes=())
    decision = attempt(snapshot, user, profile=volumes_alone, only={place.name})
    if decision.chosen is None:
        status, _ = prefilter(snapshot, user, profile=profile)
        refused = next((it.status for it in decision.verdicts), status)
        why = "; ".join(refused.reasons)
        raise NothingFitsError(f'nothing fits claim "{claim}" on node "{node}": {why}')
    answer = decision.chosen.answer
    if answer.bindings:
        return NodeChoice(unbound, node, answer.bindings[0].volume.name)
    published = answer.provisions[0].capacity
    room = None if published is None else PromisedCapacity(published.key, profile.bytes_of(unbound.size))
    return NodeChoice(unbound, node, None, profile.writes_alpha_annotations, room)


def bind_event(choice: NodeChoice, states: States, *, reason: str) -> NewEvent:
    """The event of the one write. The caller ensures that the streams are unchanged since the choice."""
    written = living(states, choice.written)
    assert written is not None
    assert written.manifest is not None
    if choice.volume is None:
        patch = claim_patch(choice.node, alpha=choice.alpha)
        if choice.room is not None:
            # A pod's plan reserves its room; without a pod only the claim's annotation can.
            patch["metadata"]["annotations"] |= written_room(choice.node, choice.room)
        return changed_event(choice.written, patch, reason=reason)
    patch = volume_patch(written.manifest, choice.claim.key, choice.claim.meta.uid)
    return changed_event(choice.written, patch, reason=reason)


def _claim_to_bind(snapshot: Snapshot, key: str, profile: Profile) -> Claim:
    # The stored claim: it distinguishes a claim that was given a volume from one that is bound.
    claim = snapshot.stored_claims.get(key)
    if claim is None:
        raise NoSuchObjectError(f'claim "{key}" does not exist; see volsched get pvc -A')
    if is_fully_bound(claim):
        raise NotToBeBoundError(f'claim "{key}" is bound to volume "{claim.volume_name}" already')
    if claim.meta.being_deleted or ROLLBACK in claim.meta.annotations:
        raise NotToBeBoundError(f'claim "{key}" is being deleted or rolled back; try again when that is over')
    try:
        delayed = is_delay_binding(snapshot, claim)
    except AttemptError as error:
        raise NotToBeBoundError(f'claim "{key}": {error}') from error
    if not delayed or claim.volume_name:
        raise NotToBeBoundError(
            f'claim "{key}" does not wait for its first consumer (class "{claim.class_name}"); '
            "the PV controller binds it without being asked"
        )
    committed = selected_node(claim, alpha=profile.reads_alpha_annotations)
    if committed is not None:
        raise PromisedError(
            f'claim "{key}" is promised to node "{committed}" already; wait for its volume, or take the '
            f"annotation {SELECTED_NODE} off to choose another node"
        )
    # A claimRef without a uid only reserves the volume, perhaps by the present caller.
    given = (it for it in snapshot.stored_volumes.values() if it.claim_ref is not None and is_bound_to(it, claim))
    volume = next((it.name for it in given if it.claim_ref is not None and it.claim_ref.uid), None)
    if volume is not None:
        raise PromisedError(
            f'volume "{volume}" was given to claim "{key}" already; a running system completes it, '
            "or volsched schedule"
        )
    return claim
