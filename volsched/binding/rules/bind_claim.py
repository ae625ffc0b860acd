"""Binding a delayed claim without a pod: somebody says on which node it is going to be used.

Decided as for a pod that has this claim alone and runs on the node already, so neither taints nor room for a pod
are looked at; and written as the scheduler writes it, but conditional and in one step. The PV controller or a
provisioner completes it. There is no pod to wait for, and so nothing is undone if they do not.
"""

from dataclasses import dataclass, replace

from volsched.binding.rules.plan import claim_patch, volume_patch
from volsched.kube.claim_reference import is_bound_to
from volsched.kube.meta import ROLLBACK, SELECTED_NODE, Metadata
from volsched.kube.storage import Claim
from volsched.kube.workloads import Pod, PodVolume
from volsched.log.events.decision import States
from volsched.log.events.envelope import NewEvent
from volsched.log.events.object_states import living
from volsched.scheduling.rules.cycle import attempt
from volsched.scheduling.rules.pod_claims import is_delay_binding, is_fully_bound, selected_node
from volsched.scheduling.rules.profile import Profile
from volsched.scheduling.rules.promised_capacity import PromisedCapacity, written_room
from volsched.scheduling.rules.snapshot import Snapshot
from volsched.scheduling.rules.status import AttemptError
from volsched.scheduling.rules.volume_filter import prefilter

BIND_REQUESTED = "BindRequested"


class NoSuchObjectError(Exception):
    """The claim or the node is not there."""


class NotToBeBoundError(Exception):
    """The claim is not one that waits to be bound."""


class PromisedError(Exception):
    """Somebody was faster: the claim has a node, or a volume, that only needs completing."""


class NothingFitsError(Exception):
    """No volume, and no room for a new one, can be had on the node."""


@dataclass(frozen=True, slots=True)
class NodeChoice:
    claim: Claim
    node: str
    volume: str | None
    """None: to be provisioned."""
    alpha: bool = False
    """The node is written under the alpha names too."""
    room: PromisedCapacity | None = None
    """What it takes of a capacity object, where the driver publishes any."""

    @property
    def written(self) -> str:
        """The stream that is written."""
        return f"claim/{self.claim.key}" if self.volume is None else f"volume/{self.volume}"

    @property
    def said(self) -> str:
        what = (
            f"volume {self.volume}"
            if self.volume is not None
            else f"a new volume of class {self.claim.class_name}"
        )
        return f"gets {what} on node {self.node}"


def choose(snapshot: Snapshot, claim: str, node: str, *, profile: Profile) -> NodeChoice:
    """What the claim would get on the node; raises one of the errors above where it is not to be had."""
    held = _claim_to_bind(snapshot, claim, profile)
    place = snapshot.nodes.get(node)
    if place is None:
        raise NoSuchObjectError(f'node "{node}" does not exist; see volsched get nodes')
    user = Pod(
        meta=Metadata(name=f"{held.name}-user", namespace=held.meta.namespace),
        volumes=(PodVolume(name="data", claim_name=held.name),),
    )
    volumes_alone = replace(profile, before_volumes=(), after_volumes=())
    found = attempt(snapshot, user, profile=volumes_alone, only={place.name})
    if found.chosen is None:
        status, _ = prefilter(snapshot, user, profile=profile)
        refused = next((it.status for it in found.verdicts), status)
        why = "; ".join(refused.reasons)
        raise NothingFitsError(f'nothing fits claim "{claim}" on node "{node}": {why}')
    answer = found.chosen.answer
    if answer.bindings:
        return NodeChoice(held, node, answer.bindings[0].volume.name)
    published = answer.provisions[0].capacity
    room = None if published is None else PromisedCapacity(published.key, profile.bytes_of(held.size))
    return NodeChoice(held, node, None, profile.writes_alpha_annotations, room)


def bind_event(choice: NodeChoice, states: States, *, reason: str) -> NewEvent:
    """The one write. Whoever calls makes sure that the streams are what was chosen on."""
    written = living(states, choice.written)
    assert written is not None
    assert written.manifest is not None
    if choice.volume is None:
        patch = claim_patch(choice.node, alpha=choice.alpha)
        if choice.room is not None:
            # A pod's plan holds the room that it takes; here there is only the claim to say that it is taken.
            patch["metadata"]["annotations"] |= written_room(choice.node, choice.room)
        return NewEvent(stream=choice.written, type="ClaimChanged", data={"patch": patch, "reason": reason})
    patch = volume_patch(written.manifest, choice.claim.key, choice.claim.meta.uid)
    return NewEvent(stream=choice.written, type="VolumeChanged", data={"patch": patch, "reason": reason})


def _claim_to_bind(snapshot: Snapshot, key: str, profile: Profile) -> Claim:
    # As it is stored: one that a volume was given to is told apart from one that is bound.
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
    # One that names the claim without its uid was only set aside for it, by somebody who may be asking now.
    given = (it for it in snapshot.stored_volumes.values() if it.claim_ref is not None and is_bound_to(it, claim))
    volume = next((it.name for it in given if it.claim_ref is not None and it.claim_ref.uid), None)
    if volume is not None:
        raise PromisedError(
            f'volume "{volume}" was given to claim "{key}" already; a running system completes it, '
            "or volsched schedule"
        )
    return claim
