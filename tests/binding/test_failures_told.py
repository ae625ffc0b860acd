"""A binding that fails after the decision: the pod is told, and the attempt keeps the leg and who said what."""

from typing import Any

import pytest

from tests.support.clusters import LOCAL, Stepped, claim, node, pod, volume
from tests.support.refused_storage import REFUSED, ZONE, simulated
from volsched.log.commands import Command, Done
from volsched.log.database import Database
from volsched.log.events.envelope import NewEvent
from volsched.log.events.fold import AttemptState, Decision
from volsched.log.integrity.verify import verify
from volsched.log.reads.as_of import AsOf, view_at_head
from volsched.log.reads.tail import read_head
from volsched.log.transaction import execute
from volsched.provisioning.simulated import Simulated
from volsched.scheduling.rules.attempts import FAILED, PLANNED

PREBIND = 'running PreBind plugin "VolumeBinding": '
MODIFIED = "the object has been modified; please apply your changes to the latest version and try again"
FAILING = f"{PREBIND}binding volumes: "


def refusing(database: Database) -> Stepped:
    objects = [simulated(failure="refused"), node("n1", **{ZONE: "a"}), node("n2", **{ZONE: "b"})]
    stepped = Stepped(database, objects, provisioners=[Simulated()])
    stepped.create(claim("data", "1Gi", "sim"), pod("db", "data"))
    return stepped


def attempts(stepped: Stepped, pod_: str = "db") -> list[AttemptState]:
    with stepped.database.read() as connection:
        look = view_at_head(connection)
        return [state for _, state in look.attempts_of(f"default/{pod_}")]


def condition(stepped: Stepped, name: str = "db") -> dict[str, Any]:
    found = stepped.cluster.get("Pod", f"default/{name}") or {}
    conditions = found.get("status", {}).get("conditions", [])
    return next((dict(it) for it in conditions if it["type"] == "PodScheduled"), {})


def failed_scheduling(stepped: Stepped, name: str = "db") -> list[tuple[str, int]]:
    with stepped.database.read() as connection:
        told = view_at_head(connection).notices_about(f"Pod/default/{name}")
    return [(str(it["message"]), int(str(it["count"]))) for it in told if it["reason"] == "FailedScheduling"]


def test_a_provisioner_that_refuses_is_reported_and_stored(database: Database) -> None:
    stepped = refusing(database)
    stepped.until(lambda: sum(it.made["outcome"] == FAILED for it in attempts(stepped)) >= 2)
    message = f'{FAILING}provisioning failed for PVC "data"'
    assert condition(stepped) | {"lastTransitionTime": ""} == {
        "type": "PodScheduled", "status": "False", "reason": "SchedulerError", "message": message,
        "lastTransitionTime": "",
    }  # fmt: skip
    ((told, times),) = failed_scheduling(stepped)
    assert (told, times >= 2) == (message, True)
    for attempt in attempts(stepped)[:2]:
        failure = attempt.made["detail"]["failure"]
        assert failure["claim"] == "default/data"
        assert failure["words"] == REFUSED
        assert failure["at"] >= attempt.first_at
    assert verify(database).ok


def test_once_it_is_placed_the_condition_is_true_and_the_failures_are_history(database: Database) -> None:
    stepped = refusing(database)
    stepped.until(lambda: bool(failed_scheduling(stepped)))
    found = stepped.cluster.get("StorageClass", "sim") or {}
    stepped.cluster.delete("StorageClass", "sim")
    stepped.create({**simulated(), "metadata": {"name": found["metadata"]["name"]}})
    stepped.until(lambda: stepped.node_of("db") is not None, steps=600)
    assert condition(stepped)["status"] == "True"
    assert [it.made["outcome"] for it in attempts(stepped)][-1] == PLANNED
    assert attempts(stepped)[0].made["outcome"] == FAILED


def test_time_that_is_up_is_reported_with_the_leg_that_was_missing(database: Database) -> None:
    stepped = Stepped(database, [simulated(failure="hang"), node("n1", **{ZONE: "a"})], provisioners=[Simulated()])
    stepped.create(claim("data", "1Gi", "sim"))
    stepped.create(pod("db", "data", annotations={"volsched.io/bind-timeout-seconds": "5"}))
    stepped.until(lambda: condition(stepped) != {})
    assert condition(stepped)["message"] == f"{FAILING}context deadline exceeded"
    assert attempts(stepped)[0].made["detail"]["failure"]["claim"] == "default/data"


def test_a_volume_that_somebody_takes_is_reported_as_a_conflict(database: Database) -> None:
    stepped = Stepped(database, [LOCAL, node("n1"), volume("disk", "5Gi", "n1")])
    stepped.settle()
    stepped.create(claim("data", "4Gi"), pod("db", "data"))
    stepped.system.catch_up(stepped.now)
    stepped.system.scheduler.step(stepped.now)
    taken = dict(stepped.cluster.get("PersistentVolume", "disk") or {})
    stepped.cluster.update("PersistentVolume", {**taken, "metadata": {**taken["metadata"], "labels": {"a": "b"}}})
    stepped.until(lambda: condition(stepped) != {})
    told = f'{PREBIND}Operation cannot be fulfilled on persistentvolumes "disk": {MODIFIED}'
    assert failed_scheduling(stepped) == [(told, 1)]
    failure = attempts(stepped)[0].made["detail"]["failure"]
    assert (failure["claim"], failure["volume"]) == ("default/data", "disk")
    stepped.until(lambda: stepped.node_of("db") == "n1", steps=600)


def test_a_moment_before_the_failure_the_attempt_was_planned(database: Database) -> None:
    stepped = refusing(database)
    stepped.until(lambda: bool(failed_scheduling(stepped)))
    with database.read() as connection:
        head = read_head(connection).position
        states = [
            state
            for position in range(1, head + 1)
            if isinstance(
                state := AsOf(connection, position).one("attempt", stepped.bindings()[0].id), AttemptState
            )
        ]
    outcomes = [it.made["outcome"] for it in states]
    assert (outcomes[0], outcomes[-1]) == (PLANNED, FAILED)


@pytest.mark.parametrize("conditions", ["none of your business", [3]])
def test_a_pod_whose_status_cannot_be_added_to_keeps_nobody_from_recording(
    database: Database, conditions: object
) -> None:
    stepped = Stepped(
        database, [simulated(failure="refused"), node("n1", **{ZONE: "a"})], provisioners=[Simulated()]
    )
    stepped.create(pod("db", "data"))
    odd = NewEvent(
        stream="pod/default/db", type="PodChanged", data={"patch": {"status": {"conditions": conditions}}}
    )
    written = Command(actor="before", streams=(odd.stream,), decide=lambda _: Decision(events=(odd,)))
    (outcome,) = execute(database, [written], now=stepped.now)
    assert isinstance(outcome, Done)
    stepped.create(claim("data", "1Gi", "sim"))
    stepped.until(lambda: any(it.made["outcome"] == FAILED for it in attempts(stepped)))
    assert verify(database).ok
