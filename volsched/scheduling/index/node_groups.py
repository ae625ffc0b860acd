"""Groups of nodes that must get the same verdict: equal in every set of nodes that matters, with equal stocks."""

from bisect import bisect_left
from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from functools import lru_cache, reduce
from operator import itemgetter, or_

from volsched.scheduling.index.node_sets import positions
from volsched.scheduling.index.pod_query import Errand, PodQuery
from volsched.scheduling.index.shared_volumes import Few, Shape, Sizes
from volsched.scheduling.index.stock_ranks import Census, Stock

NOTHING = Census()
Digest = tuple[tuple[int, ...], ...]


@dataclass(slots=True, eq=False)
class Region:
    """Nodes that only differ in what each has for itself alone."""

    mask: int
    shared: tuple[Sizes, ...]
    """Per errand, the volumes that all its nodes reach."""
    shared_rooms: bool
    """Some capacity object speaks for all its nodes."""


@dataclass(slots=True, eq=False)
class NodeGroup:
    region: Region
    mask: int
    stocks: tuple[Stock | None, ...] = ()
    """Per errand."""
    rooms: tuple[Stock | None, ...] = ()
    key: Hashable = None
    """What its verdict is known by, where that is not what its nodes have."""


def regions(question: PodQuery, everyone: int) -> list[Region]:
    return [_region(question, part) for part in _parts(everyone, question.masks)]


# The sets that tell nodes apart are the same for one pod after the other, until a node changes.
@lru_cache(maxsize=64)
def _parts(everyone: int, masks: tuple[int, ...]) -> tuple[int, ...]:
    """All sets of nodes that no mask divides."""
    parts = [everyone] if everyone else []
    for mask in dict.fromkeys(masks):
        halves = ((part & mask, part & ~mask) for part in parts)
        parts = [half for pair in halves for half in pair if half]
    return tuple(parts)


def _region(question: PodQuery, mask: int) -> Region:
    shared = []
    for errand in question.errands:
        # Of a domain, which is one of the masks, a region has all nodes or none.
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
    for held in question.rooms:
        parts = [
            NodeGroup(region, mask, part.stocks, (*part.rooms, room))
            for part in parts
            for room, mask in split(part.mask, held.census)
        ]
    for part in parts:
        if _is_mixed(part):
            for position in positions(part.mask):
                yield NodeGroup(region, 1 << position, part.stocks, part.rooms, key=position)
        else:
            yield part


def alike_to(question: PodQuery, region: Region, position: int) -> int:
    """The nodes of the region that have the same of their own as the one at that position."""
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
    """By stock, or node by node, whichever is less work."""
    if mask.bit_count() < len(census.stocks):
        found: dict[Stock | None, int] = {}
        for position in positions(mask):
            stock = census.stock_of.get(position)
            found[stock] = found.get(stock, 0) | 1 << position
        yield from found.items()
        return
    for stock in census.stocks.values():
        mine = mask & stock.mask
        if mine:
            mask ^= mine
            yield stock, mine
    if mask:
        yield None, mask


def _is_mixed(group: NodeGroup) -> bool:
    """What nodes have of their own comes between what they share as names will have it: no two are equal."""
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
    """What the nodes of the group have for the errand at that place."""
    stock, shared = group.stocks[place], group.region.shared[place]
    if stock is None:
        return shared
    # By size alone, and stable: both are in serving order, and where they tie, only one pool is involved.
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
    """Groups of one region with the same digest are all refused, for the same reasons, or all of them will do."""
    if group.key is not None:
        return group.key
    limited = question.limited
    found = [_digest(it, sizes_of(group, place), limited=limited) for place, it in enumerate(question.errands)]
    return tuple(found), group.rooms


def _digest(errand: Errand, sizes: Sizes, *, limited: bool) -> tuple[int, ...]:
    """Which wants each volume may serve, in serving order: all that feasibility depends on.

    Of volumes that may serve the same wants (and take slots of the same driver) only as many as there are wants.
    """
    found: list[int] = []
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
                found.append(kind)
    return tuple(found)
