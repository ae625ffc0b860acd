"""`volsched stack`: a real stack of this machine, as a person starts, watches and ends it."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from tests.support.clusters import LOCAL, claim, node, pod, volume
from tests.support.patience import HANG_SECONDS, wait_until
from tests.support.serving import collection
from volsched.lab.stack.handle import Stack
from volsched.lab.stack.local import free_port, prepare
from volsched.lab.stack.states import process_of

COMMAND = [str(Path(sys.executable).parent / "volsched"), "stack"]


def run(*words: str, code: int = 0) -> str:
    ran = subprocess.run([*COMMAND, *words], capture_output=True, text=True, timeout=HANG_SECONDS)
    assert ran.returncode == code, ran.stdout + ran.stderr
    return ran.stdout + ran.stderr


def test_up_status_logs_a_crash_and_down(passable_path: Path) -> None:
    stack, port = Stack(passable_path / "a stack"), free_port()
    where = ("--dir", str(stack.directory))
    try:
        assert "start one with: volsched stack up" in run("status", *where, code=3)
        told = run("up", "-d", "--port", str(port), "--scale", "worker=2", *where)
        assert f"kubectl -s http://127.0.0.1:{port} get pods -A" in told
        assert "a stack runs in" in run("up", "-d", *where, code=7)

        shown = json.loads(run("status", "-o", "json", *where))
        states = {it["name"]: it["state"] for it in shown["items"]}
        assert states.pop("migrate-1") == "done"
        assert set(states.values()) == {"healthy"}
        assert {"worker-1", "worker-2", "postgres-1", "redis-1"} <= set(states)
        assert all(it["residentMiB"] > 0 for it in shown["items"] if it["pid"])
        assert "healthy" in run("status", *where)

        with httpx.Client(base_url=shown["urls"]["api"], timeout=HANG_SECONDS) as http:
            for manifest in (LOCAL, node("n"), volume("pv", "1Gi", "n"), claim("c", "1Gi"), pod("p", "c")):
                assert http.post(collection(manifest), json=manifest).status_code == 201
            path = "/api/v1/namespaces/default/pods/p"
            wait_until(lambda: "nodeName" in http.get(path).json()["spec"], told=lambda: run("logs", *where))

        assert "scheduler-1" in run("logs", "scheduler", *where)
        assert "postgres-1" not in run("logs", "scheduler", *where)

        # The supervisor dies: its services live on, are found, and are ended by proof and not by guess.
        seen = stack.published()
        assert seen is not None
        os.kill(seen.supervisor.pid, signal.SIGKILL)
        wait_until(lambda: not stack.running)
        left = [it.process for it in seen.instances if it.process is not None]
        assert all(process_of(it) for it in left)
        assert "processes; end them with: volsched stack down" in run("status", *where, code=3)
        # A health check may have been under way too.
        assert run("down", *where).count("ended a leftover of a stack that crashed") >= len(left)
        assert not any(process_of(it) for it in left)
        assert run("down", *where).strip() == "nothing was running"

        # A first `up` that was interrupted leaves secrets alone: its ports are those that they name.
        (stack.directory / "stack.json").unlink()
        assert prepare(stack.directory, api_port=port).urls == shown["urls"]
    finally:
        stack.down()


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("up", "--scale", "worker"), "write SERVICE=N, such as worker=2"),
        (("up", "--scale", "wroker=2"), "only scheduler, controller, worker can have several instances"),
        (("up", "--scale", "postgres=2"), "only scheduler, controller, worker can have several instances"),
    ],
)
def test_a_slip_of_the_pen_is_reported_before_anything_starts(
    passable_path: Path, words: tuple[str, ...], told: str
) -> None:
    assert told in run(*words, "--dir", str(passable_path / "stack"), code=2)
    assert not (passable_path / "stack" / "state.json").exists()


def test_secrets_are_made_once_and_certificates_anew(tmp_path: Path) -> None:
    directory = tmp_path / "secrets"
    run("secrets", str(directory))
    first = {it.name: it.read_bytes() for it in directory.iterdir()}
    assert directory.stat().st_mode & 0o777 == 0o700
    assert (directory / "ca.key").stat().st_mode & 0o077 == 0
    run("secrets", str(directory))
    second = {it.name: it.read_bytes() for it in directory.iterdir()}
    changed = {name for name in second if first[name] != second[name]}
    renewed = {"server.crt", "server.key", "prometheus.crt", "prometheus.key", "admin.kubeconfig"}
    assert changed == renewed
