"""Directories that host-path really makes: reclaiming, and never touching what is not certainly ours."""

from pathlib import Path
from typing import Any

import pytest

from tests.provisioning.host_paths import (
    bound,
    directories,
    give_up,
    on_host,
    on_sqlite,
    with_policy,
)
from tests.support.storage import CLAIM, VOLUME, asked, made_by, using
from volsched.kube.meta import PV_CONTROLLER_FINALIZER
from volsched.log.database import Database
from volsched.log.integrity.verify import verify
from volsched.provisioning.host_path import HOST_PATH, RECORDS, HostPath
from volsched.pv_controller.rules import PluginError, Provision
from volsched.runtime.clock import SECOND
from volsched.runtime.settings import Settings


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
        (asking("taken"), "was not created by"),
        (asking("used"), "holds files already"),
        (asking("link"), "was not created by"),
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
        ("taken", "{root}/taken", "was not created by"),
        ("swapped", "{root}/swapped", "is not the directory that was created there"),
        ("file", "{root}/file", "is not the directory that was created there"),
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


def test_a_root_that_cannot_be_written_is_reported(root: Path) -> None:
    provisioner = HostPath(root)
    # Not by its mode, which does not keep root out.
    (root / RECORDS).rmdir()
    (root / RECORDS).touch()
    with pytest.raises(PluginError, match="check its permissions"):
        provisioner.provision(asking(), 0)
