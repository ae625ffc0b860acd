"""Workloads end to end: StatefulSets on local volumes, ephemeral claims, and what goes with its owner."""

import itertools
from typing import Any

import pytest

from tests.support.clusters import LOCAL, Manifest, Stepped, claim, node, pod, volume
from tests.support.stateful_sets import stateful_set
from volsched.log.commands import Done
from volsched.log.database import Database
from volsched.log.integrity.verify import verify
from volsched.log.transaction import execute
from volsched.objects import door
from volsched.runtime import fault_points
from volsched.runtime.clock import SECOND
from volsched.workloads.controllers import Upkeep


def disks(nodes: int, each: int = 1) -> list[Manifest]:
    hosts = [node(f"node-{i}") for i in range(nodes)]
    return [
        LOCAL,
        *hosts,
        *(volume(f"disk-{i}-{j}", "2Gi", f"node-{i}") for i in range(nodes) for j in range(each)),
    ]


def ephemeral_pod(name: str, *volumes: str) -> Manifest:
    template = {"metadata": {"labels": {"made": "yes"}}, "spec": claim("x", "1Gi")["spec"]}
    made = pod(name)
    made["spec"]["volumes"] = [{"name": it, "ephemeral": {"volumeClaimTemplate": template}} for it in volumes]
    return made


def names(stepped: Stepped, kind: str) -> list[str]:
    return [it["metadata"]["name"] for it in stepped.cluster.list(kind).objects]


def change(stepped: Stepped, kind: str, key: str, *, status: bool = False, **fields: Any) -> None:
    found = dict(stepped.cluster.get(kind, key) or {})
    part = "status" if status else "spec"
    stepped.cluster.update(kind, {**found, part: {**found.get(part, {}), **fields}}, status=status)


def told(stepped: Stepped, reason: str) -> list[str]:
    return [it["message"] for it in stepped.cluster.list("Event").objects if it["reason"] == reason]


@pytest.fixture
def stepped(sqlite: Database) -> Stepped:
    return Stepped(sqlite, disks(3))


# --- StatefulSets ---------------------------------------------------------------------------------------


def test_a_set_gets_its_pods_claims_and_volumes(database: Database) -> None:
    stepped = Stepped(database, [*disks(3), stateful_set()])
    stepped.until(lambda: all(stepped.node_of(f"db-{i}") for i in range(3)))
    stepped.settle()
    assert names(stepped, "PersistentVolumeClaim") == ["data-db-0", "data-db-1", "data-db-2"]
    assert len({stepped.volume_of(f"data-db-{i}") for i in range(3)}) == 3
    found = stepped.cluster.get("StatefulSet", "default/db") or {}
    assert found["status"] == {"replicas": 3, "readyReplicas": 3, "currentReplicas": 3}
    assert verify(stepped.database).ok


def test_pods_are_made_in_order_each_when_the_one_before_has_a_node(stepped: Stepped) -> None:
    stepped.create(stateful_set(replicas=4))
    seen: list[list[str]] = []
    for _ in range(80):
        stepped.step(after=SECOND // 10)
        pods = names(stepped, "Pod")
        assert all(stepped.node_of(name) for name in pods[:-1])
        if not seen or seen[-1] != pods:
            seen.append(pods)
    # Three disks for four pods: the last one is made, and waits.
    assert seen[-1] == ["db-0", "db-1", "db-2", "db-3"]
    assert [len(it) for it in seen if it] == [1, 2, 3, 4]
    assert stepped.node_of("db-3") is None


def test_a_pod_that_finds_no_node_holds_up_the_next(stepped: Stepped) -> None:
    stepped.create(stateful_set(replicas=6))
    stepped.settle()
    assert names(stepped, "Pod") == ["db-0", "db-1", "db-2", "db-3"]
    assert (stepped.cluster.get("StatefulSet", "default/db") or {})["status"]["readyReplicas"] == 3
    stepped.create(volume("late", "2Gi", "node-0"))
    stepped.until(lambda: "db-4" in names(stepped, "Pod"))


def test_parallel_pods_do_not_wait_for_each_other(stepped: Stepped) -> None:
    stepped.create(stateful_set(replicas=5, podManagementPolicy="Parallel"))
    stepped.step()
    assert len(names(stepped, "Pod")) == 5
    assert len(names(stepped, "PersistentVolumeClaim")) == 5


def test_a_deleted_pod_comes_back_to_its_claim_and_its_node(stepped: Stepped) -> None:
    stepped.create(stateful_set())
    stepped.until(lambda: all(stepped.node_of(f"db-{i}") for i in range(3)))
    before = (stepped.node_of("db-1"), stepped.volume_of("data-db-1"), uid(stepped, "Pod", "db-1"))
    stepped.cluster.delete("Pod", "default/db-1")
    stepped.until(lambda: stepped.node_of("db-1") is not None)
    assert (stepped.node_of("db-1"), stepped.volume_of("data-db-1")) == before[:2]
    assert uid(stepped, "Pod", "db-1") != before[2]


@pytest.mark.parametrize("phase", ["Failed", "Succeeded"])
def test_a_pod_that_has_come_to_its_end_is_replaced(stepped: Stepped, phase: str) -> None:
    stepped.create(stateful_set(replicas=1))
    stepped.until(lambda: stepped.node_of("db-0") is not None)
    old = uid(stepped, "Pod", "db-0")
    change(stepped, "Pod", "default/db-0", status=True, phase=phase)
    stepped.until(lambda: stepped.node_of("db-0") is not None and uid(stepped, "Pod", "db-0") != old)
    assert told(stepped, "SuccessfulDelete") == ["Delete Pod db-0 in StatefulSet db successful"]


def test_scaling_down_takes_the_highest_first_and_keeps_the_claims(stepped: Stepped) -> None:
    stepped.create(stateful_set())
    stepped.until(lambda: all(stepped.node_of(f"db-{i}") for i in range(3)))
    change(stepped, "StatefulSet", "default/db", replicas=1)
    stepped.step()
    assert names(stepped, "Pod") == ["db-0", "db-1"]
    stepped.settle()
    assert names(stepped, "Pod") == ["db-0"]
    assert len(names(stepped, "PersistentVolumeClaim")) == 3
    kept = [stepped.volume_of(f"data-db-{i}") for i in range(3)]
    change(stepped, "StatefulSet", "default/db", replicas=3)
    stepped.until(lambda: all(stepped.node_of(f"db-{i}") for i in range(3)))
    assert [stepped.volume_of(f"data-db-{i}") for i in range(3)] == kept


def test_a_deleted_set_takes_its_pods_along_and_leaves_its_claims(stepped: Stepped) -> None:
    stepped.create(stateful_set(), pod("other"))
    stepped.until(lambda: all(stepped.node_of(f"db-{i}") for i in range(3)))
    stepped.cluster.delete("StatefulSet", "default/db")
    stepped.settle()
    assert names(stepped, "Pod") == ["other"]
    assert names(stepped, "PersistentVolumeClaim") == ["data-db-0", "data-db-1", "data-db-2"]
    assert all(stepped.volume_of(f"data-db-{i}") for i in range(3))


def test_a_set_made_anew_gets_new_pods_on_the_old_claims(stepped: Stepped) -> None:
    stepped.create(stateful_set())
    stepped.until(lambda: all(stepped.node_of(f"db-{i}") for i in range(3)))
    volumes = [stepped.volume_of(f"data-db-{i}") for i in range(3)]
    old = uid(stepped, "Pod", "db-0")
    stepped.cluster.delete("StatefulSet", "default/db")
    stepped.create(stateful_set())
    stepped.until(lambda: "db-0" in names(stepped, "Pod") and uid(stepped, "Pod", "db-0") != old)
    stepped.until(lambda: all(stepped.node_of(f"db-{i}") for i in range(3)))
    assert [stepped.volume_of(f"data-db-{i}") for i in range(3)] == volumes


def test_a_pod_is_not_made_on_a_claim_that_is_going(stepped: Stepped) -> None:
    stepped.create(stateful_set(replicas=1), pod("holder", "data-db-0"))
    stepped.until(lambda: bool(stepped.node_of("db-0")) and bool(stepped.node_of("holder")))
    # The holder keeps the claim from going while the set's own pod is gone already.
    stepped.cluster.delete("PersistentVolumeClaim", "default/data-db-0")
    old = uid(stepped, "PersistentVolumeClaim", "data-db-0")
    stepped.cluster.delete("Pod", "default/db-0")
    stepped.settle()
    assert names(stepped, "Pod") == ["holder"]
    assert told(stepped, "FailedCreate") == [
        "Create Pod db-0 in StatefulSet db failed error: pvc data-db-0 is being deleted"
    ]
    stepped.cluster.delete("Pod", "default/holder")
    stepped.until(lambda: bool(stepped.node_of("db-0")))
    assert uid(stepped, "PersistentVolumeClaim", "data-db-0") != old


def test_a_pod_of_somebody_else_is_told_and_left_alone(stepped: Stepped) -> None:
    stepped.create(pod("db-1"), stateful_set())
    stepped.settle()
    assert names(stepped, "Pod") == ["db-0", "db-1"]
    assert told(stepped, "FailedCreate") == [
        'pod "db-1" exists and does not belong to this set; delete it, or give the set another name'
    ]
    stepped.cluster.delete("Pod", "default/db-1")
    stepped.until(lambda: all(stepped.node_of(f"db-{i}") for i in range(3)))


def test_with_node_agents_a_pod_counts_when_it_runs(sqlite: Database) -> None:
    stepped = Stepped(sqlite, [*disks(3), stateful_set()], node_agent=True)
    stepped.until(lambda: "db-1" in names(stepped, "Pod"))
    first = stepped.cluster.get("Pod", "default/db-0") or {}
    assert first["status"]["phase"] == "Running"
    stepped.until(lambda: (stepped.cluster.get("StatefulSet", "default/db") or {})["status"]["readyReplicas"] == 3)
    change(stepped, "StatefulSet", "default/db", replicas=1)
    stepped.until(lambda: names(stepped, "Pod") == ["db-0"])
    stepped.cluster.delete("StatefulSet", "default/db")
    stepped.until(lambda: names(stepped, "Pod") == [])
    assert len(names(stepped, "PersistentVolumeClaim")) == 3


def test_several_claims_of_a_pod_need_one_node(sqlite: Database) -> None:
    stepped = Stepped(sqlite, [*disks(2), stateful_set(replicas=1, templates=2)])
    stepped.settle()
    assert stepped.node_of("db-0") is None
    stepped.create(volume("more", "2Gi", "node-1"))
    stepped.until(lambda: stepped.node_of("db-0") == "node-1")
    assert {stepped.volume_of("data-db-0"), stepped.volume_of("data1-db-0")} == {"disk-1-0", "more"}


def test_a_name_that_cannot_be_is_told_and_not_tried_for_ever(stepped: Stepped) -> None:
    stepped.create(stateful_set("d" * 63, replicas=1))
    stepped.settle()
    assert names(stepped, "Pod") == []
    assert len(told(stepped, "FailedCreate")) == 1
    assert stepped.system.next_due() is None


def test_two_systems_make_every_pod_once(sqlite: Database) -> None:
    first = Stepped(sqlite, [*disks(3), stateful_set(podManagementPolicy="Parallel")])
    second = Stepped(sqlite, owner="second")
    for system in (first, second):
        system.system.catch_up(system.now)
    for _ in range(60):
        first.step(after=SECOND // 10)
        second.step(after=SECOND // 10)
    assert names(first, "Pod") == ["db-0", "db-1", "db-2"]
    created = [it["count"] for it in first.cluster.list("Event").objects if it["reason"] == "SuccessfulCreate"]
    assert created == [1] * 6


def test_a_set_that_was_scaled_since_it_was_read_gets_nothing(stepped: Stepped) -> None:
    stepped.create(stateful_set())
    stepped.system.catch_up(stepped.now)
    change(stepped, "StatefulSet", "default/db", replicas=0)
    assert [part.step(stepped.now) for part in stepped.system.parts] == [0, 1, 0, 0, 0, 0]
    assert names(stepped, "Pod") == []
    assert names(stepped, "PersistentVolumeClaim") == []


@pytest.mark.parametrize("point", ["commit.before", "commit.after"])
@pytest.mark.parametrize("nth", range(1, 16, 2))
def test_a_process_may_die_at_any_commit(sqlite: Database, point: str, nth: int) -> None:
    objects = [*disks(2, each=2), stateful_set(replicas=2), ephemeral_pod("web", "a"), ephemeral_pod("web2", "a")]
    first = Stepped(sqlite, objects)
    left = itertools.count(nth, -1)

    def die(reached: str) -> None:
        if reached == point and next(left) == 1:
            raise fault_points.FaultError

    fault_points.arm(die, drill=True)
    try:
        with pytest.raises(fault_points.FaultError):
            first.until(lambda: False, steps=300)
    finally:
        fault_points.arm(None, drill=False)
    second = Stepped(sqlite, owner="second")
    second.now = first.now + 60 * SECOND
    pods = ["db-0", "db-1", "web", "web2"]
    second.until(lambda: all(second.node_of(name) for name in pods))
    second.settle()
    assert names(second, "Pod") == pods
    assert names(second, "PersistentVolumeClaim") == ["data-db-0", "data-db-1", "web-a", "web2-a"]
    created = [it["count"] for it in second.cluster.list("Event").objects if it["reason"] == "SuccessfulCreate"]
    assert created == [1] * 4
    assert verify(sqlite).ok


# --- ephemeral volumes ----------------------------------------------------------------------------------


def test_an_ephemeral_claim_is_made_used_and_goes_with_its_pod(database: Database) -> None:
    stepped = Stepped(database, [*disks(1, each=2), ephemeral_pod("web", "a", "b")])
    stepped.until(lambda: stepped.node_of("web") == "node-0")
    assert names(stepped, "PersistentVolumeClaim") == ["web-a", "web-b"]
    made = stepped.cluster.get("PersistentVolumeClaim", "default/web-a") or {}
    (owner,) = made["metadata"]["ownerReferences"]
    assert owner == {
        "apiVersion": "v1", "kind": "Pod", "name": "web", "uid": uid(stepped, "Pod", "web"),
        "controller": True, "blockOwnerDeletion": True,
    }  # fmt: skip
    assert made["metadata"]["labels"] == {"made": "yes"}
    stepped.cluster.delete("Pod", "default/web")
    stepped.settle()
    assert names(stepped, "PersistentVolumeClaim") == []
    assert verify(stepped.database).ok


def test_a_deleted_ephemeral_claim_is_made_again(sqlite: Database) -> None:
    stepped = Stepped(sqlite, [LOCAL, node("node-0"), ephemeral_pod("web", "a")])
    stepped.settle()
    old = uid(stepped, "PersistentVolumeClaim", "web-a")
    stepped.cluster.delete("PersistentVolumeClaim", "default/web-a")
    stepped.until(lambda: uid(stepped, "PersistentVolumeClaim", "web-a") not in ("", old))


def test_a_claim_of_that_name_which_the_pod_does_not_own_is_refused(stepped: Stepped) -> None:
    stepped.create(claim("web-a", "1Gi"), ephemeral_pod("web", "a"))
    stepped.settle()
    said = "ephemeral volume a: PVC default/web-a was not created for pod default/web (pod is not owner)"
    assert told(stepped, "FailedBinding") == [said]
    assert stepped.node_of("web") is None
    assert (
        "ownerReferences" not in (stepped.cluster.get("PersistentVolumeClaim", "default/web-a") or {})["metadata"]
    )
    stepped.cluster.delete("PersistentVolumeClaim", "default/web-a")
    stepped.until(lambda: bool(stepped.node_of("web")))


def test_a_pod_made_anew_does_not_inherit_the_claim(stepped: Stepped) -> None:
    stepped.create(ephemeral_pod("web", "a"))
    stepped.until(lambda: bool(stepped.node_of("web")))
    old = uid(stepped, "PersistentVolumeClaim", "web-a")
    stepped.cluster.delete("Pod", "default/web")
    stepped.create(ephemeral_pod("web", "a"))
    stepped.until(lambda: bool(stepped.node_of("web")))
    assert uid(stepped, "PersistentVolumeClaim", "web-a") != old


def test_a_pod_that_is_gone_since_it_was_read_gets_no_claim(stepped: Stepped) -> None:
    stepped.create(ephemeral_pod("web", "a"))
    stepped.system.catch_up(stepped.now)
    stepped.cluster.delete("Pod", "default/web")
    assert [part.step(stepped.now) for part in stepped.system.parts] == [0, 0, 1, 0, 0, 0]
    assert names(stepped, "PersistentVolumeClaim") == []


# --- garbage --------------------------------------------------------------------------------------------


def owned(manifest: Manifest, **reference: Any) -> Manifest:
    given = {"apiVersion": "v1", "kind": "Pod", "name": "gone", "uid": "u", "controller": True, **reference}
    return {**manifest, "metadata": {**manifest["metadata"], "ownerReferences": [given]}}


@pytest.mark.parametrize(
    ("reference", "kept", "said"),
    [
        ({}, False, 0),
        ({"controller": False}, True, 0),
        ({"uid": "never-seen"}, True, 1),
        ({"kind": "ReplicaSet", "apiVersion": "apps/v1"}, True, 0),
        ({"apiVersion": "v2"}, True, 0),
    ],
    ids=["its controller is gone", "no controller", "an owner never seen", "a kind unknown", "a version unknown"],
)
def test_only_what_a_controller_left_is_collected(
    stepped: Stepped, reference: dict[str, Any], kept: bool, said: int
) -> None:
    stepped.create(pod("gone"))
    gone = uid(stepped, "Pod", "gone")
    stepped.create(owned(claim("data", "1Gi"), **{"uid": gone, **reference}))
    stepped.settle()
    assert names(stepped, "PersistentVolumeClaim") == ["data"]
    stepped.cluster.delete("Pod", "default/gone")
    stepped.settle()
    assert (names(stepped, "PersistentVolumeClaim") == ["data"]) is kept
    assert len(told(stepped, "OwnerUnknown")) == said


def test_what_another_owner_still_holds_is_kept(stepped: Stepped) -> None:
    stepped.create(pod("gone"), pod("stays"))
    shared = owned(claim("data", "1Gi"), uid=uid(stepped, "Pod", "gone"))
    shared["metadata"]["ownerReferences"].append(
        {"apiVersion": "v1", "kind": "Pod", "name": "stays", "uid": uid(stepped, "Pod", "stays")}
    )
    stepped.create(shared)
    stepped.cluster.delete("Pod", "default/gone")
    stepped.settle()
    assert names(stepped, "PersistentVolumeClaim") == ["data"]
    stepped.cluster.delete("Pod", "default/stays")
    stepped.settle()
    assert names(stepped, "PersistentVolumeClaim") == []


def test_what_was_given_another_owner_since_it_was_read_is_kept(stepped: Stepped) -> None:
    stepped.create(pod("gone"), pod("heir"))
    stepped.create(owned(claim("data", "1Gi"), uid=uid(stepped, "Pod", "gone")))
    stepped.cluster.delete("Pod", "default/gone")
    stepped.system.catch_up(stepped.now)
    found = stepped.cluster.get("PersistentVolumeClaim", "default/data") or {}
    heir = owned(found, name="heir", uid=uid(stepped, "Pod", "heir"))
    stepped.cluster.update("PersistentVolumeClaim", heir)
    assert [part.step(stepped.now) for part in stepped.system.parts] == [0, 0, 0, 1, 0, 0]
    stepped.settle()
    assert (
        "deletionTimestamp" not in (stepped.cluster.get("PersistentVolumeClaim", "default/data") or {})["metadata"]
    )


def test_an_owner_that_is_back_since_it_was_read_keeps_what_it_owns(stepped: Stepped) -> None:
    """As when a foreign cluster told of its going too early: the uid is the same."""
    stepped.create(pod("gone"))
    old = uid(stepped, "Pod", "gone")
    stepped.create(owned(claim("data", "1Gi"), uid=old))
    stepped.cluster.delete("Pod", "default/gone")
    stepped.system.catch_up(stepped.now)
    back = door.create("Pod", pod("gone"), door.controller("test", stepped.now), uid=old).command
    assert isinstance(execute(stepped.database, [back], now=stepped.now)[0], Done)
    assert [part.step(stepped.now) for part in stepped.system.parts] == [0, 0, 0, 1, 0, 0]
    assert (
        "deletionTimestamp" not in (stepped.cluster.get("PersistentVolumeClaim", "default/data") or {})["metadata"]
    )


def test_garbage_of_before_the_start_is_found(sqlite: Database) -> None:
    before = Stepped(sqlite, [*disks(1), ephemeral_pod("web", "a")])
    before.until(lambda: bool(before.node_of("web")))
    before.cluster.delete("Pod", "default/web")
    after = Stepped(sqlite, owner="after")
    after.now = before.now + 60 * SECOND
    after.settle()
    assert names(after, "PersistentVolumeClaim") == []


def test_each_part_can_be_left_out(sqlite: Database) -> None:
    stepped = Stepped(sqlite, [*disks(1), stateful_set(), ephemeral_pod("web", "a")], without=tuple(Upkeep))
    stepped.settle()
    assert stepped.system.parts == []
    assert names(stepped, "Pod") == ["web"]
    assert names(stepped, "PersistentVolumeClaim") == []


def uid(stepped: Stepped, kind: str, name: str) -> str:
    return str(((stepped.cluster.get(kind, f"default/{name}") or {}).get("metadata") or {}).get("uid", ""))
