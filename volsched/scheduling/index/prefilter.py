"""The nodes' standing with a pod apart from its volumes: which are refused, and the scores of the others."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import reduce
from operator import or_

from volsched.kube.workloads import Pod
from volsched.scheduling.index.contents import Contents
from volsched.scheduling.index.node_sets import Nodes, positions
from volsched.scheduling.index.plugin_masks import (
    NOTHING,
    Finder,
    Masks,
    PluginMasks,
    Refusals,
    find_even,
    find_named,
    find_neighbourly,
    find_roomy,
    find_selected,
    find_tolerated,
    find_unschedulable,
    walk,
)
from volsched.scheduling.plugins.inter_pod_affinity import InterPodAffinity
from volsched.scheduling.plugins.node_plugins import (
    NodeAffinityPlugin,
    NodeName,
    NodeUnschedulable,
    TaintToleration,
)
from volsched.scheduling.plugins.node_resources import NodeResourcesFit
from volsched.scheduling.plugins.registry import Enabled
from volsched.scheduling.plugins.topology_spread import PodTopologySpread
from volsched.scheduling.rules.cycle import TURNED_AWAY, NodeRefusal
from volsched.scheduling.rules.failure_memory import NODE_REJECTED, Demerits, Domain
from volsched.scheduling.rules.status import Code, Status

FINDERS: Mapping[type[object], Finder] = {
    NodeUnschedulable: find_unschedulable,
    NodeName: find_named,
    TaintToleration: find_tolerated,
    NodeAffinityPlugin: find_selected,
    NodeResourcesFit: find_roomy,
    PodTopologySpread: find_even,
    InterPodAffinity: find_neighbourly,
}
DEMERIT = 1 << 40
"""The amount that a demerit subtracts from a total: more than any total, so that it outranks all scores."""


@dataclass(frozen=True, slots=True)
class PrefilterRefusal:
    plugin: str
    status: Status
    mask: int


@dataclass(slots=True)
class Prefilter:
    before: list[PrefilterRefusal] = field(default_factory=list)
    """Refusals before any volume is checked; no node twice."""
    after: list[PrefilterRefusal] = field(default_factory=list)
    """Refusals that count if the volumes do not refuse the nodes first."""
    reached: int = 0
    """The nodes whose volumes are checked."""
    passed: int = 0
    levels: list[tuple[int, int]] = field(default_factory=list)
    """The nodes that passed, by score without volumes and less demerits, the best first."""
    scores: list[tuple[str, Masks]] = field(default_factory=list)

    @property
    def failed(self) -> bool:
        """Whether a plugin failed on some node."""
        return any(it.status.code is Code.ERROR for it in (*self.before, *self.after))

    def total(self, bit: int) -> int:
        if len(self.levels) == 1:
            return self.levels[0][0]
        return next(total for total, mask in self.levels if mask & bit)

    def scores_of(self, bit: int) -> dict[str, int]:
        """The node's scores by plugin, without zeros."""
        found = ((name, score) for name, masks in self.scores for score, mask in masks.items() if mask & bit)
        return {name: score for name, score in found if score}


@dataclass(frozen=True, slots=True)
class PrefilterQuery:
    """A plugin, and its answer about the pod."""

    name: str
    weight: int
    masks: PluginMasks


def query_plugins(
    contents: Contents, plugins: Iterable[Enabled], pod: Pod
) -> tuple[list[PrefilterQuery], NodeRefusal | None]:
    """Call every plugin for the pod, up to the first that refuses it. Plugins without an answer are left out."""
    queries: list[PrefilterQuery] = []
    for enabled in plugins:
        finder = FINDERS.get(type(enabled.plugin))
        masks = walk(enabled.plugin, contents, pod) if finder is None else finder(contents, pod)
        if masks is NOTHING:
            continue
        if not masks.status.passed:
            return queries, NodeRefusal(enabled.plugin.name, masks.status)
        queries.append(PrefilterQuery(enabled.plugin.name, enabled.weight, masks))
    return queries, None


def score_of(total: int) -> int:
    """The total without the demerits."""
    return total % DEMERIT


def stand(
    contents: Contents,
    before: Iterable[PrefilterQuery],
    after: Iterable[PrefilterQuery],
    avoid: Collection[str],
    demerits: Demerits,
) -> Prefilter:
    before, after = list(before), list(after)
    standing = Prefilter()
    left = contents.nodes.everyone
    for query in (*before, *after):
        left = _refuse(standing.before, query.name, query.masks.left_out(left), left)
    away = sum(contents.nodes.mask_of(name) for name in set(avoid)) if avoid else 0
    if away:
        left = _refuse(standing.before, NODE_REJECTED, [(TURNED_AWAY, away)], left)
    for query in before:
        left = _refuse(standing.before, query.name, query.masks.refusals(left), left)
    standing.reached = left
    for query in after:
        left = _refuse(standing.after, query.name, query.masks.refusals(left), left)
    standing.passed = left
    levels: Masks = {0: left} if left else {}
    for query in (*before, *after):
        if query.masks.scores is not None and left:
            masks = query.masks.scores(left)
            standing.scores.append((query.name, masks))
            if query.weight:
                levels = _raised(levels, masks, query.weight)
    if demerits:
        levels = _lowered(levels, contents.nodes, demerits)
    standing.levels = sorted(levels.items(), reverse=True)
    return standing


def _lowered(levels: Masks, nodes: Nodes, demerits: Demerits) -> Masks:
    """The levels less demerits. One node of a refusing domain represents all but those on which the pod failed."""
    failed = sum(nodes.mask_of(name) for name in demerits.nodes)
    against: Masks = {}
    for position in positions(failed):
        count = demerits.of(nodes.at(position))
        against[count] = against.get(count, 0) | 1 << position
    near = reduce(or_, (_nodes_of(nodes, domain) for domain in demerits.domains), 0) & ~failed
    if near:
        count = demerits.of(nodes.any(near))
        against[count] = against.get(count, 0) | near
    against[0] = nodes.everyone & ~(failed | near)
    return _raised(levels, against, -DEMERIT)


def _nodes_of(nodes: Nodes, domain: Domain) -> int:
    mask = nodes.everyone
    for key, value in domain:
        mask &= ~nodes.labelled(key) if value is None else nodes.carriers([(key, value)])
    return mask


def _refuse(kept: list[PrefilterRefusal], plugin: str, refusals: Refusals, left: int) -> int:
    """Store which of the remaining nodes are refused; returns those that remain."""
    for status, mask in refusals:
        mine = mask & left
        if mine:
            kept.append(PrefilterRefusal(plugin, status, mine))
            left ^= mine
    return left


def _raised(levels: Masks, masks: Masks, weight: int) -> Masks:
    raised_masks: Masks = {}
    for total, level in levels.items():
        for score, mask in masks.items():
            mine = level & mask
            if mine:
                raised = total + weight * score
                raised_masks[raised] = raised_masks.get(raised, 0) | mine
    return raised_masks
