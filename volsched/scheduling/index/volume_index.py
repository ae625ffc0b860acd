"""The free volumes and the capacity objects of a class: by size, and by the nodes that reach them."""

from bisect import bisect_left, insort
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from operator import or_

from volsched.kube.meta import Metadata
from volsched.kube.quantity import INT64_MAX, NANO, Quantity
from volsched.kube.selectors import label_selector_problem
from volsched.kube.storage import AVAILABLE, Claim, StorageCapacity, Volume
from volsched.kube.workloads import Node
from volsched.scheduling.index.domains import Domain, selector_key
from volsched.scheduling.index.node_sets import is_single
from volsched.scheduling.index.stock_ranks import Census, Estimate, Stock
from volsched.scheduling.rules.disks import attach_id
from volsched.scheduling.rules.matching import Search, failed_rules, is_unseen

# Rooms: the capacity objects of one class, by the nodes that they cover.
#
# As with volumes, an object that covers one node alone is exclusive to it, and nodes with equal rooms are
# equal.

Order = tuple[str, str]
"""Namespace and name: the order in which capacity objects are tried."""
Facts = tuple[int | None, int | None, int]
"""Capacity, largest volume and reserved bytes: the rules compare nothing finer here."""


@dataclass(slots=True)
class Ladder:
    """Stocks that differ only in capacity, the smallest first: more is better.

    A new shape of pod finds the few steps where its score changes, instead of scanning thousands of sizes.
    """

    stocks: list[Stock] = field(default_factory=list)
    others: dict[Stock, None] = field(default_factory=dict)
    """Stocks with other relevant fields, such as reserved bytes."""
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
            # A capacity may occur twice: with an equal largest volume, and without one.
            rank = self.stocks.index(stock, bisect_left(self._totals, total))
            del self._totals[rank], self.stocks[rank]

    def survey(self, estimate: Callable[[Stock], Estimate]) -> Iterator[tuple[Estimate, int]]:
        """Every estimate with its nodes. `estimate` must not decrease as capacity increases."""
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
        """Index a capacity object again after its reserved bytes changed."""
        at = self._placed.get(key)
        if isinstance(at, int):
            self._restock(at)

    def keys_at(self, position: int) -> list[str]:
        bit = 1 << position
        keys = [key for domain, held in self.shared.items() if domain.mask & bit for key in held]
        return [*keys, *map(_key, self.own.get(position, ()))]

    def _restock(self, position: int) -> None:
        stored, stock_of = self.own[position], self.census.stock_of
        before = stock_of.get(position)
        self.census.move(position, tuple(self._facts(_key(order)) for order in stored))
        after = stock_of.get(position)
        if before is not None and not before.mask:
            self.ladder.drop(before)
        if after is not None and is_single(after.mask):
            # No other node has it, so it was just created for this node.
            self.ladder.add(after)
        if not stored:
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


# The free volumes that the nodes of one domain share, and which of them are worth trying for a pod's claims.

Row = tuple[int, str, int]
"""Size in 10^-9 bytes, name, pool: the order in which volumes are tried."""
Sizes = tuple[tuple[int, int], ...]
"""(size, pool) in serving order, without names."""
Shape = tuple[tuple[int, frozenset[int]], ...]
"""Size and fitting pools of each claim, in serving order: all that a search depends on."""
SHAPES_KEPT = 256


@dataclass(frozen=True, slots=True)
class Few:
    """The few volumes of a domain that matter: any volume that a claim gets is among them."""

    rows: tuple[Row, ...]
    names: tuple[str, ...]
    """Their names, in order."""
    sizes: Sizes


@dataclass(slots=True, eq=False)
class Shared:
    _pools: dict[int, list[Row]] = field(default_factory=dict)
    _few: dict[Shape, Few] = field(default_factory=dict)
    """A cache by shape, until a volume comes or goes: a decision takes from one of many domains."""

    def __bool__(self) -> bool:
        return bool(self._pools)

    def put(self, row: Row) -> None:
        insort(self._pools.setdefault(row[2], []), row)
        self._few.clear()

    def take(self, row: Row) -> None:
        rows = self._pools[row[2]]
        remove(rows, row)
        if not rows:
            del self._pools[row[2]]
        self._few.clear()

    def near(self, size: int, most: int) -> list[Row]:
        """The rows of every pool that are closest to a size, on either side."""
        near_rows: list[Row] = []
        for rows in self._pools.values():
            place = bisect_left(rows, (size,))
            near_rows += rows[max(place - most, 0) : place + most]
        return near_rows

    def few(self, shape: Shape) -> Few:
        """The volumes to try for the shape: no claim needs more than there are claims; the others take fewer."""
        known = self._few.get(shape)
        if known is None:
            if len(self._few) >= SHAPES_KEPT:
                self._few.clear()
            known = self._few[shape] = self._smallest_rows(shape)
        return known

    def _smallest_rows(self, shape: Shape) -> Few:
        candidates: list[Row] = []
        for pool, rows in self._pools.items():
            end = 0
            # From the smallest size to the largest, each adds the rows beyond the previous one's share.
            for wanted in sorted([size for size, fitting in shape if pool in fitting]):
                start = bisect_left(rows, (wanted,))
                candidates += rows[max(start, end) : start + len(shape)]
                end = start + len(shape)
        candidates.sort()
        return Few(
            rows=tuple(candidates),
            names=tuple(sorted([name for _, name, _ in candidates])),
            sizes=tuple([(size, pool) for size, _, pool in candidates]),
        )


def remove(rows: list[Row], row: Row) -> None:
    """Remove a row from sorted rows."""
    del rows[bisect_left(rows, row)]


# Volumes that differ only in size and place form a pool; one sample represents all of them. A volume that only
# one node reaches is part of the node's stock, and nodes with equal stocks (sizes and pools in serving order,
# without names) are equal from here on. A domain shares the others.

FEW = 12
ANY_NODE = Node(meta=Metadata())
# Larger than any claim: the rows decide about the size, not the pool.
_HUGE = {"storage": Quantity(INT64_MAX * NANO * NANO)}


def is_free(volume: Volume, *, unseen: bool) -> bool:
    """Whether it may serve a claim that it does not name. `unseen`: accept one that no controller synced yet."""
    if volume.claim_ref is not None or volume.meta.being_deleted:
        return False
    return volume.phase == AVAILABLE or (unseen and is_unseen(volume))


@dataclass(slots=True, eq=False)
class PlacedVolume:
    """A volume on the shelf. `at`: the position of the only node that reaches it, or its domain."""

    row: Row
    at: int | Domain


@dataclass(slots=True)
class Shelf:
    label_keys: set[str]
    """The volume labels that some claim's selector uses; others do not distinguish volumes."""
    samples: list[Volume] = field(default_factory=list)
    drivers: list[str | None] = field(default_factory=list)
    """The driver whose attach slots the volumes take, per pool."""
    own: dict[int, list[Row]] = field(default_factory=dict)
    """The volumes that only one node reaches, per node; `rows_at` sorts them."""
    shared: dict[Domain, Shared] = field(default_factory=dict)
    _unsorted: set[int] = field(default_factory=set)
    """The nodes whose rows have to be sorted before they are read: once, not after each added row."""
    _census: Census = field(default_factory=Census)
    _stale: dict[int, None] = field(default_factory=dict)
    """The nodes whose rows changed since the census was last read: a stock is a copy of all rows of its node,
    which is too costly for each of a thousand volumes added one after the other."""
    _pools: dict[Hashable, int] = field(default_factory=dict)
    _placed: dict[str, PlacedVolume] = field(default_factory=dict)
    _fitting: dict[Hashable, tuple[int, frozenset[int]]] = field(default_factory=dict)

    def put(self, volume: Volume, domain: Domain) -> None:
        """Put a free volume where it can be reached; one that no node reaches waits for its domain to change."""
        if not domain.mask:
            return
        row = (volume.size.nano, volume.name, self._pool(volume))
        if is_single(domain.mask):
            position = domain.mask.bit_length() - 1
            self._placed[volume.name] = PlacedVolume(row, position)
            rows = self.own.setdefault(position, [])
            if rows and row < rows[-1]:
                self._unsorted.add(position)
            rows.append(row)
            self._stale[position] = None
        else:
            self._placed[volume.name] = PlacedVolume(row, domain)
            if domain not in self.shared:
                self.shared[domain] = Shared()
            self.shared[domain].put(row)

    def names(self) -> Iterable[str]:
        """The names of all volumes on the shelf, unordered."""
        return self._placed

    def rows_at(self, position: int) -> Sequence[Row]:
        """The volumes that only this node reaches, sorted."""
        return self._sorted(position) if position in self.own else ()

    def _sorted(self, position: int) -> list[Row]:
        rows = self.own[position]
        if position in self._unsorted:
            rows.sort()
            self._unsorted.discard(position)
        return rows

    def take(self, name: str) -> None:
        placed = self._placed.pop(name, None)
        if placed is None:
            return
        if isinstance(placed.at, int):
            rows = self._sorted(placed.at)
            remove(rows, placed.row)
            if not rows:
                del self.own[placed.at]
            self._stale[placed.at] = None
            return
        self.shared[placed.at].take(placed.row)
        if not self.shared[placed.at]:
            del self.shared[placed.at]

    @property
    def census(self) -> Census:
        """The stocks of all nodes, as they are now."""
        self.settle()
        return self._census

    def settle(self) -> None:
        for position in self._stale:
            content = tuple([(size, pool) for size, _, pool in self.rows_at(position)])
            before = self._census.stock_of.get(position)
            if content != (() if before is None else before.content):
                self._census.move(position, content)
        self._stale.clear()

    def _pool(self, volume: Volume) -> int:
        attached_as = attach_id(volume)
        driver = None if attached_as is None else attached_as.driver
        labels = sorted(self.label_keys & volume.meta.labels.keys()) if self.label_keys else ()
        key = (
            volume.mode,
            volume.attributes_class or "",
            frozenset(volume.access_modes),
            driver,
            tuple([(name, volume.meta.labels[name]) for name in labels]),
        )
        pool = self._pools.get(key)
        if pool is None:
            pool = self._pools[key] = len(self.samples)
            self.samples.append(replace(volume, node_affinity=None, capacity=_HUGE, phase=AVAILABLE))
            self.drivers.append(driver)
        return pool

    def fitting(self, claim: Claim) -> frozenset[int]:
        """The pools whose volumes may serve the claim if they are large enough and reachable."""
        selector = None if claim.selector is None else selector_key(claim.selector)
        key = (claim.mode, claim.attributes_class or "", claim.access_modes, selector)
        asked, pools = self._fitting.get(key, (0, frozenset[int]()))
        if asked < len(self.samples):
            pools |= {pool for pool in range(asked, len(self.samples)) if _fits(claim, self.samples[pool])}
            self._fitting[key] = len(self.samples), pools
        return pools


def best_rows(rows: Sequence[Row], shape: Shape) -> Iterable[str]:
    """The names of enough rows: the first few of every pool that are large enough for a claim, or some more."""
    large = rows[bisect_left(rows, (min([size for size, _ in shape]),)) :]
    if len(large) <= FEW:
        # Trying a few unsuitable rows costs less than selecting.
        return [name for _, name, _ in large]
    names: dict[str, None] = {}
    for wanted, fitting in shape:
        left = dict.fromkeys(fitting, len(shape))
        wanting = len(fitting)
        for size, name, pool in large:
            if size >= wanted and left.get(pool, 0):
                left[pool] -= 1
                names[name] = None
                if not left[pool]:
                    wanting -= 1
                    if not wanting:
                        break
    return names


def _fits(claim: Claim, sample: Volume) -> bool:
    if claim.selector is not None and label_selector_problem(claim.selector) is not None:
        return False
    return next(failed_rules(Search(claim=claim, node=ANY_NODE), sample), None) is None
