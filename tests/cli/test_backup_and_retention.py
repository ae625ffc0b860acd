"""Backups and retention as an operator has them: words in, exit codes and files out."""

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Run
from tests.support.store_samples import NOW, create_volume, delete_volume, must
from volsched.log.store import open_store


@pytest.fixture
def old(store_file: Path) -> Path:
    """A store of 2023, whose history is alice's."""
    database = open_store(f"sqlite:///{store_file}")
    who = "cli/apply/alice"
    must(database, create_volume("a", actor=who), create_volume("b", actor=who), delete_volume("b"), now=NOW)
    must(database, create_volume("c", actor=who), now=NOW + 1)
    database.close()
    return store_file


def test_a_backup_is_taken_checked_restored_and_never_replaced(run: Run, old: Path, tmp_path: Path) -> None:
    file, new = str(tmp_path / "b.jsonl.gz"), str(tmp_path / "new.db")
    assert "4 events up to position 4" in run("backup", file, "--db", str(old)).out
    assert "is whole" in run("backup", "--check", file).out
    assert "next: volsched recover" in run("restore", file, "--db", new).out
    assert run("verify", "--db", new, "--anchor", file).code == 0
    again = run("backup", file, "--db", str(old))
    assert (again.code, "a backup replaces nothing" in again.err) == (2, True)
    twice = run("restore", file, "--db", new)
    assert (twice.code, "the store is not empty" in twice.err) == (1, True)
    (tmp_path / "odd").write_text("hello\n")
    odd = run("restore", str(tmp_path / "odd"), "--db", str(tmp_path / "none.db"))
    assert (odd.code, "this is not a backup" in odd.err) == (5, True)
    assert not (tmp_path / "none.db").exists()


def test_a_file_of_the_neighbouring_command_is_refused_with_its_name_and_makes_no_store(
    run: Run, old: Path, tmp_path: Path
) -> None:
    backup, log, new = (str(tmp_path / name) for name in ("backup.jsonl", "log.jsonl", "new.db"))
    run("backup", backup, "--db", str(old))
    run("export", log, "--db", str(old))
    imported = run("import-log", log, backup, "--db", new)
    assert (imported.code, imported.err.strip()) == (
        5,
        f"error: {backup}: line 1: the format is volsched-backup/1 and this command reads volsched-log/1; give it "
        "to volsched restore",
    )
    restored = run("restore", log, "--db", new)
    assert (restored.code, "give it to volsched import-log" in restored.err) == (5, True)
    assert not Path(new).exists()


def test_an_export_that_begins_later_than_the_history_makes_no_store(run: Run, old: Path, tmp_path: Path) -> None:
    rest, new = str(tmp_path / "rest.jsonl"), tmp_path / "new.db"
    run("export", rest, "--from", "2", "--db", str(old))
    ran = run("import-log", rest, "--db", str(new))
    assert (ran.code, "the first file begins at position 2 and the history at 1" in ran.err) == (1, True)
    assert not new.exists()


def test_a_policy_redacts_then_archives_and_verify_tells(run: Run, old: Path, tmp_path: Path) -> None:
    db, policy = str(old), ("retention", "apply", "--db", str(old), "--redact", "all", "--after", "30d")
    assert run(*policy, "--dry-run").out == "2 events up to position 3 would be redacted\n"
    assert run(*policy, "--reason", "policy 7").out == "2 events up to position 3 redacted\n"
    verified = run("verify", "--db", db)
    assert (verified.code, "2 of them were redacted, as the log says: 1-2" in verified.out) == (0, True)
    # The log has gone on, so what was its last event is old now.
    assert run(*policy).out == "1 events up to position 4 redacted\n"
    assert run(*policy).out == "0 events up to position 4 redacted\n"
    kept = run("retention", "apply", "--db", db, "--keep", "90d", "--archive-to", str(tmp_path), "-o", "json")
    file = json.loads(kept.out)["archived"]["file"]
    assert run("verify", "--db", db, "--archive", file).code == 0
    assert "alice" not in run("import-log", "--check", file).out
    assert "events of the log" in run("retention", "show", "--db", db).out


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ((), "there is nothing to do"),
        (("--keep", "90d"), "--keep and --archive-to belong together"),
        (("--redact", "all"), "--redact and --after belong together"),
        (("--redact", "names", "--after", "1d"), '"names" cannot be redacted'),
        (("--keep", "90d", "--archive-to", "/nowhere/at/all"), "does not exist"),
    ],
)
def test_a_policy_that_makes_no_sense_is_refused(run: Run, old: Path, words: tuple[str, ...], told: str) -> None:
    ran = run("retention", "apply", "--db", str(old), *words)
    assert (ran.code, told in ran.err) == (2, True), ran.err
