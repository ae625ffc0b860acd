"""Verification: whatever is done to a store behind our back is found, at its exact place."""

import json

import pytest

from tests.support.histories import fill, log, rewrite, sql
from tests.support.store_samples import change_volume, create_volume, must
from volsched.log.base import EVERY
from volsched.log.database import Database
from volsched.log.errors import Finding, StoreError
from volsched.log.events.envelope import GENESIS, link
from volsched.log.integrity.anchors import Anchor, parse_anchor
from volsched.log.integrity.verify import rebuild, verify

NOT_LINKED = "the event, or the one before, is not the one that was written"


def found(database: Database, *, anchor: Anchor | None = None) -> list[Finding]:
    return verify(database, anchors=[] if anchor is None else [anchor]).findings


def the_one(database: Database, *, anchor: Anchor | None = None) -> Finding:
    findings = found(database, anchor=anchor)
    assert len(findings) == 1, [str(it) for it in findings]
    return findings[0]


def anchor_of(database: Database) -> Anchor:
    last = log(database)[-1]
    return Anchor(last.position, last.hash, last.at)


def test_what_we_wrote_verifies(database: Database) -> None:
    assert verify(database).ok
    fill(database)
    report = verify(database, anchors=[anchor_of(database)])
    assert report.ok
    assert (report.head.position, report.streams, report.more) == (15, 6, 0)


EDITS_OF_AN_EVENT = [
    ("data", """'{"patch":{"status":{"phase":"Lost"}}}'"""),
    ("data", "data || ' '"),
    ("type", "'VolumeCreated'"),
    ("stream", "'volume/z'"),
    ("version", "version + 40"),
    ("schema", "schema + 1"),
    ("at", "at + 1"),
    ("actor", "'somebody'"),
    ("cause", "3"),
    ("binding", "'b9'"),
]


def test_an_event_edited_in_any_column_is_found_at_its_position(database: Database) -> None:
    fill(database)
    events = log(database)
    for column, value in EDITS_OF_AN_EVENT:
        sql(database, f"UPDATE events SET {column} = {value} WHERE position = 10")
        finding = the_one(database)
        assert (finding.position, finding.problem, finding.column) == (10, NOT_LINKED, "hash"), column
        rewrite(database, events)


@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
def test_bytes_that_are_no_text_are_found_at_their_position(database: Database) -> None:
    """PostgreSQL does not take them; SQLite does, and its driver cannot read them back."""
    fill(database)
    sql(database, "UPDATE volumes SET phase = CAST(x'ff41' AS TEXT) WHERE key = 'b'")
    assert (the_one(database).key, the_one(database).got) == ("b", "\\xffA")
    sql(database, "UPDATE events SET data = CAST(x'7b22ff' AS TEXT) WHERE position = 9")
    assert (the_one(database).position, the_one(database).problem) == (9, NOT_LINKED)


def test_an_edited_hash_is_found_at_its_position(database: Database) -> None:
    fill(database)
    sql(database, "UPDATE events SET hash = :hash WHERE position = 10", hash=bytes(32))
    finding = the_one(database)
    assert (finding.position, finding.got) == (10, bytes(32))


def test_an_edited_event_with_its_own_hash_made_to_fit_is_found_at_the_next(database: Database) -> None:
    fill(database)
    events = log(database)
    forged = link(events[8].hash, *events[9]._replace(actor="me")[:-1])
    sql(database, "UPDATE events SET actor = 'me', hash = :hash WHERE position = 10", hash=forged)
    assert the_one(database).position == 11


@pytest.mark.parametrize("position", [1, 8, 14])
def test_a_deleted_event_is_missing_at_its_position(database: Database, position: int) -> None:
    fill(database)
    sql(database, f"DELETE FROM events WHERE position = {position}")
    finding = the_one(database)
    assert (finding.position, finding.problem) == (position, "the event is missing")


def test_a_deleted_event_whose_place_is_closed_up_is_found_there(database: Database) -> None:
    fill(database)
    sql(database, "DELETE FROM events WHERE position = 8")
    for position in range(9, 16):
        sql(database, f"UPDATE events SET position = {position - 1} WHERE position = {position}")
    assert (the_one(database).position, the_one(database).problem) == (8, NOT_LINKED)


def test_an_inserted_event_is_found_at_its_position(database: Database) -> None:
    """The later ones moved up to make room for it."""
    fill(database)
    for position in range(15, 9, -1):
        sql(database, f"UPDATE events SET position = {position + 1} WHERE position = {position}")
    sql(database, _INSERT.format(position=10), hash=bytes(32))
    assert (the_one(database).position, the_one(database).problem) == (10, NOT_LINKED)


@pytest.mark.parametrize("position", [0, -3])
def test_an_event_inserted_before_the_first_is_found(database: Database, position: int) -> None:
    fill(database)
    sql(database, _INSERT.format(position=position), hash=bytes(32))
    finding = the_one(database)
    assert (finding.position, finding.problem) == (position, "there is an event before the first")


def test_an_event_appended_past_the_writer_is_found_even_if_well_linked(database: Database) -> None:
    fill(database)
    last = log(database)[-1]
    forged = link(last.hash, 16, "quota/x", 1, "QuotaCreated", 1, last.at, "me", None, None, "{}")
    sql(
        database,
        "INSERT INTO events (position, stream, version, type, schema, at, actor, data, hash) "
        f"VALUES (16, 'quota/x', 1, 'QuotaCreated', 1, {last.at}, 'me', '{{}}', :hash)",
        hash=forged,
    )
    finding = the_one(database)
    assert (finding.position, finding.problem) == (16, "the event bypassed the writer: the head says 15")


def test_swapped_events_are_found_at_the_first_of_them(database: Database) -> None:
    fill(database)
    for old, new in ((9, 99), (12, 9), (99, 12)):
        sql(database, f"UPDATE events SET position = {new} WHERE position = {old}")
    assert (the_one(database).position, the_one(database).problem) == (9, NOT_LINKED)


def test_a_cut_tail_is_found_where_it_was_cut(database: Database) -> None:
    fill(database)
    sql(database, "DELETE FROM events WHERE position > 11")
    first = found(database)[0]
    assert (first.position, first.problem) == (11, "the log ends here, its tail is cut: the head says 15")


def test_a_tail_cut_with_its_head_and_views_is_found_with_an_anchor_only(database: Database) -> None:
    must(database, create_volume("a"))
    short = log(database)
    must(database, create_volume("b"))
    anchor = anchor_of(database)
    sql(database, "DELETE FROM volumes WHERE key = 'b'")
    rewrite(database, short)
    assert found(database) == []
    finding = the_one(database, anchor=anchor)
    assert finding.position == 2
    assert finding.problem == "the log ends at 1; the anchor was taken of a longer log"


def test_a_history_written_anew_is_found_with_an_anchor_only(database: Database) -> None:
    must(database, create_volume("a"), create_volume("b"))
    anchor = anchor_of(database)
    events = log(database)
    rewrite(database, [events[0]._replace(actor="somebody"), events[1]])
    assert found(database) == []
    finding = the_one(database, anchor=anchor)
    assert (finding.position, finding.column, finding.expected) == (2, "hash", anchor.hash)


def test_an_anchor_still_holds_when_the_log_has_grown(database: Database) -> None:
    must(database, create_volume("a"))
    anchor = anchor_of(database)
    must(database, create_volume("b"))
    assert verify(database, anchors=[anchor]).ok
    assert verify(database, anchors=[Anchor(0, GENESIS, 0)]).ok


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ("position = 12", (13, None, "the event bypassed the writer: the head says 12")),
        ("position = 20", (15, None, "the log ends here, its tail is cut: the head says 20")),
        ("at = 5", (None, "at", "the head is not the log's last event")),
    ],
)
def test_an_edited_head_is_found(database: Database, change: str, expected: tuple[object, ...]) -> None:
    fill(database)
    sql(database, f"UPDATE log_head SET {change}")
    finding = the_one(database)
    assert (finding.position, finding.column, finding.problem) == expected


def test_an_edited_hash_of_the_head_is_found(database: Database) -> None:
    fill(database)
    sql(database, "UPDATE log_head SET hash = :hash", hash=bytes(32))
    finding = the_one(database)
    assert (finding.table, finding.column, finding.got) == ("log_head", "hash", bytes(32))


EDITS_OF_VIEWS = [
    ("volumes SET phase = 'Lost' WHERE key = 'a'", "volumes", "a", "phase", "Bound", "Lost"),
    ("volumes SET rv = 77 WHERE key = 'a'", "volumes", "a", "rv", 11, 77),
    ("volumes SET version = 9 WHERE key = 'b'", "volumes", "b", "version", 2, 9),
    ("volumes SET capacity_bytes = 1 WHERE key = 'b'", "volumes", "b", "capacity_bytes", 10 * 2**30, 1),
    ("volumes SET claim = NULL WHERE key = 'a'", "volumes", "a", "claim", "db/data", None),
    ("volumes SET assumed_rv = 1 WHERE key = 'b'", "volumes", "b", "assumed_rv", 2, 1),
    ("bindings SET open = NOT open WHERE id = 'b1'", "bindings", "b1", "open", False, True),
    ("bindings SET node = 'n9' WHERE id = 'b2'", "bindings", "b2", "node", "n1", "n9"),
    ("binding_legs SET volume = 'c' WHERE binding = 'b1'", "binding_legs", "b1/0", "volume", "a", "c"),
    ("attempts SET count = 3", "attempts", "1", "count", 2, 3),
]


def test_an_edited_view_row_is_found_by_table_key_and_column(database: Database) -> None:
    fill(database)
    for change, table, key, column, expected, got in EDITS_OF_VIEWS:
        sql(database, f"UPDATE {change}")
        finding = the_one(database)
        assert (finding.table, finding.key, finding.column) == (table, key, column)
        assert (finding.expected, finding.got) == (expected, got)
        rebuild(database)


def test_an_edited_manifest_is_found_whole(database: Database) -> None:
    fill(database)
    sql(database, "UPDATE volumes SET manifest = replace(manifest, '10Gi', '99Gi') WHERE key = 'b'")
    finding = the_one(database)
    assert (finding.table, finding.key, finding.column) == ("volumes", "b", "manifest")
    assert finding.expected == finding.got.replace("99Gi", "10Gi")


@pytest.mark.parametrize(
    ("table", "where", "key"),
    [
        ("volumes", "key = 'a'", "a"),
        ("bindings", "id = 'b2'", "b2"),
        ("binding_legs", "binding = 'b1'", "b1/0"),
        ("attempts", "id = '1'", "1"),
    ],
)
def test_a_deleted_view_row_is_found(database: Database, table: str, where: str, key: str) -> None:
    fill(database)
    sql(database, f"DELETE FROM {table} WHERE {where}")
    first = found(database)[0]
    assert (first.table, first.key) == (table, key)
    assert first.problem == "the view lacks a row that the log has"


@pytest.mark.parametrize(
    ("statement", "table", "key"),
    [
        (
            "INSERT INTO volumes (key, uid, rv, version, manifest, deleting) VALUES ('x', '', 1, 1, '{}', FALSE)",
            "volumes",
            "x",
        ),
        (
            "INSERT INTO namespaces (key, uid, rv, version, manifest) VALUES ('x', '', 1, 1, '{}')",
            "namespaces",
            "x",
        ),
        (
            "INSERT INTO binding_legs (binding, leg, claim, owner, open, state) "
            "VALUES ('b1', 1, 'db/x', TRUE, FALSE, 'x')",
            "binding_legs",
            "b1/1",
        ),
    ],
)
def test_an_extra_view_row_is_found(database: Database, statement: str, table: str, key: str) -> None:
    fill(database)
    sql(database, statement)
    finding = the_one(database)
    assert (finding.table, finding.key) == (table, key)
    assert finding.problem == "the view has a row that the log does not have"


def test_a_row_of_a_deleted_object_is_extra(database: Database) -> None:
    fill(database)
    sql(
        database,
        "INSERT INTO volumes (key, uid, rv, version, manifest, deleting) VALUES ('c', '', 1, 1, '{}', FALSE)",
    )
    assert (the_one(database).table, the_one(database).key) == ("volumes", "c")


def test_an_edited_snapshot_is_found(database: Database) -> None:
    must(database, create_volume("a"), *(change_volume("a", {"metadata": {"n": str(n)}}) for n in range(EVERY)))
    assert verify(database).ok
    sql(database, "UPDATE snapshots SET state = replace(state, '10Gi', '99Gi')")
    finding = the_one(database)
    assert (finding.table, finding.key) == ("snapshots", f"volume/a@{EVERY + 1}")


def test_an_effect_of_a_binding_that_never_was_is_found(database: Database) -> None:
    fill(database)
    sql(database, "UPDATE effects SET binding = 'b9' WHERE key = 'b2/0/prebind'")
    finding = the_one(database)
    assert (finding.table, finding.key, finding.got) == ("effects", "b2/0/prebind", "b9")


def test_an_effect_from_the_future_is_found(database: Database) -> None:
    fill(database)
    sql(database, "UPDATE effects SET position = 99 WHERE key = 'b2/0/prebind'")
    finding = the_one(database)
    assert (finding.table, finding.key, finding.got) == ("effects", "b2/0/prebind", 99)


def test_a_flood_of_findings_is_counted_and_not_kept(database: Database) -> None:
    must(database, *(create_volume(f"v{n}") for n in range(1_100)))
    sql(database, "DELETE FROM volumes")
    report = verify(database)
    assert (len(report.findings), report.more) == (1_000, 100)


@pytest.mark.parametrize(
    "given", ["", "{", "[]", "{}", '{"position": 1}', '{"position": 1, "hash": "zz", "at": 1}']
)
def test_what_is_no_anchor_is_refused(given: str) -> None:
    with pytest.raises(StoreError, match="not an anchor"):
        parse_anchor(given)


def test_an_anchor_is_read_back_as_written() -> None:
    anchor = Anchor(7, bytes(range(32)), 99)
    assert parse_anchor(anchor.dump()) == anchor


def test_a_finding_says_where_and_what() -> None:
    assert str(Finding(problem="broken", position=3)) == "position 3: broken"
    edited = Finding(problem="off", table="volumes", key="a", column="rv", expected=1, got=None)
    assert str(edited) == 'volumes "a", column rv: off (expected 1, got nothing)'
    hashes = Finding(problem="off", position=3, column="hash", expected=b"\x01", got=b"\x02")
    assert json.loads(json.dumps(hashes.as_json()))["got"] == "02"


_INSERT = (
    "INSERT INTO events (position, stream, version, type, schema, at, actor, data, hash) "
    "VALUES ({position}, 'quota/x', 1, 'QuotaCreated', 1, 1, 'me', '{{}}', :hash)"
)
