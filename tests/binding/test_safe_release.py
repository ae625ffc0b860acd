"""The safe table: one state of the cluster per row, and what a release does about it."""

from collections.abc import Mapping
from typing import Any

import pytest

from volsched.binding.rules.safe_release import ACTIONS, REASONS, SafeAction, SafeRow, dynamic_row, static_row
from volsched.kube.meta import BIND_COMPLETED, BINDING_STAMP, SELECTED_NODE, STORAGE_PROVISIONER
from volsched.kube.patches import merged

OURS, THEIRS = {"uid": "claim-1", "name": "data"}, {"uid": "claim-2", "name": "other"}
DELETED = {"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}
STAMPED = {"metadata": {"annotations": {BINDING_STAMP: "b1"}}}
COMPLETED = {"metadata": {"annotations": {BIND_COMPLETED: "yes"}}, "spec": {"volumeName": "pv-1"}}


def volume(phase: str, reference: Mapping[str, Any] | None = OURS, stamp: str | None = "b1") -> dict[str, Any]:
    notes = {} if stamp is None else {BINDING_STAMP: stamp}
    told = {} if reference is None else {"claimRef": dict(reference)}
    return {"metadata": {"name": "pv-1", "annotations": notes}, "spec": told, "status": {"phase": phase}}


def claim(*changes: Mapping[str, Any]) -> dict[str, Any]:
    made: dict[str, Any] = {"metadata": {"uid": "claim-1", "annotations": {}}, "spec": {}}
    for change in changes:
        made = dict(merged(made, change))
    return made


NAMED, ELSEWHERE = {"spec": {"volumeName": "pv-1"}}, {"spec": {"volumeName": "pv-9"}}
STATIC = [
    (SafeRow.FREE, claim(), volume("Available", None)),
    (SafeRow.FREE, claim(), volume("Available", {"name": "data"})),
    (SafeRow.PREBOUND, claim(), volume("Available")),
    (SafeRow.PREBOUND, claim(ELSEWHERE), volume("Available")),
    (SafeRow.HALF_BOUND, claim(), volume("Bound")),
    (SafeRow.HALF_BOUND, claim(), volume("Pending")),
    (SafeRow.NAMED, claim(NAMED), volume("Bound")),
    (SafeRow.NAMED, claim(NAMED), volume("Available")),
    (SafeRow.BOUND, claim(COMPLETED), volume("Bound")),
    (SafeRow.BOUND, claim(COMPLETED, DELETED), volume("Bound")),
    (SafeRow.NOT_OURS, claim(), volume("Available", THEIRS)),
    (SafeRow.NOT_OURS, claim(), volume("Available", stamp="b2")),
    (SafeRow.NOT_OURS, claim(), volume("Available", stamp=None)),
    (SafeRow.CLAIM_GONE, None, volume("Available")),
    (SafeRow.CLAIM_GONE, claim(DELETED), volume("Available")),
    (SafeRow.CLAIM_GONE_LATE, None, volume("Bound")),
    (SafeRow.CLAIM_GONE_LATE, None, volume("Released")),
    (SafeRow.CLAIM_GONE_LATE, None, volume("Failed")),
    (SafeRow.CLAIM_GONE_LATE, claim(DELETED), volume("Bound")),
    (SafeRow.CLAIM_GONE_LATE, claim(ELSEWHERE), volume("Bound")),
]
CHOSEN = {"metadata": {"annotations": {SELECTED_NODE: "n1"}}}
ORDERED = {"metadata": {"annotations": {STORAGE_PROVISIONER: "disk.example.com"}}}
DYNAMIC = [
    (SafeRow.FREE, None),
    (SafeRow.FREE, claim({"metadata": {"uid": "claim-9"}}, STAMPED, CHOSEN)),
    (SafeRow.FREE, claim()),
    (SafeRow.SELECTED, claim(STAMPED, CHOSEN)),
    (SafeRow.PROVISIONING, claim(STAMPED, CHOSEN, ORDERED)),
    (SafeRow.PROVISIONING, claim(STAMPED, CHOSEN, NAMED)),
    (SafeRow.GIVEN_BACK, claim(STAMPED, ORDERED)),
    (SafeRow.NOT_OURS, claim(CHOSEN)),
    (SafeRow.BOUND, claim(STAMPED, CHOSEN, ORDERED, COMPLETED)),
]


STRANDED = [
    (SafeRow.NODE_GONE, claim(STAMPED, CHOSEN, ORDERED)),
    (SafeRow.SELECTED, claim(STAMPED, CHOSEN)),
    (SafeRow.NOT_OURS, claim(CHOSEN, ORDERED)),
    (SafeRow.GIVEN_BACK, claim(STAMPED, ORDERED)),
    (SafeRow.PROVISIONING, claim(STAMPED, CHOSEN, ORDERED, NAMED)),
    (SafeRow.FREE, None),
]
"""The selected node is gone for long, and no volume was made."""


@pytest.mark.parametrize(("row", "held", "found"), STATIC)
def test_a_static_leg_is_in_the_row_of_its_claim_and_volume(
    row: SafeRow, held: dict[str, Any] | None, found: dict[str, Any]
) -> None:
    assert static_row("b1", "pv-1", "claim-1", held, found) is row


@pytest.mark.parametrize(("row", "held"), DYNAMIC)
def test_a_dynamic_leg_is_in_the_row_of_its_claim(row: SafeRow, held: dict[str, Any] | None) -> None:
    assert dynamic_row("b1", "claim-1", held) is row


@pytest.mark.parametrize(("row", "held"), STRANDED)
def test_d2_a_claim_whose_node_is_gone_for_long_is_given_back_only_if_it_is_ours(
    row: SafeRow, held: dict[str, Any] | None
) -> None:
    assert dynamic_row("b1", "claim-1", held, is_stranded=True) is row


def test_every_row_has_an_example_an_action_and_where_it_is_kept_a_reason() -> None:
    assert {row for row, *_ in (*STATIC, *DYNAMIC, *STRANDED)} == set(SafeRow) == ACTIONS.keys()
    kept = {row for row, action in ACTIONS.items() if action in (SafeAction.RETAIN, SafeAction.WAIT)}
    assert kept == REASONS.keys()


def test_only_what_no_controller_has_begun_is_ever_cleared_but_for_a_node_that_is_gone() -> None:
    cleared = {row for row, action in ACTIONS.items() if action is SafeAction.CLEAR}
    begun = {SafeRow.NODE_GONE}
    assert cleared - begun == {SafeRow.PREBOUND, SafeRow.CLAIM_GONE, SafeRow.SELECTED, SafeRow.GIVEN_BACK}
