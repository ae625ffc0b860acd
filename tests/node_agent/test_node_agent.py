"""Pods on nodes that an agent plays: they run, end, are turned away, and what they use is known to be used."""

import pytest

from tests.node_agent.played_nodes import (
    ON_SQLITE,
    agent_alone,
    attached,
    csi,
    data_state,
    get,
    look,
    phase,
    placed,
    played,
    relabel,
)
from tests.support.clusters import LOCAL, Stepped, all_is_well, claim, node, pod, volume
from volsched.log.database import Database
from volsched.log.events.fold import living
from volsched.log.reads.tail import read_stream
from volsched.log.transaction import execute
from volsched.node_agent.agent import NodeAgent
from volsched.objects import door
from volsched.runtime.clock import SECOND

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
        [door.delete_unchanged("Pod", seen, door.controller("test", stepped.now), grace=None).command],
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
def test_a_bad_annotation_is_reported_and_the_pod_runs_on(database: Database) -> None:
    stepped = played(database, node("node-0"), pod("db", annotations={"volsched.io/run-seconds": "5m"}))
    stepped.settle()
    assert phase(stepped) == "Running"
    (said,) = stepped.notices("BadAnnotation")
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
    assert len(stepped.notices("NodeRejected")) == 1
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
