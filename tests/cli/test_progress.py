"""Long work says how much is done, of how much, and how long it will take; only to those who want to hear it."""

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Run, run
from tests.support.clusters import LOCAL, claim, node, pod, volume
from tests.support.histories import fill
from volsched.cli import manifest_input, progress
from volsched.cli import run as schedule_verb
from volsched.kube import manifest_reader
from volsched.log.database import Database

__all__ = ["run"]


@pytest.fixture(autouse=True)
def _every_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "EVERY_SECONDS", 0.0)


def test_counts_and_the_time_left_are_reported_with_v_and_nothing_without(
    run: Run, sqlite: Database, tmp_path: Path
) -> None:
    fill(sqlite)
    url = str(sqlite.engine.url)
    told = run("-v", "replay", "--db", url)
    assert told.code == 0, told.err
    assert "Folding: 15 of 15" in told.err
    assert "Folding: done after" in told.err
    assert run("replay", "--db", url).err == ""
    # A file says in its first line how far it goes.
    history, copy = tmp_path / "history.jsonl", tmp_path / "copy.db"
    assert run("export", str(history), "--db", url).code == 0
    assert run("migrate", "--db", str(copy)).code == 0
    imported = run("-v", "import-log", "--db", str(copy), str(history))
    assert "Importing: 15 of 15" in imported.err
    saved, restored = tmp_path / "saved.jsonl", tmp_path / "restored.db"
    assert run("backup", str(saved), "--db", url).code == 0
    assert "Restoring: 15 of 15" in run("-v", "restore", str(saved), "--db", str(restored)).err


def test_scheduling_tells_how_many_pods_have_a_node(
    run: Run, sqlite: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schedule_verb, "COUNT_SECONDS", 0.0)
    url = str(sqlite.engine.url)
    cluster = [LOCAL, node("n1"), volume("disk", "5Gi", "n1"), claim("data", "4Gi"), claim("huge", "9Ti")]
    items = [*cluster, pod("db", "data"), pod("q", "huge")]
    manifests = json.dumps({"apiVersion": "v1", "kind": "List", "items": items})
    assert run("apply", "-f", "-", "--db", url, stdin=manifests.encode()).code == 0
    told = run("-v", "schedule", "--db", url)
    assert (told.code, "Scheduling: 0 of 2" in told.err, "Scheduling: 1 of 2" in told.err) == (0, True, True)
    assert "Scheduling" not in run("schedule", "--db", url).err


def test_reading_much_is_reported_by_objects_and_several_inputs_by_inputs(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(manifest_input, "LARGE", 0)
    monkeypatch.setattr(manifest_reader, "TOLD_EVERY", 1)
    dump, more = tmp_path / "dump.json", tmp_path / "more.json"
    dump.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": [node("a"), node("b"), node("c")]}))
    more.write_text(json.dumps(node("d")))
    # The list itself is looked at too.
    alone = run("-v", "validate", "-f", str(dump))
    assert "Reading: 3 of 4, about " in alone.err
    both = run("-v", "import", "-f", str(dump), "-f", str(more), "--db", str(tmp_path / "new.db"))
    assert "Reading: 1 of 2, about " in both.err
    assert "imported 4 Node" in both.out


def test_what_is_left_follows_from_what_was_done(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("-v", "example", "list").code == 0
    with progress.progress_bar("Counting", 100) as update:
        update(10)
        update(60)
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "Counting: 10 of 100"
    assert lines[1].startswith("Counting: 60 of 100, about ")


def test_a_file_that_announces_nothing_is_read_all_the_same() -> None:
    lines, total = progress.lines_and_total(iter(["not json\n", "b\n"]), "last")
    assert (list(lines), total) == (["not json\n", "b\n"], None)
    assert progress.lines_and_total(iter(()), "last")[1] is None
