"""Topology spread for all nodes at once: domains are counted, not nodes, but where every node is a domain."""

from collections.abc import Sequence
from functools import reduce
from operator import and_

from volsched.kube.meta import HOSTNAME
from volsched.kube.workloads import Pod
from volsched.scheduling.index.contents import Contents
from volsched.scheduling.index.plugin_masks import (
    NOTHING,
    Masks,
    PluginMasks,
    Refusals,
    completed,
    selected,
    tolerated,
)
from volsched.scheduling.plugins.topology_spread import (
    DO_NOT_SCHEDULE,
    SCHEDULE_ANYWAY,
    UNEVEN,
    WITHOUT_LABEL,
    Constraint,
    allowed_count,
    constraints_of,
    raw_score,
    spread_scores,
    unreadable,
)
from volsched.scheduling.rules.status import Status


def find_even(held: Contents, pod: Pod) -> PluginMasks:
    if not pod.spread:
        return NOTHING
    refusal = unreadable(pod)
    if refusal is not None:
        return PluginMasks(status=refusal)
    hard, soft = constraints_of(pod, DO_NOT_SCHEDULE), constraints_of(pod, SCHEDULE_ANYWAY)

    def refusals(mask: int) -> Refusals:
        found: list[tuple[Status, int]] = []
        for constraint in hard:
            looked_at = _looked_at(held, pod, constraint, hard)
            found.append((WITHOUT_LABEL, mask & ~held.nodes.labelled(constraint.key)))
            found.append((UNEVEN, _full(held, pod, constraint, looked_at)))
        return found

    return PluginMasks(refusals=refusals, scores=(lambda mask: _scores(held, pod, soft, mask)) if soft else None)


def _labelled(held: Contents, constraints: Sequence[Constraint]) -> int:
    return reduce(and_, (held.nodes.labelled(it.key) for it in constraints), held.nodes.everyone)


def _looked_at(held: Contents, pod: Pod, constraint: Constraint, among: Sequence[Constraint]) -> int:
    mask = _labelled(held, among)
    if constraint.honors_affinity:
        mask &= selected(held, pod)
    return mask & tolerated(held, pod) if constraint.honors_taints else mask


def _full(held: Contents, pod: Pod, constraint: Constraint, looked_at: int) -> int:
    """The domains that have as many pods as they may have, or more."""
    counts = _counts(held, pod, constraint, looked_at)
    domains = _domains(held, constraint.key, looked_at)
    least = 0 if len(counts) < domains else min(counts.values(), default=0)
    allowed = allowed_count(constraint, pod, least=least, domains=domains)
    if allowed < 0:
        return held.nodes.labelled(constraint.key)
    return held.nodes.carriers((constraint.key, value) for value, count in counts.items() if count > allowed)


def _domains(held: Contents, key: str, mask: int) -> int:
    if held.nodes.tells_apart(key):
        return mask.bit_count()
    return sum(bool(domain & mask) for domain in held.nodes.domains(key).values())


def _on_nodes(held: Contents, pod: Pod, constraint: Constraint, mask: int) -> dict[int, int]:
    """Per position, the pods that the constraint means."""
    found: dict[int, int] = {}
    for kind in held.crowd.selected(constraint.selector, pod.namespace):
        if kind.mask & mask and not kind.sample.meta.being_deleted:
            for position, count in kind.counts.items():
                if mask >> position & 1:
                    found[position] = found.get(position, 0) + count
    return found


def _counts(held: Contents, pod: Pod, constraint: Constraint, mask: int) -> dict[str, int]:
    """Per domain with such pods, how many."""
    found: dict[str, int] = {}
    for position, count in _on_nodes(held, pod, constraint, mask).items():
        value = held.nodes.at(position).labels[constraint.key]
        found[value] = found.get(value, 0) + count
    return found


def _scores(held: Contents, pod: Pod, soft: Sequence[Constraint], mask: int) -> Masks:
    labelled = mask & _labelled(held, soft)
    parts: dict[tuple[int, ...], int] = {(): labelled} if labelled else {}
    sizes = []
    for constraint in soft:
        of_hosts = constraint.key == HOSTNAME
        sizes.append(labelled.bit_count() if of_hosts else _domains(held, constraint.key, labelled))
        by_count = _hosts(held, pod, constraint) if of_hosts else _zones(held, pod, constraint, soft)
        split: dict[tuple[int, ...], int] = {}
        for counts, part in parts.items():
            for count, mine in completed(by_count, part).items():
                split[*counts, count] = mine
        parts = split
    keys = list(parts)
    rest = mask & ~labelled
    raw: list[int | None] = [raw_score(soft, counts, sizes) for counts in keys]
    scores = spread_scores([*raw, None] if rest else raw)
    found: Masks = {}
    for score, part in zip(scores, [*parts.values(), rest], strict=False):
        found[score] = found.get(score, 0) | part
    return found


def _hosts(held: Contents, pod: Pod, constraint: Constraint) -> Masks:
    found: Masks = {}
    for position, count in _on_nodes(held, pod, constraint, held.nodes.everyone).items():
        found[count] = found.get(count, 0) | 1 << position
    return found


def _zones(held: Contents, pod: Pod, constraint: Constraint, soft: Sequence[Constraint]) -> Masks:
    found: Masks = {}
    for value, count in _counts(held, pod, constraint, _looked_at(held, pod, constraint, soft)).items():
        found[count] = found.get(count, 0) | held.nodes.domains(constraint.key)[value]
    return found
