"""Binding transactions end to end, stepped: all legs are bound, or all is undone; on both engines.

Every test runs with objects in our own log, where a leg's writes and their record are one transaction, and with
objects in a foreign cluster, where they are calls and what came of them is observed later.
"""

from dataclasses import replace
from functools import partial

import pytest

from tests.support.armed_faults import armed, once
from tests.support.binding_scene import LEGS, A, B, C, assert_undone, node_of, plan_and_write
from tests.support.binding_truths import is_free
from tests.support.binding_world import NOW, TIMEOUT, World, joining
from volsched.binding.executor import ExecutorProgress
from volsched.binding.rules.effects import LegOutcome, PodOutcome
from volsched.binding.rules.phases import LegPhase
from volsched.binding.rules.reasons import CLAIM_GONE, HOLDS_DATA, KEPT, NOT_OURS, RETAIN_ASKED, STILL_PROVISIONING
from volsched.binding.rules.saga import record_leg, record_pod, time_out
from volsched.kube.meta import BIND_COMPLETED, BINDING_STAMP, HOSTNAME, STORAGE_PROVISIONER
from volsched.log import tables
from volsched.log.commands import DeposedError, Done, EffectDone
from volsched.log.effects import claim
from volsched.runtime.clock import SECOND


# The way forward --------------------------------------------------------------------------------------
def test_three_claims_are_bound_and_then_the_pod(world: World) -> None:
    world.plan("b1", "db/app", LEGS)
    assert (world.phase("b1"), world.legs("b1")) == ("prebinding", ["assumed"] * 3)
    assert world.step("prebind") == ExecutorProgress(done=3)
    assert (world.phase("b1"), world.legs("b1")) == ("waiting", ["written"] * 3)
    for index, key in enumerate(LEGS):
        assert world.effects() == set()
        assert world.legs("b1") == ["bound"] * index + ["written"] * (3 - index)
        world.complete(key)
    assert world.phase("b1") == "committing"
    assert node_of(world) is None
    assert world.step("bind_pod") == ExecutorProgress(done=1)
    assert world.phase("b1") == "committed"
    assert node_of(world) == "n1"
    assert world.violations() == []


@pytest.mark.parametrize("where", ["local"], indirect=True)
def test_what_follows_from_an_event_is_committed_with_it_and_says_from_which(world: World) -> None:
    plan_and_write(world)
    world.complete(A)
    world.complete(B)
    before = len(world.events())
    world.complete(C)
    volume, bound, leg, committing = world.events()[before:]
    assert [(it.stream, it.type) for it in (volume, bound)] == [
        ("volume/pv-c", "VolumeChanged"), ("claim/db/c", "ClaimChanged"),
    ]  # fmt: skip
    assert [(it.type, it.actor, it.cause) for it in (leg, committing)] == [
        ("LegMoved", "volsched", bound.position), ("BindingMoved", "volsched", bound.position),
    ]  # fmt: skip
    assert {it.at for it in world.events()[before:]} == {NOW}


def test_every_step_that_nobody_gave_as_a_command_has_a_cause_before_it(world: World) -> None:
    plan_and_write(world)
    world.steal("pv-b")
    world.run()
    reactions = [event for event in world.events("b1") if event.actor == "volsched"]
    assert {event.type for event in reactions} == {"LegMoved", "BindingMoved"}
    assert all(event.cause is not None and event.cause < event.position for event in reactions)


def test_a_pod_without_claims_to_bind_is_bound_at_once(world: World) -> None:
    world.plan("b1", "db/app", {})
    assert world.phase("b1") == "committing"
    world.run()
    assert (world.phase("b1"), node_of(world)) == ("committed", "n1")


def test_a_claim_is_provisioned_where_the_pod_will_run(world: World) -> None:
    world.plan("b1", "db/app", {A: None, B: "pv-b"})
    world.run()
    assert world.legs("b1") == ["written", "written"]
    name = world.provision(A)
    world.complete(A, name)
    world.complete(B)
    world.run()
    assert world.phase("b1") == "committed"
    assert world.binding("b1").legs[0].volume == name
    assert world.violations() == []


def test_a_provisioned_volume_that_becomes_known_after_its_claim_is_found_by_the_sweep_at_the_latest(
    world: World,
) -> None:
    world.plan("b1", "db/app", {A: None})
    world.run()
    bound = {"metadata": {"annotations": {BIND_COMPLETED: "yes"}}, "spec": {"volumeName": "pvc-1"}}
    world.patch(f"claim/{A}", bound)
    assert world.legs("b1") == ["written"]
    world.provision(A)
    world.sweep()
    assert (world.phase("b1"), world.legs("b1")) == ("committing", ["bound"])


def test_a_claim_that_was_bound_before_we_looked_is_bound_at_the_first_look(world: World) -> None:
    world.plan("b1", "db/app", {A: "pv-a", B: "pv-b"})
    world.workers["w1"] = replace(world.worker(), batch=1)
    world.step("prebind")
    world.complete(A)
    assert (world.phase("b1"), world.legs("b1")) == ("prebinding", ["bound", "assumed"])
    world.step("prebind")
    world.complete(B)
    assert world.phase("b1") == "committing"


# The way back -----------------------------------------------------------------------------------------
def test_a_volume_stolen_before_it_was_written_undoes_the_others(world: World) -> None:
    world.plan("b1", "db/app", LEGS)
    world.steal("pv-b")
    world.run()
    # Calls are made one by one: by the time of the third the binding has failed.
    assert world.legs("b1") == ["released", "voided", "released" if world.where == "local" else "voided"]
    assert "Conflict" in (world.binding("b1").reason or "")
    assert_undone(world, "b1", "pv-a", "pv-c")
    assert world.must_show("volume/pv-b")["spec"]["claimRef"]["name"] == "thief"


def test_a_volume_stolen_after_it_was_written_stays_with_the_thief(world: World) -> None:
    """The thief wrote the claimRef alone; that our stamp is still on it does not make the volume ours."""
    plan_and_write(world)
    world.steal("pv-b")
    world.run()
    assert world.legs("b1") == ["released", "retained", "released"]
    assert world.binding("b1").legs[1].reason == NOT_OURS
    assert_undone(world, "b1", "pv-a", "pv-c")
    stolen = world.must_show("volume/pv-b")
    assert stolen["spec"]["claimRef"]["name"] == "thief"
    assert stolen["metadata"]["annotations"][BINDING_STAMP] == "b1"


def test_what_was_undone_can_be_planned_again(world: World) -> None:
    plan_and_write(world)
    world.fail("b1")
    world.run()
    assert_undone(world)
    world.plan("b2", "db/app", LEGS)
    world.run()
    for key in LEGS:
        world.complete(key)
    world.run()
    assert (world.phase("b2"), node_of(world)) == ("committed", "n1")
    assert world.violations() == []


@pytest.mark.parametrize("steps", [0, 1, 2])
def test_a_pod_deleted_on_the_way_undoes_whatever_was_written(world: World, steps: int) -> None:
    world.plan("b1", "db/app", LEGS)
    world.workers["w1"] = replace(world.worker(), batch=1)
    for _ in range(steps):
        world.step("prebind")
    world.vanish("pod/db/app")
    assert world.phase("b1") == "compensating"
    world.run()
    assert_undone(world)


def test_a_pod_deleted_at_the_last_moment_keeps_its_claims_for_the_next(world: World) -> None:
    plan_and_write(world)
    for key in LEGS:
        world.complete(key)
    world.vanish("pod/db/app")
    assert world.phase("b1") == "committing"
    world.run()
    assert (world.phase("b1"), world.legs("b1")) == ("rolled-back", ["retained"] * 3)
    assert {leg.reason for leg in world.binding("b1").legs} == {KEPT}
    assert world.violations() == []


def test_a_node_that_loses_its_label_undoes_the_binding(world: World) -> None:
    plan_and_write(world)
    world.patch("node/n1", {"metadata": {"labels": {HOSTNAME: "renamed"}}})
    world.run()
    assert "node affinity doesn't match" in (world.binding("b1").reason or "")
    assert_undone(world)


def test_a_node_that_goes_undoes_the_binding(world: World) -> None:
    plan_and_write(world)
    world.vanish("node/n1")
    world.run()
    assert_undone(world)


def test_the_deadline_undoes_what_is_not_bound_and_keeps_what_is_bound_and_clean(world: World) -> None:
    plan_and_write(world)
    world.complete(A)
    world.complete(B, data_state=None)
    world.now = NOW + TIMEOUT - 1
    world.sweep()
    assert world.phase("b1") == "waiting"
    world.now = NOW + TIMEOUT
    world.sweep()
    world.run()
    assert (world.phase("b1"), world.legs("b1")) == ("rolled-back", ["retained", "retained", "released"])
    assert [leg.reason for leg in world.binding("b1").legs[:2]] == [KEPT, HOLDS_DATA]
    assert world.binding("b1").reason == "binding volumes: context deadline exceeded"
    assert is_free(world, "pv-c")
    assert world.violations() == []


def test_a_deadline_is_too_late_once_the_pod_is_being_bound(world: World) -> None:
    plan_and_write(world)
    for key in LEGS:
        world.complete(key)
    world.now = NOW + TIMEOUT
    world.sweep()
    assert world.phase("b1") == "committing"
    world.run()
    assert world.phase("b1") == "committed"


def test_asked_to_retain_a_failed_binding_leaves_what_was_written(world: World) -> None:
    world.plan("b1", "db/app", LEGS, on_failure="retain")
    world.workers["w1"] = replace(world.worker(), batch=2)
    world.step("prebind")
    world.fail("b1")
    world.run()
    assert (world.phase("b1"), world.legs("b1")) == ("rolled-back", ["retained", "retained", "voided"])
    assert world.binding("b1").legs[0].reason == RETAIN_ASKED
    assert world.must_show("volume/pv-a")["spec"]["claimRef"]["name"] == "a"
    assert is_free(world, "pv-c")
    assert world.violations() == []


def test_a_claim_that_is_deleted_while_its_volume_may_hold_its_data_does_not_free_the_volume(world: World) -> None:
    plan_and_write(world)
    world.complete(A)
    world.soil(A)
    world.vanish(f"claim/{A}")
    world.fail("b1")
    world.run()
    assert (world.legs("b1")[0], world.binding("b1").legs[0].reason) == ("retained", CLAIM_GONE)
    assert world.must_show("volume/pv-a")["spec"]["claimRef"]["name"] == "a"
    assert world.violations() == []


def test_a_claim_bound_elsewhere_frees_the_volume_that_waited_for_it(world: World) -> None:
    plan_and_write(world)
    world.volume("pv-x")
    uid = world.must_show(f"claim/{A}")["metadata"]["uid"]
    reference = {"kind": "PersistentVolumeClaim", "namespace": "db", "name": "a", "uid": uid}
    world.patch("volume/pv-x", {"spec": {"claimRef": reference}})
    world.complete(A, "pv-x")
    world.run()
    assert "different PV" in (world.binding("b1").reason or "")
    assert_undone(world)
    assert world.must_show(f"claim/{A}")["spec"]["volumeName"] == "pv-x"


def test_a_volume_that_a_user_reserved_is_reserved_again_after_the_rollback(world: World) -> None:
    reserved = {"kind": "PersistentVolumeClaim", "namespace": "db", "name": "a"}
    world.patch("volume/pv-a", {"spec": {"claimRef": reserved}})
    plan_and_write(world)
    assert world.must_show("volume/pv-a")["spec"]["claimRef"]["uid"]
    world.fail("b1")
    world.run()
    reference = world.must_show("volume/pv-a")["spec"]["claimRef"]
    assert (reference["name"], reference.get("uid")) == ("a", None)
    assert_undone(world, "b1", "pv-b", "pv-c")


def test_a_claim_that_a_provisioner_works_on_is_left_to_it(world: World) -> None:
    world.plan("b1", "db/app", {A: None, B: None})
    world.run()
    world.annotate(f"claim/{A}", **{STORAGE_PROVISIONER: "csi.example.com"})
    world.fail("b1")
    world.run()
    assert (world.phase("b1"), world.legs("b1")) == ("rolled-back", ["retained", "released"])
    assert world.binding("b1").legs[0].reason == STILL_PROVISIONING
    assert not world.must_show(f"claim/{B}")["metadata"].get("annotations")
    assert world.violations() == []


# One at a time ----------------------------------------------------------------------------------------
CLASHES = {
    "volume": ("db/other", {B: "pv-a"}),
    "claim": ("db/other", {A: "pv-b"}),
    "pod": ("db/app", {B: "pv-b"}),
}


@pytest.mark.parametrize("what", CLASHES)
@pytest.mark.parametrize("together", [False, True])
def test_two_bindings_for_one_thing_are_refused_by_the_database(world: World, what: str, together: bool) -> None:
    pod, legs = CLASHES[what]
    first, second = world.planned("b1", "db/app", {A: "pv-a"}), world.planned("b2", pod, legs)
    if together:
        won, lost = world.attempt(first, second)
    else:
        (won,), (lost,) = world.attempt(first), world.attempt(second)
    assert isinstance(won, Done)
    assert isinstance(lost, Exception)
    assert world.events("b2") == []
    assert world.effects() == {"b1/0/prebind"}
    assert not any(leg["binding"] == "b2" for leg in _legs(world))
    assert world.violations() == []


def _legs(world: World) -> list[dict[str, object]]:
    return [dict(row) for row in world.rows(tables.binding_legs)]


def test_what_a_binding_has_let_go_of_is_free_for_another_before_the_first_has_ended(world: World) -> None:
    plan_and_write(world)
    world.workers["w1"] = replace(world.worker(), batch=1)
    world.fail("b1")
    world.step("release")
    assert world.legs("b1") == ["released", "releasing", "releasing"]
    world.plan("b2", "db/other", {A: "pv-a"})
    world.run()
    world.complete(A)
    world.run()
    assert (world.phase("b1"), world.phase("b2")) == ("rolled-back", "committed")
    assert world.violations() == []


# Joined legs ------------------------------------------------------------------------------------------
def test_a_second_pod_of_the_claim_waits_for_the_first_and_is_bound_with_it(world: World) -> None:
    world.plan("b1", "db/app", {A: "pv-a"})
    world.plan("b2", "db/other", {A: joining("b1"), B: "pv-b"})
    world.run()
    assert world.legs("b2") == ["joined", "written"]
    world.complete(A)
    assert world.legs("b2") == ["bound", "written"]
    world.complete(B)
    world.run()
    assert (world.phase("b1"), world.phase("b2")) == ("committed", "committed")
    assert node_of(world, "db/other") == "n1"
    assert world.violations() == []


def test_a_second_pod_fails_with_the_rollback_of_the_first(world: World) -> None:
    world.plan("b1", "db/app", {A: "pv-a"})
    world.plan("b2", "db/other", {A: joining("b1"), B: "pv-b"})
    world.run()
    world.fail("b1")
    world.run()
    assert_undone(world, "b1", "pv-a")
    assert_undone(world, "b2", "pv-b")
    assert world.legs("b2") == ["voided", "released"]


def test_the_rollback_of_the_second_pod_leaves_the_first_alone(world: World) -> None:
    world.plan("b1", "db/app", {A: "pv-a"})
    world.plan("b2", "db/other", {A: joining("b1"), B: "pv-b"})
    world.run()
    world.fail("b2")
    world.run()
    assert_undone(world, "b2", "pv-b")
    world.complete(A)
    world.run()
    assert world.phase("b1") == "committed"


def test_a_plan_that_joins_a_binding_that_has_just_failed_fails_at_once(world: World) -> None:
    world.plan("b1", "db/app", {A: "pv-a"})
    late = world.planned("b2", "db/other", {A: joining("b1")})
    world.fail("b1")
    world.run()
    world.do(late)
    assert world.phase("b2") == "rolled-back"


# Late, twice, stale -----------------------------------------------------------------------------------
def test_commands_said_again_change_nothing(world: World) -> None:
    plan_and_write(world)
    world.fail("b1")
    world.run()
    before = len(world.events())
    for phase in LegPhase:
        world.say("b1", partial(record_leg, "b1", 0, LegOutcome(phase=phase)))
    for bound in (True, False):
        world.say("b1", partial(record_pod, "b1", PodOutcome(bound=bound)))
    world.say("b1", partial(time_out, "b1", world.now + TIMEOUT))
    world.fail("b1")
    world.sweep()
    world.run()
    assert len(world.events()) == before


def test_a_worker_that_wakes_after_its_lease_changes_nothing(world: World) -> None:
    """It has claimed, another does the work meanwhile, and only then it goes on."""
    world.plan("b1", "db/app", LEGS)
    known: list[int] = []

    def overtake() -> None:
        world.let_leases_run_out()
        assert world.step("prebind", "w2") == ExecutorProgress(done=3)
        known.append(len(world.events()))

    with armed(once("executor.claimed", overtake)):
        assert world.step("prebind", "w1") == ExecutorProgress(deposed=3)
    assert len(world.events()) == known[0]
    assert world.legs("b1") == ["written"] * 3


def test_an_outcome_with_an_old_fence_is_refused(world: World) -> None:
    world.plan("b1", "db/app", {A: "pv-a"})
    old = claim(world.database, queue="prebind", owner="w1", limit=1, now=world.now, lease_for=SECOND)[0]
    world.let_leases_run_out()
    new = claim(world.database, queue="prebind", owner="w2", limit=1, now=world.now, lease_for=SECOND)[0]
    before = len(world.events())
    for fence, refused in ((old.fence, True), (new.fence + 1, True), (new.fence, False), (new.fence, True)):
        done = EffectDone(key=old.key, fence=fence, outcome="done")
        written = partial(record_leg, "b1", 0, LegOutcome(phase=LegPhase.WRITTEN))
        outcome = world.say("b1", written, effect=done)
        assert isinstance(outcome, DeposedError if refused else Done)
        assert (len(world.events()) > before) == (not refused or fence == new.fence)


def test_an_effect_that_became_void_is_done_without_a_trace(world: World) -> None:
    world.plan("b1", "db/app", {A: "pv-a"})
    world.say("b1", partial(record_leg, "b1", 0, LegOutcome(phase=LegPhase.VOIDED, reason="gone")))
    before = len(world.events())
    world.run()
    assert world.phase("b1") == "rolled-back"
    assert world.effects() == set()
    # A foreign pod is told, and its nomination ends; nothing else is written.
    assert [it.stream for it in world.events()[before:] if it.stream != "pod/db/app"] == []
    assert is_free(world, "pv-a")
