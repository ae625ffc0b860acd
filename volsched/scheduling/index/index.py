"""The index: objects in, decisions out."""

from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import reduce
from operator import or_
from typing import TypeVar

from volsched.kube.kinds import Object
from volsched.kube.storage import Claim
from volsched.kube.workloads import Pod
from volsched.scheduling.index.contents import Contents
from volsched.scheduling.index.node_count import fitting_nodes
from volsched.scheduling.index.node_verdict import Judge, terse
from volsched.scheduling.index.per_node import PodRefused, RollCall, call
from volsched.scheduling.index.pod_query import PodQuery, ask
from volsched.scheduling.index.prefilter import Prefilter, look, stand
from volsched.scheduling.index.refusals import nearest_refusals
from volsched.scheduling.index.search import NodeSearch
from volsched.scheduling.queue.shares import ALL, Share
from volsched.scheduling.rules.csi_migration import CSI_ZONE_KEYS
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
from volsched.scheduling.rules.failure_memory import NO_DEMERITS, Demerits
from volsched.scheduling.rules.profile import VOLSCHED, Profile
from volsched.scheduling.rules.snapshot import FIELD_OF, Snapshot
from volsched.scheduling.rules.status import SUCCESS, Status
from volsched.scheduling.rules.volume_filter import prefilter
from volsched.scheduling.rules.volume_zone import ZoneRule, volume_zone_prefilter

T = TypeVar("T")


class Index:
    """Decides as `core.cycle.attempt` does on the same objects, without walking them.

    It is fed effective objects: what is assumed is laid over them already. A decision changes nothing; whoever
    acts on it puts the changed volumes and claims.
    """

    def __init__(self, objects: Iterable[Object] = (), *, profile: Profile = VOLSCHED, share: Share = ALL) -> None:
        """`share`: which of several schedulers asks, each of which settles ties otherwise."""
        self.profile = profile
        self._share = share
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

    def promise(self, claim_uid: str, capacity: str | None) -> None:
        """Part of that is for this claim, which need not be asked for room again; None: no longer."""
        self._held.promise(claim_uid, capacity)

    def settle(self) -> None:
        """Do now what would otherwise be left to a decision: worth it after many objects were put."""
        self._held.usage.settle()
        self._held.loads.settle()

    @property
    def snapshot(self) -> Snapshot:
        """All that was put. It is changed in place by the next `put`."""
        return self._held.whole

    def users_of(self, claims: Iterable[str]) -> dict[str, Pod]:
        """The pods that use one of the claims, wherever they are."""
        return self._held.relations.pods_using(claims)

    @contextmanager
    def supposing(self, values: Iterable[Object]) -> Iterator[None]:
        """As if these objects, which there are, were like this; afterwards they are what they were."""
        before = []
        try:
            for value in values:
                before.append(getattr(self._held.whole, FIELD_OF[type(value)])[value.meta.key])
                self.put(value)
            yield
        finally:
            for value in reversed(before):
                self.put(value)

    def decide(
        self, pod: Pod, *, avoid: Collection[str] = frozenset(), demerits: Demerits = NO_DEMERITS
    ) -> Attempt:
        """The attempt with the chosen node's verdict only, or with why the pod can go nowhere.

        `avoid` are nodes that turned the pod away a short while ago, `demerits` count against nodes before all
        scores do.
        """
        return self._without(pod, lambda: self._decide(pod, avoid, demerits))

    def in_full(
        self, pod: Pod, refusal: Attempt, *, avoid: Collection[str] = frozenset()
    ) -> dict[Status, Verdict]:
        """Of every way in which volumes keep the pod off nodes, the nearest of the named ones with its reasons."""
        return self._without(pod, lambda: self._in_full(pod, refusal, avoid))

    def feasible(self, pod: Pod) -> int:
        """How many nodes would do. That is more than a decision needs to know, and takes longer to find."""
        return self._without(pod, lambda: self._count(pod))

    def _without(self, pod: Pod, look_for: Callable[[], T]) -> T:
        """Where the pod is already must not count: to itself it is neither neighbour nor load."""
        placed = self._held.whole.pods.get(pod.key)
        if placed is None or not placed.node_name:
            return look_for()
        self._held.lift(placed)
        try:
            return look_for()
        finally:
            self._held.lay(placed)

    def _count(self, pod: Pod) -> int:
        asked = self._ask(pod, (), NO_DEMERITS)
        if isinstance(asked, Attempt):
            return len(asked.fitting)
        question, standing = asked
        return fitting_nodes(Judge(self._held, self._terse, question), standing).bit_count()

    def _decide(self, pod: Pod, avoid: Collection[str], demerits: Demerits) -> Attempt:
        asked = self._ask(pod, avoid, demerits)
        if isinstance(asked, Attempt):
            return asked
        question, standing = asked
        nodes = self._held.nodes
        turns = nodes.turns(self._share.first_of(len(nodes), ties_of(pod, self.profile)))
        search = NodeSearch(Judge(self._held, self._terse, question), standing, turns)
        search.run()
        if search.failed is not None:
            return Attempt(status=search.failed[1], claims=question.claims)
        if search.best is not None:
            return search.answer()
        return search.refusal()

    def _in_full(self, pod: Pod, refusal: Attempt, avoid: Collection[str]) -> dict[Status, Verdict]:
        asked = self._prepare(pod, avoid, NO_DEMERITS) if refusal.examples else None
        if asked is None or isinstance(asked, PodRefused):
            return {}
        question, standing = asked
        profile = replace(self.profile, explains=True)
        return nearest_refusals(Judge(self._held, profile, question), standing, refusal)

    def _ask(self, pod: Pod, avoid: Collection[str], demerits: Demerits) -> Attempt | tuple[PodQuery, Prefilter]:
        """What is to be found out about the nodes, or the attempt where there is nothing to find out."""
        whole = self._held.whole
        if not whole.nodes:
            return without_nodes()
        found = self._prepare(pod, avoid, demerits)
        if isinstance(found, PodRefused):
            return refused_pod(found.refusal, found.claims, len(whole.nodes))
        if found is None:
            return attempt(whole, pod, profile=self._terse, avoid=avoid, demerits=demerits, share=self._share)
        return found

    def _prepare(
        self, pod: Pod, avoid: Collection[str], demerits: Demerits = NO_DEMERITS
    ) -> PodRefused | tuple[PodQuery, Prefilter] | None:
        """PreFilter; None where the nodes have to be walked one by one."""
        held, whole = self._held, self._held.whole
        before, refusal = look(held, self.profile.before_volumes, pod)
        if refusal is not None:
            return PodRefused(refusal)
        status, claims = prefilter(held.quiet, pod, profile=self._terse)
        if not status.passed:
            return PodRefused(NodeRefusal(VOLUME_BINDING, status), claims)
        rules: tuple[ZoneRule, ...] = ()
        # Of a delayed claim, which has no volume yet and whose class delays binding, there is nothing to ask.
        if claims.bound:
            status, rules = volume_zone_prefilter(whole, pod)
            if not status.passed:
                return PodRefused(NodeRefusal(VOLUME_ZONE, status), claims)
        after, refusal = look(held, self.profile.after_volumes, pod)
        if refusal is not None:
            return PodRefused(refusal, claims)
        standing = stand(held, before, after, avoid, demerits)
        if standing.failed or self._is_translated(claims.bound):
            return None
        return ask(held, pod, claims, rules), standing

    def roll_call(self, pod: Pod, names: Collection[str], *, avoid: Collection[str] = frozenset()) -> RollCall:
        """What each of these nodes says to the pod; nodes that there are not are left out."""
        return self._without(pod, lambda: self._called(pod, names, avoid))

    def _called(self, pod: Pod, names: Collection[str], avoid: Collection[str]) -> RollCall:
        found = self._prepare(pod, avoid)
        if isinstance(found, PodRefused):
            return RollCall(found.refusal.status, found.claims)
        if found is None:
            made = attempt(self._held.whole, pod, profile=self._terse, avoid=avoid, only=frozenset(names))
            return RollCall(SUCCESS, made.claims, {it.node: it for it in made.verdicts})
        question, standing = found
        judge = Judge(self._held, self._terse, question)
        mask = reduce(or_, map(self._held.nodes.mask_of, names), 0)
        return RollCall(SUCCESS, question.claims, {it.node: it for it in call(judge, standing, mask)})

    def explain(self, pod: Pod, nodes: Iterable[str]) -> Attempt:
        """The un-indexed attempt on some nodes only, every verdict with its reasons."""
        return attempt(self._held.whole, pod, profile=self.profile, only=frozenset(nodes))

    def _is_translated(self, bound: Iterable[Claim]) -> bool:
        """CSI migration (profile `parity`) rewrites affinities node by node: then all nodes are walked."""
        if self.profile.translate is None:
            return False
        volumes = (self._held.whole.volume(claim.volume_name) for claim in bound)
        return any(it is not None and it.source is not None and it.source.kind in CSI_ZONE_KEYS for it in volumes)
