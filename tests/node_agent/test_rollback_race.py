"""A pod arrives while its claims are asked back: whichever is first, no data is lost and no pod runs without."""

from tests.node_agent.played_nodes import (
    ON_SQLITE,
    agent_alone,
    data_state,
    get,
    look,
    mark,
    phase,
    placed,
    played,
    take_turns,
)
from tests.support.clusters import all_is_well, claim, node, one_disk_bound, pod, volume
from volsched.kube.meta import ROLLBACK
from volsched.log.database import Database
from volsched.runtime import fault_points
from volsched.runtime.clock import SECOND


def test_when_the_dirty_mark_is_first_the_claim_keeps_its_volume(database: Database) -> None:
    stepped = one_disk_bound(database)
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
    stepped = one_disk_bound(database)
    stepped.create(placed("db", "node-0", "data"))
    agent = agent_alone(stepped)
    mark(stepped)
    agent.step(stepped.now)
    assert data_state(stepped) == "Clean"
    assert stepped.node_of("db") == "node-0"
    look(agent, stepped)
    agent.step(stepped.now)
    assert stepped.node_of("db") is None
    assert "undergoing rollback" in stepped.notices("NodeRejected")[0]["message"]
    # The way is free: the rollback goes through, and in five minutes the node may have the pod.
    stepped.until(lambda: len(stepped.notices("RollbackCompleted")) == 1)
    stepped.step(after=301 * SECOND)
    stepped.until(lambda: stepped.node_of("db") == "node-0")
    all_is_well(stepped)


def test_a_pod_that_arrives_in_the_instant_of_the_rollback_is_turned_away(database: Database) -> None:
    """The controller has decided without the pod, and the agent looks before that is written."""
    stepped = one_disk_bound(database)
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
    assert len(stepped.notices("RollbackCompleted")) == len(stepped.notices("NodeRejected")) == 1
    stepped.settle()
    all_is_well(stepped)


@ON_SQLITE
def test_a_pod_whose_claim_was_taken_back_meanwhile_waits_and_says_so(database: Database) -> None:
    stepped = one_disk_bound(database)
    mark(stepped)
    agent = agent_alone(stepped)
    stepped.settle()
    assert stepped.volume_of("data") is None
    stepped.create(placed("db", "node-0", "data"))
    look(agent, stepped)
    agent.step(stepped.now)
    assert phase(stepped) == "Pending"
    (said,) = stepped.notices("FailedMount")
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
    assert stepped.notices("RollbackRequested") == []
    mark(stepped)
    stepped.settle()
    assert stepped.volume_of("data") == "disk-0"
    assert ROLLBACK not in get(stepped, "PersistentVolumeClaim", "data")["metadata"]["annotations"]
    assert len(stepped.notices("RollbackRejected")) == 1
    all_is_well(stepped)
