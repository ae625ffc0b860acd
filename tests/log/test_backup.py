"""A backup is one file of one moment, on either engine; what is restored is proven, complete, and not double."""

import gzip
import json
import os
import resource
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from sqlalchemy import select

from tests.support.archived_stores import ended, put
from tests.support.histories import fill, log, sql, views
from tests.support.store_samples import NOW, create_volume, must
from volsched.log import tables
from volsched.log.database import Database
from volsched.log.durable_files import lines_of_file
from volsched.log.effects import claim
from volsched.log.errors import BrokenLogError, StoreError
from volsched.log.integrity.anchors import parse_anchor
from volsched.log.integrity.verify import verify
from volsched.log.leases import acquire, current
from volsched.log.migrations import scratch_store
from volsched.log.retention.backup import CARRIED, LEAP, back_up, check_backup, restore
from volsched.log.retention.export import ExportError
from volsched.log.store import open_store

ROOT = Path(__file__).parents[2]
Lines = list[str]


@pytest.fixture(params=["sqlite", "postgres"])
def other(request: pytest.FixtureRequest) -> Iterator[Database]:
    """An empty store elsewhere."""
    server = None if request.param == "sqlite" else request.getfixturevalue("postgres_server")
    with scratch_store(server) as store:
        yield store


@pytest.fixture
def copy() -> Iterator[Database]:
    """An empty store elsewhere, for what does not depend on the engine."""
    with scratch_store() as store:
        yield store


def taken(database: Database, directory: Path, name: str = "backup.jsonl.gz") -> Path:
    back_up(database, out=directory / name, now=NOW)
    return directory / name


def test_a_restored_store_is_the_same_on_either_engine(
    database: Database, other: Database, tmp_path: Path
) -> None:
    fill(database)
    must(database, create_volume("keyed", key="once"))
    file = taken(database, tmp_path)
    made = restore(other, lines_of_file(file))
    assert made.head.position == 16
    same = (tables.events, tables.volumes, tables.bindings, tables.binding_legs, tables.attempts, tables.commands)
    assert views(other, *same) == views(database, *same)
    assert verify(other, anchors=[parse_anchor(next(lines_of_file(file)))]).ok
    # Writers go on, effects can be claimed, and a command that was given before the backup is not done again.
    must(other, create_volume("more"))
    assert must(other, create_volume("keyed", key="once"))[0].repeated
    assert [it.key for it in claim(other, queue="prebind", owner="w", limit=9, now=NOW, lease_for=1)] == [
        "b1/0/prebind",
        "b2/0/prebind",
    ]


def test_every_table_that_is_no_view_is_carried(database: Database, copy: Database, tmp_path: Path) -> None:
    ended(database)
    put(database, 7, tmp_path / "old.jsonl")
    must(database, create_volume("keyed", key="once"))
    restore(copy, lines_of_file(taken(database, tmp_path)))
    untouched = [it for it in CARRIED if it not in (tables.leases, tables.effects)]
    assert views(copy, *untouched) == views(database, *untouched)
    assert verify(copy, archives=[lines_of_file(tmp_path / "old.jsonl")]).ok


def test_no_claim_and_no_lease_survives_and_those_who_held_them_change_nothing(
    sqlite: Database, copy: Database, tmp_path: Path
) -> None:
    fill(sqlite)
    (held, *_) = claim(sqlite, queue="prebind", owner="lost", limit=9, now=NOW, lease_for=10**9)
    lease = acquire(sqlite, name="controller", holder="lost", now=NOW, ttl=10**9)
    assert lease is not None
    restore(copy, lines_of_file(taken(sqlite, tmp_path)))
    assert current(copy, name="controller") is None
    (again, *_) = claim(copy, queue="prebind", owner="new", limit=9, now=NOW, lease_for=1)
    taken_over = acquire(copy, name="controller", holder="new", now=NOW, ttl=1)
    assert taken_over is not None
    assert (again.key, again.fence > held.fence + LEAP // 2) == (held.key, True)
    assert taken_over.epoch > lease.epoch + LEAP // 2


def test_only_an_empty_store_becomes_one(sqlite: Database, copy: Database, tmp_path: Path) -> None:
    fill(sqlite)
    file = taken(sqlite, tmp_path)
    must(copy, create_volume("precious"))
    before = log(copy)
    with pytest.raises(StoreError, match="the store is not empty"):
        restore(copy, lines_of_file(file))
    assert log(copy) == before


def test_an_empty_store_can_be_backed_up_too(sqlite: Database, copy: Database, tmp_path: Path) -> None:
    restore(copy, lines_of_file(taken(sqlite, tmp_path)))
    must(copy, create_volume("first"))
    assert verify(copy).ok


def test_an_anchor_from_later_shows_that_an_older_store_was_restored(
    sqlite: Database, copy: Database, tmp_path: Path
) -> None:
    fill(sqlite)
    file = taken(sqlite, tmp_path)
    must(sqlite, create_volume("later"))
    newer = next(lines_of_file(taken(sqlite, tmp_path, "newer.jsonl")))
    restore(copy, lines_of_file(file))
    (finding,) = verify(copy, anchors=[parse_anchor(newer)]).findings
    assert "the anchor was taken of a longer log" in str(finding)
    # Also when it has grown beyond that since: it is another history.
    must(copy, *(create_volume(f"other-{number}") for number in range(3)))
    (finding,) = verify(copy, anchors=[parse_anchor(newer)]).findings
    assert "rewritten at or before the anchor" in str(finding)


def _without_last(lines: Lines) -> Lines:
    return lines[:-1]


def _without_a_row(lines: Lines) -> Lines:
    return [it for it in lines if "volume/c" not in it]


def _edited_row(lines: Lines) -> Lines:
    return [it.replace("5Gi", "9Gi") for it in lines]


def _edited_effect(lines: Lines) -> Lines:
    return [it.replace('"ready"', '"parked"') for it in lines]


def _more(lines: Lines) -> Lines:
    return [*lines, '["leases","x","y",1,1]\n']


@pytest.mark.parametrize("change", [_without_last, _without_a_row, _edited_row, _edited_effect, _more])
def test_a_file_that_was_cut_or_edited_is_refused_and_nothing_of_it_restored(
    sqlite: Database, copy: Database, tmp_path: Path, change: Callable[[Lines], Lines]
) -> None:
    fill(sqlite)
    lines = [*lines_of_file(taken(sqlite, tmp_path))]
    assert change(lines) != lines
    with pytest.raises(ExportError):
        check_backup(change(lines))
    with pytest.raises(ExportError):
        restore(copy, change(lines))
    assert log(copy) == []
    check_backup(lines)


def test_a_log_that_does_not_hold_is_not_backed_up(sqlite: Database, tmp_path: Path) -> None:
    fill(sqlite)
    sql(sqlite, "UPDATE events SET actor = 'me' WHERE position = 4")
    with pytest.raises(BrokenLogError, match="position 4"):
        taken(sqlite, tmp_path)
    assert not list(tmp_path.glob("*backup*"))


def test_a_damaged_view_is_not_carried_along(sqlite: Database, copy: Database, tmp_path: Path) -> None:
    fill(sqlite)
    sql(sqlite, "UPDATE volumes SET phase = 'Lost'")
    restore(copy, lines_of_file(taken(sqlite, tmp_path)))
    assert verify(copy).ok


def test_others_cannot_read_it_and_none_is_replaced(sqlite: Database, tmp_path: Path) -> None:
    fill(sqlite)
    file = taken(sqlite, tmp_path)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    before = file.read_bytes()
    with pytest.raises(StoreError, match="File exists"):
        taken(sqlite, tmp_path)
    assert file.read_bytes() == before


@pytest.mark.parametrize("name", ["backup.jsonl", "backup.jsonl.gz"])
def test_a_full_disk_leaves_no_file(sqlite: Database, tmp_path: Path, name: str) -> None:
    """The disk's end is played by a limit on the size of files, in a process of its own."""
    must(sqlite, *(create_volume(f"v-{os.urandom(20).hex()}") for _ in range(200)))
    script = (
        "import sys\nfrom pathlib import Path\nfrom volsched.log.store import open_store\n"
        "from volsched.log.retention.backup import back_up\n"
        "back_up(open_store(sys.argv[1]), out=Path(sys.argv[2]), now=1)\n"
    )
    url, out = str(sqlite.engine.url), tmp_path / "elsewhere"
    out.mkdir()
    ran = subprocess.run(
        [sys.executable, "-B", "-c", script, url, str(out / name)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (8_192, 8_192)),
    )
    assert ran.returncode != 0
    assert "cannot be written: File too large" in ran.stderr
    assert list(out.iterdir()) == []


def test_the_first_line_says_what_it_is(sqlite: Database, tmp_path: Path) -> None:
    fill(sqlite)
    with gzip.open(taken(sqlite, tmp_path), "rt") as lines:
        told = json.loads(next(lines))
    assert (told["format"], told["position"], told["rows"]["events"]) == ("volsched-backup/1", 15, 15)


def test_a_copy_that_sqlite_makes_is_a_store_as_well(sqlite: Database, tmp_path: Path) -> None:
    """What docs/backup.md says of VACUUM INTO."""
    fill(sqlite)
    with sqlite.engine.connect() as connection:
        connection.connection.driver_connection.execute(f"VACUUM INTO '{tmp_path / 'copy.db'}'")  # type: ignore[union-attr]
    copy = open_store(f"sqlite:///{tmp_path / 'copy.db'}")
    with copy.read() as connection:
        assert len(connection.execute(select(tables.events)).all()) == 15
    assert verify(copy).ok
    copy.close()
