"""What a plugin says about a pod, for all nodes at once: sets of nodes instead of one node after the other.

Every built-in plugin has a finder that asks the plugin's own rules about one node, domain or sum of each sort. A
plugin without one is asked about node after node, which costs what it costs.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from volsched.kube.workloads import Node, Pod
from volsched.scheduling.index.contents import Contents
from volsched.scheduling.index.node_sets import positions
from volsched.scheduling.plugins.node_affinity import (
    CONFLICT,
    NOT_NAMED,
    NOT_SELECTED,
    is_choosy,
    named_nodes,
    selects,
)
from volsched.scheduling.plugins.node_name import OTHER_NODE
from volsched.scheduling.plugins.node_resources import wanted_by
from volsched.scheduling.plugins.node_unschedulable import UNSCHEDULABLE, goes_anywhere
from volsched.scheduling.plugins.plugin import Plugin, Prepared, normalised
from volsched.scheduling.plugins.taint_toleration import keeps_away, taint_scores, taint_status, unwelcome
from volsched.scheduling.rules.status import SUCCESS, Status

Refusals = Iterable[tuple[Status, int]]
"""Who is refused and why; where two overlap, the earlier counts."""
Masks = dict[int, int]
"""Score → the nodes that have it."""


def _nobody(_: int) -> Refusals:
    return ()


@dataclass(frozen=True, slots=True)
class PluginMasks:
    status: Status = SUCCESS
    """Of the pod as a whole."""
    left_out: Callable[[int], Refusals] = _nobody
    """Of the nodes in the mask, those that nobody's filter is asked about."""
    refusals: Callable[[int], Refusals] = _nobody
    """Of the nodes in the mask; whatever is said of others does not count."""
    scores: Callable[[int], Masks] | None = None
    """Of the nodes in the mask, normalised over them; none: all get 0."""


NOTHING = PluginMasks()
Finder = Callable[[Contents, Pod], PluginMasks]


def find_unschedulable(held: Contents, pod: Pod) -> PluginMasks:
    cordoned = held.nodes.cordoned
    if not cordoned or goes_anywhere(pod.tolerations):
        return NOTHING
    return PluginMasks(refusals=lambda _: [(UNSCHEDULABLE, cordoned)])


def find_named(held: Contents, pod: Pod) -> PluginMasks:
    if not pod.node_name:
        return NOTHING
    return PluginMasks(refusals=lambda mask: [(OTHER_NODE, mask & ~held.nodes.mask_of(pod.node_name))])


def find_tolerated(held: Contents, pod: Pod) -> PluginMasks:
    tainted = held.nodes.tainted
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


def tolerated(held: Contents, pod: Pod) -> int:
    """The nodes with no taint that keeps the pod away."""
    away = (mask for taints, mask in held.nodes.tainted.items() if keeps_away(pod.tolerations, taints))
    return held.nodes.everyone & ~sum(away)


def find_selected(held: Contents, pod: Pod) -> PluginMasks:
    if not is_choosy(pod):
        return NOTHING
    named = named_nodes(pod)
    if named is not None and not named:
        return PluginMasks(status=CONFLICT)

    mine = None if named is None else [held.nodes.mask_of(name) for name in named]

    def left_out(mask: int) -> Refusals:
        return [] if mine is None else [(NOT_NAMED, mask & ~sum(mine))]

    def refusals(mask: int) -> Refusals:
        if mine is None:
            return [(NOT_SELECTED, mask & ~selected(held, pod))]
        return [(NOT_SELECTED, sum(it for it in mine if not _accepts(held, pod, it)))]

    def scores(mask: int) -> Masks:
        raw: Masks = {0: mask}
        for term in pod.node_affinity.preferred:
            raw = added(raw, {term.weight: held.selections.preferred(term.preference)})
        return renamed(raw, normalised)

    return PluginMasks(
        left_out=left_out, refusals=refusals, scores=scores if pod.node_affinity.preferred else None
    )


def selected(held: Contents, pod: Pod) -> int:
    """The nodes that the pod's selector and required affinity accept."""
    if not pod.node_selector and pod.node_affinity.required is None:
        return held.nodes.everyone
    return held.selections.selected(pod)


def _accepts(held: Contents, pod: Pod, bit: int) -> bool:
    return not bit or selects(pod, held.nodes.any(bit))


def find_roomy(held: Contents, pod: Pod) -> PluginMasks:
    held.loads.settle()
    if not held.loads.census.stocks:
        return NOTHING
    ranking = held.loads.ranking(wanted_by(pod))

    def refusals(_: int) -> Refusals:
        return [(status, mask) for status, _, mask in _standing(ranking.estimates()) if not status.passed]

    def scores(mask: int) -> Masks:
        found: Masks = {}
        for status, score, mine in _standing(ranking.estimates()):
            if status.passed:
                found[score] = found.get(score, 0) | mine
        return completed(found, mask)

    return PluginMasks(refusals=refusals, scores=scores)


def _standing(estimates: Iterable[tuple[tuple[object, int], int]]) -> Iterator[tuple[Status, int, int]]:
    for (status, score), mask in estimates:
        assert isinstance(status, Status)
        yield status, score, mask


def walk(plugin: Plugin, held: Contents, pod: Pod) -> PluginMasks:
    """For a plugin that nobody has written a finder for."""
    status, prepared = plugin.prefilter(held.whole, pod)
    if not status.passed or prepared is None:
        return PluginMasks(status=status)
    # Most leave nobody out, and are not asked for each node whether they do.
    leaves = type(prepared).leaves_out is not Prepared.leaves_out
    return PluginMasks(
        left_out=(lambda mask: _asked(prepared.leaves_out, held, mask)) if leaves else _nobody,
        refusals=lambda mask: _asked(prepared.filter, held, mask),
        scores=lambda mask: _walked(prepared, held, mask),
    )


def _asked(ask: Callable[[Node], Status], held: Contents, mask: int) -> Refusals:
    found: dict[Status, int] = {}
    for position in positions(mask):
        said = ask(held.nodes.at(position))
        if not said.passed:
            found[said] = found.get(said, 0) | 1 << position
    return list(found.items())


def _walked(prepared: Prepared, held: Contents, mask: int) -> Masks:
    found: Masks = {}
    places = list(positions(mask))
    scores = prepared.scores([held.nodes.at(position) for position in places])
    for position, score in zip(places, scores, strict=True):
        found[score] = found.get(score, 0) | 1 << position
    return found


# --- sets of nodes by number ----------------------------------------------------------------------------


def completed(masks: Mapping[int, int], mask: int) -> Masks:
    """Restricted to the mask, where nodes that nothing is said about get 0."""
    found = {score: mine for score, given in masks.items() if (mine := given & mask)}
    rest = mask & ~sum(found.values())
    if rest:
        found[0] = found.get(0, 0) | rest
    return found


def added(masks: Masks, more: Mapping[int, int]) -> Masks:
    """Where nodes have a number of either, its sum; `more` says nothing about nodes that get nothing from it."""
    found: Masks = {}
    for number, mask in masks.items():
        rest = mask
        for extra, mine in more.items():
            both = mask & mine
            if both:
                found[number + extra] = found.get(number + extra, 0) | both
                rest &= ~mine
        if rest:
            found[number] = found.get(number, 0) | rest
    return found


def renamed(masks: Masks, normalise: Callable[[list[int]], Iterable[int]]) -> Masks:
    """Every number replaced by what it is normalised to among the others."""
    raw = list(masks)
    found: Masks = {}
    for number, score in zip(raw, normalise(raw), strict=True):
        found[score] = found.get(score, 0) | masks[number]
    return found
