"""The plugins that read a node alone: NodeName, NodeUnschedulable, NodeAffinity, TaintToleration."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from volsched.kube.selectors import NAME_FIELD, NodeTerm, node_selector_matches, node_term_matches
from volsched.kube.workloads import Node, Pod, Taint, Toleration
from volsched.scheduling.plugins.plugin import MAX_SCORE, Prepared, normalised
from volsched.scheduling.rules.reasons import (
    NODE_NAME_MISMATCH,
    NODE_SELECTOR_MISMATCH,
    NODE_UNSCHEDULABLE,
    UNTOLERATED_TAINT,
    refused_by_plugin,
)
from volsched.scheduling.rules.snapshot import Snapshot
from volsched.scheduling.rules.status import SKIP, SUCCESS, Code, Status

# NodeName: a pod that names its node fits no other node.

OTHER_NODE = Status(Code.UNRESOLVABLE, (NODE_NAME_MISMATCH,))


@dataclass(frozen=True, slots=True)
class _Named(Prepared):
    name: str

    def filter(self, node: Node) -> Status:
        return SUCCESS if node.name == self.name else OTHER_NODE


@dataclass(frozen=True, slots=True)
class NodeName:
    name: str = "NodeName"

    def prefilter(self, snapshot: Snapshot, pod: Pod) -> tuple[Status, Prepared | None]:
        del snapshot
        return (SUCCESS, _Named(pod.node_name)) if pod.node_name else (SKIP, None)


# NodeAffinity: which nodes the pod selects by label or name, and which it prefers.

NODE_AFFINITY = "NodeAffinity"
NOT_SELECTED = Status(Code.UNRESOLVABLE, (NODE_SELECTOR_MISMATCH,))
# The reference excludes nodes that no term names at once, with this message.
NOT_NAMED = Status(Code.UNRESOLVABLE, (refused_by_plugin(NODE_AFFINITY),))
CONFLICT = Status(Code.UNRESOLVABLE, ("pod affinity terms conflict",))


@dataclass(frozen=True, slots=True)
class _AffinityJudging(Prepared):
    pod: Pod
    named: frozenset[str] | None

    def leaves_out(self, node: Node) -> Status:
        return SUCCESS if self.named is None or node.name in self.named else NOT_NAMED

    def filter(self, node: Node) -> Status:
        return SUCCESS if selects(self.pod, node) else NOT_SELECTED

    def scores(self, nodes: Sequence[Node]) -> Sequence[int]:
        return normalised([preference(self.pod, node) for node in nodes])


@dataclass(frozen=True, slots=True)
class NodeAffinityPlugin:
    name: str = NODE_AFFINITY

    def prefilter(self, snapshot: Snapshot, pod: Pod) -> tuple[Status, Prepared | None]:
        del snapshot
        if not is_choosy(pod):
            return SKIP, None
        named = named_nodes(pod)
        if named is not None and not named:
            return CONFLICT, None
        return SUCCESS, _AffinityJudging(pod, named)


def is_choosy(pod: Pod) -> bool:
    affinity = pod.node_affinity
    return bool(pod.node_selector) or affinity.required is not None or bool(affinity.preferred)


def selects(pod: Pod, node: Node) -> bool:
    """Whether the pod's selector and its required affinity accept the node."""
    if any(node.labels.get(key) != value for key, value in pod.node_selector.items()):
        return False
    required = pod.node_affinity.required
    return required is None or node_selector_matches(required, node.labels, name=node.name)


def preference(pod: Pod, node: Node) -> int:
    """The sum of the weights of the preferred terms that the node meets."""
    terms = pod.node_affinity.preferred
    return sum(it.weight for it in terms if node_term_matches(it.preference, node.labels, name=node.name))


def named_nodes(pod: Pod) -> frozenset[str] | None:
    """The nodes that the required terms name; None if a term names none, so that any node may match it."""
    required = pod.node_affinity.required
    if required is None or not required.node_selector_terms:
        return None
    named: set[str] = set()
    for term in required.node_selector_terms:
        mine = _named(term)
        if mine is None:
            return None
        named |= mine
    return frozenset(named)


def _named(term: NodeTerm) -> frozenset[str] | None:
    names: frozenset[str] | None = None
    for part in term.match_fields:
        if part.key == NAME_FIELD and part.operator == "In":
            names = frozenset(part.values) if names is None else names & frozenset(part.values)
    return names


# TaintToleration: taints exclude pods that do not tolerate them, or lower a node's score.

NO_SCHEDULE = "NoSchedule"
NO_EXECUTE = "NoExecute"
PREFER_NO_SCHEDULE = "PreferNoSchedule"
UNTOLERATED = Status(Code.UNRESOLVABLE, (UNTOLERATED_TAINT,))


@dataclass(frozen=True, slots=True)
class _TaintJudging(Prepared):
    tolerations: tuple[Toleration, ...]

    def filter(self, node: Node) -> Status:
        return taint_status(self.tolerations, node.taints)

    def scores(self, nodes: Sequence[Node]) -> Sequence[int]:
        return taint_scores([unwelcome(self.tolerations, node.taints) for node in nodes])


@dataclass(frozen=True, slots=True)
class TaintToleration:
    name: str = "TaintToleration"

    def prefilter(self, snapshot: Snapshot, pod: Pod) -> tuple[Status, Prepared | None]:
        del snapshot
        return SUCCESS, _TaintJudging(pod.tolerations)


def tolerates(tolerations: Iterable[Toleration], taint: Taint) -> bool:
    return any(_tolerates(toleration, taint) for toleration in tolerations)


def keeps_away(tolerations: Sequence[Toleration], taints: Iterable[Taint]) -> Taint | None:
    """The first taint that excludes the pod."""
    hard = (taint for taint in taints if taint.effect in (NO_SCHEDULE, NO_EXECUTE))
    return next((taint for taint in hard if not tolerates(tolerations, taint)), None)


def taint_status(tolerations: Sequence[Toleration], taints: Iterable[Taint]) -> Status:
    """The status of a node. As in the reference, the reason names no taint: nodes are counted by reason."""
    return SUCCESS if keeps_away(tolerations, taints) is None else UNTOLERATED


def unwelcome(tolerations: Sequence[Toleration], taints: Iterable[Taint]) -> int:
    """The number of PreferNoSchedule taints that the pod does not tolerate."""
    soft = (taint for taint in taints if taint.effect == PREFER_NO_SCHEDULE)
    return sum(not tolerates(tolerations, taint) for taint in soft)


def taint_scores(counts: Sequence[int]) -> list[int]:
    """Fewer taints score higher. Without any, all nodes would get the same score, which is omitted."""
    if not any(counts):
        return [0] * len(counts)
    return [MAX_SCORE - share for share in normalised(counts)]


def _tolerates(toleration: Toleration, taint: Taint) -> bool:
    if toleration.effect not in ("", taint.effect) or toleration.key not in ("", taint.key):
        return False
    match toleration.operator:
        case "" | "Equal":
            return toleration.value == taint.value
        case operator:
            return operator == "Exists"


# NodeUnschedulable: a cordoned node accepts only pods that tolerate it.

UNSCHEDULABLE = Status(Code.UNRESOLVABLE, (NODE_UNSCHEDULABLE,))
CORDONED = Taint(key="node.kubernetes.io/unschedulable", effect=NO_SCHEDULE)


class _CordonJudging(Prepared):
    def filter(self, node: Node) -> Status:
        return UNSCHEDULABLE if node.unschedulable else SUCCESS


@dataclass(frozen=True, slots=True)
class NodeUnschedulable:
    name: str = "NodeUnschedulable"

    def prefilter(self, snapshot: Snapshot, pod: Pod) -> tuple[Status, Prepared | None]:
        del snapshot
        return (SKIP, None) if goes_anywhere(pod.tolerations) else (SUCCESS, _CordonJudging())


def goes_anywhere(tolerations: Sequence[Toleration]) -> bool:
    """Whether the pod tolerates cordoned nodes."""
    return tolerates(tolerations, CORDONED)
