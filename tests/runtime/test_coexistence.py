"""Own mode beside other schedulers, over HTTP: what they hold, or are about to take, is not given away."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.attached_cluster import Attached, attached, ours
from tests.support.clusters import LOCAL, claim, node, on_node, pod, volume
from tests.support.serving import strict_cluster
from volsched.log.database import Database

Manifest = dict[str, Any]
CSI = "disk.example.com"
MERGE = {"content-type": "application/merge-patch+json"}


@pytest.fixture
def own(sqlite: Database) -> Iterator[Attached]:
    with strict_cluster() as running, attached(running, sqlite) as it:
        it.create(LOCAL, node("n1"), node("n2"))
        report_room(it, "n1", "n2")
        yield it


def report_room(own: Attached, *names: str) -> None:
    """As kubelets do: a server takes no status with a new node."""
    room = {"status": {"allocatable": {"cpu": "2", "memory": "4Gi", "pods": "10"}}}
    for name in names:
        answer = own.running.http.patch(f"/api/v1/nodes/{name}/status", json=room, headers=MERGE)
        assert answer.status_code == 200, answer.text


def big(made: Manifest) -> Manifest:
    containers = [{"name": "main", "image": "app", "resources": {"requests": {"cpu": "1500m"}}}]
    return {**made, "spec": {**made["spec"], "containers": containers}}


def patch_status(own: Attached, name: str, status: Manifest) -> None:
    path = f"/api/v1/namespaces/default/pods/{name}/status"
    answer = own.running.http.patch(path, json={"status": status}, headers=MERGE)
    assert answer.status_code == 200, answer.text


def attachable(name: str, *, class_name: str = "network") -> Manifest:
    """A volume that every node may attach."""
    made = volume(name, "2Gi", "n1", class_name)
    spec = {key: it for key, it in made["spec"].items() if key not in ("local", "nodeAffinity")}
    return {**made, "spec": {**spec, "csi": {"driver": CSI, "volumeHandle": name}}}


def test_a_pod_that_kube_scheduler_is_about_to_place_keeps_its_room(own: Attached) -> None:
    own.create(claim("data", "1Gi"), volume("disk-1", "1Gi", "n1"))
    own.running.create(big(pod("theirs")))
    patch_status(own, "theirs", {"nominatedNodeName": "n1"})
    own.running.create(big(ours("db", "data")))
    own.until(lambda: own.pod("db").get("status", {}).get("conditions"))
    assert "Insufficient cpu" in own.pod("db")["status"]["conditions"][0]["message"]
    assert own.given_to("disk-1") is None
    # kube-scheduler decides otherwise: the room is free, and the waiting pod is woken.
    patch_status(own, "theirs", {"nominatedNodeName": "n2"})

    own.until(lambda: own.node_of("db") == "n1", seconds=1, binds=True)
    # Its own pods are left to it.
    assert own.node_of("theirs") is None
    assert not [it for it in own.sent if "theirs" in it]


def test_pods_that_others_have_placed_take_their_room(own: Attached) -> None:
    own.create(claim("data", "1Gi"), *(volume(f"disk-{it}", "1Gi", f"n{it}") for it in (1, 2)))
    own.running.create(on_node(big(pod("theirs")), "n1"), big(ours("db", "data")))
    own.until(lambda: own.given_to("disk-2") == "data")


def test_attachments_and_claims_of_everybody_count_against_what_a_node_attaches(own: Attached) -> None:
    """n1 attaches two disks: one is attached for a pod that is gone, one belongs to a pod of another scheduler."""
    network = {**LOCAL, "metadata": {"name": "network"}}
    limits = [
        {
            "apiVersion": "storage.k8s.io/v1",
            "kind": "CSINode",
            "metadata": {"name": name},
            "spec": {"drivers": [{"name": CSI, "nodeID": name, "allocatable": {"count": count}}]},
        }
        for name, count in (("n1", 2), ("n2", 0))
    ]
    attachment = {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "VolumeAttachment",
        "metadata": {"name": "left-over"},
        "spec": {"attacher": CSI, "nodeName": "n1", "source": {"persistentVolumeName": "old"}},
    }
    own.create(network, *limits, attachable("old"), *map(attachable, ("a", "b", "c")))
    held = claim("theirs", "1Gi", "network")
    own.create({**held, "spec": {**held["spec"], "volumeName": "a"}})
    own.create(claim("data", "1Gi", "network"), claim("more", "1Gi", "network"))
    own.running.create(attachment, on_node(pod("web", "theirs"), "n1"), ours("db", "data"))

    def is_refused(name: str) -> bool:
        told = own.pod(name).get("status", {}).get("conditions") or [{}]
        return "2 node(s) exceed max volume count" in told[0].get("message", "")

    own.until(lambda: is_refused("db"))
    own.running.http.delete("/apis/storage.k8s.io/v1/volumeattachments/left-over")
    own.until(lambda: own.node_of("db") == "n1", seconds=1, binds=True)
    own.running.create(ours("next", "more"))
    own.until(lambda: is_refused("next"))
    own.running.http.delete("/api/v1/namespaces/default/pods/web?gracePeriodSeconds=0")
    own.until(lambda: own.node_of("next") == "n1", seconds=1, binds=True)
