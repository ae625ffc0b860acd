"""Benchmarks of growth and of peers: every row is there, a chart is sound, and a history can be read back."""

import json
import time
from pathlib import Path
from xml.etree import ElementTree

import pytest
from typer.testing import CliRunner

from volsched.cli.app import app
from volsched.lab.bench.figure_history import append_history, exponent, with_exponents
from volsched.lab.bench.peer_libraries import EVENTS, WORK
from volsched.lab.bench.peers import NOT_INSTALLED, READS, Clocks, bench_peers
from volsched.lab.bench.plot import svg
from volsched.lab.bench.reads import READ_AXES, ReadRow, bench_reads, fill_volumes
from volsched.lab.cli.bench_rows import processor_seconds
from volsched.log.database import Database
from volsched.log.migrations import scratch_store


def test_every_read_is_measured(sqlite: Database) -> None:
    assert list(fill_volumes(sqlite, nodes=3, volumes=60, in_use=20))[-1] == 1 + 3 + 60 + 2 * 20 + 4
    rows = list(bench_reads(sqlite, nodes=3, volumes=60, in_use=20, cpu=processor_seconds))
    assert len({row.what for row in rows}) == len(rows) == 9
    assert all(row.seconds > 0 for row in rows)


def read_row(nodes: int, volumes: int, seconds: float, what: str = "a") -> ReadRow:
    return ReadRow(what=what, engine="sqlite", nodes=nodes, volumes=volumes, in_use=0, seconds=seconds)


def test_work_in_proportion_has_the_exponent_1() -> None:
    rows = [read_row(1, 100, 20.0), read_row(1, 10, 2.0), read_row(1, 10, 2.0, "b"), read_row(1, 100, 2.0, "b")]
    grown = with_exponents(rows, *READ_AXES)
    assert [row.over_volumes_a_node for row in grown] == [1.0, None, None, 0.0]
    assert {(row.over_nodes, row.over_volumes) for row in grown} == {(None, None)}


def test_each_size_has_an_exponent_of_its_own() -> None:
    """Time as nodes squared by volumes."""
    rows = [read_row(nodes, volumes, nodes**2 * volumes) for nodes in (2, 4) for volumes in (16, 32)]
    *others, largest = with_exponents(rows, *READ_AXES)
    assert (largest.over_nodes, largest.over_volumes, largest.over_volumes_a_node) == (2.0, 3.0, 1.0)
    assert [row.over_volumes for row in others] == [None, None, None]


def test_a_row_is_compared_with_the_next_smaller_one() -> None:
    rows = [read_row(1, 1, 1.0), read_row(1, 10, 10.0), read_row(1, 100, 1_000.0)]
    assert [row.over_volumes_a_node for row in with_exponents(rows, *READ_AXES)] == [None, 1.0, 2.0]


@pytest.mark.parametrize(
    ("small", "large"), [((1, 0.0), (2, 1.0)), ((1, 1.0), (2, 0.0)), ((2, 1.0), (2, 2.0)), ((0, 1.0), (2, 1.0))]
)
def test_what_tells_nothing_has_no_exponent(small: tuple[float, float], large: tuple[float, float]) -> None:
    assert exponent(small, large) is None


def test_a_burst_says_what_a_pod_leaves_and_how_its_time_grows() -> None:
    sizes = ("--pods", "4", "--pods", "8", "--singles", "1", "--volumes", "42", "--nodes", "2")
    run = CliRunner().invoke(app, ["bench", "bind", *sizes, "-o", "json"])
    assert run.exit_code == 0, run.output
    rows = json.loads(run.stdout)
    assert [(row["pods"], row["claims"]) for row in rows] == [(4, 1), (4, 3), (8, 1), (8, 3)]
    assert [row["over_pods"] is None for row in rows] == [True, True, False, False]
    # 16 events and more, each with its envelope.
    assert all(2_000 < row["bytes_per_pod"] < 200_000 for row in rows)


@pytest.mark.parametrize(
    ("bench", "columns"),
    [
        (("replay", "--objects", "10"), ("over_events", "as_of_over_events")),
        (("audit",), ("over_events",)),
    ],
)
def test_a_history_says_how_its_reading_grows(bench: tuple[str, ...], columns: tuple[str, ...]) -> None:
    run = CliRunner().invoke(app, ["bench", *bench, "--events", "4000", "--events", "2000", "-o", "json"])
    assert run.exit_code == 0, run.output
    rows = json.loads(run.stdout)
    short, long = rows[: len(rows) // 2], rows[len(rows) // 2 :]
    assert short[0]["events"] < long[0]["events"]
    assert {row[column] for row in short for column in columns} == {None}
    assert all(isinstance(row[column], float) for row in long for column in columns)


def test_a_restart_says_how_it_grows_from_a_short_history_to_a_long_one() -> None:
    sizes = ("--events", "300", "--objects", "20", "--bindings", "2")
    run = CliRunner().invoke(app, ["bench", "restart", *sizes, "-o", "json"])
    assert run.exit_code == 0, run.output
    (row,) = json.loads(run.stdout)
    assert (row["over_events"] > 0) is (row["long_ms"] > row["short_ms"])


OURS = {"volsched", "bare driver"}
CLOCKS = Clocks(wall=time.perf_counter, cpu=time.process_time)
KINDS_OF_WORK = {(work, batch) for work in (EVENTS, WORK) for batch in (1, 100)}


def test_peers_on_a_server_are_measured_or_named_as_missing(postgres_server: str, tmp_path: Path) -> None:
    with scratch_store(postgres_server) as database:
        rows = list(bench_peers(database, tmp_path, items=3, clocks=CLOCKS))
    assert {(row.work, row.batch) for row in rows if row.who == "volsched"} == KINDS_OF_WORK
    assert {row.who for row in rows} == {*OURS, "eventsourcing", "dbos", "huey", "procrastinate"}
    assert all((row.per_second is None) == (row.note == NOT_INSTALLED) for row in rows)
    (durability,) = {row.durability for row in rows if row.per_second is not None}
    # The suite's server does without the first, as nothing on it is to be kept.
    assert durability.startswith("fsync=o")
    assert "synchronous_commit=" in durability


def test_peers_on_a_file_are_as_durable_as_we_are(tmp_path: Path) -> None:
    # A store as users have it: the suite's own does not wait for the disk.
    with scratch_store(None) as database:
        rows = list(bench_peers(database, tmp_path, items=3, clocks=CLOCKS))
    assert {(row.work, row.batch) for row in rows if row.who == "volsched"} == KINDS_OF_WORK | {
        (READS, 1),
        (READS, 100),
    }
    assert {row.who for row in rows} == {*OURS, "eventsourcing", "dbos", "huey", "bare route"}
    assert all((row.per_second is None) == (row.note == NOT_INSTALLED) for row in rows)
    stored = [row for row in rows if row.work != READS and row.per_second is not None]
    assert {row.durability for row in stored} == {"wal, synchronous=full"}


def test_a_chart_is_sound_whatever_rows_are_called(tmp_path: Path) -> None:
    rows = [{"what": "a < b & c", "nodes": 3, "seconds": 0.5, "exponent": None}, {"what": "d", "seconds": 2.0}]
    chart = ElementTree.fromstring(svg("bench", rows))
    texts = [it.text for it in chart.iter() if it.tag.endswith("text")]
    assert "a < b & c, nodes 3" in texts
    file = tmp_path / "figures.jsonl"
    for at in ("2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"):
        append_history(file, "reads", rows, at=at, load=0.5)
    kept = [json.loads(line) for line in file.read_text().splitlines()]
    assert [(it["at"][:10], it["what"]) for it in kept] == [
        ("2026-01-01", "a < b & c"),
        ("2026-01-01", "d"),
        ("2026-01-02", "a < b & c"),
        ("2026-01-02", "d"),
    ]
