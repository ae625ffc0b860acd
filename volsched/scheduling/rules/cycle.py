"""One scheduling attempt: every node checked against all of the pod's constraints and scored, the best one chosen.

This scans all nodes and is the reference implementation for any faster way.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from volsched.kube.workloads import Node, Pod
from volsched.scheduling.plugins.plugin import Prepared
from volsched.scheduling.plugins.registry import Enabled
from volsched.scheduling.queue.entry import ALL, Share
from volsched.scheduling.rules.attach_limits import drivers_installed, node_volume_limits
from volsched.scheduling.rules.failure_memory import NO_DEMERITS, NODE_REJECTED, Demerits
from volsched.scheduling.rules.nominations import with_seats
from volsched.scheduling.rules.pod_claims import PodClaims
from volsched.scheduling.rules.profile import Profile
from volsched.scheduling.rules.reasons import NO_NODES_AT_ALL, PREVIOUSLY_REJECTED, none_available
from volsched.scheduling.rules.scoring import node_score
from volsched.scheduling.rules.snapshot import Snapshot
from volsched.scheduling.rules.status import SUCCESS, Code, Status
from volsched.scheduling.rules.volume_filter import NodeAnswer, find_pod_volumes, prefilter
from volsched.scheduling.rules.volume_restrictions import (
    ZoneRule,
    volume_restrictions,
    volume_zone_filter,
    volume_zone_prefilter,
)

VOLUME_RESTRICTIONS = "VolumeRestrictions"
NODE_VOLUME_LIMITS = "NodeVolumeLimits"
VOLUME_BINDING = "VolumeBinding"
VOLUME_ZONE = "VolumeZone"
EXAMPLES = 5
"""Number of nodes named for each refusal; the others are only counted."""
NO_NODES = Status(Code.UNRESOLVABLE, (NO_NODES_AT_ALL,))
TURNED_AWAY = Status(Code.UNSCHEDULABLE, (PREVIOUSLY_REJECTED,))


# Not frozen, though never modified: created for every decision, in a third of the time of frozen ones.
@dataclass(slots=True)
class Verdict:
    """One node's answer. `status` is that of the first filter that refuses it, or success."""

    node: str
    status: Status
    answer: NodeAnswer = field(default_factory=NodeAnswer)
    """The result for the pod's volumes; empty if a plugin before them refuses the node."""
    score: int = 0
    """The weighted total."""
    plugin: str = ""
    """The plugin that refuses the node."""
    scores: Mapping[str, int] = field(default_factory=dict)
    """The scores by plugin, 0..100 and unweighted, without zeros."""


class RunnerUp(NamedTuple):
    node: str
    score: int


@dataclass(slots=True, kw_only=True)
class Attempt:
    status: Status
    """Success with a chosen node; otherwise the reasons why no node fits."""
    claims: PodClaims
    verdicts: tuple[Verdict, ...] = ()
    """In node-name order; empty if the pod was refused before any node was checked."""
    chosen: Verdict | None = None
    runners_up: tuple[RunnerUp, ...] = ()
    """The next best nodes; an index names a few of them."""
    rejectors: frozenset[str] = frozenset()
    """If no node was found: the plugins that refused some node, or the one that refused the pod."""
    refused: Mapping[Status, int] = field(default_factory=dict)
    """If no node was found: the number of nodes per refusal."""
    examples: Mapping[Status, tuple[str, ...]] = field(default_factory=dict)
    """The first few of those nodes, by name."""
    in_full: Mapping[Status, Verdict] = field(default_factory=dict)
    """For refusals because of volumes, one of those nodes with all details about the claims."""

    @property
    def fitting(self) -> tuple[Verdict, ...]:
        """The verdicts on all nodes that fit."""
        return tuple(verdict for verdict in self.verdicts if verdict.status.passed)


def attempt(
    snapshot: Snapshot,
    pod: Pod,
    *,
    profile: Profile,
    avoid: Collection[str] = frozenset(),
    only: Collection[str] | None = None,
    demerits: Demerits = NO_DEMERITS,
    share: Share = ALL,
) -> Attempt:
    """PreFilter, Filter and Score of every plugin on every node; ties are broken by name, starting at some place.

    `demerits`: rank nodes before any score. `share`: which of several schedulers this is, for ties.

    `avoid` are nodes that rejected the pod recently. `only` checks these nodes alone, but they are still compared
    with all others and their pods.
    """
    if not snapshot.nodes:
        return without_nodes()
    snapshot = with_seats(profile.view(snapshot), pod)
    before, refusal = prepare(profile.before_volumes, snapshot, pod)
    claims = PodClaims()
    rules: tuple[ZoneRule, ...] = ()
    if refusal is None:
        claims, rules, refusal = _prepare_volumes(snapshot, pod, profile)
    after: list[Ready] = []
    if refusal is None:
        after, refusal = prepare(profile.after_volumes, snapshot, pod)
    names = sorted(name for name in snapshot.nodes if only is None or name in only)
    if refusal is not None:
        return refused_pod(refusal, claims, len(names))
    judging = _Judging(snapshot, pod, claims, rules, profile, before, after, frozenset(avoid))
    verdicts = judging.scored([judging.verdict(snapshot.nodes[name]) for name in names])
    failed = next((verdict for verdict in verdicts if verdict.status.code is Code.ERROR), None)
    if failed is not None:
        return Attempt(status=failed.status, claims=claims, verdicts=verdicts)
    fitting = [verdict for verdict in verdicts if verdict.status.passed]
    if fitting:
        first = sorted(snapshot.nodes)[share.first_of(len(snapshot.nodes), ties_of(pod, profile))]
        against = {it.node: demerits.of(snapshot.nodes[it.node]) for it in fitting if demerits}
        fitting.sort(key=lambda it: (against.get(it.node, 0), -it.score, it.node < first, it.node))
        others = tuple(RunnerUp(verdict.node, verdict.score) for verdict in fitting[1:])
        chosen = fitting[0]
        return Attempt(status=SUCCESS, claims=claims, verdicts=verdicts, chosen=chosen, runners_up=others)
    refused = Counter(verdict.status for verdict in verdicts)
    rejectors = frozenset(verdict.plugin for verdict in verdicts)
    status = no_node(refused, len(verdicts))
    return Attempt(
        status=status,
        claims=claims,
        verdicts=verdicts,
        refused=refused,
        rejectors=rejectors,
        examples=_examples(verdicts),
    )


def volume_verdict(
    snapshot: Snapshot,
    pod: Pod,
    claims: PodClaims,
    rules: Sequence[ZoneRule],
    node: Node,
    *,
    profile: Profile,
    limited: bool,
    contended: bool,
) -> Verdict:
    """One node's answer about volumes, for a pod that passed the volumes' PreFilter with these rules.

    `limited`: as in `find_pod_volumes`. `contended`: the pod has a claim or an inline disk for exclusive use.
    """
    answer = find_pod_volumes(snapshot, pod, claims, node, profile=profile, limited=limited)
    status, plugin = _judged_volumes(snapshot, pod, rules, node, answer, profile, contended=contended)
    if not status.passed:
        return Verdict(node.name, status, answer, plugin=plugin)
    volumes = node_score(answer, profile=profile)
    scores = {VOLUME_BINDING: volumes} if volumes else {}
    return Verdict(node.name, status, answer, volumes * profile.volume_weight, scores=scores)


# --- before any node is checked -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Ready:
    """A plugin with a constraint for the pod."""

    name: str
    weight: int
    prepared: Prepared


@dataclass(frozen=True, slots=True)
class NodeRefusal:
    plugin: str
    status: Status


def prepare(plugins: Iterable[Enabled], snapshot: Snapshot, pod: Pod) -> tuple[list[Ready], NodeRefusal | None]:
    """PreFilter: the plugins that do not skip the pod, up to the first that refuses it."""
    ready: list[Ready] = []
    for enabled in plugins:
        status, prepared = enabled.plugin.prefilter(snapshot, pod)
        if not status.passed:
            return ready, NodeRefusal(enabled.plugin.name, status)
        if prepared is not None:
            ready.append(Ready(enabled.plugin.name, enabled.weight, prepared))
    return ready, None


def _prepare_volumes(
    snapshot: Snapshot, pod: Pod, profile: Profile
) -> tuple[PodClaims, tuple[ZoneRule, ...], NodeRefusal | None]:
    status, claims = prefilter(snapshot, pod, profile=profile)
    if not status.passed:
        return claims, (), NodeRefusal(VOLUME_BINDING, status)
    status, rules = volume_zone_prefilter(snapshot, pod)
    return claims, rules, None if status.passed else NodeRefusal(VOLUME_ZONE, status)


def without_nodes() -> Attempt:
    """The attempt if there are no nodes: nothing is checked, and any change may help the pod."""
    return Attempt(status=NO_NODES, claims=PodClaims())


def refused_pod(refusal: NodeRefusal, claims: PodClaims, nodes: int) -> Attempt:
    """The attempt if the pod was refused before any node. An error is not a refusal: the pod is retried soon."""
    if refusal.status.code is Code.ERROR:
        return Attempt(status=refusal.status, claims=claims)
    why = ", ".join(refusal.status.reasons)
    status = Status(refusal.status.code, (none_available(nodes, why),))
    return Attempt(status=status, claims=claims, rejectors=frozenset({refusal.plugin}))


# --- node by node ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Judging:
    snapshot: Snapshot
    pod: Pod
    claims: PodClaims
    rules: Sequence[ZoneRule]
    profile: Profile
    before: Sequence[Ready]
    after: Sequence[Ready]
    avoid: Collection[str]

    def verdict(self, node: Node) -> Verdict:
        """The filters in the reference's order."""
        status, plugin = _left_out([*self.before, *self.after], node)
        if not status.passed:
            return Verdict(node.name, status, plugin=plugin)
        if node.name in self.avoid:
            return Verdict(node.name, TURNED_AWAY, plugin=NODE_REJECTED)
        status, plugin = _first_refusal(self.before, node)
        if not status.passed:
            return Verdict(node.name, status, plugin=plugin)
        # Volumes are searched even if a sibling filter refuses the node, so that they can be explained.
        answer = find_pod_volumes(self.snapshot, self.pod, self.claims, node, profile=self.profile)
        status, plugin = _judged_volumes(self.snapshot, self.pod, self.rules, node, answer, self.profile)
        if status.passed:
            status, plugin = _first_refusal(self.after, node)
        return Verdict(node.name, status, answer, plugin=plugin)

    def scored(self, verdicts: Sequence[Verdict]) -> tuple[Verdict, ...]:
        """The verdicts, with totals for the nodes that passed."""
        plugins = [*self.before, *self.after]
        # Independent of their volumes, which must not affect the normalisation of other scores.
        compared = [node for node in self.snapshot.nodes.values() if self._is_compared(node)] if plugins else []
        scores: dict[str, dict[str, int]] = {node.name: {} for node in compared}
        for ready in plugins:
            for node, score in zip(compared, ready.prepared.scores(compared), strict=True):
                if score:
                    scores[node.name][ready.name] = score
        weights = {ready.name: ready.weight for ready in plugins}
        return tuple(self.total(it, scores.get(it.node, {}), weights) for it in verdicts)

    def _is_compared(self, node: Node) -> bool:
        filters = [*self.before, *self.after]
        return (
            node.name not in self.avoid
            and _left_out(filters, node)[0].passed
            and _first_refusal(filters, node)[0].passed
        )

    def total(self, verdict: Verdict, scores: Mapping[str, int], weights: Mapping[str, int]) -> Verdict:
        if not verdict.status.passed:
            return verdict
        volumes = node_score(verdict.answer, profile=self.profile)
        total = volumes * self.profile.volume_weight + sum(scores[name] * weights[name] for name in scores)
        every = {**scores, VOLUME_BINDING: volumes} if volumes else scores
        return Verdict(verdict.node, verdict.status, verdict.answer, total, scores=every)


def _judged_volumes(
    snapshot: Snapshot,
    pod: Pod,
    rules: Sequence[ZoneRule],
    node: Node,
    answer: NodeAnswer,
    profile: Profile,
    *,
    contended: bool = True,
) -> tuple[Status, str]:
    """The volumes' filters, in the reference's order: the first refusal, and its plugin."""
    status = volume_restrictions(snapshot, pod, node) if contended else SUCCESS
    if not status.passed:
        return status, VOLUME_RESTRICTIONS
    limits = drivers_installed if profile.attach_limits else node_volume_limits
    status = limits(snapshot, pod, node)
    if not status.passed:
        return status, NODE_VOLUME_LIMITS
    if not answer.fits:
        return answer.status, VOLUME_BINDING
    status = volume_zone_filter(rules, node)
    return (SUCCESS, "") if status.passed else (status, VOLUME_ZONE)


def _left_out(plugins: Iterable[Ready], node: Node) -> tuple[Status, str]:
    for ready in plugins:
        status = ready.prepared.leaves_out(node)
        if not status.passed:
            return status, ready.name
    return SUCCESS, ""


def _first_refusal(plugins: Iterable[Ready], node: Node) -> tuple[Status, str]:
    for ready in plugins:
        status = ready.prepared.filter(node)
        if not status.passed:
            return status, ready.name
    return SUCCESS, ""


def _examples(verdicts: Iterable[Verdict]) -> dict[Status, tuple[str, ...]]:
    examples: dict[Status, tuple[str, ...]] = {}
    for verdict in verdicts:
        named = examples.get(verdict.status, ())
        if len(named) < EXAMPLES:
            examples[verdict.status] = (*named, verdict.node)
    return examples


def ties_of(pod: Pod, profile: Profile) -> str:
    """The key that breaks the pod's ties (`Share.first_of`)."""
    return pod.key if profile.ties_by_pod else ""


def no_node(refused: Mapping[Status, int], nodes: int) -> Status:
    """The status if no node fits: every reason with its number of nodes."""
    counts: Counter[str] = Counter()
    for status, count in refused.items():
        for reason in status.reasons:
            counts[reason] += count
    summary = ", ".join(sorted(f"{count} {reason}" for reason, count in counts.items()))
    resolvable = any(status.code is Code.UNSCHEDULABLE for status in refused)
    return Status(Code.UNSCHEDULABLE if resolvable else Code.UNRESOLVABLE, (none_available(nodes, summary),))
