"""The plugins' answers about a pod for all nodes at once, as sets of nodes; spread and affinity by domain."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import and_, or_

from volsched.kube.meta import HOSTNAME
from volsched.kube.workloads import Node, Pod
from volsched.scheduling.index.contents import Contents
from volsched.scheduling.index.node_sets import positions
from volsched.scheduling.index.pod_affinity_index import PlacedPod, Wish
from volsched.scheduling.plugins.inter_pod_affinity import (
    NOT_NEAR,
    NOT_WANTED,
    TOO_NEAR,
    Terms,
    has_terms,
    means_all,
    terms_of,
)
from volsched.scheduling.plugins.inter_pod_affinity import unreadable as unreadable_affinity
from volsched.scheduling.plugins.node_plugins import (
    CONFLICT,
    NOT_NAMED,
    NOT_SELECTED,
    OTHER_NODE,
    UNSCHEDULABLE,
    goes_anywhere,
    is_choosy,
    keeps_away,
    named_nodes,
    selects,
    taint_scores,
    taint_status,
    unwelcome,
)
from volsched.scheduling.plugins.node_resources import wanted_by
from volsched.scheduling.plugins.plugin import Plugin, Prepared, normalised, normalised_between
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
from volsched.scheduling.rules.status import SUCCESS, Status

# Every built-in plugin has a finder that applies the plugin's own rules to one node, domain or sum of each
# kind. A plugin without a finder is called for every node, at its cost.

Refusals = Iterable[tuple[Status, int]]
"""The refused nodes and why; where two overlap, the earlier counts."""
Masks = dict[int, int]
"""Score → the nodes that have it."""


def _nobody(_: int) -> Refusals:
    return ()


@dataclass(frozen=True, slots=True)
class PluginMasks:
    status: Status = SUCCESS
    """The status of the pod as a whole."""
    left_out: Callable[[int], Refusals] = _nobody
    """The nodes of a mask that are excluded before any filter runs."""
    refusals: Callable[[int], Refusals] = _nobody
    """The refused nodes of a mask; nodes outside it do not count."""
    scores: Callable[[int], Masks] | None = None
    """The scores of the nodes of a mask, normalised over them; None: all get 0."""


NOTHING = PluginMasks()
Finder = Callable[[Contents, Pod], PluginMasks]


def find_unschedulable(contents: Contents, pod: Pod) -> PluginMasks:
    cordoned = contents.nodes.cordoned
    if not cordoned or goes_anywhere(pod.tolerations):
        return NOTHING
    return PluginMasks(refusals=lambda _: [(UNSCHEDULABLE, cordoned)])


def find_named(contents: Contents, pod: Pod) -> PluginMasks:
    if not pod.node_name:
        return NOTHING
    return PluginMasks(refusals=lambda mask: [(OTHER_NODE, mask & ~contents.nodes.mask_of(pod.node_name))])


def find_tolerated(contents: Contents, pod: Pod) -> PluginMasks:
    tainted = contents.nodes.tainted
    if not tainted:
        return NOTHING
    statuses = [(taint_status(pod.tolerations, taints), mask) for taints, mask in tainted.items()]
    counts: Masks = {}
    for taints, mask in tainted.items():
        count = unwelcome(pod.tolerations, taints)
        counts[count] = counts.get(count, 0) | mask

    def scores(mask: int) -> Masks:
        return renamed(completed(counts, mask), taint_scores)

    refused = [(status, mask) for status, mask in statuses if not status.passed]
    return PluginMasks(refusals=lambda _: refused, scores=scores if any(counts) else None)


def tolerated(contents: Contents, pod: Pod) -> int:
    """The nodes without a taint that excludes the pod."""
    away = (mask for taints, mask in contents.nodes.tainted.items() if keeps_away(pod.tolerations, taints))
    return contents.nodes.everyone & ~sum(away)


def find_selected(contents: Contents, pod: Pod) -> PluginMasks:
    if not is_choosy(pod):
        return NOTHING
    named = named_nodes(pod)
    if named is not None and not named:
        return PluginMasks(status=CONFLICT)

    mine = None if named is None else [contents.nodes.mask_of(name) for name in named]

    def left_out(mask: int) -> Refusals:
        return [] if mine is None else [(NOT_NAMED, mask & ~sum(mine))]

    def refusals(mask: int) -> Refusals:
        if mine is None:
            return [(NOT_SELECTED, mask & ~selected(contents, pod))]
        return [(NOT_SELECTED, sum(it for it in mine if not _accepts(contents, pod, it)))]

    def scores(mask: int) -> Masks:
        raw: Masks = {0: mask}
        for term in pod.node_affinity.preferred:
            raw = added(raw, {term.weight: contents.selections.preferred(term.preference)})
        return renamed(raw, normalised)

    return PluginMasks(
        left_out=left_out, refusals=refusals, scores=scores if pod.node_affinity.preferred else None
    )


def selected(contents: Contents, pod: Pod) -> int:
    """The nodes that the pod's selector and required affinity accept."""
    if not pod.node_selector and pod.node_affinity.required is None:
        return contents.nodes.everyone
    return contents.selections.selected(pod)


def _accepts(contents: Contents, pod: Pod, bit: int) -> bool:
    return not bit or selects(pod, contents.nodes.any(bit))


def find_roomy(contents: Contents, pod: Pod) -> PluginMasks:
    contents.loads.settle()
    if not contents.loads.census.stocks:
        return NOTHING
    ranking = contents.loads.ranking(wanted_by(pod))

    def refusals(_: int) -> Refusals:
        return [(status, mask) for status, _, mask in _standing(ranking.estimates()) if not status.passed]

    def scores(mask: int) -> Masks:
        masks: Masks = {}
        for status, score, mine in _standing(ranking.estimates()):
            if status.passed:
                masks[score] = masks.get(score, 0) | mine
        return completed(masks, mask)

    return PluginMasks(refusals=refusals, scores=scores)


def _standing(estimates: Iterable[tuple[tuple[object, int], int]]) -> Iterator[tuple[Status, int, int]]:
    for (status, score), mask in estimates:
        assert isinstance(status, Status)
        yield status, score, mask


def walk(plugin: Plugin, contents: Contents, pod: Pod) -> PluginMasks:
    """The masks of a plugin without a finder, which is called for every node."""
    status, prepared = plugin.prefilter(contents.whole, pod)
    if not status.passed or prepared is None:
        return PluginMasks(status=status)
    # Most plugins leave out no node, and are not called for it per node.
    leaves = type(prepared).leaves_out is not Prepared.leaves_out
    return PluginMasks(
        left_out=(lambda mask: _refusals_by_node(prepared.leaves_out, contents, mask)) if leaves else _nobody,
        refusals=lambda mask: _refusals_by_node(prepared.filter, contents, mask),
        scores=lambda mask: _walked(prepared, contents, mask),
    )


def _refusals_by_node(ask: Callable[[Node], Status], contents: Contents, mask: int) -> Refusals:
    refused: dict[Status, int] = {}
    for position in positions(mask):
        said = ask(contents.nodes.at(position))
        if not said.passed:
            refused[said] = refused.get(said, 0) | 1 << position
    return list(refused.items())


def _walked(prepared: Prepared, contents: Contents, mask: int) -> Masks:
    masks: Masks = {}
    places = list(positions(mask))
    scores = prepared.scores([contents.nodes.at(position) for position in places])
    for position, score in zip(places, scores, strict=True):
        masks[score] = masks.get(score, 0) | 1 << position
    return masks


# --- sets of nodes by number ----------------------------------------------------------------------------


def completed(masks: Mapping[int, int], mask: int) -> Masks:
    """The numbers restricted to the mask; nodes without a number get 0."""
    complete = {score: mine for score, given in masks.items() if (mine := given & mask)}
    rest = mask & ~sum(complete.values())
    if rest:
        complete[0] = complete.get(0, 0) | rest
    return complete


def added(masks: Masks, more: Mapping[int, int]) -> Masks:
    """The sum per node; nodes that `more` does not mention get nothing from it."""
    sums: Masks = {}
    for number, mask in masks.items():
        rest = mask
        for extra, mine in more.items():
            both = mask & mine
            if both:
                sums[number + extra] = sums.get(number + extra, 0) | both
                rest &= ~mine
        if rest:
            sums[number] = sums.get(number, 0) | rest
    return sums


def renamed(masks: Masks, normalise: Callable[[list[int]], Iterable[int]]) -> Masks:
    """Every number replaced by its normalised value."""
    raw = list(masks)
    raised: Masks = {}
    for number, score in zip(raw, normalise(raw), strict=True):
        raised[score] = raised.get(score, 0) | masks[number]
    return raised


# Topology spread for all nodes at once: counts domains, not nodes, unless every node is a domain.


def find_even(contents: Contents, pod: Pod) -> PluginMasks:
    if not pod.spread:
        return NOTHING
    refusal = unreadable(pod)
    if refusal is not None:
        return PluginMasks(status=refusal)
    hard, soft = constraints_of(pod, DO_NOT_SCHEDULE), constraints_of(pod, SCHEDULE_ANYWAY)

    def refusals(mask: int) -> Refusals:
        refused: list[tuple[Status, int]] = []
        for constraint in hard:
            looked_at = _looked_at(contents, pod, constraint, hard)
            refused.append((WITHOUT_LABEL, mask & ~contents.nodes.labelled(constraint.key)))
            refused.append((UNEVEN, _full(contents, pod, constraint, looked_at)))
        return refused

    return PluginMasks(
        refusals=refusals, scores=(lambda mask: _scores(contents, pod, soft, mask)) if soft else None
    )


def _labelled(contents: Contents, constraints: Sequence[Constraint]) -> int:
    return reduce(and_, (contents.nodes.labelled(it.key) for it in constraints), contents.nodes.everyone)


def _looked_at(contents: Contents, pod: Pod, constraint: Constraint, among: Sequence[Constraint]) -> int:
    mask = _labelled(contents, among)
    if constraint.honors_affinity:
        mask &= selected(contents, pod)
    return mask & tolerated(contents, pod) if constraint.honors_taints else mask


def _full(contents: Contents, pod: Pod, constraint: Constraint, looked_at: int) -> int:
    """The domains that have as many pods as allowed, or more."""
    counts = _counts(contents, pod, constraint, looked_at)
    domains = _domains(contents, constraint.key, looked_at)
    least = 0 if len(counts) < domains else min(counts.values(), default=0)
    allowed = allowed_count(constraint, pod, least=least, domains=domains)
    if allowed < 0:
        return contents.nodes.labelled(constraint.key)
    return contents.nodes.carriers((constraint.key, value) for value, count in counts.items() if count > allowed)


def _domains(contents: Contents, key: str, mask: int) -> int:
    if contents.nodes.tells_apart(key):
        return mask.bit_count()
    return sum(bool(domain & mask) for domain in contents.nodes.domains(key).values())


def _on_nodes(contents: Contents, pod: Pod, constraint: Constraint, mask: int) -> dict[int, int]:
    """The number of pods that the constraint selects, by position."""
    by_position: dict[int, int] = {}
    for kind in contents.crowd.selected(constraint.selector, pod.namespace):
        if kind.mask & mask and not kind.sample.meta.being_deleted:
            for position, count in kind.counts.items():
                if mask >> position & 1:
                    by_position[position] = by_position.get(position, 0) + count
    return by_position


def _counts(contents: Contents, pod: Pod, constraint: Constraint, mask: int) -> dict[str, int]:
    """The number of pods that the constraint selects, by domain; domains without such pods are left out."""
    by_value: dict[str, int] = {}
    for position, count in _on_nodes(contents, pod, constraint, mask).items():
        value = contents.nodes.at(position).labels[constraint.key]
        by_value[value] = by_value.get(value, 0) + count
    return by_value


def _scores(contents: Contents, pod: Pod, soft: Sequence[Constraint], mask: int) -> Masks:
    labelled = mask & _labelled(contents, soft)
    parts: dict[tuple[int, ...], int] = {(): labelled} if labelled else {}
    sizes = []
    for constraint in soft:
        of_hosts = constraint.key == HOSTNAME
        sizes.append(labelled.bit_count() if of_hosts else _domains(contents, constraint.key, labelled))
        by_count = _hosts(contents, pod, constraint) if of_hosts else _zones(contents, pod, constraint, soft)
        split: dict[tuple[int, ...], int] = {}
        for counts, part in parts.items():
            for count, mine in completed(by_count, part).items():
                split[*counts, count] = mine
        parts = split
    keys = list(parts)
    rest = mask & ~labelled
    raw: list[int | None] = [raw_score(soft, counts, sizes) for counts in keys]
    scores = spread_scores([*raw, None] if rest else raw)
    masks: Masks = {}
    for score, part in zip(scores, [*parts.values(), rest], strict=False):
        masks[score] = masks.get(score, 0) | part
    return masks


def _hosts(contents: Contents, pod: Pod, constraint: Constraint) -> Masks:
    masks: Masks = {}
    for position, count in _on_nodes(contents, pod, constraint, contents.nodes.everyone).items():
        masks[count] = masks.get(count, 0) | 1 << position
    return masks


def _zones(contents: Contents, pod: Pod, constraint: Constraint, soft: Sequence[Constraint]) -> Masks:
    masks: Masks = {}
    for value, count in _counts(contents, pod, constraint, _looked_at(contents, pod, constraint, soft)).items():
        masks[count] = masks.get(count, 0) | contents.nodes.domains(constraint.key)[value]
    return masks


# Inter-pod affinity for all nodes at once: from the places of the selected pods to whole domains of nodes.


def find_neighbourly(contents: Contents, pod: Pod) -> PluginMasks:
    if has_terms(pod):
        refusal = unreadable_affinity(pod)
        if refusal is not None:
            return PluginMasks(status=refusal)
    terms, wishes = terms_of(pod), list(contents.crowd.wishes_about(pod))
    liked = bool(terms.preferred) or any(not wish.forbids for wish in wishes)
    if not liked and not wishes and not terms.affinity and not terms.anti_affinity:
        return NOTHING

    def refusals(mask: int) -> Refusals:
        refused = [(NOT_NEAR, mask & ~_near(contents, pod, terms))] if terms.affinity else []
        for term in terms.anti_affinity:
            refused.append((TOO_NEAR, contents.nodes.neighbours(term.topology_key, contents.crowd.where(term))))
        for wish in wishes:
            if wish.forbids:
                refused.append((NOT_WANTED, contents.nodes.neighbours(wish.term.topology_key, wish.mask)))
        return refused

    return PluginMasks(
        refusals=refusals, scores=(lambda mask: _liking(contents, terms, wishes, mask)) if liked else None
    )


def _near(contents: Contents, pod: Pod, terms: Terms) -> int:
    """The nodes where all affinity terms find a pod, or where the first of its group may start."""
    first, *others = terms.affinity
    if others:
        kinds = (kind for kind in contents.crowd.meant_by(first) if means_all(others, kind.sample, contents.whole))
        there = reduce(or_, (kind.mask for kind in kinds), 0)
    else:
        there = contents.crowd.where(first)
    labelled, near = contents.nodes.everyone, contents.nodes.everyone
    somebody = False
    for term in terms.affinity:
        mine = contents.nodes.neighbours(term.topology_key, there)
        somebody, near, labelled = (
            somebody or bool(mine),
            near & mine,
            labelled & contents.nodes.labelled(term.topology_key),
        )
    return labelled if not somebody and means_all(terms.affinity, pod, contents.whole) else near


def _liking(contents: Contents, terms: Terms, wishes: Iterable[Wish], mask: int) -> Masks:
    liked: dict[str, dict[str, int]] = {}
    """Scores by topology key and value."""
    for term in terms.preferred:
        for kind in contents.crowd.meant_by(term):
            _like(contents, liked, term.topology_key, kind, term.weight)
    for wish in wishes:
        if not wish.forbids:
            _like(contents, liked, wish.term.topology_key, wish, wish.weight)
    raw: Masks = {0: mask}
    for key, values in liked.items():
        domains, more = contents.nodes.domains(key), dict[int, int]()
        for value, score in values.items():
            if score:
                more[score] = more.get(score, 0) | domains[value]
        raw = added(raw, more)
    return renamed(raw, normalised_between)


def _like(contents: Contents, liked: dict[str, dict[str, int]], key: str, placed: PlacedPod, weight: int) -> None:
    values = liked.setdefault(key, {})
    for position, count in placed.counts.items():
        value = contents.nodes.at(position).labels.get(key)
        if value is not None:
            values[value] = values.get(value, 0) + weight * count
