"""The golden vectors of the reference's PV controller: every outcome equal, and a wrong outcome noticed."""

import copy
from pathlib import Path
from typing import Any

import pytest

from tests.support.golden_vectors import vectors_by_category
from volsched.lab.conformance.controller import cluster_of
from volsched.lab.conformance.vectors import Vector, run_vector
from volsched.pv_controller.rules import VOLSCHED

VECTORS = vectors_by_category(Path(__file__).parent / "controller.jsonl.gz")


def find(name: str) -> Vector:
    return next(vector for vector in VECTORS[name.rsplit("-", 1)[0]] if vector.id == name)


@pytest.mark.parametrize("category", sorted(VECTORS))
def test_outcomes_are_the_references(category: str) -> None:
    failed = [outcome for outcome in map(run_vector, VECTORS[category]) if outcome.failed]
    assert not failed, [(outcome.vector.id, outcome.differences[0]) for outcome in failed[:5]]


def test_none_is_skipped() -> None:
    outcomes = [run_vector(vector) for vector in VECTORS["wffc"]]
    assert not any(outcome.skipped for outcome in outcomes)


def wrong(vector: Vector, path: tuple[Any, ...], value: Any) -> Vector:
    expected = copy.deepcopy(dict(vector.expected))
    place: Any = expected
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    return Vector(vector.id, vector.category, vector.input, expected)


@pytest.mark.parametrize(
    ("name", "path", "value", "found"),
    [
        ("wffc-0014", ("persistentVolumes", 0, "phase"), "Bound", "persistentVolumes.pv1.phase"),
        ("wffc-0014", ("persistentVolumeClaims", 0, "annotations"), {}, "persistentVolumeClaims.default/c1.ann"),
        ("wffc-0014", ("events", 0, "reason"), "Odd", "events"),
        ("wffc-0014", ("pluginCalls", 0, "result"), "", "pluginCalls"),
        ("wffc-0014", ("events",), [], "events"),
        ("random-mix-0606", ("converged",), False, "converged"),
    ],
)
def test_a_difference_in_any_field_is_found(name: str, path: tuple[Any, ...], value: Any, found: str) -> None:
    differences = run_vector(wrong(find(name), path, value)).differences
    assert [difference.path.startswith(found) for difference in differences] == [True]


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("rounds",), 99),
        (("writes",), []),
        (("errors",), ["x"]),
        (("events", 0, "message"), "another text"),
        (("persistentVolumes", 0, "message"), "another text"),
    ],
)
def test_how_the_reference_got_there_is_not_compared(path: tuple[Any, ...], value: Any) -> None:
    assert not run_vector(wrong(find("wffc-0014"), path, value)).failed


@pytest.mark.parametrize(
    "odd",
    [
        {"mode": "dance"},
        {"mode": "sync", "sync": {"kind": "PersistentVolume", "name": "nowhere"}},
        {"mode": "settle"},
        {"persistentVolumes": [{"metadata": {"name": "x"}, "spec": {"capacity": {"storage": "much"}}}]},
        {"persistentVolumes": [3]},
    ],
)
def test_a_vector_that_cannot_be_run_fails_alone(odd: dict[str, Any]) -> None:
    vector = find("wffc-0014")
    (difference,) = run_vector(
        Vector(vector.id, vector.category, {**vector.input, **odd}, vector.expected)
    ).differences
    assert difference.path == "input"


def test_the_products_own_rules_settle_every_vector_too() -> None:
    """Rollback and clean marks add no endless loop, and no surprise on objects that do not use them."""
    for mine in VECTORS.values():
        for vector in mine:
            if vector.input["mode"] == "settle":
                assert cluster_of(vector.input, rules=VOLSCHED).settle(
                    "PersistentVolumeClaim", "PersistentVolume"
                ), vector.id
