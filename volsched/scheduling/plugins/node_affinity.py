"""NodeAffinity: which nodes the pod selects by label or name, and which it would rather have."""

from collections.abc import Sequence
from dataclasses import dataclass

from volsched.kube.selectors import NAME_FIELD, NodeTerm, node_selector_matches, node_term_matches
from volsched.kube.workloads import Node, Pod
from volsched.scheduling.plugins.plugin import Prepared, normalised
from volsched.scheduling.rules.snapshot import Snapshot
from volsched.scheduling.rules.status import SKIP, SUCCESS, Code, Status

NAME = "NodeAffinity"
NOT_SELECTED = Status(Code.UNRESOLVABLE, ("node(s) didn't match Pod's node affinity/selector",))
# The reference leaves nodes out at once that no term names, and has these words for them.
NOT_NAMED = Status(Code.UNRESOLVABLE, (f"node(s) didn't satisfy plugin(s) [{NAME}]",))
CONFLICT = Status(Code.UNRESOLVABLE, ("pod affinity terms conflict",))


@dataclass(frozen=True, slots=True)
class _Judging(Prepared):
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
    name: str = NAME

    def prefilter(self, snapshot: Snapshot, pod: Pod) -> tuple[Status, Prepared | None]:
        del snapshot
        if not is_choosy(pod):
            return SKIP, None
        named = named_nodes(pod)
        if named is not None and not named:
            return CONFLICT, None
        return SUCCESS, _Judging(pod, named)


def is_choosy(pod: Pod) -> bool:
    affinity = pod.node_affinity
    return bool(pod.node_selector) or affinity.required is not None or bool(affinity.preferred)


def selects(pod: Pod, node: Node) -> bool:
    """The pod's selector and its required affinity accept the node."""
    if any(node.labels.get(key) != value for key, value in pod.node_selector.items()):
        return False
    required = pod.node_affinity.required
    return required is None or node_selector_matches(required, node.labels, name=node.name)


def preference(pod: Pod, node: Node) -> int:
    """The weights of the preferred terms that the node meets."""
    terms = pod.node_affinity.preferred
    return sum(it.weight for it in terms if node_term_matches(it.preference, node.labels, name=node.name))


def named_nodes(pod: Pod) -> frozenset[str] | None:
    """The nodes that the required terms name; None where a term names none, so that any node may meet it."""
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
    found: frozenset[str] | None = None
    for part in term.match_fields:
        if part.key == NAME_FIELD and part.operator == "In":
            found = frozenset(part.values) if found is None else found & frozenset(part.values)
    return found
