"""The index: objects in, decisions out."""

from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import reduce
from operator import or_
from typing import TypeVar

from volsched.kube.object_values import Object
from volsched.kube.storage import Claim
from volsched.kube.workloads import Pod
from volsched.scheduling.index.contents import Contents
from volsched.scheduling.index.node_verdict import (
    Judge,
    PodRefused,
    RollCall,
    call,
    fitting_nodes,
    nearest_refusals,
    terse,
)
from volsched.scheduling.index.pod_query import PodQuery, ask
from volsched.scheduling.index.prefilter import Prefilter, query_plugins, stand
from volsched.scheduling.index.search import NodeSearch
from volsched.scheduling.queue.entry import ALL, Share
from volsched.scheduling.rules.cycle import (
    VOLUME_BINDING,
    VOLUME_ZONE,
    Attempt,
    NodeRefusal,
    Verdict,
    attempt,
    refused_pod,
    ties_of,
    without_nodes,
)
from volsched.scheduling.rules.disks import CSI_ZONE_KEYS
from volsched.scheduling.rules.failure_memory import NO_DEMERITS, Demerits
from volsched.scheduling.rules.nominations import seats
from volsched.scheduling.rules.profile import VOLSCHED, Profile
from volsched.scheduling.rules.snapshot import FIELD_OF, Snapshot
from volsched.scheduling.rules.status import SUCCESS, Status
from volsched.scheduling.rules.volume_filter import prefilter
from volsched.scheduling.rules.volume_restrictions import ZoneRule, volume_zone_prefilter

T = TypeVar("T")


class Index:
    """Decides as `rules.cycle.attempt` does on the same objects, without a scan.

    It is fed effective objects, with assumptions applied. A decision changes nothing; the caller that acts on it
    puts the changed volumes and claims.
    """

    def __init__(self, objects: Iterable[Object] = (), *, profile: Profile = VOLSCHED, share: Share = ALL) -> None:
        """`share`: the number of this scheduler among several; each breaks ties differently."""
        self.profile = profile
        self.share = share
        self._terse = terse(profile)
        self._contents = Contents(profile)
        for value in objects:
            self.put(value)
        self.settle()

    def put(self, value: Object) -> None:
        self._contents.put(value)

    def drop(self, kind: type[Object], key: str) -> None:
        self._contents.drop(kind, key)

    def reserve(self, capacity: str, size: int) -> None:
        """Set the total bytes of the capacity object that are promised to bindings in flight."""
        self._contents.reserve(capacity, size)

    def promise(self, claim_uid: str, capacity: str | None) -> None:
        """Count part of the reserved bytes as this claim's, which needs no further room; None: no longer."""
        self._contents.promise(claim_uid, capacity)

    def settle(self) -> None:
        """Update derived data now, instead of in the next decision: worthwhile after many objects were put."""
        self._contents.usage.settle()
        self._contents.loads.settle()
        self._contents.storage.settle()

    @property
    def snapshot(self) -> Snapshot:
        """All objects. The next `put` changes it in place."""
        return self._contents.whole

    def users_of(self, claims: Iterable[str]) -> dict[str, Pod]:
        """The pods that use one of the claims, on any node."""
        return self._contents.relations.pods_using(claims)

    @contextmanager
    def supposing(self, values: Iterable[Object]) -> Iterator[None]:
        """Temporarily replaces these existing objects, and restores them afterwards."""
        before = []
        try:
            for value in values:
                before.append(getattr(self._contents.whole, FIELD_OF[type(value)])[value.meta.key])
                self.put(value)
            yield
        finally:
            for value in reversed(before):
                self.put(value)

    def decide(
        self, pod: Pod, *, avoid: Collection[str] = frozenset(), demerits: Demerits = NO_DEMERITS
    ) -> Attempt:
        """The attempt with the chosen node's verdict only, or with the reasons why no node fits.

        `avoid` are nodes that rejected the pod recently; `demerits` rank before all scores.
        """
        return self._without(pod, lambda: self._decide(pod, avoid, demerits))

    def in_full(
        self, pod: Pod, refusal: Attempt, *, avoid: Collection[str] = frozenset()
    ) -> dict[Status, Verdict]:
        """For every refusal because of volumes, the nearest of the named nodes with its reasons."""
        return self._without(pod, lambda: self._in_full(pod, refusal, avoid))

    def feasible(self, pod: Pod) -> int:
        """How many nodes fit. A decision does not need this number, which takes longer to compute."""
        return self._without(pod, lambda: self._count(pod))

    def _without(self, pod: Pod, look_for: Callable[[], T]) -> T:
        """Decide without the pod's present place: it is neither its own neighbour nor its own load. Nominated pods
        count as placed."""
        if self._contents.nominated and (nominated := seats(self._contents.nominated.values(), pod)):
            with self.supposing(nominated):
                return self._without(pod, look_for)
        placed = self._contents.whole.pods.get(pod.key)
        if placed is None or not placed.node_name:
            return look_for()
        self._contents.lift(placed)
        try:
            return look_for()
        finally:
            self._contents.lay(placed)

    def _count(self, pod: Pod) -> int:
        node_search = self._ask(pod, (), NO_DEMERITS)
        if isinstance(node_search, Attempt):
            return len(node_search.fitting)
        question, standing = node_search
        return fitting_nodes(Judge(self._contents, self._terse, question), standing).bit_count()

    def _decide(self, pod: Pod, avoid: Collection[str], demerits: Demerits) -> Attempt:
        node_search = self._ask(pod, avoid, demerits)
        if isinstance(node_search, Attempt):
            return node_search
        question, standing = node_search
        nodes = self._contents.nodes
        turns = nodes.turns(self.share.first_of(len(nodes), ties_of(pod, self.profile)))
        search = NodeSearch(Judge(self._contents, self._terse, question), standing, turns)
        search.run()
        if search.failed is not None:
            return Attempt(status=search.failed[1], claims=question.claims)
        if search.best is not None:
            return search.answer()
        return search.refusal()

    def _in_full(self, pod: Pod, refusal: Attempt, avoid: Collection[str]) -> dict[Status, Verdict]:
        prepared = self._prepare(pod, avoid, NO_DEMERITS) if refusal.examples else None
        if prepared is None or isinstance(prepared, PodRefused):
            return {}
        question, standing = prepared
        profile = replace(self.profile, explains=True)
        return nearest_refusals(Judge(self._contents, profile, question), standing, refusal)

    def _ask(self, pod: Pod, avoid: Collection[str], demerits: Demerits) -> Attempt | tuple[PodQuery, Prefilter]:
        """The query about the nodes, or the attempt if no search is needed."""
        whole = self._contents.whole
        if not whole.nodes:
            return without_nodes()
        prepared = self._prepare(pod, avoid, demerits)
        if isinstance(prepared, PodRefused):
            return refused_pod(prepared.refusal, prepared.claims, len(whole.nodes))
        if prepared is None:
            return attempt(whole, pod, profile=self._terse, avoid=avoid, demerits=demerits, share=self.share)
        return prepared

    def _prepare(
        self, pod: Pod, avoid: Collection[str], demerits: Demerits = NO_DEMERITS
    ) -> PodRefused | tuple[PodQuery, Prefilter] | None:
        """PreFilter; None if the nodes have to be scanned one by one."""
        contents, whole = self._contents, self._contents.whole
        before, refusal = query_plugins(contents, self.profile.before_volumes, pod)
        if refusal is not None:
            return PodRefused(refusal)
        status, claims = prefilter(contents.quiet, pod, profile=self._terse)
        if not status.passed:
            return PodRefused(NodeRefusal(VOLUME_BINDING, status), claims)
        rules: tuple[ZoneRule, ...] = ()
        # A delayed claim has no volume yet, and its class delays binding: no zone to check.
        if claims.bound:
            status, rules = volume_zone_prefilter(whole, pod)
            if not status.passed:
                return PodRefused(NodeRefusal(VOLUME_ZONE, status), claims)
        after, refusal = query_plugins(contents, self.profile.after_volumes, pod)
        if refusal is not None:
            return PodRefused(refusal, claims)
        standing = stand(contents, before, after, avoid, demerits)
        if standing.failed or self._is_translated(claims.bound):
            return None
        return ask(contents, pod, claims, rules), standing

    def roll_call(self, pod: Pod, names: Collection[str], *, avoid: Collection[str] = frozenset()) -> RollCall:
        """The verdicts of these nodes on the pod; unknown nodes are left out."""
        return self._without(pod, lambda: self._called(pod, names, avoid))

    def _called(self, pod: Pod, names: Collection[str], avoid: Collection[str]) -> RollCall:
        prepared = self._prepare(pod, avoid)
        if isinstance(prepared, PodRefused):
            return RollCall(prepared.refusal.status, prepared.claims)
        if prepared is None:
            made = attempt(self._contents.whole, pod, profile=self._terse, avoid=avoid, only=frozenset(names))
            return RollCall(SUCCESS, made.claims, {it.node: it for it in made.verdicts})
        question, standing = prepared
        judge = Judge(self._contents, self._terse, question)
        mask = reduce(or_, map(self._contents.nodes.mask_of, names), 0)
        return RollCall(SUCCESS, question.claims, {it.node: it for it in call(judge, standing, mask)})

    def _is_translated(self, bound: Iterable[Claim]) -> bool:
        """CSI migration (profile `parity`) rewrites affinities per node: then all nodes are scanned."""
        if self.profile.translate is None:
            return False
        volumes = (self._contents.whole.volume(claim.volume_name) for claim in bound)
        return any(it is not None and it.source is not None and it.source.kind in CSI_ZONE_KEYS for it in volumes)
