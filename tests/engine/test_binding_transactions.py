"""Binding transactions end to end, stepped: all legs are bound, or all is undone; on both engines.

Every test runs with objects in our own log, where a leg's writes and their record are one transaction, and with
objects in a foreign cluster, where they are calls and what came of them is observed later.
"""

from functools import partial
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from tests.engine.binding_world import (
    LEASE,
    NOW,
    TIMEOUT,
    Where,
    World,
    armed,
    fresh_store,
    is_free,
    joining,
    notes,
    once,
)
from volsched.core.binding.acts import CLAIM_GONE, HOLDS_DATA, KEPT, NOT_OURS, STILL_PROVISIONING
from volsched.core.binding.phases import Guards, LegPhase
from volsched.core.binding.planning import PlannedLeg
from volsched.core.binding.saga import (
    RETAIN_ASKED,
    LegOutcome,
    PodOutcome,
    record_leg,
    record_pod,
    time_out,
)
from volsched.core.binding.seen import claim_is_bound
from volsched.engine.clock import SECOND
from volsched.engine.executor import Progress
from volsched.model.meta import (
    BIND_COMPLETED,
    BINDING_STAMP,
    BOUND_BY_CONTROLLER,
    HOSTNAME,
    PROVISIONED_BY,
    ROLLBACK,
    SELECTED_NODE,
    STORAGE_PROVISIONER,
)
from volsched.store import tables
from volsched.store.commands import DeposedError, Done, EffectDone
from volsched.store.database import Database
from volsched.store.effects import claim, unpark

A, B, C = "db/a", "db/b", "db/c"
LEGS = {A: "pv-a", B: "pv-b", C: "pv-c"}
VOLUMES = tuple(LEGS.values())


@pytest.fixture(params=["local", "foreign"])
def where(request: pytest.FixtureRequest) -> Where:
    place: Where = request.param
    return place


@pytest.fixture
def world(database: Database, where: Where) -> World:
    return furnished(World(database, where))


def furnished(world: World) -> World:
    """Two nodes, a volume on the first for each of three claims, and two pods."""
    world.checking = False
    world.node("n1")
    world.node("n2")
    for key, volume in LEGS.items():
        world.claim(key.partition("/")[2])
        world.volume(volume)
    world.pod("app")
    world.pod("other")
    world.checking = True
    return world


def plan_and_write(world: World) -> None:
    world.plan("b1", "db/app", LEGS)
    world.step("prebind")
    assert world.legs("b1") == ["written", "written", "written"]


def assert_undone(world: World, binding: str = "b1", *volumes: str) -> None:
    assert world.phase(binding) == "rolled-back"
    assert world.effects() == set()
    assert [volume for volume in volumes or VOLUMES if not is_free(world, volume)] == []
    assert world.violations() == []


def node_of(world: World, pod: str = "db/app") -> str | None:
    found = world.shown(f"pod/{pod}")
    return None if found is None else found["spec"].get("nodeName")


# The way forward --------------------------------------------------------------------------------------
def test_three_claims_are_bound_and_then_the_pod(world: World) -> None:
    world.plan("b1", "db/app", LEGS)
    assert (world.phase("b1"), world.legs("b1")) == ("prebinding", ["assumed"] * 3)
    assert world.step("prebind") == Progress(done=3)
    assert (world.phase("b1"), world.legs("b1")) == ("waiting", ["written"] * 3)
    for index, key in enumerate(LEGS):
        assert world.effects() == set()
        assert world.legs("b1") == ["bound"] * index + ["written"] * (3 - index)
        world.complete(key)
    assert world.phase("b1") == "committing"
    assert node_of(world) is None
    assert world.step("bind_pod") == Progress(done=1)
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
    world.worker().batch = 1
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
    world.worker().batch = 1
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
    world.worker().batch = 2
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
    world.worker().batch = 1
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
        assert world.step("prebind", "w2") == Progress(done=3)
        known.append(len(world.events()))

    with armed(once("executor.claimed", overtake)):
        assert world.step("prebind", "w1") == Progress(deposed=3)
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
    assert len(world.events()) == before
    assert is_free(world, "pv-a")


# Crashes ----------------------------------------------------------------------------------------------
POINTS = ("executor.claimed", "commit.before", "commit.after", "executor.recorded")
CALLS = ("executor.calling", "executor.called")


# There are no calls on our own log.
PLACES = [("local", point) for point in POINTS] + [("foreign", point) for point in (*POINTS, *CALLS)]


@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
@pytest.mark.parametrize(("where", "point"), PLACES, indirect=["where"])
@pytest.mark.parametrize("queue", ["prebind", "release", "bind_pod"])
def test_a_worker_that_dies_anywhere_is_replaced_when_its_lease_runs_out(
    world: World, queue: str, point: str
) -> None:
    world.plan("b1", "db/app", LEGS)
    if queue != "prebind":
        world.step("prebind")
    if queue == "release":
        world.fail("b1")
    if queue == "bind_pod":
        for key in LEGS:
            world.complete(key)
    assert world.crash(queue, point)
    world.run("w2")
    world.let_leases_run_out()
    world.sync()
    world.run("w2")
    if queue == "prebind":
        assert (world.phase("b1"), world.legs("b1")) == ("waiting", ["written"] * 3)
        world.fail("b1")
        world.run("w2")
    if queue == "bind_pod":
        assert (world.phase("b1"), node_of(world)) == ("committed", "n1")
    else:
        assert_undone(world)
    assert world.violations() == []


@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
@pytest.mark.parametrize("call", [1, 2, 3, 4])
@pytest.mark.parametrize("where", ["foreign"], indirect=True)
def test_a_release_that_dies_after_any_of_its_calls_is_finished(world: World, call: int) -> None:
    world.plan("b1", "db/app", {A: "pv-a"})
    world.run()
    world.patch(f"claim/{A}", {"spec": {"volumeName": "pv-a"}})
    world.fail("b1")
    assert world.crash("release", "executor.called", times=call)
    world.let_leases_run_out()
    world.run("w2")
    assert_undone(world, "b1", "pv-a")
    claim_now = world.must_show(f"claim/{A}")
    assert "volumeName" not in claim_now["spec"]
    assert not claim_now["metadata"].get("annotations")


# Work that is given up ---------------------------------------------------------------------------------
def park(world: World, queue: str) -> None:
    """The last attempt ran out of its lease."""
    world.worker().max_attempts = 1
    assert world.crash(queue, "executor.claimed")
    world.let_leases_run_out()
    world.step(queue)
    world.worker().max_attempts = 8
    assert [row["state"] for row in world.rows(tables.effects) if row["queue"] == queue] == ["parked"]


def test_a_write_that_was_given_up_waits_for_an_operator_until_the_deadline(world: World) -> None:
    world.plan("b1", "db/app", {A: "pv-a"})
    park(world, "prebind")
    world.sweep()
    world.run()
    assert (world.phase("b1"), world.legs("b1")) == ("prebinding", ["assumed"])
    world.now = NOW + TIMEOUT
    world.sweep()
    world.sweep()
    world.run()
    assert_undone(world, "b1", "pv-a")


@pytest.mark.parametrize("where", ["foreign"], indirect=True)
def test_a_write_that_was_given_up_and_happened_all_the_same_is_undone(world: World) -> None:
    world.plan("b1", "db/app", {A: "pv-a"})
    world.worker().max_attempts = 1
    assert world.crash("prebind", "executor.called")
    world.let_leases_run_out()
    world.step("prebind")
    assert not is_free(world, "pv-a")
    world.fail("b1")
    world.sweep()
    world.worker().max_attempts = 8
    world.run()
    assert world.legs("b1") == ["released"]
    assert_undone(world, "b1", "pv-a")


def test_a_release_that_was_given_up_ends_the_binding_with_the_leg_undecided(world: World) -> None:
    world.plan("b1", "db/app", {A: "pv-a"})
    world.run()
    world.fail("b1")
    park(world, "release")
    world.sweep()
    assert (world.phase("b1"), world.legs("b1")) == ("rolled-back", ["retained"])
    assert "undecided" in (world.binding("b1").legs[0].reason or "")
    assert world.violations() == []


def test_a_pod_whose_binding_to_the_node_was_given_up_can_be_retried(world: World) -> None:
    plan_and_write(world)
    for key in LEGS:
        world.complete(key)
    park(world, "bind_pod")
    world.sweep()
    assert world.phase("b1") == "committing"
    assert unpark(world.database, key="b1/pod/bind_pod", now=world.now)
    world.run()
    assert (world.phase("b1"), node_of(world)) == ("committed", "n1")


# Guards -----------------------------------------------------------------------------------------------
ON = Guards()


def guarded(database: Database, where: Where, guards: Guards) -> World:
    return furnished(World(database, where, guards=guards))


@pytest.mark.parametrize(("guards", "holds"), [(ON, True), (Guards(precondition=False), False)])
def test_without_the_precondition_a_volume_is_taken_from_the_claim_it_was_given_to(
    database: Database, where: Where, guards: Guards, holds: bool
) -> None:
    world = guarded(database, where, guards)
    world.plan("b1", "db/app", {A: "pv-a"})
    uid = world.must_show(f"claim/{B}")["metadata"]["uid"]
    reference = {"kind": "PersistentVolumeClaim", "namespace": "db", "name": "b", "uid": uid}
    world.patch("volume/pv-a", {"spec": {"claimRef": reference}})
    world.complete(B, "pv-a")
    world.run()
    violated = [it for it in world.violations() if it.startswith("1:")]
    assert violated == ([] if holds else [f"1: claim {B} is bound to volume pv-a and not back"])


@pytest.mark.parametrize(("guards", "holds"), [(ON, True), (Guards(dirty=False), False)])
def test_without_the_dirty_check_a_volume_with_data_is_unbound(
    database: Database, where: Where, guards: Guards, holds: bool
) -> None:
    """The claim was bound and used; somebody dropped its bind-completed, so that it looks half bound."""
    world = guarded(database, where, guards)
    world.plan("b1", "db/app", {A: "pv-a", B: "pv-b"})
    world.run()
    world.complete(A)
    world.soil(A)
    world.patch(f"claim/{A}", {"metadata": {"annotations": {BIND_COMPLETED: None}}})
    world.fail("b1")
    world.run()
    assert world.phase("b1") == "rolled-back"
    violated = [it for it in world.violations() if it.startswith("4:")]
    assert (violated == []) == holds
    assert is_free(world, "pv-a") != holds


@pytest.mark.parametrize(("guards", "holds"), [(ON, True), (Guards(lanes=False), False)])
@pytest.mark.parametrize("where", ["foreign"], indirect=True)
def test_without_lanes_a_release_overtakes_its_write(
    database: Database, where: Where, guards: Guards, holds: bool
) -> None:
    """The binding fails while the write is about to be sent; in our own log there is no such moment."""
    world = guarded(database, where, guards)
    world.plan("b1", "db/app", {A: "pv-a"})

    def fail_meanwhile() -> None:
        world.fail("b1")
        world.run("w2")

    with armed(once("executor.calling", fail_meanwhile)):
        world.worker().step("prebind", world.now)
    ended = world.phase("b1")
    violated = list(world.violations())
    assert ended == ("compensating" if holds else "rolled-back")
    assert (violated == []) == holds
    world.sync()
    world.run()
    assert world.phase("b1") == "rolled-back"


@pytest.mark.parametrize(("guards", "holds"), [(ON, True), (Guards(stamp=False), False)])
@pytest.mark.parametrize("where", ["foreign"], indirect=True)
def test_without_the_stamp_a_worker_that_wakes_late_undoes_the_next_binding(
    database: Database, where: Where, guards: Guards, holds: bool
) -> None:
    """It sleeps before it frees the volume; meanwhile another frees it, and the next binding takes it anew."""
    world = guarded(database, where, guards)
    world.plan("b1", "db/app", {A: "pv-a"})
    world.run()
    world.fail("b1")

    def meanwhile() -> None:
        world.let_leases_run_out()
        world.run("w2")
        assert_undone(world, "b1", "pv-a")
        world.plan("b2", "db/app", {A: "pv-a"})
        world.run("w2")
        assert world.legs("b2") == ["written"]

    with armed(once("executor.calling", meanwhile)):
        assert world.worker().step("release", world.now) == Progress(deposed=1)
    world.sync()
    marks = world.must_show("volume/pv-a")["metadata"].get("annotations", {})
    assert (marks.get(BINDING_STAMP) == "b2") == holds
    assert (world.phase("b2") == "waiting") == holds
    if holds:
        world.complete(A)
        world.run()
        assert world.phase("b2") == "committed"
        assert BOUND_BY_CONTROLLER in marks


# Any history ------------------------------------------------------------------------------------------
CLAIMS = st.sampled_from(list(LEGS))
PODS = st.sampled_from(["db/app", "db/other"])
WORK = st.sampled_from(["prebind", "annotate", "release", "bind_pod"])
TOKENS = st.integers(0, 1_000)


class Histories(RuleBasedStateMachine):
    """Plans, steps, foreign writes, crashes and zombies in any order; in the end everything has come right."""

    def __init__(self) -> None:
        super().__init__()
        self.store = fresh_store()
        self.planned = 0

    @initialize(
        where=st.sampled_from(["local", "foreign"]),
        dynamic=st.sampled_from([None, *LEGS]),
        ends_well=st.booleans(),
    )
    def begin(self, where: Where, dynamic: str | None, ends_well: bool) -> None:
        self.world = furnished(World(self.store.__enter__(), where))
        self.ends_well = ends_well
        for worker in ("w1", "w2"):
            self.world.worker(worker).max_attempts = 1_000
        self.world.plan("b0", "db/app", {key: None if key == dynamic else name for key, name in LEGS.items()})

    def open_bindings(self) -> list[str]:
        return sorted(row["id"] for row in self.world.rows(tables.bindings) if row["open"])

    def claim_now(self, key: str) -> dict[str, Any] | None:
        """The claim, if a controller or an agent would touch it."""
        found = self.world.shown(f"claim/{key}")
        if found is None or "deletionTimestamp" in found["metadata"] or ROLLBACK in notes(found):
            return None
        return found

    def loose_volumes(self) -> list[str]:
        """Volumes that no claim is bound to, nor ever was."""
        found = self.world.others.list("PersistentVolume").objects
        bound = {it["spec"].get("volumeName") for it in self.world.others.list("PersistentVolumeClaim").objects}
        loose = [it for it in found if it["status"]["phase"] == "Available" and PROVISIONED_BY not in notes(it)]
        return sorted({it["metadata"]["name"] for it in loose} - bound)

    @rule(pod=PODS, keys=st.lists(CLAIMS, max_size=3, unique=True), token=TOKENS, retain=st.booleans())
    def plan(self, pod: str, keys: list[str], token: int, retain: bool) -> None:
        """On volumes that look free. That they are in another plan already is for the database to find."""
        self.planned += 1
        owners = {leg["claim"]: leg["binding"] for leg in self.world.rows(tables.binding_legs) if leg["open"]}
        legs: dict[str, str | PlannedLeg | None] = {}
        for number, key in enumerate(keys):
            free = [name for name in self.loose_volumes() if name not in {*legs.values(), *self.world.stolen}]
            pick = (token >> (2 * number)) % 4
            if pick == 0 and key in owners:
                legs[key] = joining(owners[key])
            else:
                legs[key] = None if pick == 1 or not free else free[(token + number) % len(free)]
        how = "retain" if retain else "rollback"
        self.world.attempt(self.world.planned(f"b{self.planned}", pod, legs, on_failure=how))

    @rule(queue=WORK, batch=st.sampled_from([1, 100]), worker=st.sampled_from(["w1", "w2"]))
    def a_worker_works(self, queue: str, batch: int, worker: str) -> None:
        self.world.worker(worker).batch = batch
        self.world.step(queue, worker)

    @rule()
    def workers_work(self) -> None:
        self.world.run()

    @rule(queue=WORK, point=st.sampled_from([*POINTS, *CALLS]), times=st.sampled_from([1, 2, 3]))
    def crash(self, queue: str, point: str, times: int) -> None:
        self.world.crash(queue, point, times=times)

    @rule(queue=WORK, point=st.sampled_from(["executor.claimed", *CALLS]), token=TOKENS)
    def sleep_past_the_lease(self, queue: str, point: str, token: int) -> None:
        """A worker stops there, the binding may fail, others do the work, and then it goes on."""

        def meanwhile() -> None:
            self.world.let_leases_run_out()
            found = self.open_bindings()
            if found and token % 2:
                self.world.fail(found[token % len(found)])
            self.world.run("w2")

        with armed(once(point, meanwhile)):
            self.world.worker("w1").step(queue, self.world.now)
        self.world.sync()

    @rule(keys=st.sets(CLAIMS, min_size=1), data_state=st.sampled_from(["Clean", None]))
    def the_controller_binds(self, keys: set[str], data_state: str | None) -> None:
        for key in sorted(keys):
            found, volume = self.claim_now(key), self.world.pointing_at(key)
            if found is not None and not found["spec"].get("volumeName") and volume is not None:
                self.world.complete(key, volume, data_state=data_state)

    @rule(key=CLAIMS, host=st.sampled_from(["n1", "n1", "n2"]))
    def the_provisioner_provisions(self, key: str, host: str) -> None:
        found = self.claim_now(key)
        if found is not None and SELECTED_NODE in notes(found) and self.world.pointing_at(key) is None:
            self.world.provision(key, host=host, name=f"pvc-{found['metadata']['uid']}")

    @rule(key=CLAIMS)
    def an_agent_mounts(self, key: str) -> None:
        found = self.claim_now(key)
        if found is not None and claim_is_bound(found):
            self.world.soil(key)

    @rule(what=st.sampled_from(["steal", "reset", "touch", "claim", "pod", "label", "fail"]), token=TOKENS)
    def somebody_interferes(self, what: str, token: int) -> None:
        world, names, found = self.world, self.loose_volumes(), self.open_bindings()
        key, pod = list(LEGS)[token % 3], ("db/app", "db/other")[token % 2]
        if what in ("steal", "reset", "touch") and names:
            name = names[token % len(names)]
            if what == "steal":
                world.steal(name)
            elif what == "reset":
                world.reset(name)
            else:
                world.patch(f"volume/{name}", {"metadata": {"labels": {"at": str(token)}}})
        elif what == "claim":
            world.vanish(f"claim/{key}")
            world.claim(key.partition("/")[2])
        elif what == "pod":
            world.vanish(f"pod/{pod}")
            world.pod(pod.partition("/")[2])
        elif what == "label":
            world.patch("node/n1", {"metadata": {"labels": {HOSTNAME: "n1" if token % 2 else "renamed"}}})
        elif what == "fail" and found:
            world.fail(found[token % len(found)])

    @rule(by=st.sampled_from([SECOND, LEASE + 1, TIMEOUT]))
    def time_passes(self, by: int) -> None:
        self.world.now += by
        self.world.sweep()

    @invariant()
    def in_our_own_log_nothing_is_ever_out_of_place(self) -> None:
        """In a foreign cluster a late call may be, until it is seen."""
        world = getattr(self, "world", None)
        if world is not None and world.where == "local":
            assert world.violations() == []

    def teardown(self) -> None:
        try:
            if hasattr(self, "world"):
                self.everything_comes_to_its_end()
        finally:
            self.store.__exit__(None, None, None)

    def everything_comes_to_its_end(self) -> None:
        world = self.world
        if self.ends_well:
            world.let_leases_run_out()
            world.run()
            self.the_controller_binds(set(LEGS), "Clean")
            world.run()
        for _ in range(4):
            world.let_leases_run_out()
            world.now += TIMEOUT
            world.sweep()
            world.run()
        assert world.effects() == set()
        assert {row["state"] for row in world.rows(tables.bindings)} <= {"committed", "rolled-back"}
        assert world.violations() == []
        before = len(world.events())
        for row in world.rows(tables.bindings):
            for phase in LegPhase:
                world.say(row["id"], partial(record_leg, row["id"], 0, LegOutcome(phase=phase)))
            world.say(row["id"], partial(record_pod, row["id"], PodOutcome(bound=True)))
            world.fail(row["id"])
        assert len(world.events()) == before


TestHistories = Histories.TestCase
TestHistories.settings = settings(max_examples=25, stateful_step_count=25, deadline=None)
