"""The parts of the index, each on its own."""

import pytest

from tests.support.objects import (
    capacity,
    claim,
    in_zone,
    local_volume,
    node,
    on_node,
    on_zone,
    storage_class,
    volume,
)
from volsched.kube.quantity import parse_quantity
from volsched.kube.storage import Volume
from volsched.kube.workloads import Node
from volsched.scheduling.index.contents import Contents
from volsched.scheduling.index.node_groups import static_score
from volsched.scheduling.index.node_sets import Nodes, is_single, positions
from volsched.scheduling.index.stock_ranks import Census, Estimate, Stock, Worth
from volsched.scheduling.rules.claim_plan import StaticBinding
from volsched.scheduling.rules.dynamic_volumes import PlannedVolume
from volsched.scheduling.rules.profile import VOLSCHED
from volsched.scheduling.rules.scoring import NEW_VOLUME_SCORES, node_score
from volsched.scheduling.rules.volume_filter import NodeAnswer


def test_positions_of_a_mask_come_lowest_first() -> None:
    assert list(positions(0b10110)) == [1, 2, 4]
    assert [is_single(mask) for mask in (0, 1, 0b100, 0b110)] == [False, True, True, False]


def test_the_first_node_is_the_one_with_the_smallest_name_in_whatever_order_nodes_came() -> None:
    nodes = Nodes()
    for name in ("n3", "n1", "n2"):
        nodes.put(node(name))
    assert nodes.first(nodes.everyone).name == "n1"
    assert nodes.first(nodes.mask_of("n3") | nodes.mask_of("n2")).name == "n2"


def test_a_position_is_given_to_the_next_node_without_what_the_last_one_left() -> None:
    nodes = Nodes()
    nodes.put(in_zone("n1", "a"))
    nodes.drop("n1")
    nodes.put(in_zone("n2", "b"))
    assert nodes.everyone == 1
    assert nodes.carriers([("topology.kubernetes.io/zone", "a")]) == 0
    assert len(nodes.zones) == 1


def held(*objects: object) -> Contents:
    contents = Contents(VOLSCHED)
    for value in objects:
        contents.put(value)  # type: ignore[arg-type]
    return contents


def test_a_volume_that_one_node_reaches_is_its_own_and_any_other_is_shared() -> None:
    contents = held(in_zone("n1", "a"), in_zone("n2", "a"), local_volume("own", "1Gi", "n1"))
    contents.put(volume("zonal", nodeAffinity=on_zone("a")))
    shelf = contents.storage.shelves["fast"]
    assert list(shelf.own) == [0]
    assert [domain.mask for domain in shelf.shared] == [0b11]


def test_a_shared_volume_becomes_the_own_of_the_last_node_of_its_zone() -> None:
    contents = held(in_zone("n1", "a"), in_zone("n2", "a"), volume("zonal", nodeAffinity=on_zone("a")))
    contents.drop(Node, "n2")
    shelf = contents.storage.shelves["fast"]
    assert list(shelf.own) == [0]
    assert not shelf.shared
    contents.put(in_zone("n1", "b"))
    assert not shelf.own


def test_a_node_may_come_after_its_volumes() -> None:
    contents = held(local_volume("v", "1Gi", "n1"))
    assert not contents.storage.shelves["fast"].own
    contents.put(node("n1"))
    assert [row[1] for row in contents.storage.shelves["fast"].own[0]] == ["v"]


@pytest.mark.parametrize(
    "taken",
    [
        {"claim_ref": {"namespace": "db", "name": "x"}},
        {"phase": "Released"},
        {"deleted": True},
    ],
)
def test_a_volume_that_is_not_free_leaves_the_shelf(taken: dict[str, object]) -> None:
    contents = held(node("n1"), local_volume("v", "1Gi", "n1"))
    contents.put(local_volume("v", "1Gi", "n1", **taken))
    assert not contents.storage.shelves["fast"].own


def test_nodes_with_volumes_of_equal_sizes_have_one_stock() -> None:
    contents = held(*(node(f"n{i}") for i in range(3)), *(local_volume(f"v{i}", "1Gi", f"n{i}") for i in range(3)))
    assert [stock.mask for stock in contents.storage.shelves["fast"].census.stocks.values()] == [0b111]


def test_volumes_that_come_one_after_the_other_are_counted_once() -> None:
    volumes = [local_volume(f"v{i}", "1Gi", f"n{i % 2}") for i in range(60)]
    contents = held(node("n0"), node("n1"), *volumes)
    census = contents.storage.shelves["fast"].census
    assert sorted(census.moved) == [0, 1]
    assert [len(stock.content) for stock in census.stocks.values()] == [30]
    contents.drop(Volume, "v0")
    contents.put(volumes[0])
    assert sorted(contents.storage.shelves["fast"].census.moved) == [0, 1]


def test_nothing_is_left_of_what_was_dropped() -> None:
    objects = [
        in_zone("n1", "a"),
        storage_class(),
        local_volume("v", "1Gi", "n1"),
        volume("w", nodeAffinity=on_node("n1")),
    ]
    contents = held(*objects)
    contents.drop(Volume, "v")
    contents.drop(Volume, "w")
    contents.drop(Node, "n1")
    shelf = contents.storage.shelves["fast"]
    assert not shelf.own
    assert not shelf.census.stocks
    assert not contents.storage.reaches
    assert not contents.nodes.everyone


def test_a_ranking_looks_again_only_at_nodes_that_have_moved() -> None:
    census, asked = Census(), []

    def estimate(stock: Stock) -> Estimate:
        asked.append(stock.content)
        return Worth.SERVES, len(stock.content)

    for position in range(3):
        census.move(position, ((position, 0),))
    assert census.ranking("shape", estimate).mask(Worth.SERVES, 1) == 0b111
    asked.clear()
    census.move(1, ((1, 0), (2, 0)))
    ranking = census.ranking("shape", estimate)
    assert asked == [((1, 0), (2, 0))]
    assert (ranking.mask(Worth.SERVES, 1), ranking.mask(Worth.SERVES, 2)) == (0b101, 0b010)


@pytest.mark.parametrize(("wanted", "size"), [("1Gi", "1Gi"), ("1Gi", "3Gi"), ("100.5Mi", "101Mi"), ("0", "1Gi")])
def test_the_estimate_of_a_static_binding_is_the_score_of_the_rules(wanted: str, size: str) -> None:
    answer = NodeAnswer(bindings=(StaticBinding(claim(size=wanted), volume(size=size)),))
    estimate = static_score(parse_quantity(wanted).nano, parse_quantity(size).nano, int64_sizes=False)
    assert estimate == node_score(answer, profile=VOLSCHED)


@pytest.mark.parametrize("percent", [0, 1, 33, 99, 100])
def test_the_estimate_of_a_provision_is_the_score_of_the_rules(percent: int) -> None:
    answer = NodeAnswer(provisions=(PlannedVolume(claim(size=str(percent)), capacity(size="100")),))
    assert NEW_VOLUME_SCORES[percent] == node_score(answer, profile=VOLSCHED)
