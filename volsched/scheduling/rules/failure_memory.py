"""Bindings that failed, remembered: where a pod was refused, or came too late, ranks last in its next decisions.

The rules of a decision cannot see all that keeps a volume from a node: a provisioner refuses, or never answers,
and the node is still the best by every rule. So each rolled-back binding counts against its node, for its pod; and
a provisioner's refusal counts for a short while, for every pod with a claim of the class, against all nodes of the
topology domain. What counts against a node only ranks it: no node is left out, so nothing of this can be the
reason why a pod finds none.

A pod's failures are forgotten together, after a pause that begins anew and doubles with each of them. However long
a failure takes to show, those before it are remembered then, and the pod comes to a node that would take it before
it comes to any other twice.

All of it follows from bindings that ended a short while ago, so it is the same after a restart and in a replay.
"""

from bisect import insort
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from volsched.binding.rules.leg_conditions import DEADLINE_EXCEEDED
from volsched.binding.rules.phases import REFUSED, STILL_PROVISIONING, Phase
from volsched.binding.rules.reservation_conditions import LEASE_EXPIRED, RESERVATION_LOST
from volsched.kube.meta import TOPOLOGY_LABELS
from volsched.kube.workloads import Node, Pod
from volsched.log.events.fold import BindingState, LegState, State
from volsched.scheduling.queue.entry import SECOND
from volsched.scheduling.rules.pod_claims import claim_uses, is_fully_bound
from volsched.scheduling.rules.profile import Profile
from volsched.scheduling.rules.snapshot import Snapshot

FIRST_PAUSE = 60 * SECOND
"""Longer than a pod backs off after its first failures, so that nothing is forgotten between two of them."""
LONGEST_PAUSE = 3_600 * SECOND
KEPT = 6 * LONGEST_PAUSE
"""What is older does not count at all: bindings that time out one after the other take that long on many nodes."""
DOMAIN_PAUSE = 60 * SECOND
MOST = 256
"""Of one pod, the failures that are kept: the last."""

Domain = tuple[tuple[str, str | None], ...]
"""Labels, each with the value that all nodes of the domain have; None: they do not have the label."""


class RememberedFailure(NamedTuple):
    at: int
    binding: str
    node: str
    refused: tuple[tuple[str, str], ...] = ()
    """Claims, with their uids, for which no volume was made."""


@dataclass(frozen=True, slots=True)
class Demerits:
    """What counts against nodes in the decision about one pod."""

    nodes: Mapping[str, int] = field(default_factory=dict)
    """How often the pod failed there."""
    domains: frozenset[Domain] = frozenset()
    """Where volumes of a class were refused that the pod asks for as well."""

    def __bool__(self) -> bool:
        return bool(self.nodes or self.domains)

    def of(self, node: Node) -> int:
        """Nodes with fewer come before those with more, whatever else they are worth."""
        near = any(_is_within(node, domain) for domain in self.domains)
        return 2 * self.nodes.get(node.name, 0) + near


NO_DEMERITS = Demerits()


@dataclass(slots=True)
class Failures:
    """The failures that may still count, as of some position of the log."""

    _by_pod: dict[str, list[RememberedFailure]] = field(default_factory=dict)
    """By the pod's uid, in the order of time."""
    _refusals: list[RememberedFailure] = field(default_factory=list)

    def note(self, binding: str, state: State) -> None:
        """Take a binding's end in; only those that were rolled back are kept."""
        if not isinstance(state, BindingState) or not is_failure(state):
            return
        at = state.ended_at or 0
        refused = tuple((leg.claim, leg.claim_uid) for leg in state.legs if _is_refused(leg, state))
        failure = RememberedFailure(at, binding, state.plan["node"], refused)
        # Taken out and put back: whose last failure is the oldest comes first.
        mine = self._by_pod.pop(state.plan["pod_uid"], [])
        self._by_pod[state.plan["pod_uid"]] = mine
        insort(mine, failure)
        del mine[:-MOST]
        if refused:
            insort(self._refusals, failure)
        self._forget(at)

    def of_pod(self, uid: str, now: int) -> Mapping[str, int]:
        """Node → how often the pod failed there, as far as that is remembered now."""
        recent = [it for it in self._by_pod.get(uid, ()) if it.at > now - KEPT]
        if not recent or now >= recent[-1].at + pause_after(len(recent)):
            return {}
        return Counter(it.node for it in recent)

    def refusals(self, now: int) -> Iterator[RememberedFailure]:
        """Those in which a provisioner made no volume, a short while ago."""
        return (it for it in reversed(self._refusals) if it.at > now - DOMAIN_PAUSE)

    def __bool__(self) -> bool:
        return bool(self._by_pod)

    def _forget(self, now: int) -> None:
        """What is too old, seen from a failure at this time."""
        while self._refusals and self._refusals[0].at <= now - DOMAIN_PAUSE:
            del self._refusals[0]
        while self._by_pod and next(iter(self._by_pod.values()))[-1].at <= now - KEPT:
            del self._by_pod[next(iter(self._by_pod))]


def is_failure(state: BindingState) -> bool:
    """It was rolled back, and not because nobody wanted a reservation any more."""
    reason = state.reason or ""
    let_go = reason == LEASE_EXPIRED or reason.startswith(RESERVATION_LOST)
    return state.state == Phase.ROLLED_BACK and not let_go


def pause_after(failures: int) -> int:
    """How long after the last of so many failures they are remembered."""
    return min(FIRST_PAUSE << (failures - 1), LONGEST_PAUSE)


def demerits(failures: Failures, snapshot: Snapshot, pod: Pod, *, profile: Profile, now: int) -> Demerits:
    """What counts against which nodes in a decision about the pod at this time: one answer for all deciders."""
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
    """Of the pod's claims that have no volume yet."""
    claims = (snapshot.claim(use.key) for use in claim_uses(pod))
    return {claim.class_name for claim in claims if claim is not None and not is_fully_bound(claim)}


def _domain_of(snapshot: Snapshot, node: Node, class_name: str) -> Domain:
    """By the keys that the class's driver has for the node; by zone and region where it names none."""
    storage_class, csi_node = snapshot.classes.get(class_name), snapshot.csi_nodes.get(node.name)
    drivers = () if csi_node is None or storage_class is None else csi_node.drivers
    keys = next((it.topology_keys for it in drivers if storage_class and it.name == storage_class.provisioner), ())
    return tuple((key, node.labels.get(key)) for key in keys or TOPOLOGY_LABELS)


def _is_within(node: Node, domain: Domain) -> bool:
    return all(node.labels.get(key) == value for key, value in domain)


def _is_refused(leg: LegState, state: BindingState) -> bool:
    """A provisioner said no, or nothing for as long as the binding could wait."""
    if not leg.dynamic or not leg.owner:
        return False
    if (leg.reason or "").startswith(REFUSED):
        return True
    return state.reason == DEADLINE_EXCEEDED and leg.reason == STILL_PROVISIONING
