"""`volsched demo` does what it says, says so only then, and leaves nothing behind."""

import re
import signal
import tempfile
from pathlib import Path

import pytest

from tests.cli.conftest import Run
from tests.support.command_processes import ROOT, line, started
from tests.support.documents import ANYTHING, agrees
from tests.support.patience import HANG_SECONDS
from volsched.lab.cli import demo
from volsched.lab.demo.stage import SceneError
from volsched.lab.demo.story import SCENES, cluster, stage_in, stolen, verified


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where temporary stores are made, for this process and those that it starts."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    return tmp_path


def shown_in_readme() -> list[str]:
    (shown,) = re.findall(r"^```\n(5/7 .*?)\n```$", (ROOT / "README.md").read_text(), re.M | re.S)
    return str(shown).splitlines()


def test_every_step_does_what_it_says_and_the_store_that_is_kept_says_the_same(run: Run, temporary: Path) -> None:
    ran = run("demo", "--keep")
    assert (ran.code, ran.err) == (0, "")
    for number, scene in enumerate(SCENES, start=1):
        assert f"{number}/{len(SCENES)} {scene.title}" in ran.out
    for told in ("killed (SIGKILL)", "written exactly once", "is rolled-back", "The pod is on node-0"):
        assert told in ran.out
    assert agrees([ANYTHING, *shown_in_readme()], ran.out.splitlines())
    (store,) = temporary.glob("volsched-demo-*/demo.db")
    assert f"volsched verify --db {store}" in ran.out
    (proven,) = re.findall(r"last hash \w+", ran.out)
    assert proven in run("verify", "--db", str(store)).out
    nodes = dict(
        re.findall(
            r"^(\S+-0) .* (node-\S+) ", run("get", "po", "-n", "shop", "-o", "wide", "--db", str(store)).out, re.M
        )
    )
    assert nodes == {"db-0": "node-a1", "analytics-0": "node-b1", "ledger-0": "node-a2", "queue-0": "node-0"}


def test_a_step_that_does_not_come_to_what_it_says_is_an_error(tmp_path: Path) -> None:
    """On a store without the cluster, each step that needs it says so instead of telling its tale."""
    needing = [it for it in SCENES if it.play not in (cluster, stolen, verified)]
    with stage_in(tmp_path) as stage:
        for scene in needing:
            with pytest.raises(SceneError):
                list(scene.play(stage))
    assert len(needing) == 4


def test_the_step_that_failed_is_named_and_nothing_is_left(
    run: Run, temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(demo, "SCENES", (SCENES[3],))
    ran = run("demo")
    assert ran.code == 1
    assert ran.err.startswith(f"error: step 1 ({SCENES[3].title}): ")
    assert "did what they say" not in ran.out
    assert list(temporary.glob("volsched-demo-*")) == []


def test_ctrl_c_leaves_nothing_behind(temporary: Path) -> None:
    with started("demo") as process:
        assert line(process.stdout).startswith("1/")
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=HANG_SECONDS)
        assert (process.returncode, err) == (130, "")
    assert list(temporary.glob("volsched-demo-*")) == []
