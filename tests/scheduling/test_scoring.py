"""Scores of both policies."""

from dataclasses import replace

import pytest

from tests.support.objects import capacity, claim, volume
from volsched.scheduling.rules.claim_plan import StaticBinding
from volsched.scheduling.rules.dynamic_volumes import PlannedVolume
from volsched.scheduling.rules.profile import PACK, PARITY, SPREAD, VOLSCHED, ShapePoint, shape_problem
from volsched.scheduling.rules.scoring import node_score, shape_score
from volsched.scheduling.rules.volume_filter import NodeAnswer

Fit = tuple[str, str, str]
"""Class, requested, capacity."""


def static(*fits: Fit) -> NodeAnswer:
    return NodeAnswer(
        bindings=tuple(
            StaticBinding(claim(f"c{i}", asked, cls=cls), volume(f"v{i}", size, cls=cls))
            for i, (cls, asked, size) in enumerate(fits)
        )
    )


def dynamic(*requests: str, room: str | None = "100Gi", maximum: str | None = None) -> NodeAnswer:
    published = None if room is None and maximum is None else capacity(size=room, maximum=maximum)
    return NodeAnswer(
        provisions=tuple(PlannedVolume(claim(f"c{i}", r, cls="dyn"), published) for i, r in enumerate(requests))
    )


@pytest.mark.parametrize(
    ("decision", "spread", "pack"),
    [
        (static(("a", "50Gi", "100Gi")), 50, 50),
        (static(("a", "10Gi", "30Gi")), 67, 33),
        (static(("a", "10Gi", "20Gi"), ("b", "30Gi", "100Gi")), 60, 40),
        (static(("a", "10Gi", "20Gi"), ("a", "30Gi", "100Gi")), 67, 33),
        (dynamic("10Gi", room="100Gi"), 90, 10),
        (dynamic("10Gi", room="50Gi"), 80, 20),
        (dynamic("10Gi", room="10Gi"), 0, 100),
        (dynamic("50Gi", "50Gi"), 0, 100),
        (dynamic("10Gi", room=None), 0, 0),
        (NodeAnswer(), 0, 0),
    ],
)
def test_upstream_policy(decision: NodeAnswer, spread: int, pack: int) -> None:
    assert node_score(decision, profile=replace(PARITY, shape=SPREAD)) == spread
    assert node_score(decision, profile=replace(PARITY, shape=PACK)) == pack


def test_a_broken_line_shape() -> None:
    shape = (ShapePoint(0, 0), ShapePoint(60, 5), ShapePoint(100, 10))
    assert [shape_score(shape, used) for used in (0, 30, 60, 80, 100)] == [0, 25, 50, 75, 100]
    assert shape_score((ShapePoint(50, 4),), 10) == shape_score((ShapePoint(50, 4),), 90) == 40


def test_sizes_beyond_an_int64_score_as_capacity_zero_in_parity() -> None:
    assert node_score(static(("a", "10Gi", "900E")), profile=PARITY) == 0


def test_where_the_reference_crashes_the_limit_stands_for_the_capacity() -> None:
    assert node_score(dynamic("10Gi", room=None, maximum="20Gi"), profile=PARITY) == 50


@pytest.mark.parametrize(
    ("decision", "expected"),
    [
        (static(("a", "10Gi", "10Gi")), 100),
        (static(("a", "10Gi", "40Gi")), 62),
        (dynamic("10Gi"), 44),
        (dynamic("10Gi", room=None), 0),
        (NodeAnswer(), 0),
    ],
)
def test_seed_policy(decision: NodeAnswer, expected: int) -> None:
    assert node_score(decision, profile=VOLSCHED) == expected


def test_seed_policy_ranks_every_static_node_above_every_dynamic_one() -> None:
    worst_static = static(("a", "1", "900E"))
    best_dynamic = dynamic("1", room="900E")
    assert node_score(worst_static, profile=VOLSCHED) > node_score(best_dynamic, profile=VOLSCHED)


@pytest.mark.parametrize(
    ("shape", "problem"),
    [
        ((), "at least one point must be specified"),
        ((ShapePoint(10, 0), ShapePoint(10, 5)), "utilization 10 does not rise above 10"),
        ((ShapePoint(101, 0),), "utilization 101 is not within 0..100"),
        ((ShapePoint(0, 11),), "score 11 is not within 0..10"),
        (SPREAD, None),
    ],
)
def test_a_shape_that_cannot_be_used_says_why(shape: tuple[ShapePoint, ...], problem: str | None) -> None:
    assert shape_problem(shape) == problem


def test_a_profile_with_such_a_shape_cannot_be_made() -> None:
    with pytest.raises(ValueError, match="at least one point"):
        replace(PARITY, shape=())
