"""Rooms: the capacity objects of one class, by the nodes that they speak for.

As with volumes, what speaks for one node alone is the node's own, and nodes with equal rooms are equal.
"""

from bisect import bisect_left, insort
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import reduce
from operator import or_

from volsched.kube.storage import StorageCapacity
from volsched.scheduling.index.domains import Domain
from volsched.scheduling.index.node_sets import is_single
from volsched.scheduling.index.stock_ranks import Census, Estimate, Stock

Order = tuple[str, str]
"""Namespace and name: the order in which capacity objects are tried."""
Facts = tuple[int | None, int | None, int]
"""Capacity, largest volume and what is reserved, in bytes: the rules compare nothing finer here."""


@dataclass(slots=True)
class Ladder:
    """The stocks of which only the capacity counts, the smallest first: the more there is, the better.

    A new shape of pod finds the few steps where its score changes, instead of looking at thousands of sizes.
    """

    stocks: list[Stock] = field(default_factory=list)
    others: dict[Stock, None] = field(default_factory=dict)
    """Those of which more counts, such as what is reserved."""
    _totals: list[int] = field(default_factory=list)

    def add(self, stock: Stock) -> None:
        total = _plain_total(stock)
        if total is None:
            self.others[stock] = None
        else:
            rank = bisect_left(self._totals, total)
            self._totals.insert(rank, total)
            self.stocks.insert(rank, stock)

    def drop(self, stock: Stock) -> None:
        total = _plain_total(stock)
        if total is None:
            del self.others[stock]
        else:
            # A capacity may be there twice, with a largest volume that says the same and without.
            rank = self.stocks.index(stock, bisect_left(self._totals, total))
            del self._totals[rank], self.stocks[rank]

    def survey(self, estimate: Callable[[Stock], Estimate]) -> Iterator[tuple[Estimate, int]]:
        """Every estimate with the nodes that have it. `estimate` must not go down as capacity goes up."""
        for stock in self.others:
            yield estimate(stock), stock.mask
        start, end = 0, len(self.stocks)
        while start < end:
            worth = estimate(self.stocks[start])
            stop = bisect_left(self.stocks, True, start + 1, end, key=lambda stock: estimate(stock) != worth)
            yield worth, reduce(or_, [stock.mask for stock in self.stocks[start:stop]])
            start = stop


def _plain_total(stock: Stock) -> int | None:
    total, largest, reserved = stock.content[0]
    known: int | None = total
    return known if len(stock.content) == 1 and largest in (None, total) and not reserved else None


@dataclass(slots=True)
class Rooms:
    objects: Mapping[str, StorageCapacity]
    reserved: Mapping[str, int]
    own: dict[int, list[Order]] = field(default_factory=dict)
    census: Census = field(default_factory=Census)
    ladder: Ladder = field(default_factory=Ladder)
    shared: dict[Domain, dict[str, None]] = field(default_factory=dict)
    _placed: dict[str, int | Domain] = field(default_factory=dict)

    def put(self, capacity: StorageCapacity, domain: Domain) -> None:
        if is_single(domain.mask):
            position = domain.mask.bit_length() - 1
            self._placed[capacity.key] = position
            insort(self.own.setdefault(position, []), _order(capacity))
            self._restock(position)
        elif domain.mask:
            self._placed[capacity.key] = domain
            self.shared.setdefault(domain, {})[capacity.key] = None

    def take(self, capacity: StorageCapacity) -> None:
        at = self._placed.pop(capacity.key, None)
        if isinstance(at, int):
            del self.own[at][bisect_left(self.own[at], _order(capacity))]
            self._restock(at)
        elif at is not None:
            del self.shared[at][capacity.key]
            if not self.shared[at]:
                del self.shared[at]

    def touch(self, key: str) -> None:
        """What is reserved of it has changed."""
        at = self._placed.get(key)
        if isinstance(at, int):
            self._restock(at)

    def seen_from(self, position: int) -> list[str]:
        bit = 1 << position
        keys = [key for domain, held in self.shared.items() if domain.mask & bit for key in held]
        return [*keys, *map(_key, self.own.get(position, ()))]

    def _restock(self, position: int) -> None:
        held, stock_of = self.own[position], self.census.stock_of
        before = stock_of.get(position)
        self.census.move(position, tuple(self._facts(_key(order)) for order in held))
        after = stock_of.get(position)
        if before is not None and not before.mask:
            self.ladder.drop(before)
        if after is not None and is_single(after.mask):
            # Nobody else has it, so it was made for this node just now.
            self.ladder.add(after)
        if not held:
            del self.own[position]

    def _facts(self, key: str) -> Facts:
        capacity = self.objects[key]
        total, largest = capacity.capacity, capacity.maximum_volume_size
        return (
            None if total is None else total.value(),
            None if largest is None else largest.value(),
            self.reserved.get(key, 0),
        )


def _order(capacity: StorageCapacity) -> Order:
    return capacity.meta.namespace, capacity.meta.name


def _key(order: Order) -> str:
    return f"{order[0]}/{order[1]}" if order[0] else order[1]
