"""What a pod is told of a binding that failed after the decision, and what is kept of it."""

from typing import Any

import pytest

from tests.binding.rule_scenes import (
    CLAIM,
    NODE,
    POD,
    POD_STREAM,
    POD_UID,
    VOLUME,
    B,
    Scene,
    binding_of,
    binding_state,
    changed,
    dynamic_leg,
    folded,
    joined_leg,
    scene,
    static_leg,
    without,
)
from volsched.binding.rules.effect_writes import next_step
from volsched.binding.rules.effects import ANNOTATE, PREBIND, LegOutcome, PodOutcome
from volsched.binding.rules.failures import MOST_CHARACTERS, BindingFailure, failure_event, pod_notices
from volsched.binding.rules.saga import advance, fail, record_leg, record_pod, time_out
from volsched.log.events.envelope import NewEvent
from volsched.log.events.fold import AttemptState, Decision, LegState
from volsched.objects.rules.object_events import SCHEDULER

NOW = "2026-01-02T00:00:00Z"
PREBIND_FAILED = 'running PreBind plugin "VolumeBinding": '
MODIFIED = "the object has been modified; please apply your changes to the latest version and try again"


def failure_of(states: Scene, decision: Decision) -> BindingFailure:
    """As the store reads it from the move that gives the decision up."""
    (move,) = (it for it in decision.events if it.type == "BindingMoved")
    data = move.data
    return BindingFailure(B, binding_of(folded(states, decision)), data["stage"], data["reason"], data.get("leg"))


def refused_write(leg: LegState, states: Scene) -> tuple[Scene, Decision]:
    """The write of a leg is refused; what follows from that."""
    outcome = next_step(ANNOTATE if leg.dynamic else PREBIND, B, 0, states, now="")
    assert isinstance(outcome, LegOutcome)
    after = folded(states, record_leg(B, 0, outcome, states))
    return after, advance(B, after)


@pytest.mark.parametrize(
    ("leg", "stream", "named"),
    [
        (static_leg(), f"volume/{VOLUME}", 'persistentvolumes "pv"'),
        (dynamic_leg(), f"claim/{CLAIM}", 'persistentvolumeclaims "data"'),
    ],
)
def test_a_conflict_is_reported_in_the_words_of_the_api_server(leg: LegState, stream: str, named: str) -> None:
    states = changed(scene(binding_state(leg)), stream, {"metadata": {"labels": {"a": "b"}}})
    failure = failure_of(*refused_write(leg, states))
    assert failure.message == f"{PREBIND_FAILED}Operation cannot be fulfilled on {named}: {MODIFIED}"
    assert failure.reason.endswith("was changed by somebody else since the plan: Conflict")


def test_a_volume_that_is_gone_before_it_is_written_is_not_found() -> None:
    leg = static_leg()
    failure = failure_of(*refused_write(leg, without(scene(binding_state(leg)), f"volume/{VOLUME}")))
    assert failure.message == PREBIND_FAILED + 'persistentvolumes "pv" not found'


def waiting(leg: LegState) -> Scene:
    return scene(binding_state(leg, phase="waiting"))


@pytest.mark.parametrize(
    ("leg", "reason"),
    [
        (static_leg("written"), 'binding volumes: ClaimRef got reset for pv "pv"'),
        (dynamic_leg("written"), 'binding volumes: selectedNode annotation reset for PVC "data"'),
    ],
)
def test_what_the_wait_loop_finds_is_reported_word_for_word_with_its_leg(leg: LegState, reason: str) -> None:
    states = waiting(leg)
    failure = failure_of(states, advance(B, states))
    assert (failure.message, failure.index) == (PREBIND_FAILED + reason, 0)


def test_provisioning_that_failed_names_the_claim_as_the_reference_does() -> None:
    states = changed(waiting(dynamic_leg("written")), f"claim/{CLAIM}", {"metadata": {"annotations": {"a": "b"}}})
    failure = failure_of(states, advance(B, states))
    assert failure.message == PREBIND_FAILED + 'binding volumes: provisioning failed for PVC "data"'


def test_time_that_is_up_is_blamed_on_the_first_leg_that_is_not_bound() -> None:
    states = scene(binding_state(static_leg("bound"), dynamic_leg("written"), phase="waiting"))
    failure = failure_of(states, time_out(B, 2**60, states))
    assert failure.message == PREBIND_FAILED + "binding volumes: context deadline exceeded"
    assert failure.index == 1


def test_a_pod_that_cannot_be_bound_fails_in_the_other_stage() -> None:
    states = scene(binding_state(static_leg("bound"), phase="committing"))
    failure = failure_of(states, record_pod(B, PodOutcome(bound=False, reason="given up: 500"), states))
    assert failure.message == 'running Bind plugin "DefaultBinder": given up: 500'


def test_a_leg_lost_in_the_last_moment_fails_in_the_first() -> None:
    states = scene(binding_state(static_leg("bound"), phase="committing"))
    outcome = next_step("bind_pod", B, 0, states, now="")
    assert isinstance(outcome, PodOutcome)
    failure = failure_of(states, record_pod(B, outcome, states))
    assert failure.message == PREBIND_FAILED + 'binding volumes: ClaimRef got reset for pv "pv"'
    assert failure.index == 0


def test_a_reservation_that_ends_is_no_failure_of_a_decision() -> None:
    states = scene(binding_state(static_leg(), phase="reserved"))
    moves = [it.data for it in fail(B, "it is over", states).events if it.type == "BindingMoved"]
    assert [set(it) for it in moves] == [{"state", "open", "reason"}]


def test_a_long_message_is_cut_as_the_reference_cuts_it() -> None:
    failure = BindingFailure(B, binding_state(static_leg()), "PreBind", "x" * 2_000)
    assert len(failure.message) == MOST_CHARACTERS
    assert failure.message.endswith("xxx ...")


# --- who is told ------------------------------------------------------------------------------------------


def attempted(states: Scene) -> Scene:
    made: dict[str, Any] = {"pod": POD, "outcome": "planned", "node": NODE, "detail": {"message": "", "score": 3}}
    return {**states, f"attempt/{B}": AttemptState(1, made, 5, 5, 4)}


def failing(leg: LegState | None = None) -> tuple[BindingFailure, Scene]:
    states = attempted(scene(binding_state(leg or dynamic_leg("written"), phase="compensating")))
    return BindingFailure(B, binding_of(states), "PreBind", "binding volumes: no", 0), states


def said(failure: BindingFailure, states: Scene) -> list[NewEvent]:
    return list(pod_notices(failure, states, component=SCHEDULER, now=NOW))


def test_the_pod_gets_its_condition_and_an_event() -> None:
    failure, states = failing()
    pod, notice = said(failure, states)
    (condition,) = pod.data["patch"]["status"]["conditions"]
    assert condition == {
        "type": "PodScheduled", "status": "False", "reason": "SchedulerError", "message": failure.message,
        "lastTransitionTime": NOW,
    }  # fmt: skip
    manifest = notice.data["patch"]
    assert (manifest["type"], manifest["reason"], manifest["message"]) == (
        "Warning", "FailedScheduling", failure.message,
    )  # fmt: skip
    assert manifest["involvedObject"]["uid"] == POD_UID


def test_the_same_again_changes_no_pod_and_counts_the_event() -> None:
    failure, states = failing()
    after = folded(states, Decision(events=tuple(said(failure, states))))
    (again,) = said(failure, after)
    assert (again.type, again.data["patch"]["count"]) == ("NoticeChanged", 2)


@pytest.mark.parametrize(
    "patch",
    [
        {"metadata": {"deletionTimestamp": NOW}},
        {"spec": {"nodeName": "n2"}},
        {"metadata": {"uid": "another"}},
    ],
)
def test_a_pod_that_is_going_or_placed_or_another_gets_no_report(patch: dict[str, Any]) -> None:
    failure, states = failing()
    assert said(failure, changed(states, POD_STREAM, patch)) == []


def test_a_pod_that_is_gone_gets_no_report_but_the_attempt_keeps_it() -> None:
    failure, states = failing()
    gone = without(states, POD_STREAM)
    assert said(failure, gone) == []
    assert failure_event(failure, gone, words=None) is not None


@pytest.mark.parametrize(
    ("leg", "about"),
    [
        (static_leg("written"), {"claim": CLAIM, "volume": VOLUME}),
        (dynamic_leg("written"), {"claim": CLAIM}),
        (joined_leg(), {"claim": CLAIM}),
    ],
)
def test_the_attempt_keeps_the_leg_and_the_words_of_the_provisioner(leg: LegState, about: dict[str, str]) -> None:
    failure, states = failing(leg)
    stored = failure_event(failure, states, words="no room")
    assert stored is not None
    after = folded(states, Decision(events=(stored,)))[f"attempt/{B}"]
    assert isinstance(after, AttemptState)
    assert (after.made["outcome"], after.made["node"], after.last_at) == ("failed", NODE, 5)
    assert after.made["detail"] == {
        "message": failure.message,
        "score": 3,
        "failure": {"at": 5, "stage": "PreBind", "reason": "binding volumes: no", "words": "no room", **about},
    }


def test_a_binding_that_nobody_attempted_keeps_nothing() -> None:
    failure, states = failing()
    assert failure_event(failure, without(states, f"attempt/{B}"), words=None) is None
