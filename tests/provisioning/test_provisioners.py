"""The built-in provisioners at work: directories that are really made, mishaps, reclaiming, and crashes."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.clusters import node, volume
from tests.support.storage import CLAIM, VOLUME, Cluster, Kit, Scripted, asked, in_zones, made_by, using
from volsched.cluster.port import CallRefusedError
from volsched.kube.meta import PV_CONTROLLER_FINALIZER, SELECTED_NODE
from volsched.log.database import Database
from volsched.log.integrity.verify import verify
from volsched.provisioning.host_path import HOST_PATH, RECORDS, HostPath
from volsched.provisioning.simulated import SIMULATED, Simulated
from volsched.provisioning.storage_array import Array
from volsched.pv_controller.rules import PluginError, Provision
from volsched.runtime import fault_points
from volsched.runtime.clock import SECOND
from volsched.runtime.settings import Settings

on_sqlite = pytest.mark.parametrize("url", ["sqlite"], indirect=True)
SCRIPTED = Scripted.plugin.name


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "root"


@pytest.fixture(autouse=True)
def _disarm() -> Iterator[None]:
    yield
    fault_points.arm(None, drill=False)


def directories(root: Path) -> set[str]:
    """What there is under the root, which must be what there are records of."""
    found = {it.name for it in root.iterdir()} - {RECORDS}
    assert found == {it.name for it in (root / RECORDS).iterdir()}
    return found


def on_host(database: Database, root: Path, *objects: dict[str, Any], **parts: Any) -> Cluster:
    given = [made_by(HOST_PATH), node("n1"), *objects] if objects else []
    return Cluster(database, given, provisioners=[HostPath(root)], **parts)


def bound(cluster: Cluster, name: str = "app") -> Cluster:
    cluster.until(lambda: cluster.node_of(name) is not None, steps=300)
    return cluster


def give_up(cluster: Cluster, name: str = "data") -> Cluster:
    """Pod and claim are deleted."""
    cluster.delete("Pod", "app")
    cluster.delete(CLAIM, name)
    cluster.rest()
    return cluster


def with_policy(cluster: Cluster, policy: str) -> None:
    held = cluster.volume()
    cluster.cluster.update(VOLUME, {**held, "spec": {**held["spec"], "persistentVolumeReclaimPolicy": policy}})


# --- host-path ------------------------------------------------------------------------------------------


def test_a_directory_is_made_on_the_node_of_the_pod_and_goes_with_its_claim(
    database: Database, root: Path
) -> None:
    cluster = bound(on_host(database, root, asked(), using()))
    made = cluster.volume()
    name = made["metadata"]["name"]
    assert directories(root) == {name}
    assert made["spec"]["hostPath"] == {"path": str(root / name), "type": "Directory"}
    assert cluster.zones() == ["n1"]
    assert PV_CONTROLLER_FINALIZER in made["metadata"]["finalizers"]
    (root / name / "data.txt").write_text("kept until the claim is deleted")
    give_up(cluster)
    assert (directories(root), cluster.volumes()) == (set(), {})
    assert verify(database).ok


@on_sqlite
def test_retain_keeps_the_directory_and_its_volume(database: Database, root: Path) -> None:
    cluster = bound(on_host(database, root, asked(), using()))
    with_policy(cluster, "Retain")
    cluster.rest()
    assert PV_CONTROLLER_FINALIZER not in cluster.volume()["metadata"]["finalizers"]
    (root / cluster.volume()["metadata"]["name"] / "data.txt").write_text("precious")
    give_up(cluster)
    ((name, left),) = cluster.volumes().items()
    assert left["status"]["phase"] == "Released"
    assert (root / name / "data.txt").read_text() == "precious"
    # The administrator lets go of the object; the data is not ours to delete, now or after a restart.
    cluster.cluster.delete(VOLUME, name)
    cluster.rest()
    again = on_host(database, root, owner="second")
    again.now = cluster.now + 20 * SECOND
    again.rest()
    assert (again.volumes(), directories(root)) == ({}, {name})


@on_sqlite
def test_recycle_empties_the_directory_and_offers_the_volume_again(database: Database, root: Path) -> None:
    cluster = bound(on_host(database, root, asked(), using()))
    with_policy(cluster, "Recycle")
    path = Path(cluster.volume()["spec"]["hostPath"]["path"])
    (path / "deep").mkdir()
    (path / "deep" / "data.txt").write_text("old")
    (path / "link").symlink_to(root)
    give_up(cluster)
    (left,) = cluster.volumes().values()
    assert (left["status"]["phase"], "claimRef" in left["spec"]) == ("Available", False)
    assert (list(path.iterdir()), (root / RECORDS).is_dir()) == ([], True)
    assert "VolumeRecycled" in cluster.told()


@on_sqlite
def test_a_directory_of_a_pod_that_is_still_there_is_not_touched(database: Database, root: Path) -> None:
    cluster = bound(on_host(database, root, asked(), using()))
    cluster.delete(CLAIM, "data")
    cluster.cluster.delete(VOLUME, cluster.volume_of("data") or "")
    cluster.wait(20)
    assert (len(directories(root)), cluster.volume()["status"]["phase"]) == (1, "Bound")


def asking(volume: str = "pvc-1", *, host: str | None = "n1", **claim: Any) -> Provision:
    labels = {} if host is None else {"kubernetes.io/hostname": host}
    at = {"metadata": {"name": "n1", "labels": labels}}
    return Provision(HOST_PATH, volume, asked(**claim), made_by(HOST_PATH), at)


def on_path(path: object, name: str = "pvc-1") -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": {"hostPath": {"path": str(path)}}}


@pytest.mark.parametrize(
    ("request_", "why"),
    [
        (asking("../out"), "cannot be the name"),
        (asking(".made"), "cannot be the name"),
        (asking(volumeAttributesClassName="gold"), "remove volumeAttributesClassName from the claim"),
        (asking(host=None), "lacks the label kubernetes.io/hostname"),
        (asking(volumeMode="Block"), "file systems only"),
        (asking(selector={}), "claim Selector is not supported"),
        (asking("taken"), "was not made by"),
        (asking("used"), "holds files already"),
        (asking("link"), "was not made by"),
    ],
)
def test_what_cannot_be_made_safely_is_refused(root: Path, request_: Provision, why: str) -> None:
    provisioner = HostPath(root)
    (root / "taken").mkdir()
    provisioner.provision(asking("used"), 0)
    (root / "used" / "data.txt").touch()
    (root / "link").symlink_to("/tmp")
    before = sorted(it.name for it in root.iterdir())
    with pytest.raises(PluginError, match=why):
        provisioner.provision(request_, 0)
    assert sorted(it.name for it in root.iterdir()) == before


def test_without_a_node_there_is_no_directory(root: Path) -> None:
    request = asking()
    with pytest.raises(PluginError, match="WaitForFirstConsumer"):
        HostPath(root).provision(
            Provision(*[request.plugin, "pvc-1", request.claim, request.storage_class, None]), 0
        )


@pytest.mark.parametrize(
    ("name", "path", "why"),
    [
        ("pvc-1", "/etc", "nothing outside is touched"),
        ("pvc-1", "{root}/../root/pvc-1", "nothing outside is touched"),
        ("pvc-1", "{root}/other", "nothing outside is touched"),
        ("..", "{root}/..", "cannot be the name"),
        ("taken", "{root}/taken", "was not made by"),
        ("swapped", "{root}/swapped", "is not the directory that was made there"),
        ("file", "{root}/file", "is not the directory that was made there"),
    ],
)
@pytest.mark.parametrize("act", ["delete", "recycle"])
def test_what_is_not_certainly_ours_is_not_touched(root: Path, name: str, path: str, why: str, act: str) -> None:
    provisioner = HostPath(root)
    precious = root / "precious"
    for it in (precious, root / "taken", root / "other"):
        it.mkdir(exist_ok=True)
        (it / "data.txt").touch()
    for made in ("pvc-1", "swapped", "file"):
        provisioner.provision(asking(made), 0)
    (root / "swapped").rmdir()
    (root / "swapped").symlink_to(precious)
    (root / "file").rmdir()
    (root / "file").touch()
    before = sorted(str(it) for it in root.rglob("*"))
    with pytest.raises(PluginError, match=why):
        getattr(provisioner, act)(on_path(path.format(root=provisioner.root), name), 0)
    assert sorted(str(it) for it in root.rglob("*")) == before


def test_deleting_follows_no_link_out_of_the_directory(root: Path, tmp_path: Path) -> None:
    provisioner, outside = HostPath(root), tmp_path / "outside"
    outside.mkdir()
    (outside / "data.txt").touch()
    provisioner.provision(asking(), 0)
    (root / "pvc-1" / "link").symlink_to(outside)
    provisioner.delete(on_path(provisioner.root / "pvc-1"), 0)
    assert (outside / "data.txt").exists()
    assert directories(root) == set()
    provisioner.delete(on_path(provisioner.root / "pvc-1"), 0)


def test_leftovers_are_discarded_only_where_nothing_was_ever_written(root: Path) -> None:
    provisioner = HostPath(root)
    for name in ("empty", "used"):
        provisioner.provision(asking(name), 0)
    (root / "used" / "data.txt").touch()
    assert [provisioner.discard(name) for name in ("empty", "used")] == [True, False]
    assert directories(root) == {"used"}


def test_a_root_must_be_absolute(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="absolute"):
        HostPath(Path("here"))
    monkeypatch.setenv("VOLSCHED_HOST_PATH_ROOT", "here")
    with pytest.raises(ValueError, match="absolute"):
        Settings()


def test_a_root_that_cannot_be_written_is_told(root: Path) -> None:
    provisioner = HostPath(root)
    # Not by its mode, which does not keep root out.
    (root / RECORDS).rmdir()
    (root / RECORDS).touch()
    with pytest.raises(PluginError, match="check its permissions"):
        provisioner.provision(asking(), 0)


# --- crashes --------------------------------------------------------------------------------------------


class Crash:
    """Break the process at the n-th time that a place is reached."""

    def __init__(self, point: str, times: int) -> None:
        self.point, self.left, self.happened = point, times, False

    def __call__(self, point: str) -> None:
        self.left -= point == self.point
        if self.left == 0 and not self.happened:
            self.happened = True
            raise fault_points.FaultError

    def break_(self, cluster: Cluster, *, steps: int) -> None:
        fault_points.arm(self, drill=True)
        try:
            for _ in range(steps):
                cluster.step(after=SECOND // 10)
        except fault_points.FaultError:
            pass
        finally:
            fault_points.arm(None, drill=False)


COMMITS = 12
"""More than it takes to bind a provisioned claim, and to delete it again."""


@on_sqlite
@pytest.mark.parametrize("point", ["commit.before", "commit.after"])
@pytest.mark.parametrize("times", range(1, COMMITS))
def test_a_crash_while_a_claim_is_provisioned_leaks_nothing(
    database: Database, root: Path, point: str, times: int
) -> None:
    """The claim is deleted before anybody starts again, or it is not and gets its volume."""
    cluster = on_host(database, root, asked(), using())
    Crash(point, times).break_(cluster, steps=8)
    again = on_host(database, root, owner="second")
    again.now = cluster.now + 20 * SECOND
    if times % 2:
        bound(again)
        assert directories(root) == set(again.volumes()) == {again.volume_of("data")}
    give_up(again)
    assert directories(root) == set(again.volumes()) == set()


@on_sqlite
@pytest.mark.parametrize("point", ["commit.before", "commit.after"])
@pytest.mark.parametrize("times", range(1, COMMITS, 2))
def test_a_crash_while_a_volume_is_deleted_leaks_nothing(
    database: Database, root: Path, point: str, times: int
) -> None:
    cluster = bound(on_host(database, root, asked(), using()))
    cluster.delete("Pod", "app")
    cluster.delete(CLAIM, "data")
    Crash(point, times).break_(cluster, steps=8)
    again = on_host(database, root, owner="second")
    again.now = cluster.now + 20 * SECOND
    again.rest()
    assert directories(root) == set(again.volumes()) == set()


# --- mishaps --------------------------------------------------------------------------------------------


def scripted(database: Database, *answers: Any, **fields: Any) -> tuple[Cluster, Scripted]:
    provisioner = Scripted(*answers)
    objects = [made_by(SCRIPTED, **fields), node("n1"), asked(), using()]
    return Cluster(database, objects, provisioners=[provisioner]), provisioner


GOOD = {"spec": {"capacity": {"storage": "5Gi"}, "accessModes": ["ReadWriteOnce"], "hostPath": {"path": "/x"}}}


@on_sqlite
def test_a_refusal_gives_the_node_back_and_backs_off(database: Database) -> None:
    cluster, provisioner = scripted(database, PluginError("not today"), PluginError("not today"), GOOD)
    cluster.until(lambda: "ProvisioningFailed" in cluster.told())
    assert SELECTED_NODE not in cluster.notes()
    assert cluster.told("ProvisioningFailed") == ['Failed to provision volume with StorageClass "made": not today']
    bound(cluster)
    assert len(provisioner.calls) == 3


@on_sqlite
@pytest.mark.parametrize("answer", [KeyError("oops"), RuntimeError("down")])
def test_an_unexpected_error_keeps_the_node_since_something_may_have_been_made(
    database: Database, answer: Exception
) -> None:
    cluster, _ = scripted(database, answer)
    cluster.wait(10)
    assert SELECTED_NODE in cluster.notes()
    assert type(answer).__name__ in cluster.told("ProvisioningFailed")[0]
    assert [row.open for row in cluster.bindings()] == [True]


@on_sqlite
@pytest.mark.parametrize(
    "answer", [{}, {"spec": None}, "a volume", 7, {"spec": {"capacity": {"storage": "much"}}}]
)
def test_an_answer_that_is_no_volume_is_told(database: Database, answer: object) -> None:
    cluster, _ = scripted(database, answer)
    cluster.wait(3)
    assert "what is not a volume" in cluster.told("ProvisioningFailed")[0]
    assert cluster.volumes() == {}


@on_sqlite
def test_a_volume_that_cannot_be_saved_is_deleted_again(database: Database) -> None:
    cluster, provisioner = scripted(database, {"spec": {**GOOD["spec"], "csi": {"driver": "not/one"}}})
    cluster.wait(60)
    assert provisioner.calls[:2] == [provisioner.calls[0], f"delete {provisioner.calls[0]}"]
    assert {"ProvisioningFailed", "ProvisioningCleanedUp"} <= set(cluster.told())


@on_sqlite
def test_nothing_is_made_while_nothing_is_answered(database: Database) -> None:
    cluster, provisioner = scripted(database, None)
    for _ in range(30):
        cluster.step(after=10 * SECOND)
    assert "no answer within 60 s" in cluster.told("ProvisioningFailed")[0]
    assert len(set(provisioner.calls)) == 1
    assert SELECTED_NODE in cluster.notes()
    provisioner.answers = [GOOD]
    bound(cluster)


@on_sqlite
def test_mount_options_that_nobody_honours_are_refused_before_anything_is_made(database: Database) -> None:
    cluster, provisioner = scripted(database, GOOD, mountOptions=["ro"])
    cluster.wait(3)
    assert "has mount options [ro]" in cluster.told("ProvisioningFailed")[0]
    assert provisioner.calls == []


@on_sqlite
@pytest.mark.parametrize(
    ("provisioner", "why"),
    [("kubernetes.io/unknown", "no volume plugin matched name: kubernetes.io/unknown")],
)
def test_an_unknown_in_tree_name_is_told(database: Database, provisioner: str, why: str) -> None:
    cluster = Cluster(database, [made_by(provisioner, mode="Immediate"), asked()], provisioners=[Simulated()])
    cluster.rest()
    assert cluster.told("ProvisioningFailed") == [why]


@on_sqlite
def test_a_class_without_a_provisioner_is_refused(database: Database) -> None:
    with pytest.raises(CallRefusedError, match="provisioner"):
        Cluster(database, [made_by("")])


def test_a_process_of_its_own_provisions_through_the_store(database: Database) -> None:
    kit = Kit(Array(), external=True)
    cluster = bound(kit.cluster(database, kit.made(capacityPerDomain="10Gi"), asked(), using()))
    assert list(cluster.volumes()) == list(kit.array.made())
    give_up(cluster)
    assert (cluster.volumes(), list(kit.array.made())) == ({}, [])
    assert verify(database).ok


@on_sqlite
def test_a_class_that_provisions_nothing_leaves_the_pod_waiting(database: Database) -> None:
    cluster = Cluster(
        database,
        [made_by("kubernetes.io/no-provisioner"), node("n1"), asked(), using()],
        provisioners=[Simulated()],
    )
    cluster.rest()
    assert (cluster.node_of("app"), cluster.volumes()) == (None, {})
    assert "WaitForPodScheduled" in cluster.told()


@on_sqlite
def test_a_volume_that_was_not_made_by_us_is_not_deleted(database: Database, root: Path) -> None:
    """An administrator's hostPath volume with policy Delete: our plugin serves the source, and refuses."""
    theirs = volume("theirs", "5Gi", "n1", "made")
    del theirs["spec"]["local"]
    theirs["spec"] |= {"hostPath": {"path": str(root)}, "persistentVolumeReclaimPolicy": "Delete"}
    cluster = on_host(database, root, theirs)
    cluster.rest()
    cluster.create(asked(), using())
    assert bound(cluster).volume_of("data") == "theirs"
    give_up(cluster)
    assert cluster.volumes()["theirs"]["status"]["phase"] == "Failed"
    assert "nothing outside is touched" in cluster.told("VolumeFailedDelete")[0]
    assert root.is_dir()


# --- capacity -------------------------------------------------------------------------------------------


class Late(Array):
    """While it is late, it publishes what it did last."""

    late = False
    last: Any = ()

    def capacities(self) -> Any:
        self.last = self.last if self.late else super().capacities()
        return self.last


def capacities(cluster: Cluster) -> list[str]:
    return [it["capacity"] for it in cluster.cluster.list("CSIStorageCapacity").objects]


@pytest.mark.parametrize("restart", [False, True])
def test_room_is_never_promised_twice_between_a_volume_and_its_publication(
    database: Database, restart: bool
) -> None:
    """The second pod must not be promised what the first one's volume took."""
    array = Late()
    parts = {"provisioners": [Simulated(array)]}
    cluster = Cluster(database, [made_by(SIMULATED, capacityPerDomain="10Gi"), *in_zones("a")], **parts)
    cluster.until(lambda: capacities(cluster) == ["10Gi"])
    array.late = True
    cluster.create(asked("one", "6Gi"), using("first", "one"))
    bound(cluster, "first")
    assert (capacities(cluster), len(array.made())) == (["10Gi"], 1)
    if restart:
        cluster.system.close()
        began = cluster
        cluster = Cluster(database, owner="second", **parts)
        cluster.now = began.now
    cluster.create(asked("two", "6Gi"), using("second", "two"))
    cluster.wait(20)
    assert (capacities(cluster), cluster.node_of("second"), len(array.made())) == (["10Gi"], None, 1)
    assert "ProvisioningFailed" not in cluster.told()
    array.late = False
    cluster.wait(60)
    assert (capacities(cluster), cluster.node_of("second")) == (["4Gi"], None)
    cluster.create(asked("three", "4Gi"), using("third", "three"))
    bound(cluster, "third")


@on_sqlite
def test_a_driver_that_publishes_nothing_new_is_not_waited_for_for_ever(database: Database) -> None:
    array = Late()
    objects = [made_by(SIMULATED, capacityPerDomain="10Gi"), *in_zones("a")]
    cluster = Cluster(database, objects, provisioners=[Simulated(array)])
    cluster.until(lambda: capacities(cluster) == ["10Gi"])
    array.late = True
    cluster.create(asked("one", "6Gi"), using("first", "one"))
    bound(cluster, "first")
    cluster.create(asked("two", "6Gi"), using("second", "two"))
    cluster.wait(30)
    assert "ProvisioningFailed" not in cluster.told()
    for _ in range(30):
        cluster.step(after=10 * SECOND)
    assert "no room for 6Gi" in cluster.told("ProvisioningFailed")[0]


@on_sqlite
def test_what_is_published_goes_when_no_class_counts_its_room(database: Database) -> None:
    cluster = Cluster(
        database,
        [made_by(SIMULATED, capacityPerDomain="10Gi"), made_by(SIMULATED, "free"), *in_zones("ab")],
        provisioners=[Simulated()],
    )
    cluster.rest()
    assert sorted(capacities(cluster)) == ["10Gi", "10Gi", "8191Pi", "8191Pi"]
    cluster.cluster.delete("StorageClass", "made")
    cluster.rest()
    assert (capacities(cluster), cluster.cluster.list("CSIDriver").objects) == ([], ())


@on_sqlite
def test_a_new_process_knows_what_was_used_before(database: Database) -> None:
    objects = [
        made_by(SIMULATED, capacityPerDomain="10Gi"),
        *in_zones("a"),
        asked("one", "6Gi"),
        using("app", "one"),
    ]
    cluster = bound(Cluster(database, objects, provisioners=[Simulated()]))
    cluster.rest()
    again = Cluster(database, owner="second", provisioners=[Simulated()])
    again.now = cluster.now + 20 * SECOND
    again.rest()
    assert capacities(again) == ["4Gi"]
    give_up(again, "one")
    assert capacities(again) == ["10Gi"]
