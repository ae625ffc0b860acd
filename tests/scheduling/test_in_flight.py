"""Limits and room hold while bindings are in flight, not only once they are bound."""

from typing import Any

import pytest

from tests.support.clusters import LOCAL, Manifest, Stepped, claim, node, pod, volume
from volsched.log.database import Database
from volsched.runtime.clock import SECOND

DRIVER = "disks.example.com"
MADE: Manifest = {**LOCAL, "metadata": {"name": "made"}, "provisioner": DRIVER}


def csi_node(name: str, limit: int) -> Manifest:
    spec = {"drivers": [{"name": DRIVER, "nodeID": name, "topologyKeys": [], "allocatable": {"count": limit}}]}
    return {"apiVersion": "storage.k8s.io/v1", "kind": "CSINode", "metadata": {"name": name}, "spec": spec}


def disk(name: str) -> Manifest:
    """A volume of the driver that every node reaches."""
    made = volume(name, "5Gi", "node-0")
    del made["spec"]["local"], made["spec"]["nodeAffinity"]
    made["spec"]["csi"] = {"driver": DRIVER, "volumeHandle": name}
    return made


def capacity(size: str) -> list[Manifest]:
    driver = {"metadata": {"name": DRIVER}, "spec": {"storageCapacity": True}}
    room: dict[str, Any] = {
        "metadata": {"name": "room", "namespace": "csi"},
        "storageClassName": "made",
        "nodeTopology": {},
        "capacity": size,
    }
    api = {"apiVersion": "storage.k8s.io/v1"}
    return [{**api, "kind": "CSIDriver", **driver}, {**api, "kind": "CSIStorageCapacity", **room}]


@pytest.mark.parametrize("batch", [1, 128])
def test_a_node_never_gets_more_volumes_than_it_can_attach(database: Database, batch: int) -> None:
    names = [f"p{number}" for number in range(3)]
    objects = [LOCAL, node("node-0"), csi_node("node-0", 1)]
    objects += [it for name in names for it in (disk(f"disk-{name}"), claim(name, "4Gi"), pod(name, name))]
    stepped = Stepped(database, objects)
    stepped.system.scheduler.batch = batch
    for _ in range(60):
        stepped.step(after=SECOND // 10)
        assert len([name for name in names if stepped.node_of(name)]) <= 1
    assert [name for name in names if stepped.node_of(name)] == ["p0"]
    assert stepped.volume_of("p1") is stepped.volume_of("p2") is None


def test_a_second_pod_of_a_claim_takes_no_second_slot(database: Database) -> None:
    objects = [LOCAL, node("node-0"), csi_node("node-0", 1), disk("disk-0"), claim("data", "4Gi")]
    stepped = Stepped(database, [*objects, pod("first", "data")])
    stepped.step()
    stepped.plan_and_write()
    stepped.create(pod("second", "data"))
    stepped.plan_and_write()
    assert len(stepped.bindings()) == 2, "it joins while the first is in flight"
    stepped.until(lambda: stepped.node_of("first") == stepped.node_of("second") == "node-0")


@pytest.mark.parametrize("limit", [1, 5])
def test_a_second_pod_of_a_claim_asks_for_no_second_room(database: Database, limit: int) -> None:
    """The provisioner is slow, and its room and the node's slots are enough for one volume."""
    objects = [MADE, node("node-0"), csi_node("node-0", limit), *capacity("6Gi"), claim("data", "4Gi", "made")]
    stepped = Stepped(database, [*objects, pod("first", "data")])
    stepped.step()
    stepped.create(pod("second", "data"), claim("more", "4Gi", "made"), pod("third", "more"))
    stepped.settle()
    assert [row.pod for row in stepped.bindings()] == ["default/first", "default/second"]
    assert all(row.open for row in stepped.bindings())
    assert stepped.node_of("third") is None, "what is promised is not there for others"
