"""Nodes that come and go, agents that share one, and processes that end at any commit."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest

from tests.node_agent.played_nodes import (
    CLASS_OF_DISKS,
    ON_SQLITE,
    agent_alone,
    attached,
    bound_disk,
    csi,
    data_state,
    get,
    phase,
    placed,
    played,
    take_turns,
)
from tests.support.clusters import Stepped, all_is_well, claim, node, pod, volume
from volsched.cluster.port import CallRefusedError, whole
from volsched.log.database import Database
from volsched.node_agent.rules.admission import NODE_UID
from volsched.questions.invariants import violations
from volsched.runtime import fault_points
from volsched.runtime.clock import SECOND

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
    (said,) = stepped.notices("NodeNotFound")
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
    (held,) = whole(stepped.cluster.list("VolumeAttachment")).objects
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
