"""`volsched explain` and `volsched validate` on manifests, good and bad."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.cli.conftest import Run
from tests.support.clusters import LOCAL, Stepped, claim, node, on_node, pod, volume
from tests.support.fresh_stores import unsynced_store
from volsched.lab.bench.decide import CLUSTERS
from volsched.log.database import Database

EXAMPLE = Path(__file__).parents[2] / "docs" / "examples" / "three-zones.yaml"


def test_a_pod_that_fits_shows_where_each_claim_goes(run: Run) -> None:
    ran = run("explain", "pod", "shop/db-0", "-f", str(EXAMPLE))
    assert ran.code == 0
    assert "fits on node-a1" in ran.out
    assert "shop/journal-db-0 gets disk-a1-1 (200Gi for 20Gi)" in ran.out
    assert "shop/data-db-0 gets disk-a1-0 (100Gi for 90Gi)" in ran.out
    assert "shop/backup-db-0 gets a new volume of class zonal (300Gi), room in csi/zone-a" in ran.out


def test_a_pod_of_another_scheduler_is_said_to_be_one(run: Run, tmp_path: Path) -> None:
    objects, theirs = tmp_path / "objects.yaml", pod("db")
    theirs["spec"]["schedulerName"] = "other"
    objects.write_text(yaml.safe_dump_all([node("n1"), theirs, pod("ours")]))
    ran = run("explain", "pod", "db", "-f", str(objects))
    assert (ran.code, "fits on n1" in ran.out) == (0, True)
    assert 'its schedulerName is "other": another scheduler places it, not volsched' in ran.out
    assert "schedulerName" not in run("explain", "pod", "ours", "-f", str(objects)).out


def test_parity_gives_the_references_answer(run: Run) -> None:
    ran = run("explain", "pod", "shop/db-0", "-f", str(EXAMPLE), "--profile", "parity")
    assert ran.code == 4
    assert "0/4 nodes are available" in ran.out


@pytest.mark.parametrize("by", ["--config", "VOLSCHED_CONFIG"])
def test_it_decides_as_the_configuration_says(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by: str
) -> None:
    """A disk that names its node by matchFields is any node's, unless they are enforced."""
    disk = volume("disk", "5Gi", "node-0")
    named = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["node-9"]}]}
    disk["spec"]["nodeAffinity"] = {"required": {"nodeSelectorTerms": [named]}}
    disk["status"] = {"phase": "Available"}
    objects, config = tmp_path / "objects.yaml", tmp_path / "config.yaml"
    objects.write_text(yaml.safe_dump_all([LOCAL, node("node-0"), disk, claim("data", "4Gi"), pod("db", "data")]))
    config.write_text("profile: strict\nprofiles: [{name: strict, pvMatchFields: enforce}]\n")
    assert run("explain", "pod", "db", "-f", str(objects)).code == 0
    if by == "--config":
        ran = run("explain", "pod", "db", "-f", str(objects), "--config", str(config))
    else:
        monkeypatch.setenv("VOLSCHED_CONFIG", str(config))
        ran = run("explain", "pod", "db", "-f", str(objects))
    assert ran.code == 4
    assert "profile strict" in ran.out
    assert "disk: node-affinity: wanted reachable from node-0, got metadata.name In [node-9]" in ran.out
    both = run("explain", "pod", "db", "-f", str(objects), "--config", str(config), "--profile", "parity")
    assert both.code == 2


def test_a_pod_that_fits_nowhere_shows_rule_wanted_and_got(run: Run) -> None:
    ran = run("explain", "pod", "shop/analytics-0", "-f", str(EXAMPLE))
    assert ran.code == 4
    assert "free-storage: wanted 600Gi free; got csi/zone-a: 500Gi in all" in ran.out
    assert "disk-b1-0: capacity: wanted at least 150Gi, got 80Gi" in ran.out


def test_json_says_the_same(run: Run) -> None:
    told = json.loads(run("explain", "pod", "shop/db-0", "-f", str(EXAMPLE), "-o", "json").out)
    assert told["chosen"]["node"] == "node-a1"
    (group,) = told["refused"]
    assert (group["plugin"], group["count"]) == ("VolumeBinding", 3)
    assert group["nodes"] == ["node-a2", "node-b1", "node-c1"]
    assert told["past"] is None


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


def test_the_smallest_changes_that_would_help_are_reported_the_smallest_first(run: Run) -> None:
    told = json.loads(run("explain", "pod", "shop/analytics-0", "-f", str(EXAMPLE), "-o", "json").out)
    assert [it["changes"][0]["text"] for it in told["remedies"][:2]] == [
        "raise the capacity of csi/zone-a for class zonal from 500Gi to 600Gi",
        "recreate claim shop/scratch-analytics-0: ask for 500Gi instead of 600Gi",
    ]
    first = told["remedies"][0]
    assert (first["objects"], first["bytes"], first["node"]) == (
        ["CSIStorageCapacity/csi/zone-a"], 100 * 2**30, "node-a1",
    )  # fmt: skip
    ran = run("explain", "pod", "shop/analytics-0", "-f", str(EXAMPLE))
    assert "  1. raise the capacity of csi/zone-a for class zonal from 500Gi to 600Gi → node-a1" in ran.out


def test_a_remedy_that_was_shown_helps_when_it_is_made(run: Run, tmp_path: Path) -> None:
    documents = list(yaml.safe_load_all(EXAMPLE.read_text()))
    (zone_a,) = [it for it in documents if it["metadata"]["name"] == "zone-a"]
    zone_a["capacity"] = "600Gi"
    changed = tmp_path / "changed.yaml"
    changed.write_text(yaml.safe_dump_all(documents))
    assert run("explain", "pod", "shop/analytics-0", "-f", str(changed)).code == 0
    zone_a["capacity"] = "599Gi"
    changed.write_text(yaml.safe_dump_all(documents))
    assert run("explain", "pod", "shop/analytics-0", "-f", str(changed)).code == 4


def test_a_change_for_one_node_is_one_that_this_node_needs(run: Run) -> None:
    """The pod fits elsewhere already; the question is about this node."""
    words = ("explain", "pod", "shop/db-0", "-f", str(EXAMPLE), "--node", "node-a2", "-o", "json")
    told = json.loads(run(*words).out)
    assert {it["node"] for it in told["remedies"]} == {"node-a2"}
    assert all(len(it["changes"]) > 1 for it in told["remedies"])


def test_nodes_that_other_plugins_refuse_are_grouped_too(run: Run, tmp_path: Path) -> None:
    taint = {"key": "gpu", "value": "yes", "effect": "NoSchedule"}
    cordoned = [{**node(name), "spec": {"unschedulable": True}} for name in ("n1", "n2")]
    path = tmp_path / "c.yaml"
    path.write_text(yaml.safe_dump_all([*cordoned, {**node("n3"), "spec": {"taints": [taint]}}, pod("app")]))
    told = json.loads(run("explain", "pod", "app", "-f", str(path), "-o", "json").out)
    assert [(it["plugin"], it["count"], it["nodes"]) for it in told["refused"]] == [
        ("NodeUnschedulable", 2, ["n1", "n2"]),
        ("TaintToleration", 1, ["n3"]),
    ]
    assert "uncordon node n1" in [it["changes"][0]["text"] for it in told["remedies"]]


# --- on a store -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def db(tmp_path_factory: pytest.TempPathFactory, migrated_file: Path) -> str:
    """One pod is bound, one waits, and one was put on its node by hand. Nobody writes to it."""
    objects = [
        LOCAL, node("n1"), node("n2"), volume("small", "5Gi", "n1"), volume("large", "9Gi", "n2"),
        claim("data", "4Gi"), pod("db", "data"), claim("more", "20Gi"), pod("late", "more"),
        claim("own", "1Gi"), on_node(pod("fixed", "own"), "n2"),
    ]  # fmt: skip
    path = tmp_path_factory.mktemp("explained") / "store.db"
    shutil.copyfile(migrated_file, path)
    with unsynced_store(path) as database:
        Stepped(database, objects).settle()
    return str(path)


def test_a_bound_pod_shows_what_was_decided_then_and_what_would_be_now(run: Run, db: str) -> None:
    ran = run("explain", "pod", "db", "--db", db)
    assert ran.code == 0
    assert "decided then: attempt " in ran.out
    assert "  chose n1 with score 90" in ran.out
    assert "  next best: n2 (72)" in ran.out
    assert "    default/data → small (bound)" in ran.out
    assert "if it were scheduled now, 2 nodes" in ran.out
    assert "  default/data is bound to small" in ran.out
    past = json.loads(run("explain", "pod", "db", "--db", db, "-o", "json").out)["past"]
    assert (past["node"], past["binding"]["state"], past["outcome"]) == ("n1", "committed", "planned")
    assert past["decidedAt"] > 0


def test_a_pod_on_a_node_that_was_deleted_says_so(run: Run, db: str, tmp_path: Path) -> None:
    copy = str(tmp_path / "copy.db")
    shutil.copyfile(db, copy)
    assert run("delete", "node", "n1", "--db", copy).code == 0
    assert "pod default/db, on node n1, which does not exist\n" in run("explain", "pod", "db", "--db", copy).out
    assert json.loads(run("explain", "pod", "db", "--db", copy, "-o", "json").out)["nodeGone"]
    assert "nodeGone" not in run("explain", "pod", "db", "--db", db, "-o", "json").out


def test_a_pod_put_by_hand_on_a_node_that_does_not_exist_is_explained(run: Run, db: str, tmp_path: Path) -> None:
    copy = str(tmp_path / "copy.db")
    shutil.copyfile(db, copy)
    node = json.loads(run("explain", "pod", "fixed", "--db", copy, "-o", "json").out)["node"]
    assert run("delete", "node", node, "--db", copy).code == 0
    ran = run("explain", "pod", "fixed", "--db", copy)
    assert ran.code == 4
    assert f"on node {node}, which does not exist\n" in ran.out
    assert f"{node} cannot serve its claims; delete the pod and create it without spec.nodeName" in ran.out


def test_a_waiting_pod_shows_the_stored_refusal_and_a_fresh_one(run: Run, db: str) -> None:
    ran = run("explain", "pod", "late", "--db", db)
    assert ran.code == 4
    then, now = ran.out.split("\nnow, ")
    assert "decided then: attempt " in then
    assert "0/2 nodes are available" in then
    assert "0/2 nodes are available" in now
    assert "add a PersistentVolume of at least 20Gi" in now


def test_a_pod_put_on_its_node_by_hand_gets_the_reason_why_its_claims_stay_pending(run: Run, db: str) -> None:
    ran = run("explain", "pod", "fixed", "--db", db)
    assert ran.code == 4
    assert "default/own: its node was set by hand (spec.nodeName)" in ran.out
    assert "create it without spec.nodeName" in ran.out


def test_a_pod_that_is_not_there_yet_is_laid_over_the_store(run: Run, db: str, tmp_path: Path) -> None:
    """It sees what the bound pod has taken; the store is not touched."""
    before = run("verify", "--db", db).out
    file = tmp_path / "pod.yaml"
    file.write_text(yaml.safe_dump_all([claim("new", "4Gi"), pod("new", "new")]))
    ran = run("explain", "pod", "new", "-f", str(file), "--db", db)
    assert (ran.code, "default/new gets large (9Gi for 4Gi)" in ran.out) == (0, True)
    assert "decided then" not in ran.out
    assert run("explain", "pod", "new", "--db", db).code == 3
    assert run("verify", "--db", db).out == before


def test_claims_that_a_hypothetical_pod_would_make_are_made(run: Run, db: str, tmp_path: Path) -> None:
    template = {"spec": claim("any", "4Gi")["spec"]}
    wanting = pod("eph")
    wanting["spec"]["volumes"] = [{"name": "scratch", "ephemeral": {"volumeClaimTemplate": template}}]
    file = tmp_path / "pod.yaml"
    file.write_text(yaml.safe_dump(wanting))
    ran = run("explain", "pod", "eph", "-f", str(file), "--db", db)
    assert (ran.code, "default/eph-scratch gets large" in ran.out) == (0, True)


def test_a_pod_whose_binding_is_under_way_is_not_taken_for_one_put_there_on_node(
    run: Run, tmp_path: Path, sqlite: Database
) -> None:
    stepped = Stepped(sqlite, [LOCAL, node("n1"), volume("disk", "5Gi", "n1"), claim("data", "4Gi")])
    stepped.settle()
    stepped.create(pod("db", "data"))
    stepped.plan_and_write()
    ran = run("explain", "pod", "db", "--db", str(tmp_path / "store.db"))
    assert (ran.code, "is under way for it" in ran.out, "by hand" in ran.out) == (0, True, False)


def test_a_pod_that_is_not_there_is_named_with_near_names(run: Run, db: str) -> None:
    ran = run("explain", "pod", "lat", "--db", db)
    assert (ran.code, 'pod "default/lat" is not in the store; pods there: default/late' in ran.err) == (3, True)


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["explain", "pod", "shop/gone"], 3, 'pod "shop/gone" is not in the manifests; pods there: shop/'),
        (["explain", "pod", "db-0"], 3, 'pod "default/db-0"'),
        (["explain", "pod", "shop/db-0", "--node", "gone"], 3, 'node "gone" is not in the manifests'),
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
    """Where they differ; what is the same to the last field was dumped twice, and only apply minds it."""
    (tmp_path / "again.yaml").write_bytes(EXAMPLE.read_bytes())
    (tmp_path / "folder.yaml").mkdir()
    words = ("-f", str(EXAMPLE), "-f", str(tmp_path))
    applied = run("apply", "--db", str(tmp_path / "new.db"), *words)
    (tmp_path / "again.yaml").write_text(EXAMPLE.read_text().replace("metadata: {", "metadata: {uid: other, "))
    for ran in (applied, run("validate", *words)):
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
    assert all(row["ratio"] > 0 and "growth" in row for row in rows)
    assert {row["cluster"]: row["feasible"] for row in rows if row["claims"] == 1} == {
        "local": 3,
        "local, uneven": 3,
        "zonal": 3,
        "dynamic": 2,
        "capacity": 3,
        "bound": 1,
        "local, constrained": 0,
    }
    assert "ratio" in run("bench", "decide", "--nodes", "3", "--repeat", "1").out


def test_a_field_that_apply_would_refuse_is_refused(run: Run) -> None:
    misspelt = b"{apiVersion: v1, kind: Node, metadata: {name: n1}, spec: {taintz: []}}"
    ran = run("validate", "-f", "-", stdin=misspelt)
    assert (ran.code, ran.out) == (1, "")
    assert 'Node "n1": unknown field "spec.taintz" (did you mean spec.taints?)' in " ".join(ran.err.split())


def test_a_pod_that_a_stateful_set_would_make_is_explained_before_it_is_there(run: Run, tmp_path: Path) -> None:
    """From manifests alone, from a store whose controller has not come to it, and as what adding the set makes."""
    example = EXAMPLE.with_name("zonal-statefulset.yaml")
    ran = run("explain", "pod", "shop/db-2", "-f", str(example))
    assert (ran.code, "pod shop/db-2, which statefulset shop/db would make" in ran.out) == (0, True)
    assert "shop/data-db-2 gets a new volume of class zonal (10Gi)" in ran.out
    beyond = run("explain", "pod", "shop/db-3", "-f", str(example))
    assert (beyond.code, "is not in the manifests" in beyond.err) == (3, True)
    db = str(tmp_path / "new.db")
    assert run("apply", "-f", str(example), "--db", db).code == 0
    assert "fits on" in run("explain", "pod", "shop/db-1", "--db", db).out
    everything = list(yaml.safe_load_all(example.read_text()))
    (tmp_path / "set.yaml").write_text(
        yaml.safe_dump(next(it for it in everything if it["kind"] == "StatefulSet"))
    )
    others = yaml.safe_dump_all([it for it in everything if it["kind"] != "StatefulSet"]).encode()
    told = run("simulate", "--add", str(tmp_path / "set.yaml"), "-f", "-", "-o", "json", stdin=others)
    placed = json.loads(told.out)["placed"]
    assert [it["pod"] for it in placed] == ["shop/db-0", "shop/db-1", "shop/db-2"]
    assert len({it["to"] for it in placed}) == 3
