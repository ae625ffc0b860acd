"""One scheduling attempt as far as volumes decide it: every node judged and scored, the best one chosen.

This walks all nodes and is the yardstick that any faster way must equal.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from volsched.core.claims import PodClaims
from volsched.core.filtering import NodeAnswer, find_pod_volumes, prefilter
from volsched.core.profile import Profile
from volsched.core.rejected import PREVIOUSLY_REJECTED
from volsched.core.restrictions import volume_restrictions
from volsched.core.scoring import node_score
from volsched.core.snapshot import Snapshot
from volsched.core.status import SUCCESS, Code, Status
from volsched.core.volume_limits import drivers_installed, node_volume_limits
from volsched.core.zones import ZoneRule, volume_zone_filter, volume_zone_prefilter
from volsched.model.workloads import Node, Pod


@dataclass(frozen=True, slots=True)
class Verdict:
    """One node's answer. `status` is that of the first filter that refuses it, or success."""

    node: str
    status: Status
    answer: NodeAnswer
    score: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    status: Status
    """Success with a chosen node; otherwise why the pod can go nowhere."""
    claims: PodClaims
    verdicts: tuple[Verdict, ...] = ()
    """In node-name order; empty where the pod was refused before any node was looked at."""
    chosen: Verdict | None = None

    @property
    def runners_up(self) -> tuple[Verdict, ...]:
        """The other nodes that would do, the best first."""
        fitting = (verdict for verdict in self.verdicts if verdict.status.passed and verdict is not self.chosen)
        return tuple(sorted(fitting, key=_best_first))


def attempt(snapshot: Snapshot, pod: Pod, *, profile: Profile, avoid: Collection[str] = frozenset()) -> Attempt:
    """PreFilter, Filter and Score of the volume plugins on every node; ties go to the smallest node name.

    `avoid` are nodes that turned the pod away a short while ago.
    """
    status, claims = prefilter(snapshot, pod, profile=profile)
    rules: tuple[ZoneRule, ...] = ()
    if status.passed:
        zone_status, rules = volume_zone_prefilter(snapshot, pod)
        status = status if zone_status.passed else zone_status
    if not status.passed:
        return Attempt(status=_pod_status(status, len(snapshot.nodes)), claims=claims)
    verdicts = tuple(
        _judge(snapshot, pod, claims, rules, snapshot.nodes[name], profile, turned_away=name in avoid)
        for name in sorted(snapshot.nodes)
    )
    failed = next((verdict.status for verdict in verdicts if verdict.status.code is Code.ERROR), None)
    if failed is not None:
        return Attempt(status=failed, claims=claims, verdicts=verdicts)
    fitting = [verdict for verdict in verdicts if verdict.status.passed]
    if not fitting:
        refused = Counter(verdict.status for verdict in verdicts)
        return Attempt(status=no_node(refused, len(verdicts)), claims=claims, verdicts=verdicts)
    return Attempt(status=SUCCESS, claims=claims, verdicts=verdicts, chosen=min(fitting, key=_best_first))


def _judge(
    snapshot: Snapshot,
    pod: Pod,
    claims: PodClaims,
    rules: Sequence[ZoneRule],
    node: Node,
    profile: Profile,
    *,
    turned_away: bool,
) -> Verdict:
    """The filters in the reference's order. Volumes are looked for in any case, so that they can be explained."""
    answer = find_pod_volumes(snapshot, pod, claims, node, profile=profile)
    limits = drivers_installed if profile.attach_limits else node_volume_limits
    statuses = (
        Status(Code.UNSCHEDULABLE, (PREVIOUSLY_REJECTED,)) if turned_away else SUCCESS,
        volume_restrictions(snapshot, pod, node),
        limits(snapshot, pod, node),
        answer.status,
        volume_zone_filter(rules, node),
    )
    status = next((status for status in statuses if not status.passed), SUCCESS)
    return Verdict(node.name, status, answer, node_score(answer, profile=profile) if status.passed else 0)


def _best_first(verdict: Verdict) -> tuple[int, str]:
    return -verdict.score, verdict.node


def no_node(refused: Mapping[Status, int], nodes: int) -> Status:
    """Why no node will do: every reason with the number of nodes that gave it."""
    counts: Counter[str] = Counter()
    for status, count in refused.items():
        for reason in status.reasons:
            counts[reason] += count
    summary = ", ".join(sorted(f"{count} {reason}" for reason, count in counts.items()))
    resolvable = any(status.code is Code.UNSCHEDULABLE for status in refused)
    return Status(Code.UNSCHEDULABLE if resolvable else Code.UNRESOLVABLE, (_none_available(nodes, summary),))


def _pod_status(status: Status, nodes: int) -> Status:
    if status.code is Code.ERROR:
        return status
    return Status(status.code, (_none_available(nodes, ", ".join(status.reasons)),))


def _none_available(nodes: int, why: str) -> str:
    return f"0/{nodes} nodes are available: {why}." if why else f"0/{nodes} nodes are available."
