"""The verbs that act on a real cluster: what they refuse, and a gate that a person removes."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from time import monotonic

import pytest
from typer.testing import CliRunner

from tests.cluster.conftest import over_http
from tests.support.attached_cluster import gated, kubeconfig_for
from tests.support.serving import Served, strict_cluster
from tests.support.store_samples import NOW
from volsched.cli.app import app
from volsched.cli.attachment import AttachMode, attachment_to
from volsched.cluster.installation_lock import InstallationLock
from volsched.cluster.observer import ClusterObserver
from volsched.cluster.permissions import LOCKS, OWN
from volsched.kube.meta import GATE, GAVE_UP
from volsched.log.database import Database
from volsched.runtime.clock import system_clock
from volsched.runtime.runner import looping


@pytest.fixture
def strict(tmp_path: Path) -> Iterator[Served]:
    with strict_cluster() as running:
        kubeconfig_for(running.url, tmp_path / "config")
        yield running


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


def test_a_second_installation_refuses_to_act_on_the_same_cluster(
    strict: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    strict.namespace("kube-system")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    with over_http(strict.url, kinds=(), mode="own") as cluster:
        rival = InstallationLock(cluster, LOCKS[OWN], lambda: "the-other", clock=system_clock, monotonic=monotonic)
        rival.step()
        with looping(rival.step, clock=system_clock, name="rival", failed=lambda _: None):
            words = ["attach", "--mode", "own", "--kubeconfig", str(tmp_path / "config"), "--port", "0"]
            done = CliRunner().invoke(app, words)
    assert done.exit_code == 7, done.output
    assert "held by another installation, the-other" in done.output.replace("\n", " ")
    assert rival.is_held()


@pytest.fixture
def mirror(strict: Served, sqlite: Database) -> str:
    """The URL of a store in which own mode decides for the cluster."""
    strict.namespace("kube-system")
    with over_http(strict.url, kinds=(), mode=OWN) as cluster:
        ClusterObserver(sqlite, cluster, mode=OWN).attach(cluster.describe(), NOW)
    return str(sqlite.engine.url)


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["attach", "--mode", "gate", "--kubeconfig", "CONFIG", "--port", "0"], 7, "decides in mode own"),
        (["serve", "scheduler", "--cluster", "gate", "--kubeconfig", "CONFIG"], 7, "decides in mode own"),
        (["attach", "--mode", "advise", "--kubeconfig", "CONFIG", "--port", "0"], 7, "another store for mode"),
        (["up", "--port", "0"], 1, "the store mirrors cluster"),
        (["serve", "scheduler"], 1, "serve scheduler --cluster"),
        (["serve", "controller"], 1, "the store mirrors cluster"),
        (["schedule"], 1, "the store mirrors cluster"),
        (["apply", "-f", "MANIFEST"], 1, "change its objects there, with kubectl"),
        (["delete", "node", "n1"], 1, "change its objects there, with kubectl"),
        (["release", "disk-7", "--reason", "wiped"], 1, "change its objects there, with kubectl"),
    ],
    ids=lambda it: " ".join(it[:3]) if isinstance(it, list) else "",
)
def test_the_store_of_an_attached_mode_is_for_that_mode_alone(
    mirror: str, tmp_path: Path, words: list[str], code: int, said: str
) -> None:
    """What is written there is in no cluster, and what one mode has planned another would end in its own way."""
    (tmp_path / "n1.yaml").write_text("{apiVersion: v1, kind: Node, metadata: {name: n1}}")
    given = {"CONFIG": str(tmp_path / "config"), "MANIFEST": str(tmp_path / "n1.yaml")}
    done = CliRunner().invoke(app, [*(given.get(it, it) for it in words), "--db", mirror])
    assert (done.exit_code, said in " ".join(done.output.split())) == (code, True), done.output


def test_pods_of_the_default_scheduler_are_taken_only_where_that_is_asked_for(
    strict: Served, tmp_path: Path
) -> None:
    strict.namespace("kube-system")
    for told, names in ((False, ("volsched",)), (True, ("volsched", "", "default-scheduler"))):
        attachment = attachment_to(tmp_path / "config", None, AttachMode.own, takes_over_default=told)
        with closing(attachment.cluster):
            assert attachment.names == names


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["attach", "--mode", "gate", "--take-over-default-scheduler"], "gate mode places no pods"),
        (["attach", "--mode", "own", "--kubeconfig", "/nowhere"], "/nowhere"),
        (["attach", "--mode", "advise", "--take-over-default-scheduler"], "advise mode places no pods"),
        (["serve", "scheduler", "--cluster", "advise"], "attach --mode advise"),
        (["manifests", "--flow-schema"], "a mode that acts"),
        (["manifests", "--mode", "advise"], "--tls-secret"),
        (
            ["manifests", "--mode", "advise", "--tls-secret", "t", "--owned-class", "fast"],
            "schedulerName volsched",
        ),
        (["manifests", "--mode", "gate", "--owned-class", "fast"], "mode gate never places"),
        (["manifests", "--mode", "own", "--binding-scheduler", "s"], "name them with --owned-class"),
        (["manifests", "--mode", "own", "--owned-class", "a'] || ['"], "--owned-class \"a'] || ['\": must be"),
        (["manifests", "--mode", "own", "--namespace", "Bad_NS"], '--namespace "Bad_NS": must be'),
        (["manifests", "--mode", "own", "--image", ""], '--image "": must be a reference'),
        (["manifests", "--mode", "own", "--to", "chart"], "-o helm and -o kustomize"),
        (["ungate", "db-0", "shop/db-1"], "named NS/POD, as default/db-0: db-0"),
        (["serve", "scheduler", "--context", "prod"], "give --cluster own or gate"),
    ],
)
def test_what_cannot_be_is_refused_with_a_remedy(words: list[str], said: str) -> None:
    done = CliRunner().invoke(app, words)
    assert (done.exit_code, said in done.output) == (2, True), done.output
