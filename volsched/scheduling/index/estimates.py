"""What a stock or room is worth to a pod, estimated without asking the rules about any node.

An estimate only proposes: a node is chosen on the word of the rules alone. What must hold of it is that a bound is
never too low and that nothing is called hopeless that is not.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from volsched.kube.quantity import NANO, Quantity
from volsched.scheduling.index.capacity_index import Facts, Rooms
from volsched.scheduling.index.node_groups import Region, greedy
from volsched.scheduling.index.pod_query import Errand, PodQuery
from volsched.scheduling.index.shared_volumes import Shape, Sizes
from volsched.scheduling.index.stock_ranks import Census, Estimate, Ranking, Stock, Worth
from volsched.scheduling.rules.profile import Profile, ScoringPolicy
from volsched.scheduling.rules.scoring import (
    BEST_NEW_VOLUME,
    MAX_SCORE,
    NEW_VOLUME_SCORES,
    fit_score,
    rounded_mean,
    utilization,
)


@dataclass(frozen=True, slots=True)
class Ranked:
    """A ranking of the nodes' own stocks, or of their own rooms."""

    census: Census
    ranking: Ranking
    by_rooms: bool
    rooms: int
    others_are_hopeless: bool
    """Nodes that have nothing of their own are refused like those that have too little."""

    def place_of(self, stock: Stock | None) -> tuple[tuple[Stock | None, ...], tuple[Stock | None, ...]]:
        """The stock as the only thing that a group's nodes have of their own."""
        if self.by_rooms:
            return (None,), (stock,)
        return (stock,), (None,) * self.rooms


def ranked_in(question: PodQuery, region: Region, profile: Profile) -> Ranked | None:
    """The ranking of the nodes' own stocks or rooms, where they alone tell the nodes of the region apart.

    That takes claims of one class which all look for a volume, and nothing that nodes share or attach limits add.
    """
    if profile.scoring is not ScoringPolicy.CLOSEST_FIT or question.limited or len(question.errands) != 1:
        return None
    if profile.int64_sizes or not profile.joint_capacity:
        # Other arithmetic than that of the estimates below.
        return None
    errand = question.errands[0]
    if not question.plain or region.shared[0] or region.shared_rooms:
        return None
    stocked = bool(errand.shelf.census.stocks) and any(want.fitting for want in errand.wants)
    roomy = [rooms for rooms in question.rooms if rooms.census.stocks]
    if stocked and not roomy:
        ranking = _stock_ranking(errand, question.provisionable, bool(question.rooms), profile)
        return Ranked(errand.shelf.census, ranking, False, len(question.rooms), not question.provisionable)
    if roomy and not stocked and all("storage" in want.claim.requests for want in errand.wants):
        # Room is of no use where the class does not allow it.
        inside = region.mask & question.allowed
        ranking = _room_ranking(errand, roomy[0], profile) if inside else Ranking()
        return Ranked(roomy[0].census, ranking, True, 1, True)
    return None


def _stock_ranking(errand: Errand, provisionable: bool, publishes: bool, profile: Profile) -> Ranking:
    wanted, provision = errand.shape, BEST_NEW_VOLUME if publishes else 0
    sizes = [-(-want.size // NANO) for want in errand.wants]

    def estimate(stock: Stock) -> Estimate:
        taken = greedy(wanted, stock.content)
        if taken is not None:
            if len(taken) == 1:
                return Worth.SERVES, fit_score(sizes[0], -(-taken[0] // NANO))
            scores = [fit_score(want, -(-size // NANO)) for want, size in zip(sizes, taken, strict=True)]
            return Worth.SERVES, rounded_mean(scores)
        best = best_scores(profile, errand, stock.content)
        # Claims that may use the same volumes, but for size, are served one after the other or not at all.
        if not provisionable and (None in best or len({fitting for _, fitting in wanted}) == 1):
            return Worth.HOPELESS, 0
        return Worth.UNCLEAR, rounded_mean([provision if score is None else score for score in best])

    return errand.shelf.census.ranking((wanted, provisionable, publishes), estimate)


def _room_ranking(errand: Errand, rooms: Rooms, profile: Profile) -> Ranking:
    sizes = tuple(_bytes(want.size, profile.int64_sizes) for want in errand.wants)
    exact = tuple(-(-want.size // NANO) for want in errand.wants)
    most, whole = max(sizes), sum(exact)

    def estimate(stock: Stock) -> Estimate:
        if len(stock.content) > 1:
            return Worth.UNCLEAR, BEST_NEW_VOLUME
        facts: Facts = stock.content[0]
        total, largest, reserved = facts
        limit = total if largest is None else largest
        if limit is None or limit < most:
            return Worth.HOPELESS, 0
        if total is not None and whole > max(total, limit) - reserved:
            return Worth.HOPELESS, 0
        free = limit if total is None else total
        if len(sizes) == 1:
            return Worth.SERVES, NEW_VOLUME_SCORES[utilization(most, free)]
        return Worth.SERVES, rounded_mean([NEW_VOLUME_SCORES[utilization(size, free)] for size in sizes])

    return rooms.census.ranking(exact, estimate, lambda: rooms.ladder.survey(estimate))


def best_scores(profile: Profile, errand: Errand, sizes: Sequence[tuple[int, int]]) -> list[int | None]:
    """Per want, the score if it had the first choice; None: there is nothing for it."""
    found: list[int | None] = []
    for want in errand.wants:
        size = next((size for size, pool in sizes if size >= want.size and pool in want.fitting), None)
        int64_sizes = profile.int64_sizes
        found.append(None if size is None else static_score(want.size, size, int64_sizes=int64_sizes))
    return found


def bound_of(profile: Profile, question: PodQuery, sizes: Sequence[Sequence[tuple[int, int]]]) -> int:
    """No node with these volumes, per errand, scores higher."""
    if profile.scoring is not ScoringPolicy.CLOSEST_FIT:
        return MAX_SCORE
    provision = BEST_NEW_VOLUME if question.rooms else 0
    waiting = sum(len(errand.wants) for errand in question.errands)
    scores = [provision] * (len(question.claims.delayed) - waiting)
    for errand, mine in zip(question.errands, sizes, strict=True):
        for want, score in zip(errand.wants, best_scores(profile, errand, mine), strict=True):
            named = MAX_SCORE if want.named_by else provision
            scores.append(named if score is None or want.named_by else score)
    return rounded_mean(scores)


# The same few volumes are met at every decision of a shape, whichever of equal ones was taken by the last.
@lru_cache(maxsize=4096)
def served_scores(shape: Shape, sizes: Sizes, *, int64_sizes: bool) -> tuple[int, ...] | None:
    """The scores of claims of which each gets the smallest volume that is left; None if one gets none."""
    taken = greedy(shape, sizes)
    if taken is None:
        return None
    pairs = zip(shape, taken, strict=True)
    return tuple(static_score(wanted, size, int64_sizes=int64_sizes) for (wanted, _), size in pairs)


def static_score(wanted: int, size: int, *, int64_sizes: bool) -> int:
    """The rules' score of one claim on one volume, of sizes in 10^-9 bytes."""
    return fit_score(_bytes(wanted, int64_sizes), _bytes(size, int64_sizes))


def _bytes(nano: int, int64_sizes: bool) -> int:
    return Quantity(nano).int64_value() if int64_sizes else -(-nano // NANO)
