"""`volsched explain` and `volsched validate` on manifests, good and bad."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.cli.conftest import Run
from volsched.insight.bench_clusters import CLUSTERS

EXAMPLE = Path(__file__).parents[2] / "docs" / "examples" / "three-zones.yaml"


def test_a_pod_that_fits_shows_where_each_claim_goes(run: Run) -> None:
    ran = run("explain", "pod", "shop/db-0", "-f", str(EXAMPLE))
    assert ran.code == 0
    assert "fits on node-a1" in ran.out
    assert "shop/journal-db-0 gets disk-a1-1 (200Gi for 20Gi)" in ran.out
    assert "shop/data-db-0 gets disk-a1-0 (100Gi for 90Gi)" in ran.out
    assert "shop/backup-db-0 gets a new volume of class zonal (300Gi), room in csi/zone-a" in ran.out


def test_parity_gives_the_references_answer(run: Run) -> None:
    ran = run("explain", "pod", "shop/db-0", "-f", str(EXAMPLE), "--profile", "parity")
    assert ran.code == 4
    assert "0/4 nodes are available" in ran.out


def test_a_pod_that_fits_nowhere_shows_rule_wanted_and_got(run: Run) -> None:
    ran = run("explain", "pod", "shop/analytics-0", "-f", str(EXAMPLE))
    assert ran.code == 4
    assert "free-storage: wanted 600Gi free; got csi/zone-a: 500Gi in all" in ran.out
    assert "disk-b1-0: capacity: wanted at least 150Gi, got 80Gi" in ran.out


def test_json_says_the_same(run: Run) -> None:
    told = json.loads(run("explain", "pod", "shop/db-0", "-f", str(EXAMPLE), "-o", "json").out)
    assert told["chosen"]["node"] == "node-a1"
    assert {entry["node"] for group in told["refused"] for entry in group["nodes"]} == {
        "node-a2",
        "node-b1",
        "node-c1",
    }


def test_one_node_can_be_looked_at(run: Run) -> None:
    ran = run("explain", "pod", "shop/db-0", "-f", str(EXAMPLE), "--node", "node-c1")
    assert ran.code == 4
    assert "node-b1\n" not in ran.out


def test_standard_input_and_kubectl_lists_work(run: Run) -> None:
    documents = list(yaml.safe_load_all(EXAMPLE.read_text()))
    dump = yaml.safe_dump({"apiVersion": "v1", "kind": "List", "items": documents}).encode()
    ran = run("explain", "pod", "shop/db-0", "-f", "-", stdin=dump)
    assert ran.code == 0
    assert run("validate", "-f", "-", stdin=dump).out.startswith(
        "all valid: 1 CSIDriver, 2 CSIStorageCapacity, 4 Node"
    )


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["explain", "pod", "shop/gone"], 3, 'pod "shop/gone" is not among the manifests; pods there: shop/'),
        (["explain", "pod", "db-0"], 3, 'pod "default/db-0"'),
        (["explain", "pod", "shop/db-0", "--node", "gone"], 3, 'node "gone" is not among the manifests'),
        (["explain", "pod", "shop/db-0", "--profile", "other"], 2, "parity"),
        (["explain", "pod"], 2, "Missing argument"),
    ],
)
def test_what_is_not_there_is_named(run: Run, words: list[str], code: int, message: str) -> None:
    ran = run(*words, "-f", str(EXAMPLE))
    assert ran.code == code
    assert message in ran.err


BROKEN = b"""
apiVersion: v1
kind: PersistentVolume
metadata: {name: p1}
spec: {capacity: {storage: 10GB}, accessModes: [ReadWriteOnce], hostPath: {path: /x}}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: c1}
spec: {accessModes: [Often], resources: {requests: {storage: 1Gi}}}
"""


def test_invalid_objects_are_all_named_and_exit_1(run: Run) -> None:
    ran = run("validate", "-f", "-", stdin=BROKEN)
    assert ran.code == 1
    assert ran.out == ""
    lines = ran.err.splitlines()
    assert len(lines) == 2
    assert "stdin: document 1: PersistentVolume" in lines[0]
    assert "10GB" in lines[0]
    assert "document 2: PersistentVolumeClaim" in lines[1]
    assert "Often" in lines[1]


@pytest.mark.parametrize("data", [b"{", b"a: [", b"\xff\xff", b"[" * 100_000, b"", b"# nothing\n"])
def test_unreadable_or_empty_input_exits_2(run: Run, data: bytes) -> None:
    ran = run("validate", "-f", "-", stdin=data)
    assert ran.code == 2
    assert ran.err.startswith("error: ")


def test_files_and_directories_are_read(run: Run, tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "one.yaml").write_bytes(EXAMPLE.read_bytes())
    assert run("validate", "-f", str(tmp_path)).code == 0
    empty = tmp_path / "empty"
    empty.mkdir()
    assert "holds no manifest" in run("validate", "-f", str(empty)).err
    ran = run("validate", "-f", str(tmp_path / "gone.yaml"))
    assert (ran.code, "gone.yaml cannot be read" in ran.err) == (2, True)


def test_an_object_that_two_inputs_hold_is_named_with_both_places(run: Run, tmp_path: Path) -> None:
    (tmp_path / "again.yaml").write_bytes(EXAMPLE.read_bytes())
    (tmp_path / "folder.yaml").mkdir()
    ran = run("validate", "-f", str(EXAMPLE), "-f", str(tmp_path))
    assert ran.code == 1
    assert "again.yaml: document 1: " in ran.err
    assert "three-zones.yaml: document 1 as well" in ran.err


def test_the_installed_command_runs() -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "volsched", "--version"], capture_output=True, text=True, check=True
    )
    assert ran.stdout.startswith("volsched ")


def test_bench_prints_a_ratio_for_every_row(run: Run) -> None:
    rows = json.loads(run("bench", "decide", "--nodes", "3", "--repeat", "1", "-o", "json").out)
    assert {row["cluster"] for row in rows} == set(CLUSTERS)
    assert all(row["ratio"] > 0 for row in rows)
    assert "ratio" in run("bench", "decide", "--nodes", "3", "--repeat", "1").out
