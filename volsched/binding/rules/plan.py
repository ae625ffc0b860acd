"""Planning a binding, one command that assumes every leg; and the events that invalidate a plan before commit."""

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import orjson

from volsched.binding.rules import reasons
from volsched.binding.rules.effects import effects_of
from volsched.binding.rules.phases import Phase
from volsched.binding.rules.saga import moved
from volsched.kube.manifest import (
    YES,
    annotations,
    claim_is_bound,
    is_being_deleted,
    names_claim,
    spec,
    uid,
)
from volsched.kube.meta import BOUND_BY_CONTROLLER, ROLLBACK, SELECTED_NODE_KEYS
from volsched.kube.workloads import TERMINATED
from volsched.log.commands import ConflictError
from volsched.log.events.envelope import Event, NewEvent
from volsched.log.events.fold import (
    BindingState,
    Decision,
    ObjectState,
    States,
    binding_stream,
    evolve,
    living,
    manifest_of,
    origin_version,
    version,
)
from volsched.log.events.streams import noun_and_key
from volsched.objects.rules.object_events import changed_event
from volsched.scheduling.rules.attempts import nomination
from volsched.scheduling.rules.dynamic_volumes import PROMISED_ROOM, promised_room
from volsched.scheduling.rules.pod_claims import selection

# Under the head lock the objects must equal what the decision saw; otherwise nothing happens and the scheduler
# decides again.

Manifest = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedLeg:
    claim: str
    claim_uid: str
    volume: str | None
    """The volume to bind; None: to be provisioned."""
    rv: str
    """The cluster's resourceVersion of the object that will be written."""
    joins: str | None = None
    bound: bool = False
    """Whether the claim is bound to this volume already: nothing is written, but it must stay bound."""
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
    """Whether pods on other nodes matter: the pod has affinity, anti-affinity or spread constraints."""
    repels: bool = False
    """Whether the pod's anti-affinity excludes others from its node and domain."""
    reserved: bool = False
    """Whether it is held until confirmed: the deadline is the end of its lease, and nothing is queued."""
    key: str = ""
    """The idempotency key of a reservation's request; empty: none."""
    alpha_annotations: bool = False
    """Whether the node is written on claims under the alpha names too."""
    exclusive: frozenset[str] = frozenset()
    """Bound claims that only one pod at a time may use."""
    staged: bool = False
    """For foreign objects: the pod is nominated first, then static legs are written, then dynamic ones."""

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
    """Assume every leg of a plan. Raises ConflictError, and then nothing is assumed.

    `company` are pods, each with its node, of the same batch of plans that this plan relies on.
    """
    _check_pod(request, states)
    for pod_key, node in company.items():
        if not _is_coming(states, pod_key, node):
            raise ConflictError(reasons.company_not_coming(pod_key, node))
    assumptions: list[NewEvent] = []
    for leg in request.legs:
        assumptions += _assumptions(request, leg, states)
    pod = living(states, f"pod/{request.pod}")
    if pod is not None:
        assumptions.append(_assumed(request.binding, f"pod/{request.pod}", pod, pod_patch(request.node)))
        if _is_nominated(request) and origin_version(pod) is None:
            patch = nomination(request.node)
            assumptions.append(changed_event(f"pod/{request.pod}", patch, binding=request.binding))
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
    """Whether the pod shows its future node while volumes are bound. A reservation does not nominate."""
    return not request.reserved and any(not leg.bound for leg in request.legs)


def pod_patch(node: str) -> dict[str, Any]:
    return {"spec": {"nodeName": node}}


def volume_patch(volume: Manifest, claim: str, claim_uid: str) -> dict[str, Any]:
    """The patch that points the volume at the claim; an existing link is not marked as ours."""
    namespace, _, name = claim.partition("/")
    reference = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": namespace, "name": name}
    patch: dict[str, Any] = {"spec": {"claimRef": {**reference, "uid": claim_uid}}}
    if not names_claim(volume, claim, claim_uid) and BOUND_BY_CONTROLLER not in annotations(volume):
        patch["metadata"] = {"annotations": {BOUND_BY_CONTROLLER: YES}}
    return patch


def claim_patch(node: str, *, alpha: bool) -> dict[str, Any]:
    return {"metadata": {"annotations": selection(node, alpha=alpha)}}


def _check_pod(request: Plan, states: States) -> None:
    pod = manifest_of(states, f"pod/{request.pod}")
    if pod is None or uid(pod) != request.pod_uid or is_being_deleted(pod):
        raise ConflictError(reasons.planned_pod_gone(request.pod, request.pod_uid))
    if spec(pod).get("nodeName"):
        raise ConflictError(reasons.planned_pod_runs(request.pod, spec(pod)["nodeName"]))
    if manifest_of(states, f"node/{request.node}") is None:
        raise ConflictError(reasons.planned_node_gone(request.node))


def _is_coming(states: States, pod: str, node: str) -> bool:
    state = living(states, f"pod/{pod}")
    if state is None or state.manifest is None:
        return False
    assumed = state.assumed is not None and state.assumed.patch == pod_patch(node)
    return assumed or spec(state.manifest).get("nodeName") == node


def _assumptions(request: Plan, leg: PlannedLeg, states: States) -> Iterator[NewEvent]:
    claim_stream = f"claim/{leg.claim}"
    claim = living(states, claim_stream)
    if claim is None or claim.manifest is None or uid(claim.manifest) != leg.claim_uid:
        raise ConflictError(reasons.planned_claim_gone(leg.claim, leg.claim_uid))
    if claim_is_bound(claim.manifest) is not leg.bound:
        raise ConflictError(reasons.planned_claim_changed(leg.claim, was_bound=leg.bound))
    if is_being_deleted(claim.manifest) or ROLLBACK in annotations(claim.manifest):
        raise ConflictError(reasons.planned_claim_ending(leg.claim))
    if leg.bound and spec(claim.manifest).get("volumeName") != leg.volume:
        raise ConflictError(reasons.planned_claim_elsewhere(leg.claim))
    if leg.bound or leg.joins is not None:
        return
    stream = claim_stream if leg.volume is None else f"volume/{leg.volume}"
    written = living(states, stream)
    if written is None or written.manifest is None or version(written) != leg.rv:
        raise ConflictError(reasons.planned_object_changed(stream, leg.rv))
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
        | ({"staged": True} if request.staged and _is_nominated(request) else {})
        | reserved
    )


def _leg_payload(leg: PlannedLeg) -> dict[str, Any]:
    payload: dict[str, Any] = {"claim": leg.claim, "claim_uid": leg.claim_uid, "rv": leg.rv}
    if leg.bound or leg.joins is not None:
        payload |= {"owner": False}
    optional = {"joins": leg.joins, "volume": leg.volume, "capacity": leg.capacity, "bytes": leg.bytes}
    return payload | {name: value for name, value in optional.items() if value is not None}


# What invalidates a plan between its decision and its commit: write skew between schedulers.
#
# A plan writes its volumes, claims and pod, and their versions are checked one by one. But it depends on more:
# the pods on the node, the free bytes of a capacity object, that no other volume names the claim, and, for pods
# with affinity, pods on other nodes. Two schedulers that each see the last free slot write different pods and
# would both succeed; so the events that others appended since the decision are checked too.

_MOVES = ('"nodeName"', '"labels"', '"deletionTimestamp"', *(f'"{phase}"' for phase in TERMINATED))
"""Strings in a pod's change that show that it counts differently for pods with affinity."""


def may_outdate(event: Event) -> bool:
    """Whether the event may invalidate any plan at all: few events of a busy system do."""
    noun = event.stream.partition("/")[0]
    if noun == "pod":
        if event.type == "PodCreated" or (event.type == "PodChanged" and event.binding is None):
            return any(mark in event.data for mark in _MOVES)
        return event.binding is None or event.type in ("PodAssumed", "PodFreed")
    if noun == "claim":
        named = event.binding is None and any(name in event.data for name in SELECTED_NODE_KEYS)
        return named or PROMISED_ROOM in event.data
    if noun == "volume":
        return event.binding is None and '"claimRef"' in event.data
    return noun in ("node", "csinode", "capacity", "attachment") or event.type == "BindingPlanned"


def outdated(plan: Plan) -> Callable[[Event], str | None]:
    """Tests an event of another writer: the reason why the plan must be decided again, or None."""
    here = changed_since(plan.node, {leg.capacity for leg in plan.legs if leg.capacity is not None})
    promised = promised_since({leg.claim for leg in plan.legs if not leg.bound and leg.joins is None})
    # Two plans of one pod may have different nodes and volumes, and so nothing else in common.
    pod = f'"pod":"{plan.pod}"'

    def why(event: Event) -> str | None:
        return (
            here(event)
            or promised(event)
            or (
                reasons.planned_pod_taken(plan.pod)
                if event.type == "BindingPlanned" and pod in event.data
                else None
            )
            or taken_by_plan(event, plan.exclusive)
            or (_moved_near(event) if plan.minds else None)
            or _kept_away(event)
        )

    return why


def changed_since(node: str, capacities: Collection[str]) -> Callable[[Event], str | None]:
    """Tests an event: why a decision for this node, with room in these capacity objects, is void, or None."""

    def why(event: Event) -> str | None:
        noun, key = noun_and_key(event.stream)
        if noun == "node" and key == node:
            return reasons.node_changed(node) if _matters(event) else None
        if noun == "csinode" and key == node:
            return reasons.drivers_changed(node)
        if noun == "capacity" and key in capacities:
            return reasons.capacity_changed(key)
        if noun == "pod":
            return reasons.pod_came(key, node) if _arrives(event, node) else None
        if noun == "attachment":
            return reasons.volume_attached(node) if node in event.data else None
        if noun == "claim" and capacities and PROMISED_ROOM in event.data:
            return reasons.capacity_promised(key) if _promises(event, capacities) else None
        if event.type == "BindingPlanned" and capacities:
            return reasons.CAPACITY_RESERVED if _reserves(event, capacities) else None
        return None

    return why


def promised_since(claims: Collection[str]) -> Callable[[Event], str | None]:
    """Tests an event that is part of no binding: how one of the claims was promised something, or None."""

    def why(event: Event) -> str | None:
        if event.binding is not None:
            return None
        noun, key = noun_and_key(event.stream)
        if noun == "claim" and key in claims and any(name in event.data for name in SELECTED_NODE_KEYS):
            return reasons.claim_promised(key)
        if noun == "volume" and '"claimRef"' in event.data:
            claim = _claim_named(event)
            return reasons.volume_given(key, claim) if claim in claims else None
        return None

    return why


def taken_by_plan(event: Event, claims: Collection[str]) -> str | None:
    """Why a plan's event conflicts, or None. `claims`: those that only one pod at a time may use."""
    if event.type != "BindingPlanned":
        return None
    taken = next((claim for claim in claims if f'"claim":"{claim}"' in event.data), None)
    return None if taken is None else reasons.exclusive_claim_planned(taken)


def _claim_named(event: Event) -> str:
    patch = orjson.loads(event.data).get("patch") or {}
    reference = (patch.get("spec") or {}).get("claimRef") or {}
    return f"{reference.get('namespace')}/{reference.get('name')}"


def _matters(event: Event) -> bool:
    """Whether a node's change matters: heartbeats do not; only `allocatable` is read of its status."""
    patch = orjson.loads(event.data).get("patch", {})
    return set(patch) != {"status"} or "allocatable" in patch["status"]


def _arrives(event: Event, node: str) -> bool:
    """Whether a pod arrives on the node. An assumed pod was counted before; its binding does not count again."""
    if event.binding is not None and event.type != "PodAssumed":
        return False
    patch = orjson.loads(event.data).get("patch") or {}
    return bool((patch.get("spec") or {}).get("nodeName") == node)


def _moved_near(event: Event) -> str | None:
    """Why a change may affect spread or affinity, in any domain: the next decision computes which ones."""
    noun, key = noun_and_key(event.stream)
    if noun == "pod" and _counts_otherwise(event):
        return reasons.neighbour_moved(key)
    if noun == "node" and _matters(event):
        return reasons.domain_changed(key)
    return None


def _counts_otherwise(event: Event) -> bool:
    """Whether a pod's event changes the counts. Other changes are ignored, or no plan would be in time."""
    if event.type in ("PodAssumed", "PodFreed"):
        return True
    if event.binding is not None:
        return False
    if event.type == "PodCreated":
        return '"nodeName"' in event.data
    return event.type != "PodChanged" or any(mark in event.data for mark in _MOVES)


def _kept_away(event: Event) -> str | None:
    """Why anti-affinity excludes the pod. Searches the text, unparsed: this runs for every event, rarely true."""
    if event.type == "BindingPlanned" and '"repels":true' in event.data:
        return reasons.POD_KEEPS_OTHERS_AWAY
    if event.type == "PodCreated" and '"podAntiAffinity"' in event.data and '"nodeName"' in event.data:
        return reasons.pod_placed_apart(event.stream)
    return None


def _promises(event: Event, capacities: Collection[str]) -> bool:
    """Whether a claim without a pod was promised room in one of the capacity objects."""
    patch = orjson.loads(event.data).get("patch") or {}
    room = promised_room((patch.get("metadata") or {}).get("annotations") or {})
    return room is not None and room.capacity in capacities


def _reserves(event: Event, capacities: Collection[str]) -> bool:
    return any(leg.get("capacity") in capacities for leg in orjson.loads(event.data)["legs"])
