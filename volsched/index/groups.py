"""Groups of nodes that must get the same verdict: equal in every set of nodes that matters, with equal stocks."""

from bisect import bisect_left
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from operator import itemgetter

from volsched.index.nodes import positions
from volsched.index.question import Errand, Question
from volsched.index.ranking import Census, Stock

Sizes = list[tuple[int, int]]
"""(size, pool) in serving order."""
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
class Group:
    region: Region
    mask: int
    stocks: tuple[Stock | None, ...] = ()
    """Per errand."""
    rooms: tuple[Stock | None, ...] = ()
    key: Hashable = None
    """What its verdict is known by, where that is not what its nodes have."""


def regions(question: Question, everyone: int) -> list[Region]:
    parts = [everyone] if everyone else []
    for mask in dict.fromkeys(question.masks):
        halves = ((part & mask, part & ~mask) for part in parts)
        parts = [half for pair in halves for half in pair if half]
    return [_region(question, part) for part in parts]


def _region(question: Question, mask: int) -> Region:
    shared = []
    for errand in question.errands:
        # Sorted with their names, which decide between volumes of one size.
        reached = sorted(row for domain, rows in errand.shared.items() if not mask & ~domain.mask for row in rows)
        shared.append([(size, pool) for size, _, pool in reached])
    rooms = any(not mask & ~domain.mask for held in question.rooms for domain in held.shared)
    return Region(mask, tuple(shared), rooms)


def groups(question: Question, region: Region) -> Iterator[Group]:
    """The region split by the nodes' own stocks and rooms."""
    parts = [Group(region, region.mask)]
    for errand in question.errands:
        useful = any(want.fitting for want in errand.wants)
        census = errand.shelf.census if useful else NOTHING
        parts = [
            Group(region, mask, (*part.stocks, stock), part.rooms)
            for part in parts
            for stock, mask in split(part.mask, census)
        ]
    for held in question.rooms:
        parts = [
            Group(region, mask, part.stocks, (*part.rooms, room))
            for part in parts
            for room, mask in split(part.mask, held.census)
        ]
    for part in parts:
        if _is_mixed(part):
            for position in positions(part.mask):
                yield Group(region, 1 << position, part.stocks, part.rooms, key=position)
        else:
            yield part


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


def _is_mixed(group: Group) -> bool:
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


def sizes_of(group: Group, place: int) -> Sequence[tuple[int, int]]:
    """What the nodes of the group have for the errand at that place."""
    stock, shared = group.stocks[place], group.region.shared[place]
    if stock is None:
        return shared
    # By size alone, and stable: both are in serving order, and where they tie, only one pool is involved.
    return sorted([*stock.content, *shared], key=itemgetter(0)) if shared else stock.content


def greedy(errand: Errand, sizes: Sequence[tuple[int, int]]) -> list[int] | None:
    """The sizes that the wants get one after the other, each the smallest that fits; None if one gets none."""
    taken: list[int] = []
    given: list[int] = []
    end = len(sizes)
    for want in errand.wants:
        fitting = want.fitting
        at = bisect_left(sizes, (want.size,))
        while at < end and (at in given or sizes[at][1] not in fitting):
            at += 1
        if at == end:
            return None
        given.append(at)
        taken.append(sizes[at][0])
    return taken


def digest(errand: Errand, sizes: Sequence[tuple[int, int]], *, limited: bool) -> tuple[int, ...]:
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
