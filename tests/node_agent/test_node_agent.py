"""Pods on nodes that an agent plays: they run, end, are turned away, and what they use is known to be used."""

import itertools
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest

from tests.support.clusters import LOCAL, Manifest, Stepped, claim, node, pod, volume
from volsched.cluster.port import CallRefusedError
from volsched.kube.meta import ROLLBACK
from volsched.log.database import Database
from volsched.log.events.object_states import living
from volsched.log.integrity.verify import verify
from volsched.log.reads.tail import read_stream
from volsched.log.transaction import execute
from volsched.node_agent.agent import NodeAgent
from volsched.node_agent.rules.attachments import NODE_UID
from volsched.objects import door
from volsched.questions.invariants import violations
from volsched.runtime import fault_points
from volsched.runtime.clock import SECOND
from volsched.runtime.world import World

ON_SQLITE = pytest.mark.parametrize("url", ["sqlite"], indirect=True)
CLASS_OF_DISKS = {**LOCAL, "metadata": {"name": "disks"}}


def played(database: Database, *objects: Manifest, owner: str = "test") -> Stepped:
    stepped = Stepped(database, [LOCAL, CLASS_OF_DISKS, *objects], owner=owner, node_agent=True)
    stepped.settle()
    return stepped


def csi(name: str, *, modes: tuple[str, ...] = ("ReadWriteOnce",)) -> Manifest:
    """A volume that every node reaches once it is attached."""
    made = volume(name, "5Gi", "nowhere", "disks")
    spec = {key: it for key, it in made["spec"].items() if key not in ("local", "nodeAffinity")}
    disk = {"driver": "disks.example.com", "volumeHandle": name}
    return {**made, "spec": {**spec, "accessModes": list(modes), "csi": disk}}


def get(stepped: Stepped, kind: str, name: str) -> dict[str, Any]:
    key = name if kind in ("Node", "PersistentVolume") else f"default/{name}"
    return dict(stepped.cluster.get(kind, key) or {})


def phase(stepped: Stepped, name: str = "db") -> str | None:
    found: str | None = get(stepped, "Pod", name).get("status", {}).get("phase")
    return found


def data_state(stepped: Stepped, name: str = "data") -> str | None:
    found: str | None = get(stepped, "PersistentVolumeClaim", name)["status"].get("dataState")
    return found


def relabel(stepped: Stepped, name: str, labels: dict[str, str]) -> None:
    found = get(stepped, "Node", name)
    stepped.cluster.update("Node", {**found, "metadata": {**found["metadata"], "labels": labels}})


def mark(stepped: Stepped, name: str = "data") -> None:
    found = get(stepped, "PersistentVolumeClaim", name)
    marks = {**found["metadata"].get("annotations", {}), ROLLBACK: "uid-of-some-pod"}
    stepped.cluster.update(
        "PersistentVolumeClaim", {**found, "metadata": {**found["metadata"], "annotations": marks}}
    )


def told(stepped: Stepped, reason: str) -> list[dict[str, Any]]:
    return [dict(it) for it in stepped.cluster.list("Event").objects if it["reason"] == reason]


def attached(stepped: Stepped) -> list[tuple[str, str, bool]]:
    return sorted(
        (it["spec"]["source"]["persistentVolumeName"], it["spec"]["nodeName"], it["status"]["attached"])
        for it in stepped.cluster.list("VolumeAttachment").objects
    )


def all_is_well(stepped: Stepped) -> None:
    with stepped.database.read() as connection:
        assert violations(connection, at_rest=True) == []
    assert verify(stepped.database).ok


def placed(name: str, host: str, *claims: str, **kw: Any) -> Manifest:
    """A pod that nobody scheduled."""
    made = pod(name, *claims, **kw)
    return {**made, "spec": {**made["spec"], "nodeName": host}}


def agent_alone(stepped: Stepped, owner: str = "alone", *, on: str | None = None) -> NodeAgent:
    """An agent with a world of its own, which looks only when it is told to; it serves all nodes, or one."""
    ids, world = itertools.count(1), World(stepped.database)
    nodes = None if on is None else (lambda name: name == on)
    agent = NodeAgent(stepped.database, world, owner, lambda: f"{owner}-{next(ids)}", nodes=nodes)
    look(agent, stepped)
    return agent


def look(agent: NodeAgent, stepped: Stepped) -> None:
    agent.update(agent.world.catch_up(), stepped.now)


# --- a pod's life ---------------------------------------------------------------------------------------


def test_a_pod_runs_and_its_claims_are_dirty(database: Database) -> None:
    disks = [volume(f"disk-{i}", "5Gi", "node-0") for i in range(2)]
    stepped = played(database, node("node-0"), *disks, claim("data", "4Gi"), claim("more", "4Gi"))
    stepped.create(pod("db", "data", "more"))
    stepped.until(lambda: stepped.node_of("db") == "node-0")
    assert (data_state(stepped), data_state(stepped, "more")) == ("Clean", "Clean")
    stepped.until(lambda: phase(stepped) == "Running")
    assert (data_state(stepped), data_state(stepped, "more")) == ("Dirty", "Dirty")
    status = get(stepped, "Pod", "db")["status"]
    ready = {it["type"]: it["status"] for it in status["conditions"]}
    assert ready["Ready"] == ready["PodScheduled"] == "True"
    assert [it["state"].keys() for it in status["containerStatuses"]] == [{"running": 0}.keys()]
    assert attached(stepped) == [], "a local volume is nothing that is attached"
    all_is_well(stepped)


@ON_SQLITE
def test_the_mark_and_the_admission_are_one_commit(database: Database) -> None:
    stepped = played(database, node("node-0"), volume("disk", "5Gi", "node-0"), claim("data", "4Gi"))
    stepped.create(pod("db", "data"))
    stepped.until(lambda: data_state(stepped) == "Dirty")
    pod_, claim_ = get(stepped, "Pod", "db"), get(stepped, "PersistentVolumeClaim", "data")
    assert pod_["status"]["admittedBy"] == get(stepped, "Node", "node-0")["metadata"]["uid"]
    assert int(pod_["metadata"]["resourceVersion"]) == int(claim_["metadata"]["resourceVersion"]) + 1


@ON_SQLITE
def test_a_deleted_pod_ends_before_it_goes(database: Database) -> None:
    stepped = played(database, node("node-0"), volume("disk", "5Gi", "node-0"), claim("data", "4Gi"))
    stepped.create(pod("db", "data"))
    stepped.until(lambda: phase(stepped) == "Running")
    stepped.settle()
    seen = living(stepped.system.world.states, "pod/default/db")
    assert seen is not None
    execute(
        database,
        [door.delete_seen("Pod", seen, door.controller("test", stepped.now), grace=None).command],
        now=stepped.now,
    )
    held = get(stepped, "Pod", "db")
    assert (held["metadata"]["deletionGracePeriodSeconds"], held["status"]["phase"]) == (30, "Running")
    stepped.until(lambda: stepped.cluster.get("Pod", "default/db") is None)
    with database.read() as connection:
        *_, ended, last = read_stream(connection, "pod/default/db")
    assert ('"terminated"' in ended.data, last.type) == (True, "PodDeleted")
    all_is_well(stepped)


@ON_SQLITE
@pytest.mark.parametrize(("code", "ends"), [(None, "Succeeded"), ("0", "Succeeded"), ("1", "Failed")])
def test_a_pod_ends_after_its_run_seconds(database: Database, code: str | None, ends: str) -> None:
    marks = {"volsched.io/run-seconds": "30"} | ({} if code is None else {"volsched.io/exit-code": code})
    stepped = played(database, node("node-0"))
    stepped.create(pod("db", annotations=marks))
    stepped.until(lambda: phase(stepped) == "Running")
    stepped.step()
    (agent,) = (part for part in stepped.system.parts if isinstance(part, NodeAgent))
    began, due = stepped.now, agent.next_due()
    assert due is not None
    assert 29 * SECOND <= due - began <= 30 * SECOND
    stepped.step(after=28 * SECOND)
    assert phase(stepped) == "Running"
    stepped.until(lambda: phase(stepped) == ends, steps=30)
    stepped.settle()
    assert agent.next_due() is None
    all_is_well(stepped)


@ON_SQLITE
def test_a_bad_annotation_is_told_and_the_pod_runs_on(database: Database) -> None:
    stepped = played(database, node("node-0"), pod("db", annotations={"volsched.io/run-seconds": "5m"}))
    stepped.settle()
    assert phase(stepped) == "Running"
    (said,) = told(stepped, "BadAnnotation")
    assert '"5m" is not a whole number' in said["message"]


@ON_SQLITE
def test_a_claim_in_use_stays_until_its_pod_is_gone(database: Database) -> None:
    """Also a pod that has completed keeps it."""
    stepped = played(database, node("node-0"), volume("disk", "5Gi", "node-0"), claim("data", "4Gi"))
    stepped.create(pod("db", "data", annotations={"volsched.io/run-seconds": "1"}))
    stepped.until(lambda: phase(stepped) == "Succeeded")
    stepped.cluster.delete("PersistentVolumeClaim", "default/data")
    stepped.step(after=20 * SECOND)
    stepped.settle()
    assert "deletionTimestamp" in get(stepped, "PersistentVolumeClaim", "data")["metadata"]
    stepped.cluster.delete("Pod", "default/db")
    stepped.until(lambda: not get(stepped, "PersistentVolumeClaim", "data"))
    all_is_well(stepped)


@ON_SQLITE
def test_a_deleted_pod_with_a_finalizer_is_shut_down_and_its_volumes_detached(database: Database) -> None:
    stepped = played(database, node("node-0"), csi("disk"), claim("data", "4Gi", "disks"))
    held = pod("db", "data")
    stepped.create({**held, "metadata": {**held["metadata"], "finalizers": ["example.com/wait"]}})
    stepped.until(lambda: phase(stepped) == "Running")
    assert attached(stepped) == [("disk", "node-0", True)]
    stepped.cluster.delete("Pod", "default/db")
    stepped.settle()
    found = get(stepped, "Pod", "db")
    assert found["status"]["phase"] == "Succeeded"
    assert "terminated" in found["status"]["containerStatuses"][0]["state"]
    assert attached(stepped) == []
    all_is_well(stepped)


# --- turned away ----------------------------------------------------------------------------------------


@ON_SQLITE
def test_a_pod_whose_node_lost_its_label_ends_on_another_node(database: Database) -> None:
    disks = [volume("disk-0", "5Gi", "node-0"), volume("disk-1", "6Gi", "node-1")]
    stepped = Stepped(database, [LOCAL, node("node-0"), node("node-1"), *disks, claim("data", "4Gi")])
    stepped.settle()
    stepped.create(pod("db", "data"))
    stepped.until(lambda: stepped.node_of("db") == "node-0")
    # Bound, and the node is not what it was before any agent has looked.
    relabel(stepped, "node-0", {"kubernetes.io/hostname": "renamed"})
    stepped = Stepped(database, owner="with-agent", node_agent=True)
    stepped.now += SECOND
    stepped.until(lambda: stepped.node_of("db") is None)
    turned = get(stepped, "Pod", "db")
    assert turned["metadata"]["annotations"]["scheduling.volumes/rejected-nodes"] == "node-0"
    (condition,) = turned["status"]["conditions"]
    assert (condition["status"], condition["reason"]) == ("False", "NodeRejected")
    assert 'PersistentVolume "disk-0" excludes node "node-0"' in condition["message"]
    assert len(told(stepped, "NodeRejected")) == 1
    assert data_state(stepped) == "Clean", "a rejection leaves claims as they are"
    # So that the claim can be asked back, and the pod moves.
    stepped.until(lambda: phase(stepped) == "Running", steps=900)
    assert (stepped.node_of("db"), stepped.volume_of("data")) == ("node-1", "disk-1")
    assert data_state(stepped) == "Dirty"
    all_is_well(stepped)


@ON_SQLITE
def test_a_rejected_pod_avoids_the_node_until_it_has_changed(database: Database) -> None:
    stepped = played(database, node("node-0"), placed("db", "node-0"))
    wanted = placed("web", "node-0")
    stepped.create({**wanted, "spec": {**wanted["spec"], "nodeSelector": {"disk": "fast"}}})
    stepped.until(lambda: stepped.node_of("web") is None)
    stepped.settle()
    assert stepped.node_of("web") is None
    relabel(stepped, "node-0", {"disk": "fast"})
    stepped.until(lambda: phase(stepped, "web") == "Running")


@ON_SQLITE
def test_checks_see_the_pods_that_the_node_has_admitted(database: Database) -> None:
    """Also those of the same batch: two pods that were put where one fits do not both start."""
    stepped = Stepped(database, [node("node-0"), placed("a", "node-0"), placed("b", "node-0")])
    agent = agent_alone(stepped)
    agent.checks = (lambda _pod, _node, others: "one pod is enough" if others else None,)
    agent.step(stepped.now)
    look(agent, stepped)
    agent.step(stepped.now)
    assert (phase(stepped, "a"), stepped.node_of("b")) == ("Running", None)


# --- the race with a rollback ---------------------------------------------------------------------------


def bound_and_asked_back(database: Database) -> Stepped:
    """A claim that is bound, clean and marked for rollback, and a second pod that uses it on its node."""
    stepped = Stepped(database, [LOCAL, node("node-0"), volume("disk", "5Gi", "node-0"), claim("data", "4Gi")])
    stepped.settle()
    stepped.create(pod("first", "data"))
    stepped.until(lambda: stepped.node_of("first") == "node-0")
    stepped.cluster.delete("Pod", "default/first")
    stepped.settle()
    return stepped


def test_when_the_dirty_mark_is_first_the_claim_keeps_its_volume(database: Database) -> None:
    stepped = bound_and_asked_back(database)
    stepped.create(placed("db", "node-0", "data"))
    agent = agent_alone(stepped)
    agent.step(stepped.now)
    assert data_state(stepped) == "Dirty"
    mark(stepped)
    stepped.settle()
    assert stepped.volume_of("data") == "disk"
    assert ROLLBACK not in get(stepped, "PersistentVolumeClaim", "data")["metadata"]["annotations"]
    look(agent, stepped)
    agent.step(stepped.now)
    assert phase(stepped) == "Running"
    all_is_well(stepped)


def test_when_the_rollback_is_first_the_pod_is_turned_away(database: Database) -> None:
    """The agent decides on what it saw before; its mark, and with it the start, is refused."""
    stepped = bound_and_asked_back(database)
    stepped.create(placed("db", "node-0", "data"))
    agent = agent_alone(stepped)
    mark(stepped)
    agent.step(stepped.now)
    assert data_state(stepped) == "Clean"
    assert stepped.node_of("db") == "node-0"
    look(agent, stepped)
    agent.step(stepped.now)
    assert stepped.node_of("db") is None
    assert "undergoing rollback" in told(stepped, "NodeRejected")[0]["message"]
    # The way is free: the rollback goes through, and in five minutes the node may have the pod.
    stepped.until(lambda: len(told(stepped, "RollbackCompleted")) == 1)
    stepped.step(after=301 * SECOND)
    stepped.until(lambda: stepped.node_of("db") == "node-0")
    all_is_well(stepped)


def test_a_pod_that_arrives_in_the_instant_of_the_rollback_is_turned_away(database: Database) -> None:
    """The controller has decided without the pod, and the agent looks before that is written."""
    stepped = bound_and_asked_back(database)
    agent, once = agent_alone(stepped), iter([True])
    mark(stepped)

    def arrive(point: str) -> None:
        if point == "controller.decided" and next(once, False):
            stepped.create(placed("db", "node-0", "data"))
            take_turns(stepped, agent, rounds=3)

    fault_points.arm(arrive, drill=True)
    try:
        stepped.step()
    finally:
        fault_points.arm(None, drill=False)
    assert (stepped.node_of("db"), data_state(stepped), stepped.volume_of("data")) == (None, None, None)
    assert len(told(stepped, "RollbackCompleted")) == len(told(stepped, "NodeRejected")) == 1
    stepped.settle()
    all_is_well(stepped)


@ON_SQLITE
def test_a_pod_whose_claim_was_taken_back_meanwhile_waits_and_says_so(database: Database) -> None:
    stepped = bound_and_asked_back(database)
    mark(stepped)
    agent = agent_alone(stepped)
    stepped.settle()
    assert stepped.volume_of("data") is None
    stepped.create(placed("db", "node-0", "data"))
    look(agent, stepped)
    agent.step(stepped.now)
    assert phase(stepped) == "Pending"
    (said,) = told(stepped, "FailedMount")
    assert 'PersistentVolumeClaim "default/data" is Pending' in said["message"]
    assert "without spec.nodeName" in said["message"]
    assert data_state(stepped) is None


@ON_SQLITE
def test_a_dirty_claim_is_never_asked_back(database: Database) -> None:
    """The pod waits for ever rather than lose its data."""
    disks = [volume("disk-0", "5Gi", "node-0"), volume("disk-1", "9Gi", "node-1")]
    stepped = played(database, node("node-0"), node("node-1"), *disks, claim("data", "4Gi"), claim("large", "8Gi"))
    stepped.create(pod("db", "data"))
    stepped.until(lambda: phase(stepped) == "Running")
    assert stepped.node_of("db") == "node-0"
    stepped.cluster.delete("Pod", "default/db")
    stepped.create(pod("both", "data", "large"))
    stepped.settle()
    assert (stepped.node_of("both"), stepped.volume_of("data")) == (None, "disk-0")
    assert told(stepped, "RollbackRequested") == []
    mark(stepped)
    stepped.settle()
    assert stepped.volume_of("data") == "disk-0"
    assert ROLLBACK not in get(stepped, "PersistentVolumeClaim", "data")["metadata"]["annotations"]
    assert len(told(stepped, "RollbackRejected")) == 1
    all_is_well(stepped)


# --- mounting and attaching -----------------------------------------------------------------------------


@ON_SQLITE
def test_a_pod_that_could_not_mount_starts_once_it_can(database: Database) -> None:
    stepped = played(database, node("node-0"), placed("db", "node-0", "data"))
    stepped.settle()
    assert phase(stepped) == "Pending"
    assert [it["count"] for it in told(stepped, "FailedMount")] == [1], "said once, however often it is looked at"
    reserved = volume("disk", "5Gi", "node-0")
    reserved["spec"]["claimRef"] = {"namespace": "default", "name": "data"}
    stepped.create(reserved, claim("data", "4Gi"))
    stepped.until(lambda: phase(stepped) == "Running")
    assert data_state(stepped) == "Dirty"
    all_is_well(stepped)


@ON_SQLITE
def test_a_volume_that_is_put_right_is_mounted(database: Database) -> None:
    stepped = bound_and_asked_back(database)
    disk = get(stepped, "PersistentVolume", "disk")
    astray = {**disk["spec"], "claimRef": {**disk["spec"]["claimRef"], "uid": "of-another-claim"}}
    wrong = stepped.cluster.update("PersistentVolume", {**disk, "spec": astray})
    stepped.create(placed("db", "node-0", "data"))
    agent = agent_alone(stepped)
    take_turns(stepped, agent)
    assert (phase(stepped), data_state(stepped)) == ("Pending", "Clean")
    assert "its spec.claimRef.uid is not the claim's" in told(stepped, "FailedMount")[0]["message"]
    stepped.cluster.update("PersistentVolume", {**wrong, "spec": disk["spec"]})
    take_turns(stepped, agent)
    assert (phase(stepped), data_state(stepped)) == ("Running", "Dirty")


@ON_SQLITE
def test_a_volume_that_one_node_may_have_moves_with_its_last_pod(database: Database) -> None:
    hosts = [node("node-0", disk="a"), node("node-1", disk="b")]
    stepped = played(database, *hosts, csi("disk"), claim("data", "4Gi", "disks"))
    stepped.create(pod("db", "data"))
    stepped.until(lambda: phase(stepped) == "Running", steps=60)
    host = str(stepped.node_of("db"))
    stepped.create(placed("twin", host, "data"))
    stepped.until(lambda: phase(stepped, "twin") == "Running", steps=60)
    other = "node-1" if host == "node-0" else "node-0"
    stepped.create(placed("late", other, "data"))
    stepped.cluster.delete("Pod", "default/db")
    stepped.settle()
    assert attached(stepped) == [("disk", host, True)], "the twin still uses it"
    assert phase(stepped, "late") == "Pending"
    assert "Multi-Attach error" in told(stepped, "FailedAttachVolume")[0]["message"]
    stepped.cluster.delete("Pod", "default/twin")
    stepped.until(lambda: phase(stepped, "late") == "Running")
    assert attached(stepped) == [("disk", other, True)]
    all_is_well(stepped)


def bound_disk(database: Database) -> Stepped:
    """A claim that is bound to a volume which both nodes reach, and used by nobody."""
    stepped = Stepped(database, [CLASS_OF_DISKS, node("node-0"), node("node-1")])
    stepped.create(csi("disk"), claim("data", "4Gi", "disks"), pod("first", "data"))
    stepped.until(lambda: stepped.volume_of("data") == "disk" and stepped.node_of("first") is not None)
    stepped.cluster.delete("Pod", "default/first")
    stepped.settle()
    return stepped


def take_turns(stepped: Stepped, *agents: NodeAgent, rounds: int = 6) -> None:
    """All look before any acts, so that each decides on what the others are about to change."""
    for _ in range(rounds):
        stepped.now += SECOND
        for agent in agents:
            look(agent, stepped)
        for agent in agents:
            agent.step(stepped.now)


def test_two_agents_never_attach_an_exclusive_volume_twice(database: Database) -> None:
    stepped = bound_disk(database)
    stepped.create(placed("a", "node-0", "data"), placed("b", "node-1", "data"))
    take_turns(stepped, agent_alone(stepped, "left", on="node-0"), agent_alone(stepped, "right", on="node-1"))
    assert attached(stepped) == [("disk", "node-0", True)]
    assert (phase(stepped, "a"), phase(stepped, "b")) == ("Running", "Pending")


@ON_SQLITE
def test_a_shared_volume_is_attached_to_every_node_that_uses_it(database: Database) -> None:
    stepped = Stepped(database, [CLASS_OF_DISKS, node("node-0"), node("node-1")], node_agent=True)
    shared = claim("data", "4Gi", "disks")
    shared["spec"]["accessModes"] = ["ReadWriteMany"]
    stepped.create(csi("disk", modes=("ReadWriteMany",)), shared, pod("first", "data"))
    stepped.until(lambda: phase(stepped, "first") == "Running")
    stepped.create(placed("a", "node-0", "data"), placed("b", "node-1", "data"))
    stepped.until(lambda: phase(stepped, "a") == phase(stepped, "b") == "Running")
    assert attached(stepped) == [("disk", "node-0", True), ("disk", "node-1", True)]
    all_is_well(stepped)


@ON_SQLITE
def test_a_volume_is_not_detached_under_a_pod_that_has_just_arrived(database: Database) -> None:
    """The agent that decided to detach did not know the pod yet."""
    stepped = bound_disk(database)
    stepped.create(placed("a", "node-0", "data"))
    agent = agent_alone(stepped)
    take_turns(stepped, agent)
    assert phase(stepped, "a") == "Running"
    stepped.cluster.delete("Pod", "default/a")
    look(agent, stepped)
    stepped.create(placed("b", "node-0", "data"))
    agent.step(stepped.now)
    assert attached(stepped) == [("disk", "node-0", True)]
    take_turns(stepped, agent)
    assert phase(stepped, "b") == "Running"
    stepped.cluster.delete("Pod", "default/b")
    take_turns(stepped, agent)
    assert attached(stepped) == []


# --- nodes that come and go -----------------------------------------------------------------------------


def on_a_disk(database: Database) -> Stepped:
    stepped = played(database, node("node-0"), csi("disk"), claim("data", "4Gi", "disks"), pod("db", "data"))
    stepped.until(lambda: phase(stepped) == "Running")
    return stepped


@ON_SQLITE
def test_the_pods_of_a_node_that_is_gone_are_left_alone(database: Database) -> None:
    stepped = on_a_disk(database)
    stepped.cluster.delete("Node", "node-0")
    stepped.settle()
    assert phase(stepped) == "Running"
    assert attached(stepped) == [("disk", "node-0", True)], "nobody knows whether it is still written to"
    (said,) = told(stepped, "NodeNotFound")
    assert 'node "node-0" does not exist' in said["message"]
    stepped.cluster.delete("Pod", "default/db")
    stepped.until(lambda: attached(stepped) == [])


@ON_SQLITE
def test_a_new_node_of_the_same_name_starts_the_pod_over(database: Database) -> None:
    stepped = on_a_disk(database)
    first = get(stepped, "Pod", "db")["status"]
    stepped.cluster.delete("Node", "node-0")
    stepped.create(node("node-0"))
    stepped.settle()
    second = get(stepped, "Pod", "db")["status"]
    uid = get(stepped, "Node", "node-0")["metadata"]["uid"]
    assert first["admittedBy"] != second["admittedBy"] == uid
    assert second["phase"] == "Running"
    assert second["containerStatuses"][0]["restartCount"] == 1
    (held,) = stepped.cluster.list("VolumeAttachment").objects
    assert held["metadata"]["annotations"][NODE_UID] == uid
    all_is_well(stepped)


@ON_SQLITE
def test_a_pod_that_ran_fails_on_a_new_node_that_may_not_have_it(database: Database) -> None:
    """It may have written to its volumes, so it is not unassigned."""
    stepped = played(database, node("node-0"), volume("disk", "5Gi", "node-0"), claim("data", "4Gi"))
    stepped.create(pod("db", "data"))
    stepped.until(lambda: phase(stepped) == "Running")
    stepped.cluster.delete("Node", "node-0")
    renamed = node("node-0")
    renamed["metadata"]["labels"] = {"kubernetes.io/hostname": "renamed"}
    stepped.create(renamed)
    stepped.settle()
    found = get(stepped, "Pod", "db")
    assert (found["spec"]["nodeName"], found["status"]["phase"]) == ("node-0", "Failed")
    assert found["status"]["reason"] == "NodeRejected"
    with pytest.raises(CallRefusedError, match="has started"):
        stepped.cluster.unassign_pod("default/db", uid=found["metadata"]["uid"], reason="once more")


@ON_SQLITE
def test_an_agent_leaves_the_nodes_of_others_alone(database: Database) -> None:
    stepped = Stepped(database, [node("node-0"), node("node-1"), placed("a", "node-0"), placed("b", "node-1")])
    take_turns(stepped, agent_alone(stepped, on="node-1"))
    assert (phase(stepped, "a"), phase(stepped, "b")) == ("Pending", "Running")


# --- crashes and company --------------------------------------------------------------------------------


def test_two_agents_on_one_node_do_nothing_twice(database: Database) -> None:
    stepped = bound_disk(database)
    agents = [agent_alone(stepped, "left"), agent_alone(stepped, "right")]
    before = stepped.system.world.position
    stepped.create(placed("a", "node-0", "data"))
    take_turns(stepped, *agents)
    assert phase(stepped, "a") == "Running"
    stepped.system.catch_up(stepped.now)
    # Created, and by one or the other: admitted with its claim marked, attached, started.
    assert stepped.system.world.position == before + 5
    all_is_well(stepped)


LASTING = {"volsched.io/run-seconds": "3"}


@ON_SQLITE
def test_a_process_for_every_step_comes_to_the_same_end(database: Database) -> None:
    stepped = Stepped(database, [CLASS_OF_DISKS, node("node-0"), csi("disk"), claim("data", "4Gi", "disks")])
    stepped.create(pod("db", "data", annotations=LASTING))
    seen, now = [], stepped.now
    for number in range(40):
        stepped = Stepped(database, owner=f"process-{number}", node_agent=True)
        stepped.now = now
        stepped.step()
        stepped.system.close()
        now += SECOND
        seen.append((phase(stepped), len(attached(stepped))))
        if seen[-1] == ("Succeeded", 0):
            break
    assert list(dict.fromkeys(seen)) == [
        ("Pending", 0), ("Pending", 1), ("Running", 1), ("Succeeded", 1), ("Succeeded", 0),
    ]  # fmt: skip
    assert data_state(stepped) == "Dirty"
    all_is_well(stepped)


@contextmanager
def crashing(point: str, times: int) -> Iterator[None]:
    def crash() -> None:
        raise fault_points.FaultError

    fault_points.arm(fault_points.Fault(point, crash, times), drill=True)
    try:
        yield
    finally:
        fault_points.arm(None, drill=False)


@ON_SQLITE
@pytest.mark.parametrize("point", ["commit.before", "commit.after"])
def test_whichever_commit_the_process_dies_at_the_pod_comes_to_its_end(database: Database, point: str) -> None:
    stepped, crashes = played(database, node("node-0")), 0
    for times in range(1, 13):
        stepped.create(csi(f"disk-{times}"), claim(f"data-{times}", "4Gi", "disks"))
        stepped.settle()
        stepped.create(pod(f"pod-{times}", f"data-{times}", annotations=LASTING))
        with crashing(point, times), suppress(fault_points.FaultError):
            crashes += 1
            stepped.settle(quiet=60)
            crashes -= 1
        stepped.system.close()
        now = stepped.now
        stepped = Stepped(database, owner=f"after-{times}", node_agent=True)
        stepped.now = now + 40 * SECOND
        stepped.until(lambda: phase(stepped, f"pod-{times}") == "Succeeded" and not attached(stepped))  # noqa: B023
        assert data_state(stepped, f"data-{times}") == "Dirty"
    assert crashes >= 8
    all_is_well(stepped)


@ON_SQLITE
def test_a_pod_that_runs_on_a_clean_claim_would_be_found(database: Database) -> None:
    stepped = on_a_disk(database)
    found = get(stepped, "PersistentVolumeClaim", "data")
    lie = {**found, "status": {**found["status"], "dataState": "Clean"}}
    stepped.cluster.update("PersistentVolumeClaim", lie, status=True)
    with database.read() as connection:
        (violation,) = violations(connection, at_rest=True)
    assert violation.invariant == 4
    stepped.settle()
    assert data_state(stepped) == "Dirty"
    assert get(stepped, "Pod", "db")["status"]["containerStatuses"][0]["restartCount"] == 0
    all_is_well(stepped)
