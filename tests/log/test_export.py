"""Export and import: a file proves itself, and a store made from it is the same store."""

import csv
import io
import json
from collections.abc import Callable

import pytest

from tests.support.exported_logs import EXPORTED_AT, Lines, emptied, exported
from tests.support.histories import fill, log, rewrite, sql, views
from tests.support.store_samples import change_volume, create_volume, must
from volsched.log import tables
from volsched.log.base import EVERY
from volsched.log.database import Database
from volsched.log.durable_files import import_log, verify_export
from volsched.log.errors import BrokenLogError, StoreError
from volsched.log.events.envelope import Event
from volsched.log.integrity.anchors import parse_anchor
from volsched.log.integrity.verify import verify
from volsched.log.reads.tail import read_head
from volsched.log.retention.export import ExportError, events_of, manifest_of, write_csv


def test_a_store_made_from_an_export_is_the_same_store(database: Database) -> None:
    fill(database)
    lines, right, events = exported(database), views(database), log(database)
    manifest = import_log(emptied(database), lines)
    assert (manifest.first, manifest.last, manifest.count) == (1, 15, 15)
    assert (views(database), log(database)) == (right, events)
    assert verify(database, anchors=[parse_anchor(lines[0])]).ok
    assert exported(database) == lines


def test_writers_go_on_from_an_imported_log(database: Database) -> None:
    fill(database)
    lines = exported(database)
    import_log(emptied(database), lines)
    (done,) = must(database, change_volume("a", {"metadata": {"labels": {"x": "y"}}}))
    assert done.position == 16
    assert verify(database).ok


def test_the_first_line_tells_the_range_and_its_hashes(database: Database) -> None:
    fill(database)
    events = log(database)
    told = json.loads(exported(database, first=4, last=9)[0])
    assert told == {
        "format": "volsched-log/1", "first": 4, "last": 9, "count": 6, "before": events[2].hash.hex(),
        "hash": events[8].hash.hex(), "at": events[8].at, "exportedAt": EXPORTED_AT,
    }  # fmt: skip


def test_data_is_json_that_people_can_read(database: Database) -> None:
    must(
        database,
        create_volume("ä", size="10Gi"),
        change_volume("ä", {"metadata": {"labels": {"q": '"\\\n\u2028'}}}),
    )
    lines = exported(database)
    assert '"stream": "volume/ä"' in lines[1]
    assert json.loads(lines[1])["data"]["patch"]["spec"]["capacity"] == {"storage": "10Gi"}
    assert verify_export(lines).count == 2


def test_numbers_come_back_exactly(database: Database) -> None:
    odd = {
        "small": 1e-300,
        "big": 2**63 - 1,
        "large": 1e25,
        "float": 1e16,
        "zero": -0.0,
        "third": 1 / 3,
        "whole": 2.0,
    }
    must(database, change_volume("a", {"spec": odd}))
    lines, right = exported(database), views(database)
    import_log(emptied(database), lines)
    assert views(database) == right
    assert verify(database).ok


def test_a_range_from_the_middle_verifies_alone_but_makes_no_store(database: Database) -> None:
    fill(database)
    lines = exported(database, first=4, last=9)
    assert verify_export(lines).count == 6
    with pytest.raises(StoreError, match="begins at position 4"):
        import_log(emptied(database), lines)
    with database.read() as connection:
        assert read_head(connection).position == 0


def test_a_store_that_has_events_takes_no_import(database: Database) -> None:
    fill(database)
    with pytest.raises(StoreError, match="has 15 events already"):
        import_log(database, exported(database))


@pytest.mark.parametrize(("first", "last"), [(0, 3), (5, 4), (1, 16), (16, None), (-2, 1)])
def test_a_range_that_is_not_there_is_named(database: Database, first: int, last: int | None) -> None:
    fill(database)
    with pytest.raises(StoreError, match="the log has positions 1 to 15"):
        exported(database, first=first, last=last)


def test_an_empty_log_has_nothing_to_export(database: Database) -> None:
    with pytest.raises(StoreError, match="the log is empty"):
        exported(database)


def test_a_broken_log_is_not_carried_on(database: Database) -> None:
    fill(database)
    sql(database, "UPDATE events SET actor = 'me' WHERE position = 6")
    with pytest.raises(BrokenLogError, match="position 6"):
        exported(database)
    sql(database, "DELETE FROM events WHERE position = 6")
    with pytest.raises(BrokenLogError, match="position 6: the event is missing"):
        exported(database)
    with pytest.raises(BrokenLogError, match="position 6: the event is missing"):
        exported(database, first=7)


def _edited(lines: Lines, line: int, old: str, new: str) -> Lines:
    changed = lines[line - 1].replace(old, new)
    assert changed != lines[line - 1]
    return [*lines[: line - 1], changed, *lines[line:]]


NOT_LINKED = "the event, or the one before, is not the one that was written"
TAMPERINGS: list[tuple[str, Callable[[Lines], Lines], str]] = [
    ("edited data", lambda it: _edited(it, 4, "5Gi", "9Gi"), f"line 4: position 3: {NOT_LINKED}"),
    ("edited actor", lambda it: _edited(it, 8, "scheduler", "me"), f"line 8: position 7: {NOT_LINKED}"),
    ("removed line", lambda it: it[:6] + it[7:], "line 7: position 6: the event is missing"),
    ("doubled line", lambda it: it[:6] + it[5:], "line 7: position 6: the event is missing"),
    ("swapped lines", lambda it: [*it[:5], it[6], it[5], *it[7:]], "line 6: position 5: the event is missing"),
    ("cut tail", lambda it: it[:-3], "line 14: position 13: the event is missing"),
    ("cut within a line", lambda it: [*it[:-1], it[-1][:40]], "line 16: this is not an event"),
    ("a line of another kind", lambda it: [*it[:3], "{}\n", *it[3:]], "line 4: this is not an event"),
    ("an empty line", lambda it: [*it[:3], "\n", *it[3:]], "line 4: this is not an event"),
    (
        "more than promised",
        lambda it: [_shortened(it[0]), *it[1:]],
        "line 16: position 15: the manifest ends at 14",
    ),
    (
        "manifest: hash",
        lambda it: _edited(it, 1, '"hash": "', '"hash": "00'),
        "line 16: position 15: the manifest has",
    ),
    ("manifest: before", lambda it: _edited(it, 1, "00000000", "11111111"), f"line 2: position 1: {NOT_LINKED}"),
    ("manifest: format", lambda it: _edited(it, 1, "log/1", "log/9"), "line 1: the format is volsched-log/9"),
    (
        "manifest: no number",
        lambda it: _edited(it, 1, '"last": 15', '"last": "x"'),
        "line 1: this is not the manifest",
    ),
    ("no manifest", lambda it: it[1:], "line 1: this is not the manifest"),
    ("nothing", lambda _: [], "line 1: this is not the manifest"),
]


def _shortened(manifest: str) -> str:
    return json.dumps(json.loads(manifest) | {"last": 14, "count": 14}) + "\n"


def test_a_tampered_file_is_refused_with_line_and_position_and_leaves_the_store_empty(database: Database) -> None:
    fill(database)
    lines = exported(database)
    emptied(database)
    for name, tamper, message in TAMPERINGS:
        with pytest.raises(ExportError) as alone:
            verify_export(tamper(lines))
        assert str(alone.value).startswith(message), name
        if "before" not in name:
            with pytest.raises(ExportError) as imported:
                import_log(database, tamper(lines))
            assert str(imported.value).startswith(message), name
    with database.read() as connection:
        assert read_head(connection).position == 0
    assert log(database) == []


def test_a_well_linked_file_that_cannot_be_folded_is_refused(database: Database) -> None:
    fill(database)
    events = log(database)
    forged = Event(0, "volume/z", 1, "VolumeFreed", 1, events[-1].at, "me", None, None, '{"binding":"b"}', b"")
    rewrite(database, [*events, forged])
    lines = exported(database)
    with pytest.raises(ExportError, match=r"line 17: position 16: .* an absent object is freed"):
        import_log(emptied(database), lines)


def test_long_streams_get_their_snapshots_on_import_too(database: Database) -> None:
    must(database, create_volume("a"), *(change_volume("a", {"metadata": {"n": str(n)}}) for n in range(EVERY)))
    lines = exported(database)
    import_log(emptied(database), lines)
    assert len(views(database, tables.snapshots)["snapshots"]) == 1
    assert verify(database).ok


def test_csv_has_every_column_of_every_event(database: Database) -> None:
    fill(database)
    out = io.StringIO()
    with database.read() as connection:
        write_csv(out, events_of(connection, manifest_of(connection, now=EXPORTED_AT)))
    rows = list(csv.DictReader(io.StringIO(out.getvalue())))
    events = log(database)
    assert len(rows) == len(events)
    assert [(row["position"], row["data"], row["hash"]) for row in rows] == [
        (str(it.position), it.data, it.hash.hex()) for it in events
    ]
