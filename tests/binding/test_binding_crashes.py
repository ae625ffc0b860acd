"""Binding transactions whose workers die, whose work is given up, and what each guard is for."""

from dataclasses import replace

import pytest

from tests.support.armed_faults import armed, once
from tests.support.binding_scene import LEGS, A, B, assert_undone, furnished, node_of, plan_and_write
from tests.support.binding_truths import is_free
from tests.support.binding_world import NOW, TIMEOUT, Where, World
from tests.support.crash_points import CALLS, POINTS
from volsched.binding.executor import ExecutorProgress
from volsched.binding.rules.phases import Guards
from volsched.kube.meta import BIND_COMPLETED, BINDING_STAMP, BOUND_BY_CONTROLLER
from volsched.log import tables
from volsched.log.database import Database
from volsched.log.effects import unpark

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
    world.workers["w1"] = replace(world.worker(), max_attempts=1)
    assert world.crash(queue, "executor.claimed")
    world.let_leases_run_out()
    world.step(queue)
    world.workers["w1"] = replace(world.worker(), max_attempts=8)
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
    world.workers["w1"] = replace(world.worker(), max_attempts=1)
    assert world.crash("prebind", "executor.called")
    world.let_leases_run_out()
    world.step("prebind")
    assert not is_free(world, "pv-a")
    world.fail("b1")
    world.sweep()
    world.workers["w1"] = replace(world.worker(), max_attempts=8)
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
    """It sleeps before it frees the volume; meanwhile another frees it, and the next binding takes it again."""
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
        assert world.worker().step("release", world.now) == ExecutorProgress(deposed=1)
    world.sync()
    marks = world.must_show("volume/pv-a")["metadata"].get("annotations", {})
    assert (marks.get(BINDING_STAMP) == "b2") == holds
    assert (world.phase("b2") == "waiting") == holds
    if holds:
        world.complete(A)
        world.run()
        assert world.phase("b2") == "committed"
        assert BOUND_BY_CONTROLLER in marks
