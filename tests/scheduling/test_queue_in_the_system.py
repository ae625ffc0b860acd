"""The scheduler and its queue on a real store: who is tried when, and what a pod that waits is told."""

from dataclasses import replace
from typing import Any

import pytest
from pydantic_core import from_json

from tests.support.attempt_reads import attempts, change, condition
from tests.support.clusters import LOCAL, Stepped, claim, node, one_disk, pod, volume
from volsched.cluster.port import whole
from volsched.kube.manifest import Manifest
from volsched.log.database import Database
from volsched.log.integrity.verify import verify
from volsched.log.reads.tail import read_stream
from volsched.runtime.clock import SECOND
from volsched.scheduling.scheduler import Scheduler

NO_VOLUME = "0/1 nodes are available: 1 node(s) didn't find available persistent volumes to bind."


# What is shown here is decided in memory; tests of transactions tell the engines apart.
pytestmark = pytest.mark.parametrize("url", ["sqlite"], indirect=True)


def waiting_pod(database: Database) -> Stepped:
    """A pod that found no volume, and a system at rest."""
    stepped = Stepped(database, [LOCAL, node("node-0"), claim("data", "4Gi"), pod("db", "data")])
    stepped.settle()
    assert stepped.system.scheduler.waiting() == {"default/db": NO_VOLUME}
    return stepped


def test_a_pod_that_found_no_node_says_so_with_the_exact_words(database: Database) -> None:
    stepped = waiting_pod(database)
    said = condition(stepped)
    assert said is not None
    assert (said["status"], said["reason"], said["message"]) == ("False", "Unschedulable", NO_VOLUME)
    (event,) = stepped.notices("FailedScheduling")
    assert (event["type"], event["message"]) == ("Warning", NO_VOLUME)
    assert event["involvedObject"]["name"] == "db"
    (attempt,) = attempts(stepped)
    assert attempt.outcome == "unschedulable"
    assert attempt.decider.startswith("scheduler/test (volsched ")
    detail = from_json(attempt.detail)
    assert detail["message"] == NO_VOLUME
    assert verify(database).ok


def test_a_pod_that_got_its_node_later_says_that_it_is_scheduled(database: Database) -> None:
    stepped = waiting_pod(database)
    stepped.create(volume("disk", "5Gi", "node-0"))
    stepped.until(lambda: stepped.node_of("db") == "node-0")
    assert is_scheduled(condition(stepped))
    assert stepped.system.scheduler.waiting() == {}


def is_scheduled(said: dict[str, Any] | None) -> bool:
    return (
        said is not None and said.keys() == {"type", "status", "lastTransitionTime"} and said["status"] == "True"
    )


def test_a_pod_that_is_placed_at_once_is_written_once(database: Database) -> None:
    stepped = Stepped(database, [LOCAL, node("node-0"), pod("web")])
    stepped.settle()
    assert stepped.node_of("web") == "node-0"
    assert is_scheduled(condition(stepped, "web"))
    with database.read() as connection:
        written = [it.type for it in read_stream(connection, "pod/default/web")]
    assert written == ["PodCreated", "PodAssumed", "PodChanged"]
    (event,) = whole(stepped.cluster.list("Event")).objects
    assert (event["type"], event["reason"]) == ("Normal", "Scheduled")
    assert event["message"] == "Successfully assigned default/web to node-0"
    assert [attempt.outcome for attempt in attempts(stepped, "web")] == ["planned"]


def test_the_same_answer_again_is_only_counted(database: Database) -> None:
    stepped = waiting_pod(database)
    written = (stepped.cluster.get("Pod", "default/db") or {})["metadata"]["resourceVersion"]
    for number in range(3):
        stepped.create(volume(f"small-{number}", "1Gi", "node-0"))
        stepped.settle(quiet=120)
    (attempt,) = attempts(stepped)
    assert attempt._mapping["count"] > 3
    assert (stepped.cluster.get("Pod", "default/db") or {})["metadata"]["resourceVersion"] == written
    assert len(stepped.notices("FailedScheduling")) == 1


def test_another_answer_is_another_attempt_and_changes_the_condition(database: Database) -> None:
    stepped = waiting_pod(database)
    before = condition(stepped)
    stepped.create(node("node-1"))
    stepped.settle()
    after = condition(stepped)
    assert before is not None
    assert after is not None
    assert after["message"] == NO_VOLUME.replace("0/1", "0/2").replace(": 1 ", ": 2 ")
    assert after["lastTransitionTime"] == before["lastTransitionTime"]
    assert len(attempts(stepped)) == 2


def test_a_heartbeat_wakes_nobody(database: Database) -> None:
    stepped = waiting_pod(database)
    for beat in range(5):
        conditions = [{"type": "Ready", "status": "True", "lastHeartbeatTime": f"2027-01-01T00:00:0{beat}Z"}]
        change(stepped, "Node", "node-0", to_status=True, status={"conditions": conditions})
        stepped.step(after=20 * SECOND)
    assert [attempt._mapping["count"] for attempt in attempts(stepped)] == [1]


def test_what_could_help_wakes_a_pod_within_its_back_off(database: Database) -> None:
    stepped = waiting_pod(database)
    stepped.now += 60 * SECOND
    stepped.create(volume("disk", "5Gi", "node-0"))
    # Available first, then taken: two seconds at most after the second refusal.
    stepped.until(lambda: stepped.node_of("db") == "node-0", steps=40)


def test_an_object_made_anew_between_two_looks_counts_as_a_new_one(database: Database) -> None:
    immediate = {**LOCAL, "volumeBindingMode": "Immediate"}
    objects = [immediate, node("node-0"), claim("data", "4Gi"), pod("db", "data")]
    stepped = Stepped(database, objects)
    stepped.settle()
    assert "unbound immediate PersistentVolumeClaims" in stepped.system.scheduler.waiting()["default/db"]
    stepped.now += 60 * SECOND
    stepped.cluster.delete("StorageClass", "local")
    stepped.create(LOCAL)
    stepped.settle()
    assert stepped.system.scheduler.waiting()["default/db"] == NO_VOLUME


def test_after_five_minutes_a_pod_is_tried_again_anyway(database: Database) -> None:
    stepped = waiting_pod(database)
    stepped.step(after=290 * SECOND)
    assert [attempt._mapping["count"] for attempt in attempts(stepped)] == [1]
    stepped.step(after=60 * SECOND)
    assert [attempt._mapping["count"] for attempt in attempts(stepped)] == [2]


def priority_class(name: str, value: int) -> Manifest:
    kind = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass"}
    return {**kind, "metadata": {"name": name}, "value": value}


def test_pods_of_higher_priority_are_served_first(database: Database) -> None:
    stepped = Stepped(database, [LOCAL, node("node-0"), volume("disk", "5Gi", "node-0")])
    stepped.settle()
    for name, priority in (("low", 1), ("high", 1000), ("middle", 10)):
        wanted = pod(name, f"data-{name}")
        wanted["spec"]["priorityClassName"] = name
        stepped.create(priority_class(name, priority), claim(f"data-{name}", "4Gi"), wanted)
    stepped.settle()
    assert [stepped.node_of(name) for name in ("high", "middle", "low")] == ["node-0", None, None]


def test_a_gated_pod_is_not_queued_before_its_last_gate_is_gone(database: Database) -> None:
    gated = pod("db", "data")
    gated["spec"]["schedulingGates"] = [{"name": "example.com/one"}]
    stepped = Stepped(
        database, [LOCAL, node("node-0"), volume("disk", "5Gi", "node-0"), claim("data", "4Gi"), gated]
    )
    stepped.settle()
    assert stepped.node_of("db") is None
    assert attempts(stepped) == []
    held = dict(stepped.cluster.get("Pod", "default/db") or {})
    change(stepped, "Pod", "default/db", spec={k: v for k, v in held["spec"].items() if k != "schedulingGates"})
    stepped.settle()
    assert stepped.node_of("db") == "node-0"


@pytest.mark.parametrize(("name", "placed"), [("default-scheduler", True), ("volsched", True), ("another", False)])
def test_pods_of_other_schedulers_are_left_alone(database: Database, name: str, placed: bool) -> None:
    theirs = pod("web")
    theirs["spec"]["schedulerName"] = name
    stepped = Stepped(database, [node("node-0"), theirs])
    stepped.settle()
    assert (stepped.node_of("web") == "node-0") is placed
    assert bool(attempts(stepped, "web")) is placed


def test_claims_of_a_pod_whose_node_was_set_directly_stay_pending(database: Database) -> None:
    direct = pod("db", "data")
    direct["spec"]["nodeName"] = "node-0"
    objects = [LOCAL, node("node-0"), volume("disk", "5Gi", "node-0"), claim("data", "4Gi"), direct]
    stepped = Stepped(database, objects)
    stepped.settle()
    assert stepped.volume_of("data") is None
    assert attempts(stepped) == []


def test_pods_that_share_a_claim_go_where_it_is(database: Database) -> None:
    objects = [LOCAL, node("node-0"), node("node-1"), volume("disk", "5Gi", "node-1"), claim("data", "4Gi")]
    stepped = Stepped(database, [*objects, *(pod(f"db-{i}", "data") for i in range(3))])
    stepped.settle()
    assert [stepped.node_of(f"db-{i}") for i in range(3)] == ["node-1"] * 3
    assert verify(database).ok


def test_a_pod_like_a_daemon_sets_goes_to_the_node_it_names(database: Database) -> None:
    stepped = Stepped(database, [LOCAL, *(node(f"node-{i}") for i in range(4))])
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["node-2"]}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    daemon = pod("agent")
    daemon["spec"]["affinity"] = {"nodeAffinity": required}
    stepped.create(daemon)
    stepped.settle()
    assert stepped.node_of("agent") == "node-2"


def test_a_scheduler_that_starts_decides_once_for_every_pod_that_waits(database: Database) -> None:
    stepped = waiting_pod(database)
    again = Stepped(database, owner="again")
    again.now = stepped.now
    again.settle()
    assert [attempt._mapping["count"] for attempt in attempts(again)] == [1, 1]
    assert len(again.notices("FailedScheduling")) == 1


def test_an_error_is_reported_as_one_and_does_not_keep_the_runner_waiting(database: Database) -> None:
    """Its class has no mode, which validation would not let in; a foreign cluster's may."""
    stepped = Stepped(database, [LOCAL, node("node-0"), claim("data", "4Gi"), pod("db", "data")])
    scheduler = stepped.system.scheduler
    stepped.system.catch_up(stepped.now)
    index = scheduler.picture.index
    index.put(_without_mode(scheduler))
    scheduler.step(stepped.now)
    said = condition(stepped)
    assert said is not None
    assert (said["reason"], said["message"]) == (
        "SchedulerError",
        'VolumeBindingMode not set for StorageClass "local"',
    )
    assert scheduler.next_due() == stepped.now + SECOND
    scheduler.step(stepped.now + SECOND)
    assert scheduler.next_due() is None
    assert [(attempt.outcome, attempt._mapping["count"]) for attempt in attempts(stepped)] == [("error", 2)]


def _without_mode(scheduler: Scheduler) -> Any:
    return replace(scheduler.picture.index.snapshot.classes["local"], volume_binding_mode=None)


def test_while_nobody_waits_nothing_is_noted(database: Database) -> None:
    stepped = one_disk(database)
    stepped.create(pod("db", "data"))
    stepped.settle()
    assert stepped.node_of("db") == "node-0"
    assert stepped.system.picture.changes is None
