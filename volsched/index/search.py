"""The best node for a pod, without judging them all.

Estimates propose nodes, best first; the rules judge the first of them, and only their word counts. Where there is
no estimate, one node is judged for every group of equal ones, and only while its group could still win. If no node
will do, every group is judged once, and its refusal counts for all its nodes.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import reduce
from operator import or_

from volsched.core.cycle import Attempt, Verdict
from volsched.core.profile import ScoringPolicy
from volsched.core.scoring import rounded_mean
from volsched.core.status import Code, Status
from volsched.index.estimates import Ranked, bound_of, ranked_in, static_score
from volsched.index.groups import Group, Region, digest, greedy, groups, regions, sizes_of, split
from volsched.index.judging import Judge
from volsched.index.ranking import Ranking, Worth


@dataclass(slots=True)
class Plan:
    """How a region will be gone through: by its ranking, where it has one, or group by group."""

    region: Region
    ranked: Ranked | None
    proposed: dict[int, int] = field(default_factory=dict)
    """Score → the nodes that should have it, where there is no ranking."""
    unclear: list[Group] = field(default_factory=list)
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

    def remainder(self) -> list[Group]:
        """What was left out as long as some node might do: the nodes that serve, as one, and the hopeless."""
        if self.ranked is None:
            return []
        serving = self._all(Worth.SERVES)
        hopeless = self._all(Worth.HOPELESS)
        if self.ranked.others_are_hopeless:
            hopeless = self.region.mask & ~serving & ~self._all(Worth.UNCLEAR)
        kinds = ((Worth.SERVES, serving), (Worth.HOPELESS, hopeless))
        return [Group(self.region, mask, *self.ranked.place_of(None), key=kind) for kind, mask in kinds if mask]

    def others(self) -> int:
        """The nodes of which the ranking says nothing."""
        return self.region.mask & ~(self._all(Worth.SERVES) | self._all(Worth.UNCLEAR) | self._all(Worth.HOPELESS))

    def _all(self, worth: Worth) -> int:
        ranking = self.ranked.ranking if self.ranked is not None else Ranking()
        return reduce(or_, (mask for _, mask in ranking.masks(worth)), 0) & self.region.mask


@dataclass(slots=True)
class Search:
    judge: Judge
    best: Attempt | None = None
    refused: Counter[Status] = field(default_factory=Counter)
    """How many nodes each refusal stands for. Complete only where no node was found."""
    failed: tuple[str, Status] | None = None
    """The first node, by name, on which the rules met an error."""
    _verdicts: dict[tuple[Region, object], Verdict] = field(default_factory=dict)

    def run(self) -> None:
        nodes, question = self.judge.held.nodes, self.judge.question
        found = regions(question, nodes.everyone)
        plans = [self._plan(region) for region in found if region.mask & question.required]
        self._confirm(plans)
        self._settle([group for plan in plans for group in plan.unclear])
        if self.best is not None:
            return
        for plan in plans:
            for group in plan.remainder():
                self._look_at(group)
        for region in found:
            if not region.mask & question.required:
                self._count(self._plan(region))

    # --- plans ------------------------------------------------------------------------------------------

    def _plan(self, region: Region) -> Plan:
        question = self.judge.question
        plan = Plan(region, ranked_in(question, region, self.judge.profile))
        ranked = plan.ranked
        if ranked is None:
            for group in groups(question, region):
                score = self._estimate(group)
                if score is None:
                    plan.unclear.append(group)
                else:
                    plan.proposed[score] = plan.proposed.get(score, 0) | group.mask
            return plan
        for _, mask in ranked.ranking.masks(Worth.UNCLEAR):
            for stock, mine in split(mask & region.mask, ranked.census):
                plan.unclear.append(Group(region, mine, *ranked.place_of(stock)))
        if not ranked.others_are_hopeless and (others := plan.others()):
            plan.unclear.append(Group(region, others, *ranked.place_of(None)))
        return plan

    def _estimate(self, group: Group) -> int | None:
        """The score if greedy serves every claim with a volume, and nothing else is against the nodes."""
        question, profile = self.judge.question, self.judge.profile
        if profile.scoring is not ScoringPolicy.SEED or group.key is not None or not question.errands:
            return None
        if sum(len(errand.wants) for errand in question.errands) < len(question.claims.delayed):
            return None
        scores: list[int] = []
        for place, errand in enumerate(question.errands):
            if any(want.named_by for want in errand.wants):
                return None
            taken = greedy(errand, sizes_of(group, place))
            if taken is None:
                return None
            pairs = zip(errand.wants, taken, strict=True)
            scores += [static_score(profile, want.size, size) for want, size in pairs]
        return rounded_mean(scores)

    # --- proposals --------------------------------------------------------------------------------------

    def _confirm(self, plans: list[Plan]) -> None:
        """Have the best proposed node judged; where the estimate does not hold, go through the region instead."""
        nodes = self.judge.held.nodes
        for score in sorted({score for plan in plans for score in plan.scores()}, reverse=True):
            if self.best is not None:
                # Levels only go down, and within one the first node by name has been taken.
                return
            while union := reduce(or_, (plan.nodes_with(score) for plan in plans), 0):
                made = self.judge.ask(nodes.first(union))
                if made.chosen is not None and made.chosen.score == score:
                    self._offer(made)
                    break
                bit = nodes.mask_of(made.verdicts[0].node)
                self._distrust(next(plan for plan in plans if plan.region.mask & bit), made.verdicts[0])

    def _distrust(self, plan: Plan, verdict: Verdict) -> None:
        plan.trusted = False
        # Where its volumes are as estimated, what is against the node is against all that serve in its region.
        if plan.ranked is None or not verdict.answer.fits:
            plan.unclear, plan.ranked = list(groups(self.judge.question, plan.region)), None

    # --- everything else --------------------------------------------------------------------------------

    def _settle(self, unclear: list[Group]) -> None:
        """The most promising first, so that the others need not be looked at."""
        for _, _, group in sorted((-self._bound(group), place, group) for place, group in enumerate(unclear)):
            if not self._is_beaten(self._bound(group), group.mask):
                self._look_at(group)

    def _count(self, plan: Plan) -> None:
        """A region out of the question: all that is wanted is why."""
        if plan.ranked is None:
            plan.unclear = list(groups(self.judge.question, plan.region))
        for group in [*plan.unclear, *plan.remainder()]:
            self._look_at(group)

    def _look_at(self, group: Group) -> None:
        key = (group.region, self._digest(group))
        known = self._verdicts.get(key)
        if known is None or known.status.passed:
            made = self.judge.ask(self.judge.held.nodes.first(group.mask))
            known = self._verdicts[key] = made.verdicts[0]
            self._offer(made)
        if known.status.code is Code.ERROR:
            self._fail(group, known.status)
        elif not known.status.passed:
            self.refused[known.status] += group.mask.bit_count()

    def _digest(self, group: Group) -> object:
        question = self.judge.question
        if group.key is not None:
            return group.key
        found = tuple(
            digest(errand, sizes_of(group, place), limited=question.limited)
            for place, errand in enumerate(question.errands)
        )
        return found, group.rooms

    def _bound(self, group: Group) -> int:
        question = self.judge.question
        sizes = [sizes_of(group, place) for place in range(len(question.errands))]
        return bound_of(self.judge.profile, question, sizes)

    # --- what counts ------------------------------------------------------------------------------------

    def _is_beaten(self, score: int, rivals: int) -> bool:
        if self.best is None or self.best.chosen is None:
            return False
        mine = self.best.chosen
        if mine.score != score:
            return mine.score > score
        return mine.node <= self.judge.held.nodes.first(rivals).name

    def _offer(self, made: Attempt) -> None:
        if made.chosen is None:
            return
        mine = None if self.best is None else self.best.chosen
        if mine is None or (-made.chosen.score, made.chosen.node) < (-mine.score, mine.node):
            self.best = made

    def _fail(self, group: Group, status: Status) -> None:
        name = self.judge.held.nodes.first(group.mask).name
        if self.failed is None or name < self.failed[0]:
            self.failed = name, status
