"""`--config` and `VOLSCHED_CONFIG`: the same pods, decided as the file says."""

import json
from pathlib import Path

import pytest
import yaml

from tests.cli.conftest import Run
from tests.support.clusters import LOCAL, claim, node, pod, volume
from tests.support.patience import HANG_SECONDS

TAINTED = {**node("node-0"), "spec": {"taints": [{"key": "gpu", "value": "yes", "effect": "NoSchedule"}]}}
CLUSTER = (LOCAL, TAINTED, volume("disk", "5Gi", "node-0"), claim("data", "4Gi"), pod("db", "data"))
BLIND = "profile: blind\nprofiles: [{name: blind, plugins: {TaintToleration: {enabled: false}}}]\n"


@pytest.fixture
def db(tmp_path: Path, store_file: Path, run: Run) -> str:
    path, manifests = str(store_file), tmp_path / "cluster.yaml"
    manifests.write_text(yaml.safe_dump_all(CLUSTER))
    assert run("apply", "-f", str(manifests), "--db", path).code == 0
    return path


def node_of(run: Run, db: str, *options: str) -> str | None:
    told = json.loads(run("schedule", "--db", db, "--timeout", str(HANG_SECONDS), "-o", "json", *options).out)
    (found,) = told["pods"]
    return found["node"] or None


def test_a_plugin_that_is_switched_off_refuses_nobody(run: Run, db: str, tmp_path: Path) -> None:
    assert node_of(run, db) is None
    config = tmp_path / "blind.yaml"
    config.write_text(BLIND)
    assert node_of(run, db, "--config", str(config)) == "node-0"


def test_the_environment_names_a_configuration_too(
    run: Run, db: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tmp_path / "blind.yaml"
    config.write_text(BLIND)
    monkeypatch.setenv("VOLSCHED_CONFIG", str(config))
    assert node_of(run, db) == "node-0"


def test_every_mistake_in_the_file_is_reported_and_nothing_is_scheduled(run: Run, db: str, tmp_path: Path) -> None:
    config = tmp_path / "wrong.yaml"
    config.write_text("profile: none\ntimeouts: {bindSeconds: 5}\nprofiles: [{name: parity}]\n")
    ran = run("schedule", "--db", db, "--config", str(config))
    assert ran.code == 2
    assert f'{config}: profile: there is no profile "none"; name one of: parity, volsched' in ran.err
    assert f'{config}: profiles[0].name: there is a profile "parity" already; give it another name' in ran.err
