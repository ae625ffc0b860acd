"""How a region of nodes will be gone through in search of the best: by its ranking, or group by group."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import reduce
from operator import or_

from volsched.scheduling.index.estimates import Ranked, ranked_in, served_scores
from volsched.scheduling.index.node_groups import NodeGroup, Region, groups, sizes_of, split
from volsched.scheduling.index.pod_query import PodQuery
from volsched.scheduling.index.stock_ranks import Ranking, Worth
from volsched.scheduling.rules.profile import Profile, ScoringPolicy
from volsched.scheduling.rules.scoring import rounded_mean


@dataclass(slots=True)
class SearchPlan:
    """How a region will be gone through: by its ranking, where it has one, or group by group."""

    region: Region
    ranked: Ranked | None
    proposed: dict[int, int] = field(default_factory=dict)
    """Score → the nodes that should have it, where there is no ranking."""
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
        """What was left out as long as some node might do: the nodes that serve, as one, and the hopeless."""
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
        """The nodes of which the ranking says nothing."""
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
    """The score if greedy serves every claim with a volume, and nothing else is against the nodes."""
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
