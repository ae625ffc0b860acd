"""What is kept of an attempt, and what a pod says of its own scheduling."""

from typing import Any

import pytest

from tests.support.objects import claim, local_volume, node, pod, storage_class
from volsched.log.events.envelope import canonical
from volsched.scheduling.rules.attempts import (
    event_of_attempt,
    gated_conditions,
    message_of,
    placed_conditions,
    pod_message,
    reason_of,
    refused_conditions,
    rejectors_of,
)
from volsched.scheduling.rules.cycle import Attempt, RunnerUp, Verdict, attempt
from volsched.scheduling.rules.pod_claims import PodClaims
from volsched.scheduling.rules.profile import VOLSCHED
from volsched.scheduling.rules.reasons import NO_VOLUME_TO_BIND, TOO_MANY_VOLUMES
from volsched.scheduling.rules.snapshot import snapshot_of
from volsched.scheduling.rules.status import SUCCESS, Code, Failure, Miss, Rejection, Rule, Status

LATER = "2026-01-02T00:00:00Z"
EARLIER = "2026-01-01T00:00:00Z"
REFUSED: dict[str, Any] = {
    "type": "PodScheduled",
    "status": "False",
    "reason": "Unschedulable",
    "message": "no",
    "lastTransitionTime": EARLIER,
}
READY = {"type": "Ready", "status": "False"}


def kept(found: Attempt) -> dict[str, Any]:
    return dict(event_of_attempt(pod(), found, "a1", 7, "me").data)


def test_reasons_are_kept_by_node_set_with_some_of_the_nodes() -> None:
    nodes = [node(f"n{i}") for i in range(9)]
    found = attempt(snapshot_of([storage_class(), claim(), *nodes]), pod("data"), profile=VOLSCHED)
    data = kept(found)
    assert data["outcome"] == "unschedulable"
    (reason,) = data["detail"]["reasons"]
    assert (reason["reason"], reason["nodes"]) == (NO_VOLUME_TO_BIND, 9)
    assert reason["some"] == ["n0", "n1", "n2", "n3", "n4"]
    assert (data["decided_at"], data["decider"]) == (7, "me")


def test_a_reason_is_kept_claim_by_claim_with_the_nearest_volume_of_the_nearest_node() -> None:
    objects = [storage_class(), claim("data", "8Gi"), node("n1"), node("n2"), local_volume("pv", "5Gi", "n2")]
    found = attempt(snapshot_of(objects), pod("data"), profile=VOLSCHED)
    (reason,) = kept(found)["detail"]["reasons"]
    maker = {
        "rule": "provisioner",
        "wanted": "a class that provisions volumes",
        "got": 'class "fast" has provisioner kubernetes.io/no-provisioner',
    }
    too_small = {"rule": "capacity", "wanted": "at least 8Gi", "got": "5Gi"}
    assert reason["claims"] == [
        {"claim": "db/data", "node": "n2", "failures": [maker], "volume": "pv", "rules": [too_small]}
    ]


def test_what_is_kept_of_a_refusal_is_bounded_whatever_is_said() -> None:
    said = tuple(Failure(Rule.SELECTOR, "w" * 500, "g" * 500) for _ in range(9))
    misses = (Miss("pv", said), Miss("other", said))
    refused = {}
    for number in range(9):
        reason = f"reason {number}"
        rejections = tuple(
            Rejection(reason=reason, claim=f"db/c{i}", failures=said, misses=misses) for i in range(9)
        )
        refused[Status(Code.UNSCHEDULABLE, (reason,), rejections)] = 1_000 + number
    found = Attempt(
        status=Status(Code.UNSCHEDULABLE, ("all",)),
        claims=PodClaims(),
        refused=refused,
        in_full={status: Verdict("n1", status) for status in refused},
    )
    data = kept(found)["detail"]["reasons"]
    assert len(data) == 9
    assert [len(it.get("claims", ())) for it in data] == [3, 3, 3, 0, 0, 0, 0, 0, 0]
    (first, *_) = data[0]["claims"]
    assert (len(first["failures"]), len(first["rules"]), first["volume"]) == (3, 3, "pv")
    assert first["rules"][0]["wanted"] == "w" * 119 + "…"
    assert len(canonical(data)) < 17_000


def test_a_reason_of_two_refusals_is_counted_for_both_and_the_commonest_comes_first() -> None:
    both, one = Status(Code.UNRESOLVABLE, ("a", "b")), Status(Code.UNSCHEDULABLE, ("b",))
    found = Attempt(
        status=Status(Code.UNSCHEDULABLE, ("all",)),
        claims=PodClaims(),
        refused={both: 3, one: 4},
        examples={both: ("n2", "n4", "n6"), one: ("n1", "n3", "n5", "n7")},
    )
    assert kept(found)["detail"]["reasons"] == [
        {"reason": "b", "nodes": 7, "some": ["n1", "n2", "n3", "n4", "n5"]},
        {"reason": "a", "nodes": 3, "some": ["n2", "n4", "n6"]},
    ]


def test_the_chosen_node_is_kept_with_its_scores_and_three_runners_up() -> None:
    chosen = Verdict("n1", SUCCESS, score=120, scores={"VolumeBinding": 90, "NodeAffinity": 15})
    others = tuple(RunnerUp(f"n{i}", 100 - i) for i in range(2, 7))
    data = kept(Attempt(status=SUCCESS, claims=PodClaims(), chosen=chosen, runners_up=others))
    assert (data["outcome"], data["node"], data["detail"]["score"]) == ("planned", "n1", 120)
    assert data["detail"]["scores"] == {"VolumeBinding": 90, "NodeAffinity": 15}
    assert [it["node"] for it in data["detail"]["runnersUp"]] == ["n2", "n3", "n4"]


def test_an_error_is_kept_as_one() -> None:
    found = Attempt(status=Status(Code.ERROR, ("broken",)), claims=PodClaims())
    assert (kept(found)["outcome"], message_of(found)) == ("error", "broken")


def test_an_attempt_that_finds_a_node_names_it() -> None:
    world = snapshot_of([storage_class(), claim(), node(), local_volume("pv", "10Gi", "n1")])
    assert kept(attempt(world, pod("data"), profile=VOLSCHED))["node"] == "n1"


@pytest.mark.parametrize(
    ("said", "rejectors", "expected"),
    [
        ("no", {"VolumeBinding"}, {"VolumeBinding"}),
        (TOO_MANY_VOLUMES, {"VolumeBinding"}, {"VolumeBinding", "NodeVolumeLimits"}),
        (TOO_MANY_VOLUMES, set[str](), set[str]()),
    ],
)
def test_slots_are_waited_for_where_they_were_missing(said: str, rejectors: set[str], expected: set[str]) -> None:
    found = Attempt(
        status=Status(Code.UNSCHEDULABLE, (f"0/1 nodes are available: 1 {said}.",)),
        claims=PodClaims(),
        rejectors=frozenset(rejectors),
    )
    assert rejectors_of(found) == expected


# --- the condition --------------------------------------------------------------------------------------


def manifest(*conditions: dict[str, Any]) -> dict[str, Any]:
    return {"status": {"conditions": list(conditions)}}


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ([], [{**REFUSED, "lastTransitionTime": LATER}]),
        ([REFUSED], None),
        ([READY], [READY, {**REFUSED, "lastTransitionTime": LATER}]),
        ([{**REFUSED, "message": "other"}, READY], [READY, REFUSED]),
        ([{**REFUSED, "reason": "SchedulerError"}], [REFUSED]),
        ([{"type": "PodScheduled", "status": "True"}], [{**REFUSED, "lastTransitionTime": LATER}]),
    ],
)
def test_a_pod_without_a_node_says_so_once(
    before: list[dict[str, Any]], after: list[dict[str, Any]] | None
) -> None:
    found = refused_conditions(manifest(*before), reason="Unschedulable", message="no", now=LATER)
    assert found == after


def test_a_pod_with_a_node_says_so_and_since_when() -> None:
    placed = {"type": "PodScheduled", "status": "True", "lastTransitionTime": LATER}
    assert placed_conditions({"status": {}}, LATER) == [placed]
    assert placed_conditions(manifest(REFUSED, READY), LATER) == [READY, placed]
    assert placed_conditions(manifest(placed), "2036-01-01T00:00:00Z") == [placed]


def test_a_pod_with_gates_says_what_it_waits_for() -> None:
    assert gated_conditions({"spec": {}}, LATER) is None
    (condition,) = gated_conditions({"spec": {"schedulingGates": [{"name": "g"}]}}, LATER) or []
    assert (condition["status"], condition["reason"]) == ("False", "SchedulingGated")
    assert condition["message"] == "Scheduling is blocked due to non-empty scheduling gates"


def test_only_a_refusal_before_any_node_was_looked_at_has_the_tail_of_the_reference() -> None:
    no = Status(Code.UNRESOLVABLE, ("no",))
    before = Attempt(status=no, claims=PodClaims(), rejectors=frozenset({"VolumeBinding"}))
    after = Attempt(status=no, claims=PodClaims(), rejectors=frozenset({"VolumeBinding"}), refused={no: 1})
    nowhere = Attempt(status=no, claims=PodClaims())
    assert [pod_message(it) for it in (before, after, nowhere)] == ["no not found", "no", "no"]


@pytest.mark.parametrize("code", [Code.UNSCHEDULABLE, Code.UNRESOLVABLE, Code.ERROR])
def test_an_error_has_a_reason_of_its_own(code: Code) -> None:
    assert reason_of(code) == ("SchedulerError" if code is Code.ERROR else "Unschedulable")
