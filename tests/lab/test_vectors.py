"""The golden vectors of the reference's binder: every answer equal, and a wrong answer noticed."""

import copy
from pathlib import Path

import pytest

from tests.support.golden_vectors import vectors_by_category
from volsched.lab.conformance.vectors import Vector, run_vector

VECTORS = vectors_by_category(Path(__file__).parent / "binder.jsonl.gz")


@pytest.mark.parametrize("category", sorted(VECTORS))
def test_answers_are_the_references_and_only_its_crashes_are_skipped(category: str) -> None:
    outcomes = [run_vector(vector) for vector in VECTORS[category]]
    failed = [outcome for outcome in outcomes if outcome.failed]
    assert not failed, [(outcome.vector.id, outcome.differences[0]) for outcome in failed[:5]]
    assert any(outcome.skipped for outcome in outcomes) is (category == "score-panic")


@pytest.mark.parametrize(
    "path",
    [
        ("claims", "unboundDelayed"),
        ("claims", "candidateVolumes"),
        ("preFilter", "code"),
        ("preScore", "code"),
        ("nodes", "node-1", "score"),
        ("nodes", "node-1", "staticBindings"),
        ("assume", "assumedPVs"),
        ("followUp", "nodes", "node-3", "reasons"),
    ],
)
def test_a_difference_in_any_field_is_found(path: tuple[str, ...]) -> None:
    vector = next(vector for vector in VECTORS["sequence"] if vector.id == "sequence-0000")
    expected = copy.deepcopy(dict(vector.expected))
    place = expected
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = "something else"
    (difference,) = run_vector(Vector(vector.id, vector.category, vector.input, expected)).differences
    assert difference.path == ".".join(path)


def test_explicit_nulls_are_absent_fields() -> None:
    vector = next(vector for vector in VECTORS["sequence"] if vector.id == "sequence-0000")
    given = copy.deepcopy(dict(vector.input))
    for volume in given["persistentVolumes"]:
        volume["metadata"] |= {"creationTimestamp": None, "annotations": volume["metadata"].get("annotations")}
        volume["spec"] |= {"claimRef": volume["spec"].get("claimRef"), "mountOptions": None}
    given["pod"]["spec"]["affinity"] = None
    assert not run_vector(Vector(vector.id, vector.category, given, vector.expected)).failed


def test_where_the_reference_crashed_all_but_the_score_is_compared() -> None:
    vector = VECTORS["score-panic"][0]
    expected = copy.deepcopy(dict(vector.expected))
    crashed = next(node for node in expected["nodes"].values() if "scorePanic" in node)
    crashed["reasons"] = ["something else"]
    outcome = run_vector(Vector(vector.id, vector.category, vector.input, expected))
    assert outcome.failed
    assert not outcome.skipped
