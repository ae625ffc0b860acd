"""One decision, surveyed for people: where the pod goes, or which nodes refuse it for what reasons.

On a small cluster every node is judged with its reasons in full. On a large one the index decides and counts, and
some nodes of every kind are judged to say why: those where something comes near, and some of the others.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from volsched.kube.storage import Claim
from volsched.kube.workloads import Node, Pod
from volsched.questions.explain.near_misses import NodeSurroundings, speaks_for
from volsched.scheduling.index import Index
from volsched.scheduling.rules.cycle import Attempt, Verdict, attempt, prepare
from volsched.scheduling.rules.status import Status

SMALL = 40_000
"""Nodes times what is looked at on each, up to which every node is judged in full."""
SAMPLED = 24
"""Nodes that are looked at, of many, besides those where something comes near."""
PER_REASON = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusing:
    """Nodes that refuse the pod for the same reasons."""

    status: Status
    plugin: str
    count: int
    verdicts: tuple[Verdict, ...]
    """Of all of them, or of some."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Survey:
    made: Attempt
    verdicts: tuple[Verdict, ...] = ()
    """Of every node, or of some: whoever passes is not refused."""

    @property
    def fits(self) -> bool:
        return self.made.chosen is not None

    def refusing(self) -> list[Refusing]:
        """The largest group first: it is most likely what the reader came for."""
        groups: dict[Status, list[Verdict]] = {status: [] for status in self.made.refused}
        for verdict in self.verdicts:
            if not verdict.status.passed:
                groups.setdefault(verdict.status, []).append(verdict)
        counts: Mapping[Status, int] = self.made.refused or Counter(it.status for it in self.verdicts)
        found = [
            Refusing(
                status=status,
                plugin=verdicts[0].plugin if verdicts else "",
                count=counts.get(status, len(verdicts)),
                verdicts=tuple(verdicts),
            )
            for status, verdicts in groups.items()
        ]
        return sorted(found, key=lambda it: (-it.count, it.status.reasons))


def survey(index: Index, pod: Pod, around: NodeSurroundings, *, only: str | None = None) -> Survey:
    """`only` looks at one node."""
    whole, avoid = index.snapshot, around.avoid
    if only is not None:
        made = around.judged(only)
        return Survey(made=made, verdicts=made.verdicts)
    on_each = len(whole.stored_volumes) + len(whole.capacities) + len(whole.pods)
    if len(whole.nodes) * on_each <= SMALL:
        profile = replace(index.profile, explains=True)
        made = attempt(whole, pod, profile=profile, avoid=avoid, demerits=around.demerits)
        return Survey(made=made, verdicts=made.verdicts)
    made = index.decide(pod, avoid=avoid, demerits=around.demerits)
    if made.chosen is not None or not made.refused:
        return Survey(made=made)
    judged = (around.judged(name).verdicts for name in _sample(index, pod, around))
    return Survey(made=made, verdicts=tuple(verdict for verdicts in judged for verdict in verdicts))


def near_nodes(around: NodeSurroundings) -> Iterator[str]:
    """Nodes at which one of the pod's claims comes nearest to a volume, or to room for one."""
    for claim in around.waiting():
        for near in around.nearest_anywhere(claim):
            node = around.a_node_at(near.volume)
            if node is not None:
                yield node.name
        roomy = _roomiest(around, claim)
        if roomy is not None:
            yield roomy.name


def _roomiest(around: NodeSurroundings, claim: Claim) -> Node | None:
    """A node for which the capacity object with the most room speaks."""
    snapshot = around.snapshot
    mine = [
        (it.limit, it.key, it)
        for it in snapshot.capacities.values()
        if it.storage_class_name == claim.class_name and it.limit is not None
    ]
    if not mine:
        return None
    _, _, roomiest = max(mine, key=lambda it: it[:2])
    return next((it for _, it in sorted(snapshot.nodes.items()) if speaks_for(roomiest, it)), None)


def _sample(index: Index, pod: Pod, around: NodeSurroundings) -> Iterable[str]:
    """Some nodes of each kind: refused by the same plugin before volumes, or left for the volumes to decide."""
    ready, _ = prepare(index.profile.before_volumes, index.snapshot, pod)
    kinds: dict[Status | None, list[str]] = {}
    for name, node in sorted(index.snapshot.nodes.items()):
        statuses = (said for it in ready for said in (it.prepared.leaves_out(node), it.prepared.filter(node)))
        kinds.setdefault(next((it for it in statuses if not it.passed), None), []).append(name)
    left = kinds.pop(None, [])
    step = max(len(left) // SAMPLED, 1)
    names = [*near_nodes(around), *left[::step][:SAMPLED]]
    for others in kinds.values():
        names += others[:PER_REASON]
    return dict.fromkeys(names)
