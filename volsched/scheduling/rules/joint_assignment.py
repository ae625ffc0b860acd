"""The best way to serve several claims on one node when serving them one by one does not work out.

Best = every claim served, then most existing volumes, then least total capacity, then names in claim order. Each
claim takes one of its volumes or is provisioned, and each takes an attach slot if its driver has a limit: a flow
of least cost from claims over volumes and drivers, solved exactly on integers. Capacity that is judged over
several claims does not fit into a flow. So the flow is solved as a relaxation, best first, and split where the
claims it would provision cannot all be: one of them must then do otherwise.
"""

import heapq
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from volsched.kube.storage import Volume
from volsched.scheduling.rules.disks import attach_id

# Splits until we give up: a pod with a dozen claims or more of which almost, but not quite, enough can be
# provisioned (measured: 2.4 s a node for 12 claims). Giving up refuses the node; it never books anything twice.
SEARCH_LIMIT = 250


@dataclass(frozen=True, slots=True)
class Option:
    """One way to serve a claim: a volume, or (None) provisioning."""

    volume: Volume | None
    driver: str | None
    """The driver whose attach slot it takes, if any."""


Choices = tuple[Option, ...]
"""One option per claim."""


def best_assignment(
    options: Sequence[Sequence[Option]],
    *,
    slots: Mapping[str, int],
    can_provision: Callable[[Collection[int]], bool],
) -> Choices | None:
    """The best choice for every claim, or None if they cannot all be served.

    `slots`: attach slots left per limited driver. `can_provision`: whether these claims (by index) can be
    provisioned together; leaving one out never makes it false.
    """
    options = [_worth_trying(mine, claims=len(options)) for mine in options]
    price = _pricing(options)
    queue: list[tuple[int, int, frozenset[int], frozenset[int], Choices]] = []
    tried = 0

    def enqueue(provisioned: frozenset[int], served: frozenset[int]) -> None:
        """Solve with some claims held to be provisioned, and some held not to be."""
        nonlocal tried
        tried += 1
        if tried > SEARCH_LIMIT or not can_provision(provisioned):
            return
        allowed = [
            [option for option in mine if _is_allowed(option, claim, provisioned, served)]
            for claim, mine in enumerate(options)
        ]
        solved = _cheapest(allowed, slots, price)
        if solved is not None:
            heapq.heappush(queue, (solved[0], tried, provisioned, served, solved[1]))

    enqueue(frozenset(), frozenset())
    while queue:
        _, _, provisioned, served, choices = heapq.heappop(queue)
        chosen = [claim for claim, option in enumerate(choices) if option.volume is None]
        if can_provision(chosen):
            return choices
        # Disjoint parts, so that no set of claims is looked at twice: the first of them served, or that one
        # provisioned and the second served, and so on.
        for claim in (claim for claim in chosen if claim not in provisioned):
            enqueue(provisioned, served | {claim})
            provisioned |= {claim}
    return None


def _is_allowed(option: Option, claim: int, provisioned: frozenset[int], served: frozenset[int]) -> bool:
    return claim not in (served if option.volume is None else provisioned)


def _worth_trying(options: Sequence[Option], *, claims: int) -> list[Option]:
    """Of each driver's volumes only the first few: the other claims can take at most `claims - 1` of them."""
    by_driver: dict[str | None, list[Option]] = {}
    kept = [option for option in options if option.volume is None]
    for option in options:
        if option.volume is not None:
            by_driver.setdefault(option.driver, []).append(option)
    for group in by_driver.values():
        kept += heapq.nsmallest(claims, group, key=_size_then_name)
    return kept


def _size_then_name(option: Option) -> tuple[int, str]:
    return (0, "") if option.volume is None else (option.volume.size.nano, option.volume.name)


def _pricing(options: Sequence[Sequence[Option]]) -> Callable[[int, Option], int]:
    """An integer per option whose sums compare as: provisioned claims, total capacity, names in claim order."""
    volumes = {option.volume.name: option.volume for mine in options for option in mine if option.volume}
    rank = {name: place for place, name in enumerate(sorted(volumes), start=1)}
    # weight[i]: what a step in the name of claim i's volume costs; the earlier claim outweighs all later ones.
    weight = [1]
    for _ in options:
        weight.insert(0, weight[0] * (len(rank) + 1))
    names_span = weight.pop(0)
    capacity_span = 1 + sum(volume.size.nano for volume in volumes.values())

    def price(claim: int, option: Option) -> int:
        if option.volume is None:
            return capacity_span * names_span
        return option.volume.size.nano * names_span + rank[option.volume.name] * weight[claim]

    return price


def _cheapest(
    options: Sequence[Sequence[Option]], slots: Mapping[str, int], price: Callable[[int, Option], int]
) -> tuple[int, Choices] | None:
    """The cheapest choices that give no volume twice and keep within the slots."""
    network = Network()
    chosen_by: dict[int, tuple[int, Option]] = {}
    for claim, mine in enumerate(options):
        network.add("source", ("claim", claim), room=1, cost=0)
        for option in mine:
            through = ("claim", claim) if option.volume is None else ("volume", option.volume.name)
            exit_ = ("driver", option.driver) if option.driver in slots else "sink"
            if option.volume is None:
                chosen_by[network.add(through, exit_, room=1, cost=price(claim, option))] = (claim, option)
            else:
                edge = network.add(("claim", claim), through, room=1, cost=price(claim, option))
                chosen_by[edge] = (claim, option)
                network.add_once(through, exit_, room=1)
    for driver, left in slots.items():
        network.add(("driver", driver), "sink", room=max(left, 0), cost=0)
    cost = network.send("source", "sink", len(options))
    if cost is None:
        return None
    chosen = dict(entry for edge, entry in chosen_by.items() if network.is_used(edge))
    return cost, tuple(chosen[claim] for claim in range(len(options)))


@dataclass(slots=True)
class Network:
    """A flow of least cost by successive shortest paths. Costs are integers of any size, rooms are small."""

    edges: list[list[int]] = field(default_factory=list)
    """[from, to, room left, cost]; the edge back stands next to each."""
    leaving: list[list[int]] = field(default_factory=list)
    numbers: dict[object, int] = field(default_factory=dict)
    known: set[tuple[object, object]] = field(default_factory=set)

    def add(self, start: object, end: object, *, room: int, cost: int) -> int:
        a, b = self._number(start), self._number(end)
        self.leaving[a].append(len(self.edges))
        self.edges.append([a, b, room, cost])
        self.leaving[b].append(len(self.edges))
        self.edges.append([b, a, 0, -cost])
        return len(self.edges) - 2

    def add_once(self, start: object, end: object, *, room: int) -> None:
        if (start, end) not in self.known:
            self.known.add((start, end))
            self.add(start, end, room=room, cost=0)

    def send(self, source: object, sink: object, units: int) -> int | None:
        """The least cost of bringing so many units to the sink, or None if they do not all get there."""
        total = 0
        for _ in range(units):
            path = self._shortest(self._number(source), self._number(sink))
            if path is None:
                return None
            for edge in path:
                self.edges[edge][2] -= 1
                self.edges[edge ^ 1][2] += 1
                total += self.edges[edge][3]
        return total

    def is_used(self, edge: int) -> bool:
        return self.edges[edge ^ 1][2] > 0

    def _shortest(self, source: int, sink: int) -> list[int] | None:
        """Edges of the cheapest path with room; costs may be negative on edges back, cycles never are."""
        distance = {source: 0}
        came_by: dict[int, int] = {}
        waiting, queued = deque([source]), {source}
        while waiting:
            here = waiting.popleft()
            queued.discard(here)
            for edge in self.leaving[here]:
                _, there, room, cost = self.edges[edge]
                if room and (there not in distance or distance[here] + cost < distance[there]):
                    distance[there] = distance[here] + cost
                    came_by[there] = edge
                    if there not in queued:
                        queued.add(there)
                        waiting.append(there)
        if sink not in distance:
            return None
        path = []
        while sink != source:
            path.append(came_by[sink])
            sink = self.edges[came_by[sink]][0]
        return path

    def _number(self, name: object) -> int:
        if name not in self.numbers:
            self.numbers[name] = len(self.leaving)
            self.leaving.append([])
        return self.numbers[name]


def volume_options(volumes: Sequence[Volume]) -> Iterator[Option]:
    for volume in volumes:
        attached_as = attach_id(volume)
        yield Option(volume, None if attached_as is None else attached_as.driver)
