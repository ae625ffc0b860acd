"""Archiving interrupted, killed, beside writers and beside another archive: the store is whole at any moment."""

import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.archived_stores import LATER, ROOT, Progress, answers, ended, problems, put
from tests.support.exported_logs import exported
from tests.support.histories import log
from tests.support.views import writing
from volsched.log.database import Database
from volsched.log.errors import ArchivedError, StoreError
from volsched.log.reads.tail import tail
from volsched.log.retention import archive as archiving
from volsched.log.retention.archive import Archive


class CrashError(Exception):
    """Whatever ends a program in the middle."""


def at(place: int, then: Callable[[], None]) -> Progress:
    """Do something once when a position is reached for the first time."""
    reached: list[int] = []

    def progress(position: int) -> None:
        if position >= place and not reached:
            reached.append(position)
            then()

    return progress


def crash() -> None:
    raise CrashError


@pytest.mark.parametrize("place", [3, 6, 15])
def test_an_interrupted_archive_leaves_a_whole_store_and_is_finished_by_running_it_again(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: int
) -> None:
    monkeypatch.setattr(archiving, "STEP", 3)
    ended(database)
    before, out = answers(database, 17), tmp_path / "old.jsonl.gz"
    with pytest.raises(CrashError):
        put(database, 17, out, progress=at(place, crash))
    assert log(database)[0].position == place + 1
    assert problems(database) == problems(database, out) == []
    assert answers(database, 17) == before
    written = out.read_bytes()
    assert put(database, 17, out) == Archive(file=out, first=1, last=17, removed=17 - place)
    assert put(database, 17, out).removed == 0
    assert out.read_bytes() == written
    assert answers(database, 17) == before
    assert problems(database, out) == []


def test_an_archive_that_was_interrupted_before_its_first_step_takes_up_the_file(
    database: Database, tmp_path: Path
) -> None:
    ended(database)
    out = tmp_path / "old.jsonl"
    out.write_text("".join(exported(database, last=10)), encoding="utf-8")
    assert put(database, 10, out).removed == 10
    assert problems(database, out) == []


def test_a_killed_archive_has_its_file_before_rows_are_gone(database: Database, url: str, tmp_path: Path) -> None:
    ended(database)
    before, out = answers(database, 17), tmp_path / "old.jsonl"
    program = (
        "import os, signal, sys\n"
        "from pathlib import Path\n"
        "from volsched.log.retention import archive as archiving\n"
        "from volsched.log.database import open_database\n"
        "archiving.STEP = 2\n"
        "def progress(position):\n"
        "    print(position, flush=True)\n"
        "    if position == 12: os.kill(os.getpid(), signal.SIGKILL)\n"
        f"database, out = open_database({url!r}), Path({str(out)!r})\n"
        f"archiving.archive(database, until=17, out=out, now={LATER}, progress=progress)\n"
    )
    ran = subprocess.run([sys.executable, "-c", program], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False)
    assert (ran.returncode, ran.stdout.split()[-1]) == (-signal.SIGKILL, "12")
    assert log(database)[0].position == 13
    assert problems(database, out) == []
    assert put(database, 17, out).removed == 5
    assert answers(database, 17) == before


def test_writers_go_on_while_events_are_archived(
    database: Database, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archiving, "STEP", 2)
    end = ended(database)
    with writing(url) as told:
        put(database, end - 1, tmp_path / "old.jsonl")
        while len(told) < 20:
            assert problems(database) == []
    assert len(set(told)) == len(told)
    assert problems(database, tmp_path / "old.jsonl") == []


def test_two_archives_at_once_do_not_harm_each_other(database: Database, tmp_path: Path) -> None:
    ended(database)
    one, other = tmp_path / "one.jsonl", tmp_path / "other.jsonl"
    one.write_text("".join(exported(database, last=17)), encoding="utf-8")

    def meanwhile() -> None:
        put(database, 12, other)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(archiving, "STEP", 5)
        with pytest.raises(StoreError, match="another archive of this store is being created; nothing was lost"):
            put(database, 17, one, progress=at(5, meanwhile))
    assert log(database)[0].position == 13
    assert put(database, 17, one).removed == 5
    assert problems(database, one) == []


def test_a_reader_that_fell_behind_an_archive_gets_an_error(database: Database, tmp_path: Path) -> None:
    end = ended(database)
    put(database, end - 1, tmp_path / "old.jsonl")
    with database.read() as connection:
        assert [it.position for it in tail(connection, after=end - 1, limit=5)] == [end]
        assert tail(connection, after=end, limit=5) == []
        with pytest.raises(ArchivedError, match="position 4 is archived"):
            tail(connection, after=3, limit=5)
