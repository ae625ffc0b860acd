"""`volsched release` and `volsched orphans`; and what `apply` and `schedule` say of the zonal upgrade."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cli.conftest import Run
from tests.support.clusters import LOCAL, Manifest, Stepped, claim, node, pod, volume
from volsched.cluster.port import whole
from volsched.kube.meta import LEGACY_ZONE, SELECTED_NODE, ZONE
from volsched.log.database import Database, open_database
from volsched.log.reads.tail import read_stream
from volsched.runtime.clock import SECOND, system_clock


@pytest.fixture
def store(db: str) -> Iterator[Database]:
    database = open_database(f"sqlite:///{db}")
    yield database
    database.close()


def at(database: Database, *objects: Manifest, ago: int = 0) -> Stepped:
    stepped = Stepped(database)
    stepped.now = system_clock() - ago * SECOND
    stepped.create(*objects)
    return stepped


def released(database: Database, *, ago: int = 0) -> Stepped:
    """A volume whose claim was used and is gone."""
    cluster = (LOCAL, node("node-0"), volume("disk", "5Gi", "node-0"), claim("data", "4Gi"), pod("db", "data"))
    stepped = at(database, *cluster, ago=ago)
    stepped.until(lambda: stepped.node_of("db") == "node-0")
    stepped.cluster.delete("Pod", "default/db")
    stepped.cluster.delete("PersistentVolumeClaim", "default/data")
    stepped.until(lambda: phase(stepped) == "Released")
    return stepped


def phase(stepped: Stepped, name: str = "disk") -> str:
    return str((stepped.cluster.get("PersistentVolume", name) or {})["status"]["phase"])


def orphans(run: Run, db: str, *options: str) -> list[tuple[str, str]]:
    ran = run("orphans", "--db", db, "-o", "json", *options)
    assert ran.code == 0
    return [(it["kind"], it["object"]) for it in json.loads(ran.out)["items"]]


def test_a_released_volume_is_returned_with_a_paper_trail(run: Run, db: str, store: Database) -> None:
    stepped = released(store)
    assert orphans(run, db) == [("released", "volume/disk")]
    ran = run("release", "disk", "--reason", "wiped, ticket 4711", "--db", db)
    assert (ran.code, ran.out) == (0, "persistentvolume/disk is Available again\n")
    found = stepped.cluster.get("PersistentVolume", "disk") or {}
    assert phase(stepped) == "Available"
    assert "claimRef" not in found["spec"]
    assert found["metadata"].get("annotations", {}) == {}
    (notice,) = [it for it in whole(stepped.cluster.list("Event")).objects if it["reason"] == "ReturnedByOperator"]
    assert "wiped, ticket 4711" in notice["message"]
    assert "default/data" in notice["message"]
    with store.read() as connection:
        last = read_stream(connection, "volume/disk")[-1]
    assert last.actor.startswith("cli/release/")
    assert json.loads(last.data)["reason"] == "wiped, ticket 4711"
    assert orphans(run, db) == []
    # It serves the next claim, and the log is still what it says it is.
    stepped.create(claim("next", "4Gi"), pod("after", "next"))
    stepped.until(lambda: stepped.node_of("after") == "node-0")
    assert run("verify", "--db", db).code == 0


def test_a_failed_volume_can_be_returned_too(run: Run, db: str, store: Database) -> None:
    stepped = released(store)
    put(stepped, status={"phase": "Failed", "message": "scrubbing failed"})
    assert run("release", "disk", "--reason", "wiped by hand", "--db", db).code == 0
    assert (stepped.cluster.get("PersistentVolume", "disk") or {})["status"] == {"phase": "Available"}


def put(stepped: Stepped, **parts: Any) -> None:
    found = dict(stepped.cluster.get("PersistentVolume", "disk") or {})
    for part, fields in parts.items():
        changed = {**found, part: {**found[part], **fields}}
        stepped.cluster.update("PersistentVolume", changed, status=part == "status")


def test_a_bound_volume_is_refused(run: Run, db: str, store: Database) -> None:
    stepped = at(store, LOCAL, node("n"), volume("disk", "5Gi", "n"), claim("data", "4Gi"), pod("db", "data"))
    stepped.until(lambda: stepped.node_of("db") == "n")
    ran = run("release", "disk", "--reason", "x", "--db", db)
    assert ran.code == 1
    assert 'PersistentVolume "disk" is Bound' in ran.err
    put(stepped, status={"phase": "Released"})
    ran = run("release", "disk", "--reason", "x", "--db", db)
    assert ran.code == 1
    assert 'belongs to claim "default/data", which still exists' in ran.err


def test_a_volume_in_an_open_binding_is_refused(run: Run, db: str, store: Database) -> None:
    stepped = at(store, LOCAL, node("n"), volume("disk", "5Gi", "n"), claim("data", "4Gi"))
    stepped.settle()
    stepped.create(pod("db", "data"))
    stepped.system.catch_up(stepped.now)
    stepped.system.scheduler.step(stepped.now)
    assert stepped.bindings()[0].open
    put(stepped, status={"phase": "Released"})
    before = stepped.cluster.get("PersistentVolume", "disk")
    ran = run("release", "disk", "--reason", "x", "--db", db)
    assert ran.code == 1
    assert f"is in the open binding {stepped.bindings()[0].id} of pod default/db" in ran.err
    assert stepped.cluster.get("PersistentVolume", "disk") == before


def test_a_volume_that_may_be_deleted_is_refused(run: Run, db: str, store: Database) -> None:
    stepped = released(store)
    put(stepped, spec={"persistentVolumeReclaimPolicy": "Delete"})
    ran = run("release", "disk", "--reason", "x", "--db", db)
    assert ran.code == 1
    assert "set persistentVolumeReclaimPolicy to Retain first" in ran.err


def test_a_volume_that_a_node_still_has_is_refused(run: Run, db: str, store: Database) -> None:
    stepped = released(store)
    stepped.create(
        {
            "apiVersion": "storage.k8s.io/v1",
            "kind": "VolumeAttachment",
            "metadata": {"name": "held"},
            "spec": {"attacher": "a.b", "nodeName": "node-0", "source": {"persistentVolumeName": "disk"}},
        }
    )
    ran = run("release", "disk", "--reason", "x", "--db", db)
    assert ran.code == 1
    assert 'is still attached to node "node-0"' in ran.err
    stepped.cluster.delete("VolumeAttachment", "held")
    assert run("release", "disk", "--reason", "x", "--db", db).code == 0
    assert (
        "is Available; only a volume that is Released" in run("release", "disk", "--reason", "x", "--db", db).err
    )


def test_what_is_missing_is_said(run: Run, db: str) -> None:
    assert run("release", "nothing", "--reason", "x", "--db", db).code == 3
    assert run("release", "nothing", "--db", db).code == 2
    assert run("release", "nothing", "--reason", " ", "--db", db).code == 2


def test_orphans_of_every_kind(run: Run, db: str, store: Database) -> None:
    stepped = released(store, ago=3600)
    waiting = claim("waits", "1Gi")
    waiting["metadata"]["annotations"] = {SELECTED_NODE: "gone"}
    stepped.create(waiting, volume("far", "5Gi", "nowhere"), volume("pvc-123", "1Gi", "node-0"))
    stepped.create(volume("lost", "9Gi", "node-0"), claim("precious", "8Gi"), pod("db2", "precious"))
    stepped.until(lambda: stepped.volume_of("precious") == "lost")
    # As if by hand: the volume goes although it is bound.
    stepped.cluster.delete("PersistentVolume", "lost")
    found = dict(stepped.cluster.get("PersistentVolume", "lost") or {})
    stepped.cluster.update("PersistentVolume", {**found, "metadata": {**found["metadata"], "finalizers": []}})
    stepped.step()
    stepped.step()
    expected = [
        ("released", "volume/disk"),
        ("claim-gone", "volume/pvc-123"),
        ("node-gone", "claim/default/waits"),
        ("unreachable", "volume/far"),
        ("lost", "claim/default/precious"),
    ]
    assert orphans(run, db) == expected
    assert orphans(run, db, "--older-than", "30m") == expected
    assert orphans(run, db, "--older-than", "2h") == expected[1:]
    assert "volsched release PV --reason TEXT" in run("orphans", "--db", db).out
    assert run("orphans", "--older-than", "soon", "--db", db).code == 2


def test_nothing_left_behind(run: Run, db: str) -> None:
    assert run("orphans", "--db", db).out == "nothing was left behind\n"


def zonal(name: str, **labels: str) -> Manifest:
    made = volume(name, "1Gi", "x")
    spec = {key: value for key, value in made["spec"].items() if key not in ("local", "nodeAffinity")}
    source = {"csi": {"driver": "a.example.com", "volumeHandle": name}}
    return {**made, "metadata": {"name": name, "labels": labels}, "spec": {**spec, **source}}


def test_apply_converts_zone_labels_by_the_nodes_of_its_input(
    run: Run, db: str, store: Database, tmp_path: Path
) -> None:
    path = tmp_path / "zonal.yaml"
    # The nodes come last, as in an alphabetical dump, and still decide.
    objects = [
        zonal("pv", **{LEGACY_ZONE: "a"}),
        zonal("n", **{ZONE: "a"}),
        node("n", **{ZONE: "a"}),
        node("bare"),
    ]
    path.write_text(yaml.safe_dump_all(objects))
    ran = run("apply", "-f", str(path), "--db", db)
    assert ran.code == 0
    assert "2 volumes converted" in ran.err
    assert "1 nodes without zone labels can no longer use them" in ran.err
    found = Stepped(store).cluster.get("PersistentVolume", "pv") or {}
    (term,) = found["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"]
    assert term["matchExpressions"] == [{"key": ZONE, "operator": "In", "values": ["a"]}]
    again = run("apply", "-f", str(path), "--db", db)
    assert {line.rpartition(" ")[2] for line in again.out.splitlines()} == {"unchanged"}
    assert again.err == ""


def test_switched_off_neither_apply_nor_schedule_converts(
    run: Run, db: str, store: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VOLSCHED_DISABLE_ZONAL_UPGRADE", "true")
    path = tmp_path / "zonal.yaml"
    path.write_text(yaml.safe_dump_all([zonal("pv", **{ZONE: "a"}), node("n")]))
    assert run("apply", "-f", str(path), "--db", db).err == ""
    assert run("schedule", "--db", db).err == ""
    assert "nodeAffinity" not in (Stepped(store).cluster.get("PersistentVolume", "pv") or {})["spec"]
    monkeypatch.delenv("VOLSCHED_DISABLE_ZONAL_UPGRADE")
    ran = run("schedule", "--db", db, "-o", "json")
    assert json.loads(ran.out)["zonalUpgrade"]["converted"] == 1
    assert "1 volumes converted" in ran.err


def test_schedule_runs_a_set_to_its_end(run: Run, db: str, tmp_path: Path) -> None:
    template = {"metadata": {"labels": {"app": "db"}}, "spec": {"containers": [{"name": "main", "image": "app"}]}}
    stateful = {
        "apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "db"},
        "spec": {
            "replicas": 2, "selector": {"matchLabels": {"app": "db"}}, "template": template,
            "volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": claim("x", "1Gi")["spec"]}],
        },
    }  # fmt: skip
    path = tmp_path / "set.yaml"
    disks = [volume(f"disk-{i}", "1Gi", "n") for i in range(2)]
    path.write_text(yaml.safe_dump_all([LOCAL, node("n"), *disks, stateful]))
    run("apply", "-f", str(path), "--db", db)
    ran = run("schedule", "--db", db, "-o", "json")
    assert ran.code == 0
    told = [(it["pod"], it["node"]) for it in json.loads(ran.out)["pods"]]
    assert told == [("default/db-0", "n"), ("default/db-1", "n")]
