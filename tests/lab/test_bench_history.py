"""The history file of benchmarks: a figure that is far from its earlier ones is named, all others are not."""

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from volsched.cli.app import app
from volsched.lab.bench.figure_history import FigureHistoryError, append_history, changes

SIZES = ("replay", "--events", "300", "--objects", "20", "-o", "json")


def row(seconds: float, claims: int = 1, **others: Any) -> dict[str, Any]:
    return {"engine": "sqlite", "claims": claims, "seconds": seconds, "exponent": None, **others}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Three runs, one of them on a busy machine, and another benchmark with rows of the same name."""
    path = tmp_path / "figures.jsonl"
    for seconds in (1.0, 9.0, 1.2):
        append_history(path, "bind", [row(seconds), row(3.0, claims=3)], at="2026-01-01T00:00:00Z", load=0.5)
    append_history(path, "reads", [row(50.0)], at="2026-01-01T00:00:00Z", load=9.0)
    return path


@pytest.mark.parametrize("seconds", [0.9, 1.2, 1.7])
def test_what_varies_as_usual_is_not_named(file: Path, seconds: float) -> None:
    assert list(changes(file, "bind", [row(seconds), row(3.0, claims=3)])) == []


@pytest.mark.parametrize(("seconds", "times"), [(2.4, "2.00"), (0.6, "0.50")])
def test_a_figure_far_from_the_median_is_named_with_what_was_measured(
    file: Path, seconds: float, times: str
) -> None:
    (change,) = changes(file, "bind", [row(seconds), row(3.0, claims=3)])
    assert change == f"sqlite, claims 1: seconds is {seconds}, {times} times the median of 3 earlier runs"


@pytest.mark.parametrize("new", [row(9.0, claims=2), row(0.0), {"seconds": 1e9}, row(1.2, bytes_per_pod=5.0)])
def test_what_was_never_measured_is_not_compared(file: Path, new: dict[str, Any]) -> None:
    assert list(changes(file, "bind", [new])) == []


def test_an_exponent_is_no_figure_that_could_be_worse(tmp_path: Path) -> None:
    file = tmp_path / "figures.jsonl"
    append_history(file, "bind", [row(1.0, over_pods=0.01)], at="2026-01-01T00:00:00Z", load=0.5)
    assert list(changes(file, "bind", [row(1.0, over_pods=0.09)])) == []


def test_a_file_that_is_not_there_yet_has_no_earlier_runs(tmp_path: Path) -> None:
    assert list(changes(tmp_path / "none.jsonl", "bind", [row(1.0)])) == []


@pytest.mark.parametrize("line", ["no json", "[]", "7", '{"seconds": 1.0}'])
def test_a_file_of_something_else_is_refused_by_its_line(file: Path, line: str) -> None:
    with file.open("a") as written:
        written.write(line + "\n")
    with pytest.raises(FigureHistoryError, match="line 8 of"):
        list(changes(file, "bind", [row(1.0)]))


def test_a_file_of_something_else_stays_as_it_is(tmp_path: Path) -> None:
    notes = tmp_path / "notes.txt"
    notes.write_text("buy milk\n")
    run = CliRunner().invoke(app, ["bench", "--history", str(notes), *SIZES])
    assert run.exit_code == 2
    assert '"events_per_second"' in run.stdout, "what was measured is not lost"
    assert "line 1 of" in run.stderr.replace("\n", " ")
    assert notes.read_text() == "buy milk\n"


def test_the_command_names_changes_beside_its_rows(tmp_path: Path) -> None:
    file = tmp_path / "figures.jsonl"
    label = {"engine": "sqlite", "events": 301, "objects": 21}
    append_history(file, "replay", [{**label, "as_of_ms": 1e9}], at="2026-01-01T00:00:00Z", load=0.5)
    run = CliRunner().invoke(app, ["bench", "--history", str(file), *SIZES])
    assert run.exit_code == 0, run.output
    assert "changed: sqlite, events 301, objects 21: as of ms is" in run.stderr
    assert run.stdout.startswith("[")
