"""Inter-pod affinity for all nodes at once: from where the pods are that terms mean to whole domains of nodes."""

from collections.abc import Iterable
from functools import reduce
from operator import or_

from volsched.kube.workloads import Pod
from volsched.scheduling.index.contents import Contents
from volsched.scheduling.index.plugin_masks import NOTHING, Masks, PluginMasks, Refusals, added, renamed
from volsched.scheduling.index.pod_affinity_index import PlacedPod, Wish
from volsched.scheduling.plugins.affinity_terms import Terms, has_terms, terms_of
from volsched.scheduling.plugins.inter_pod_affinity import NOT_NEAR, NOT_WANTED, TOO_NEAR, means_all, unreadable
from volsched.scheduling.plugins.plugin import normalised_between


def find_neighbourly(held: Contents, pod: Pod) -> PluginMasks:
    if has_terms(pod):
        refusal = unreadable(pod)
        if refusal is not None:
            return PluginMasks(status=refusal)
    terms, wishes = terms_of(pod), list(held.crowd.wishes_about(pod))
    liked = bool(terms.preferred) or any(not wish.forbids for wish in wishes)
    if not liked and not wishes and not terms.affinity and not terms.anti_affinity:
        return NOTHING

    def refusals(mask: int) -> Refusals:
        found = [(NOT_NEAR, mask & ~_near(held, pod, terms))] if terms.affinity else []
        for term in terms.anti_affinity:
            found.append((TOO_NEAR, held.nodes.neighbours(term.topology_key, held.crowd.where(term))))
        for wish in wishes:
            if wish.forbids:
                found.append((NOT_WANTED, held.nodes.neighbours(wish.term.topology_key, wish.mask)))
        return found

    return PluginMasks(
        refusals=refusals, scores=(lambda mask: _liking(held, terms, wishes, mask)) if liked else None
    )


def _near(held: Contents, pod: Pod, terms: Terms) -> int:
    """The nodes where all affinity terms find somebody, or where the first of its sort may begin."""
    first, *others = terms.affinity
    if others:
        kinds = (kind for kind in held.crowd.meant_by(first) if means_all(others, kind.sample, held.whole))
        there = reduce(or_, (kind.mask for kind in kinds), 0)
    else:
        there = held.crowd.where(first)
    labelled, near = held.nodes.everyone, held.nodes.everyone
    somebody = False
    for term in terms.affinity:
        mine = held.nodes.neighbours(term.topology_key, there)
        somebody, near, labelled = (
            somebody or bool(mine),
            near & mine,
            labelled & held.nodes.labelled(term.topology_key),
        )
    return labelled if not somebody and means_all(terms.affinity, pod, held.whole) else near


def _liking(held: Contents, terms: Terms, wishes: Iterable[Wish], mask: int) -> Masks:
    liked: dict[str, dict[str, int]] = {}
    """By topology key and value."""
    for term in terms.preferred:
        for kind in held.crowd.meant_by(term):
            _like(held, liked, term.topology_key, kind, term.weight)
    for wish in wishes:
        if not wish.forbids:
            _like(held, liked, wish.term.topology_key, wish, wish.weight)
    raw: Masks = {0: mask}
    for key, values in liked.items():
        domains, more = held.nodes.domains(key), dict[int, int]()
        for value, score in values.items():
            if score:
                more[score] = more.get(score, 0) | domains[value]
        raw = added(raw, more)
    return renamed(raw, normalised_between)


def _like(held: Contents, liked: dict[str, dict[str, int]], key: str, placed: PlacedPod, weight: int) -> None:
    values = liked.setdefault(key, {})
    for position, count in placed.counts.items():
        value = held.nodes.at(position).labels.get(key)
        if value is not None:
            values[value] = values.get(value, 0) + weight * count
