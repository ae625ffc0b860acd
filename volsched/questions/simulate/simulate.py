"""Simulation: a change is made to a copy in memory, and pods that lose their node look for another.

Pods are placed one after the other, by priority; each sees the storage that the pods before it took. The decision
and the reservations are the scheduler's own. Nothing is written.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from volsched.kube.display_text import counted
from volsched.kube.meta import LEGACY_ZONE, OUR_SCHEDULERS, ZONE
from volsched.kube.object_values import Object
from volsched.kube.quantity import bytes_text
from volsched.kube.storage import LOST, Claim, Volume
from volsched.kube.workloads import TERMINATED, Node, Pod, StatefulSet
from volsched.questions.explain.explain import placement
from volsched.questions.explain.planned_pods import planned_keys, planned_objects
from volsched.questions.simulate.changes import lay_over
from volsched.questions.simulate.stuck_pods import Holding, Stranded, shortages, strand
from volsched.scheduling.index import Index
from volsched.scheduling.rules.cycle import Verdict
from volsched.scheduling.rules.pod_claims import claim_uses
from volsched.scheduling.rules.snapshot import FIELD_OF
from volsched.scheduling.rules.status import AttemptError
from volsched.scheduling.rules.volume_filter import assume_pod_volumes

DAEMON_SET = "DaemonSet"
RETAIN = "Retain"
MOST_REPLICAS = 1_000
"""Maximum number of replicas of an added set, because each replica is decided separately."""


class NotThereError(LookupError):
    """The scenario names an object that does not exist."""

    def __init__(self, kind: type[Object], name: str) -> None:
        super().__init__(name)
        self.kind, self.name = kind, name


class NoSuchZoneError(LookupError):
    """No node is in the zone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    drain: tuple[str, ...] = ()
    """Nodes to cordon and empty."""
    lose_nodes: tuple[str, ...] = ()
    lose_zones: tuple[str, ...] = ()
    add: tuple[Object, ...] = ()
    delete: tuple[tuple[type[Object], str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    pod: str
    before: str
    """The pod's former node; empty if it had none."""
    verdict: Verdict


@dataclass(slots=True)
class SimulationOutcome:
    done: list[str] = field(default_factory=list)
    """The changes, in words."""
    evicted: dict[str, str] = field(default_factory=dict)
    """Evicted pod → its former node."""
    stays: list[str] = field(default_factory=list)
    """Pods of a drained node that belong to a DaemonSet."""
    gone: list[str] = field(default_factory=list)
    """Pods that were removed with their node, or deleted."""
    placed: list[Placement] = field(default_factory=list)
    stranded: list[Stranded] = field(default_factory=list)
    waiting: set[str] = field(default_factory=set)
    """Pods that had no node before the change."""


def simulate(index: Index, scenario: Scenario) -> SimulationOutcome:
    """The outcome for the pods; the index is changed to the cluster after the scenario."""
    outcome = SimulationOutcome()
    outcome.waiting = {pod.key for pod in _unplaced(index.snapshot.pods.values())}
    if scenario.add:
        lay_over(index, scenario.add)
        outcome.done.append(f"add {counted(len(scenario.add), 'object')}")
        for set_ in scenario.add:
            if isinstance(set_, StatefulSet):
                _scale_up(index, set_, outcome)
    for name in scenario.drain:
        _drain(index, name, outcome)
    for zone in scenario.lose_zones:
        _lose_zone(index, zone, outcome)
    for name in scenario.lose_nodes:
        _lose_node(index, name, outcome)
    for kind, key in scenario.delete:
        _delete(index, kind, key, outcome)
    index.settle()
    _place_pods(index, outcome)
    return outcome


def _unplaced(pods: Iterable[Pod]) -> Iterator[Pod]:
    """Pods that a scheduler would place."""
    for pod in pods:
        ready = not pod.node_name and pod.phase not in TERMINATED and not pod.scheduling_gates
        if ready and not pod.meta.being_deleted and pod.scheduler_name in OUR_SCHEDULERS:
            yield pod


# --- the changes ----------------------------------------------------------------------------------------


def _existing(index: Index, kind: type[Object], key: str) -> Object:
    objects: Mapping[str, Object] = getattr(index.snapshot, FIELD_OF[kind])
    if key not in objects:
        raise NotThereError(kind, key)
    return objects[key]


def _scale_up(index: Index, set_: StatefulSet, outcome: SimulationOutcome) -> None:
    """Add the pods that the set would create, and their claims."""
    missing = [it for it in planned_keys(set_, most=MOST_REPLICAS) if it not in index.snapshot.pods]
    for key in missing:
        lay_over(index, planned_objects(set_, key, index.snapshot.stored_claims))
    more = f" (the first {MOST_REPLICAS} of {set_.replicas})" if set_.replicas > MOST_REPLICAS else ""
    if missing:
        outcome.done.append(f"create {len(missing)} pods of statefulset {set_.meta.key}{more}")


def _drain(index: Index, name: str, outcome: SimulationOutcome) -> None:
    node = _existing(index, Node, name)
    assert isinstance(node, Node)
    index.put(replace(node, unschedulable=True))
    outcome.done.append(f"drain node {name}")
    for pod in _pods_on(index, name):
        if _is_of_daemon_set(pod):
            outcome.stays.append(pod.key)
        else:
            _evict(index, pod, outcome)


def _lose_zone(index: Index, zone: str, outcome: SimulationOutcome) -> None:
    nodes = [
        it for it in index.snapshot.nodes.values() if zone in (it.labels.get(ZONE), it.labels.get(LEGACY_ZONE))
    ]
    if not nodes:
        raise NoSuchZoneError(zone)
    outcome.done.append(f"lose zone {zone} (nodes: {len(nodes)})")
    for node in nodes:
        _remove_node(index, node.name, outcome)


def _lose_node(index: Index, name: str, outcome: SimulationOutcome) -> None:
    _existing(index, Node, name)
    outcome.done.append(f"lose node {name}")
    _remove_node(index, name, outcome)


def _remove_node(index: Index, name: str, outcome: SimulationOutcome) -> None:
    index.drop(Node, name)
    for pod in _pods_on(index, name):
        if _is_of_daemon_set(pod):
            index.drop(Pod, pod.key)
            outcome.gone.append(pod.key)
        else:
            _evict(index, pod, outcome)


def _delete(index: Index, kind: type[Object], key: str, outcome: SimulationOutcome) -> None:
    value = _existing(index, kind, key)
    if isinstance(value, Node):
        _lose_node(index, key, outcome)
        return
    index.drop(kind, key)
    outcome.done.append(f"delete {kind.__name__.lower()} {key}")
    if isinstance(value, Pod):
        outcome.gone.append(key)
    elif isinstance(value, Volume):
        for claim in [it for it in index.snapshot.stored_claims.values() if it.volume_name == key]:
            index.put(replace(claim, phase=LOST))
            _evict_users(index, claim.key, outcome)
    elif isinstance(value, Claim):
        _release_volume(index, value)
        _evict_users(index, key, outcome)


def _release_volume(index: Index, claim: Claim) -> None:
    """Release a deleted claim's volume by its policy: a retained one cannot be bound again, others are deleted."""
    volume = index.snapshot.stored_volumes.get(claim.volume_name)
    if volume is not None and volume.reclaim_policy in ("", RETAIN):
        index.put(replace(volume, phase="Released"))
    elif volume is not None:
        index.drop(Volume, volume.name)


def _evict_users(index: Index, claim: str, outcome: SimulationOutcome) -> None:
    pods = [it for it in index.snapshot.pods.values() if any(use.key == claim for use in claim_uses(it))]
    for pod in sorted(pods, key=lambda it: it.key):
        if pod.node_name and pod.phase not in TERMINATED:
            _evict(index, pod, outcome)


def _pods_on(index: Index, node: str) -> list[Pod]:
    pods = (it for it in index.snapshot.pods.values() if it.node_name == node and it.phase not in TERMINATED)
    return sorted(pods, key=lambda it: it.key)


def _is_of_daemon_set(pod: Pod) -> bool:
    return any(it.controller and it.kind == DAEMON_SET for it in pod.meta.owner_references)


def _evict(index: Index, pod: Pod, outcome: SimulationOutcome) -> None:
    outcome.evicted[pod.key] = pod.node_name
    index.put(replace(pod, node_name="", phase="Pending"))


# --- the outcome ----------------------------------------------------------------------------------------


def _place_pods(index: Index, outcome: SimulationOutcome) -> None:
    """Decide about every pod without a node, in the scheduler's order."""
    unplaced = list(_unplaced(index.snapshot.pods.values()))
    provisioned: set[str] = set()
    for pod in sorted(unplaced, key=lambda it: (-it.priority, it.key)):
        decision = index.decide(pod)
        before = outcome.evicted.get(pod.key, "")
        try:
            if decision.chosen is not None:
                _assume(index, pod, decision.chosen, provisioned)
                outcome.placed.append(Placement(pod=pod.key, before=before, verdict=decision.chosen))
                continue
            message = "; ".join(decision.status.reasons)
        except AttemptError as error:
            message = str(error)
        outcome.stranded.append(strand(index, pod, before=before, message=message))


def _assume(index: Index, pod: Pod, chosen: Verdict, provisioned: set[str]) -> None:
    """Lay the decision over the index, so that the next pods see what it takes."""
    snapshot = index.snapshot
    node = snapshot.nodes[chosen.node]
    _, reservation = assume_pod_volumes(snapshot, pod, node, chosen.answer, profile=index.profile)
    for provision in () if reservation.all_bound else chosen.answer.provisions:
        # Capacity is counted once for a claim that several pods use.
        if provision.capacity is not None and provision.claim.key not in provisioned:
            promised = snapshot.reserved.get(provision.capacity.key, 0)
            index.reserve(provision.capacity.key, promised + index.profile.bytes_of(provision.claim.size))
            index.promise(provision.claim.meta.uid, provision.capacity.key)
        provisioned.add(provision.claim.key)
    for assumed in reservation.volumes:
        index.put(assumed.volume)
    for claim in reservation.claims:
        index.put(claim)
    index.put(replace(pod, node_name=chosen.node))


# The outcome of a simulation as data that a program or a person can read.


def outcome_document(outcome: SimulationOutcome) -> dict[str, Any]:
    """The document. Pods that waited before are listed separately: the scenario is not their only reason."""
    stranded = [it for it in outcome.stranded if it.pod not in outcome.waiting]
    return {
        "scenario": outcome.done,
        "evicted": [{"pod": pod, "from": node} for pod, node in sorted(outcome.evicted.items())],
        "placed": [_placement_document(it) for it in outcome.placed if it.pod not in outcome.waiting],
        "stranded": [_stranded_document(it) for it in stranded],
        "short": [
            {
                "class": it.class_name,
                "domain": it.domain,
                "why": it.why,
                "claims": it.claims,
                "bytes": it.size,
                "size": bytes_text(it.size),
            }
            for it in shortages(stranded)
        ],
        "stays": sorted(outcome.stays),
        "gone": sorted(outcome.gone),
        "waitedBefore": {
            "placed": [_placement_document(it) for it in outcome.placed if it.pod in outcome.waiting],
            "waiting": [_stranded_document(it) for it in outcome.stranded if it.pod in outcome.waiting],
        },
    }


def _placement_document(placed: Placement) -> dict[str, Any]:
    decision = placement(placed.verdict)
    return {
        "pod": placed.pod,
        "from": placed.before or None,
        "to": placed.verdict.node,
        "bindings": decision["bindings"],
        "provisions": decision["provisions"],
    }


def _stranded_document(pod: Stranded) -> dict[str, Any]:
    return {
        "pod": pod.pod,
        "from": pod.before or None,
        "message": pod.message,
        "claims": [_holding_document(claim) for claim in pod.holding],
    }


def _holding_document(claim: Holding) -> dict[str, Any]:
    return {
        "claim": claim.claim,
        "class": claim.class_name,
        "volume": claim.volume,
        "domain": claim.domain,
        "size": bytes_text(claim.size),
        "why": claim.why,
        "reachedFrom": list(claim.reached_from),
    }
