"""Every benchmark, small, as a chart, and its rows in the history file."""

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest
from typer.testing import CliRunner

from volsched.cli.app import app
from volsched.lab.cli import bench

SVG = "{http://www.w3.org/2000/svg}"
HISTORY = ("--events", "300", "--objects", "20")
SECOND = ("--seconds", "1", "--burst-seconds", "1")
SMALLEST = {
    "decide": ("--nodes", "12", "--repeat", "3"),
    "log": ("--batches", "2"),
    "mirror": (
        "--pods",
        "100",
        "--rate",
        "100",
        "--burst",
        "100",
        "--seconds",
        "1",
        "--burst-seconds",
        "1",
        "--lives",
        "100",
    ),
    "replay": HISTORY,
    "restart": HISTORY,
    "audit": ("--events", "1"),
    "map": ("--nodes", "5", "--volumes", "20"),
    "bind": ("--pods", "2", "--singles", "1", "--volumes", "24", "--nodes", "2"),
    "reads": ("--nodes", "2", "--volumes", "20"),
    "peers": ("--items", "3"),
    "idle": ("--seconds", "1", "--settle", "0", "--volumes", "10"),
    "http": (
        "--requests",
        "20",
        "--clients",
        "2",
        "--watchers",
        "2",
        "--writes",
        "10",
        "--writes-a-second",
        "500",
    ),
}


def test_every_benchmark_has_its_smallest_sizes_here() -> None:
    commands = bench.app.registered_commands
    assert {command.name or getattr(command.callback, "__name__", "") for command in commands} == set(SMALLEST)


@pytest.mark.parametrize("name", SMALLEST)
def test_a_benchmark_is_drawn_and_its_rows_are_kept(name: str, tmp_path: Path) -> None:
    file = tmp_path / "figures.jsonl"
    run = CliRunner().invoke(app, ["bench", "--history", str(file), name, *SMALLEST[name], "-o", "svg"])
    assert run.exit_code == 0, run.output
    kept = [json.loads(line) for line in file.read_text().splitlines()]
    assert {row["bench"] for row in kept} == {name}
    chart = ElementTree.fromstring(run.stdout)
    texts = {text.text for text in chart.iter(f"{SVG}text")}
    figures = [(column, value) for row in kept for column, value in row.items() if isinstance(value, float)]
    assert {column.replace("_", " ") for column, _ in figures} - {"load"} <= texts
    bars = [value for column, value in figures if column != "load" and value >= 0]
    # One rectangle more is the background.
    assert len(list(chart.iter(f"{SVG}rect"))) == len(bars) + 1
