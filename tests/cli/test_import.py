"""`volsched import`: a cluster as kubectl prints it, taken over as it is, all of it or nothing."""

import copy
import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cli.conftest import Run
from tests.support.clusters import LOCAL, claim, node, pod, volume
from volsched.log.database import open_database
from volsched.log.reads.tail import read_head

BORN = "2024-05-01T10:00:00Z"


def known(manifest: dict[str, Any], uid: str, **status: Any) -> dict[str, Any]:
    """The object as a running cluster has it."""
    names = {**manifest["metadata"], "uid": uid, "creationTimestamp": BORN, "resourceVersion": "77"}
    return {**copy.deepcopy(manifest), "metadata": names, **({"status": status} if status else {})}


def cluster() -> list[dict[str, Any]]:
    """A bound pod, a volume that its claim has left, and a claim that waits."""
    bound = known(claim("data", "4Gi"), "uid-data", phase="Bound", capacity={"storage": "5Gi"})
    bound["spec"]["volumeName"] = "disk"
    bound["metadata"]["annotations"] = {"pv.kubernetes.io/bind-completed": "yes"}
    bound["metadata"]["finalizers"] = ["kubernetes.io/pvc-protection"]
    disk = known(volume("disk", "5Gi", "node-0"), "uid-disk", phase="Bound")
    disk["spec"]["claimRef"] = {
        "namespace": "default",
        "name": "data",
        "uid": "uid-data",
        "kind": "PersistentVolumeClaim",
    }
    left = known(volume("left", "5Gi", "node-0"), "uid-left", phase="Released")
    left["spec"]["claimRef"] = {"namespace": "default", "name": "gone", "uid": "uid-gone"}
    placed = known(pod("db", "data"), "uid-db", phase="Running", podIP="10.0.0.7")
    placed["spec"]["nodeName"] = "node-0"
    return [
        known(LOCAL, "uid-local"),
        known(node("node-0"), "uid-node-0"),
        disk,
        left,
        bound,
        known(claim("waits", "1Gi"), "uid-waits", phase="Pending"),
        placed,
    ]


def dump(*objects: dict[str, Any]) -> bytes:
    """As `kubectl get -A -o yaml` prints it."""
    return yaml.safe_dump({"apiVersion": "v1", "kind": "List", "items": list(objects)}).encode()


def position(db: str) -> int:
    database = open_database(f"sqlite:///{db}")
    with database.read() as connection:
        found = read_head(connection).position
    database.close()
    return found


def get(run: Run, db: str, kind: str, name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(run("get", kind, name, "-o", "json", "--db", db).out)
    return found


def test_a_cluster_is_taken_over_as_it_is(run: Run, db: str) -> None:
    ran = run("import", "-f", "-", "--db", db, stdin=dump(*cluster()))
    assert (ran.code, ran.err) == (0, "")
    assert ran.out == "imported 1 Node, 2 PersistentVolume, 2 PersistentVolumeClaim, 1 Pod, 1 StorageClass\n"
    placed, disk = get(run, db, "pod", "db"), get(run, db, "pv", "disk")
    assert (placed["metadata"]["uid"], placed["metadata"]["creationTimestamp"]) == ("uid-db", BORN)
    assert placed["status"] == {"phase": "Running", "podIP": "10.0.0.7"}
    assert (disk["status"]["phase"], disk["spec"]["claimRef"]["uid"]) == ("Bound", "uid-data")
    assert "resourceVersion" not in run("export", "-", "--db", db).out
    assert get(run, db, "pvc", "data")["metadata"]["finalizers"] == ["kubernetes.io/pvc-protection"]


def test_what_was_bound_stays_bound_and_what_was_released_stays_so(run: Run, db: str) -> None:
    assert run("import", "-f", "-", "--db", db, stdin=dump(*cluster())).code == 0
    ran = run("schedule", "--db", db)
    assert ran.code == 0
    assert "1 of 1 pods have a node" in ran.out
    assert get(run, db, "pv", "disk")["spec"]["claimRef"]["uid"] == "uid-data"
    assert get(run, db, "pv", "disk")["status"]["phase"] == "Bound"
    assert get(run, db, "pvc", "data")["status"]["phase"] == "Bound"
    assert get(run, db, "pv", "left")["status"]["phase"] == "Released"
    assert run("verify", "--db", db).code == 0


def test_a_volume_whose_claim_did_not_come_along_is_refused_and_nothing_is_written(run: Run, db: str) -> None:
    without = [it for it in cluster() if it["metadata"]["name"] != "data"]
    ran = run("import", "-f", "-", "--db", db, stdin=dump(*without))
    assert (ran.code, ran.out) == (1, "")
    assert 'PersistentVolume "disk": spec.claimRef.uid: uid-data names a claim that is not imported' in ran.err
    assert "kubectl get pv,pvc -A -o yaml" in ran.err
    assert '"left"' not in ran.err
    assert position(db) == 0


def test_a_claim_of_that_name_with_another_uid_is_another_claim(run: Run, db: str) -> None:
    objects = cluster()
    next(it for it in objects if it["metadata"]["name"] == "data")["metadata"]["uid"] = "uid-anew"
    ran = run("import", "-f", "-", "--db", db, stdin=dump(*objects))
    assert ran.code == 1
    assert "PersistentVolumeClaim default/data has uid uid-anew" in ran.err
    assert position(db) == 0


def test_only_an_empty_store_takes_a_cluster(run: Run, db: str) -> None:
    run("create", "-f", "-", "--db", db, stdin=json.dumps(node("other")).encode())
    ran = run("import", "-f", "-", "--db", db, stdin=dump(*cluster()))
    assert (ran.code, ran.out) == (1, "")
    assert "the store has 1 events already" in ran.err
    assert "volsched import --db NEW" in ran.err
    assert position(db) == 1


def test_what_says_not_who_it_is_gets_a_uid_and_an_age(run: Run, db: str) -> None:
    assert run("import", "-f", "-", "--db", db, stdin=dump(node("node-0"))).code == 0
    names = get(run, db, "node", "node-0")["metadata"]
    assert (len(names["uid"]), names["creationTimestamp"][:2]) == (36, "20")


def test_what_is_missing_in_the_dump_is_reported(run: Run, db: str) -> None:
    lonely = [it for it in cluster() if it["kind"] in ("PersistentVolumeClaim", "Pod")]
    ran = run(
        "import",
        "-f",
        "-",
        "--db",
        db,
        stdin=dump(*lonely),
    )
    assert ran.code == 0
    assert "default/data is bound to volumes that are not in the dump, and will be Lost" in ran.err
    assert "default/db is on nodes that are not in the dump" in ran.err


def test_one_wrong_object_refuses_the_whole_dump(run: Run, db: str) -> None:
    wrong = {**LOCAL, "volumeBindingMode": "Sometimes"}
    ran = run("import", "-f", "-", "--db", db, stdin=dump(node("node-0"), wrong))
    assert (ran.code, ran.out) == (1, "")
    assert "volumeBindingMode" in ran.err
    assert position(db) == 0


def test_objects_without_a_namespace_are_taken_into_the_one_that_is_given(run: Run, db: str) -> None:
    bare = known(claim("waits", "1Gi"), "uid-waits", phase="Pending")
    bare["metadata"].pop("namespace", None)
    elsewhere = known(claim("data", "1Gi"), "uid-data", phase="Pending")
    elsewhere["metadata"]["namespace"] = "other"
    before = position(db)
    refused = run("import", "-n", "shop", "-f", "-", "--db", db, stdin=dump(bare, elsewhere))
    assert (refused.code, refused.out, position(db)) == (2, "", before)
    assert 'is not of namespace "shop"; leave -n out' in refused.err
    ran = run("import", "-n", "shop", "-f", "-", "--db", db, stdin=dump(known(LOCAL, "uid-local"), bare))
    assert ran.code == 0, ran.err
    assert get(run, db, "pvc", "shop/waits")["metadata"]["uid"] == "uid-waits"


def test_who_imported_it_and_why_is_kept(run: Run, db: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOGNAME", "ada")
    run("import", "-f", "-", "--db", db, "--reason", "a rehearsal", stdin=dump(node("node-0")))
    exported = run("export", "-", "--db", db).out.splitlines()[1]
    assert '"cli/import/ada"' in exported
    assert "a rehearsal" in exported


def test_dumping_and_importing_again_gives_the_same_objects(run: Run, db: str, tmp_path: Path) -> None:
    run("import", "-f", "-", "--db", db, stdin=dump(*cluster()))
    kinds = "sc,no,pv,pvc,po"
    first = run("get", kinds, "-A", "-o", "yaml", "--db", db).out
    copied = str(tmp_path / "copy.db")
    run("migrate", "--db", copied)
    assert run("import", "-f", "-", "--db", copied, stdin=first.encode()).code == 0

    def unversioned(text: str) -> list[dict[str, Any]]:
        items: list[dict[str, Any]] = yaml.safe_load(text)["items"]
        return [{**it, "metadata": {**it["metadata"], "resourceVersion": ""}} for it in items]

    assert unversioned(run("get", kinds, "-A", "-o", "yaml", "--db", copied).out) == unversioned(first)
