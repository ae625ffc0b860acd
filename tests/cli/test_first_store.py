"""Nobody has to prepare anything: what writes makes a store on SQLite, what reads says nothing is here yet."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import Run

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"
FILE = str(EXAMPLES / "local-database.yaml")


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.delenv("VOLSCHED_DATABASE_URL", raising=False)
    return tmp_path


@pytest.mark.parametrize(
    "words",
    [
        ["apply", "-f", FILE],
        ["create", "-f", FILE],
        ["import", "-f", FILE],
        ["example", "apply", "local-database"],
        ["schedule"],
        ["token", "create", "ada", "--role", "admin"],
    ],
    ids=" ".join,
)
def test_what_writes_makes_the_store_and_says_so(run: Run, home: Path, words: list[str]) -> None:
    store = home / "data" / "volsched" / "volsched.db"
    ran = run(*words)
    assert (ran.code, f"created a new store in {store}" in ran.err) == (0, True), ran.err
    assert store.stat().st_mode & 0o777 == 0o600
    assert "created a new store" not in run("schedule").err


def test_a_file_that_was_named_is_made_too_but_no_directory(run: Run, home: Path) -> None:
    assert "created a new store in" in run("apply", "-f", FILE, "--db", str(home / "try.db")).err
    ran = run("apply", "-f", FILE, "--db", str(home / "none" / "try.db"))
    assert (ran.code, "does not exist; create it, or name another file" in ran.err) == (1, True)


@pytest.mark.parametrize(
    "words", [["get", "pods"], ["delete", "pod", "a"], ["history", "pod/a"], ["verify"], ["recover"]], ids=" ".join
)
def test_what_reads_or_changes_makes_nothing(run: Run, home: Path, words: list[str]) -> None:
    ran = run(*words)
    assert (ran.code, ran.out) == (1, "")
    assert "nothing here yet: there is no store in" in ran.err
    assert not (home / "data").exists()


def test_an_empty_file_is_no_store_and_becomes_one(run: Run, home: Path) -> None:
    (home / "empty.db").touch()
    assert run("get", "pods", "--db", str(home / "empty.db")).code == 1
    assert "created a new store in" in run("apply", "-f", FILE, "--db", str(home / "empty.db")).err


def test_tables_of_somebody_else_are_not_touched(run: Run, home: Path) -> None:
    import sqlite3

    with sqlite3.connect(home / "other.db") as other:
        other.execute("CREATE TABLE recipes (name TEXT)")
    ran = run("apply", "-f", FILE, "--db", str(home / "other.db"))
    assert (ran.code, "run: volsched migrate" in ran.err) == (1, True)


def test_several_who_begin_at_once_make_one_store(home: Path) -> None:
    command = [sys.executable, "-m", "volsched", "schedule", "--db", str(home / "new.db")]
    running = [subprocess.Popen(command, stderr=subprocess.PIPE, text=True) for _ in range(3)]
    told = [it.communicate()[1] for it in running]
    assert [it.returncode for it in running] == [0, 0, 0], told


def test_a_home_that_cannot_be_written_is_reported_with_a_way_out(
    run: Run, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (home / "file").touch()
    monkeypatch.setenv("XDG_DATA_HOME", str(home / "file" / "data"))
    for words in (["apply", "-f", FILE], ["migrate"], ["example", "apply", "racks"]):
        ran = run(*words)
        assert (ran.code, "cannot be created: Not a directory" in ran.err) == (1, True), ran.err
        assert "another file with --db" in ran.err


def test_examples_are_listed_shown_and_explained(run: Run) -> None:
    listed = run("example", "list").out
    assert all(it.stem in listed for it in EXAMPLES.glob("*.yaml"))
    shown = run("example", "show", "local-database").out
    assert shown == Path(FILE).read_text()
    assert run("explain", "pod", "shop/db-0", "-f", "-", stdin=shown.encode()).code == 0
    wrong = run("example", "show", "racs")
    assert (wrong.code, "racks" in wrong.err) == (3, True)


def test_a_program_among_the_examples_is_shown_and_not_applied(run: Run, home: Path) -> None:
    assert "custom_scheduler.py  A scheduler of your own" in run("example", "list").out
    assert run("example", "show", "custom_scheduler.py").out == (EXAMPLES / "custom_scheduler.py").read_text()
    ran = run("example", "apply", "custom_scheduler.py")
    assert (ran.code, "is a program, not a cluster; run: volsched example show" in ran.err) == (2, True)
    assert not (home / "data").exists()


@pytest.mark.parametrize("words", [["up"], ["serve", "api"]], ids=" ".join)
def test_a_server_that_is_not_installed_makes_no_store(
    run: Run, home: Path, monkeypatch: pytest.MonkeyPatch, words: list[str]
) -> None:
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    with pytest.raises(ModuleNotFoundError):
        run(*words)
    assert not (home / "data").exists()
