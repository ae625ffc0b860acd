"""The verbs that act on a real cluster: what they refuse, and a gate that a person removes."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.conftest import unsynced
from tests.support.attached_cluster import gated, kubeconfig_for
from tests.support.serving import Served, served
from volsched.cli.app import app
from volsched.kube.meta import GATE, GAVE_UP
from volsched.log.database import open_database


@pytest.fixture
def strict(tmp_path: Path, migrated_file: Path) -> Iterator[Served]:
    theirs = open_database(f"sqlite:///{shutil.copyfile(migrated_file, tmp_path / 'theirs.db')}")
    unsynced(theirs)
    with served(theirs, strict=True) as running:
        kubeconfig_for(running.url, tmp_path / "config")
        yield running
    theirs.close()


def test_a_person_removes_our_gate_from_one_pod_or_from_all(strict: Served, tmp_path: Path) -> None:
    strict.create(gated("a"), gated("b", others=("example.com/quota",)), gated("c"))

    def run(*words: str) -> tuple[int, str]:
        done = CliRunner().invoke(app, ["ungate", *words, "--kubeconfig", str(tmp_path / "config")])
        return done.exit_code, done.output

    def pod(name: str) -> dict[str, object]:
        return dict(strict.http.get(f"/api/v1/namespaces/default/pods/{name}").json())

    assert run("default/a")[0] == 0
    assert not pod("a")["spec"].get("schedulingGates")  # type: ignore[attr-defined]
    code, said = run("default/a")
    assert (code, GATE in said) == (3, True)
    assert run()[0] == 2
    assert run("--all", "default/b")[0] == 2
    code, said = run("--all")
    assert (code, "pod/default/b ungated" in said) == (0, True)
    assert pod("b")["spec"]["schedulingGates"] == [{"name": "example.com/quota"}]  # type: ignore[index]
    assert GAVE_UP in pod("c")["metadata"]["annotations"]  # type: ignore[index]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["attach", "--mode", "gate", "--take-over-default-scheduler"], "gate mode places no pods"),
        (["attach", "--mode", "own", "--kubeconfig", "/nowhere"], "/nowhere"),
        (["manifests", "--flow-schema"], "a mode that acts"),
    ],
)
def test_what_cannot_be_is_refused_with_a_remedy(words: list[str], said: str) -> None:
    done = CliRunner().invoke(app, words)
    assert (done.exit_code, said in done.output) == (2, True), done.output
