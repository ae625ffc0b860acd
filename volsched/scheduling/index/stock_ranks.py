"""Rankings of the nodes' exclusive stocks for a shape of pod, and groups of nodes with equal free resources."""

from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from volsched.kube.workloads import Node, Pod
from volsched.scheduling.plugins.node_resources import (
    SCORED,
    FreeResources,
    RequestedResources,
    least_allocated,
    shortage,
    units_of,
    wanted_by,
)
from volsched.scheduling.rules.status import Status

# The worth of a stock depends only on its contents and on the shape. So no cache invalidation is needed, and
# events do not appear here: an event moves nodes from one stock to another, and a reused ranking reads only
# these nodes. Rejected: verdicts cached per node and pod class, because each event would have to find every
# entry that it invalidates.

SHAPES_KEPT = 256


class Worth(Enum):
    SERVES = "serves"
    """All claims are served one after the other; the score is known unless something else refuses the node."""
    UNCLEAR = "unclear"
    """The rules must be called; they give at most the score."""
    HOPELESS = "hopeless"
    """Some claim remains unserved in any order: all such nodes are refused for the same reasons."""

    # By identity. Enum's own hashes the name in Python, which costs as much as the rest of an estimate.
    __hash__ = object.__hash__


Estimate = tuple[Worth | Status, int]
"""The class of a stock, and its score."""
Content = tuple[tuple[Any, ...], ...]
Survey = Callable[[], Iterable[tuple[Estimate, int]]]
"""Returns estimates of all stocks, each with its nodes; an estimate may occur more than once."""


@dataclass(slots=True, eq=False)
class Stock:
    """The exclusive contents of each of several equal nodes, in serving order, without names."""

    content: Content
    mask: int = 0


@dataclass(slots=True)
class Census:
    """The distinct stocks, which node has which, and which nodes have moved between them."""

    stocks: dict[Content, Stock] = field(default_factory=dict)
    stock_of: dict[int, Stock] = field(default_factory=dict)
    moved: list[int] = field(default_factory=list)
    era: int = 0
    """How often `moved` was cleared, because following it would take longer than a full scan."""
    _rankings: dict[Hashable, "Ranking"] = field(default_factory=dict)

    def move(self, position: int, content: Content) -> None:
        """Set the node's content; empty: none."""
        bit, before = 1 << position, self.stock_of.pop(position, None)
        if before is not None:
            before.mask ^= bit
            if not before.mask:
                del self.stocks[before.content]
        if content:
            stock = self.stocks.get(content)
            if stock is None:
                stock = self.stocks[content] = Stock(content)
            stock.mask |= bit
            self.stock_of[position] = stock
        self.moved.append(position)
        if len(self.moved) > 2 * len(self.stocks) + 64:
            self.moved.clear()
            self.era += 1

    def ranking(
        self, shape: Hashable, estimate: Callable[[Stock], Estimate], survey: Survey | None = None
    ) -> "Ranking":
        """The current ranking for the shape. `estimate` must be the same for equal shapes.

        `survey`: a faster way to estimate all stocks than one after the other.
        """
        known = self._rankings.get(shape)
        if known is None:
            if len(self._rankings) >= SHAPES_KEPT:
                del self._rankings[next(iter(self._rankings))]
            known = self._rankings[shape] = Ranking()
        known.follow(self, estimate, survey)
        return known


@dataclass(slots=True)
class Ranking:
    _masks: dict[Estimate, int] = field(default_factory=dict)
    _changes_read: int = 0
    _era: int = -1

    def follow(self, census: Census, estimate: Callable[[Stock], Estimate], survey: Survey | None) -> None:
        masks = self._masks
        if self._era != census.era:
            masks.clear()
            every = survey() if survey is not None else ((estimate(it), it.mask) for it in census.stocks.values())
            for worth, mask in every:
                masks[worth] = masks.get(worth, 0) | mask
        else:
            for position in set(census.moved[self._changes_read :]):
                self._place(position, census.stock_of.get(position), estimate)
        self._changes_read, self._era = len(census.moved), census.era

    def _place(self, position: int, stock: Stock | None, estimate: Callable[[Stock], Estimate]) -> None:
        bit = 1 << position
        for worth, mask in [*self._masks.items()]:
            if mask & bit:
                self._masks[worth] = mask ^ bit
                if mask == bit:
                    del self._masks[worth]
        if stock is not None:
            worth = estimate(stock)
            self._masks[worth] = self._masks.get(worth, 0) | bit

    def masks(self, worth: Worth) -> Iterator[tuple[int, int]]:
        """(score, the nodes that have it)."""
        for (kept, score), mask in self._masks.items():
            if kept is worth:
                yield score, mask

    def estimates(self) -> Iterator[tuple[Estimate, int]]:
        """Every estimate with the nodes that have it."""
        yield from self._masks.items()

    def mask(self, worth: Worth, score: int) -> int:
        return self._masks.get((worth, score), 0)


# Loads: each node's allocatable resources and its pods' requests. Nodes equal in both get one answer.


@dataclass(slots=True)
class _Load:
    allocatable: tuple[tuple[str, int], ...] | None = None
    """None: the node does not report it."""
    used: dict[str, int] = field(default_factory=dict)
    scored: list[int] = field(default_factory=lambda: [0] * len(SCORED))
    pods: int = 0

    def content(self) -> Content:
        if self.allocatable is None:
            return ()
        used = tuple(sorted((name, units) for name, units in self.used.items() if units))
        return self.allocatable, used, tuple(self.scored), (self.pods,)


@dataclass(slots=True)
class Loads:
    census: Census = field(default_factory=Census)
    _loads: dict[int, _Load] = field(default_factory=dict)
    _stale: dict[int, None] = field(default_factory=dict)

    def describe(self, position: int, node: Node) -> None:
        load = self._loads.setdefault(position, _Load())
        allocatable = units_of(node.allocatable)
        known = FreeResources(allocatable).is_known
        load.allocatable = tuple(sorted(allocatable.items())) if known else None
        self._stale[position] = None

    def forget(self, position: int) -> None:
        del self._loads[position]
        self._stale[position] = None

    def enter(self, pod: Pod, position: int) -> None:
        self._add(wanted_by(pod), position, 1)

    def leave(self, pod: Pod, position: int) -> None:
        self._add(wanted_by(pod), position, -1)

    def _add(self, wanted: RequestedResources, position: int, sign: int) -> None:
        load = self._loads[position]
        for name, units in wanted.requests.items():
            load.used[name] = load.used.get(name, 0) + sign * units
        load.scored = [there + sign * units for there, units in zip(load.scored, wanted.scored, strict=True)]
        load.pods += sign
        self._stale[position] = None

    def settle(self) -> None:
        for position in self._stale:
            load = self._loads.get(position)
            content = () if load is None else load.content()
            before = self.census.stock_of.get(position)
            if content != (() if before is None else before.content):
                self.census.move(position, content)
        self._stale.clear()

    def ranking(self, wanted: RequestedResources) -> Ranking:
        """Status and score of every node that reports its resources."""
        self.settle()
        shape = (tuple(sorted(wanted.requests.items())), wanted.scored)

        def estimate(stock: Stock) -> Estimate:
            room = _room(stock.content)
            return shortage(wanted, room), least_allocated(wanted, room)

        return self.census.ranking(shape, estimate)


def _room(content: Content) -> FreeResources:
    allocatable, used, scored, (pods,) = content
    return FreeResources(dict(_pairs(allocatable)), dict(_pairs(used)), scored, pods)


def _pairs(items: Iterable[tuple[str, int]]) -> Iterable[tuple[str, int]]:
    return items
