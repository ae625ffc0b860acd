"""Loads: what every node has and what its pods take of it. Nodes alike in both have one answer for a pod."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from volsched.kube.workloads import Node, Pod
from volsched.scheduling.index.stock_ranks import Census, Content, Estimate, Ranking, Stock
from volsched.scheduling.plugins.node_resources import (
    FreeResources,
    RequestedResources,
    least_allocated,
    shortage,
    wanted_by,
)
from volsched.scheduling.plugins.resource_requests import SCORED, units_of


@dataclass(slots=True)
class _Load:
    allocatable: tuple[tuple[str, int], ...] | None = None
    """None: the node does not say."""
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
        """Status and score of every node that says what it has."""
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
