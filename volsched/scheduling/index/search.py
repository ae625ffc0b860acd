"""The best node for a pod, without a verdict on each: by ranking, or group by group."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import reduce
from itertools import islice
from operator import or_

from volsched.scheduling.index.node_groups import (
    NodeGroup,
    Ranked,
    Region,
    alike_to,
    bound_of,
    digest_of,
    groups,
    ranked_in,
    regions,
    served_scores,
    sizes_of,
    split,
)
from volsched.scheduling.index.node_sets import Turns, is_single, positions
from volsched.scheduling.index.node_verdict import Judge
from volsched.scheduling.index.pod_query import PodQuery
from volsched.scheduling.index.prefilter import Prefilter, score_of
from volsched.scheduling.index.stock_ranks import Ranking, Worth
from volsched.scheduling.rules.cycle import EXAMPLES, VOLUME_BINDING, Attempt, RunnerUp, Verdict, no_node
from volsched.scheduling.rules.profile import Profile, ScoringPolicy
from volsched.scheduling.rules.scoring import rounded_mean
from volsched.scheduling.rules.status import Code, Status

# How a region of nodes is searched for the best: by its ranking, or group by group.


@dataclass(slots=True)
class SearchPlan:
    """How a region is searched: by its ranking, if it has one, or group by group."""

    region: Region
    ranked: Ranked | None
    proposed: dict[int, int] = field(default_factory=dict)
    """Score → the nodes with that estimate, if there is no ranking."""
    unclear: list[NodeGroup] = field(default_factory=list)
    trusted: bool = True

    def scores(self) -> Iterable[int]:
        if not self.trusted:
            return ()
        if self.ranked is None:
            return self.proposed
        return [score for score, _ in self.ranked.ranking.masks(Worth.SERVES)]

    def nodes_with(self, score: int) -> int:
        if not self.trusted:
            return 0
        if self.ranked is None:
            return self.proposed.get(score, 0)
        return self.ranked.ranking.mask(Worth.SERVES, score) & self.region.mask

    def remainder(self) -> list[NodeGroup]:
        """The nodes skipped while some node might fit: those that serve, as one group, and the hopeless."""
        if self.ranked is None:
            return []
        serving = self._all(Worth.SERVES)
        hopeless = self._all(Worth.HOPELESS)
        if self.ranked.others_are_hopeless:
            hopeless = self.region.mask & ~serving & ~self._all(Worth.UNCLEAR)
        kinds = ((Worth.SERVES, serving), (Worth.HOPELESS, hopeless))
        return [
            NodeGroup(self.region, mask, *self.ranked.place_of(None), key=kind) for kind, mask in kinds if mask
        ]

    def others(self) -> int:
        """The nodes that the ranking does not cover."""
        return self.region.mask & ~(self._all(Worth.SERVES) | self._all(Worth.UNCLEAR) | self._all(Worth.HOPELESS))

    def _all(self, worth: Worth) -> int:
        ranking = self.ranked.ranking if self.ranked is not None else Ranking()
        return reduce(or_, (mask for _, mask in ranking.masks(worth)), 0) & self.region.mask


def plan_of(question: PodQuery, region: Region, profile: Profile) -> SearchPlan:
    plan = SearchPlan(region, ranked_in(question, region, profile))
    ranked = plan.ranked
    if ranked is None:
        for group in groups(question, region):
            score = _estimate(question, group, profile)
            if score is None:
                plan.unclear.append(group)
            else:
                plan.proposed[score] = plan.proposed.get(score, 0) | group.mask
        return plan
    for _, mask in ranked.ranking.masks(Worth.UNCLEAR):
        for stock, mine in split(mask & region.mask, ranked.census):
            plan.unclear.append(NodeGroup(region, mine, *ranked.place_of(stock)))
    if not ranked.others_are_hopeless and (others := plan.others()):
        plan.unclear.append(NodeGroup(region, others, *ranked.place_of(None)))
    return plan


def _estimate(question: PodQuery, group: NodeGroup, profile: Profile) -> int | None:
    """The score if the greedy search serves every claim with a volume, and nothing else refuses the nodes."""
    if profile.scoring is not ScoringPolicy.CLOSEST_FIT or group.key is not None or not question.errands:
        return None
    if not question.plain:
        return None
    scores: list[int] = []
    for place, errand in enumerate(question.errands):
        mine = served_scores(errand.shape, sizes_of(group, place), int64_sizes=profile.int64_sizes)
        if mine is None:
            return None
        scores += mine
    return rounded_mean(scores)


# Estimates propose nodes, best first; the rules check the first of them, and only their verdict counts. Without
# an estimate, one node is checked for every group of equal ones, and only while its group could still win. If
# no node fits, every group is checked once, and its refusal counts for all its nodes.
#
# Volumes decide between nodes of one level, which are equal in all other respects; the total decides between
# levels.

RUNNERS_UP = 3


@dataclass(slots=True)
class NodeSearch:
    judge: Judge
    standing: Prefilter
    turns: Turns
    best: tuple[int, Verdict] | None = None
    """The best node's total, and its verdict on volumes."""
    refused: dict[Status, int] = field(default_factory=dict)
    """The nodes of each refusal. Complete only if no node was found."""
    rejectors: set[str] = field(default_factory=set)
    failed: tuple[str, Status] | None = None
    """The first node, by name, on which the rules failed."""
    _fitting: list[tuple[int, int]] = field(default_factory=list)
    """(score of the volumes, nodes) of the checked groups that fit."""
    _plans: list[SearchPlan] = field(default_factory=list)
    _steps: dict[int, list[tuple[int, int]]] = field(default_factory=dict)
    """Total → the scores of volumes that give it, each with its level."""
    _unions: dict[int, int] = field(default_factory=dict)
    """Total → the nodes with that estimate in the trusted plans."""
    _beaten: list[tuple[int, int, NodeGroup]] = field(default_factory=list)
    """Groups that cannot be the best, each with the upper bound of its nodes in the mask; the highest first."""
    _verdicts: dict[tuple[Region, object], Verdict] = field(default_factory=dict)

    def run(self) -> None:
        question, standing = self.judge.question, self.standing
        all_regions = regions(question, standing.passed)
        profile = self.judge.profile
        possible = [region for region in all_regions if region.mask & question.required]
        plans = self._plans = [plan_of(question, region, profile) for region in possible]
        self._confirm(plans)
        unclear = [group for plan in plans for group in plan.unclear]
        if unclear:
            self._settle(unclear)
        if self.best is not None:
            return
        for plan in plans:
            for group in plan.remainder():
                self._examine(group)
        for region in all_regions:
            if not region.mask & question.required:
                self._count(plan_of(question, region, profile))
        for region in regions(question, standing.reached & ~standing.passed):
            self._count(plan_of(question, region, profile))
        for refused in standing.before:
            self._refuse(refused.status, refused.mask, refused.plugin)

    def refusal(self) -> Attempt:
        """The attempt if no node fits: every reason with its number of nodes, and the first of them named."""
        nodes = self.judge.contents.nodes
        counts = {status: mask.bit_count() for status, mask in self.refused.items()}
        return Attempt(
            status=no_node(counts, len(nodes)),
            claims=self.judge.question.claims,
            refused=counts,
            rejectors=frozenset(self.rejectors),
            examples={
                status: tuple([node.name for node in islice(nodes.by_name(mask), EXAMPLES)])
                for status, mask in self.refused.items()
            },
        )

    def answer(self) -> Attempt:
        """The attempt with the best node: its complete verdict, and the runners-up."""
        assert self.best is not None
        total, verdict = self.best
        bit = self.judge.contents.nodes.mask_of(verdict.node)
        chosen = verdict
        if self.standing.scores:
            scores = {**self.standing.scores_of(bit), **verdict.scores}
            chosen = Verdict(verdict.node, verdict.status, verdict.answer, score_of(total), scores=scores)
        return Attempt(
            status=verdict.status,
            claims=self.judge.question.claims,
            verdicts=(chosen,),
            chosen=chosen,
            runners_up=self._runners_up(bit),
        )

    def _runners_up(self, chosen: int) -> tuple[RunnerUp, ...]:
        """The next best. Groups that could not win are checked as long as they might precede the known ones."""
        runners_up = self._next_best(chosen)
        for bound, mask, group in self._beaten:
            if len(runners_up) == RUNNERS_UP:
                total, name = runners_up[-1]
                if total > bound:
                    break
                if total == bound and not self._goes_first(mask, name):
                    continue
            self._examine(group, mask)
            runners_up = self._next_best(chosen)
        return tuple([RunnerUp(name, score_of(total)) for total, name in runners_up])

    def _next_best(self, chosen: int) -> list[tuple[int, str]]:
        """The best of the known nodes, so that few need another check."""
        best: list[tuple[int, str]] = []
        known = self._checked(chosen) if self.judge.question.limited else self._known_totals()
        for total, mask in known:
            for node in islice(self.turns.in_turn(mask & ~chosen), RUNNERS_UP - len(best)):
                best.append((total, node.name))
            if len(best) == RUNNERS_UP:
                break
        return best

    def _known_totals(self) -> Iterator[tuple[int, int]]:
        """Totals with the nodes that were checked or proposed, the highest first."""
        judged = self._judged()
        for total in sorted({*judged, *self._steps}, reverse=True):
            yield total, judged.get(total, 0) | self._proposed(total)

    def _judged(self) -> dict[int, int]:
        weight, judged = self.judge.profile.volume_weight, dict[int, int]()
        for score, mask in self._fitting:
            for worth, level in self.standing.levels:
                if mask & level:
                    total = worth + weight * score
                    judged[total] = judged.get(total, 0) | mask & level
        return judged

    def _checked(self, chosen: int) -> Iterator[tuple[int, int]]:
        """The known totals if attach limits may contradict an unchecked estimate: then the rules are called.

        If a node misses the total, so do all nodes like it; they come again with their real total.
        """
        nodes, known = self.judge.contents.nodes, self._judged()
        for total in self._steps:
            known[total] = known.get(total, 0) | self._proposed(total)
        sound = reduce(or_, (mask for _, mask in self._fitting), chosen)
        while known:
            total = max(known)
            mask = known[total]
            if doubtful := mask & ~sound:
                node = self.turns.first(doubtful)
                bit = nodes.mask_of(node.name)
                plan = next(plan for plan in self._plans if plan.region.mask & bit)
                alike = mask & alike_to(self.judge.question, plan.region, nodes.position_of(node.name))
                worth = self._total(self.judge.ask(node))
                sound |= alike
                if worth != total:
                    known[total] ^= alike
                    if worth is not None:
                        known[worth] = known.get(worth, 0) | alike
                continue
            yield total, known.pop(total)

    # --- proposals --------------------------------------------------------------------------------------

    def _confirm(self, plans: list[SearchPlan]) -> None:
        """Check the best proposed node; if the estimate is wrong, search its region instead."""
        nodes, weight = self.judge.contents.nodes, self.judge.profile.volume_weight
        for score in {score for plan in plans for score in plan.scores()}:
            for worth, level in self.standing.levels:
                self._steps.setdefault(worth + weight * score, []).append((score, level))
        for total in sorted(self._steps, reverse=True):
            # Totals only decrease, and the first node by name is taken for each total.
            while union := self._proposed(total):
                verdict = self.judge.ask(self.turns.first(union))
                if self._total(verdict) == total:
                    self._offer(verdict)
                    return
                bit = nodes.mask_of(verdict.node)
                self._distrust(next(plan for plan in plans if plan.region.mask & bit), verdict)

    def _proposed(self, total: int) -> int:
        """The nodes whose estimate is this total."""
        mask = self._unions.get(total)
        if mask is None:
            mask = 0
            for score, level in self._steps.get(total, ()):
                for plan in self._plans:
                    mask |= plan.nodes_with(score) & level
            self._unions[total] = mask
        return mask

    def _distrust(self, plan: SearchPlan, verdict: Verdict) -> None:
        plan.trusted = False
        self._unions.clear()
        # If its volumes are as estimated, what refuses the node refuses all serving nodes of its region.
        if plan.ranked is None or not verdict.answer.fits:
            plan.unclear, plan.ranked = list(groups(self.judge.question, plan.region)), None

    # --- everything else --------------------------------------------------------------------------------

    def _settle(self, unclear: list[NodeGroup]) -> None:
        """Check the groups, the most promising first, so that the others need no check.

        The volumes of a group are alike, so only the nodes of its highest level can win.
        """
        weight, entries = self.judge.profile.volume_weight, []
        for place, (group, (worth, level)) in enumerate(zip(unclear, self._highest(unclear), strict=True)):
            entries.append((-worth - weight * self._bound(group), place, group.mask & level, group))
        for bound, _, mask, group in sorted(entries, key=lambda entry: entry[:2]):
            if self._is_beaten(-bound, mask):
                self._beaten.append((-bound, mask, group))
            else:
                self._examine(group, mask)

    def _highest(self, unclear: list[NodeGroup]) -> list[tuple[int, int]]:
        """The highest level in which each group has nodes."""
        levels = self.standing.levels
        if len(levels) == 1:
            return levels * len(unclear)
        by_position: dict[int, tuple[int, int]] = {}
        if len(unclear) * len(levels) > 2 * self.standing.passed.bit_count():
            by_position = {position: entry for entry in levels for position in positions(entry[1])}
        entries = []
        for group in unclear:
            if by_position and is_single(group.mask):
                entries.append(by_position[group.mask.bit_length() - 1])
            else:
                entries.append(next(entry for entry in levels if entry[1] & group.mask))
        return entries

    def _count(self, plan: SearchPlan) -> None:
        """Collect the reasons of a region that cannot fit."""
        if plan.ranked is None:
            plan.unclear = list(groups(self.judge.question, plan.region))
        for group in [*plan.unclear, *plan.remainder()]:
            self._examine(group)

    def _examine(self, group: NodeGroup, mask: int = 0) -> None:
        """Check one node of the group. `mask`: its nodes that may win; 0 if the group is only counted."""
        key = (group.region, digest_of(self.judge.question, group))
        known = self._verdicts.get(key)
        if known is None or known.status.passed:
            known = self._verdicts[key] = self.judge.ask(self.turns.first(mask or group.mask))
            if known.status.passed and group.mask & self.standing.passed:
                self._fitting.append((known.scores.get(VOLUME_BINDING, 0), group.mask))
                self._offer(known)
        if known.status.code is Code.ERROR:
            self._fail(group, known.status)
        elif not known.status.passed:
            self._refuse(known.status, group.mask, known.plugin)
        else:
            self._refuse_after(group.mask)

    def _refuse_after(self, mask: int) -> None:
        """The volumes of these nodes fit; plugins after the volumes may refuse them."""
        for refused in self.standing.after:
            if refused.mask & mask:
                self._refuse(refused.status, refused.mask & mask, refused.plugin)

    def _refuse(self, status: Status, mask: int, plugin: str) -> None:
        self.refused[status] = self.refused.get(status, 0) | mask
        self.rejectors.add(plugin)

    def _bound(self, group: NodeGroup) -> int:
        question = self.judge.question
        sizes = [sizes_of(group, place) for place in range(len(question.errands))]
        return bound_of(self.judge.profile, question, sizes)

    # --- comparing --------------------------------------------------------------------------------------

    def _is_beaten(self, total: int, rivals: int) -> bool:
        if self.best is None:
            return False
        mine, chosen = self.best
        return mine > total if mine != total else not self._goes_first(rivals, chosen.node)

    def _goes_first(self, rivals: int, name: str) -> bool:
        """Whether one of the equally good rivals precedes the node of that name."""
        return self.turns.turn_of(self.turns.first(rivals).name) < self.turns.turn_of(name)

    def _offer(self, verdict: Verdict) -> None:
        total = self._total(verdict)
        if total is None:
            return
        turn_of = self.turns.turn_of
        if self.best is None or (-total, turn_of(verdict.node)) < (-self.best[0], turn_of(self.best[1].node)):
            self.best = total, verdict

    def _total(self, verdict: Verdict) -> int | None:
        """The total of a node; None: it is refused."""
        if not verdict.status.passed:
            return None
        return verdict.score + self.standing.total(self.judge.contents.nodes.mask_of(verdict.node))

    def _fail(self, group: NodeGroup, status: Status) -> None:
        name = next(self.judge.contents.nodes.by_name(group.mask)).name
        if self.failed is None or name < self.failed[0]:
            self.failed = name, status
