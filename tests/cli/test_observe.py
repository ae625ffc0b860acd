"""A cluster observed and asked live, over HTTP against our own API in its strict form."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.clusters import LOCAL, claim
from tests.support.patience import HANG_SECONDS, wait_until
from tests.support.serving import Served, served
from volsched.api.read_only import is_read
from volsched.cli.kubectl_plugin import plugin_arguments, without_store
from volsched.log.database import Database

CANARY = "c4n4ry"
NODE = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node-1"}, "spec": {"providerID": CANARY}}
CLAIM = claim("data", "1Gi", namespace="shop")
POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "db", "namespace": "shop", "annotations": {"example.com/note": CANARY}},
    "spec": {
        "containers": [{"name": "c", "image": CANARY, "args": [CANARY], "env": [{"name": "A", "value": CANARY}]}],
        "volumes": [
            {"name": "data", "persistentVolumeClaim": {"claimName": "data"}},
            {"name": "s", "secret": {"secretName": CANARY}},
        ],
    },
}


@pytest.fixture
def cluster(sqlite: Database) -> Iterator[Served]:
    with served(sqlite) as running:
        running.namespace("kube-system")
        running.create(LOCAL, NODE, CLAIM, POD)
        yield running


@pytest.fixture
def kubeconfig(cluster: Served, tmp_path: Path) -> Path:
    file = tmp_path / "kubeconfig"
    file.write_text(
        f"""
clusters: [{{name: c, cluster: {{server: "{cluster.url}"}}}}]
contexts: [{{name: x, context: {{cluster: c, namespace: shop}}}}]
current-context: x
"""
    )
    return file


def volsched(*words: Any, program: str = "volsched") -> subprocess.CompletedProcess[str]:
    path = Path(sys.executable).parent / program
    return subprocess.run([path, *map(str, words)], capture_output=True, text=True, check=False)


def test_a_live_cluster_is_asked_and_nothing_is_stored(cluster: Served, kubeconfig: Path, tmp_path: Path) -> None:
    before = cluster.http.get("/api/v1/pods").json()["metadata"]["resourceVersion"]
    told = volsched("explain", "pod", "shop/db", "--live", "--kubeconfig", kubeconfig)
    assert told.returncode == 4, told.stderr
    assert "didn't find available persistent volumes to bind" in told.stdout
    # As kubectl calls it: its flags, and the namespace of its context.
    told = volsched("explain", "pod", "db", "--kubeconfig", kubeconfig, program="kubectl-volsched")
    assert told.returncode == 4, told.stderr
    listed = volsched("get", "pvc", "--kubeconfig", kubeconfig, program="kubectl-volsched")
    assert "data" in listed.stdout, listed.stderr
    lost = volsched("simulate", "--lose-node", "node-1", "--live", "--kubeconfig", kubeconfig)
    assert "pods evicted: 0" in lost.stdout, lost.stderr
    assert cluster.http.get("/api/v1/pods").json()["metadata"]["resourceVersion"] == before
    assert {it.name for it in tmp_path.iterdir() if it.suffix == ".db"} == {"store.db"}


def test_what_is_wrong_with_the_way_to_a_cluster_is_one_line_with_a_remedy(kubeconfig: Path) -> None:
    told = volsched("get", "pods", "--live", "--kubeconfig", kubeconfig, "--context", "nope")
    assert told.returncode == 2
    assert 'no context "nope"; choose one with --context: x' in told.stderr
    told = volsched("get", "pods", "--live", "--kubeconfig", kubeconfig, "--db", "x.db")
    assert told.returncode == 2
    assert "--live and --db name two places" in told.stderr
    assert "Traceback" not in told.stderr


def test_a_cluster_is_followed_answered_for_and_not_written(
    cluster: Served, kubeconfig: Path, tmp_path: Path
) -> None:
    store = tmp_path / "observed.db"
    words = ("observe", "--kubeconfig", kubeconfig, "--db", store, "--port", "0")
    refused = volsched(*words)
    assert refused.returncode == 1
    assert "an observer must not be able to write" in refused.stderr
    path = Path(sys.executable).parent / "volsched"
    command = [path, *map(str, words), "--allow-excess"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            line = next(it for it in process.stderr if it.startswith("observing"))
            url = line.split(" on ")[1].split(" until")[0]
            with httpx.Client(base_url=url) as client:
                wait_until(lambda: client.get("/readyz").status_code == 200)
                assert client.get("/api/v1/namespaces/shop/pods/db").status_code == 200
                changed = {**NODE, "metadata": {"name": "node-2"}}
                cluster.create(changed)
                wait_until(lambda: client.get("/api/v1/nodes/node-2").status_code == 200)
                page = client.get("/", headers={"accept": "text/html"}, follow_redirects=True)
                assert (page.status_code, page.url.path) == (200, "/ui/")
                drawn = client.get("/apis/volsched.io/v1/map", timeout=HANG_SECONDS).json()
                assert {it["name"] for it in drawn["nodes"]} == {"node-1", "node-2"}
                refusal = client.delete("/api/v1/nodes/node-2")
                assert refusal.status_code == 405
                assert "send it to the cluster itself" in refusal.json()["message"]
                metrics = client.get("/metrics").text
                assert "volsched_mirror_last_heard_seconds" in metrics
                assert 'volsched_mirror_drift{kind="Pod"} 0.0' in metrics
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait()
    told = volsched("history", "node", "node-2", "--db", store)
    assert "observer" in told.stdout
    assert CANARY.encode() not in b"".join(it.read_bytes() for it in tmp_path.glob("observed.db*"))


def test_a_recorded_cluster_answers_elsewhere(cluster: Served, kubeconfig: Path, tmp_path: Path) -> None:
    told = volsched("record", "--kubeconfig", kubeconfig)
    assert told.returncode == 0, told.stderr
    assert CANARY not in told.stdout
    assert CANARY in cluster.http.get("/api/v1/pods").text, "it is there to be found"
    case = tmp_path / "case.jsonl"
    case.write_text(told.stdout)
    path = Path(sys.executable).parent / "volsched"
    command = [str(path), "open", str(case), "--port", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            url = next(it for it in process.stderr if it.startswith("open on")).split()[2]
            with httpx.Client(base_url=url) as client:
                wait_until(lambda: client.get("/readyz").status_code == 200)
                assert client.get("/api/v1/namespaces/shop/pods/db").status_code == 200
                assert client.delete("/api/v1/namespaces/shop/pods/db").status_code == 405
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait()


COMPOSITION = """
import gc, os, signal, sys, threading
from urllib.request import urlopen
from volsched.cli.app import app
from volsched.binding.executor import Executor
from volsched.binding.recovery import Sweep
from volsched.cluster.observer import ClusterObserver
from volsched.node_agent.agent import NodeAgent
from volsched.pv_controller.controller import Controller
from volsched.runtime.system import System
from volsched.scheduling.scheduler import Scheduler

ACTING = (Scheduler, Executor, Controller, Sweep, NodeAgent, System)

class Said:
    # What the command prints: where it answers is among it.
    def write(self, text):
        sys.__stderr__.write(text)
        if "observing" in text:
            threading.Thread(target=look, args=(text.split(" on ")[1].split()[0],)).start()
    def flush(self): ...
    def isatty(self): return False

def look(url):
    urlopen(url + "/api/v1/nodes").read()
    urlopen(url + "/metrics").read()
    found = [type(it).__name__ for it in gc.get_objects() if isinstance(it, (*ACTING, ClusterObserver))]
    print(sorted(found), flush=True)
    os.kill(os.getpid(), signal.SIGTERM)

sys.stderr = Said()
app(args=sys.argv[1:], prog_name="volsched")
"""


def test_an_observer_holds_no_scheduler_executor_or_controller(kubeconfig: Path, tmp_path: Path) -> None:
    """The command itself, while it answers: not one object in its process that could act."""
    words = ("observe", "--kubeconfig", kubeconfig, "--db", tmp_path / "o.db", "--port", "0", "--allow-excess")
    told = subprocess.run(
        [sys.executable, "-c", COMPOSITION, *map(str, words)], capture_output=True, text=True, check=False
    )
    assert told.stdout.strip() == "['ClusterObserver']", told.stderr


@pytest.mark.parametrize(
    ("method", "path", "reads"),
    [
        ("GET", "/api/v1/pods", True),
        ("POST", "/apis/volsched.io/v1/simulate", True),
        ("POST", "/apis/volsched.io/v1/explain", True),
        ("POST", "/apis/volsched.io/v1/verify", True),
        ("POST", "/api/v1/namespaces/shop/pods", False),
        ("PATCH", "/api/v1/nodes/n", False),
        ("POST", "/extender/bind", False),
        ("POST", "/apis/volsched.io/v1/namespaces/shop/reservations", False),
    ],
)
def test_an_observers_api_takes_reads_and_questions(method: str, path: str, reads: bool) -> None:
    assert is_read(method, path) is reads


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        (["explain", "pod", "db"], ["explain", "pod", "db", "--namespace", "ctx", "--live"]),
        (["explain", "pod", "shop/db"], ["explain", "pod", "shop/db", "--live"]),
        (["get", "pvc", "-A"], ["get", "pvc", "-A", "--live"]),
        (["get", "pvc", "-nshop"], ["get", "pvc", "-nshop", "--live"]),
        (
            ["get", "pods", "--kubeconfig", "a/b"],
            ["get", "pods", "--kubeconfig", "a/b", "--namespace", "ctx", "--live"],
        ),
        (["simulate", "--drain", "n1"], ["simulate", "--drain", "n1", "--live"]),
        (["get", "pods", "--db", "x.db"], ["get", "pods", "--db", "x.db"]),
        (["--help"], ["--help"]),
    ],
)
def test_the_plugin_asks_live_in_the_namespace_of_the_context(given: list[str], meant: list[str]) -> None:
    assert plugin_arguments(given, lambda *_: "ctx") == meant


@pytest.mark.parametrize(
    "given", [["apply", "-f", "x.yaml"], ["-n", "shop", "history", "pvc", "data"], ["audit", "handovers"]]
)
def test_the_plugin_never_takes_a_store_of_this_user_for_the_cluster(given: list[str]) -> None:
    told = without_store(given, {}) or ""
    assert "not about the cluster" in told
    assert "volsched observe" in told
    assert without_store([*given, "--db", "obs.db"], {}) is None
    assert without_store(given, {"VOLSCHED_SERVER": "http://observer"}) is None


@pytest.mark.parametrize("given", [[], ["--version"], ["get", "pvc"], ["observe"], ["apply", "--help"]])
def test_the_plugin_leaves_alone_what_needs_no_store(given: list[str]) -> None:
    assert without_store(given, {}) is None
