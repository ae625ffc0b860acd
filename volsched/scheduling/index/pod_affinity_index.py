"""The placed pods, grouped by what selectors distinguish, and their own terms about others.

Pods of one namespace with the same labels are one kind, and equal terms of theirs are one wish: a cluster has far
fewer of either than pods. Both record their nodes, with counts.
"""

from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field
from functools import reduce
from operator import or_

from volsched.kube.selectors import LabelSelector, label_selector_matches
from volsched.kube.workloads import TERMINATED, Pod
from volsched.scheduling.index.domains import selector_key
from volsched.scheduling.index.node_sets import Label
from volsched.scheduling.plugins.inter_pod_affinity import HARD_TERM_WEIGHT, AffinityTerm, sound_terms
from volsched.scheduling.rules.snapshot import Snapshot


@dataclass(slots=True, eq=False)
class PlacedPod:
    """The base of kinds, labels and terms: counts by node."""

    counts: dict[int, int] = field(default_factory=dict)
    mask: int = 0

    def add(self, position: int) -> None:
        self.counts[position] = self.counts.get(position, 0) + 1
        self.mask |= 1 << position

    def take(self, position: int) -> None:
        self.counts[position] -= 1
        if not self.counts[position]:
            del self.counts[position]
            self.mask ^= 1 << position


@dataclass(slots=True, eq=False)
class PodKind(PlacedPod):
    """Pods that no selector distinguishes; one represents all."""

    sample: Pod = field(kw_only=True)


@dataclass(slots=True, eq=False)
class Carriers(PlacedPod):
    """All pods of a namespace that have a label, of any kind."""

    kinds: dict[PodKind, None] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class Wish(PlacedPod):
    """A term of placed pods: to avoid the pods it selects, or to have them near, by weight."""

    term: AffinityTerm = field(kw_only=True)
    forbids: bool = field(kw_only=True)
    weight: int = field(kw_only=True)


NOBODY = Carriers()


@dataclass(slots=True)
class Crowd:
    whole: Snapshot
    _kinds: dict[Hashable, PodKind] = field(default_factory=dict)
    _by_namespace: dict[str, dict[PodKind, None]] = field(default_factory=dict)
    _by_label: dict[tuple[str, Label], Carriers] = field(default_factory=dict)
    _wishes: dict[Hashable, Wish] = field(default_factory=dict)
    _anchored: dict[Label, dict[Wish, None]] = field(default_factory=dict)
    _floating: dict[Wish, None] = field(default_factory=dict)

    # --- pods by node -----------------------------------------------------------------------------------

    def enter(self, pod: Pod, position: int) -> None:
        key = _kind_key(pod)
        kind = self._kinds.get(key)
        if kind is None:
            kind = self._kinds[key] = PodKind(sample=pod)
            self._by_namespace.setdefault(pod.namespace, {})[kind] = None
        kind.add(position)
        for label in pod.meta.labels.items():
            carriers = self._by_label.setdefault((pod.namespace, label), Carriers())
            carriers.add(position)
            carriers.kinds[kind] = None
        for key, term, forbids, weight in _wishes_of(pod):
            wish = self._wishes.get(key)
            if wish is None:
                wish = self._wishes[key] = Wish(term=term, forbids=forbids, weight=weight)
                for known in self._wish_registries(term):
                    known[wish] = None
            wish.add(position)

    def leave(self, pod: Pod, position: int) -> None:
        """Remove a pod, given as it was when it entered."""
        key = _kind_key(pod)
        kind = self._kinds[key]
        kind.take(position)
        for label in pod.meta.labels.items():
            carriers = self._by_label[pod.namespace, label]
            carriers.take(position)
            if not kind.mask:
                del carriers.kinds[kind]
            if not carriers.mask:
                del self._by_label[pod.namespace, label]
        if not kind.mask:
            del self._kinds[key]
            self._forget(kind)
        for key, term, _, _ in _wishes_of(pod):
            wish = self._wishes[key]
            wish.take(position)
            if not wish.mask:
                del self._wishes[key]
                for known in self._wish_registries(term):
                    del known[wish]

    def _forget(self, kind: PodKind) -> None:
        namespace = kind.sample.namespace
        del self._by_namespace[namespace][kind]
        if not self._by_namespace[namespace]:
            del self._by_namespace[namespace]

    def _wish_registries(self, term: AffinityTerm) -> list[dict[Wish, None]]:
        labels = [] if term.selector is None else anchors(term.selector)
        return [self._anchored.setdefault(label, {}) for label in labels] if labels else [self._floating]

    # --- selected pods -----------------------------------------------------------------------------------

    def where(self, term: AffinityTerm) -> int:
        """The nodes with pods that the term selects."""
        if term.selector is None:
            return 0
        only = _only_label(term.selector)
        if only is None:
            return reduce(or_, (kind.mask for kind in self.meant_by(term)), 0)
        found = (self._by_label.get((namespace, only), NOBODY) for namespace in self._covered(term))
        return reduce(or_, (carriers.mask for carriers in found), 0)

    def meant_by(self, term: AffinityTerm) -> Iterator[PodKind]:
        for namespace in self._covered(term):
            yield from self.selected(term.selector, namespace)

    def _covered(self, term: AffinityTerm) -> list[str]:
        if term.namespace_selector is None:
            return [name for name in sorted(term.namespaces) if name in self._by_namespace]
        labels = self.whole.namespace_labels
        return [name for name in self._by_namespace if term.covers(name, labels(name))]

    def selected(self, selector: LabelSelector | None, namespace: str) -> Iterator[PodKind]:
        """The kinds of a namespace that the selector matches; none without a selector."""
        if selector is None:
            return
        labels = anchors(selector)
        kinds: dict[PodKind, None] = {} if labels else self._by_namespace.get(namespace, {})
        for label in labels:
            kinds = kinds | self._by_label.get((namespace, label), NOBODY).kinds
        if _only_label(selector) is not None:
            yield from kinds
            return
        for kind in kinds:
            if label_selector_matches(selector, kind.sample.meta.labels):
                yield kind

    def wishes_about(self, pod: Pod) -> Iterator[Wish]:
        """The terms of placed pods that select this one."""
        if not self._wishes:
            return
        wishes = dict(self._floating)
        for label in pod.meta.labels.items():
            wishes |= self._anchored.get(label, {})
        namespace = self.whole.namespace_labels(pod.namespace)
        yield from (wish for wish in wishes if wish.term.means(pod, namespace))


def anchors(selector: LabelSelector) -> list[Label]:
    """Labels such that every match of the selector has one of them; empty if there are none."""
    if selector.match_labels:
        return [next(iter(selector.match_labels.items()))]
    named = next((part for part in selector.match_expressions if part.operator == "In"), None)
    return [] if named is None else [(named.key, value) for value in named.values]


def _only_label(selector: LabelSelector) -> Label | None:
    """The selector's only label, if it has nothing else, as most do."""
    if selector.match_expressions or len(selector.match_labels) != 1:
        return None
    return next(iter(selector.match_labels.items()))


def _kind_key(pod: Pod) -> Hashable:
    return pod.namespace, tuple(sorted(pod.meta.labels.items())), pod.meta.being_deleted


def _wishes_of(pod: Pod) -> Iterator[tuple[Hashable, AffinityTerm, bool, int]]:
    terms = sound_terms(pod)
    for term in terms.anti_affinity:
        yield _wish_key(term, True, 0), term, True, 0
    for term in terms.affinity:
        yield _wish_key(term, False, HARD_TERM_WEIGHT), term, False, HARD_TERM_WEIGHT
    for term in terms.preferred:
        yield _wish_key(term, False, term.weight), term, False, term.weight


def _wish_key(term: AffinityTerm, forbids: bool, weight: int) -> Hashable:
    selectors = (None if it is None else selector_key(it) for it in (term.selector, term.namespace_selector))
    return term.topology_key, term.namespaces, *selectors, forbids, weight


def weight_of(pod: Pod) -> tuple[object, ...]:
    """Everything about a pod that affects other pods; other changes do not matter to them."""
    return (
        pod.node_name,
        pod.phase in TERMINATED,
        pod.meta.labels,
        pod.meta.being_deleted,
        pod.containers,
        pod.init_containers,
        pod.overhead,
        pod.pod_affinity,
        pod.pod_anti_affinity,
    )
