"""The index: objects in, decisions out."""

from collections.abc import Iterable
from dataclasses import replace

from volsched.core.cycle import Attempt, attempt, no_node
from volsched.core.filtering import prefilter
from volsched.core.migration import CSI_ZONE_KEYS
from volsched.core.profile import VOLSCHED, Profile
from volsched.core.snapshot import Snapshot
from volsched.core.zones import ZoneRule, volume_zone_filter, volume_zone_prefilter
from volsched.index.contents import Contents
from volsched.index.judging import Judge, terse, without_volumes
from volsched.index.question import ask
from volsched.index.search import Search
from volsched.model.kinds import Object
from volsched.model.storage import Claim
from volsched.model.workloads import Pod


class Index:
    """Decides as `core.cycle.attempt` does on the same objects, without walking them.

    It is fed effective objects: what is assumed is laid over them already. A decision changes nothing; whoever
    acts on it puts the changed volumes and claims.
    """

    def __init__(self, objects: Iterable[Object] = (), *, profile: Profile = VOLSCHED) -> None:
        self.profile = profile
        self._terse = terse(profile)
        self._held = Contents(profile)
        for value in objects:
            self.put(value)
        self.settle()

    def put(self, value: Object) -> None:
        self._held.put(value)

    def drop(self, kind: type[Object], key: str) -> None:
        self._held.drop(kind, key)

    def reserve(self, capacity: str, size: int) -> None:
        """`size` bytes of the capacity object, in all, are promised to bindings in flight."""
        self._held.reserve(capacity, size)

    def settle(self) -> None:
        """Do now what would otherwise be left to a decision: worth it after many objects were put."""
        self._held.usage.settle()

    @property
    def snapshot(self) -> Snapshot:
        """All that was put. It is changed in place by the next `put`."""
        return self._held.whole

    def decide(self, pod: Pod) -> Attempt:
        """The attempt with the chosen node's verdict only, or with why the pod can go nowhere."""
        whole = self._held.whole
        itself = without_volumes(whole)
        status, claims = prefilter(itself, pod, profile=self._terse)
        rules: tuple[ZoneRule, ...] = ()
        if status.passed:
            status, rules = volume_zone_prefilter(whole, pod)
        if not status.passed:
            return attempt(itself, pod, profile=self._terse)
        if self._is_translated(claims.bound):
            return attempt(whole, pod, profile=self._terse)
        question = ask(self._held, pod, claims, self._zone_mask(rules) if rules else None)
        search = Search(Judge(self._held, self._terse, question))
        search.run()
        if search.failed is not None:
            return Attempt(status=search.failed[1], claims=claims)
        if search.best is not None:
            return search.best
        return Attempt(status=no_node(search.refused, len(whole.nodes)), claims=claims)

    def explain(self, pod: Pod, nodes: Iterable[str]) -> Attempt:
        """The un-indexed attempt on some nodes only, every verdict with its reasons."""
        chosen = {name: self._held.whole.nodes[name] for name in nodes if name in self._held.whole.nodes}
        return attempt(replace(self._held.whole, nodes=chosen), pod, profile=self.profile)

    def _zone_mask(self, rules: tuple[ZoneRule, ...]) -> int:
        """The filter reads nothing of a node but its zone labels: nodes that have the same ones get one answer."""
        nodes = self._held.nodes
        passed = (mask for mask in nodes.zones.values() if volume_zone_filter(rules, nodes.any(mask)).passed)
        return sum(passed)

    def _is_translated(self, bound: Iterable[Claim]) -> bool:
        """CSI migration (profile `parity`) rewrites affinities node by node: then all nodes are walked."""
        if self.profile.translate is None:
            return False
        volumes = (self._held.whole.volume(claim.volume_name) for claim in bound)
        return any(it is not None and it.source is not None and it.source.kind in CSI_ZONE_KEYS for it in volumes)
