"""The whole system in one process: from manifests to bound pods, and what happens when something goes wrong."""

from dataclasses import FrozenInstanceError, replace
from typing import Any

import pytest

from tests.runtime.external_provisioner import annotations, ended_well, provision, volumes
from tests.support.clusters import (
    LOCAL,
    MADE,
    Stepped,
    claim,
    node,
    one_disk,
    one_disk_bound,
    pod,
    turned_away,
    volume,
)
from volsched.cluster.port import CallRefusedError, whole
from volsched.kube.meta import BINDING_STAMP, SELECTED_NODE
from volsched.library import whole_system
from volsched.log.database import Database
from volsched.log.integrity.verify import verify
from volsched.pv_controller.controller import RESYNC
from volsched.runtime import fault_points
from volsched.runtime.clock import SECOND
from volsched.runtime.runner import run_until_idle
from volsched.runtime.settings import EFFECT_LEASE_SECONDS
from volsched.scheduling.rules.configuration import Configuration
from volsched.scheduling.rules.profile import PARITY, VOLSCHED, Profile


def test_three_claims_are_bound_together(database: Database) -> None:
    disks = [volume(f"disk-{i}", f"{5 + i}Gi", "node-0") for i in range(3)]
    stepped = Stepped(database, [LOCAL, node("node-0"), node("node-1"), *disks])
    stepped.create(*(claim(f"data-{i}", "4Gi") for i in range(3)), pod("db", "data-0", "data-1", "data-2"))
    stepped.until(lambda: stepped.node_of("db") == "node-0")
    assert {stepped.volume_of(f"data-{i}") for i in range(3)} == {"disk-0", "disk-1", "disk-2"}
    ended_well(stepped)


@pytest.mark.parametrize("profile", [PARITY, VOLSCHED], ids=lambda it: it.name)
@pytest.mark.parametrize("disks", [2, 1, 0])
def test_a_claim_that_two_volumes_of_a_pod_mount_is_bound_once(
    database: Database, profile: Profile, disks: int
) -> None:
    """`parity` decides each of the two: by two disks, a disk and a new volume, or one new volume twice."""
    free = [volume(f"disk-{i}", "5Gi", "node-0", "made") for i in range(disks)]
    stepped = Stepped(database, [MADE, node("node-0"), *free], configuration=Configuration(profile))
    stepped.settle()
    stepped.create(claim("data", "5Gi", "made"), pod("db", "data", "data"))
    if not disks:
        stepped.until(lambda: SELECTED_NODE in annotations(stepped, "data"))
        provision(stepped, "data", "node-0")
    stepped.until(lambda: stepped.node_of("db") == "node-0")
    assert stepped.volume_of("data") == ("disk-0" if disks else next(iter(volumes(stepped))))
    assert [len(stepped.legs(it.id)) for it in stepped.bindings()] == [1]
    # What was decided for the second volume is not held: the next claim gets it.
    stepped.create(claim("more", "5Gi", "made"), pod("web", "more"))
    if disks > 1:
        stepped.until(lambda: stepped.volume_of("more") == "disk-1")
    else:
        stepped.until(lambda: SELECTED_NODE in annotations(stepped, "more"))
    assert verify(stepped.database).ok


def test_in_parity_a_pod_with_a_bound_claim_in_two_volumes_gets_a_node(database: Database) -> None:
    stepped = Stepped(
        database,
        [LOCAL, node("node-0"), volume("disk", "5Gi", "node-0"), claim("data", "4Gi"), pod("first", "data")],
        configuration=Configuration(PARITY),
    )
    stepped.until(lambda: stepped.node_of("first") == "node-0", steps=1_000)
    stepped.create(pod("second", "data", "data"))
    stepped.until(lambda: stepped.node_of("second") == "node-0")
    ended_well(stepped)


def test_a_pod_without_claims_gets_a_node(database: Database) -> None:
    stepped = Stepped(database, [node("node-0"), pod("web")])
    stepped.until(lambda: stepped.node_of("web") == "node-0")
    ended_well(stepped)


def test_two_pods_that_share_a_claim_run_on_the_same_node(database: Database) -> None:
    stepped = Stepped(database, [LOCAL, node("node-0"), node("node-1"), volume("disk", "5Gi", "node-1")])
    stepped.settle()
    stepped.create(claim("data", "4Gi"), pod("a", "data"), pod("b", "data"))
    stepped.until(lambda: stepped.node_of("a") == stepped.node_of("b") == "node-1")
    ended_well(stepped)


def test_a_pod_that_is_deleted_half_way_leaves_its_volume_free(database: Database) -> None:
    stepped = one_disk(database)
    stepped.create(pod("db", "data"))
    stepped.step()
    assert (stepped.cluster.get("PersistentVolume", "disk") or {})["spec"]["claimRef"]["name"] == "data"
    stepped.cluster.delete("Pod", "default/db")
    stepped.settle()
    (binding,) = stepped.bindings()
    assert binding.state == "rolled-back"
    assert "pod does not exist any more" in binding.reason
    freed = stepped.cluster.get("PersistentVolume", "disk") or {}
    assert BINDING_STAMP not in freed["metadata"].get("annotations", {})
    assert stepped.volume_of("data") is None
    ended_well(stepped)


def test_a_node_that_loses_its_label_half_way_is_not_used(database: Database) -> None:
    stepped = one_disk(database)
    stepped.create(pod("db", "data"))
    stepped.step()
    found = dict(stepped.cluster.get("Node", "node-0") or {})
    stepped.cluster.update("Node", {**found, "metadata": {**found["metadata"], "labels": {"rack": "r1"}}})
    stepped.settle()
    assert stepped.node_of("db") is None
    assert "node affinity doesn't match node" in stepped.bindings()[0].reason
    ended_well(stepped)


def test_with_retain_what_was_written_stays_as_the_reference_leaves_it(database: Database) -> None:
    stepped = Stepped(
        database,
        [LOCAL, node("node-0"), volume("a", "5Gi", "node-0"), volume("b", "9Gi", "node-0"),
         claim("small", "4Gi"), claim("large", "8Gi")],
    )  # fmt: skip
    stepped.settle()
    stepped.system.executor = replace(stepped.system.executor, batch=1)
    stepped.create(pod("db", "small", "large", annotations={"volsched.io/on-failure": "retain"}))
    stepped.plan_and_write()
    taken = dict(stepped.cluster.get("PersistentVolume", "b") or {})
    stepped.cluster.update("PersistentVolume", {**taken, "metadata": {**taken["metadata"], "labels": {"x": "y"}}})
    stepped.until(lambda: any(not row.open for row in stepped.bindings()))
    first = stepped.bindings()[0]
    assert [leg.state for leg in stepped.legs(first.id)] == ["retained", "voided"]
    assert (stepped.cluster.get("PersistentVolume", "a") or {})["spec"]["claimRef"]["name"] == "small"
    stepped.until(lambda: stepped.node_of("db") == "node-0")
    ended_well(stepped)


def test_the_runner_stops_when_nothing_moves(database: Database) -> None:
    stepped = Stepped(database, [LOCAL, node("node-0"), claim("data", "4Gi"), pod("db", "data")])

    def clock() -> int:
        stepped.now += SECOND // 100
        return stepped.now

    began = stepped.now
    assert run_until_idle(stepped.system, clock=clock, timeout=60)
    # The claim that waits for its pod is looked at with every resync, but that is no work to wait for.
    assert stepped.now - began < RESYNC
    assert stepped.node_of("db") is None
    assert "didn't find available persistent volumes" in stepped.system.scheduler.waiting()["default/db"]


def test_a_second_process_goes_on_where_the_first_stopped(database: Database) -> None:
    first = one_disk(database)
    first.create(pod("db", "data"))
    first.system.catch_up(first.now)
    first.system.scheduler.step(first.now)
    second = Stepped(database, owner="again")
    second.now = first.now + 60 * SECOND
    second.until(lambda: second.node_of("db") == "node-0")
    ended_well(second)


def test_a_node_that_rejects_the_pod_is_not_tried_again_for_a_while(database: Database) -> None:
    disks = [volume("disk-0", "5Gi", "node-0"), volume("disk-1", "6Gi", "node-1")]
    stepped = Stepped(database, [LOCAL, node("node-0"), node("node-1"), *disks, claim("data", "4Gi")])
    stepped.settle()
    stepped.create(pod("db", "data"))
    stepped.until(lambda: stepped.node_of("db") == "node-0")
    found = stepped.cluster.get("Pod", "default/db") or {}
    stepped.cluster.unassign_pod("default/db", uid=found["metadata"]["uid"], reason="out of memory")
    # The claim is bound on the node that turned the pod away, and clean: it is asked back, and the pod moves.
    stepped.until(lambda: stepped.node_of("db") == "node-1", steps=900)
    assert stepped.volume_of("data") == "disk-1"
    assert (stepped.cluster.get("PersistentVolume", "disk-0") or {})["status"]["phase"] == "Available"
    ended_well(stepped)


def test_a_node_that_rejected_the_pod_is_tried_again_when_it_has_changed(database: Database) -> None:
    stepped = turned_away(database)
    assert "node(s) previously rejected the pod" in stepped.system.scheduler.waiting()["default/db"]
    held = dict(stepped.cluster.get("Node", "node-0") or {})
    labels = {**held["metadata"]["labels"], "more": "memory"}
    stepped.cluster.update("Node", {**held, "metadata": {**held["metadata"], "labels": labels}})
    stepped.until(lambda: stepped.node_of("db") == "node-0")
    ended_well(stepped)


def rollback_requested(database: Database) -> Stepped:
    """A claim that is bound and clean, without a pod, and marked for rollback."""
    stepped = one_disk_bound(database)
    held = dict(stepped.cluster.get("PersistentVolumeClaim", "default/data") or {})
    marks = {**held["metadata"]["annotations"], "pv.kubernetes.io/rollback": "uid-of-some-pod"}
    stepped.cluster.update(
        "PersistentVolumeClaim", {**held, "metadata": {**held["metadata"], "annotations": marks}}
    )
    return stepped


def mark_dirty(stepped: Stepped, seen: dict[str, Any]) -> None:
    """What a node agent does before it mounts: conditional on the claim as it saw it."""
    stepped.cluster.update(
        "PersistentVolumeClaim", {**seen, "status": {**seen["status"], "dataState": "Dirty"}}, status=True
    )


def test_a_claim_marked_dirty_in_the_instant_of_its_rollback_keeps_its_volume(database: Database) -> None:
    stepped = rollback_requested(database)
    seen = dict(stepped.cluster.get("PersistentVolumeClaim", "default/data") or {})
    once = iter([True])

    def kubelet(point: str) -> None:
        if point == "controller.decided" and next(once, False):
            mark_dirty(stepped, seen)

    fault_points.arm(kubelet, drill=True)
    try:
        stepped.step()
    finally:
        fault_points.arm(None, drill=False)
    stepped.settle()
    assert stepped.volume_of("data") == "disk"
    assert "pv.kubernetes.io/rollback" not in annotations(stepped, "data")
    assert "RollbackRejected" in {it["reason"] for it in whole(stepped.cluster.list("Event")).objects}
    ended_well(stepped)


def test_a_node_agent_that_is_too_late_to_mark_a_claim_is_refused(database: Database) -> None:
    stepped = rollback_requested(database)
    seen = dict(stepped.cluster.get("PersistentVolumeClaim", "default/data") or {})
    stepped.settle()
    assert stepped.volume_of("data") is None
    with pytest.raises(CallRefusedError):
        mark_dirty(stepped, seen)
    assert (stepped.cluster.get("PersistentVolume", "disk") or {})["status"]["phase"] == "Available"
    ended_well(stepped)


@pytest.mark.parametrize(("given", "seconds"), [(None, EFFECT_LEASE_SECONDS), ("2.5", 2.5)])
def test_an_effect_is_leased_for_as_long_as_the_settings_say(
    sqlite: Database, monkeypatch: pytest.MonkeyPatch, given: str | None, seconds: float
) -> None:
    """The embedded system and one made from the settings take their default from the same line."""
    if given is not None:
        monkeypatch.setenv("VOLSCHED_LEASE_SECONDS", given)
    system = whole_system(sqlite)
    assert system.executor.lease == seconds * SECOND
    with pytest.raises(FrozenInstanceError):
        system.executor.lease = SECOND  # type: ignore[misc]


def test_an_idle_system_rests_until_something_is_due_and_a_second_at_most(sqlite: Database) -> None:
    stepped = Stepped(sqlite, [node("node-0")])
    while stepped.step():
        pass
    assert stepped.now < stepped.system.rests_until(stepped.now) <= stepped.now + SECOND
    stepped.step(after=SECOND)
    assert stepped.system.rests_until(stepped.now + SECOND // 2) <= stepped.now + SECOND


def test_a_controller_that_does_not_lead_tries_several_times_a_second(sqlite: Database) -> None:
    """The death of the leader is no commit that would wake it."""
    first, second = Stepped(sqlite, [node("node-0")], owner="first"), Stepped(sqlite, owner="second")
    for stepped in (first, second):
        while stepped.step():
            pass
    assert first.system.controller.leads
    assert not second.system.controller.leads
    assert second.system.rests_until(second.now) <= second.now + SECOND // 4
