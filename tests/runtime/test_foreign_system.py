"""The composition root on a foreign cluster: the same scheduler and executor, given another cluster and roles."""

from random import Random

import pytest

from tests.support.attached_cluster import ours
from tests.support.clusters import LOCAL, START, claim, node, pod, volume
from volsched.cluster.foreign_api import ForeignApi
from volsched.cluster.port import KUBERNETES, Manifest
from volsched.cluster.simulated import SimulatedCluster
from volsched.lab.simulation.actors import ForeignController
from volsched.log.database import Database
from volsched.runtime.clock import SECOND, rfc3339
from volsched.runtime.system import ProcessRole, System, embedded

STEPS = 100


class Foreign:
    def __init__(self, database: Database, *objects: Manifest) -> None:
        self.now = START
        self.api = ForeignApi(now_text=lambda: rfc3339(self.now), capabilities=KUBERNETES)
        for manifest in objects:
            self.api.create(manifest["kind"], manifest)
        self.controller = ForeignController(self.api)
        self.system: System = embedded(
            database,
            owner="test",
            clock=lambda: self.now,
            new_id=iter(f"id-{number:04}" for number in range(1_000)).__next__,
            cluster=SimulatedCluster(self.api, Random(1)),
            roles={ProcessRole.SCHEDULER},
        )

    def node_of(self, name: str) -> str | None:
        found = self.api.get("Pod", f"default/{name}")
        return None if found is None else found["spec"].get("nodeName")

    def run(self, name: str) -> None:
        for _ in range(STEPS):
            if self.node_of(name):
                return
            self.now += SECOND // 10
            self.system.step(self.now)
            self.controller.step()
        raise AssertionError(f"{name} got no node within {STEPS} steps")


def test_a_pod_of_a_foreign_cluster_is_bound_there(sqlite: Database) -> None:
    foreign = Foreign(
        sqlite,
        LOCAL,
        node("n1"),
        node("n2"),
        volume("disk", "10Gi", "n2"),
        claim("data", "5Gi"),
        ours("db", "data"),
    )
    foreign.run("db")
    assert foreign.node_of("db") == "n2"
    bound = foreign.api.get("PersistentVolumeClaim", "default/data")
    assert bound is not None
    assert bound["spec"]["volumeName"] == "disk"


def test_pods_of_another_scheduler_are_left_to_it(sqlite: Database) -> None:
    theirs = pod("theirs", "data")
    theirs["spec"]["schedulerName"] = "default-scheduler"
    foreign = Foreign(sqlite, LOCAL, node("n1"), claim("data", "5Gi"), volume("disk", "10Gi", "n1"), theirs)
    foreign.api.create("Pod", ours("mine"))
    foreign.run("mine")
    assert foreign.node_of("theirs") is None
    assert "claimRef" not in (foreign.api.get("PersistentVolume", "disk") or {})["spec"]


def test_a_pod_without_a_node_has_the_condition_that_autoscalers_act_on(sqlite: Database) -> None:
    foreign = Foreign(sqlite, LOCAL, node("n1"), claim("data", "5Gi"), ours("db", "data"))
    for _ in range(5):
        foreign.system.step(foreign.now)
    conditions = (foreign.api.get("Pod", "default/db") or {})["status"]["conditions"]
    (condition,) = [it for it in conditions if it["type"] == "PodScheduled"]
    assert (condition["status"], condition["reason"]) == ("False", "Unschedulable")
    assert "didn't find available persistent volumes" in condition["message"]
    (event,) = foreign.api.events
    assert (event["reason"], event["type"], event["regarding"]["name"]) == ("FailedScheduling", "Warning", "db")


def test_a_foreign_cluster_has_controllers_of_its_own(sqlite: Database) -> None:
    api = ForeignApi(now_text=lambda: rfc3339(START))
    with pytest.raises(ValueError, match=r"leave Role\.CONTROLLER out"):
        embedded(
            sqlite,
            owner="test",
            clock=lambda: START,
            new_id=lambda: "id",
            cluster=SimulatedCluster(api, Random(1)),
        )
