"""Planning a binding: one command that assumes every leg, the pod on its node, and queues the writes.

Under the head lock the objects must still be what the decision saw; otherwise nothing happens and the scheduler
decides again.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from volsched.binding.rules.phases import Phase
from volsched.binding.rules.saga import effects_of, moved
from volsched.kube.claim_reference import YES
from volsched.kube.manifest import annotations, claim_is_bound, claim_of, is_being_deleted, spec, uid
from volsched.kube.meta import BOUND_BY_CONTROLLER, ROLLBACK
from volsched.log.commands import ConflictError
from volsched.log.events.decision import Decision, States
from volsched.log.events.envelope import NewEvent
from volsched.log.events.fold import BindingState, ObjectState, evolve
from volsched.log.events.object_states import binding_stream, living, manifest_of, origin_version, version
from volsched.scheduling.rules.pod_claims import selection
from volsched.scheduling.rules.pod_scheduled import nomination

Manifest = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedLeg:
    claim: str
    claim_uid: str
    volume: str | None
    """None: to be provisioned."""
    rv: str
    """The version, in the cluster's words, of the object that will be written."""
    joins: str | None = None
    bound: bool = False
    """Bound already, to this volume: nothing is written, but it must stay so until the pod has its node."""
    capacity: str | None = None
    bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    binding: str
    pod: str
    pod_uid: str
    node: str
    legs: tuple[PlannedLeg, ...]
    decided_at: int
    deadline: int
    on_failure: Literal["rollback", "retain"] = "rollback"
    minds: bool = False
    """What runs elsewhere matters to the pod: it says near whom it must or must not be, or how it is spread."""
    repels: bool = False
    """The pod keeps others away, on its node and in its domain."""
    reserved: bool = False
    """Only held, until it is confirmed: the deadline is the end of its lease, and nothing is queued."""
    key: str = ""
    """The idempotency key that a reservation was asked for with; empty: with none."""
    alpha_annotations: bool = False
    """The node is written on claims under the alpha names too."""
    exclusive: frozenset[str] = frozenset()
    """Bound claims of which one pod at a time may make use."""

    @property
    def streams(self) -> tuple[str, ...]:
        touched = [binding_stream(self.binding), f"pod/{self.pod}", f"node/{self.node}"]
        for leg in self.legs:
            touched.append(f"claim/{leg.claim}")
            if leg.volume is not None:
                touched.append(f"volume/{leg.volume}")
        return tuple(dict.fromkeys(touched))


NOBODY: Mapping[str, str] = {}


def plan(request: Plan, states: States, *, company: Mapping[str, str] = NOBODY) -> Decision:
    """Raises ConflictError, and then nothing is assumed.

    `company` are pods, each with its node, that were planned in the same breath and that this one counts on.
    """
    _check_pod(request, states)
    for pod_key, node in company.items():
        if not _is_coming(states, pod_key, node):
            raise ConflictError(f'pod "{pod_key}", which this one counts on, is not coming to node "{node}"')
    assumptions: list[NewEvent] = []
    for leg in request.legs:
        assumptions += _assumptions(request, leg, states)
    pod = living(states, f"pod/{request.pod}")
    if pod is not None:
        assumptions.append(_assumed(request.binding, f"pod/{request.pod}", pod, pod_patch(request.node)))
        if _is_nominated(request) and origin_version(pod) is None:
            patch = nomination(request.node)
            assumptions.append(
                NewEvent(
                    stream=f"pod/{request.pod}", type="PodChanged", data={"patch": patch}, binding=request.binding
                )
            )
    stream, data = binding_stream(request.binding), _payload(request)
    planned = NewEvent(stream=stream, type="BindingPlanned", data=data, binding=request.binding)
    state = evolve(None, type_="BindingPlanned", version=1, position=0, at=0, data=data)
    assert isinstance(state, BindingState)
    if request.reserved:
        return Decision(events=(planned, *assumptions, moved(request.binding, Phase.RESERVED)))
    if request.legs:
        return Decision(events=(planned, *assumptions), effects=effects_of(request.binding, state))
    move = moved(request.binding, Phase.COMMITTING)
    committing = state._replace(state=Phase.COMMITTING)
    return Decision(events=(planned, *assumptions, move), effects=effects_of(request.binding, committing))


def _is_nominated(request: Plan) -> bool:
    """Volumes are to be bound first: until then the pod says where it will be. A reservation promises nothing."""
    return not request.reserved and any(not leg.bound for leg in request.legs)


def pod_patch(node: str) -> dict[str, Any]:
    return {"spec": {"nodeName": node}}


def volume_patch(volume: Manifest, claim: str, claim_uid: str) -> dict[str, Any]:
    """What makes the volume point at the claim; a link that was there before is not marked as ours."""
    namespace, _, name = claim.partition("/")
    found = claim_of(volume)
    named = found is not None and (found.get("namespace"), found.get("name")) == (namespace, name)
    mine = named and found is not None and found.get("uid", "") in ("", claim_uid)
    reference = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": namespace, "name": name}
    patch: dict[str, Any] = {"spec": {"claimRef": {**reference, "uid": claim_uid}}}
    if not mine and BOUND_BY_CONTROLLER not in annotations(volume):
        patch["metadata"] = {"annotations": {BOUND_BY_CONTROLLER: YES}}
    return patch


def claim_patch(node: str, *, alpha: bool) -> dict[str, Any]:
    return {"metadata": {"annotations": selection(node, alpha=alpha)}}


def _check_pod(request: Plan, states: States) -> None:
    pod = manifest_of(states, f"pod/{request.pod}")
    if pod is None or uid(pod) != request.pod_uid or is_being_deleted(pod):
        raise ConflictError(f'pod "{request.pod}" with uid {request.pod_uid} is gone')
    if spec(pod).get("nodeName"):
        raise ConflictError(f'pod "{request.pod}" runs on node "{spec(pod)["nodeName"]}" already')
    if manifest_of(states, f"node/{request.node}") is None:
        raise ConflictError(f'node "{request.node}" is gone')


def _is_coming(states: States, pod: str, node: str) -> bool:
    held = living(states, f"pod/{pod}")
    if held is None or held.manifest is None:
        return False
    assumed = held.assumed is not None and held.assumed.patch == pod_patch(node)
    return assumed or spec(held.manifest).get("nodeName") == node


def _assumptions(request: Plan, leg: PlannedLeg, states: States) -> Iterator[NewEvent]:
    claim_stream = f"claim/{leg.claim}"
    claim = living(states, claim_stream)
    if claim is None or claim.manifest is None or uid(claim.manifest) != leg.claim_uid:
        raise ConflictError(f'claim "{leg.claim}" with uid {leg.claim_uid} is gone')
    if claim_is_bound(claim.manifest) is not leg.bound:
        raise ConflictError(f'claim "{leg.claim}" is {"not bound any more" if leg.bound else "bound meanwhile"}')
    if is_being_deleted(claim.manifest) or ROLLBACK in annotations(claim.manifest):
        raise ConflictError(f'claim "{leg.claim}" is being deleted or rolled back')
    if leg.bound and spec(claim.manifest).get("volumeName") != leg.volume:
        raise ConflictError(f'claim "{leg.claim}" is bound to another volume')
    if leg.bound or leg.joins is not None:
        return
    stream = claim_stream if leg.volume is None else f"volume/{leg.volume}"
    written = living(states, stream)
    if written is None or written.manifest is None or version(written) != leg.rv:
        raise ConflictError(f"{stream} is not at version {leg.rv} any more")
    patch = (
        claim_patch(request.node, alpha=request.alpha_annotations)
        if leg.volume is None
        else volume_patch(written.manifest, leg.claim, leg.claim_uid)
    )
    yield _assumed(request.binding, stream, written, patch)


def _assumed(binding: str, stream: str, state: ObjectState, patch: Mapping[str, Any]) -> NewEvent:
    title = stream.partition("/")[0].capitalize()
    data = {"binding": binding, "patch": patch, "rv": state.rv}
    return NewEvent(stream=stream, type=f"{title}Assumed", data=data, binding=binding)


def _payload(request: Plan) -> dict[str, Any]:
    reserved = {"reserved": True, "key": request.key} if request.reserved else {}
    return (
        {
            "pod": request.pod,
            "pod_uid": request.pod_uid,
            "node": request.node,
            "decided_at": request.decided_at,
            "deadline": request.deadline,
            "on_failure": request.on_failure,
            "legs": [_leg_payload(leg) for leg in request.legs],
        }
        | ({"repels": True} if request.repels else {})
        | reserved
    )


def _leg_payload(leg: PlannedLeg) -> dict[str, Any]:
    payload: dict[str, Any] = {"claim": leg.claim, "claim_uid": leg.claim_uid, "rv": leg.rv}
    if leg.bound or leg.joins is not None:
        payload |= {"owner": False}
    optional = {"joins": leg.joins, "volume": leg.volume, "capacity": leg.capacity, "bytes": leg.bytes}
    return payload | {name: value for name, value in optional.items() if value is not None}
