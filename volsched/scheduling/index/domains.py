"""Domains: the sets of nodes that selectors accept, kept up to date, and a cache of recent pod selectors."""

from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, field

from volsched.kube.selectors import (
    LabelSelector,
    NodeSelector,
    NodeTerm,
    TopologyTerm,
    label_selector_matches,
    label_selector_problem,
    node_selector_matches,
    topology_allows,
)
from volsched.kube.workloads import Node, Pod
from volsched.scheduling.index.node_sets import Label, Nodes, positions
from volsched.scheduling.plugins.node_plugins import selects

# The model's own functions always evaluate the selector. Labels only narrow down the nodes to check: a domain
# whose every term requires values of some label can change only for nodes with one of these values.

Anchors = frozenset[Label] | None
"""Every accepted node has one of these labels; None: any node may be accepted."""


@dataclass(frozen=True, slots=True)
class Places:
    """The definition of a domain: the nodes that it accepts, and where to look for them."""

    accepts: Callable[[Node], bool]
    anchors: Anchors


@dataclass(slots=True, eq=False)
class Domain:
    key: Hashable
    places: Places
    mask: int = 0
    members: set[str] = field(default_factory=set)
    """The members of the domain, by key: while there is one, the domain is kept."""


@dataclass(slots=True)
class Domains:
    nodes: Nodes
    _known: dict[Hashable, Domain] = field(default_factory=dict)
    _anchored: dict[Label, dict[Domain, None]] = field(default_factory=dict)
    _floating: dict[Domain, None] = field(default_factory=dict)

    def join(self, key: Hashable, places_of: Callable[[], Places], member: str) -> Domain:
        """Add a member to a domain. `places_of` is called only for an unknown domain."""
        domain = self._known.get(key)
        if domain is None:
            places = places_of()
            domain = Domain(key, places, self._accepted(places))
            self._known[key] = domain
            for registry in self._registries(places):
                registry[domain] = None
        domain.members.add(member)
        return domain

    def leave(self, domain: Domain, member: str) -> None:
        domain.members.discard(member)
        if not domain.members:
            del self._known[domain.key]
            self._floating.pop(domain, None)
            for label in domain.places.anchors or ():
                self._anchored[label].pop(domain, None)
                if not self._anchored[label]:
                    del self._anchored[label]

    def around(self, node: Node, position: int) -> list[Domain]:
        """The domains that contain the node."""
        known = dict(self._floating)
        for label in node.labels.items():
            known |= self._anchored.get(label, {})
        return [domain for domain in known if domain.mask >> position & 1]

    def follow(self, position: int, labels: Iterable[Label]) -> list[Domain]:
        """Check one node again, with its old and new labels; returns the domains that it entered or left."""
        touched = dict(self._floating)
        for label in labels:
            touched |= self._anchored.get(label, {})
        bit = 1 << position
        changed = []
        for domain in touched:
            inside = self.nodes.everyone & bit and domain.places.accepts(self.nodes.at(position))
            if bool(domain.mask & bit) != bool(inside):
                domain.mask ^= bit
                changed.append(domain)
        return changed

    def _accepted(self, places: Places) -> int:
        asked = self.nodes.everyone if places.anchors is None else self.nodes.carriers(places.anchors)
        mask = 0
        for position in positions(asked):
            if places.accepts(self.nodes.at(position)):
                mask |= 1 << position
        return mask

    def _registries(self, places: Places) -> list[dict[Domain, None]]:
        if places.anchors is None:
            return [self._floating]
        return [self._anchored.setdefault(label, {}) for label in places.anchors]


def places_of_selector(selector: NodeSelector | None, enforce_match_fields: bool) -> Places:
    """The places from which a volume with this required affinity can be reached; None: all nodes."""
    if selector is None:
        return Places(lambda _: True, None)

    def accepts(node: Node) -> bool:
        return node_selector_matches(selector, node.labels, name=node.name if enforce_match_fields else None)

    anchors: set[Label] = set()
    for term in selector.node_selector_terms:
        named = next((part for part in term.match_expressions if part.operator == "In"), None)
        if named is None:
            return Places(accepts, None)
        anchors.update((named.key, value) for value in named.values)
    return Places(accepts, frozenset(anchors))


def places_of_topologies(terms: tuple[TopologyTerm, ...]) -> Places:
    """The places where a class allows provisioning."""

    def accepts(node: Node) -> bool:
        return topology_allows(terms, node.labels)

    anchors: set[Label] = set()
    for term in terms:
        if not term.match_label_expressions:
            return Places(accepts, None)
        named = term.match_label_expressions[0]
        anchors.update((named.key, value) for value in named.values)
    return Places(accepts, frozenset(anchors) if terms else None)


def places_of_capacity(selector: LabelSelector) -> Places:
    """The nodes that a capacity object covers."""
    sound = label_selector_problem(selector) is None

    def accepts(node: Node) -> bool:
        return sound and label_selector_matches(selector, node.labels)

    named = next((part for part in selector.match_expressions if part.operator == "In"), None)
    anchors: Anchors = None
    if selector.match_labels:
        anchors = frozenset([next(iter(selector.match_labels.items()))])
    elif named is not None:
        anchors = frozenset((named.key, value) for value in named.values)
    return Places(accepts, anchors)


def selector_key(selector: LabelSelector) -> Hashable:
    labels: Mapping[str, str] = selector.match_labels
    return tuple(sorted(labels.items())), selector.match_expressions


# The nodes that pods select and prefer, cached for the most recent selectors.

KEPT = 512


@dataclass(slots=True)
class Selections:
    domains: Domains
    _kept: dict[Hashable, Domain] = field(default_factory=dict)

    def selected(self, pod: Pod) -> int:
        """The nodes that the pod's selector and required affinity accept."""
        required = pod.node_affinity.required
        key = ("selected", tuple(sorted(pod.node_selector.items())), required)
        return self._mask(key, lambda: _places(pod))

    def preferred(self, term: NodeTerm) -> int:
        return self._mask(("preferred", term), lambda: places_of_selector(NodeSelector((term,)), True))

    def _mask(self, key: Hashable, places_of: Callable[[], Places]) -> int:
        """The cached mask of a selector; the least recently used one is evicted."""
        domain = self._kept.pop(key, None)
        if domain is None:
            if len(self._kept) >= KEPT:
                oldest = next(iter(self._kept))
                self.domains.leave(self._kept.pop(oldest), _MEMBER)
            domain = self.domains.join(key, places_of, _MEMBER)
        self._kept[key] = domain
        return domain.mask


# No volume or capacity object has such a name.
_MEMBER = "(selection)"


def _places(pod: Pod) -> Places:
    def accepts(node: Node) -> bool:
        return selects(pod, node)

    if pod.node_selector:
        label: Label = next(iter(sorted(pod.node_selector.items())))
        return Places(accepts, frozenset([label]))
    return Places(accepts, places_of_selector(pod.node_affinity.required, True).anchors)
