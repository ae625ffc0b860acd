"""What the index remembers or keeps in order is what it would find if it looked again."""

from collections.abc import Iterable
from random import Random

import pytest

from tests.support.objects import capacity, node
from volsched.kube.storage import StorageCapacity
from volsched.scheduling.index.domains import Domain, Places
from volsched.scheduling.index.node_sets import Nodes, positions
from volsched.scheduling.index.stock_ranks import Estimate, Stock, Worth
from volsched.scheduling.index.volume_index import FEW, Rooms, Row, Shape, Shared, best_rows

SEEDS = range(40)
NODES = 12


@pytest.mark.parametrize("seed", SEEDS)
def test_nodes_come_by_name_in_whatever_order_they_came_and_went(seed: int) -> None:
    random, nodes, there = Random(seed), Nodes(), set[str]()
    in_order = [f"n{number:02}" for number in range(NODES)]
    for name in in_order if seed % 2 else random.sample(in_order, NODES):
        nodes.put(node(name))
        there.add(name)
    for _ in range(30):
        name = random.choice(in_order)
        if name in there:
            nodes.drop(name)
        else:
            nodes.put(node(name))
        there ^= {name}
        some = {name for name in there if random.random() < 0.7}
        mask = sum(nodes.mask_of(name) for name in some)
        assert [it.name for it in nodes.by_name(mask)] == sorted(some)
        if some:
            assert nodes.first(mask).name == min(some)


def few_of(rows: Iterable[Row], shape: Shape) -> list[Row]:
    """Of every pool, and for every claim, as many of the smallest that are large enough as there are claims."""
    found: set[Row] = set()
    for size, fitting in shape:
        for pool in fitting:
            found.update(sorted(row for row in rows if row[0] >= size and row[2] == pool)[: len(shape)])
    return sorted(found)


@pytest.mark.parametrize("seed", SEEDS)
def test_the_few_volumes_of_a_domain_follow_what_comes_and_goes(seed: int) -> None:
    random, shared, there = Random(seed), Shared(), set[Row]()
    shapes: list[Shape] = [
        tuple(
            (random.randrange(6), frozenset(random.sample(range(3), random.randint(1, 3)))) for _ in range(count)
        )
        for count in (1, 2, 3)
    ]
    for turn in range(40):
        if there and random.random() < 0.4:
            row = random.choice(sorted(there))
            there.remove(row)
            shared.take(row)
        else:
            row = (random.randrange(6), f"v{turn}", random.randrange(3))
            there.add(row)
            shared.put(row)
        for shape in shapes:
            few = shared.few(shape)
            assert list(few.rows) == few_of(there, shape)
            assert list(few.names) == sorted(row[1] for row in few.rows)
            assert few.sizes == tuple((row[0], row[2]) for row in few.rows)
            assert shared.few(shape) is few


@pytest.mark.parametrize("count", [3, 40])
@pytest.mark.parametrize("seed", SEEDS)
def test_whatever_a_claim_may_get_of_a_nodes_own_volumes_is_among_the_best_rows(seed: int, count: int) -> None:
    random = Random(seed)
    rows = sorted((random.randrange(9), f"v{number}", random.randrange(3)) for number in range(count))
    shape: Shape = tuple((random.randrange(6), frozenset(random.sample(range(3), 2))) for _ in range(seed % 3 + 1))
    found, needed = set(best_rows(rows, shape)), {row[1] for row in few_of(rows, shape)}
    assert found >= needed
    assert len(found) <= max(FEW, len(needed))


def the_more_the_better(stock: Stock) -> Estimate:
    total, largest, reserved = stock.content[0]
    limit = total if largest is None else largest
    if len(stock.content) > 1 or limit is None:
        return Worth.UNCLEAR, 49
    if limit < 3 or (total is not None and total - reserved < 4):
        return Worth.HOPELESS, 0
    return Worth.SERVES, (limit if total is None else total) // 3


@pytest.mark.parametrize("seed", SEEDS)
def test_a_survey_of_rooms_finds_what_looking_at_each_of_them_does(seed: int) -> None:
    random, held, reserved = Random(seed), dict[str, StorageCapacity](), dict[str, int]()
    rooms = Rooms(held, reserved)
    for _ in range(60):
        name = f"r{random.randrange(20)}"
        key = f"csi/{name}"
        if key in held and random.random() < 0.3:
            rooms.take(held.pop(key))
        elif key in held and random.random() < 0.5:
            reserved[key] = random.choice([0, 0, 1, 5])
            rooms.touch(key)
        else:
            if key in held:
                rooms.take(held[key])
            size = random.choice([None, *map(str, range(12))])
            held[key] = capacity(name, size, maximum=random.choice([None, None, size, "5"]))
            rooms.put(held[key], Domain(key, Places(lambda _: True, None), 1 << random.randrange(NODES)))
        one_by_one: dict[Estimate, int] = {}
        for stock in rooms.census.stocks.values():
            worth = the_more_the_better(stock)
            one_by_one[worth] = one_by_one.get(worth, 0) | stock.mask
        surveyed: dict[Estimate, int] = {}
        for worth, mask in rooms.ladder.survey(the_more_the_better):
            assert not mask & surveyed.get(worth, 0)
            surveyed[worth] = surveyed.get(worth, 0) | mask
        assert surveyed == one_by_one
        assert sum(mask.bit_count() for mask in surveyed.values()) == len(list(positions(sum(surveyed.values()))))
