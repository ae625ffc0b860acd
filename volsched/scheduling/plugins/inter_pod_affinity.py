"""InterPodAffinity: where other pods are, by topology, decides where this one may and would rather be.

What decides are counts per topology pair, such as (zone, a): of pods that a term of the pod means, and of pods
with a term that means the pod.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from volsched.kube.selectors import Labels
from volsched.kube.workloads import Node, Pod
from volsched.scheduling.plugins.affinity_terms import (
    AffinityTerm,
    Terms,
    means,
    sound_terms,
    terms_of,
    terms_problem,
)
from volsched.scheduling.plugins.plugin import Prepared, normalised_between
from volsched.scheduling.rules.attach_limits import placed_pods
from volsched.scheduling.rules.snapshot import Snapshot
from volsched.scheduling.rules.status import SUCCESS, Code, Status

NOT_NEAR = Status(Code.UNRESOLVABLE, ("node(s) didn't match pod affinity rules",))
TOO_NEAR = Status(Code.UNSCHEDULABLE, ("node(s) didn't match pod anti-affinity rules",))
NOT_WANTED = Status(Code.UNSCHEDULABLE, ("node(s) didn't satisfy existing pods anti-affinity rules",))
HARD_TERM_WEIGHT = 1
"""What a placed pod's required affinity for this one adds to its own topology."""

Pair = tuple[str, str]


@dataclass(slots=True)
class Neighbours:
    """The counts that decide for one pod."""

    terms: Terms
    is_first: bool = False
    """The pod means itself, and no pod there is means the same: somebody must begin."""
    near: Counter[Pair] = field(default_factory=Counter)
    """Pods that all affinity terms mean."""
    too_near: Counter[Pair] = field(default_factory=Counter)
    unwanted: Counter[Pair] = field(default_factory=Counter)
    liked: Counter[Pair] = field(default_factory=Counter)

    def status(self, labels: Labels) -> Status:
        keys = [term.topology_key for term in self.terms.affinity]
        if any(key not in labels for key in keys):
            return NOT_NEAR
        if not all(self.near[key, labels[key]] for key in keys) and not self.is_first:
            return NOT_NEAR
        far = (term.topology_key for term in self.terms.anti_affinity)
        if any(self.too_near[key, labels[key]] for key in far if key in labels):
            return TOO_NEAR
        return NOT_WANTED if any(self.unwanted[pair] for pair in labels.items()) else SUCCESS

    def liking(self, labels: Labels) -> int:
        return sum(self.liked[pair] for pair in labels.items())


@dataclass(frozen=True, slots=True)
class _Judging(Prepared):
    neighbours: Neighbours

    def filter(self, node: Node) -> Status:
        return self.neighbours.status(node.labels)

    def scores(self, nodes: Sequence[Node]) -> Sequence[int]:
        return normalised_between([self.neighbours.liking(node.labels) for node in nodes])


@dataclass(frozen=True, slots=True)
class InterPodAffinity:
    name: str = "InterPodAffinity"

    def prefilter(self, snapshot: Snapshot, pod: Pod) -> tuple[Status, Prepared | None]:
        refusal = unreadable(pod)
        if refusal is not None:
            return refusal, None
        return SUCCESS, _Judging(_neighbours(snapshot, pod))


def unreadable(pod: Pod) -> Status | None:
    problem = terms_problem(pod)
    return None if problem is None else Status(Code.UNRESOLVABLE, (f"parsing pod: {problem}",))


def begins(terms: Terms, near: Mapping[Pair, int], pod: Pod, snapshot: Snapshot) -> bool:
    """The first of pods that want to be together finds nobody to be with."""
    return not near and means_all(terms.affinity, pod, snapshot)


def means_all(terms: Iterable[AffinityTerm], pod: Pod, snapshot: Snapshot) -> bool:
    return all(means(term, pod, snapshot) for term in terms)


def _neighbours(snapshot: Snapshot, pod: Pod) -> Neighbours:
    found = Neighbours(terms_of(pod))
    for other in placed_pods(snapshot, besides=pod):
        node = snapshot.nodes.get(other.node_name)
        if node is not None:
            _count(found, snapshot, pod, other, node.labels)
    found.is_first = begins(found.terms, found.near, pod, snapshot)
    return found


def _count(found: Neighbours, snapshot: Snapshot, pod: Pod, other: Pod, labels: Labels) -> None:
    mine, theirs = found.terms, sound_terms(other)
    if mine.affinity and means_all(mine.affinity, other, snapshot):
        _add(found.near, mine.affinity, labels, 1)
    _add(found.too_near, (it for it in mine.anti_affinity if means(it, other, snapshot)), labels, 1)
    _add(found.unwanted, (it for it in theirs.anti_affinity if means(it, pod, snapshot)), labels, 1)
    _add(found.liked, (it for it in mine.preferred if means(it, other, snapshot)), labels, None)
    _add(found.liked, (it for it in theirs.preferred if means(it, pod, snapshot)), labels, None)
    _add(found.liked, (it for it in theirs.affinity if means(it, pod, snapshot)), labels, HARD_TERM_WEIGHT)


def _add(counts: Counter[Pair], terms: Iterable[AffinityTerm], labels: Labels, weight: int | None) -> None:
    """For each term, in the topology where the labels are; None: the term's own weight."""
    for term in terms:
        if term.topology_key in labels:
            counts[term.topology_key, labels[term.topology_key]] += term.weight if weight is None else weight
