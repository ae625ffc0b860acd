"""Volumes that an agent mounts and attaches: once it can, where they are, and never to two nodes."""

from tests.node_agent.played_nodes import (
    CLASS_OF_DISKS,
    ON_SQLITE,
    agent_alone,
    attached,
    bound_disk,
    csi,
    data_state,
    get,
    look,
    phase,
    placed,
    played,
    take_turns,
)
from tests.support.clusters import Stepped, all_is_well, claim, node, one_disk_bound, pod, volume
from volsched.log.database import Database


@ON_SQLITE
def test_a_pod_that_could_not_mount_starts_once_it_can(database: Database) -> None:
    stepped = played(database, node("node-0"), placed("db", "node-0", "data"))
    stepped.settle()
    assert phase(stepped) == "Pending"
    assert [it["count"] for it in stepped.notices("FailedMount")] == [1], (
        "said once, however often it is looked at"
    )
    reserved = volume("disk", "5Gi", "node-0")
    reserved["spec"]["claimRef"] = {"namespace": "default", "name": "data"}
    stepped.create(reserved, claim("data", "4Gi"))
    stepped.until(lambda: phase(stepped) == "Running")
    assert data_state(stepped) == "Dirty"
    all_is_well(stepped)


@ON_SQLITE
def test_a_volume_that_is_put_right_is_mounted(database: Database) -> None:
    stepped = one_disk_bound(database)
    disk = get(stepped, "PersistentVolume", "disk")
    astray = {**disk["spec"], "claimRef": {**disk["spec"]["claimRef"], "uid": "of-another-claim"}}
    wrong = stepped.cluster.update("PersistentVolume", {**disk, "spec": astray})
    stepped.create(placed("db", "node-0", "data"))
    agent = agent_alone(stepped)
    take_turns(stepped, agent)
    assert (phase(stepped), data_state(stepped)) == ("Pending", "Clean")
    assert "its spec.claimRef.uid is not the claim's" in stepped.notices("FailedMount")[0]["message"]
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
    assert "Multi-Attach error" in stepped.notices("FailedAttachVolume")[0]["message"]
    stepped.cluster.delete("Pod", "default/twin")
    stepped.until(lambda: phase(stepped, "late") == "Running")
    assert attached(stepped) == [("disk", other, True)]
    all_is_well(stepped)


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
