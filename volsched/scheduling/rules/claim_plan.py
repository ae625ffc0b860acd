"""How the unbound claims of a pod are served on one node: one by one, jointly, or why they cannot be."""

import heapq
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from volsched.kube.storage import Claim, Volume
from volsched.kube.workloads import Node
from volsched.scheduling.rules.disks import attach_id
from volsched.scheduling.rules.dynamic_volumes import (
    NodeStorage,
    Plan,
    PlannedVolume,
    check_provisions,
    slots_after,
)
from volsched.scheduling.rules.matching import best_of, matching_volumes, nearest_misses, supply_of
from volsched.scheduling.rules.pod_claims import PodClaims, selected_node
from volsched.scheduling.rules.profile import Profile
from volsched.scheduling.rules.reasons import NO_VOLUME_TO_BIND, TOO_MANY_VOLUMES
from volsched.scheduling.rules.snapshot import Snapshot
from volsched.scheduling.rules.status import Failure, Rejection, Rule

# The reasons why claims cannot be served on a node, in terms that a user can act on.


def committed_elsewhere(claim: Claim, selected: str | None, node: Node) -> Rejection:
    failure = Failure(Rule.SELECTED_NODE, f"node {selected or 'none'}", f"node {node.name}")
    return Rejection(reason=NO_VOLUME_TO_BIND, claim=claim.key, failures=(failure,))


def unserved(place: NodeStorage, first: Rejection, plan: Plan, slots: Mapping[str, int]) -> tuple[Rejection, ...]:
    """Every claim that has neither a volume nor a way to provision one, the deciding one first.

    `slots`: the attach slots left after the volumes of the plan.
    """
    rejections = [_with_misses(place, first, plan, slots)]
    for claim in (claim for claim, volume in plan if volume is None and claim.key != first.claim):
        alone = check_provisions(place.snapshot, place.node, [claim], profile=place.profile, slots=slots)
        if alone.rejection is not None:
            rejections.append(_with_misses(place, alone.rejection, plan, slots))
    return tuple(rejections)


def _with_misses(place: NodeStorage, rejection: Rejection, plan: Plan, slots: Mapping[str, int]) -> Rejection:
    """Add the nearest volumes, of any class; a claim that a volume names can use no other."""
    claim = next((claim for claim, volume in plan if claim.key == rejection.claim and volume is None), None)
    if claim is None:
        return rejection
    snapshot = place.snapshot
    volumes = [volume for name in sorted(snapshot.stored_volumes) if (volume := snapshot.volume(name)) is not None]
    search = place.search(claim, taken=[volume for _, volume in plan if volume is not None], slots=slots)
    failures = rejection.failures
    if matching_volumes(search, place.candidates[claim.class_name]).pinned:
        pinned = Failure(Rule.PINNED, "the volume that names the claim", "it cannot be reached from this node")
        failures = (pinned, *failures)
    return replace(rejection, failures=failures, misses=nearest_misses(search, volumes))


def overdrawn(place: NodeStorage, driver: str, using: Sequence[Claim]) -> Rejection:
    """The rejection for too many volumes of a driver. `using`: the claims with a volume, bound ones first."""
    volumes = ((claim.key, place.snapshot.volume(claim.volume_name)) for claim in using)
    mine = [key for key, volume in volumes if volume and (at := attach_id(volume)) and at.driver == driver]
    left = place.slots[driver]
    failure = Failure(Rule.ATTACH_LIMIT, f"attach slots of {driver} for all its volumes", f"{max(left, 0)} left")
    return Rejection(reason=TOO_MANY_VOLUMES, claim=(mine or [using[0].key])[0], failures=(failure,))


# The best way to serve several claims on one node when serving them one by one fails.
#
# Best = every claim served, then most existing volumes, then least total capacity, then names in claim order.
# Each claim takes one of its volumes or is provisioned, and each takes an attach slot if its driver has a
# limit: a minimum-cost flow from claims over volumes and drivers, solved exactly on integers. Capacity that
# several claims share does not fit into a flow. So the flow is solved as a relaxation, best first, and branched
# if the claims to provision cannot all be provisioned: one of them must then get a volume.

# Maximum number of branches: reached by pods with a dozen claims or more if slightly too few of them can be
# provisioned (measured: 2.4 s per node for 12 claims). At the limit the node is refused; nothing is ever
# double-booked.
SEARCH_LIMIT = 250


@dataclass(frozen=True, slots=True)
class Option:
    """One way to serve a claim: a volume, or (None) provisioning."""

    volume: Volume | None
    driver: str | None
    """The driver whose attach slot the volume takes, if any."""


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
        """Solve with some claims forced to be provisioned, and some forbidden to be."""
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
        # Disjoint branches, so that no set of claims is tried twice: the first claim gets a volume, or it is
        # provisioned and the second gets a volume, and so on.
        for claim in (claim for claim in chosen if claim not in provisioned):
            enqueue(provisioned, served | {claim})
            provisioned |= {claim}
    return None


def _is_allowed(option: Option, claim: int, provisioned: frozenset[int], served: frozenset[int]) -> bool:
    return claim not in (served if option.volume is None else provisioned)


def _worth_trying(options: Sequence[Option], *, claims: int) -> list[Option]:
    """The first few volumes of each driver: the other claims can take at most `claims - 1` of them."""
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
    # weight[i]: the cost of a step in the name of claim i's volume; an earlier claim outweighs all later ones.
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
    """The cheapest choices that use no volume twice and stay within the slots."""
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
    """A minimum-cost flow by successive shortest paths. Costs are integers of any size, capacities are small."""

    edges: list[list[int]] = field(default_factory=list)
    """[from, to, capacity left, cost]; each is followed by its reverse edge."""
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
        """The least cost of sending all units to the sink, or None if the capacity is too small."""
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
        """Edges of the cheapest path with capacity; reverse edges may have negative costs, cycles never do."""
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


# The reference is greedy: smallest claim first, smallest volume that fits, no backtracking. If that leaves a
# claim without a volume, profile `volsched` looks for the best assignment of all claims instead.


class StaticBinding(NamedTuple):
    """An existing volume for a claim."""

    claim: Claim
    volume: Volume


# Not frozen, though never modified: created for every node, in a third of the time of a frozen one.
@dataclass(slots=True, kw_only=True)
class ServedClaims:
    bindings: tuple[StaticBinding, ...] = ()
    provisions: tuple[PlannedVolume, ...] = ()
    rejections: tuple[Rejection, ...] = ()
    """The claims that cannot be served, the deciding one first. Bindings found are kept, provisions are not."""


def serve_claims(
    snapshot: Snapshot, claims: PodClaims, node: Node, *, profile: Profile, slots: Mapping[str, int]
) -> ServedClaims:
    """Serve the delayed claims. A claim with a selected node is committed to provisioning on that node."""
    place = NodeStorage(snapshot=snapshot, node=node, profile=profile, candidates=claims.candidates, slots=slots)
    alpha = profile.reads_alpha_annotations
    committed = [claim for claim in claims.delayed if selected_node(claim, alpha=alpha) is not None]
    for claim in committed:
        selected = selected_node(claim, alpha=alpha)
        if selected != node.name:
            return ServedClaims(rejections=(committed_elsewhere(claim, selected, node),))
    to_match = in_serving_order(claims.delayed, profile)
    plan = _greedy(place, to_match)
    served = _completed(place, claims.bound, committed, plan)
    # If no claim found a volume while all were free, no other order will find one.
    if profile.exact_matching and served.bindings and (served.rejections or len(served.bindings) < len(plan)):
        better = _exact(place, to_match, committed)
        served = served if better is None else _completed(place, claims.bound, committed, better)
    return served


def in_serving_order(claims: Sequence[Claim], profile: Profile) -> list[Claim]:
    """The claims that look for a volume, in the order in which they are served."""
    alpha = profile.reads_alpha_annotations
    waiting = [claim for claim in claims if selected_node(claim, alpha=alpha) is None]
    waiting.sort(key=lambda claim: claim.size.nano, reverse=profile.largest_claim_first)
    return waiting


def _completed(place: NodeStorage, bound: Sequence[Claim], committed: Sequence[Claim], plan: Plan) -> ServedClaims:
    """The plan with provisions for claims without a volume, or the rejections."""
    bindings = _bindings(plan)
    unmatched = [claim for claim, volume in plan if volume is None]
    left = slots_after(place.slots, [binding.volume for binding in bindings])
    provisions = check_provisions(
        place.snapshot, place.node, [*committed, *unmatched], profile=place.profile, slots=left
    )
    if provisions.rejection is not None:
        rejections = unserved(place, provisions.rejection, plan, left) if place.profile.explains else ()
        return ServedClaims(bindings=bindings, rejections=rejections or (provisions.rejection,))
    driver = next((driver for driver, free in left.items() if free < 0), None) if left else None
    if driver is not None:
        using = [*bound, *(binding.claim for binding in bindings)]
        return ServedClaims(bindings=bindings, rejections=(overdrawn(place, driver, using),))
    return ServedClaims(bindings=bindings, provisions=provisions.decided)


def _bindings(plan: Plan) -> tuple[StaticBinding, ...]:
    return tuple([StaticBinding(claim, volume) for claim, volume in plan if volume is not None])


def _greedy(place: NodeStorage, claims: Sequence[Claim]) -> Plan:
    plan: Plan = []
    given: list[Volume] = []
    supplies = {name: supply_of(place.candidates[name]) for name in {claim.class_name for claim in claims}}
    for claim in claims:
        search = place.search(claim, taken=given, slots=slots_after(place.slots, given))
        volume = best_of(search, supplies[claim.class_name])
        plan.append((claim, volume))
        if volume is not None:
            given.append(volume)
    return plan


def _exact(place: NodeStorage, claims: Sequence[Claim], committed: Sequence[Claim]) -> Plan | None:
    """The best plan that serves every claim, or None if there is none."""
    slots = dict(place.slots)
    for claim in committed:
        provisioner = place.provisioner_of(claim)
        if provisioner in slots:
            slots[provisioner] -= 1

    def can_provision(chosen: Collection[int]) -> bool:
        together = [*committed, *(claims[index] for index in sorted(chosen))]
        provisions = check_provisions(place.snapshot, place.node, together, profile=place.profile, slots={})
        return provisions.rejection is None

    options: list[list[Option]] = []
    for index, claim in enumerate(claims):
        matches = matching_volumes(place.search(claim), place.candidates[claim.class_name])
        mine = list(volume_options(matches.volumes))
        if not (matches.pinned and mine) and can_provision([index]):
            mine.append(Option(None, place.provisioner_of(claim)))
        options.append(mine)
    chosen = best_assignment(options, slots=slots, can_provision=can_provision)
    return (
        None if chosen is None else [(claim, option.volume) for claim, option in zip(claims, chosen, strict=True)]
    )
