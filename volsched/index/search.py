"""The best node for a pod, without judging them all.

Estimates propose nodes, best first; the rules judge the first of them, and only their word counts. Where there is
no estimate, one node is judged for every group of equal ones, and only while its group could still win. If no node
will do, every group is judged once, and its refusal counts for all its nodes.

Volumes decide between nodes of one level, those of equal worth in all other respects; between levels, the total.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice

from volsched.core.cycle import VOLUME_BINDING, Attempt, RunnerUp, Verdict
from volsched.core.status import Code, Status
from volsched.index.estimates import bound_of
from volsched.index.groups import Group, Region, digest_of, groups, regions, sizes_of
from volsched.index.judging import Judge
from volsched.index.nodes import is_single, positions
from volsched.index.plans import Plan, plan_of
from volsched.index.standing import Standing
from volsched.model.workloads import Node

RUNNERS_UP = 3


@dataclass(slots=True)
class Search:
    judge: Judge
    standing: Standing
    best: tuple[int, Verdict] | None = None
    """What it is worth in all, and its verdict as far as volumes go."""
    refused: Counter[Status] = field(default_factory=Counter)
    """How many nodes each refusal stands for. Complete only where no node was found."""
    rejectors: set[str] = field(default_factory=set)
    failed: tuple[str, Status] | None = None
    """The first node, by name, on which the rules met an error."""
    _fitting: list[tuple[int, int]] = field(default_factory=list)
    """(score of the volumes, nodes) of the groups that were judged and do."""
    _plans: list[Plan] = field(default_factory=list)
    _steps: dict[int, list[tuple[int, int]]] = field(default_factory=dict)
    """Total → the scores of volumes that give it, each with the level in which it does."""
    _unions: dict[int, int] = field(default_factory=dict)
    """Total → the nodes that should have it, of the plans that are trusted."""
    _verdicts: dict[tuple[Region, object], Verdict] = field(default_factory=dict)

    def run(self) -> None:
        question, standing = self.judge.question, self.standing
        found = regions(question, standing.passed)
        profile = self.judge.profile
        possible = [region for region in found if region.mask & question.required]
        plans = self._plans = [plan_of(question, region, profile) for region in possible]
        self._confirm(plans)
        unclear = [group for plan in plans for group in plan.unclear]
        if unclear:
            self._settle(unclear)
        if self.best is not None:
            return
        for plan in plans:
            for group in plan.remainder():
                self._look_at(group)
        for region in found:
            if not region.mask & question.required:
                self._count(plan_of(question, region, profile))
        for region in regions(question, standing.reached & ~standing.passed):
            self._count(plan_of(question, region, profile))
        for refused in standing.before:
            self.refused[refused.status] += refused.mask.bit_count()
            self.rejectors.add(refused.plugin)

    def answer(self) -> Attempt:
        """The attempt with the best node, if there is one: its verdict with all that counts, and who came next."""
        assert self.best is not None
        total, found = self.best
        bit = self.judge.held.nodes.mask_of(found.node)
        chosen = found
        if self.standing.scores:
            scores = {**self.standing.scores_of(bit), **found.scores}
            chosen = Verdict(found.node, found.status, found.answer, total, scores=scores)
        return Attempt(
            status=found.status,
            claims=self.judge.question.claims,
            verdicts=(chosen,),
            chosen=chosen,
            runners_up=self._runners_up(bit),
        )

    def _runners_up(self, chosen: int) -> tuple[RunnerUp, ...]:
        """The best of those of which something is known, so that hardly anybody is judged for the sake of it.

        Only attach limits can belie an estimate that nobody has checked: then the rules are asked, a few times.
        """
        known: list[tuple[Node, int]] = []
        for total, mask in self._known():
            nodes = self.judge.held.nodes.by_name(mask & ~chosen)
            known += [(node, total) for node in islice(nodes, RUNNERS_UP - len(known))]
            if len(known) == RUNNERS_UP:
                break
        if not self.judge.question.limited:
            return tuple([RunnerUp(node.name, total) for node, total in known])
        asked = [(node, self._total(self.judge.ask(node))) for node, _ in known]
        found = [RunnerUp(node.name, total) for node, total in asked if total is not None]
        return tuple(sorted(found, key=lambda it: (-it.score, it.node)))

    def _known(self) -> Iterator[tuple[int, int]]:
        """By total, the highest first, the nodes that were judged or proposed."""
        weight, judged = self.judge.profile.volume_weight, dict[int, int]()
        for score, mask in self._fitting:
            for worth, level in self.standing.levels:
                if mask & level:
                    total = worth + weight * score
                    judged[total] = judged.get(total, 0) | mask & level
        for total in sorted({*judged, *self._steps}, reverse=True):
            yield total, judged.get(total, 0) | self._proposed(total)

    # --- proposals --------------------------------------------------------------------------------------

    def _confirm(self, plans: list[Plan]) -> None:
        """Have the best proposed node judged; where the estimate does not hold, go through the region instead."""
        nodes, weight = self.judge.held.nodes, self.judge.profile.volume_weight
        for score in {score for plan in plans for score in plan.scores()}:
            for worth, level in self.standing.levels:
                self._steps.setdefault(worth + weight * score, []).append((score, level))
        for total in sorted(self._steps, reverse=True):
            # Totals only go down, and of one total the first node by name is taken.
            while union := self._proposed(total):
                verdict = self.judge.ask(nodes.first(union))
                if self._total(verdict) == total:
                    self._offer(verdict)
                    return
                bit = nodes.mask_of(verdict.node)
                self._distrust(next(plan for plan in plans if plan.region.mask & bit), verdict)

    def _proposed(self, total: int) -> int:
        """The nodes that should have the total."""
        found = self._unions.get(total)
        if found is None:
            found = 0
            for score, level in self._steps.get(total, ()):
                for plan in self._plans:
                    found |= plan.nodes_with(score) & level
            self._unions[total] = found
        return found

    def _distrust(self, plan: Plan, verdict: Verdict) -> None:
        plan.trusted = False
        self._unions.clear()
        # Where its volumes are as estimated, what is against the node is against all that serve in its region.
        if plan.ranked is None or not verdict.answer.fits:
            plan.unclear, plan.ranked = list(groups(self.judge.question, plan.region)), None

    # --- everything else --------------------------------------------------------------------------------

    def _settle(self, unclear: list[Group]) -> None:
        """The most promising first, so that the others need not be looked at.

        Of a group, whose volumes are alike, only the nodes of its highest level can win.
        """
        weight, entries = self.judge.profile.volume_weight, []
        for place, (group, (worth, level)) in enumerate(zip(unclear, self._highest(unclear), strict=True)):
            entries.append((-worth - weight * self._bound(group), place, group.mask & level, group))
        for bound, _, mask, group in sorted(entries, key=lambda entry: entry[:2]):
            if not self._is_beaten(-bound, mask):
                self._look_at(group, mask)

    def _highest(self, unclear: list[Group]) -> list[tuple[int, int]]:
        """The highest level in which each group has nodes."""
        levels = self.standing.levels
        if len(levels) == 1:
            return levels * len(unclear)
        by_position: dict[int, tuple[int, int]] = {}
        if len(unclear) * len(levels) > 2 * self.standing.passed.bit_count():
            by_position = {position: entry for entry in levels for position in positions(entry[1])}
        found = []
        for group in unclear:
            if by_position and is_single(group.mask):
                found.append(by_position[group.mask.bit_length() - 1])
            else:
                found.append(next(entry for entry in levels if entry[1] & group.mask))
        return found

    def _count(self, plan: Plan) -> None:
        """A region out of the question: all that is wanted is why."""
        if plan.ranked is None:
            plan.unclear = list(groups(self.judge.question, plan.region))
        for group in [*plan.unclear, *plan.remainder()]:
            self._look_at(group)

    def _look_at(self, group: Group, mask: int = 0) -> None:
        """`mask`: those of its nodes that may win; none where the group is only counted."""
        key = (group.region, digest_of(self.judge.question, group))
        known = self._verdicts.get(key)
        if known is None or known.status.passed:
            known = self._verdicts[key] = self.judge.ask(self.judge.held.nodes.first(mask or group.mask))
            if known.status.passed and group.mask & self.standing.passed:
                self._fitting.append((known.scores.get(VOLUME_BINDING, 0), group.mask))
                self._offer(known)
        if known.status.code is Code.ERROR:
            self._fail(group, known.status)
        elif not known.status.passed:
            self.refused[known.status] += group.mask.bit_count()
            self.rejectors.add(known.plugin)
        else:
            self._refuse_after(group.mask)

    def _refuse_after(self, mask: int) -> None:
        """The volumes of these nodes would do; whoever refuses them comes after the volumes."""
        for refused in self.standing.after:
            if refused.mask & mask:
                self.refused[refused.status] += (refused.mask & mask).bit_count()
                self.rejectors.add(refused.plugin)

    def _bound(self, group: Group) -> int:
        question = self.judge.question
        sizes = [sizes_of(group, place) for place in range(len(question.errands))]
        return bound_of(self.judge.profile, question, sizes)

    # --- what counts ------------------------------------------------------------------------------------

    def _is_beaten(self, total: int, rivals: int) -> bool:
        if self.best is None:
            return False
        mine, chosen = self.best
        return mine > total if mine != total else chosen.node <= self.judge.held.nodes.first(rivals).name

    def _offer(self, verdict: Verdict) -> None:
        total = self._total(verdict)
        if total is None:
            return
        if self.best is None or (-total, verdict.node) < (-self.best[0], self.best[1].node):
            self.best = total, verdict

    def _total(self, verdict: Verdict) -> int | None:
        """What a node is worth in all; None: nothing, it is refused."""
        if not verdict.status.passed:
            return None
        return verdict.score + self.standing.total(self.judge.held.nodes.mask_of(verdict.node))

    def _fail(self, group: Group, status: Status) -> None:
        name = self.judge.held.nodes.first(group.mask).name
        if self.failed is None or name < self.failed[0]:
            self.failed = name, status
