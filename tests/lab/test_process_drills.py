"""Real processes are broken under load, and nothing is lost: a few drills here, all of them by `make drills`."""

import ctypes
import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from tests.cli.conftest import Run, run
from tests.support.browser import play as play_in_browser
from tests.support.extent import FULL
from tests.support.patience import HANG_SECONDS, wait_until
from volsched.lab.drills.process_drill import Played, play
from volsched.lab.drills.process_scenario import Step, play_of, read_moment, read_step
from volsched.lab.drills.process_work import named
from volsched.lab.drills.report import DrillReport, as_saved, page, read_saved
from volsched.lab.drills.scenario import ScenarioError, process_drills, read_scenario
from volsched.lab.drills.timeline import Bar, DrillTimeline, Positions, TimelineMark
from volsched.lab.faults import ENGINES, ON_SQLITE, ON_STACK

__all__ = ["run"]
PLAYS = {it.name: play_of(it) for it in process_drills()}
IN_CI = [("kill-all", ON_STACK), ("kill-scheduler", ON_SQLITE)]
EVERY = [(name, engine) for name, it in PLAYS.items() for engine in it.engines]
OPEN_PAGE = Path(__file__).parent / "open_page.mjs"
NAMED = {
    "kill-worker", "kill-scheduler", "kill-controller", "kill-api", "kill-all", "flush-redis", "stop-redis",
    "restart-postgres", "pause-worker", "poison-effect", "disk-full", "clock-skew", "clock-ahead-and-crash",
    "partial-multi-claim", "rolling-restart", "thundering-herd", "hot-lock", "slow-body", "stolen-volumes",
}  # fmt: skip


@pytest.mark.parametrize(("name", "engine"), EVERY if FULL else IN_CI)
def test_nothing_is_lost_whatever_is_broken(name: str, engine: str) -> None:
    drill = PLAYS[name] if FULL else replace(PLAYS[name], work=replace(PLAYS[name].work, pods=20))
    played = play(drill, engine=engine, durable=False)
    report = played.report
    assert report.violations == []
    assert (report.double_binds, report.leaked, report.lost_pods, report.passed) == (0, 0, 0, True)
    assert report.resumed + report.rolled_back == report.in_flight == len(report.recovery_ms)
    bound = {it.pod for it in played.timeline.bars if it.committed}
    assert len(bound) == drill.work.all
    taken = [it for it in drill.faults if not it.target or named(engine, it.target)]
    assert [it.what for it in played.timeline.marks] == [str(it) for it in taken]
    # There was something to lose, and the end was not seen before the dead were missed.
    assert report.in_flight > 0
    assert report.facts["processes started again"] != "none" or all(it.verb != "kill" for it in drill.faults)


def test_a_scenario_of_ones_own_that_ends_badly_is_reported_so(run: Run, tmp_path: Path) -> None:
    """Nobody starts the scheduler again: pods are left, and the score says how many.

    They come for ten seconds, so that some are still to come when a busy machine has stopped it.
    """
    mine = tmp_path / "mine.yaml"
    mine.write_text(
        "kind: stack\nabout: no scheduler any more\nwith:\n  engines: sqlite\n"
        "  load: {pods: 60, per_second: 6, slow: 4}\n  moment: 10% bound\n"
        "  faults: [stop scheduler]\n  patience: 5\n"
    )
    ran = run("drill", "run", str(mine), "-o", "json", "--html", str(tmp_path / "mine.html"))
    told = json.loads(ran.out)
    assert (ran.code, told["passed"], told["drill"]) == (5, False, "mine")
    assert 0 < told["lost_pods"] < 64
    assert "3: not everything has settled, and no further pod was bound for 5 s" in told["violations"]
    saved = tmp_path / "saved.json"
    saved.write_text(ran.out)
    again = run("drill", "report", str(saved), "--html", str(tmp_path / "again.html"))
    assert again.code == 5
    assert again.out.splitlines()[-1] == "FAILED"
    assert (tmp_path / "again.html").read_text() == (tmp_path / "mine.html").read_text()
    assert run("drill", "report", str(saved), "-o", "json").out == ran.out


# --- scenarios ------------------------------------------------------------------------------------------


def test_every_drill_that_was_asked_for_is_there_on_both_engines_where_it_can_be() -> None:
    assert set(PLAYS) == NAMED
    for name, it in PLAYS.items():
        only_stack = name in ("flush-redis", "stop-redis", "restart-postgres")
        assert it.engines == ((ON_STACK,) if only_stack else ENGINES), name
        assert it.about


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ("faults: [explode worker]", 'with.faults: "explode worker" is no step'),
        ("faults: [kill everybody]", "kill is for one of"),
        ("faults: [wait]", "wait"),
        ("faults: [wait -1]", "a wait lasts 0 seconds or longer"),
        ("faults: []", "with.faults: it must be a list of steps"),
        ("{faults: [kill worker], moment: soon}", 'with.moment: "soon" is none'),
        ("{faults: [kill worker], moment: worker at lunch}", "with.moment: there is no place lunch"),
        ("{faults: [kill worker], moment: 101% bound}", "from 0 to 100"),
        ("{faults: [kill worker], engines: [mysql]}", "with.engines: it must be one or both of stack and sqlite"),
        ("{faults: [kill worker], load: {pods: 0}}", "with.load.pods: it must be a number from 1"),
        ("{faults: [kill worker], load: {claims: [0]}}", "with.load.claims"),
        ("{faults: [kill worker], load: {pets: 3}}", "with.load.pets is unknown"),
        ("{faults: [kill worker], scale: {worker: none}}", "with.scale"),
        ("{faults: [kill worker], hope: 3}", "with.hope is unknown"),
        ("{faults: [kill worker], moment: worker at executor.claimed*x}", "with a number from 1 on"),
        ("{faults: [kill worker], moment: worker at executor.claimed*0}", "with a number from 1 on"),
        ("{faults: [steal pods]}", "steal is for one of volumes"),
        ("{faults: [kill worker], lease: 0}", "with.lease: it must be a number from 1"),
        ("{faults: [kill worker-2]}", "there is worker-1 alone; with.scale says how many"),
        ("{faults: [kill worker-3], scale: {worker: 2}}", "there is worker-1 to worker-2"),
        ("{faults: [kill worker-x]}", "kill is for one of"),
        ("{faults: [kill worker]}\nchances: {crash: 1}", "chances is for drills of kind sim"),
    ],
)
def test_a_scenario_that_cannot_be_played_is_refused(given: str, complaint: str, run: Run, tmp_path: Path) -> None:
    mine = tmp_path / "mine.yaml"
    mine.write_text(f"kind: stack\nwith:\n  {given}\n")
    with pytest.raises(ScenarioError, match=r".") as refused:
        play_of(read_scenario(mine))
    assert complaint in str(refused.value)
    ran = run("drill", "run", str(mine))
    assert (ran.code, complaint.split('"')[0] in ran.err) == (2, True)


def test_a_file_that_is_no_scenario_is_refused(run: Run, tmp_path: Path) -> None:
    mine = tmp_path / "mine.yaml"
    for content, complaint in (
        (b"\xff\xfe\x00", "it is no YAML"),
        (b"kind: [", "it is no YAML"),
        (b"kind: sim\nwith: {faults: [kill worker]}", "with is for drills of kind stack"),
    ):
        mine.write_bytes(content)
        ran = run("drill", "run", str(mine))
        assert (ran.code, f"mine.yaml: {complaint}" in ran.err) == (2, True)


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("kill-wroker",), "did you mean kill-worker"),
        (("replay",), "volsched drill replay --help"),
        (("kill-worker", "--html", "nowhere/report.html"), "nowhere is no directory"),
        (("kill-worker", "--jobs", "2"), "--jobs is for simulations"),
        (("sim", "--seed", "1", "--seeds", "1..3"), "give one of them"),
    ],
)
def test_a_mistake_is_said_before_anything_is_started(run: Run, words: tuple[str, ...], complaint: str) -> None:
    ran = run("drill", "run", *words)
    assert (ran.code, ran.out, complaint in ran.err) == (2, "", True)
    assert "starting" not in ran.err


def test_ctrl_c_leaves_nothing_behind_however_early_and_often(tmp_path: Path) -> None:
    """Also a terminal that is closed: the supervisor is no child of it, and would go on."""
    command = [sys.executable, "-m", "volsched", "drill", "run", "kill-all", "--engine", "sqlite"]
    place = {**os.environ, "TMPDIR": str(tmp_path)}
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=place) as process:
        assert process.stderr is not None
        assert process.stderr.readline().startswith("starting")
        # Its supervisor is being started, and nothing of it is written down yet.
        wait_until(lambda: any(tmp_path.rglob("supervisor.log")))
        for number in (signal.SIGHUP, signal.SIGINT):
            process.send_signal(number)
        assert process.wait(timeout=HANG_SECONDS) == 130
    assert list(tmp_path.iterdir()) == []
    commands = [" ".join(it.info["cmdline"] or ()) for it in psutil.process_iter(["cmdline"])]
    assert [it for it in commands if str(tmp_path) in it] == []


def test_steps_and_moments_are_reported_as_they_were_written() -> None:
    for text in ("kill worker-1", "wait 3", "skew scheduler -60", "flush redis", "delete stuck"):
        assert str(read_step(text)) == text
    assert read_step("wait 0.5") == Step("wait", "", 0.5)
    for text in ("worker at executor.claimed*3", "30% bound", "partly bound", "random", "at once"):
        assert str(read_moment(text)) == text


def test_a_random_moment_is_that_of_its_seed() -> None:
    first, again, other = (read_moment("random").settled(seed) for seed in (1, 1, 2))
    assert first == again != other
    assert first.bound is not None


def test_a_drill_is_not_played_on_an_engine_that_it_is_not_for(run: Run) -> None:
    ran = run("drill", "run", "flush-redis", "--engine", "sqlite")
    assert (ran.code, ran.out) == (2, "")
    assert "give stack" in ran.err
    assert run("drill", "run", "sim", "--engine", "sqlite").code == 2


@pytest.mark.parametrize("content", ["[]", "{}", "no", '{"drill": "x", "invariants": 3}'])
def test_a_file_that_is_no_report_is_refused(run: Run, tmp_path: Path, content: str) -> None:
    file = tmp_path / "x.json"
    file.write_text(content)
    ran = run("drill", "report", str(file))
    assert ran.code == 2
    assert "this is no report" in ran.err


@pytest.mark.parametrize("words", [("scheduler",), ("controller",), ("api", "--port", "0")])
def test_a_wrong_clock_is_for_drills_only(
    words: tuple[str, ...], run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VOLSCHED_CLOCK_SKEW_SECONDS", "60")
    db = str(tmp_path / "store.db")
    assert run("migrate", "--db", db).code == 0
    ran = run("serve", *words, "--db", db)
    assert ran.code == 2
    assert "VOLSCHED_DRILL=1" in ran.err


def test_a_process_ends_also_where_another_of_its_threads_is_given_the_signal(tmp_path: Path) -> None:
    """As it happens to one that was stopped when the signal came; clock-skew found it."""
    url = f"sqlite:///{tmp_path / 'store.db'}"
    command = [sys.executable, "-m", "volsched"]
    subprocess.run([*command, "migrate", "--db", url], check=True, capture_output=True)
    process = subprocess.Popen([*command, "serve", "scheduler", "--db", url], stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        assert any(it.startswith("at work") for it in process.stderr)
        threads = [int(it.name) for it in Path(f"/proc/{process.pid}/task").iterdir()]
        other = max(set(threads) - {process.pid})
        assert ctypes.CDLL(None).tgkill(process.pid, other, signal.SIGTERM) == 0
        assert process.wait(timeout=HANG_SECONDS) == 0
    finally:
        process.kill()
        process.communicate()


# --- reports --------------------------------------------------------------------------------------------


def played() -> Played:
    bars = [
        Bar(binding="a", pod="bench/one", legs=1, created=10, planned=40, ended=90, state="committed"),
        Bar(
            binding="b", pod="bench/two", legs=3, created=10, planned=50, ended=2100, state="committed",
            in_flight=True,
        ),
        Bar(
            binding="c", pod="bench/<three>", legs=2, created=60, planned=80, ended=1900, state="rolled-back",
            reason="gone & <away>", in_flight=True,
        ),
    ]  # fmt: skip
    marks = [TimelineMark(at=100, what="kill worker-1"), TimelineMark(at=130, what="kill api")]
    report = DrillReport(
        drill="kill-<worker>",
        about="a & b",
        faults={"kill worker-1": 1},
        in_flight=2,
        resumed=1,
        rolled_back=1,
        retained={"kept": 1},
        recovery_ms=[2000.0, 1800.0],
        checked_invariants=(1, 2),
        facts={"engine": "sqlite"},
    )
    return Played(report, DrillTimeline(bars=bars, marks=marks, settled=2200))


def test_a_saved_report_is_read_as_it_was(tmp_path: Path) -> None:
    it = played()
    file = tmp_path / "saved.json"
    saved = as_saved(it.report, it.timeline)
    file.write_text(json.dumps(saved))
    report, timeline = read_saved(file)
    # The table of invariants says which were checked.
    assert "checked_invariants" not in saved
    assert report.rows() == it.report.rows()
    assert list(report.by_invariant()) == list(it.report.by_invariant())
    assert page(report, timeline) == page(it.report, it.timeline)
    assert (report.passed, timeline) == (True, replace(it.timeline, bars=list(it.timeline.bars)))


def test_a_fault_that_met_nothing_proves_nothing_and_says_so(run: Run, tmp_path: Path) -> None:
    it = played()
    idle = replace(it.report, in_flight=0, resumed=0, rolled_back=0, inconclusive="nothing was in flight")
    file, shown = tmp_path / "saved.json", tmp_path / "shown.html"
    file.write_text(json.dumps(as_saved(idle, it.timeline)))
    ran = run("drill", "report", str(file), "--html", str(shown))
    assert (ran.code, ran.out.splitlines()[-1]) == (6, "INCONCLUSIVE: nothing was in flight")
    assert "INCONCLUSIVE" in shown.read_text()
    assert json.loads(file.read_text())["passed"] is False
    # What is wrong is worse than what is not shown.
    file.write_text(json.dumps(as_saved(replace(idle, lost_pods=1), None)))
    failed = run("drill", "report", str(file))
    assert (failed.code, failed.out.splitlines()[-1]) == (5, "FAILED")


def test_the_page_holds_everything_and_fetches_nothing() -> None:
    it = played()
    shown = page(it.report, it.timeline)
    for text in (
        "kill-&lt;worker&gt;",
        "a &amp; b",
        "retained: kept",
        "passed",
        "gone &amp; &lt;away&gt;",
        "&lt;three&gt;",
    ):
        assert text in shown
    assert shown.count("<rect") == 3
    for forbidden in ("<script", "src=", "href=", "url(", "@import", "<three>"):
        assert forbidden not in shown
    wrong = page(replace(it.report, violations=["1: volume/x is bound to a and b"], double_binds=1), None)
    assert "FAILED" in wrong
    assert "1: volume/x is bound to a and b" in wrong
    assert "<svg" not in wrong


def test_a_real_browser_shows_the_report(tmp_path: Path) -> None:
    it, file, shot = played(), tmp_path / "report.html", tmp_path / "shot.png"
    file.write_text(page(it.report, it.timeline))
    shown = play_in_browser(OPEN_PAGE, page=file.as_uri(), shot=str(shot))
    assert shown.returncode == 0, shown.stderr
    # A page that shows nothing makes a picture of a few kilobytes.
    assert shot.read_bytes().startswith(b"\x89PNG")
    assert shot.stat().st_size > 25_000
    assert shown.stdout.count("<rect") == 3
    assert "kill worker-1" in shown.stdout


def test_an_event_happened_when_the_log_was_first_seen_so_long() -> None:
    positions = Positions()
    for at, head in ((1.0, 5), (2.0, 5), (3.0, 9)):
        positions.add_head(at, head)
    assert [positions.time_of(it) for it in (1, 5, 6, 9, 20)] == [1.0, 1.0, 3.0, 3.0, 3.0]
