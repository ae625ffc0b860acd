"""Provisioners, node agents and controllers that meet on one claim, one directory or one node."""

from pathlib import Path
from typing import Any

import pytest

from tests.support.clusters import LOCAL, Manifest, Stepped, claim, node, on_node, one_disk_bound, pod
from tests.support.stateful_sets import stateful_set
from tests.support.storage import (
    CLAIM,
    OUTSIDE,
    Cluster,
    asked,
    in_zones,
    made_by,
    using,
)
from volsched.cluster.port import whole
from volsched.library import whole_system
from volsched.log.database import Database
from volsched.node_agent.agent import NodeAgent
from volsched.provisioning.external import External
from volsched.provisioning.host import Keeper
from volsched.provisioning.host_path import HOST_PATH, RECORDS, HostPath
from volsched.provisioning.protocol import CreateVolume, Surroundings
from volsched.provisioning.rules import Created, DriverRefusal
from volsched.provisioning.simulated import SIMULATED, TOO_SMALL, Array, Simulated
from volsched.pv_controller.controller import LEASE_TTL, Controller
from volsched.runtime import fault_points
from volsched.runtime.clock import SECOND
from volsched.runtime.world import World
from volsched.scheduling.rules.configuration import ConfigurationError
from volsched.workloads.garbage_collector import GarbageCollector


def once(point: str, deed: Any) -> None:
    """Do something else at that place, the first time it is reached."""

    def reached(at: str) -> None:
        if at == point:
            fault_points.arm(None, drill=False)
            deed()

    fault_points.arm(reached, drill=True)


def placed(name: str, host: str, *claims: str) -> Manifest:
    made = pod(name, *claims)
    return on_node(made, host)


def on_host(database: Database, root: Path, *objects: Manifest, **parts: Any) -> Cluster:
    return Cluster(database, [made_by(HOST_PATH), node("n1"), *objects], provisioners=[HostPath(root)], **parts)


# --- claims and who uses them ---------------------------------------------------------------------------


def test_a_claim_is_not_let_go_under_a_pod_that_has_just_got_its_node(sqlite: Database) -> None:
    """The controller decided before it knew of the pod; what it decided on must still be so when it writes."""
    stepped = one_disk_bound(sqlite)
    stepped.cluster.delete("PersistentVolumeClaim", "default/data")
    once("controller.decided", lambda: stepped.create(placed("late", "node-0", "data")))
    stepped.settle()
    assert stepped.cluster.get("PersistentVolumeClaim", "default/data") is not None
    stepped.cluster.delete("Pod", "default/late")
    stepped.settle()
    assert stepped.cluster.get("PersistentVolumeClaim", "default/data") is None


def test_a_claim_goes_as_soon_as_the_pod_that_held_it_has_lost_its_node(sqlite: Database) -> None:
    """Not at the next resync, which nobody waits for."""
    stepped = one_disk_bound(sqlite)
    stepped.create(placed("app", "node-0", "data"))
    stepped.settle()
    stepped.cluster.delete("PersistentVolumeClaim", "default/data")
    stepped.settle()
    assert stepped.cluster.get("PersistentVolumeClaim", "default/data") is not None
    found = stepped.cluster.get("Pod", "default/app") or {}
    stepped.cluster.unassign_pod("default/app", uid=found["metadata"]["uid"], reason="no room")
    stepped.settle(quiet=10)
    assert stepped.cluster.get("PersistentVolumeClaim", "default/data") is None


def test_the_volume_of_a_claim_that_was_made_anew_is_released_at_once(sqlite: Database) -> None:
    stepped = one_disk_bound(sqlite)
    held = dict(stepped.cluster.get("PersistentVolumeClaim", "default/data") or {})
    bare = {**held, "metadata": {**held["metadata"], "finalizers": []}}
    stepped.cluster.update("PersistentVolumeClaim", bare)
    stepped.cluster.delete("PersistentVolumeClaim", "default/data")
    stepped.create(claim("data", "4Gi"))
    stepped.settle(quiet=10)
    assert (stepped.cluster.get("PersistentVolume", "disk") or {})["status"]["phase"] == "Released"


def test_storage_is_not_deleted_under_a_pod_whose_claim_was_torn_away(sqlite: Database, tmp_path: Path) -> None:
    """Somebody took the claim's finalizers off by hand, but the pod still runs on the data."""
    cluster = on_host(sqlite, tmp_path / "root", asked(), using())
    cluster.until(lambda: cluster.node_of("app") is not None)
    directory = Path(cluster.volume()["spec"]["hostPath"]["path"])
    (directory / "file").write_text("data")
    cluster.delete(CLAIM, "data")
    held = cluster.claim()
    cluster.cluster.update(CLAIM, {**held, "metadata": {**held["metadata"], "finalizers": []}})
    assert cluster.claim() is None
    for _ in range(10):
        cluster.step(after=4 * SECOND)
    assert (directory / "file").read_text() == "data"
    assert any("default/app" in it for it in cluster.told("VolumeDelete"))
    cluster.delete("Pod", "app")
    for _ in range(10):
        cluster.step(after=15 * SECOND)
    assert not directory.exists()
    assert cluster.volumes() == {}


# --- the lead -------------------------------------------------------------------------------------------


def controller(database: Database, owner: str, *provisioners: Any) -> Controller:
    return Controller(database, World(database), owner, provisioners=provisioners)


def look(loop: Any, now: int) -> None:
    loop.update(loop.world.catch_up(), now)


def test_a_directory_made_by_the_leader_before_is_not_taken_for_a_leftover(
    sqlite: Database, tmp_path: Path
) -> None:
    """Whoever takes the lead has not read yet what was done just before it did."""
    root = tmp_path / "root"
    cluster = on_host(sqlite, root)
    cluster.rest()
    heir = controller(sqlite, "heir", HostPath(root))
    look(heir, cluster.now)
    cluster.create(asked(), using())
    cluster.until(lambda: cluster.node_of("app") is not None)
    cluster.system.close()
    heir.step(cluster.now)
    assert Path(cluster.volume()["spec"]["hostPath"]["path"]).is_dir()


def test_who_has_lost_the_lead_and_got_it_back_begins_anew(sqlite: Database, tmp_path: Path) -> None:
    """Another led meanwhile, and died between making a directory and saving its volume."""
    root = tmp_path / "root"
    cluster = on_host(sqlite, root)
    cluster.rest()
    leader = cluster.system.controller
    cluster.now += 2 * LEASE_TTL
    other = controller(sqlite, "other")
    look(other, cluster.now)
    other.step(cluster.now)
    (root / RECORDS / "pvc-gone").touch()
    (root / "pvc-gone").mkdir()
    other.close()
    look(leader, cluster.now)
    leader.step(cluster.now)
    assert HostPath(root).volume_names() == []


def test_a_controller_that_does_not_lead_forgets_what_is_gone(sqlite: Database) -> None:
    stepped = Stepped(sqlite, [LOCAL])
    stepped.settle()
    spare = controller(sqlite, "spare")
    look(spare, stepped.now)
    spare.step(stepped.now)
    for number in range(5):
        stepped.create(claim(f"c{number}", "1Gi"))
        look(spare, stepped.now)
        stepped.cluster.delete("PersistentVolumeClaim", f"default/c{number}")
        stepped.settle(quiet=2)
        look(spare, stepped.now)
        spare.step(stepped.now)
    assert spare._queue == {}


def test_another_store_under_the_same_root_discards_nothing_of_ours(
    sqlite: Database, tmp_path: Path, migrated_file: Path
) -> None:
    """A root that stands in the environment is shared by whatever store is worked on; it knows nothing of ours."""
    root = tmp_path / "root"
    ours, theirs = HostPath(root, sqlite.place), HostPath(root, str(migrated_file))
    cluster = Cluster(sqlite, [made_by(HOST_PATH), node("n1"), asked(), using()], provisioners=[ours])
    cluster.until(lambda: cluster.node_of("app") is not None)
    directory = Path(cluster.volume()["spec"]["hostPath"]["path"])
    assert not theirs.discard(directory.name)
    assert directory.is_dir()
    cluster.delete("Pod", "app")
    cluster.delete(CLAIM, "data")
    cluster.rest()
    assert (directory.exists(), ours.volume_names()) == (False, [])


def test_what_lies_about_under_the_root_stops_nobody(sqlite: Database, tmp_path: Path) -> None:
    """A file that some tool left among the records, and a directory that somebody replaced by a link."""
    root = tmp_path / "root"
    (root / RECORDS / ".nfs0001").parent.mkdir(parents=True)
    for name in (".nfs0001", "pvc-moved"):
        (root / RECORDS / name).touch()
    (root / "pvc-moved").symlink_to(tmp_path)
    cluster = on_host(sqlite, root, asked(), using())
    cluster.until(lambda: cluster.node_of("app") is not None)
    cluster.rest()
    assert (root / "pvc-moved").is_symlink()


# --- an external provisioner ----------------------------------------------------------------------------


class Grudging(Array):
    """It makes volumes that are too small, and does not like to delete them."""

    grudges = 2

    def delete(self, handle: str, now: int) -> DriverRefusal | None:
        if Grudging.grudges:
            Grudging.grudges -= 1
            raise RuntimeError("the array's controller has crashed")
        return super().delete(handle, now)


def test_a_driver_that_fails_to_delete_what_is_too_small_stops_nobody(sqlite: Database) -> None:
    array = Grudging(mishap=lambda _, before: TOO_SMALL if before == 0 else "")
    cluster = Cluster(sqlite, [*in_zones("a"), made_by(OUTSIDE), asked(), using()], outside=array)
    cluster.until(lambda: cluster.node_of("app") is not None, steps=600)
    assert cluster.volume()["spec"]["capacity"]["storage"] == "5Gi"


def test_a_claim_whose_class_was_away_is_taken_up_again(sqlite: Database) -> None:
    array = Array()
    cluster = Cluster(sqlite, [*in_zones("a"), made_by(OUTSIDE, mode="Immediate")])
    cluster.create(asked())
    cluster.rest()
    cluster.cluster.delete("StorageClass", "made")
    world, ids = World(sqlite), iter(range(1000))
    cluster.outside = External(sqlite, world, OUTSIDE, array, lambda: f"outside-{next(ids)}")
    cluster.wait(3)
    cluster.create(made_by(OUTSIDE, mode="Immediate"))
    cluster.until(lambda: cluster.volume_of("data") is not None)


def test_an_array_remembers_nothing_of_volumes_without_mishaps() -> None:
    array = Array()
    for number in range(3):
        name = f"pvc-{number}"
        request = CreateVolume(
            name=name, bytes=1, class_name="made", parameters={}, requirement=None, pinned=False
        )
        assert isinstance(array.create(request, 0), Created)
        array.delete(name, 0)
    assert array._calls == {}


# --- settings -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("root", ["here", "/proc/nowhere"])
def test_a_root_that_cannot_be_is_reported_by_the_name_of_its_variable(
    sqlite: Database, monkeypatch: pytest.MonkeyPatch, root: str
) -> None:
    monkeypatch.setenv("VOLSCHED_HOST_PATH_ROOT", root)
    with pytest.raises(ConfigurationError, match="VOLSCHED_HOST_PATH_ROOT: "):
        whole_system(sqlite)


# --- nodes ----------------------------------------------------------------------------------------------


def test_two_agents_do_not_admit_two_pods_where_one_has_room(sqlite: Database) -> None:
    roomy = {**node("node-0"), "status": {"allocatable": {"cpu": "1", "pods": "10"}}}
    stepped = Stepped(sqlite)
    stepped.create(roomy)
    found = dict(stepped.cluster.get("Node", "node-0") or {})
    stepped.cluster.update("Node", {**found, "status": roomy["status"]}, status=True)
    for name in ("a", "b"):
        made = placed(name, "node-0")
        made["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "700m"}}
        stepped.create(made)
    agents = []
    for mine in ("a", "b"):
        agent = NodeAgent(sqlite, World(sqlite), f"node-agent/{mine}", lambda: "id")
        look(agent, stepped.now)
        # Each has come to one of the pods when both are as they were.
        agent._queue = {f"pod/default/{mine}": None}
        agents.append(agent)
    for agent in agents:
        agent.step(stepped.now)
    for _ in range(4):
        stepped.now += SECOND
        for agent in agents:
            look(agent, stepped.now)
            agent.step(stepped.now)
    pods = [stepped.cluster.get("Pod", f"default/{name}") or {} for name in ("a", "b")]
    assert [it["spec"].get("nodeName") for it in pods] == ["node-0", None]


# --- what must not cost more, the more there is ---------------------------------------------------------


def test_what_is_still_wanted_is_known_without_reading_all_claims_anew(sqlite: Database) -> None:
    """While a provisioner hangs, every change of any claim asks whether what it makes is still wanted."""
    stepped = Stepped(sqlite, [LOCAL, *(claim(f"c{number}", "1Gi") for number in range(5))])
    stepped.settle()
    world = stepped.system.world
    keeper = Keeper(sqlite, world, "keeper", {"array": Array()}, lambda: "id")
    keeper.update(world.states)
    read = dict(world._read)
    held = stepped.cluster.get(CLAIM, "default/c0") or {}
    keeper.suspect(f"pvc-{held['metadata']['uid']}")
    keeper.update(["claim/default/c1"])
    keeper.step(stepped.now, busy=tuple)
    assert world._read == read
    assert all(world._read[stream] is found for stream, found in read.items())


def test_an_array_gets_what_has_changed_not_everything(sqlite: Database) -> None:
    told: list[tuple[int, list[str]]] = []

    class Listening(Array):
        def observe(self, surroundings: Surroundings) -> None:
            super().observe(surroundings)
            told.append((len(surroundings.volumes), sorted(surroundings.changed)))

    array = Listening()
    objects = [*in_zones("a"), made_by(SIMULATED, mode="Immediate", capacityPerDomain="10Gi"), asked("a")]
    cluster = Cluster(sqlite, objects, provisioners=[Simulated(array)])
    cluster.rest()
    cluster.create(asked("b", "2Gi"))
    told.clear()
    cluster.rest()
    volumes = {cluster.volume_of(name) for name in "ab"}
    assert volumes == set(array.volume_names())
    assert {it for _, changed in told for it in changed} == {cluster.volume_of("b")}
    assert [it["capacity"] for it in array.capacities()] == ["3Gi"]
    cluster.delete(CLAIM, "a")
    cluster.rest()
    assert [it["capacity"] for it in array.capacities()] == ["8Gi"]


def test_what_a_set_owns_is_looked_at_when_the_set_is_another_not_whenever_it_changes(sqlite: Database) -> None:
    stepped = Stepped(sqlite, [node("n1"), stateful_set(replicas=3, templates=0)])
    stepped.settle()
    world = stepped.system.world
    collector = GarbageCollector(sqlite, world, "collector")
    collector.update(world.states, stepped.now)
    collector.step(stepped.now)
    collector.update(["statefulset/default/db"], stepped.now)
    assert collector.next_due() is None
    stepped.cluster.delete("StatefulSet", "default/db")
    stepped.create(stateful_set(replicas=0, templates=0))
    collector.update(world.catch_up(), stepped.now)
    # Three pods, and the revision that they were made from.
    assert collector.step(stepped.now) == 4
    assert whole(stepped.cluster.list("Pod")).objects == ()
