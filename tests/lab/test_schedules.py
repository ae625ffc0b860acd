"""Schedules, scenarios, shrinking and reports: the values that drills are made of."""

from pathlib import Path

import pytest

from volsched.lab.drills.report import DrillReport
from volsched.lab.drills.scenario import ScenarioError, read_scenario, read_seeds, scenario_named
from volsched.lab.simulation.schedule import (
    Schedule,
    ScheduleChoice,
    ScheduleError,
    dump_schedule,
    read_choice,
    read_schedule,
)
from volsched.lab.simulation.seeds import Temper, generate, shrunk


@pytest.mark.parametrize(
    "line",
    ["step worker-1 crash=2 batch=1", "wait ms=500", "land", "create pod name=p1 claims=a,b seconds=3", "plain"],
)
def test_a_choice_is_what_it_is_written_as(line: str) -> None:
    assert str(read_choice(line)) == line


@pytest.mark.parametrize("line", ["", "step worker-1 twice", "wait 5 seconds"])
def test_what_is_no_choice_is_refused(line: str) -> None:
    with pytest.raises(ScheduleError):
        read_choice(line)


@pytest.mark.parametrize("seed", [1, 2, 3, 4])
def test_a_schedule_survives_its_file(tmp_path: Path, seed: int) -> None:
    made = generate(seed)
    file = tmp_path / "kept.yaml"
    file.write_text(dump_schedule(made, violations=["3: something"]))
    assert read_schedule(file) == made


def test_a_seed_is_one_schedule_and_others_are_others() -> None:
    assert generate(7) == generate(7)
    assert len({str(generate(seed).choices) for seed in range(50)}) == 50
    assert {generate(seed).where for seed in range(20)} == {"local", "foreign"}
    assert {generate(seed, temper=Temper(where=("local",))).where for seed in range(20)} == {"local"}


def test_what_is_left_after_shrinking_is_what_it_takes() -> None:
    tries = 0

    def fails(kept: object) -> bool:
        nonlocal tries
        tries += 1
        return isinstance(kept, tuple) and {3, 57, 58} <= set(kept)

    assert shrunk(range(100), fails) == (3, 57, 58)
    assert tries < 120


def test_shrinking_ends_where_nothing_can_be_left_out_and_where_nothing_is_needed() -> None:
    assert shrunk((1, 2, 3), lambda kept: len(kept) == 3) == (1, 2, 3)
    assert shrunk((1, 2, 3), lambda _: True) == ()


def test_a_part_of_a_schedule_is_a_schedule() -> None:
    made = Schedule("local", (ScheduleChoice("wait"), ScheduleChoice("land")), 5)
    assert made.of(made.choices[1:]) == Schedule("local", (ScheduleChoice("land"),), 5)


def test_a_scenario_of_ones_own_changes_what_it_names(tmp_path: Path) -> None:
    file = tmp_path / "sleepers.yaml"
    file.write_text("about: they sleep\nseeds: 3..9\nwhere: foreign\nchances: {sleep: 0.5, slow: 0}\nlength: 12\n")
    found = scenario_named(str(file))
    assert (found.name, found.about, found.seeds) == ("sleepers", "they sleep", (3, 9))
    assert found.temper == Temper(where=("foreign",), chances={"sleep": 0.5, "slow": 0.0}, length=12)
    assert len([it for it in generate(3, temper=found.temper).choices if it.verb not in ("create", "plain")]) == 12


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("- a", "mapping"),
        ("chance: 1", "chance is unknown"),
        ("chances: {crashes: 1}", "chances.crashes"),
        ("chances: {crash: 2}", "chances.crash"),
        ("where: moon", "where"),
        ("seeds: 9..3", "seeds"),
        ("length: 0", "length"),
        ("kind: war", "kind"),
        ("with: 3", "with"),
        ("{", "it is no YAML"),
    ],
)
def test_a_mistake_in_a_scenario_is_named(tmp_path: Path, text: str, names: str) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(text)
    with pytest.raises(ScenarioError, match=names):
        read_scenario(file)


@pytest.mark.parametrize(("text", "seeds"), [("7", (7, 7)), ("1..250", (1, 250))])
def test_seeds_are_read(text: str, seeds: tuple[int, int]) -> None:
    assert read_seeds(text) == seeds


def test_a_report_fails_by_any_figure_that_must_be_zero() -> None:
    assert DrillReport(drill="x", rolled_back=3, retained={"holds data": 1}).passed
    for wrong in ({"double_binds": 1}, {"leaked": 1}, {"lost_pods": 1}, {"violations": ("3: it moves",)}):
        assert not DrillReport(drill="x", **wrong).passed


def test_a_report_counts_by_invariant_and_by_percentile() -> None:
    report = DrillReport(
        drill="x", checked_invariants=(1, 3), violations=("3: a", "3: b", "4: c"), recovery_ms=[5, 1, 2, 100]
    )
    assert [(number, count) for number, _, count in report.by_invariant()] == [(1, 0), (3, 2), (4, 1)]
    assert (report.percentile(0.5), report.percentile(0.99), DrillReport(drill="x").percentile(0.5)) == (
        2,
        100,
        None,
    )
    shown = report.as_json()
    assert (shown["passed"], shown["recovery_ms"]["p50"], shown["recovery_ms"]["bindings"]) == (False, 2, 4)
