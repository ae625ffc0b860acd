"""The best node for a pod, without judging them all.

Estimates propose nodes, best first; the rules judge the first of them, and only their word counts. Where there is
no estimate, one node is judged for every group of equal ones, and only while its group could still win. If no node
will do, every group is judged once, and its refusal counts for all its nodes.

Volumes decide between nodes of one level, those of equal worth in all other respects; between levels, the total.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import reduce
from itertools import islice
from operator import or_

from volsched.scheduling.index.estimates import bound_of
from volsched.scheduling.index.node_groups import NodeGroup, Region, alike_to, digest_of, groups, regions, sizes_of
from volsched.scheduling.index.node_sets import Turns, is_single, positions
from volsched.scheduling.index.node_verdict import Judge
from volsched.scheduling.index.prefilter import Prefilter, score_of
from volsched.scheduling.index.search_plan import SearchPlan, plan_of
from volsched.scheduling.rules.cycle import EXAMPLES, VOLUME_BINDING, Attempt, RunnerUp, Verdict, no_node
from volsched.scheduling.rules.status import Code, Status

RUNNERS_UP = 3


@dataclass(slots=True)
class NodeSearch:
    judge: Judge
    standing: Prefilter
    turns: Turns
    best: tuple[int, Verdict] | None = None
    """What it is worth in all, and its verdict as far as volumes go."""
    refused: dict[Status, int] = field(default_factory=dict)
    """The nodes that each refusal stands for. Complete only where no node was found."""
    rejectors: set[str] = field(default_factory=set)
    failed: tuple[str, Status] | None = None
    """The first node, by name, on which the rules met an error."""
    _fitting: list[tuple[int, int]] = field(default_factory=list)
    """(score of the volumes, nodes) of the groups that were judged and do."""
    _plans: list[SearchPlan] = field(default_factory=list)
    _steps: dict[int, list[tuple[int, int]]] = field(default_factory=dict)
    """Total → the scores of volumes that give it, each with the level in which it does."""
    _unions: dict[int, int] = field(default_factory=dict)
    """Total → the nodes that should have it, of the plans that are trusted."""
    _beaten: list[tuple[int, int, NodeGroup]] = field(default_factory=list)
    """Groups that need not be judged to find the best, each with the most that its nodes in the mask can be worth;
    the most promising first."""
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
            self._refuse(refused.status, refused.mask, refused.plugin)

    def refusal(self) -> Attempt:
        """The attempt where no node will do: every reason with its nodes counted, and the first of them named."""
        nodes = self.judge.held.nodes
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
        """The attempt with the best node, if there is one: its verdict with all that counts, and who came next."""
        assert self.best is not None
        total, found = self.best
        bit = self.judge.held.nodes.mask_of(found.node)
        chosen = found
        if self.standing.scores:
            scores = {**self.standing.scores_of(bit), **found.scores}
            chosen = Verdict(found.node, found.status, found.answer, score_of(total), scores=scores)
        return Attempt(
            status=found.status,
            claims=self.judge.question.claims,
            verdicts=(chosen,),
            chosen=chosen,
            runners_up=self._runners_up(bit),
        )

    def _runners_up(self, chosen: int) -> tuple[RunnerUp, ...]:
        """The next best. Groups that could not win are judged as long as they might come before those known."""
        found = self._next_best(chosen)
        for bound, mask, group in self._beaten:
            if len(found) == RUNNERS_UP:
                total, name = found[-1]
                if total > bound:
                    break
                if total == bound and not self._goes_first(mask, name):
                    continue
            self._look_at(group, mask)
            found = self._next_best(chosen)
        return tuple([RunnerUp(name, score_of(total)) for total, name in found])

    def _next_best(self, chosen: int) -> list[tuple[int, str]]:
        """The best of those of which something is known, so that hardly anybody is judged for the sake of it."""
        found: list[tuple[int, str]] = []
        known = self._checked(chosen) if self.judge.question.limited else self._known()
        for total, mask in known:
            for node in islice(self.turns.in_turn(mask & ~chosen), RUNNERS_UP - len(found)):
                found.append((total, node.name))
            if len(found) == RUNNERS_UP:
                break
        return found

    def _known(self) -> Iterator[tuple[int, int]]:
        """By total, the highest first, the nodes that were judged or proposed."""
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
        """The same where attach limits may belie an estimate that nobody has checked: then the rules are asked.

        What a node is not worth, none of those is that are like it; they come again with what they are worth.
        """
        nodes, known = self.judge.held.nodes, self._judged()
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
        """Have the best proposed node judged; where the estimate does not hold, go through the region instead."""
        nodes, weight = self.judge.held.nodes, self.judge.profile.volume_weight
        for score in {score for plan in plans for score in plan.scores()}:
            for worth, level in self.standing.levels:
                self._steps.setdefault(worth + weight * score, []).append((score, level))
        for total in sorted(self._steps, reverse=True):
            # Totals only go down, and of one total the first node by name is taken.
            while union := self._proposed(total):
                verdict = self.judge.ask(self.turns.first(union))
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

    def _distrust(self, plan: SearchPlan, verdict: Verdict) -> None:
        plan.trusted = False
        self._unions.clear()
        # Where its volumes are as estimated, what is against the node is against all that serve in its region.
        if plan.ranked is None or not verdict.answer.fits:
            plan.unclear, plan.ranked = list(groups(self.judge.question, plan.region)), None

    # --- everything else --------------------------------------------------------------------------------

    def _settle(self, unclear: list[NodeGroup]) -> None:
        """The most promising first, so that the others need not be looked at.

        Of a group, whose volumes are alike, only the nodes of its highest level can win.
        """
        weight, entries = self.judge.profile.volume_weight, []
        for place, (group, (worth, level)) in enumerate(zip(unclear, self._highest(unclear), strict=True)):
            entries.append((-worth - weight * self._bound(group), place, group.mask & level, group))
        for bound, _, mask, group in sorted(entries, key=lambda entry: entry[:2]):
            if self._is_beaten(-bound, mask):
                self._beaten.append((-bound, mask, group))
            else:
                self._look_at(group, mask)

    def _highest(self, unclear: list[NodeGroup]) -> list[tuple[int, int]]:
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

    def _count(self, plan: SearchPlan) -> None:
        """A region out of the question: all that is wanted is why."""
        if plan.ranked is None:
            plan.unclear = list(groups(self.judge.question, plan.region))
        for group in [*plan.unclear, *plan.remainder()]:
            self._look_at(group)

    def _look_at(self, group: NodeGroup, mask: int = 0) -> None:
        """`mask`: those of its nodes that may win; none where the group is only counted."""
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
        """The volumes of these nodes would do; whoever refuses them comes after the volumes."""
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

    # --- what counts ------------------------------------------------------------------------------------

    def _is_beaten(self, total: int, rivals: int) -> bool:
        if self.best is None:
            return False
        mine, chosen = self.best
        return mine > total if mine != total else not self._goes_first(rivals, chosen.node)

    def _goes_first(self, rivals: int, name: str) -> bool:
        """One of the rivals, who are all as good, goes before the node of that name."""
        return self.turns.turn_of(self.turns.first(rivals).name) < self.turns.turn_of(name)

    def _offer(self, verdict: Verdict) -> None:
        total = self._total(verdict)
        if total is None:
            return
        turn_of = self.turns.turn_of
        if self.best is None or (-total, turn_of(verdict.node)) < (-self.best[0], turn_of(self.best[1].node)):
            self.best = total, verdict

    def _total(self, verdict: Verdict) -> int | None:
        """What a node is worth in all; None: nothing, it is refused."""
        if not verdict.status.passed:
            return None
        return verdict.score + self.standing.total(self.judge.held.nodes.mask_of(verdict.node))

    def _fail(self, group: NodeGroup, status: Status) -> None:
        name = next(self.judge.held.nodes.by_name(group.mask)).name
        if self.failed is None or name < self.failed[0]:
            self.failed = name, status
