"""`volsched up` and `volsched serve api`: real processes, started and stopped as people do it."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import httpx
import pytest
from typer.testing import CliRunner

from tests.support.attached_cluster import ours
from tests.support.clusters import LOCAL, claim, node, pod, volume
from tests.support.patience import HANG_SECONDS, wait_until
from tests.support.serving import collection, said_url
from volsched import Engine
from volsched.api.listener import listen
from volsched.cli.app import app
from volsched.log.database import open_database
from volsched.log.reads.tail import read_head


@contextmanager
def command(*args: str, home: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The process and the URL that it says it serves on."""
    process = subprocess.Popen(
        [sys.executable, "-m", "volsched", *args, "--port", "0"],
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "HOME": str(home)},
    )
    try:
        yield process, said_url(process, "http://127.0.0.1:")
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate(timeout=HANG_SECONDS)


def test_up_is_the_whole_system_and_ends_on_ctrl_c(tmp_path: Path, store_file: Path) -> None:
    with (
        command("up", "--db", str(store_file), home=tmp_path) as (process, url),
        httpx.Client(base_url=url, timeout=HANG_SECONDS) as http,
    ):
        for manifest in (node("n1"), LOCAL, volume("v", "1Gi", "n1"), claim("c", "1Gi"), pod("p", "c")):
            assert http.post(collection(manifest), json=manifest).status_code == 201
        with http.stream("GET", "/api/v1/pods?watch=true") as answer:
            lines = answer.iter_lines()
            next(line for line in lines if '"phase":"Running"' in line)
            process.send_signal(signal.SIGINT)
            # The watch ends as it should, in the middle of nothing.
            assert all(line.endswith("}") for line in lines)
        assert process.wait(HANG_SECONDS) == 0
    with Engine.open(f"sqlite:///{store_file}") as engine:
        by_hand = engine.ask("audit interventions")["items"]
    # And not the namespaces that every cluster has: the server made them.
    assert sorted(it["object"] for it in by_hand) == [
        "claim/default/c", "class/local", "node/n1", "pod/default/p", "volume/v",
    ]  # fmt: skip


def test_what_is_left_out_does_not_act(tmp_path: Path, store_file: Path) -> None:
    with command("up", "--db", str(store_file), "--without", "node-agent", home=tmp_path) as (_, url):
        for manifest in (node("n1"), pod("p")):
            assert (
                httpx.post(f"{url}{collection(manifest)}", json=manifest, timeout=HANG_SECONDS).status_code == 201
            )
        with httpx.stream("GET", f"{url}/api/v1/pods?watch=true", timeout=HANG_SECONDS) as answer:
            placed = next(line for line in answer.iter_lines() if '"nodeName":"n1"' in line)
        assert '"phase":"Pending"' in placed


def test_a_strict_system_leaves_pods_of_volsched_to_what_is_attached_to_it(
    tmp_path: Path, store_file: Path
) -> None:
    """It stands in for a real cluster, whose scheduler is kube-scheduler."""
    with (
        command("up", "--strict", "--db", str(store_file), home=tmp_path) as (_, url),
        httpx.Client(base_url=url, timeout=HANG_SECONDS) as http,
    ):
        for manifest in (node("n1"), ours("ours"), pod("theirs")):
            assert http.post(collection(manifest), json=manifest).status_code == 201
        path = "/api/v1/namespaces/default/pods"
        wait_until(lambda: http.get(f"{path}/theirs").json()["spec"].get("nodeName") == "n1")
        assert "nodeName" not in http.get(f"{path}/ours").json()["spec"]


def test_the_api_of_an_attached_stack_writes_nothing_into_its_store(
    tmp_path: Path, store_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also before its scheduler has begun, which would refuse a store that has objects of its own."""
    monkeypatch.setenv("VOLSCHED_ATTACHED_MODE", "own")
    with command("serve", "api", "--db", str(store_file), home=tmp_path) as (_, url):
        refused = httpx.post(f"{url}{collection(node('n1'))}", json=node("n1"), timeout=HANG_SECONDS)
        assert (refused.status_code, "send it to the cluster itself" in refused.text) == (405, True)
        verified = httpx.post(f"{url}/apis/volsched.io/v1/verify", json={}, timeout=HANG_SECONDS)
        assert verified.status_code == 200, "a question, sent with POST because it may be long"
    with closing(open_database(f"sqlite:///{store_file}")) as database, database.read() as connection:
        assert read_head(connection).position == 0


def test_a_scheduler_and_a_controller_share_the_work_and_end_on_sigterm(tmp_path: Path, store_file: Path) -> None:
    environment = {**os.environ, "HOME": str(tmp_path)}
    with ExitStack() as stack:
        processes = [
            stack.enter_context(
                subprocess.Popen(
                    [sys.executable, "-m", "volsched", "serve", role, "--db", str(store_file)],
                    stderr=subprocess.PIPE, text=True, env=environment,
                )
            )
            for role in ("scheduler", "controller")
        ]  # fmt: skip
        for process in processes:
            stack.callback(process.kill)
            assert process.stderr is not None
            # The lease that one of them takes may be told before.
            assert "at work until Ctrl-C\n" in iter(process.stderr.readline, "")
        with Engine.open(str(store_file)) as engine:
            engine.apply([node("n1"), LOCAL, volume("v", "1Gi", "n1"), claim("c", "1Gi"), pod("p", "c")])
            wait_until(lambda: (engine.get("pod", "p") or {})["status"]["phase"] == "Running")
        for process in processes:
            process.terminate()
        assert [process.wait(HANG_SECONDS) for process in processes] == [0, 0]


@pytest.mark.parametrize("verb", [("up",), ("serve", "api")])
def test_nobody_listens_beyond_loopback(verb: tuple[str, ...], migrated_file: Path) -> None:
    args = [*verb, "--db", str(migrated_file), "--host", "0.0.0.0", "--port", "0"]
    done = CliRunner().invoke(app, args)
    assert done.exit_code == 2
    assert "without TLS" in done.stderr
    assert "volsched certs init" in done.stderr
    assert "--host 127.0.0.1" in done.stderr


def test_a_port_that_is_taken_is_reported(migrated_file: Path) -> None:
    with closing(listen("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        done = CliRunner().invoke(app, ["serve", "api", "--db", str(migrated_file), "--port", port])
    assert done.exit_code == 2
    assert f"port {port}" in done.stderr
    assert "--port" in done.stderr
