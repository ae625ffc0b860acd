"""Ctrl-C, watching, completion, help: the command as a shell runs it."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import yaml

from tests.cli.conftest import Run
from tests.support.clusters import LOCAL, claim, node, pod, volume
from tests.support.command_processes import ROOT, line, started
from tests.support.patience import HANG_SECONDS, wait_until
from volsched import Engine


def test_a_watch_shows_every_change_and_ends_well_with_ctrl_c(db: str) -> None:
    with Engine.open(db) as engine:
        engine.apply([node("a"), node("b", rack="r1")])
        with started("get", "nodes", "-w", "-l", "rack", "-o", "name", "--db", db) as process:
            assert line(process.stdout) == "node/b"
            engine.apply(node("c"))
            engine.apply(node("d", rack="r2"))
            assert line(process.stdout) == "node/d"
            engine.apply(node("a", rack="r1"))
            assert line(process.stdout) == "node/a"
            engine.delete("node", "d")
            assert line(process.stdout) == "node/d"
            process.send_signal(signal.SIGINT)
            assert (process.wait(timeout=HANG_SECONDS), process.communicate()[1]) == (0, "")


def test_a_watch_marks_what_is_deleted(db: str) -> None:
    with Engine.open(db) as engine:
        engine.apply(node("a"))
        with started("get", "nodes", "-w", "--db", db) as process:
            assert line(process.stdout).startswith("NAME ")
            assert line(process.stdout).startswith("a ")
            engine.delete("node", "a")
            assert line(process.stdout).endswith("(deleted)")


def test_ctrl_c_ends_a_long_command_with_130_and_nothing_is_lost(run: Run, db: str) -> None:
    """The class has a provisioner that never answers, so that there is something to wait for."""
    made = {**LOCAL, "metadata": {"name": "made"}, "provisioner": "disks.example.com"}
    with Engine.open(db) as engine:
        engine.apply([made, LOCAL, node("a"), claim("data", "1Gi", "made"), pod("db", "data")])
        engine.apply([volume("disk", "1Gi", "a"), claim("local", "1Gi"), pod("placed", "local")])
        with started("schedule", "--timeout", "300", "--db", db) as process:
            wait_until(lambda: "nodeName" in (engine.get("pod", "placed") or {})["spec"])
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=HANG_SECONDS)
            assert (process.returncode, out, err) == (130, "", "")
        binding = [
            it["status"]["state"] for it in engine.objects("bindings") if it["status"]["pod"] == "default/db"
        ]
        assert binding == ["waiting"]
    assert run("verify", "--db", db).code == 0
    assert run("recover", "--dry-run", "--db", db).code == 0


def test_data_is_on_stdout_and_without_colours_where_nobody_sees_them(db: str) -> None:
    environment = {**os.environ, "FORCE_COLOR": "1", "NO_COLOR": "1"}
    command = [sys.executable, "-m", "volsched", "get", "pv", "nowhere", "--db", db]
    ran = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=environment)
    assert (ran.returncode, ran.stdout) == (3, "")
    assert "\x1b[3" not in ran.stderr


def test_what_cannot_be_read_is_reported_before_the_store_is_opened(run: Run, tmp_path: Path) -> None:
    (tmp_path / "bad.yaml").write_text("a: [")
    for verb in ("apply", "create", "import", "delete"):
        ran = run(verb, "-f", str(tmp_path / "bad.yaml"), "--db", str(tmp_path / "none.db"))
        assert ran.code == 2
        assert "bad.yaml" in ran.err
        missing = run(verb, "-f", str(tmp_path / "none.yaml"), "--db", str(tmp_path / "none.db"))
        assert (missing.code, "check the path" in missing.err) == (2, True)
    (tmp_path / "good.yaml").write_text(yaml.safe_dump(node("a")))
    assert not (tmp_path / "none.db").exists()
    ran = run("delete", "-f", str(tmp_path / "good.yaml"), "--db", str(tmp_path / "none.db"))
    assert (ran.code, "run: volsched migrate" in ran.err) == (1, True)


LOSES_CTRL_C = """
import os, signal, sys
from volsched.cli import main

class Doomed:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGINT)
        for _ in range(1000): pass

class Out:
    def __init__(self, real): self.real, self.first = real, True
    def __getattr__(self, name): return getattr(self.real, name)
    def write(self, text):
        if self.first:
            self.first = False
            Doomed()
        return self.real.write(text)

sys.stdout = Out(sys.stdout)
main()
"""


def test_ctrl_c_that_comes_while_an_object_is_destroyed_is_not_lost(db: str) -> None:
    """Python throws away what a destructor raises: a watch would go on for ever."""
    with Engine.open(db) as engine:
        engine.apply([node("a")])
    command = [sys.executable, "-c", LOSES_CTRL_C, "get", "nodes", "-w", "-o", "name", "--db", db]
    ran = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=HANG_SECONDS)
    assert (ran.returncode, ran.stderr) == (0, "")
