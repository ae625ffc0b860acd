"""`volsched apply`, `schedule`, `recover`, `effects`: from manifests to bound pods, and what to do if it fails."""

import json
from pathlib import Path

import pytest
import yaml

from tests.cli.conftest import Run
from tests.support.clusters import LOCAL, Stepped, claim, node, pod, volume
from tests.support.half_done import CLUSTER, half_done
from tests.support.parked_effects import parked_prebind
from volsched.log.database import open_database
from volsched.runtime.clock import SECOND


@pytest.fixture
def manifests(tmp_path: Path) -> str:
    path = tmp_path / "cluster.yaml"
    path.write_text(yaml.safe_dump_all(CLUSTER))
    return str(path)


def test_apply_says_what_it_did_to_every_object(run: Run, db: str, manifests: str) -> None:
    first = run("apply", "-f", manifests, "--db", db)
    assert (first.code, first.out.splitlines()[0]) == (0, "storageclass/local created")
    again = run("apply", "-f", manifests, "--db", db)
    assert {line.rpartition(" ")[2] for line in again.out.splitlines()} == {"unchanged"}


def test_apply_changes_what_the_manifest_says_and_nothing_else(run: Run, db: str, tmp_path: Path) -> None:
    path = tmp_path / "node.yaml"
    path.write_text(yaml.safe_dump(node("node-0", rack="r1")))
    run("apply", "-f", str(path), "--db", db)
    path.write_text(yaml.safe_dump({**node("node-0"), "metadata": {"name": "node-0", "labels": {"zone": "a"}}}))
    assert run("apply", "-f", str(path), "--db", db).out == "node/node-0 configured\n"
    database = open_database(f"sqlite:///{db}")
    labels = (Stepped(database).cluster.get("Node", "node-0") or {})["metadata"]["labels"]
    database.close()
    assert labels == {"kubernetes.io/hostname": "node-0", "rack": "r1", "zone": "a"}


def test_apply_refuses_a_volume_of_a_claim_it_does_not_know(run: Run, db: str, tmp_path: Path) -> None:
    taken = volume("disk", "5Gi", "node-0")
    taken["spec"]["claimRef"] = {"namespace": "default", "name": "data", "uid": "from-elsewhere"}
    path = tmp_path / "volume.yaml"
    path.write_text(yaml.safe_dump_all([taken, node("node-0")]))
    ran = run("apply", "-f", str(path), "--db", db)
    assert ran.code == 1
    assert "spec.claimRef.uid" in ran.err
    assert "leave the uid out" in ran.err
    assert ran.out == "node/node-0 created\n"


def test_apply_refuses_a_change_that_the_api_would_refuse(
    run: Run, db: str, manifests: str, tmp_path: Path
) -> None:
    run("apply", "-f", manifests, "--db", db)
    path = tmp_path / "changed.yaml"
    path.write_text(yaml.safe_dump({**LOCAL, "provisioner": "another.example.com"}))
    ran = run("apply", "-f", str(path), "--db", db)
    assert ran.code == 1
    assert "provisioner" in ran.err


def test_schedule_binds_the_pods_and_says_so(run: Run, db: str, manifests: str) -> None:
    run("apply", "-f", manifests, "--db", db)
    ran = run("schedule", "--db", db)
    assert ran.code == 0
    assert "data → disk" in ran.out
    assert "1 of 1 pods have a node; bindings: 1 committed" in ran.out
    told = json.loads(run("schedule", "--db", db, "-o", "json").out)
    assert told["pods"] == [{"pod": "default/db", "node": "node-0", "claims": {"data": "disk"}, "state": "bound"}]
    assert run("verify", "--db", db).code == 0


def test_schedule_says_why_a_pod_waits(run: Run, db: str, tmp_path: Path) -> None:
    path = tmp_path / "pod.yaml"
    path.write_text(yaml.safe_dump_all([node("node-0"), pod("db", "nowhere")]))
    run("apply", "-f", str(path), "--db", db)
    ran = run("schedule", "--db", db)
    assert ran.code == 0
    assert 'persistentvolumeclaim "nowhere" not found' in ran.out


def test_a_pod_that_no_scheduler_of_ours_will_try_says_whom_it_waits_for(
    run: Run, db: str, tmp_path: Path
) -> None:
    gated, theirs = pod("gated"), pod("theirs")
    gated["spec"]["schedulingGates"] = [{"name": "example.com/quota"}]
    theirs["spec"]["schedulerName"] = "custom"
    path = tmp_path / "pods.yaml"
    path.write_text(yaml.safe_dump_all([node("node-0"), gated, theirs]))
    run("apply", "-f", str(path), "--db", db)
    states = {it["pod"]: it["state"] for it in json.loads(run("schedule", "--db", db, "-o", "json").out)["pods"]}
    assert states == {
        "default/gated": "waiting: held back by scheduling gates",
        "default/theirs": 'waiting: another scheduler (schedulerName "custom")',
    }
    assert 'another scheduler (schedulerName "custom")' in run("status", "--db", db).out


def test_schedule_gives_up_waiting_when_its_time_is_over(run: Run, db: str, tmp_path: Path) -> None:
    made = {**LOCAL, "metadata": {"name": "made"}, "provisioner": "disks.example.com"}
    path = tmp_path / "made.yaml"
    path.write_text(yaml.safe_dump_all([made, node("node-0"), claim("data", "1Gi", "made"), pod("db", "data")]))
    run("apply", "-f", str(path), "--db", db)
    ran = run("schedule", "--db", db, "--timeout", "0.2")
    assert ran.code == 6
    assert "run volsched schedule again" in ran.err


def test_recover_reports_what_was_in_flight(run: Run, db: str) -> None:
    half_done(db)
    rehearsal = run("recover", "--dry-run", "--db", db)
    assert "1 in flight" in rehearsal.out
    assert "would be" in rehearsal.out
    ran = run("recover", "--db", db, "-o", "json")
    told = json.loads(ran.out)
    assert told["inFlight"] == 1
    assert told["bindings"][0]["pod"] == "default/late"
    assert run("recover", "--db", db).code == 0


def test_parked_work_is_listed_retried_and_cancelled(run: Run, db: str) -> None:
    half_done(db)
    database = open_database(f"sqlite:///{db}")
    taken = parked_prebind(database)
    database.close()
    (listed,) = json.loads(run("effects", "list", "--state", "parked", "--db", db, "-o", "json").out)["items"]
    assert (listed["key"], listed["error"]) == (taken.key, "the volume server is on fire")
    assert taken.key in run("effects", "list", "--state", "parked", "--db", db).out
    told = json.loads(run("recover", "--dry-run", "--db", db, "-o", "json").out)
    assert f"volsched effects retry {taken.key}" in [it["detail"].partition("; ")[2] for it in told["bindings"]]
    assert run("effects", "retry", taken.key, "--db", db).code == 0
    assert json.loads(run("effects", "list", "--state", "parked", "--db", db, "-o", "json").out)["items"] == []
    missing = run("effects", "retry", "nothing", "--db", db)
    assert (missing.code, "volsched effects list" in missing.err) == (3, True)


def test_cancelling_parked_work_rolls_its_binding_back(run: Run, db: str) -> None:
    half_done(db)
    database = open_database(f"sqlite:///{db}")
    taken = parked_prebind(database)
    assert run("effects", "cancel", taken.key, "--db", db).code == 0
    stepped = Stepped(database, owner="after")
    stepped.now += 10_000 * SECOND
    stepped.until(lambda: any(row.state == "rolled-back" for row in stepped.bindings()))
    (rolled_back,) = (row for row in stepped.bindings() if row.state == "rolled-back")
    assert rolled_back.reason == "cancelled by an operator"
    stepped.until(lambda: stepped.node_of("late") == "node-0")
    database.close()
