"""Remembered failures: nodes that rejected a pod are avoided for a while, nodes of failed bindings rank last."""

from bisect import insort
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from volsched.binding.rules.phases import Phase
from volsched.binding.rules.reasons import (
    DEADLINE_EXCEEDED,
    REFUSED,
    RESERVATION_EXPIRED,
    RESERVATION_LOST,
    STILL_PROVISIONING,
)
from volsched.kube.manifest import annotations, metadata, spec, status
from volsched.kube.meta import TOPOLOGY_LABELS
from volsched.kube.workloads import Node, Pod
from volsched.log.events.fold import BindingState, LegState, State, States, living
from volsched.scheduling.queue.entry import SECOND
from volsched.scheduling.rules.pod_claims import claim_uses, is_fully_bound
from volsched.scheduling.rules.profile import Profile
from volsched.scheduling.rules.snapshot import Snapshot

# The rules of a decision cannot see everything that keeps a volume from a node: a provisioner refuses, or never
# answers, and the node is still the best by every rule. So each rolled-back binding counts against its node,
# for its pod; and a provisioner's refusal counts for a short while, for every pod with a claim of the class,
# against all nodes of the topology domain. Demerits only rank nodes: none is excluded, so a demerit is never
# the reason why a pod finds no node.
#
# A pod's failures expire together, after a pause that restarts and doubles with each of them. However long a
# failure takes to show, the earlier ones are still remembered then, and the pod reaches a node that would accept
# it before it tries any other node twice.
#
# All of it follows from bindings that ended recently, so it is the same after a restart and in a replay.

FIRST_PAUSE = 60 * SECOND
"""Longer than a pod backs off after its first failures, so that nothing expires between two of them."""
LONGEST_PAUSE = 3_600 * SECOND
KEPT = 6 * LONGEST_PAUSE
"""Older failures do not count. Bindings that time out one after the other on many nodes take this long."""
DOMAIN_PAUSE = 60 * SECOND
MOST = 256
"""Maximum number of failures kept per pod, the latest ones."""

Domain = tuple[tuple[str, str | None], ...]
"""Labels, each with the value that all nodes of the domain have; None: they lack the label."""


class RememberedFailure(NamedTuple):
    at: int
    binding: str
    node: str
    refused: tuple[tuple[str, str], ...] = ()
    """The claims, with their uids, for which no volume was created."""


@dataclass(frozen=True, slots=True)
class Demerits:
    """The demerits of nodes in the decision about one pod."""

    nodes: Mapping[str, int] = field(default_factory=dict)
    """How often the pod failed, by node."""
    domains: frozenset[Domain] = frozenset()
    """The domains where volumes of a class that the pod needs were refused."""

    def __bool__(self) -> bool:
        return bool(self.nodes or self.domains)

    def of(self, node: Node) -> int:
        """The node's demerits. Nodes with fewer rank before those with more, whatever their scores."""
        near = any(_is_within(node, domain) for domain in self.domains)
        return 2 * self.nodes.get(node.name, 0) + near


NO_DEMERITS = Demerits()


@dataclass(slots=True)
class Failures:
    """The failures that may still count, as of some position of the log."""

    _by_pod: dict[str, list[RememberedFailure]] = field(default_factory=dict)
    """The failures by pod uid, the oldest first."""
    _refusals: list[RememberedFailure] = field(default_factory=list)

    def note(self, binding: str, state: State) -> None:
        """Record a binding's end; only rolled-back ones are kept."""
        if not isinstance(state, BindingState) or not is_failure(state):
            return
        at = state.ended_at or 0
        refused = tuple((leg.claim, leg.claim_uid) for leg in state.legs if _is_refused(leg, state))
        failure = RememberedFailure(at, binding, state.plan["node"], refused)
        # Removed and re-inserted, so that the pod whose last failure is oldest comes first.
        mine = self._by_pod.pop(state.plan["pod_uid"], [])
        self._by_pod[state.plan["pod_uid"]] = mine
        insort(mine, failure)
        del mine[:-MOST]
        if refused:
            insort(self._refusals, failure)
        self._forget(at)

    def of_pod(self, uid: str, now: int) -> Mapping[str, int]:
        """Node → number of remembered failures of the pod there."""
        recent = [it for it in self._by_pod.get(uid, ()) if it.at > now - KEPT]
        if not recent or now >= recent[-1].at + pause_after(len(recent)):
            return {}
        return Counter(it.node for it in recent)

    def refusals(self, now: int) -> Iterator[RememberedFailure]:
        """Recent failures in which a provisioner created no volume."""
        return (it for it in reversed(self._refusals) if it.at > now - DOMAIN_PAUSE)

    def __bool__(self) -> bool:
        return bool(self._by_pod)

    def _forget(self, now: int) -> None:
        """Remove expired failures."""
        while self._refusals and self._refusals[0].at <= now - DOMAIN_PAUSE:
            del self._refusals[0]
        while self._by_pod and next(iter(self._by_pod.values()))[-1].at <= now - KEPT:
            del self._by_pod[next(iter(self._by_pod))]


def is_failure(state: BindingState) -> bool:
    """Whether a binding was rolled back for another reason than an expired or lost reservation."""
    reason = state.reason or ""
    let_go = reason == RESERVATION_EXPIRED or reason.startswith(RESERVATION_LOST)
    return state.state == Phase.ROLLED_BACK and not let_go


def pause_after(failures: int) -> int:
    """How long that many failures are remembered after the last of them."""
    return min(FIRST_PAUSE << (failures - 1), LONGEST_PAUSE)


def demerits(failures: Failures, snapshot: Snapshot, pod: Pod, *, profile: Profile, now: int) -> Demerits:
    """The demerits in a decision about the pod at this time, the same for all deciders."""
    if not failures or not profile.remembers_failures:
        return NO_DEMERITS
    nodes = failures.of_pod(pod.meta.uid, now)
    domains = frozenset(_refusing_domains(failures, snapshot, pod, now))
    return Demerits(nodes, domains) if nodes or domains else NO_DEMERITS


def _refusing_domains(failures: Failures, snapshot: Snapshot, pod: Pod, now: int) -> Iterator[Domain]:
    wanted: set[str] | None = None
    looked: set[tuple[str, str]] = set()
    for failure in failures.refusals(now):
        node = snapshot.nodes.get(failure.node)
        for key, uid in failure.refused if node is not None else ():
            claim = snapshot.claim(key)
            if claim is None or claim.meta.uid != uid or (failure.node, claim.class_name) in looked:
                continue
            looked.add((failure.node, claim.class_name))
            if wanted is None:
                wanted = _classes_wanted(snapshot, pod)
            if claim.class_name in wanted and node is not None:
                yield _domain_of(snapshot, node, claim.class_name)


def _classes_wanted(snapshot: Snapshot, pod: Pod) -> set[str]:
    """The classes of the pod's claims that have no volume yet."""
    claims = (snapshot.claim(use.key) for use in claim_uses(pod))
    return {claim.class_name for claim in claims if claim is not None and not is_fully_bound(claim)}


def _domain_of(snapshot: Snapshot, node: Node, class_name: str) -> Domain:
    """The node's labels with the topology keys of the class's driver; zone and region if it has no keys."""
    storage_class, csi_node = snapshot.classes.get(class_name), snapshot.csi_nodes.get(node.name)
    drivers = () if csi_node is None or storage_class is None else csi_node.drivers
    keys = next((it.topology_keys for it in drivers if storage_class and it.name == storage_class.provisioner), ())
    return tuple((key, node.labels.get(key)) for key in keys or TOPOLOGY_LABELS)


def _is_within(node: Node, domain: Domain) -> bool:
    return all(node.labels.get(key) == value for key, value in domain)


def _is_refused(leg: LegState, state: BindingState) -> bool:
    """Whether a provisioner refused, or did not answer before the binding's deadline."""
    if not leg.dynamic or not leg.owner:
        return False
    if (leg.reason or "").startswith(REFUSED):
        return True
    return state.reason == DEADLINE_EXCEEDED and leg.reason == STILL_PROVISIONING


# Nodes that rejected a pod: not tried again for a while, unless they have changed.

REJECTED_NODES = "scheduling.volumes/rejected-nodes"
NODE_REJECTED = "NodeRejected"
AVOID_SECONDS = 300


def nodes_to_avoid(
    pod: str,
    states: States | Mapping[str, State],
    *,
    since: str,
    changed_at: Callable[[str], int] | None = None,
) -> frozenset[str]:
    """The nodes that rejected the pod after `since` (RFC 3339, so that text compares as time does).

    If a node or its list of drivers changed after the rejection, it may decide differently. A node created after
    the rejection is another node, even under the same name.

    `changed_at`: the position at which a node last changed in a way that decisions read. A caller that has not
    followed the log does not know, and every write counts as a change, heartbeats too.
    """
    state = living(states, f"pod/{pod}")
    if state is None or state.manifest is None:
        return frozenset()
    named = annotations(state.manifest).get(REJECTED_NODES, "")
    if not named:
        return frozenset()
    last = _turned_away_at(status(state.manifest).get("conditions"))
    if last <= since:
        return frozenset()
    return frozenset(
        node
        for node in named.split(",")
        if (_written_at(node, states) if changed_at is None else changed_at(node)) <= state.rv
        and not _created_after(node, last, states)
    )


_KUBELET_REJECTIONS = frozenset(
    {
        "InvalidNodeInfo",
        "NodeAffinity",
        "NodeName",
        "NodePorts",
        "PodOSSelectorNodeLabelDoesNotMatch",
        "TopologyAffinityError",
        "UnexpectedAdmissionError",
        "VolumeAttachmentLimitExceeded",
    }
)
_OUT_OF = "OutOf"
"""How a kubelet begins the reason that names the resource it lacks: OutOfcpu, OutOfpods."""


def rejected_by_kubelet(pod: Mapping[str, Any]) -> tuple[str, str] | None:
    """The node whose kubelet refused to run the pod, and when it got the pod (RFC 3339); else None.

    A real cluster never moves a pod off its node: it stays Failed, and its owner creates another. So the node is
    remembered, for every pod: its kubelet knows something that the rules of a decision do not see. The kubelet
    reports no time, but it rejects pods as soon as it gets them.
    """
    pod_status, node = status(pod), spec(pod).get("nodeName")
    reason = str(pod_status.get("reason") or "")
    if not node or pod_status.get("phase") != "Failed":
        return None
    if reason not in _KUBELET_REJECTIONS and not reason.startswith(_OUT_OF):
        return None
    conditions = pod_status.get("conditions")
    listed = [it for it in conditions if isinstance(it, dict)] if isinstance(conditions, list) else []
    times = (str(it.get("lastTransitionTime", "")) for it in listed if it.get("type") == "PodScheduled")
    return str(node), max(times, default="")


def _turned_away_at(conditions: Any) -> str:
    """When a node last rejected the pod; the conditions may be malformed."""
    told = [it for it in conditions if isinstance(it, dict)] if isinstance(conditions, list) else []
    times = (str(it.get("lastTransitionTime", "")) for it in told if it.get("reason") == NODE_REJECTED)
    return max(times, default="")


def _written_at(node: str, states: States | Mapping[str, State]) -> int:
    found = (living(states, f"node/{node}"), living(states, f"csinode/{node}"))
    return max((state.rv for state in found if state is not None), default=0)


def _created_after(node: str, time: str, states: States | Mapping[str, State]) -> bool:
    found = living(states, f"node/{node}")
    return found is not None and str(metadata(found.manifest or {}).get("creationTimestamp", "")) > time
