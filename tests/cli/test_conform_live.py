"""`volsched conform --live`: scenarios are played, judged and recorded; what cannot be played is said before."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Run
from tests.support.clusters import claim
from tests.support.serving import served
from volsched.log.database import Database

NODE: dict[str, Any] = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}}
CLASS: dict[str, Any] = {
    "apiVersion": "storage.k8s.io/v1",
    "kind": "StorageClass",
    "metadata": {"name": "now"},
    "provisioner": "kubernetes.io/no-provisioner",
}
VOLUME: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "PersistentVolume",
    "metadata": {"name": "p"},
    "spec": {
        "capacity": {"storage": "5Gi"},
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": "now",
        "persistentVolumeReclaimPolicy": "Retain",
        "csi": {"driver": "csi.example.com", "volumeHandle": "p"},
    },
}
CLAIM = claim("c", "1Gi", "now", namespace="NS")


def scenario(path: Path, *steps: Any, **more: Any) -> Path:
    path.write_text(json.dumps({"name": "7-bound", "steps": steps, **more}))
    return path


@pytest.fixture
def bound(tmp_path: Path, run: Run) -> Path:
    """A scenario with the outcome that our own system gives it."""
    raw = scenario(
        tmp_path / "raw.json",
        ["apply", [NODE, CLASS, VOLUME, CLAIM]],
        ["wait", "pvc", "c", "bound", 30],
        ["snap", "end", 5],
    )
    assert run("conform", "--live", str(raw), "--record", str(tmp_path / "recorded")).code == 0
    return tmp_path / "recorded" / "7-bound.json"


def test_what_was_recorded_is_met_again(run: Run, bound: Path) -> None:
    end = json.loads(bound.read_text())["real"]
    assert end["waits"] == [["pvc", "c", "bound", True]]
    assert end["snaps"]["end"]["pvcs"]["c"]["volume"] == "p"
    assert end["snaps"]["end"]["pvs"]["p"]["claimRef"] == "s7/c+uid"
    ran = run("conform", "--live", str(bound.parent))
    assert ran.code == 0
    assert ran.out.splitlines() == ["equal   7-bound", "1 passed, 0 failed"]


def test_another_end_is_a_difference(run: Run, bound: Path) -> None:
    changed = json.loads(bound.read_text())
    changed["real"]["snaps"]["end"]["pvs"]["p"]["phase"] = "Available"
    bound.write_text(json.dumps(changed))
    ran = run("conform", "--live", str(bound))
    assert ran.code == 1
    assert "snaps.end.pvs.p.phase" in ran.out
    assert ran.out.splitlines()[-1] == "0 passed, 1 failed"


def test_a_difference_with_a_reason_is_intended(run: Run, bound: Path) -> None:
    changed = json.loads(bound.read_text())
    changed["real"]["snaps"]["end"]["pvs"]["p"]["phase"] = "Available"
    changed["differs"] = [{"snap": "end", "path": "pvs.p.phase", "reason": "for this test"}]
    bound.write_text(json.dumps(changed))
    ran = run("conform", "--live", str(bound))
    assert ran.code == 0
    assert ran.out.splitlines()[0] == "equal   7-bound (differs as intended in 1)"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "not JSON"),
        ("[]", "holds no scenario"),
        ('{"name": "x", "steps": [["jump"]]}', "step 1 is no step"),
        ('{"name": "X!", "steps": []}', "name"),
        ('{"name": "x", "steps": []}', "no outcome of a real control plane"),
    ],
)
def test_what_is_no_scenario_is_said_with_the_place(run: Run, tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "x.json"
    path.write_text(text)
    ran = run("conform", "--live", str(path))
    assert ran.code == 2
    assert said in ran.err


def test_a_directory_without_scenarios(run: Run, tmp_path: Path) -> None:
    ran = run("conform", "--live", str(tmp_path))
    assert ran.code == 2
    assert "holds no scenarios" in ran.err


def test_a_server_with_objects_of_others_is_left_alone(run: Run, bound: Path, sqlite: Database) -> None:
    with served(sqlite) as api:
        api.create({**NODE, "metadata": {"name": "somebody"}})
        ran = run("--server", api.url, "conform", "--live", str(bound))
        left = api.http.get("/api/v1/nodes").json()["items"]
    assert ran.code == 1
    assert "the server has node somebody" in ran.err
    assert [it["metadata"]["name"] for it in left] == ["somebody"]


def test_a_server_is_left_empty(run: Run, bound: Path, sqlite: Database) -> None:
    with served(sqlite, system=True) as up:
        ran = run("--server", up.url, "conform", "--live", str(bound), "--patience", "60")
        left = [
            up.http.get(f"/api/v1/{plural}").json()["items"]
            for plural in ("nodes", "persistentvolumes", "persistentvolumeclaims")
        ]
    assert ran.code == 0, ran.out + ran.err
    assert left == [[], [], []]
