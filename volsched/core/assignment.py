"""The best way to serve several claims on one node when serving them one by one leaves a claim without a volume.

Best = every claim served, then most existing volumes, then least total capacity, then names in claim order. Each
claim takes one of its volumes or is provisioned. Volumes alone would be a plain assignment problem; attach slots
and jointly judged capacity couple the claims, so the plain problem is solved as a relaxation, best first, and
split where its solution breaks a coupling: one of the claims involved must then do otherwise.
"""

import heapq
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from volsched.core.attach import attach_id
from volsched.model.storage import Volume

# Only contrived pods get near it; giving up means the node is refused, never that something is booked twice.
SEARCH_LIMIT = 2_000


@dataclass(frozen=True, slots=True)
class Option:
    """One way to serve a claim: a volume, or (None) provisioning."""

    volume: Volume | None
    driver: str | None
    """The driver whose attach slot it takes, if any."""


Choices = tuple[Option, ...]
"""One option per claim."""
Forbidden = frozenset[tuple[int, str | None, bool]]
"""(claim, driver, provisioning): options of this claim that take a slot of the driver, or are provisioned."""


def best_assignment(
    options: Sequence[Sequence[Option]],
    *,
    slots: Mapping[str, int],
    can_provision: Callable[[Collection[int]], bool],
) -> Choices | None:
    """The best choice for every claim, or None if they cannot all be served.

    `slots`: attach slots left per driver. `can_provision`: whether these claims (by index) can be provisioned
    together; removing a claim never makes it false.
    """
    options = [_worth_trying(mine, claims=len(options)) for mine in options]
    price = _pricing(options)
    queue: list[tuple[int, int, Forbidden, Choices]] = []
    seen: set[Forbidden] = set()

    def enqueue(forbidden: Forbidden) -> None:
        if forbidden not in seen and len(seen) < SEARCH_LIMIT:
            seen.add(forbidden)
            solved = _relaxed(options, forbidden, price)
            if solved is not None:
                heapq.heappush(queue, (solved[0], len(seen), forbidden, solved[1]))

    enqueue(frozenset())
    while queue:
        _, _, forbidden, choices = heapq.heappop(queue)
        broken = _broken_coupling(choices, slots, can_provision)
        if broken is None:
            return choices
        for otherwise in broken:
            enqueue(forbidden | {otherwise})
    return None


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


def _relaxed(
    options: Sequence[Sequence[Option]], forbidden: Forbidden, price: Callable[[int, Option], int]
) -> tuple[int, Choices] | None:
    """The cheapest choice that gives no volume twice, couplings left aside."""
    columns: dict[str | int, int] = {}
    rows: list[dict[int, tuple[int, Option]]] = []
    for claim, mine in enumerate(options):
        row: dict[int, tuple[int, Option]] = {}
        for option in mine:
            if (claim, option.driver, option.volume is None) not in forbidden:
                key = claim if option.volume is None else option.volume.name
                row[columns.setdefault(key, len(columns))] = (price(claim, option), option)
        rows.append(row)
    chosen = cheapest_columns([{column: entry[0] for column, entry in row.items()} for row in rows])
    if chosen is None:
        return None
    picked = [row[column] for row, column in zip(rows, chosen, strict=True)]
    return sum(cost for cost, _ in picked), tuple(option for _, option in picked)


def cheapest_columns(rows: Sequence[Mapping[int, int]]) -> list[int] | None:
    """A different column for each row at least total cost, or None. Exact on integers of any size.

    Shortest augmenting paths with potentials: each row in turn is added by the cheapest chain of re-seatings.
    """
    row_of: dict[int, int] = {}
    row_potential = [0] * len(rows)
    column_potential: dict[int, int] = {}
    for start in range(len(rows)):
        distance: dict[int, int] = {}
        reached_from: dict[int, int | None] = {}
        settled: set[int] = set()
        row, column, so_far = start, None, 0
        while True:
            for nxt, cost in rows[row].items():
                if nxt in settled:
                    continue
                length = so_far + cost - row_potential[row] - column_potential.get(nxt, 0)
                if nxt not in distance or length < distance[nxt]:
                    distance[nxt], reached_from[nxt] = length, column
            open_columns = [nxt for nxt in distance if nxt not in settled]
            if not open_columns:
                return None
            column = min(open_columns, key=lambda nxt: (distance[nxt], nxt))
            so_far = distance[column]
            if column not in row_of:
                break
            settled.add(column)
            row = row_of[column]
        row_potential[start] += so_far
        for done in settled:
            row_potential[row_of[done]] += so_far - distance[done]
            column_potential[done] = column_potential.get(done, 0) - (so_far - distance[done])
        _reseat(column, start, row_of, reached_from)
    columns_of = {row: column for column, row in row_of.items()}
    return [columns_of[row] for row in range(len(rows))]


def _reseat(end: int, start: int, row_of: dict[int, int], reached_from: Mapping[int, int | None]) -> None:
    column: int | None = end
    while column is not None:
        previous = reached_from[column]
        row_of[column] = start if previous is None else row_of[previous]
        column = previous


def _broken_coupling(
    choices: Choices, slots: Mapping[str, int], can_provision: Callable[[Collection[int]], bool]
) -> list[tuple[int, str | None, bool]] | None:
    """For the first coupling that the choices break, what each claim involved could be forbidden to do."""
    for driver, left in slots.items():
        using = [claim for claim, option in enumerate(choices) if option.driver == driver]
        if len(using) > left:
            return [(claim, driver, choices[claim].volume is None) for claim in using]
    provisioned = [claim for claim, option in enumerate(choices) if option.volume is None]
    if provisioned and not can_provision(provisioned):
        return [(claim, choices[claim].driver, True) for claim in provisioned]
    return None


def volume_options(volumes: Sequence[Volume]) -> Iterator[Option]:
    for volume in volumes:
        attached_as = attach_id(volume)
        yield Option(volume, None if attached_as is None else attached_as.driver)
