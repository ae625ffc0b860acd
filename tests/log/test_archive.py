"""Archiving: events leave the store for a file, and everything that can still be asked has the same answer."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.archived_stores import answers, ended, files, problems, put
from tests.support.exported_logs import emptied, exported
from tests.support.histories import SECOND, fill, log, rewrite, sql, views
from tests.support.store_samples import NOW, append, change_volume, create_volume, delete_volume, must, plan
from volsched.log import tables
from volsched.log.base import EVERY, archived_files, archives_text
from volsched.log.database import Database
from volsched.log.durable_files import import_log, lines_of_file, verify_export
from volsched.log.errors import ArchivedError, BrokenLogError, StoreError
from volsched.log.events.envelope import Event, NewEvent
from volsched.log.integrity.anchors import Anchor
from volsched.log.integrity.replay import fold_log
from volsched.log.integrity.verify import rebuild, verify
from volsched.log.reads.tail import position_at, state_as_of, tail
from volsched.log.retention import archive as archiving
from volsched.log.retention.archive import Archive, archive
from volsched.log.retention.export import ExportError


@pytest.mark.parametrize("until", [1, 2, 10, 17, 20])
def test_everything_from_the_base_on_is_answered_as_before(database: Database, tmp_path: Path, until: int) -> None:
    end = ended(database)
    before, out = answers(database, until), tmp_path / "old.jsonl"
    done = put(database, until, out)
    assert done == Archive(file=out, first=1, last=until, removed=until)
    assert answers(database, until) == before
    assert [it.position for it in log(database)] == list(range(until + 1, end + 1))
    report = verify(database)
    assert (report.findings, report.after, report.archives) == ([], until, [f"1-{until} {out}"])
    assert verify_export(lines_of_file(out)).count == until


def test_of_many_archives_a_message_names_the_first_and_the_last(database: Database, tmp_path: Path) -> None:
    ended(database)
    for until in range(4, 10):
        put(database, until, tmp_path / f"{until}.jsonl")
        with database.read() as connection:
            text = archives_text(connection)
        if until == 6:
            assert [it.split()[0] for it in text.split("; ")] == ["1-4", "5-5", "6-6"]
    assert [it.split()[0] for it in text.split("; ")] == ["1-4", "4", "9-9"]
    assert "; 4 more, which volsched verify names; " in text


def test_archives_and_the_rest_make_the_whole_store_again(database: Database, tmp_path: Path) -> None:
    end = ended(database)
    right, events = views(database), log(database)
    paths = [tmp_path / "1.jsonl", tmp_path / "2.jsonl.gz", tmp_path / "3.jsonl"]
    for until, out in zip((4, 5, 16), paths, strict=True):
        put(database, until, out)
    with database.read() as connection:
        assert [name.split()[0] for name in archived_files(connection)] == ["1-4", "5-5", "6-16"]
    report = verify(database, archives=files(*paths))
    assert (report.findings, report.after, report.head.position) == ([], 0, end)
    rest = exported(database)
    assert json.loads(rest[0])["first"] == 17
    assert verify_export(*files(*paths), rest).count == end
    import_log(emptied(database), *files(*paths), rest)
    assert (views(database), log(database)) == (right, events)
    assert verify(database).after == 0
    assert problems(database) == []


def test_any_prefix_of_archives_and_rest_is_a_store(database: Database, tmp_path: Path) -> None:
    end = ended(database)
    with database.read() as connection:
        right = {position: fold_log(connection, until=position).states for position in range(5, end + 1)}
    put(database, 4, tmp_path / "old.jsonl")
    rests = {last: exported(database, last=last) for last in right}
    for last, rest in rests.items():
        import_log(emptied(database), *files(tmp_path / "old.jsonl"), rest)
        assert problems(database) == []
        with database.read() as connection:
            assert fold_log(connection).states == right[last]


def test_writers_go_on_from_archived_streams(database: Database, tmp_path: Path) -> None:
    end = ended(database)
    put(database, end - 1, tmp_path / "old.jsonl")
    must(database, create_volume("old"), change_volume("b", {"status": {"phase": "Bound"}}), create_volume("new"))
    must(database, plan("b3", "b", claim="db/third", effects=False))
    versions = {it.stream: it.version for it in log(database)}
    assert (versions["volume/old"], versions["volume/new"], versions["binding/b3"]) == (3, 1, 1)
    assert problems(database) == problems(database, tmp_path / "old.jsonl") == []
    with database.read() as connection:
        assert (
            state_as_of(connection, "volume/old", position=end - 1)
            == fold_log(connection, until=end).states["volume/old"]
        )


def test_expected_versions_of_archived_streams_are_still_known(database: Database, tmp_path: Path) -> None:
    end = ended(database)
    put(database, end - 1, tmp_path / "old.jsonl")
    must(
        database,
        create_volume("old", versions={"volume/old": 2}),
        create_volume("nobody", versions={"volume/nobody": 0}),
    )


def test_a_name_used_again_and_archived_again_has_one_state(database: Database, tmp_path: Path) -> None:
    end = ended(database)
    put(database, end - 1, tmp_path / "1.jsonl")
    must(database, create_volume("old"), delete_volume("old"), create_volume("more"), now=NOW + 8 * SECOND)
    put(database, end + 2, tmp_path / "2.jsonl")
    kept = [row for row in views(database, tables.snapshots)["snapshots"] if row[0] == "volume/old"]
    assert [(row[1], row[2]) for row in kept] == [(4, end + 2)]
    assert problems(database, tmp_path / "1.jsonl", tmp_path / "2.jsonl") == []


def test_snapshots_before_the_base_go_and_those_behind_stay(database: Database, tmp_path: Path) -> None:
    for turn in range(3 * EVERY // 50):
        must(database, *(change_volume("a", {"metadata": {"n": f"{turn}-{n}"}}) for n in range(50)))
    must(database, create_volume("b"))
    with database.read() as connection:
        right = [state_as_of(connection, "volume/a", position=position) for position in range(450, 600)]
    put(database, 450, tmp_path / "old.jsonl")
    kept = views(database, tables.snapshots)["snapshots"]
    assert [(row[1], row[2]) for row in kept] == [(450, 450), (600, 600)]
    with database.read() as connection:
        assert [state_as_of(connection, "volume/a", position=position) for position in range(450, 600)] == right
    assert problems(database) == []
    sql(database, "UPDATE snapshots SET state = '{}' WHERE version = 600")
    assert problems(database) == ['snapshots "volume/a@600": the snapshot differs from the log']
    rebuild(database)
    assert [row[1] for row in views(database, tables.snapshots)["snapshots"]] == [450]
    assert problems(database) == []


def test_an_attempt_repeated_very_often_verifies_and_is_archived(database: Database, tmp_path: Path) -> None:
    ended(database)
    again = NewEvent(stream="attempt/1", type="AttemptRepeated", data={"decided_at": 4})
    must(database, *(append(again) for _ in range(EVERY + 5)), now=NOW + 8 * SECOND)
    assert problems(database) == []
    put(database, log(database)[-3].position, tmp_path / "old.jsonl")
    assert problems(database, tmp_path / "old.jsonl") == []


def test_views_are_rebuilt_from_the_base(database: Database, tmp_path: Path) -> None:
    end = ended(database)
    right = views(database)
    put(database, end - 2, tmp_path / "old.jsonl")
    sql(database, *(f"DELETE FROM {name}" for name in right))
    rebuild(database)
    assert views(database) == right


BEFORE_THE_BASE: list[tuple[str, Callable[[Database], object]]] = [
    ("replay", lambda it: _with(it, lambda c: fold_log(c, until=9))),
    ("as of", lambda it: _with(it, lambda c: state_as_of(c, "volume/a", position=9))),
    ("time", lambda it: _with(it, lambda c: position_at(c, NOW + SECOND))),
    ("tail", lambda it: _with(it, lambda c: tail(c, after=9, limit=1))),
    ("export", lambda it: exported(it, first=10)),
    ("anchor", lambda it: verify(it, anchors=[Anchor(9, bytes(32), 0)])),
]


def _with(database: Database, ask: Callable[[Any], object]) -> object:
    with database.read() as connection:
        return ask(connection)


def test_what_was_before_the_base_is_refused_with_the_file_that_holds_it(
    database: Database, tmp_path: Path
) -> None:
    ended(database)
    out = tmp_path / "old.jsonl"
    put(database, 10, out)
    for name, ask in BEFORE_THE_BASE:
        with pytest.raises(ArchivedError) as refused:
            ask(database)
        assert "the log begins at position 11" in str(refused.value), name
        assert f"1-10 {out}" in str(refused.value), name


@pytest.mark.parametrize(
    ("until", "message"),
    [
        (99, "the log ends at 22 and its last event stays; give 21 or less"),
        (22, "the log ends at 22 and its last event stays; give 21 or less"),
        (0, "there is no position 0; the log begins at 1"),
        (-3, "there is no position -3"),
    ],
)
def test_a_range_that_cannot_be_archived_is_refused(
    database: Database, tmp_path: Path, until: int, message: str
) -> None:
    assert ended(database) == 22
    events = log(database)
    with pytest.raises(StoreError, match=message):
        put(database, until, tmp_path / "old.jsonl")
    assert (log(database), list(tmp_path.glob("*.jsonl*"))) == (events, [])


@pytest.mark.parametrize("until", [3, 10])
def test_what_is_archived_is_not_archived_again(database: Database, tmp_path: Path, until: int) -> None:
    ended(database)
    put(database, 10, tmp_path / "old.jsonl")
    with pytest.raises(StoreError, match=rf"position {until} is archived already \(1-10 .*old.jsonl\); .* at 11"):
        put(database, until, tmp_path / "other.jsonl")


def test_events_of_an_open_binding_stay(database: Database, tmp_path: Path) -> None:
    fill(database)
    message = 'binding "b2" is open and its history begins at 8; give 7 or less'
    with pytest.raises(StoreError, match=message):
        put(database, 8, tmp_path / "old.jsonl")
    put(database, 7, tmp_path / "old.jsonl")
    assert problems(database, tmp_path / "old.jsonl") == []


def test_a_binding_that_is_opened_again_keeps_what_is_left_of_it(database: Database, tmp_path: Path) -> None:
    end = ended(database)
    put(database, end - 1, tmp_path / "1.jsonl")
    again = {"state": "prebinding", "open": True}
    must(database, append(NewEvent(stream="binding/b2", type="BindingMoved", data=again)), create_volume("z"))
    with pytest.raises(StoreError, match=f'binding "b2" is open and its history begins at {end + 1}'):
        put(database, end + 1, tmp_path / "2.jsonl")


def test_a_binding_opened_between_two_steps_stops_the_archive_there(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended(database)
    monkeypatch.setattr(archiving, "STEP", 7)

    def reopen(position: int) -> None:
        if position == 7:
            again = {"state": "prebinding", "open": True}
            must(database, append(NewEvent(stream="binding/b2", type="BindingMoved", data=again)))

    with pytest.raises(StoreError, match='binding "b2" is open and its history begins at 10'):
        put(database, 20, tmp_path / "old.jsonl", progress=reopen)
    assert log(database)[0].position == 8
    assert problems(database) == problems(database, tmp_path / "old.jsonl") == []


def test_what_was_written_a_moment_ago_stays(database: Database, tmp_path: Path) -> None:
    end = ended(database)
    for now, message in ((NOW + 9 * SECOND, "within the last 120 seconds"), (NOW - 9 * SECOND, "within the last")):
        with pytest.raises(StoreError, match=message):
            archive(database, until=end - 1, out=tmp_path / "old.jsonl", now=now)


def test_events_that_this_program_does_not_know_stay(database: Database, tmp_path: Path) -> None:
    ended(database)
    events = log(database)
    foreign = Event(0, "quota/x", 1, "QuotaCreated", 3, events[-1].at, "newer", None, None, "{}", b"")
    rewrite(database, [*events, foreign, foreign._replace(stream="quota/y"), foreign._replace(stream="quota/z")])
    with pytest.raises(
        StoreError, match="position 23 holds QuotaCreated of schema 3, which this program does not"
    ):
        put(database, 24, tmp_path / "old.jsonl")
    put(database, 22, tmp_path / "old.jsonl")
    newer = events[5]._replace(schema=9)
    rewrite(emptied(database), [*events[:5], newer, *events[6:]])
    with pytest.raises(StoreError, match=f"position 6 holds {newer.type} of schema 9"):
        put(database, 10, tmp_path / "other.jsonl")


def test_a_file_that_is_something_else_is_never_replaced(database: Database, tmp_path: Path) -> None:
    ended(database)
    events, out = log(database), tmp_path / "old.jsonl"
    for lines in (exported(database, last=9), exported(database, first=2, last=10)):
        out.write_text("".join(lines), encoding="utf-8")
        with pytest.raises(
            StoreError, match=r"old.jsonl exists already and is not the archive of positions 1 to 10"
        ):
            put(database, 10, out)
    for text in ("my notes\n", "".join(exported(database, last=10)[:-1])):
        out.write_text(text, encoding="utf-8")
        with pytest.raises(ExportError):
            put(database, 10, out)
        assert out.read_text(encoding="utf-8") == text
    assert log(database) == events


@pytest.mark.parametrize("name", ["gone/old.jsonl", "file/old.jsonl"])
def test_a_place_that_cannot_be_written_is_reported_and_nothing_happens(
    database: Database, tmp_path: Path, name: str
) -> None:
    ended(database)
    events = log(database)
    (tmp_path / "file").touch()
    with pytest.raises(
        StoreError, match=r"old.jsonl cannot be written: (No such file|Not a dir).*; check the path"
    ):
        put(database, 10, tmp_path / name)
    assert log(database) == events


def test_a_broken_log_is_not_archived(database: Database, tmp_path: Path) -> None:
    ended(database)
    sql(database, "UPDATE events SET actor = 'me' WHERE position = 6")
    events = log(database)
    with pytest.raises(BrokenLogError, match="position 6"):
        put(database, 10, tmp_path / "old.jsonl")
    assert (log(database), list(tmp_path.glob("*jsonl"))) == (events, [])


def test_a_log_that_breaks_behind_the_file_is_not_taken_out(database: Database, tmp_path: Path) -> None:
    ended(database)
    out = tmp_path / "old.jsonl"
    out.write_text("".join(exported(database, last=10)), encoding="utf-8")
    sql(database, "UPDATE events SET actor = 'me' WHERE position = 6")
    events = log(database)
    with pytest.raises(BrokenLogError, match="position 6"):
        put(database, 10, out)
    assert log(database) == events
