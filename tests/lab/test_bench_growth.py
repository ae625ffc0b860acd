"""Benchmarks of growth and of peers: every row is there, a chart is sound, and a history can be read back."""

import json
import time
from pathlib import Path
from xml.etree import ElementTree

from volsched.lab.bench.peers import EVENTS, NOT_INSTALLED, WORK, Clocks, bench_peers
from volsched.lab.bench.plot import append_history, svg
from volsched.lab.bench.reads import ReadRow, bench_reads, fill_volumes, with_exponents
from volsched.log.database import Database


def test_every_read_is_measured(sqlite: Database) -> None:
    assert list(fill_volumes(sqlite, nodes=3, volumes=60))[-1] == 1 + 3 + 60 + 4
    rows = bench_reads(sqlite, nodes=3, volumes=60, cpu=time.process_time)
    assert len({row.what for row in rows}) == len(rows)
    assert all(row.seconds > 0 for row in rows)


def test_work_in_proportion_has_the_exponent_1() -> None:
    rows = [
        ReadRow(what=what, nodes=1, volumes=volumes, seconds=seconds, exponent=None)
        for volumes, what, seconds in ((10, "a", 2.0), (10, "b", 2.0), (100, "a", 20.0), (100, "b", 2.0))
    ]
    assert [row.exponent for row in with_exponents(rows)] == [None, None, 1.0, 0.0]


def test_peers_are_measured_or_named_as_missing(database: Database, tmp_path: Path) -> None:
    clocks = Clocks(wall=time.perf_counter, cpu=time.process_time)
    rows = list(bench_peers(database, tmp_path, items=3, clocks=clocks))
    assert {(row.work, row.batch) for row in rows if row.who == "volsched"} == {
        (EVENTS, 1),
        (EVENTS, 100),
        (WORK, 1),
        (WORK, 100),
    }
    other = "huey" if database.engine.dialect.name == "sqlite" else "procrastinate"
    assert {row.who for row in rows} == {"volsched", "bare driver", "eventsourcing", "dbos", other}
    assert all((row.per_second is None) == (row.note == NOT_INSTALLED) for row in rows)


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
