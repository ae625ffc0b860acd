"""Gate mode over HTTP: the claims of gated pods are bound, and then exactly our gate is removed."""

from collections.abc import Iterator

import pytest

from tests.support.attached_cluster import Attached, attached, gated, two_nodes
from tests.support.clusters import claim, pod
from tests.support.serving import served, strict_cluster
from volsched.cluster.permissions import GATE_MODE
from volsched.kube.meta import GATE, GAVE_UP
from volsched.log.database import Database


@pytest.fixture
def gate(sqlite: Database) -> Iterator[Attached]:
    with strict_cluster() as running, attached(running, sqlite, mode=GATE_MODE) as it:
        it.create(*two_nodes())
        yield it


def gates(own: Attached, name: str) -> list[str]:
    return [it["name"] for it in own.pod(name)["spec"].get("schedulingGates") or ()]


def gated_pods(own: Attached) -> int:
    """As the alert has it: how many, and whether the oldest of them has an age."""
    with served(own.database, follows=True, binds=False) as api:
        lines = [
            it.split() for it in api.http.get("/metrics").text.splitlines() if "_gated" in it and it[0] != "#"
        ]
    values = {name: float(value) for name, value in lines}
    assert (values["volsched_pod_gated_oldest_seconds"] > 0) is (values["volsched_pods_gated"] > 0)
    return int(values["volsched_pods_gated"])


def test_claims_are_bound_and_exactly_our_gate_is_removed(gate: Attached) -> None:
    gate.running.create(gated("db", "data", "logs", others=("example.com/quota",)), pod("theirs"))
    gate.until(lambda: gate.given_to("small-1") and gate.given_to("large-1"))
    assert gates(gate, "db") == ["example.com/quota", GATE]
    assert gate.controller.bind() == 2
    gate.until(lambda: gates(gate, "db") == ["example.com/quota"] and gate.has_settled())
    found = gate.pod("db")
    assert found["spec"].get("nodeName") is None
    assert found.get("status", {}).get("nominatedNodeName") is None
    assert not [it for it in gate.sent if it.startswith(("bind Pod", "patch Pod"))]
    assert GAVE_UP not in gate.marks(found)


def test_a_pod_for_which_no_node_is_found_is_let_go_untouched_after_a_while(gate: Attached) -> None:
    gate.running.create(claim("huge", "50Gi"), gated("db", "huge"))
    gate.until(lambda: any(it.startswith("create Event FailedScheduling") for it in gate.sent))
    assert gates(gate, "db") == [GATE]
    assert gated_pods(gate) == 1
    gate.wait(31)
    gate.until(lambda: gates(gate, "db") == [] and gate.has_settled())
    found = gate.pod("db")
    assert "no node was found" in gate.marks(found)[GAVE_UP]
    assert "volumeName" not in gate.claim("huge")["spec"]
    assert "create Event GateRemoved" in gate.sent
    gate.until(lambda: gated_pods(gate) == 0)


@pytest.mark.parametrize("fault", ["lost-answer", "late-write"])
def test_a_gate_whose_removal_is_not_answered_is_removed_once(gate: Attached, fault: str) -> None:
    gate.running.create(gated("db", "data"))
    gate.until(lambda: gate.given_to("small-1"))
    gate.controller.bind()
    gate.fault(fault, "pods", seconds=0.1)

    gate.until(lambda: gates(gate, "db") == [] and gate.has_settled(), seconds=1)
    assert gate.legs() == [("data", "bound", "")]


def test_a_pod_that_is_deleted_behind_the_gate_gives_its_volume_back(gate: Attached) -> None:
    gate.running.create(gated("db", "data"))
    gate.until(lambda: gate.given_to("small-1"))
    gate.running.http.delete("/api/v1/namespaces/default/pods/db?gracePeriodSeconds=0")

    gate.until(gate.has_settled, seconds=1)
    assert gate.given_to("small-1") is None
