"""What a pod and its claims say while the pod is on its way, and once it is there."""

from typing import Any

import pytest

from tests.support.clusters import LOCAL, Stepped, claim, node, pod
from volsched.log.database import Database
from volsched.log.integrity.verify import verify
from volsched.runtime.clock import SECOND

pytestmark = pytest.mark.parametrize("url", ["sqlite"], indirect=True)

OUTSIDE = {**LOCAL, "metadata": {"name": "outside"}, "provisioner": "ex.com/p"}


def asked(database: Database) -> Stepped:
    """A pod for whose claim somebody else is to make a volume."""
    stepped = Stepped(database, [OUTSIDE, node("n"), claim("data", "1Gi", "outside"), pod("db", "data")])
    stepped.until(lambda: status(stepped).get("nominatedNodeName") == "n")
    stepped.settle()
    return stepped


def status(stepped: Stepped) -> dict[str, Any]:
    found: dict[str, Any] = (stepped.cluster.get("Pod", "default/db") or {})["status"]
    return found


def made_for(stepped: Stepped) -> dict[str, Any]:
    wanted = stepped.cluster.get("PersistentVolumeClaim", "default/data") or {}
    reference = {"namespace": "default", "name": "data", "uid": wanted["metadata"]["uid"]}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": "made"},
        "spec": {
            "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "storageClassName": "outside",
            "claimRef": reference, "csi": {"driver": "ex.com", "volumeHandle": "made"},
        },
    }  # fmt: skip


def test_a_pod_is_nominated_until_its_volumes_are_bound_and_then_says_that_it_is_scheduled(
    database: Database,
) -> None:
    stepped = asked(database)
    assert status(stepped).get("conditions", []) == [], "it has been neither refused nor placed"
    assert stepped.messages("Scheduled") == []
    stepped.create(made_for(stepped))
    stepped.until(lambda: stepped.node_of("db") == "n")
    assert "nominatedNodeName" not in status(stepped)
    (condition,) = status(stepped)["conditions"]
    assert (condition["type"], condition["status"]) == ("PodScheduled", "True")
    assert stepped.messages("Scheduled") == ["Successfully assigned default/db to n"]
    assert verify(database).ok


def test_a_nomination_is_taken_back_when_the_binding_is(database: Database) -> None:
    stepped = asked(database)
    stepped.cluster.delete("Node", "n")
    stepped.until(lambda: "nominatedNodeName" not in status(stepped))
    stepped.settle()
    assert stepped.node_of("db") is None
    assert "nominatedNodeName" not in status(stepped)
    assert stepped.messages("Scheduled") == []


def test_a_claim_hears_of_the_pod_that_waits_for_it_though_nothing_else_happens(database: Database) -> None:
    stepped = Stepped(database, [LOCAL, node("n"), claim("data", "1Gi")])
    stepped.settle()
    assert stepped.messages("WaitForFirstConsumer") == ["waiting for first consumer to be created before binding"]
    stepped.create(pod("db", "data"))
    end = stepped.now + 20 * SECOND
    while stepped.now < end:
        # Woken by nothing, as an idle process is.
        if not stepped.step():
            stepped.now = stepped.system.rests_until(stepped.now)
    assert stepped.messages("WaitForPodScheduled") == ["waiting for pod db to be scheduled"]
