"""`from volsched import Engine`, and the examples of the library in docs/examples, run as a reader would."""

import json
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from tests.support.clusters import LOCAL, claim, node, pod, volume
from tests.support.patience import HANG_SECONDS
from volsched import Engine
from volsched.cli.app import app
from volsched.core import VOLSCHED, attempt, snapshot_of
from volsched.library import Change, RefusedError
from volsched.log.errors import NotMigratedError
from volsched.log.events.streams import UnknownKindError
from volsched.model import ManifestError, load_manifests
from volsched.objects.rules.object_events import NotFoundError

ROOT = Path(__file__).parents[1]
EXAMPLES = ROOT / "docs" / "examples"
CLUSTER = (LOCAL, node("node-0"), volume("disk", "5Gi", "node-0"), claim("data", "4Gi"), pod("db", "data"))


@pytest.fixture
def store(store_file: Path) -> str:
    return str(store_file)


@pytest.fixture
def engine(store: str) -> Iterator[Engine]:
    with Engine.open(store) as opened:
        yield opened


def test_to_import_volsched_loads_nothing_else() -> None:
    code = "import sys, volsched; print([it for it in ('sqlalchemy', 'pydantic', 'typer') if it in sys.modules])"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert ran.stdout == "[]\n"


def test_the_package_says_that_it_is_typed() -> None:
    assert (ROOT / "volsched" / "py.typed").exists()


def test_a_pod_is_placed_and_its_story_told(engine: Engine) -> None:
    done = engine.apply(CLUSTER, reason="a first try")
    assert done[0] == Change("StorageClass", "local", "created")
    assert engine.run_until_idle(timeout=HANG_SECONDS)
    placed = engine.get("pod", "default/db")
    assert placed is not None
    assert (placed["kind"], placed["spec"]["nodeName"]) == ("Pod", "node-0")
    assert engine.get("pvc", "data") == engine.get("PersistentVolumeClaim", "default/data")
    assert [it["metadata"]["name"] for it in engine.objects("bindings")] == [
        it["binding"] for it in engine.history("pod/db") if it["type"] == "PodAssumed"
    ]
    told = engine.history("pv/disk")
    assert (told[0]["type"], told[0]["actor"], told[0]["reason"]) == ("VolumeCreated", "library", "a first try")
    assert [it["position"] for it in told] == sorted(it["position"] for it in told)


def test_a_pod_that_waits_is_explained_and_placed_when_there_is_room(engine: Engine) -> None:
    engine.apply([LOCAL, node("node-0"), claim("data", "4Gi"), pod("db", "data")])
    assert engine.run_until_idle(timeout=HANG_SECONDS)
    told = engine.explain("db")
    assert (told["fits"], told["past"]["outcome"]) == (False, "unschedulable")
    assert "didn't find available persistent volumes" in told["message"]
    engine.apply(yaml.safe_dump(volume("disk", "5Gi", "node-0")))
    assert engine.run_until_idle(timeout=HANG_SECONDS)
    assert engine.explain("default/db")["node"] == "node-0"


def test_what_was_decided_for_a_pod_and_not_carried_out_is_dropped(engine: Engine, store: str) -> None:
    engine.apply([LOCAL, node("node-0"), volume("disk", "5Gi", "node-0"), claim("data", "4Gi")])
    assert engine.run_until_idle(timeout=HANG_SECONDS)
    engine.apply([pod("db", "data")])
    assert not engine.delete_pod_bindings("db")
    made = subprocess.run(
        [sys.executable, "-m", "volsched", "reservations", "create", "default/db", "--db", store],
        capture_output=True, text=True, cwd=ROOT,
    )  # fmt: skip
    assert made.returncode == 0, made.stderr
    (held,) = engine.objects("bindings")
    assert held["status"]["state"] == "reserved"
    assert engine.delete_pod_bindings("default/db", reason="given up")
    (ended,) = engine.objects("bindings")
    assert (ended["status"]["state"], ended["status"]["reason"]) == ("rolled-back", "given up")
    assert not engine.delete_pod_bindings("default/db")
    assert not engine.delete_pod_bindings("nobody/knows")
    # Free again, for whoever comes next.
    assert engine.run_until_idle(timeout=HANG_SECONDS)
    assert (engine.get("pod", "db") or {})["spec"]["nodeName"] == "node-0"
    assert not engine.delete_pod_bindings("db")


def test_manifests_may_be_text_bytes_one_or_many(engine: Engine) -> None:
    assert [it.done for it in engine.apply(node("a"))] == ["created"]
    assert [it.done for it in engine.apply(yaml.safe_dump_all([node("a"), node("b")]))] == ["unchanged", "created"]
    assert [it.done for it in engine.apply(json.dumps(node("b", rack="1")).encode())] == ["configured"]
    assert [it.key for it in engine.apply(it for it in [node("c")])] == ["c"]


def test_wrong_manifests_write_nothing_and_refused_ones_keep_nobody_back(engine: Engine) -> None:
    with pytest.raises(ManifestError, match="provisioner"):
        engine.apply([node("a"), {**LOCAL, "provisioner": 7}])
    assert engine.objects("nodes") == []
    misspelt = {**claim("data", "1Gi"), "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"request": {}}}}
    with pytest.raises(ManifestError, match=r"did you mean spec\.resources\.requests\?"):
        engine.apply(misspelt)
    engine.apply(LOCAL)
    with pytest.raises(RefusedError, match="provisioner") as refused:
        engine.apply([{**LOCAL, "provisioner": "other.example.com"}, node("a")])
    assert refused.value.done == [Change("Node", "a", "created")]
    assert len(refused.value.refusals) == 1


def test_deleting_says_whether_it_is_gone(engine: Engine) -> None:
    engine.apply([LOCAL, node("a"), claim("data", "1Gi")])
    assert engine.delete("node", "a", reason="sold")
    assert engine.history("node/a")[-1]["reason"] == "sold"
    assert not engine.delete("pvc", "data")
    with pytest.raises(NotFoundError):
        engine.delete("node", "a")
    with pytest.raises(ValueError, match="history"):
        engine.delete("binding", "a")


def test_what_is_not_there_is_none_or_said(engine: Engine) -> None:
    assert engine.get("pod", "db") is None
    for ask in (engine.explain, lambda it: engine.history(f"pod/{it}")):
        with pytest.raises(LookupError):
            ask("default/db")
    with pytest.raises(UnknownKindError, match="did you mean"):
        engine.get("pods2", "db")


def test_a_store_is_made_only_when_that_is_said(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'new.db'}"
    with pytest.raises(NotMigratedError, match="volsched migrate"):
        Engine.open(url)
    with Engine.open(url, migrate=True) as made:
        made.apply(node("a"))
    with Engine.open(url) as again:
        assert [it["metadata"]["name"] for it in again.objects("no")] == ["a"]


def test_two_engines_share_a_store(engine: Engine, store: str) -> None:
    engine.apply(CLUSTER)
    with Engine.open(store) as other:
        assert other.run_until_idle(timeout=HANG_SECONDS)
    assert engine.run_until_idle(timeout=HANG_SECONDS)
    placed = engine.get("pod", "db")
    assert placed is not None
    assert placed["spec"]["nodeName"] == "node-0"


# --- the examples ---------------------------------------------------------------------------------------


def test_the_custom_scheduler_finds_scores_assumes_and_binds() -> None:
    script = [sys.executable, "docs/examples/custom_scheduler.py", "docs/examples/three-zones.yaml"]
    ran = subprocess.run(script, capture_output=True, text=True, check=True, cwd=ROOT)
    assert ran.stdout.splitlines() == [
        "shop/analytics-0 → nowhere",
        "shop/db-0 → node-a1",
        "  PersistentVolume disk-a1-1: claimRef shop/journal-db-0",
        "  PersistentVolume disk-a1-0: claimRef shop/data-db-0",
        "  PersistentVolumeClaim shop/backup-db-0: selected-node annotation",
    ]


def test_the_custom_scheduler_says_of_manifests_what_the_system_makes_of_them() -> None:
    """Volumes that people write have no phase, and no controller is here to give them one."""
    script = [sys.executable, "docs/examples/custom_scheduler.py", "docs/examples/local-database.yaml"]
    ran = subprocess.run(script, capture_output=True, text=True, check=True, cwd=ROOT)
    placed = [line for line in ran.stdout.splitlines() if not line.startswith(" ")]
    assert placed == ["shop/db-0 → node-a", "shop/db-1 → nowhere"]


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.yaml")), ids=lambda it: it.stem)
def test_the_rules_as_a_library_answer_as_explain_does(path: Path) -> None:
    snapshot = snapshot_of(it.value for it in load_manifests(path.read_bytes(), source=path.name))
    for key, asked_about in snapshot.pods.items():
        decision = attempt(snapshot, asked_about, profile=VOLSCHED)
        words = ["explain", "pod", key, "-f", str(path), "-o", "json"]
        chosen = json.loads(CliRunner().invoke(app, words).stdout)["chosen"]
        assert (decision.chosen and decision.chosen.node) == (chosen and chosen["node"]), key


def test_the_custom_scheduler_gives_no_volume_twice(tmp_path: Path) -> None:
    disks = [volume(f"disk-{it}", "5Gi", f"node-{it}") for it in range(2)]
    pods = [(claim(f"data-{it}", "1Gi"), pod(f"db-{it}", f"data-{it}")) for it in range(3)]
    nodes = [node("node-0"), node("node-1")]
    for disk in disks:
        disk["status"] = {"phase": "Available"}
    path = tmp_path / "cluster.yaml"
    path.write_text(yaml.safe_dump_all([LOCAL, *nodes, *disks, *(it for pair in pods for it in pair)]))
    script = [sys.executable, str(EXAMPLES / "custom_scheduler.py"), str(path)]
    ran = subprocess.run(script, capture_output=True, text=True, check=True, cwd=ROOT)
    placed = [line for line in ran.stdout.splitlines() if not line.startswith(" ")]
    assert placed == ["default/db-0 → node-0", "default/db-1 → node-1", "default/db-2 → nowhere"]


def asked(url: str, data: bytes | None = None) -> tuple[int, Any]:
    try:
        with urllib.request.urlopen(url, data, timeout=HANG_SECONDS) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def test_the_embedded_service_places_what_it_is_given(tmp_path: Path) -> None:
    script = [sys.executable, "docs/examples/embedded_service.py", str(tmp_path / "placements.db"), "0"]
    with subprocess.Popen(
        script, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, cwd=ROOT
    ) as service:
        try:
            assert service.stdout is not None
            url = service.stdout.readline().strip()
            code, told = asked(url, (EXAMPLES / "two-disks.yaml").read_bytes())
            assert (code, told["objects"]["Pod/default/db"], told["settled"]) == (200, "created", True)
            assert asked(f"{url}/default/db") == (200, {"node": "node-1"})
            history = asked(f"{url}/default/db/history")[1]
            assert "placement-service" in history[0]
            asked(url, yaml.safe_dump(pod("more", "none")).encode())
            assert "not found" in asked(f"{url}/default/more")[1]["why"]
            assert asked(f"{url}/default/nobody")[0] == 404
            assert asked(url, b"kind: Nothing")[0] == 422
            service.send_signal(signal.SIGINT)
            assert service.wait(timeout=HANG_SECONDS) == 0
        finally:
            # Whatever went wrong, nobody waits for it for ever.
            service.kill()
