"""Zonal upgrade."""

from typing import Any

import pytest

from tests.support.objects import node, on_zone, volume
from volsched.kube.meta import LEGACY_REGION, LEGACY_ZONE, REGION, ZONE
from volsched.kube.workloads import Node
from volsched.workloads.rules.repairs import NoticeType, ZonalOutcome, ZonalUpgrade, upgrade_zonal

LZ, LR, Z, R = LEGACY_ZONE, LEGACY_REGION, ZONE, REGION
Terms = list[list[tuple[str, tuple[str, ...]]]]


def some(*keys: str) -> Node:
    """A node that carries these labels."""
    return node(f"n-{len(keys)}", labels=dict.fromkeys(keys, "any"))


def upgrade(labels: dict[str, str], *nodes: Node, **kw: Any) -> ZonalUpgrade:
    return upgrade_zonal(volume("pv", labels=labels, **kw), nodes)


def terms_of(result: ZonalUpgrade) -> Terms:
    assert result.outcome is ZonalOutcome.CONVERTED
    assert result.affinity is not None
    assert all(not term.match_fields for term in result.affinity.node_selector_terms)
    parts = [term.match_expressions for term in result.affinity.node_selector_terms]
    assert {part.operator for term in parts for part in term} == {"In"}
    return [[(part.key, part.values) for part in term] for term in parts]


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        ({LZ: "us-a", LR: "us"}, [(LZ, ("us-a",)), (LR, ("us",))]),
        ({LZ: "us-a__us-b", LR: "us"}, [(LZ, ("us-a", "us-b")), (LR, ("us",))]),
        ({LR: "us"}, [(LR, ("us",))]),
        ({Z: "b__a__b"}, [(Z, ("b", "a"))]),
        ({R: "us__eu"}, [(R, ("us__eu",))]),
        ({R: "us", Z: "us-a", "app": "db"}, [(Z, ("us-a",)), (R, ("us",))]),
        ({LZ: "us-a", R: "us"}, [(LZ, ("us-a",)), (R, ("us",))]),
    ],
    ids=["zone and region", "two zones", "region only", "label order, once", "region unsplit", "GA", "mixed"],
)
def test_labels_become_one_term_in_a_fixed_order(
    labels: dict[str, str], expected: list[tuple[str, tuple[str, ...]]]
) -> None:
    result = upgrade(labels)
    assert terms_of(result) == [expected]
    assert result.event is None


@pytest.mark.parametrize(
    ("labels", "kw"),
    [({}, {}), ({"app": "db"}, {}), ({}, {"nodeAffinity": on_zone("a")}), ({ZONE: "a"}, {"deleted": True})],
    ids=["no labels", "other labels", "affinity without labels", "being deleted"],
)
def test_nothing_to_upgrade(labels: dict[str, str], kw: dict[str, Any]) -> None:
    assert upgrade(labels, **kw) == ZonalUpgrade(outcome=ZonalOutcome.UNCHANGED)


def test_a_volume_being_deleted_is_left_alone_without_a_word() -> None:
    assert upgrade({ZONE: ""}, deleted=True) == ZonalUpgrade(outcome=ZonalOutcome.UNCHANGED)


@pytest.mark.parametrize("node_affinity", [on_zone("a"), {}], ids=["terms", "empty"])
def test_an_affinity_of_any_content_is_never_touched(node_affinity: dict[str, Any]) -> None:
    result = upgrade({ZONE: "a__b"}, nodeAffinity=node_affinity)
    assert (result.outcome, result.affinity) == (ZonalOutcome.SKIPPED, None)
    assert result.event is not None
    assert (result.event.type, result.event.reason) == (NoticeType.NORMAL, "ZonalUpgradeSkipped")


@pytest.mark.parametrize("value", ["a____b", "", "__a", "a__", "a__ __b", "a___b"])
@pytest.mark.parametrize("key", [LEGACY_ZONE, ZONE])
def test_one_bad_zone_leaves_the_whole_volume_unconverted(key: str, value: str) -> None:
    result = upgrade({key: value, REGION: "r"})
    assert (result.outcome, result.affinity) == (ZonalOutcome.INVALID, None)
    assert result.event is not None
    assert (result.event.type, result.event.reason) == (NoticeType.WARNING, "InvalidZoneLabel")
    assert f'{key}="{value}"' in result.event.message


@pytest.mark.parametrize("value", ["", "r____s"])
def test_a_region_that_volume_zone_ignores_is_not_enforced_by_an_affinity(value: str) -> None:
    assert upgrade({REGION: value, ZONE: "a"}).outcome is ZonalOutcome.INVALID


def test_a_bound_volume_is_converted_too() -> None:
    assert terms_of(upgrade({ZONE: "a"}, phase="Bound")) == [[(ZONE, ("a",))]]


@pytest.mark.parametrize(
    ("nodes", "keys"),
    [
        ([], [(LZ, LR)]),
        ([some()], [(LZ, LR)]),
        ([some("rack")], [(LZ, LR)]),
        ([some(LZ, LR)], [(LZ, LR)]),
        ([some(LZ, LR, Z, R)], [(LZ, LR)]),
        ([some(Z, R)], [(Z, R)]),
        ([some(Z, R), some()], [(Z, R)]),
        ([some(Z, R), some(LZ, LR)], [(LZ, LR), (Z, R)]),
        ([some(Z, R), some(LZ, LR, Z, R)], [(LZ, LR), (Z, R)]),
        ([some(LZ)], [(LZ, LR)]),
        ([some(Z)], [(Z, R)]),
        ([some(LZ, R), some(Z, R)], [(LZ, R), (Z, R)]),
    ],
    ids=[
        "no nodes",
        "no labels anywhere",
        "other labels",
        "legacy",
        "both on each",
        "GA",
        "GA beside an unlabelled one",
        "legacy beside GA",
        "both beside GA",
        "legacy zone alone",
        "GA zone alone",
        "one of either on one node",
    ],
)
@pytest.mark.parametrize("reverse", [False, True])
def test_legacy_labels_are_spelled_as_the_nodes_spell_them(
    nodes: list[Node], keys: list[tuple[str, str]], reverse: bool
) -> None:
    result = upgrade({LEGACY_ZONE: "a", LEGACY_REGION: "r"}, *(reversed(nodes) if reverse else nodes))
    assert terms_of(result) == [[(zone, ("a",)), (region, ("r",))] for zone, region in keys]


def test_ga_labels_are_never_spelled_as_legacy_ones() -> None:
    assert terms_of(upgrade({ZONE: "a"}, some(LEGACY_ZONE))) == [[(ZONE, ("a",))]]


@pytest.mark.parametrize(
    ("nodes", "expected"),
    [
        ([], [(LZ, ("a", "b"))]),
        ([some(LZ)], [(LZ, ("a", "b"))]),
        ([some(LZ), some(LZ, Z)], [(Z, ("b", "a"))]),
        ([some(Z)], [(Z, ("b", "a"))]),
    ],
    ids=["no nodes", "legacy nodes", "some GA", "GA nodes"],
)
def test_of_two_labels_with_equal_sets_the_one_that_nodes_carry_remains(
    nodes: list[Node], expected: list[tuple[str, tuple[str, ...]]]
) -> None:
    result = upgrade({LEGACY_ZONE: "a__b", ZONE: "b__a"}, *nodes)
    assert terms_of(result) == [expected]
    assert result.event is None


def test_equal_region_labels_are_merged_like_zones() -> None:
    labels = {LEGACY_REGION: "r", REGION: "r"}
    assert terms_of(upgrade(labels, some(REGION))) == [[(REGION, ("r",))]]


@pytest.mark.parametrize(
    ("nodes", "expected"),
    [
        ([], [[(LZ, ("a", "b")), (Z, ("a",))]]),
        ([some(LZ, Z)], [[(LZ, ("a", "b")), (Z, ("a",))]]),
        ([some(Z)], [[(Z, ("a", "b")), (Z, ("a",))]]),
    ],
    ids=["no nodes", "both labels", "GA only"],
)
def test_labels_with_different_sets_must_both_hold_and_are_reported(nodes: list[Node], expected: Terms) -> None:
    result = upgrade({LEGACY_ZONE: "a__b", ZONE: "a"}, *nodes)
    assert terms_of(result) == expected
    assert result.event is not None
    assert (result.event.type, result.event.reason) == (NoticeType.WARNING, "ConflictingZoneLabels")
    assert LEGACY_ZONE in result.event.message


def test_conflicting_regions_are_reported_too() -> None:
    result = upgrade({LEGACY_REGION: "r", REGION: "s"})
    assert result.event is not None
    assert result.event.reason == "ConflictingZoneLabels"
    assert LEGACY_REGION in result.event.message


def test_nodes_that_the_affinity_newly_shuts_out_are_counted() -> None:
    result = upgrade({ZONE: "a"}, some(), some("rack"), some(ZONE), some(LEGACY_REGION))
    assert result.unlabelled_nodes == 2
