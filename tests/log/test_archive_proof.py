"""What a base and its archives prove: every tampering with either is found, or refused to build on."""

import gzip
import os
import shutil
from pathlib import Path

import pytest

from tests.support.archived_stores import ended, problems, put
from tests.support.exported_logs import exported
from tests.support.histories import log, rewrite, sql, views
from tests.support.store_samples import create_volume, must
from volsched.log.base import archived_files, base_rows, read_base, sum_of
from volsched.log.database import Database
from volsched.log.durable_files import lines_of_file
from volsched.log.errors import BrokenLogError, StoreError
from volsched.log.integrity.anchors import Anchor, parse_anchor
from volsched.log.integrity.verify import rebuild
from volsched.log.retention.export import ExportError

DAMAGED = 'checkpoints "base-states": the states of the streams at the base differ from the archived ones'
NOT_ARCHIVED = "it differs from the archives"
EDITS_OF_THE_BASE = [
    ("UPDATE snapshots SET state = replace(state, '10Gi', '99Gi') WHERE stream = 'volume/b'", "volume/b@3"),
    ("UPDATE snapshots SET version = 7 WHERE stream = 'volume/old'", "volume/old@7"),
    ("UPDATE snapshots SET state = '{' WHERE stream = 'volume/b'", "volume/b@3"),
    ("UPDATE snapshots SET position = 99 WHERE stream = 'volume/old'", "volume/old@2"),
    ("DELETE FROM snapshots WHERE stream = 'volume/old'", "volume/old@2"),
    ("INSERT INTO snapshots (stream, version, position, state) VALUES ('volume/b', 1, 1, '{}')", "volume/b@1"),
    ("INSERT INTO snapshots (stream, version, position, state) VALUES ('volume/z', 1, 1, '{}')", "volume/z@1"),
]


@pytest.mark.parametrize(("edit", "key"), EDITS_OF_THE_BASE, ids=lambda it: it.partition(" WHERE")[0])
def test_an_edited_base_state_is_found_and_nothing_is_rebuilt_from_it(
    database: Database, tmp_path: Path, edit: str, key: str
) -> None:
    ended(database)
    put(database, 20, tmp_path / "old.jsonl")
    right = views(database)
    sql(database, edit)
    assert [it.partition(";")[0] for it in problems(database)] == [DAMAGED]
    with pytest.raises(BrokenLogError, match="the states of the streams at the base"):
        rebuild(database)
    assert views(database) == right
    found = problems(database, tmp_path / "old.jsonl")
    assert f'snapshots "{key}"' in found[0]


def test_a_base_state_edited_together_with_the_sum_is_found_with_the_archive_only(
    database: Database, tmp_path: Path
) -> None:
    ended(database)
    put(database, 20, tmp_path / "old.jsonl")
    edit = "UPDATE snapshots SET state = replace(state, :old, :new) WHERE stream = 'volume/old'"
    sql(database, edit, old='"rv":2', new='"rv":1')
    with database.read() as connection:
        fitting = sum_of(row.mark() for row in base_rows(connection, 20))
    sql(database, "UPDATE checkpoints SET hash = :hash WHERE name = 'base-states'", hash=fitting)
    assert problems(database) == []
    assert problems(database, tmp_path / "old.jsonl") == [f'snapshots "volume/old@2": {NOT_ARCHIVED}']


@pytest.mark.parametrize(
    ("edit", "alone", "with_archive"),
    [
        ("position = 19", 'checkpoints "base-states": the states', "position 20: the event is missing"),
        (
            "position = 21",
            "position 21: there is an event before the first",
            "position 21: the archives end before",
        ),
        ("at = at + 1", None, 'checkpoints "base", column at: it differs from the archives'),
        (
            "hash = :hash",
            "position 21, column hash: the event, or the one before",
            'checkpoints "base", column hash',
        ),
    ],
)
def test_an_edited_checkpoint_is_found(
    database: Database, tmp_path: Path, edit: str, alone: str | None, with_archive: str
) -> None:
    ended(database)
    put(database, 20, tmp_path / "old.jsonl")
    values = {"hash": bytes(32)} if "hash" in edit else {}
    sql(database, f"UPDATE checkpoints SET {edit} WHERE name = 'base'", **values)
    if alone is not None:
        assert problems(database)[0].startswith(alone)
    assert any(it.startswith(with_archive) for it in problems(database, tmp_path / "old.jsonl"))


def test_a_lost_checkpoint_is_found(database: Database, tmp_path: Path) -> None:
    ended(database)
    put(database, 20, tmp_path / "old.jsonl")
    sql(database, "DELETE FROM checkpoints")
    assert problems(database) == ["position 1: the event is missing"]


TAMPERINGS = [
    ("UPDATE events SET actor = 'me' WHERE position = 19", "position 19, column hash"),
    ("DELETE FROM events WHERE position = 18", "position 18: the event is missing"),
    ("DELETE FROM events WHERE position = 21", "position 21: the event is missing"),
    ("DELETE FROM events WHERE position > 19", "position 19: the log ends here, its tail is cut"),
    ("UPDATE volumes SET phase = 'Lost' WHERE key = 'b'", 'volumes "b", column phase'),
    (
        "INSERT INTO events (position, stream, version, type, schema, at, actor, data, hash) "
        "VALUES (3, 'volume/x', 1, 'VolumeDeleted', 1, 1, 'me', '{}', :hash)",
        "position 3: there is an event before the first",
    ),
]


@pytest.mark.parametrize(("tampering", "message"), TAMPERINGS, ids=lambda it: it.partition(" ")[0])
def test_tampering_behind_the_base_is_found_as_ever(
    database: Database, tmp_path: Path, tampering: str, message: str
) -> None:
    ended(database)
    put(database, 17, tmp_path / "old.jsonl")
    sql(database, tampering, **({"hash": bytes(32)} if ":hash" in tampering else {}))
    assert problems(database)[0].startswith(message)
    assert problems(database, tmp_path / "old.jsonl")[0].startswith(message)


def test_swapped_events_behind_the_base_are_found(database: Database, tmp_path: Path) -> None:
    ended(database)
    put(database, 15, tmp_path / "old.jsonl")
    for old, new in ((17, 99), (19, 17), (99, 19)):
        sql(database, f"UPDATE events SET position = {new} WHERE position = {old}")
    assert problems(database)[0].startswith("position 17, column hash: the event, or the one before")


def test_archives_that_do_not_make_the_history_are_refused(database: Database, tmp_path: Path) -> None:
    ended(database)
    one, two, three = (tmp_path / f"{n}.jsonl" for n in (1, 2, 3))
    for until, out in ((5, one), (9, two), (16, three)):
        put(database, until, out)
    assert problems(database, one, two, three) == []
    with pytest.raises(StoreError, match="the first file begins at position 6"):
        problems(database, two, three)
    with pytest.raises(ExportError, match="begins at position 10 and does not follow the one before") as wrong:
        problems(database, one, three)
    assert wrong.value.file == 1
    assert problems(database, one, two) == [
        "position 10: the archives end before it and the store begins after position 16: "
        "give the file that is missing too"
    ]
    three.write_text(three.read_text(encoding="utf-8").replace('"test"', '"me"', 1), encoding="utf-8")
    with pytest.raises(ExportError, match=r"line \d+: position 1\d: ") as wrong:
        problems(database, one, two, three)
    assert wrong.value.file == 2


def test_an_archive_of_another_history_is_found(database: Database, tmp_path: Path) -> None:
    ended(database)
    events, end = log(database), tmp_path / "other.jsonl"
    rewrite(database, [events[0]._replace(actor="somebody"), *events[1:]])
    end.write_text("".join(exported(database, last=15)), encoding="utf-8")
    rewrite(database, events)
    put(database, 15, tmp_path / "old.jsonl")
    found = problems(database, end)
    assert found[0].startswith('checkpoints "base", column hash: it differs from the archives')
    assert any(it.startswith("position 16, column hash") for it in found)


def test_a_tail_cut_with_its_head_is_found_by_an_archive_that_reaches_beyond(
    database: Database, tmp_path: Path
) -> None:
    """Interrupted in the middle, its file knows more than was taken out: it is an anchor too."""
    must(database, *(create_volume(name) for name in "abcdef"))
    short = log(database)[:4]
    out = tmp_path / "old.jsonl"
    out.write_text("".join(exported(database)), encoding="utf-8")
    sql(database, "DELETE FROM volumes WHERE key IN ('e', 'f')")
    rewrite(database, short)
    assert problems(database) == []
    assert problems(database, out) == ["position 6: the log ends at 4; the anchor was taken of a longer log"]


def test_an_anchor_from_before_the_archive_still_holds(database: Database, tmp_path: Path) -> None:
    ended(database)
    events, out = log(database), tmp_path / "old.jsonl"
    put(database, 17, out)
    for position in (4, 17, 18, 22):
        anchor = Anchor(position, events[position - 1].hash, 0)
        assert problems(database, out, anchor=anchor) == []
        wrong = Anchor(position, bytes(32), 0)
        assert problems(database, out, anchor=wrong)[0].startswith(
            f"position {position}, column hash: the log was"
        )
    assert problems(database, anchor=parse_anchor(next(lines_of_file(out)))) == []


def test_a_compressed_archive_that_is_cut_or_scribbled_on_is_refused(database: Database, tmp_path: Path) -> None:
    ended(database)
    out = tmp_path / "old.jsonl.gz"
    put(database, 17, out)
    whole = out.read_bytes()
    assert gzip.decompress(whole).count(b"\n") == 18
    for damaged in (whole[:-20], b"no gzip", whole[:60] + b"\xa5" * 40 + whole[100:]):
        out.write_bytes(damaged)
        with pytest.raises(ExportError):
            problems(database, out)


def test_a_copy_of_the_file_serves_as_well(database: Database, tmp_path: Path) -> None:
    ended(database)
    put(database, 17, tmp_path / "old.jsonl")
    shutil.move(tmp_path / "old.jsonl", tmp_path / "moved.jsonl")
    assert problems(database, tmp_path / "moved.jsonl") == []
    assert sorted(os.listdir(tmp_path))[0] == "moved.jsonl"


def test_nothing_is_archived_yet(database: Database) -> None:
    ended(database)
    with database.read() as connection:
        assert read_base(connection).position == 0
        assert archived_files(connection) == []
