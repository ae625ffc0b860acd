"""InterPodAffinity: the places of other pods, by topology and term, decide where this pod may and should run."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from volsched.kube.selectors import (
    Labels,
    LabelSelector,
    Requirement,
    label_selector_matches,
    label_selector_problem,
)
from volsched.kube.workloads import Node, Pod, PodAffinityTerm
from volsched.scheduling.plugins.plugin import Prepared, normalised_between
from volsched.scheduling.rules.attach_limits import placed_pods
from volsched.scheduling.rules.reasons import (
    ANTI_AFFINITY_OF_OTHERS,
    POD_AFFINITY_MISMATCH,
    POD_ANTI_AFFINITY_MISMATCH,
)
from volsched.scheduling.rules.snapshot import Snapshot
from volsched.scheduling.rules.status import SUCCESS, Code, Status

# A prepared term of inter-pod affinity: which pods it selects, for any owner.


@dataclass(frozen=True, slots=True)
class AffinityTerm:
    topology_key: str
    selector: LabelSelector | None
    """None selects no pod."""
    namespaces: frozenset[str]
    namespace_selector: LabelSelector | None
    """Adds namespaces by their labels; None adds none."""
    weight: int = 0

    def means(self, pod: Pod, namespace: Labels) -> bool:
        """`namespace`: the labels of the pod's namespace."""
        if self.selector is None or not label_selector_matches(self.selector, pod.meta.labels):
            return False
        return self.covers(pod.namespace, namespace)

    def covers(self, name: str, labels: Labels) -> bool:
        if name in self.namespaces:
            return True
        return self.namespace_selector is not None and label_selector_matches(self.namespace_selector, labels)


def term_of(given: PodAffinityTerm, owner: Pod, *, weight: int = 0) -> AffinityTerm:
    """Prepare a term. If it names no namespaces, the owner's own is used."""
    own = not given.namespaces and given.namespace_selector is None
    return AffinityTerm(
        topology_key=given.topology_key,
        selector=with_label_keys(given.label_selector, owner, given.match_label_keys, given.mismatch_label_keys),
        namespaces=frozenset([owner.namespace] if own else given.namespaces),
        namespace_selector=given.namespace_selector,
        weight=weight,
    )


def with_label_keys(
    selector: LabelSelector | None, owner: Pod, match: Iterable[str], mismatch: Iterable[str] = ()
) -> LabelSelector | None:
    """The selector narrowed by the owner's own labels. Idempotent, because the API server does the same."""
    if selector is None:
        return None
    labels = owner.meta.labels
    more = [Requirement(key, "In", (labels[key],)) for key in match if key in labels]
    more += [Requirement(key, "NotIn", (labels[key],)) for key in mismatch if key in labels]
    return replace(selector, match_expressions=(*selector.match_expressions, *more)) if more else selector


@dataclass(frozen=True, slots=True)
class Terms:
    """All of a pod's terms. A preferred term counts by its weight, which is negative for anti-affinity."""

    affinity: tuple[AffinityTerm, ...] = ()
    anti_affinity: tuple[AffinityTerm, ...] = ()
    preferred: tuple[AffinityTerm, ...] = ()


NO_TERMS = Terms()


def has_terms(pod: Pod) -> bool:
    near, far = pod.pod_affinity, pod.pod_anti_affinity
    return bool(near.required or far.required or near.preferred or far.preferred)


def terms_of(pod: Pod) -> Terms:
    if not has_terms(pod):
        return NO_TERMS
    near, far = pod.pod_affinity, pod.pod_anti_affinity
    return Terms(
        affinity=tuple(term_of(given, pod) for given in near.required),
        anti_affinity=tuple(term_of(given, pod) for given in far.required),
        preferred=(
            *(term_of(given.pod_affinity_term, pod, weight=given.weight) for given in near.preferred),
            *(term_of(given.pod_affinity_term, pod, weight=-given.weight) for given in far.preferred),
        ),
    )


def terms_problem(pod: Pod) -> str | None:
    """The first malformed selector of the pod's terms, or None."""
    near, far = pod.pod_affinity, pod.pod_anti_affinity
    given = [*near.required, *far.required]
    given += [it.pod_affinity_term for it in (*near.preferred, *far.preferred)]
    for term in given:
        for selector in (term.label_selector, term.namespace_selector):
            problem = None if selector is None else label_selector_problem(selector)
            if problem is not None:
                return problem
    return None


def sound_terms(pod: Pod) -> Terms:
    """The terms of a placed pod; none at all if one of them is malformed."""
    return NO_TERMS if not has_terms(pod) or terms_problem(pod) is not None else terms_of(pod)


def means(term: AffinityTerm, pod: Pod, snapshot: Snapshot) -> bool:
    return term.means(pod, snapshot.namespace_labels(pod.namespace))


# The decision uses counts per topology pair, such as (zone, a): of pods that a term of the pod selects, and of
# pods with a term that selects the pod.

NOT_NEAR = Status(Code.UNRESOLVABLE, (POD_AFFINITY_MISMATCH,))
TOO_NEAR = Status(Code.UNSCHEDULABLE, (POD_ANTI_AFFINITY_MISMATCH,))
NOT_WANTED = Status(Code.UNSCHEDULABLE, (ANTI_AFFINITY_OF_OTHERS,))
HARD_TERM_WEIGHT = 1
"""The weight of a placed pod's required affinity for this pod, in the placed pod's topology."""

Pair = tuple[str, str]


@dataclass(slots=True)
class Neighbours:
    """The counts that decide about one pod."""

    terms: Terms
    is_first: bool = False
    """Whether the pod selects itself and no existing pod matches: the first of a group must be allowed."""
    near: Counter[Pair] = field(default_factory=Counter)
    """Counts of the pods that all affinity terms select."""
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
    """Whether the pod is the first of its group: no existing pod matches, and it selects itself."""
    return not near and means_all(terms.affinity, pod, snapshot)


def means_all(terms: Iterable[AffinityTerm], pod: Pod, snapshot: Snapshot) -> bool:
    return all(means(term, pod, snapshot) for term in terms)


def _neighbours(snapshot: Snapshot, pod: Pod) -> Neighbours:
    neighbours = Neighbours(terms_of(pod))
    for other in placed_pods(snapshot, besides=pod):
        node = snapshot.nodes.get(other.node_name)
        if node is not None:
            _count(neighbours, snapshot, pod, other, node.labels)
    neighbours.is_first = begins(neighbours.terms, neighbours.near, pod, snapshot)
    return neighbours


def _count(neighbours: Neighbours, snapshot: Snapshot, pod: Pod, other: Pod, labels: Labels) -> None:
    mine, theirs = neighbours.terms, sound_terms(other)
    if mine.affinity and means_all(mine.affinity, other, snapshot):
        _add(neighbours.near, mine.affinity, labels, 1)
    _add(neighbours.too_near, (it for it in mine.anti_affinity if means(it, other, snapshot)), labels, 1)
    _add(neighbours.unwanted, (it for it in theirs.anti_affinity if means(it, pod, snapshot)), labels, 1)
    _add(neighbours.liked, (it for it in mine.preferred if means(it, other, snapshot)), labels, None)
    _add(neighbours.liked, (it for it in theirs.preferred if means(it, pod, snapshot)), labels, None)
    _add(neighbours.liked, (it for it in theirs.affinity if means(it, pod, snapshot)), labels, HARD_TERM_WEIGHT)


def _add(counts: Counter[Pair], terms: Iterable[AffinityTerm], labels: Labels, weight: int | None) -> None:
    """Add the weight of each term under the topology value in the labels; None: the term's own weight."""
    for term in terms:
        if term.topology_key in labels:
            counts[term.topology_key, labels[term.topology_key]] += term.weight if weight is None else weight
