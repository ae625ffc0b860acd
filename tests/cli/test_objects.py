"""`volsched apply`, `create`, `delete`: who did it, why, and what was refused."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cli.conftest import Run
from tests.support.clusters import LOCAL, claim, node, pod, volume
from volsched.log.database import open_database
from volsched.log.reads.tail import read_stream


@pytest.fixture(autouse=True)
def _ada(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(os.environ, "LOGNAME", "ada")


def file_of(tmp_path: Path, *objects: dict[str, Any], name: str = "objects.yaml") -> str:
    path = tmp_path / name
    path.write_text(yaml.safe_dump_all(objects))
    return str(path)


def told(db: str, stream: str) -> list[tuple[str, str, str | None]]:
    """Type, actor and reason of every event of a stream."""
    database = open_database(f"sqlite:///{db}")
    with database.read() as connection:
        events = read_stream(connection, stream)
    database.close()
    return [(it.type, it.actor, json.loads(it.data).get("reason")) for it in events]


def test_every_change_says_who_made_it_and_why(run: Run, db: str, tmp_path: Path) -> None:
    run("create", "-f", file_of(tmp_path, node("n1")), "--db", db, "--reason", "a new rack")
    run("apply", "-f", file_of(tmp_path, node("n1", rack="r1")), "--db", db, "--reason", " labelled ")
    run("apply", "-f", file_of(tmp_path, node("n1", rack="r2")), "--db", db)
    ran = run("delete", "node", "n1", "--db", db, "--reason", "sold")
    assert (ran.code, ran.out) == (0, "node/n1 deleted\n")
    assert told(db, "node/n1") == [
        ("NodeCreated", "cli/create/ada", "a new rack"),
        ("NodeChanged", "cli/apply/ada", "labelled"),
        ("NodeChanged", "cli/apply/ada", None),
        ("NodeDeleted", "cli/delete/ada", "sold"),
    ]
    assert run("verify", "--db", db).code == 0


def test_an_empty_reason_is_refused_before_anything_is_done(run: Run, db: str, tmp_path: Path) -> None:
    ran = run("apply", "-f", file_of(tmp_path, node("n1")), "--db", db, "--reason", "  ")
    assert (ran.code, ran.out) == (2, "")
    assert "leave --reason out" in ran.err
    assert told(db, "node/n1") == []


def test_a_zonal_volume_keeps_the_reason_with_its_own_event(run: Run, db: str, tmp_path: Path) -> None:
    zonal = volume("disk", "1Gi", "n1")
    del zonal["spec"]["nodeAffinity"], zonal["spec"]["local"]
    zonal["spec"]["csi"] = {"driver": "disks.example.com", "volumeHandle": "1"}
    zonal["metadata"]["labels"] = {"topology.kubernetes.io/zone": "a"}
    ran = run("create", "-f", file_of(tmp_path, zonal), "--db", db, "--reason", "bought")
    assert "1 volumes converted" in ran.err
    assert told(db, "volume/disk") == [("VolumeCreated", "cli/create/ada", "bought")]


def test_create_refuses_what_is_there_and_makes_the_rest(run: Run, db: str, tmp_path: Path) -> None:
    run("create", "-f", file_of(tmp_path, node("n1")), "--db", db)
    ran = run("create", "-f", file_of(tmp_path, node("n1"), node("n2")), "--db", db)
    assert (ran.code, ran.out) == (7, "node/n2 created\n")
    assert 'Node "n1" already exists' in ran.err


def test_create_refuses_a_volume_of_a_claim_it_does_not_know(run: Run, db: str, tmp_path: Path) -> None:
    taken = volume("disk", "5Gi", "n1")
    taken["spec"]["claimRef"] = {"namespace": "default", "name": "data", "uid": "from-elsewhere"}
    ran = run("create", "-f", file_of(tmp_path, taken), "--db", db)
    assert (ran.code, ran.out) == (1, "")
    assert "leave the uid out" in ran.err


def test_what_has_finalizers_is_only_marked(run: Run, db: str, tmp_path: Path) -> None:
    run("apply", "-f", file_of(tmp_path, LOCAL, claim("data", "1Gi")), "--db", db)
    ran = run("delete", "pvc", "data", "--db", db)
    assert ran.out == "persistentvolumeclaim/default/data is marked, and goes when its finalizers are gone\n"
    assert "Terminating" in run("get", "pvc", "data", "--db", db).out


def test_delete_takes_names_in_every_spelling(run: Run, db: str, tmp_path: Path) -> None:
    run("apply", "-f", file_of(tmp_path, *(node(f"n{i}") for i in range(6)), pod("a"), pod("b")), "--db", db)
    assert run("delete", "no", "n0", "n1", "--db", db).out == "node/n0 deleted\nnode/n1 deleted\n"
    assert run("delete", "node/n2", "node/n3", "--db", db).out == "node/n2 deleted\nnode/n3 deleted\n"
    assert run("delete", "Node", "n4", "--db", db).out == "node/n4 deleted\n"
    assert run("delete", "po", "a", "-n", "default", "--db", db).out == "pod/default/a deleted\n"
    assert run("delete", "pods", "default/b", "--db", db).out == "pod/default/b deleted\n"
    assert run("delete", "-f", file_of(tmp_path, node("n5")), "--db", db).out == "node/n5 deleted\n"
    assert run("get", "nodes,pods", "-o", "name", "--db", db).out == ""


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("delete", "pv"), 2, "which pv?"),
        (("delete", "pv,pvc", "x"), 2, "several kinds"),
        (("delete", "pv", "x", "-f", "-"), 2, "in one way"),
        (("delete", "binding", "x"), 2, "history"),
        (("delete", "pod", "shop/x", "-n", "other"), 2, "names namespace shop"),
        (("delete", "node", "node-9"), 3, "did you mean node-1?"),
        (("delete", "pod", "late"), 3, "did you mean shop/late?"),
        (("delete", "volumes", "x"), 3, 'there is no kind "volumes"; did you mean'),
        (("delete", "sc", "none"), 3, "volsched get storageclasses"),
    ],
)
def test_what_cannot_be_deleted_says_why(
    run: Run, db: str, tmp_path: Path, words: tuple[str, ...], code: int, said: str
) -> None:
    late = pod("late")
    late["metadata"]["namespace"] = "shop"
    run("apply", "-f", file_of(tmp_path, node("node-1"), late), "--db", db)
    ran = run(*words, "--db", db, stdin=b"")
    assert (ran.code, ran.out) == (code, "")
    assert said in ran.err


def test_some_are_deleted_and_some_are_not_there(run: Run, db: str, tmp_path: Path) -> None:
    run("apply", "-f", file_of(tmp_path, node("n1")), "--db", db)
    ran = run("delete", "node", "n1", "m2", "--db", db)
    assert (ran.code, ran.out) == (3, "node/n1 deleted\n")
    assert 'Node "m2" not found' in ran.err
