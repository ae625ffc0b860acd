"""What a node does next about a pod: the whole way, and every place where it may stop."""

from dataclasses import replace
from typing import Any

import pytest

from tests.node_agent.node_scenes import LOCAL, NODE_UID_1, attachment, claim, disk, node, pod, scene
from tests.support.objects import on_zone
from volsched.kube.meta import ROLLBACK
from volsched.node_agent.rules.lifecycle import (
    BAD_ANNOTATION,
    FAILED_ATTACH,
    FAILED_MOUNT,
    NODE_NOT_FOUND,
    Admit,
    Attach,
    Finish,
    Idle,
    PodScene,
    Reject,
    Remove,
    ShutDown,
    StartPod,
    Step,
    Stuck,
    holds_volumes,
    next_step,
)

DIRTY = claim(state="Dirty")
FAR = disk(claim(), nodeAffinity=on_zone("z2"), **LOCAL)
CSI = disk(DIRTY)
THERE = node("n2", uid="uid-of-n2")
ADMITTED: dict[str, Any] = {"held": DIRTY, "admitted_by": NODE_UID_1}
RUNNING: dict[str, Any] = {**ADMITTED, "running_for": 7, "has_started": True}


def running(seconds: int = 7, **annotations: str) -> PodScene:
    marks = {f"volsched.io/{key.replace('_', '-')}": value for key, value in annotations.items()}
    return scene(pod("data", phase="Running", annotations=marks), **{**RUNNING, "running_for": seconds})


@pytest.mark.parametrize(
    ("given", "step"),
    [
        (scene(), Admit(("db/data",))),
        (scene(held=DIRTY), Admit(())),
        (scene(**ADMITTED), StartPod()),
        (scene(of=CSI, **ADMITTED), Attach((CSI,))),
        (scene(of=CSI, attachments=[attachment(CSI, node())], **ADMITTED), StartPod()),
        (scene(pod("data", phase="Running"), **RUNNING), Idle()),
        (scene(pod("data", phase="Succeeded"), **ADMITTED), Idle()),
        (scene(pod("data", phase="Failed"), node=None), Idle()),
    ],
    ids=["assigned", "assigned, dirty", "admitted", "to be attached", "attached", "running", "done", "failed"],
)
def test_a_pod_goes_on_step_by_step(given: PodScene, step: Step) -> None:
    assert next_step(given) == step


def test_a_pod_without_claims_is_admitted_and_started() -> None:
    given = PodScene(pod=pod(), node=node())
    assert next_step(given) == Admit(())
    assert next_step(replace(given, admitted_by=NODE_UID_1)) == StartPod()


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (scene(node=None), NODE_NOT_FOUND),
        (scene(pod("data", phase="Running"), **{**RUNNING, "node": None}), NODE_NOT_FOUND),
        (scene(held=claim(bound_to=None)), FAILED_MOUNT),
        (scene(of=FAR, **ADMITTED), FAILED_MOUNT),
        (scene(of=CSI, attachments=[attachment(CSI, THERE)], **ADMITTED), FAILED_ATTACH),
        (running(run_seconds="soon"), BAD_ANNOTATION),
        (running(exit_code="-1"), BAD_ANNOTATION),
    ],
    ids=["no node", "its node is gone", "claim not bound", "volume moved away", "attached elsewhere",
         "bad duration", "bad exit code"],
)  # fmt: skip
def test_what_cannot_go_on_says_why(given: PodScene, reason: str) -> None:
    step = next_step(given)
    assert isinstance(step, Stuck)
    assert step.reason == reason
    assert ";" in step.message, "it says what to do"


@pytest.mark.parametrize(
    "given",
    [scene(of=FAR), scene(held=claim(annotations={ROLLBACK: "x"})), scene(pod("data", nodeSelector={"a": "b"}))],
    ids=["out of reach", "asked back", "selector"],
)
def test_a_pod_that_may_not_run_here_is_sent_back_unless_it_ran(given: PodScene) -> None:
    assert isinstance(next_step(given), Reject)
    ran = next_step(replace(given, has_started=True, admitted_by="uid-of-another-n1"))
    assert isinstance(ran, Finish)
    assert ran.exit_code
    assert ran.reason == "NodeRejected"


@pytest.mark.parametrize("running_for", [None, 7])
def test_a_pod_admitted_by_an_earlier_node_of_the_name_is_admitted_anew(running_for: int | None) -> None:
    given = scene(held=DIRTY, admitted_by="uid-of-another-n1", running_for=running_for, has_started=True)
    assert next_step(given) == Admit(())


@pytest.mark.parametrize(
    ("state", "by"),
    [("Clean", None), (None, None), ("Clean", NODE_UID_1)],
    ids=["clean, before there was an agent", "before there was an agent", "somebody wrote that it is clean"],
)
def test_what_runs_already_is_taken_over_with_its_claims_marked(state: str | None, by: str | None) -> None:
    """Whatever the node says of the pod: it runs."""
    held, given = claim(state=state), pod("data", phase="Running", nodeSelector={"a": "b"})
    running_on = scene(given, held=held, of=FAR, running_for=7, has_started=True, admitted_by=by)
    assert next_step(running_on) == Admit(("db/data",))


def test_no_pod_is_started_with_a_claim_that_says_clean() -> None:
    """The claim was recreated after the pod had been admitted."""
    assert next_step(scene(admitted_by=NODE_UID_1)) == Admit(("db/data",))


def test_labels_do_not_matter_any_more_once_the_pod_runs() -> None:
    given = scene(pod("data", phase="Running", nodeSelector={"a": "b"}), of=FAR, **RUNNING)
    assert next_step(given) == Idle()


@pytest.mark.parametrize(
    ("given", "step"),
    [
        (running(), Idle()),
        (running(7, run_seconds="10"), Idle(3)),
        (running(10, run_seconds="10"), Finish(0)),
        (running(99, run_seconds="10"), Finish(0)),
        (running(7, run_seconds="10", exit_code="3"), Idle(3)),
        (running(10, run_seconds="10", exit_code="3"), Finish(3)),
        (running(0, exit_code="1"), Finish(1)),
        (running(0, exit_code="0"), Finish(0)),
        (running(0, run_seconds="0"), Finish(0)),
    ],
)
def test_a_pod_ends_when_its_annotations_say_so(given: PodScene, step: Step) -> None:
    assert next_step(given) == step


@pytest.mark.parametrize("phase", ["Pending", "Running", "Succeeded"])
@pytest.mark.parametrize("on", [node(), None])
def test_a_pod_that_is_being_deleted_is_shut_down_and_goes_when_nobody_else_holds_it(phase: str, on: Any) -> None:
    given = scene(pod("data", phase=phase, deleted=True), node=on)
    assert next_step(given) == ShutDown()
    assert next_step(replace(given, shut_down=True)) == Remove()
    kept = replace(given.pod, meta=replace(given.pod.meta, finalizers=("somebody/minds",)))
    assert next_step(replace(given, pod=kept, shut_down=True)) == Idle()


@pytest.mark.parametrize(
    ("phase", "shut_down", "holds"),
    [("Pending", False, True), ("Running", False, True), ("Running", True, False), ("Succeeded", False, False),
     ("Failed", False, False)],
)  # fmt: skip
def test_which_pods_hold_their_volumes(phase: str, shut_down: bool, holds: bool) -> None:
    assert holds_volumes(pod(phase=phase), shut_down=shut_down) is holds
