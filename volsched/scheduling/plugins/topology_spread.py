"""PodTopologySpread: pods that a constraint selects are spread evenly over the domains of a topology key."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from volsched.kube.meta import HOSTNAME
from volsched.kube.selectors import Labels, LabelSelector, label_selector_matches, label_selector_problem
from volsched.kube.workloads import Node, Pod, SpreadConstraint
from volsched.scheduling.plugins.inter_pod_affinity import with_label_keys
from volsched.scheduling.plugins.node_plugins import keeps_away, selects
from volsched.scheduling.plugins.plugin import MAX_SCORE, Prepared
from volsched.scheduling.rules.attach_limits import placed_pods
from volsched.scheduling.rules.reasons import UNEVEN_REASON, UNEVEN_WITHOUT_LABEL
from volsched.scheduling.rules.snapshot import Snapshot
from volsched.scheduling.rules.status import SKIP, SUCCESS, Code, Status

UNEVEN = Status(Code.UNSCHEDULABLE, (UNEVEN_REASON,))
WITHOUT_LABEL = Status(Code.UNRESOLVABLE, (UNEVEN_WITHOUT_LABEL,))
DO_NOT_SCHEDULE = "DoNotSchedule"
SCHEDULE_ANYWAY = "ScheduleAnyway"
HONOR = "Honor"


@dataclass(frozen=True, slots=True)
class Constraint:
    key: str
    max_skew: int
    selector: LabelSelector | None
    min_domains: int
    honors_affinity: bool
    honors_taints: bool

    def means(self, pod: Pod) -> bool:
        """Whether the pod's labels match; the caller ensures that the pod is in the same namespace."""
        return self.selector is not None and label_selector_matches(self.selector, pod.meta.labels)

    def counts_on(self, pod: Pod, node: Node) -> bool:
        """Whether the constraint counts the node: nodes that the pod cannot use may be excluded."""
        if self.honors_affinity and not selects(pod, node):
            return False
        return not self.honors_taints or keeps_away(pod.tolerations, node.taints) is None


def constraints_of(pod: Pod, action: str) -> tuple[Constraint, ...]:
    return tuple(_constraint(given, pod) for given in pod.spread if given.when_unsatisfiable == action)


def _constraint(given: SpreadConstraint, pod: Pod) -> Constraint:
    return Constraint(
        key=given.topology_key,
        max_skew=given.max_skew,
        selector=_counted_by(with_label_keys(given.label_selector, pod, given.match_label_keys)),
        min_domains=1 if given.min_domains is None else given.min_domains,
        honors_affinity=given.node_affinity_policy in ("", HONOR),
        honors_taints=given.node_taints_policy == HONOR,
    )


def _counted_by(selector: LabelSelector | None) -> LabelSelector | None:
    """The selector of counted pods. An empty one would select all pods, but the reference then counts none."""
    if selector is None or not (selector.match_labels or selector.match_expressions):
        return None
    return selector


def unreadable(pod: Pod) -> Status | None:
    for given in pod.spread:
        problem = None if given.label_selector is None else label_selector_problem(given.label_selector)
        if problem is not None:
            return Status(Code.ERROR, (f"get constraints from pod: {problem}",))
    return None


def allowed_count(constraint: Constraint, pod: Pod, *, least: int, domains: int) -> int:
    """How many pods a domain may have before this pod. With too few domains the minimum counts as 0."""
    least = 0 if domains < constraint.min_domains else least
    return constraint.max_skew + least - constraint.means(pod)


def raw_score(constraints: Sequence[Constraint], counts: Sequence[int], sizes: Sequence[int]) -> int:
    """A score that grows with the number of pods. `sizes`: domains per constraint; few domains weigh more."""
    parts = zip(constraints, counts, sizes, strict=True)
    score = sum(count * math.log(size + 2) + (it.max_skew - 1) for it, count, size in parts)
    return math.floor(score + 0.5)


def spread_scores(raw: Sequence[int | None]) -> list[int]:
    """The normalised scores. None: a node without one of the labels, which gets 0."""
    known = [score for score in raw if score is not None]
    most, least = max(known, default=0), min(known, default=0)
    if not most:
        return [0 if score is None else MAX_SCORE for score in raw]
    return [0 if score is None else MAX_SCORE * (most + least - score) // most for score in raw]


@dataclass(frozen=True, slots=True)
class _Judging(Prepared):
    pod: Pod
    snapshot: Snapshot
    mates: Mapping[str, Sequence[Pod]]
    """The pods that a constraint may select, by node."""
    hard: tuple[Constraint, ...]
    soft: tuple[Constraint, ...]
    in_domain: tuple[Counter[str], ...]
    allowed: tuple[int, ...]

    def filter(self, node: Node) -> Status:
        for constraint, counts, allowed in zip(self.hard, self.in_domain, self.allowed, strict=True):
            value = node.labels.get(constraint.key)
            if value is None:
                return WITHOUT_LABEL
            if counts[value] > allowed:
                return UNEVEN
        return SUCCESS

    def scores(self, nodes: Sequence[Node]) -> Sequence[int]:
        if not self.soft:
            return [0] * len(nodes)
        labelled = [node for node in nodes if _has_keys(node.labels, self.soft)]
        sizes = [len({node.labels[it.key] for node in labelled}) for it in self.soft]
        # A host is its own domain, whatever the value of its label.
        sizes = [len(labelled) if it.key == HOSTNAME else size for it, size in zip(self.soft, sizes, strict=True)]
        counts = _counted(self.snapshot, self.pod, self.soft, self.mates)
        return spread_scores([self._raw(node, counts, sizes) for node in nodes])

    def _raw(self, node: Node, in_domain: Sequence[Mapping[str, int]], sizes: Sequence[int]) -> int | None:
        if not _has_keys(node.labels, self.soft):
            return None
        counts = [
            _matching(it, self.mates.get(node.name, ())) if it.key == HOSTNAME else counts[node.labels[it.key]]
            for it, counts in zip(self.soft, in_domain, strict=True)
        ]
        return raw_score(self.soft, counts, sizes)


@dataclass(frozen=True, slots=True)
class PodTopologySpread:
    name: str = "PodTopologySpread"

    def prefilter(self, snapshot: Snapshot, pod: Pod) -> tuple[Status, Prepared | None]:
        if not pod.spread:
            return SKIP, None
        refusal = unreadable(pod)
        if refusal is not None:
            return refusal, None
        mates: dict[str, list[Pod]] = {}
        for other in placed_pods(snapshot, besides=pod):
            if other.namespace == pod.namespace and not other.meta.being_deleted:
                mates.setdefault(other.node_name, []).append(other)
        hard = constraints_of(pod, DO_NOT_SCHEDULE)
        counts = _counted(snapshot, pod, hard, mates)
        allowed = (
            allowed_count(it, pod, least=min(mine.values(), default=0), domains=len(mine))
            for it, mine in zip(hard, counts, strict=True)
        )
        soft = constraints_of(pod, SCHEDULE_ANYWAY)
        return SUCCESS, _Judging(pod, snapshot, mates, hard, soft, counts, tuple(allowed))


def _counted(
    snapshot: Snapshot, pod: Pod, constraints: Sequence[Constraint], mates: Mapping[str, Sequence[Pod]]
) -> tuple[Counter[str], ...]:
    """The number of pods per domain, for each constraint. Nodes must have the labels of all constraints."""
    counts: tuple[Counter[str], ...] = tuple(Counter() for _ in constraints)
    for node in snapshot.nodes.values():
        if not _has_keys(node.labels, constraints):
            continue
        for constraint, mine in zip(constraints, counts, strict=True):
            if constraint.counts_on(pod, node):
                mine[node.labels[constraint.key]] += _matching(constraint, mates.get(node.name, ()))
    return counts


def _has_keys(labels: Labels, constraints: Sequence[Constraint]) -> bool:
    return all(it.key in labels for it in constraints)


def _matching(constraint: Constraint, pods: Sequence[Pod]) -> int:
    return sum(map(constraint.means, pods))
