"""Parts of a whole system that meet: leads, time-outs, deletions and lost connections while pods are bound."""

import pytest

from tests.support.clusters import LOCAL, Stepped, all_is_well, claim, node, one_disk, one_disk_used, pod, volume
from volsched.log.database import Database
from volsched.log.errors import ConnectionLostError
from volsched.pv_controller.controller import LEASE_TTL
from volsched.runtime import fault_points
from volsched.runtime.clock import SECOND
from volsched.runtime.runner import run_until_idle

IMMEDIATE = {**LOCAL, "metadata": {"name": "now"}, "volumeBindingMode": "Immediate"}


pytestmark = pytest.mark.usefixtures("disarmed")


def test_a_pod_is_not_bound_with_a_claim_that_another_pod_asks_back(database: Database) -> None:
    """The claim `c` is bound on node-1; pod a could use it only on node-2, pod b where it is."""
    disks = [volume("c1", "5Gi", "node-1"), volume("c2", "6Gi", "node-2"), volume("d2", "50Gi", "node-2")]
    stepped = Stepped(database, [LOCAL, node("node-1"), node("node-2"), disks[0], claim("c", "4Gi")])
    stepped.settle()
    stepped.create(pod("first", "c"))
    stepped.until(lambda: stepped.node_of("first") == "node-1")
    stepped.cluster.delete("Pod", "default/first")
    stepped.create(*disks[1:], claim("d", "40Gi"))
    stepped.settle()
    stepped.create(pod("a", "c", "d"), pod("b", "c"))
    system = stepped.system
    # The controller acts between the plans and their execution, as it may when workers are processes of their own.
    system.catch_up(stepped.now)
    system.scheduler.step(stepped.now)
    for _ in range(4):
        system.catch_up(stepped.now)
        system.controller.step(stepped.now)
    stepped.until(lambda: stepped.node_of("b") is not None)
    stepped.settle()
    all_is_well(stepped)


def test_a_claim_that_is_asked_back_fails_the_binding_of_a_pod_that_counts_on_it(database: Database) -> None:
    stepped = one_disk_used(database, by="first")
    stepped.create(pod("second", "data"))
    stepped.system.catch_up(stepped.now)
    stepped.system.scheduler.step(stepped.now)
    held = dict(stepped.cluster.get("PersistentVolumeClaim", "default/data") or {})
    marks = {**held["metadata"]["annotations"], "pv.kubernetes.io/rollback": "somebody"}
    stepped.cluster.update(
        "PersistentVolumeClaim", {**held, "metadata": {**held["metadata"], "annotations": marks}}
    )
    stepped.system.executor.step("bind_pod", stepped.now)
    last = stepped.bindings()[-1]
    assert (last.pod, last.state) == ("default/second", "rolled-back")
    assert "undergoing rollback" in last.reason


@pytest.mark.parametrize("seconds", ["99999999999999", "9" * 5_000, "-1", "soon"])
def test_a_nonsensical_timeout_is_as_good_as_none(database: Database, seconds: str) -> None:
    stepped = Stepped(database, [node("node-0")])
    stepped.create(pod("web", annotations={"volsched.io/bind-timeout-seconds": seconds}))
    stepped.until(lambda: stepped.node_of("web") == "node-0")


def test_the_runner_stops_in_time_even_if_something_always_moves(database: Database) -> None:
    stepped = Stepped(database, [node("node-0")])
    numbers = iter(range(10_000))

    def clock() -> int:
        stepped.now += SECOND // 10
        stepped.create(pod(f"pod-{next(numbers)}"))
        return stepped.now

    assert not run_until_idle(stepped.system, clock=clock, timeout=3)


def test_whoever_leaves_lets_another_lead_at_once(database: Database) -> None:
    first = Stepped(database, [LOCAL, node("node-0")])
    first.settle()
    first.system.close()
    second = Stepped(database, [IMMEDIATE, volume("disk", "5Gi", "node-0", "now")], owner="second")
    second.now = first.now
    second.settle()
    second.create(claim("data", "4Gi", "now"))
    second.settle()
    assert second.volume_of("data") == "disk"


def test_while_another_leads_there_is_something_to_wait_for(database: Database) -> None:
    first = Stepped(database, [LOCAL, node("node-0")])
    first.settle()
    second = Stepped(database, [volume("disk", "5Gi", "node-0")], owner="second")
    second.now = first.now
    second.step()
    due = second.system.next_due()
    assert due is not None
    assert due > second.now


@pytest.mark.parametrize("stops", ["leaves", "hangs"])
def test_what_a_living_leader_has_to_do_is_not_waited_for(database: Database, stops: str) -> None:
    """Otherwise `volsched schedule` beside `volsched up` would wait for as long as that runs."""
    first = Stepped(database, [LOCAL, node("node-0"), volume("disk", "5Gi", "node-0")])
    first.settle()
    second = Stepped(database, owner="second")
    second.now = first.now
    second.step()
    assert second.system.next_due() is not None
    for _ in range(LEASE_TTL // SECOND):
        first.step(after=SECOND)
        second.now = first.now
        second.step()
    assert second.system.next_due() is None
    second.create(volume("late", "5Gi", "node-0"))
    if stops == "hangs":
        second.step(after=LEASE_TTL * 2 // 3)
        assert second.system.next_due() is not None
        second.step(after=LEASE_TTL)
    else:
        first.system.close()
    second.settle()
    assert (second.cluster.get("PersistentVolume", "late") or {})["status"]["phase"] == "Available"


def test_a_pod_that_keeps_changing_is_tried_again_all_the_same(database: Database) -> None:
    stepped = one_disk(database)
    stepped.create(pod("db", "data"))
    stepped.system.catch_up(stepped.now)
    stepped.system.scheduler.step(stepped.now)
    held = dict(stepped.cluster.get("PersistentVolume", "disk") or {})
    stepped.cluster.update("PersistentVolume", {**held, "metadata": {**held["metadata"], "labels": {"a": "b"}}})
    for number in range(100):
        found = dict(stepped.cluster.get("Pod", "default/db") or {})
        marks = {"beat": str(number)}
        stepped.cluster.update("Pod", {**found, "metadata": {**found["metadata"], "annotations": marks}})
        stepped.step(after=SECOND // 2)
        if stepped.node_of("db"):
            break
    assert stepped.node_of("db") == "node-0"


def test_the_volume_of_a_deleted_claim_is_released_without_waiting_for_a_resync(database: Database) -> None:
    stepped = Stepped(database, [IMMEDIATE, node("node-0"), volume("disk", "5Gi", "node-0", "now")])
    stepped.settle()
    stepped.create(claim("data", "4Gi", "now"))
    stepped.until(lambda: stepped.volume_of("data") == "disk")
    stepped.settle(quiet=5)
    stepped.cluster.delete("PersistentVolumeClaim", "default/data")
    for _ in range(6):
        stepped.step(after=SECOND // 100)
    assert (stepped.cluster.get("PersistentVolume", "disk") or {})["status"]["phase"] == "Released"


def test_a_commit_whose_connection_was_lost_leaves_nothing_imagined(database: Database) -> None:
    stepped = one_disk(database)
    stepped.create(pod("db", "data"))
    failing = iter([True])

    def lose(point: str) -> None:
        if point in ("scheduler.decided", "controller.decided") and next(failing, False):
            raise ConnectionLostError("the server is gone")

    for _ in range(2):
        failing = iter([True])
        fault_points.arm(lose, drill=True)
        with pytest.raises(ConnectionLostError):
            stepped.until(lambda: False, steps=5)
        fault_points.arm(None, drill=False)
    stepped.until(lambda: stepped.node_of("db") == "node-0")
    all_is_well(stepped)


def test_a_pod_that_is_created_again_gets_its_own_reasons(database: Database) -> None:
    stepped = Stepped(database, [LOCAL, node("node-0"), pod("db", "nowhere")])
    stepped.settle()
    assert "nowhere" in stepped.system.scheduler.waiting()["default/db"]
    stepped.cluster.delete("Pod", "default/db")
    stepped.create(pod("db"))
    stepped.until(lambda: stepped.node_of("db") == "node-0", steps=20)
