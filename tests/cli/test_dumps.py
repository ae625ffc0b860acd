"""A dump of a real cluster, with all that a real server adds: explained, simulated and taken over from a pipe."""

import copy
import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cli.conftest import Run
from tests.support.clusters import LOCAL, claim, node, pod, volume
from tests.support.kubectl import KUBECTL, needs_kubectl
from tests.support.patience import HANG_SECONDS
from tests.support.serving import Served, served
from volsched.log.database import Database

DUMP = Path(__file__).parent / "dumps" / "cluster.yaml"
Manifest = dict[str, Any]


@pytest.fixture
def db(tmp_path: Path, migrated_file: Path) -> str:
    """Another one than `up` serves."""
    return str(shutil.copyfile(migrated_file, tmp_path / "taken-over.db"))


def test_a_dump_of_a_real_cluster_is_explained_from_a_pipe(run: Run) -> None:
    ran = run("explain", "pod", "db-1", "-n", "shop", "-f", "-", stdin=DUMP.read_bytes())
    assert ran.code == 4
    assert "fast-worker-1-b: capacity: wanted at least 80Gi, got 40Gi" in ran.out
    assert "1 refused by NodeUnschedulable" in ran.out
    assert run("explain", "pod", "shop/db-0", "-f", "-", stdin=DUMP.read_bytes()).code == 0


def test_a_dump_of_a_real_cluster_is_simulated_from_a_pipe(run: Run) -> None:
    ran = run("simulate", "--drain", "worker-1", "-f", "-", "-o", "json", stdin=DUMP.read_bytes())
    told = json.loads(ran.out)
    assert (ran.code, [it["pod"] for it in told["evicted"]]) == (4, ["shop/db-0"])
    lost = run("simulate", "--lose-zone", "eu-west-1b", "-f", "-", stdin=DUMP.read_bytes())
    assert (lost.code, "lose zone eu-west-1b (nodes: 1)" in lost.out) == (0, True)


def test_a_dump_of_a_real_cluster_is_taken_over_with_every_field(run: Run, db: str) -> None:
    assert run("import", "-f", "-", "--db", db, stdin=DUMP.read_bytes()).code == 0
    kept = json.loads(run("get", "pod", "db-1", "-n", "shop", "-o", "json", "--db", db).out)
    assert kept["spec"]["fieldOfTheFuture"] == {"with": ["anything"]}
    assert kept["metadata"]["uid"] == "6b3b2d1e-1111-4b6a-8e0e-7f2f1d000002"
    given = {it["metadata"]["name"]: it for it in yaml.safe_load(DUMP.read_text())["items"]}
    bound = json.loads(run("get", "pv", "fast-worker-1-a", "-o", "json", "--db", db).out)
    assert bound["spec"] == given["fast-worker-1-a"]["spec"]
    listed = json.loads(run("schedule", "--db", db, "-o", "json").out)["pods"]
    assert [(it["pod"], it["node"]) for it in listed] == [("shop/db-0", "worker-1"), ("shop/db-1", None)]
    again = json.loads(run("get", "pv", "fast-worker-1-a", "-o", "json", "--db", db).out)
    assert again["spec"] == bound["spec"]
    assert run("verify", "--db", db).code == 0


# --- what is told to help does ---------------------------------------------------------------------------


def added(manifests: list[Manifest], name: str, size: str, where: str) -> None:
    disk = copy.deepcopy(next(it for it in manifests if it["metadata"]["name"] == "fast-worker-1-b"))
    disk["metadata"] = {"name": name}
    disk["spec"]["capacity"]["storage"] = size
    term = disk["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"][0]
    term["matchExpressions"][0]["values"] = [where]
    manifests.append(disk)


def smaller(manifests: list[Manifest]) -> None:
    wanting = next(it for it in manifests if it["metadata"]["name"] == "data-db-1")
    wanting["spec"]["resources"]["requests"]["storage"] = "40Gi"


def uncordoned(manifests: list[Manifest]) -> None:
    del next(it for it in manifests if it["metadata"]["name"] == "worker-2")["spec"]
    added(manifests, "new", "80Gi", "worker-2")


REMEDIES: dict[str, tuple[Callable[[list[Manifest]], None], str]] = {
    "ask for 40Gi instead of 80Gi": (smaller, "worker-1"),
    "on worker-1, for shop/data-db-1": (lambda it: added(it, "new", "80Gi", "worker-1"), "worker-1"),
    "uncordon node worker-2": (uncordoned, "worker-2"),
}


@pytest.mark.parametrize("told", REMEDIES)
def test_every_remedy_for_a_dump_makes_the_pod_fit(run: Run, told: str) -> None:
    """As somebody who reads it would: the manifest is edited, and asked about again."""
    words = ("explain", "pod", "shop/db-1", "-f", "-", "-o", "json")
    remedies = json.loads(run(*words, stdin=DUMP.read_bytes()).out)["remedies"]
    assert len(remedies) == len(REMEDIES)
    (meant,) = [it for it in remedies if told in it["changes"][0]["text"]]
    # A cordoned node is tainted by its cluster: to uncordon it is one change, not two.
    assert len(meant["changes"]) == (2 if "uncordon" in told else 1)
    manifests = yaml.safe_load(DUMP.read_text())["items"]
    change, where = REMEDIES[told]
    change(manifests)
    after = run(*words, stdin=yaml.safe_dump_all(manifests).encode())
    assert (after.code, json.loads(after.out)["chosen"]["node"], meant["node"]) == (0, where, where)


def test_the_remedy_for_a_pod_that_is_not_there_yet_makes_it_fit(run: Run, db: str, tmp_path: Path) -> None:
    """Asked of a store; the remedy is laid over it with the pod, then really done, and the pod is placed."""
    assert run("import", "-f", "-", "--db", db, stdin=DUMP.read_bytes()).code == 0
    wanting = [claim("data", "60Gi", "fast"), pod("hypothetical", "data")]
    asked = tmp_path / "pod.yaml"
    asked.write_text(yaml.safe_dump_all(wanting))
    words = ("explain", "pod", "hypothetical", "-f", str(asked), "--db", db, "-o", "json")
    before = run(*words)
    assert before.code == 4
    texts = [it["changes"][0]["text"] for it in json.loads(before.out)["remedies"]]
    assert any("add a PersistentVolume of at least 60Gi" in it and "on worker-1" in it for it in texts)
    disk = volume("more", "60Gi", "worker-1")
    disk["spec"]["storageClassName"] = "fast"
    more = tmp_path / "more.yaml"
    more.write_text(yaml.safe_dump(disk))
    laid_over = run(*words, "-f", str(more))
    assert (laid_over.code, json.loads(laid_over.out)["chosen"]["node"]) == (0, "worker-1")
    assert run("apply", "-f", str(more), "-f", str(asked), "--db", db).code == 0
    listed = {it["pod"]: it for it in json.loads(run("schedule", "--db", db, "-o", "json").out)["pods"]}
    assert listed["default/hypothetical"]["claims"] == {"data": "more"}


# --- what kubectl itself prints ---------------------------------------------------------------------------


@pytest.fixture
def up(sqlite: Database) -> Iterator[Served]:
    with served(sqlite, system=True) as running:
        yield running


@needs_kubectl
def test_what_kubectl_prints_is_explained_simulated_and_taken_over(
    run: Run, db: str, up: Served, tmp_path: Path
) -> None:
    def kubectl(*words: str, stdin: bytes | None = None) -> bytes:
        environment = {"HOME": str(tmp_path), "PATH": os.environ["PATH"]}
        call = [str(KUBECTL), "-s", up.url, *words]
        return subprocess.run(
            call, input=stdin, capture_output=True, check=True, timeout=HANG_SECONDS, env=environment
        ).stdout

    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "default"}}
    objects = [
        namespace, LOCAL, node("n1"), volume("disk", "5Gi", "n1"), claim("data", "4Gi"), pod("db", "data"),
        claim("huge", "9Ti"), pod("late", "huge"),
    ]  # fmt: skip
    kubectl("apply", "-f", "-", stdin=yaml.safe_dump_all(objects).encode())
    kubectl("wait", "pod/db", "--for=condition=Ready", f"--timeout={HANG_SECONDS}s")
    dump = kubectl("get", "nodes,pv,pvc,sc,pods", "-A", "-o", "yaml")
    assert b"last-applied-configuration" in dump
    late = run("explain", "pod", "late", "-f", "-", stdin=dump)
    assert (late.code, "disk: unclaimed" in late.out or "capacity: wanted at least 9Ti" in late.out) == (4, True)
    drained = json.loads(run("simulate", "--drain", "n1", "-f", "-", "-o", "json", stdin=dump).out)
    assert [it["pod"] for it in drained["stranded"]] == ["default/db"]
    assert run("import", "-f", "-", "--db", db, stdin=dump).code == 0
    listed = {it["pod"]: it for it in json.loads(run("schedule", "--db", db, "-o", "json").out)["pods"]}
    assert listed["default/db"]["claims"] == {"data": "disk"}
    assert listed["default/late"]["node"] is None
    assert run("verify", "--db", db).code == 0
