"""What every node's own stock (or room) is worth to one shape of pod, remembered from decision to decision.

What a stock is worth depends on what is in it and on the shape, on nothing else. So nothing has to be invalidated,
and events appear nowhere here: an event moves nodes from one stock to another, and a ranking
that is asked again looks at these nodes only. Rejected: verdicts kept per node and pod class, which are
simple until one event must find all that it has made untrue.
"""

from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from volsched.scheduling.rules.status import Status

SHAPES_KEPT = 256


class Worth(Enum):
    SERVES = "serves"
    """Every claim is served one after the other; the score is known unless something else is against the node."""
    UNCLEAR = "unclear"
    """The rules must be asked; they give no more than the score."""
    HOPELESS = "hopeless"
    """Whatever the order, some claim remains: all such nodes are refused for the same reasons."""

    # By identity. Enum's own hashes the name in Python, which costs as much as all the rest of an estimate.
    __hash__ = object.__hash__


Estimate = tuple[Worth | Status, int]
"""What a stock is worth: how it stands, and its score."""
Content = tuple[tuple[Any, ...], ...]
Survey = Callable[[], Iterable[tuple[Estimate, int]]]
"""All stocks: estimates, each with nodes that have it; one may come more than once."""


@dataclass(slots=True, eq=False)
class Stock:
    """What equal nodes hold each for itself, in serving order; the names of things are no part of it."""

    content: Content
    mask: int = 0


@dataclass(slots=True)
class Census:
    """The distinct stocks in existence, who has which, and who has moved from one to another."""

    stocks: dict[Content, Stock] = field(default_factory=dict)
    stock_of: dict[int, Stock] = field(default_factory=dict)
    moved: list[int] = field(default_factory=list)
    era: int = 0
    """Counts how often `moved` was started anew, because following it would take longer than looking at all."""
    _rankings: dict[Hashable, "Ranking"] = field(default_factory=dict)

    def move(self, position: int, content: Content) -> None:
        """The node now has this; an empty content is none."""
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
        """The ranking for the shape, up to date. `estimate` must be the same for equal shapes.

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
    _seen: int = 0
    _era: int = -1

    def follow(self, census: Census, estimate: Callable[[Stock], Estimate], survey: Survey | None) -> None:
        masks = self._masks
        if self._era != census.era:
            masks.clear()
            every = survey() if survey is not None else ((estimate(it), it.mask) for it in census.stocks.values())
            for worth, mask in every:
                masks[worth] = masks.get(worth, 0) | mask
        else:
            for position in set(census.moved[self._seen :]):
                self._place(position, census.stock_of.get(position), estimate)
        self._seen, self._era = len(census.moved), census.era

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
