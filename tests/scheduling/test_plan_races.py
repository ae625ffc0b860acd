"""What happens to a pod and its claims between a decision and its commit, and to pods that wait."""

from dataclasses import replace
from typing import Any

import pytest

from tests.support.clusters import LOCAL, Manifest, Stepped, claim, node, pod, volume
from tests.support.interruptions import change, once_decided
from tests.support.two_schedulers import follow
from volsched.binding.rules.reservations import NothingFitsError
from volsched.cluster.port import whole
from volsched.log.commands import ConflictError
from volsched.log.database import Database
from volsched.log.transaction import execute
from volsched.runtime.clock import SECOND
from volsched.scheduling.plugins.registry import Enabled
from volsched.scheduling.pod_reservations import binding_alone, choose_now
from volsched.scheduling.rules.configuration import Configuration
from volsched.scheduling.rules.profile import VOLSCHED
from volsched.scheduling.rules.status import SKIP

ZONE = "topology.kubernetes.io/zone"


pytestmark = pytest.mark.usefixtures("disarmed")


def labelled(made: Manifest, app: str, **spec: Any) -> Manifest:
    made["metadata"]["labels"] = {"app": app}
    return {**made, "spec": {**made["spec"], **spec}}


def near(app: str, key: str = ZONE, *, how: str = "podAffinity") -> dict[str, Any]:
    term = {"labelSelector": {"matchLabels": {"app": app}}, "topologyKey": key}
    return {how: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


# --- who is scheduled at all ----------------------------------------------------------------------------


@pytest.mark.parametrize("phase", ["Failed", "Succeeded"])
def test_a_pod_that_has_ended_before_it_got_a_node_gets_none(sqlite: Database, phase: str) -> None:
    stepped = Stepped(sqlite, [LOCAL, node("node-0"), volume("disk", "5Gi", "node-0"), claim("data", "4Gi")])
    stepped.create(pod("job", "data"))
    change(stepped, "Pod", "default/job", lambda it: it.update(status={"phase": phase}), status=True)
    stepped.settle()
    assert stepped.bindings() == []
    assert stepped.volume_of("data") is None


class _Broken:
    name = "Broken"

    def prefilter(self, _: Any, pod: Any) -> Any:
        if pod.name == "bad":
            raise ZeroDivisionError("division by zero")
        return SKIP, None


def test_a_plugin_that_fails_on_one_pod_keeps_nobody_else_waiting(sqlite: Database) -> None:
    profile = replace(VOLSCHED, name="mine", before_volumes=(Enabled(_Broken()), *VOLSCHED.before_volumes))
    stepped = Stepped(sqlite, [node("node-0")], configuration=Configuration(profile))
    stepped.create(pod("bad"), pod("good"))
    stepped.settle()
    assert stepped.node_of("good") == "node-0"
    assert "division by zero" in stepped.system.scheduler.waiting()["default/bad"]
    (said,) = (stepped.cluster.get("Pod", "default/bad") or {})["status"]["conditions"]
    assert said["reason"] == "SchedulerError"


# --- lost wake-ups --------------------------------------------------------------------------------------


def test_a_node_that_leaves_the_rack_of_those_who_repel_the_pod_wakes_it(sqlite: Database) -> None:
    """The pod has terms of its own, but it is the other's that keeps it away, by another key."""
    stepped = Stepped(sqlite, [node("node-0", rack="r1", **{ZONE: "a"}), node("node-1", rack="r1")])
    lonely = near("web", "rack", how="podAntiAffinity")
    stepped.create(labelled(pod("lonely"), "lonely", nodeName="node-1", affinity=lonely))
    stepped.create(labelled(pod("web"), "web", affinity=near("web")))
    stepped.settle()
    assert stepped.node_of("web") is None
    change(stepped, "Node", "node-0", lambda it: it["metadata"]["labels"].update(rack="r2"))
    stepped.settle(quiet=150)
    assert stepped.node_of("web") == "node-0"


# --- between decision and commit ------------------------------------------------------------------------


def seeing_only(stepped: Stepped, *pods: str) -> None:
    """The scheduler's queue holds these pods alone."""
    changed = stepped.system.world.catch_up()
    stepped.system.picture.update(changed)
    mine = {f"pod/default/{name}" for name in pods}
    stepped.system.scheduler.update([it for it in changed if it in mine], stepped.now)


def test_two_schedulers_do_not_give_a_claim_for_one_pod_to_two(sqlite: Database) -> None:
    disk = volume("disk", "5Gi", "node-0")
    disk["spec"] |= {"accessModes": ["ReadWriteOncePod"], "nfs": {"server": "nas", "path": "/data"}}
    del disk["spec"]["nodeAffinity"], disk["spec"]["local"]
    data = claim("data", "4Gi")
    data["spec"] |= {"accessModes": ["ReadWriteOncePod"], "volumeName": "disk"}
    first = Stepped(sqlite, [LOCAL, node("node-0"), node("node-1"), disk, data], owner="one")
    first.settle()
    assert (first.cluster.get("PersistentVolumeClaim", "default/data") or {})["status"]["phase"] == "Bound"
    for name, host in (("a", "node-0"), ("b", "node-1")):
        made = pod(name, "data")
        made["spec"]["nodeSelector"] = {"kubernetes.io/hostname": host}
        first.create(made)
    second = Stepped(sqlite, owner="two")
    second.now = first.now
    seeing_only(first, "a")
    seeing_only(second, "b")
    once_decided(lambda: second.system.scheduler.step(second.now))
    first.system.scheduler.step(first.now)
    assert [row.pod for row in first.bindings()] == ["default/b"]


def bind_cluster(database: Database) -> Stepped:
    disks = [volume(f"disk-{i}", "5Gi", f"node-{i}") for i in range(2)]
    stepped = Stepped(database, [LOCAL, node("node-0"), node("node-1"), *disks, claim("data", "4Gi")])
    stepped.settle()
    return stepped


def owners(stepped: Stepped) -> list[str]:
    return [
        it["metadata"]["name"]
        for it in whole(stepped.cluster.list("PersistentVolume")).objects
        if "claimRef" in it["spec"]
    ]


def test_a_claim_that_was_planned_meanwhile_is_not_bound_by_hand_too(sqlite: Database) -> None:
    stepped = bind_cluster(sqlite)
    picture, choice = choose_now(sqlite, "default/data", "node-1", now=stepped.now)
    stepped.create(pod("db", "data"))
    follow(stepped)
    (binding,) = stepped.bindings()
    assert binding.node == "node-0"
    (outcome,) = execute(
        sqlite,
        [binding_alone(picture, choice, actor="cli/bind/ada", reason="now", now=stepped.now)],
        now=stepped.now,
    )
    assert isinstance(outcome, ConflictError)
    stepped.settle()
    assert owners(stepped) == ["disk-0"]


def test_a_claim_that_was_bound_by_hand_meanwhile_is_not_planned_too(sqlite: Database) -> None:
    stepped = bind_cluster(sqlite)

    def by_hand() -> None:
        picture, choice = choose_now(sqlite, "default/data", "node-1", now=stepped.now)
        command = binding_alone(picture, choice, actor="cli/bind/ada", reason="now", now=stepped.now)
        (outcome,) = execute(sqlite, [command], now=stepped.now)
        assert not isinstance(outcome, Exception)

    stepped.create(pod("db", "data"))
    once_decided(by_hand)
    follow(stepped)
    assert stepped.bindings() == []
    stepped.settle()
    assert (stepped.node_of("db"), owners(stepped)) == ("node-1", ["disk-1"])


def test_a_pod_is_not_planned_near_one_whose_plan_came_too_late(sqlite: Database) -> None:
    """Both are decided in one batch: the second counts on the first being there."""
    zones = [node("node-0", **{ZONE: "a"}), node("node-1", **{ZONE: "b"})]
    stepped = Stepped(sqlite, [LOCAL, *zones, volume("disk", "5Gi", "node-0"), claim("data", "4Gi")])
    stepped.settle()
    stepped.create(labelled(pod("a-first", "data"), "db"), labelled(pod("b-second"), "web", affinity=near("db")))
    stepped.now += SECOND
    once_decided(lambda: stepped.cluster.delete("PersistentVolume", "disk"))
    follow(stepped)
    assert [row.pod for row in stepped.bindings()] == []


def test_pods_that_are_only_created_meanwhile_do_not_void_a_plan(sqlite: Database) -> None:
    """Or pods that mind who is near them would never be planned where many are created."""
    stepped = Stepped(sqlite, [node("node-0", **{ZONE: "a"})])
    stepped.settle()
    stepped.create(labelled(pod("db"), "db", affinity=near("db")))
    once_decided(lambda: stepped.create(pod("other")))
    follow(stepped)
    assert [row.pod for row in stepped.bindings()] == ["default/db"]


def test_a_claim_is_not_bound_by_hand_where_its_driver_is_not_installed(sqlite: Database) -> None:
    driver = {"apiVersion": "storage.k8s.io/v1", "kind": "CSIDriver", "metadata": {"name": "csi.example.com"}}
    driver["spec"] = {"preventPodSchedulingIfMissing": True}
    made = {**LOCAL, "metadata": {"name": "made"}, "provisioner": "csi.example.com"}
    stepped = Stepped(sqlite, [driver, made, node("node-0"), claim("data", "4Gi", "made")])
    with pytest.raises(NothingFitsError, match=r"csi\.example\.com CSI driver is not installed on the node"):
        choose_now(sqlite, "default/data", "node-0", now=stepped.now)
