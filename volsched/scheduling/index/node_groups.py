"""Groups of nodes that must get the same verdict, and estimates of their stock without calling the rules."""

from bisect import bisect_left
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache, reduce
from operator import itemgetter, or_

from volsched.kube.quantity import NANO, Quantity
from volsched.scheduling.index.node_sets import positions
from volsched.scheduling.index.pod_query import Errand, PodQuery
from volsched.scheduling.index.stock_ranks import Census, Estimate, Ranking, Stock, Worth
from volsched.scheduling.index.volume_index import Facts, Few, Rooms, Shape, Sizes
from volsched.scheduling.plugins.plugin import MAX_SCORE
from volsched.scheduling.rules.profile import Profile, ScoringPolicy
from volsched.scheduling.rules.scoring import (
    BEST_NEW_VOLUME,
    fit_score,
    new_volume_score,
    rounded_mean,
)

NOTHING = Census()


@dataclass(slots=True, eq=False)
class Region:
    """Nodes that differ only in what each has exclusively."""

    mask: int
    shared: tuple[Sizes, ...]
    """The volumes that all its nodes reach, per errand."""
    shared_rooms: bool
    """Whether some capacity object covers all its nodes."""


@dataclass(slots=True, eq=False)
class NodeGroup:
    region: Region
    mask: int
    stocks: tuple[Stock | None, ...] = ()
    """The nodes' exclusive volumes, per errand."""
    rooms: tuple[Stock | None, ...] = ()
    key: Hashable = None
    """Identifies the group's verdict if the contents of its nodes do not."""


def regions(question: PodQuery, everyone: int) -> list[Region]:
    return [_region(question, part) for part in _parts(everyone, question.masks)]


# The masks stay the same from pod to pod, until a node changes.
@lru_cache(maxsize=64)
def _parts(everyone: int, masks: tuple[int, ...]) -> tuple[int, ...]:
    """The nodes split into the largest sets that no mask divides."""
    parts = [everyone] if everyone else []
    for mask in dict.fromkeys(masks):
        halves = ((part & mask, part & ~mask) for part in parts)
        parts = [half for pair in halves for half in pair if half]
    return tuple(parts)


def _region(question: PodQuery, mask: int) -> Region:
    shared = []
    for errand in question.errands:
        # A domain is one of the masks, so a region has all of its nodes or none.
        reached = [few for domain, few in errand.shared.items() if mask & domain.mask]
        shared.append(reached[0].sizes if len(reached) == 1 else _merged(reached))
    rooms = [domain for held in question.rooms for domain in held.shared if mask & domain.mask]
    return Region(mask, tuple(shared), bool(rooms))


def _merged(reached: list[Few]) -> Sizes:
    # Sorted with their names, which decide between volumes of one size.
    rows = sorted([row for few in reached for row in few.rows])
    return tuple([(size, pool) for size, _, pool in rows])


def groups(question: PodQuery, region: Region) -> Iterator[NodeGroup]:
    """The region split by the nodes' own stocks and rooms."""
    if not any(errand.shelf.census.stocks for errand in question.errands) and not question.rooms:
        yield NodeGroup(region, region.mask, (None,) * len(question.errands))
        return
    parts = [NodeGroup(region, region.mask)]
    for errand in question.errands:
        useful = any(want.fitting for want in errand.wants)
        census = errand.shelf.census if useful else NOTHING
        parts = [
            NodeGroup(region, mask, (*part.stocks, stock), part.rooms)
            for part in parts
            for stock, mask in split(part.mask, census)
        ]
    for part_rooms in question.rooms:
        parts = [
            NodeGroup(region, mask, part.stocks, (*part.rooms, room))
            for part in parts
            for room, mask in split(part.mask, part_rooms.census)
        ]
    for part in parts:
        if _is_mixed(part):
            for position in positions(part.mask):
                yield NodeGroup(region, 1 << position, part.stocks, part.rooms, key=position)
        else:
            yield part


def alike_to(question: PodQuery, region: Region, position: int) -> int:
    """The nodes of the region with the same exclusive contents as the one at that position."""
    censuses = [it.shelf.census for it in question.errands if any(want.fitting for want in it.wants)]
    mask = region.mask
    for census in [*censuses, *(held.census for held in question.rooms)]:
        stock = census.stock_of.get(position)
        if stock is not None:
            mask &= stock.mask
        else:
            mask &= ~reduce(or_, (it.mask for it in census.stocks.values()), 0)
    return mask


def split(mask: int, census: Census) -> Iterator[tuple[Stock | None, int]]:
    """Split the nodes by stock, or one by one, whichever is less work."""
    if mask.bit_count() < len(census.stocks):
        parts: dict[Stock | None, int] = {}
        for position in positions(mask):
            stock = census.stock_of.get(position)
            parts[stock] = parts.get(stock, 0) | 1 << position
        yield from parts.items()
        return
    for stock in census.stocks.values():
        mine = mask & stock.mask
        if mine:
            mask ^= mine
            yield stock, mine
    if mask:
        yield None, mask


def _is_mixed(group: NodeGroup) -> bool:
    """Exclusive and shared volumes interleave by name, so no two nodes are equal."""
    if group.region.shared_rooms and any(group.rooms):
        return True
    for stock, shared in zip(group.stocks, group.region.shared, strict=True):
        if stock is not None and shared:
            pools: dict[int, set[int]] = {}
            for size, pool in shared:
                pools.setdefault(size, set()).add(pool)
            if any(pools.get(size, {pool}) != {pool} for size, pool in stock.content):
                return True
    return False


def sizes_of(group: NodeGroup, place: int) -> Sizes:
    """The volumes that the nodes of the group have for the errand at that place."""
    stock, shared = group.stocks[place], group.region.shared[place]
    if stock is None:
        return shared
    # By size alone, and stable: both are in serving order, and a tie involves only one pool.
    content: Sizes = stock.content
    return tuple(sorted([*content, *shared], key=itemgetter(0))) if shared else content


def greedy(shape: Shape, sizes: Sizes) -> list[int] | None:
    """The sizes that the wants get one after the other, each the smallest that fits; None if one gets none."""
    taken: list[int] = []
    given: list[int] = []
    end = len(sizes)
    for wanted, fitting in shape:
        at = bisect_left(sizes, (wanted,))
        while at < end and (at in given or sizes[at][1] not in fitting):
            at += 1
        if at == end:
            return None
        given.append(at)
        taken.append(sizes[at][0])
    return taken


def digest_of(question: PodQuery, group: NodeGroup) -> Hashable:
    """Groups of one region with the same digest are all refused, for the same reasons, or all fit."""
    if group.key is not None:
        return group.key
    limited = question.limited
    found = [_digest(it, sizes_of(group, place), limited=limited) for place, it in enumerate(question.errands)]
    return tuple(found), group.rooms


def _digest(errand: Errand, sizes: Sizes, *, limited: bool) -> tuple[int, ...]:
    """Which wants each volume may serve, in serving order: all that feasibility depends on.

    Of volumes that may serve the same wants (and take slots of the same driver) only as many as there are wants.
    """
    digest: list[int] = []
    count: dict[int, int] = {}
    for size, pool in sizes:
        serves = 0
        for place, want in enumerate(errand.wants):
            if size >= want.size and pool in want.fitting:
                serves |= 1 << place
        if serves:
            kind = serves | (pool + 1) << len(errand.wants) if limited else serves
            count[kind] = count.get(kind, 0) + 1
            if count[kind] <= len(errand.wants):
                digest.append(kind)
    return tuple(digest)


# Estimates of what a stock or room is worth to a pod, without calling the rules for any node.
#
# An estimate only proposes; the rules alone choose a node. Two invariants: a bound is never too low, and
# nothing feasible is called hopeless.


@dataclass(frozen=True, slots=True)
class Ranked:
    """A ranking of the nodes' exclusive stocks, or of their exclusive rooms."""

    census: Census
    ranking: Ranking
    by_rooms: bool
    rooms: int
    others_are_hopeless: bool
    """Whether nodes with nothing exclusive are refused like those with too little."""

    def place_of(self, stock: Stock | None) -> tuple[tuple[Stock | None, ...], tuple[Stock | None, ...]]:
        """The stock as the only exclusive content of a group's nodes."""
        if self.by_rooms:
            return (None,), (stock,)
        return (stock,), (None,) * self.rooms


def ranked_in(question: PodQuery, region: Region, profile: Profile) -> Ranked | None:
    """The ranking of the nodes' exclusive stocks or rooms, if nothing else distinguishes the nodes of the region.

    This requires claims of one class which all look for a volume, no shared storage and no attach limits.
    """
    if profile.scoring is not ScoringPolicy.CLOSEST_FIT or question.limited or len(question.errands) != 1:
        return None
    if profile.int64_sizes or not profile.joint_capacity:
        # These profiles calculate differently from the estimates below.
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
        # Room is useless where the class does not allow provisioning.
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
        # Claims that differ only in size are served one after the other or not at all.
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
            return Worth.SERVES, new_volume_score(most, free)
        return Worth.SERVES, rounded_mean([new_volume_score(size, free) for size in sizes])

    return rooms.census.ranking(exact, estimate, lambda: rooms.ladder.survey(estimate))


def best_scores(profile: Profile, errand: Errand, sizes: Sequence[tuple[int, int]]) -> list[int | None]:
    """The score of each want if it had the first choice; None: nothing fits."""
    scores: list[int | None] = []
    for want in errand.wants:
        size = next((size for size, pool in sizes if size >= want.size and pool in want.fitting), None)
        int64_sizes = profile.int64_sizes
        scores.append(None if size is None else static_score(want.size, size, int64_sizes=int64_sizes))
    return scores


def bound_of(profile: Profile, question: PodQuery, sizes: Sequence[Sequence[tuple[int, int]]]) -> int:
    """An upper bound of the score of any node with these volumes, per errand."""
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


# Every decision of a shape meets the same few volumes, whichever of equal ones the last one took.
@lru_cache(maxsize=4096)
def served_scores(shape: Shape, sizes: Sizes, *, int64_sizes: bool) -> tuple[int, ...] | None:
    """The scores if each claim gets the smallest remaining volume; None if one gets none."""
    taken = greedy(shape, sizes)
    if taken is None:
        return None
    pairs = zip(shape, taken, strict=True)
    return tuple(static_score(wanted, size, int64_sizes=int64_sizes) for (wanted, _), size in pairs)


def static_score(wanted: int, size: int, *, int64_sizes: bool) -> int:
    """The rules' score of one claim on one volume, for sizes in 10^-9 bytes."""
    return fit_score(_bytes(wanted, int64_sizes), _bytes(size, int64_sizes))


def _bytes(nano: int, int64_sizes: bool) -> int:
    return Quantity(nano).int64_value() if int64_sizes else -(-nano // NANO)
