"""The nodes that pods select and prefer, kept up for the selectors that were asked for last."""

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field

from volsched.kube.selectors import NodeSelector, NodeTerm
from volsched.kube.workloads import Node, Pod
from volsched.scheduling.index.domains import Domain, Domains, Places, places_of_selector
from volsched.scheduling.index.node_sets import Label
from volsched.scheduling.plugins.node_affinity import selects

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
        """The one that was asked for longest ago is let go."""
        domain = self._kept.pop(key, None)
        if domain is None:
            if len(self._kept) >= KEPT:
                oldest = next(iter(self._kept))
                self.domains.leave(self._kept.pop(oldest), _MEMBER)
            domain = self.domains.join(key, places_of, _MEMBER)
        self._kept[key] = domain
        return domain.mask


# No volume and no capacity object has such a name.
_MEMBER = "(selection)"


def _places(pod: Pod) -> Places:
    def accepts(node: Node) -> bool:
        return selects(pod, node)

    if pod.node_selector:
        label: Label = next(iter(sorted(pod.node_selector.items())))
        return Places(accepts, frozenset([label]))
    return Places(accepts, places_of_selector(pod.node_affinity.required, True).anchors)
