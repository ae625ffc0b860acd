"""What a drill's report tells: pods that the fault has delayed, how processes fared, and what was played when."""

import json
from pathlib import Path

from tests.cli.conftest import Run, run
from volsched.lab.drills.process_work import pod_delays
from volsched.lab.drills.report import DrillReport, RunEntry, as_saved, index_page, page
from volsched.lab.drills.timeline import Bar, DrillTimeline, Lane, LaneSpan, TimelineMark

__all__ = ["run"]


def bar(pod: str, created: float, ended: float | None, state: str = "committed", planned: float = 0) -> Bar:
    return Bar(binding=pod, pod=pod, legs=1, created=created, planned=planned, ended=ended, state=state)


def test_a_stall_of_pods_without_a_binding_is_counted() -> None:
    quick = [bar(f"default/quick-{i}", i * 10, i * 10 + 100) for i in range(10)]
    # Planned only once the scheduler was back: none of them was in flight at the fault.
    stalled = [bar(f"default/late-{i}", 200, 5_000 + i, planned=4_900) for i in range(67)]
    prompt = [bar("default/after", 6_000, 6_150)]
    delays = pod_delays([*quick, *stalled, *prompt], 300.0)
    assert len(delays) == 67
    assert delays[0] == 4_800 - 100


def test_pods_that_wait_on_purpose_or_were_never_bound_are_no_delay() -> None:
    bars = [
        bar("default/quick", 0, 100),
        bar("default/slow-1", 0, 9_000),
        bar("default/undone", 0, 9_000, state="rolled-back"),
        bar("default/open", 0, None, state="waiting"),
    ]
    assert pod_delays(bars, 200.0) == []
    assert pod_delays([], 200.0) == []


def reported() -> tuple[DrillReport, DrillTimeline]:
    report = DrillReport(
        drill="kill-scheduler", in_flight=1, resumed=1, recovery_ms=[4_700.0], delays_ms=[4_700.0] * 67,
        played_at="2026-11-17T23:00:00Z", version="0.1.0", command="volsched drill run kill-scheduler",
    )  # fmt: skip
    spans = [
        LaneSpan(begin=0, end=300, state="up"),
        LaneSpan(begin=300, end=4_000, state="down"),
        LaneSpan(begin=4_000, end=5_000, state="up"),
    ]
    lanes = [Lane(name="scheduler-1", spans=spans)]
    marks = [TimelineMark(at=300, what="kill scheduler")]
    return report, DrillTimeline(bars=[bar("default/a", 0, 100)], marks=marks, settled=5_000, lanes=lanes)


def test_the_page_says_what_was_played_when_who_was_delayed_and_how_processes_fared() -> None:
    shown = page(*reported())
    for told in ("2026-11-17T23:00:00Z", "volsched 0.1.0", "<code>volsched drill run kill-scheduler</code>"):
        assert told in shown
    assert "<b>67</b><span>pods delayed by the fault, by 4.7 s at most</span>" in shown
    assert "67, by 4.7 s in the middle and 4.7 s at most" in shown
    assert "scheduler-1: down for 3,700 ms" in shown


def test_an_index_leads_to_every_run(run: Run, tmp_path: Path) -> None:
    report, timeline = reported()
    (tmp_path / "one.json").write_text(json.dumps(as_saved(report, timeline)))
    (tmp_path / "other.json").write_text("{}")
    ran = run("drill", "index", str(tmp_path))
    assert ran.code == 0, ran.err
    assert "1 runs, 1 passed" in ran.out
    assert "other.json: this is no report" in ran.err
    shown = (tmp_path / "index.html").read_text()
    assert '<a href="one.html">kill-scheduler</a>' in shown
    assert (tmp_path / "one.html").read_text() == page(report, timeline)
    assert run("drill", "index", str(tmp_path / "none")).code == 2
    wrong = DrillReport(drill="<b>", violations=["1: x"])
    assert '<td class="bad">FAILED</td>' in index_page([RunEntry(wrong, "a.html")])


def test_what_was_stepped_says_nothing_of_waits() -> None:
    stepped = DrillReport(drill="sim", in_flight=7, resumed=7)
    assert "delayed" not in page(stepped, None)
    assert "Times are" not in page(stepped, None)
    assert [what for what, _ in stepped.rows() if "delayed" in what] == []
    assert '<td class="n">0</td><td class="n">-</td><td class="n">-</td>' in index_page(
        [RunEntry(stepped, "a.html")]
    )


def test_a_simulation_has_a_page_too(run: Run, tmp_path: Path) -> None:
    ran = run("drill", "run", "sim", "--seed", "7", "--html", str(tmp_path / "sim.html"))
    assert ran.code == 0, ran.err
    shown = (tmp_path / "sim.html").read_text()
    assert "volsched drill: sim" in shown
    assert "<h2>Invariants</h2>" in shown
