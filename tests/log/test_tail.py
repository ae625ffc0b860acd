"""Reading the log: tail, streams, bindings, and what an object was at a position or a time."""

from functools import partial

import pytest
from sqlalchemy import func, select, text

from tests.support.histories import SECOND, fill, log, sql
from tests.support.store_samples import NOW, change_volume, create_volume, delete_volume, must
from volsched.log import tables
from volsched.log.base import EVERY, dumped, loaded
from volsched.log.database import Database
from volsched.log.errors import NewerStoreError, NotMigratedError
from volsched.log.events.envelope import GENESIS, upcast
from volsched.log.events.fold import AttemptState, BindingState, ObjectState
from volsched.log.integrity.replay import fold_log
from volsched.log.reads.tail import (
    event,
    events_of_binding,
    position_at,
    read_head,
    read_stream,
    state_as_of,
    tail,
)


def test_the_head_of_an_empty_log_is_its_beginning(database: Database) -> None:
    with database.read() as connection:
        head = read_head(connection)
        assert (head.position, head.hash, head.at) == (0, GENESIS, 0)
        assert tail(connection, after=0, limit=10) == []
        assert event(connection, 1) is None
        assert position_at(connection, NOW) == 0
        assert state_as_of(connection, "volume/a", position=9) is None


def test_a_tail_goes_on_behind_a_position_in_order(database: Database) -> None:
    fill(database)
    everything = log(database)
    with database.read() as connection:
        assert tail(connection, after=0, limit=100) == everything
        assert [it.position for it in tail(connection, after=4, limit=3)] == [5, 6, 7]
        assert tail(connection, after=len(everything), limit=3) == []
        assert event(connection, 7) == everything[6]


def test_a_stream_and_a_binding_are_read_alone(database: Database) -> None:
    fill(database)
    with database.read() as connection:
        stream = read_stream(connection, "volume/a")
        assert [it.version for it in stream] == [1, 2, 3, 4, 5]
        assert read_stream(connection, "volume/a", after_version=3) == stream[3:]
        assert read_stream(connection, "volume/a", after_version=3, limit=1) == stream[3:4]
        types = [it.type for it in events_of_binding(connection, "b1")]
        assert types == ["BindingPlanned", "VolumeAssumed", "LegMoved", "BindingMoved"]


def test_a_time_is_the_last_position_written_until_then(database: Database) -> None:
    fill(database)
    cases = {-1: 0, 0: 3, 1: 3, SECOND: 4, 3 * SECOND - 1: 5, 3 * SECOND: 11, 10**12: 15}
    with database.read() as connection:
        assert {offset: position_at(connection, NOW + offset) for offset in cases} == cases


def test_as_of_every_position_equals_the_fold_of_that_prefix(database: Database) -> None:
    fill(database)
    streams = {it.stream for it in log(database)}
    with database.read() as connection:
        for position in range(16):
            folded = fold_log(connection, until=position).states
            for stream in streams:
                assert state_as_of(connection, stream, position=position) == folded.get(stream)


def test_what_a_deleted_object_was_can_still_be_seen(database: Database) -> None:
    fill(database)
    with database.read() as connection:
        before = state_as_of(connection, "volume/c", position=14)
        after = state_as_of(connection, "volume/c", position=15)
    assert isinstance(before, ObjectState)
    assert before.manifest is not None
    assert before.manifest["spec"]["capacity"] == {"storage": "5Gi"}
    assert after == ObjectState(version=2, rv=15)


def test_a_long_stream_is_folded_from_its_newest_snapshot(database: Database) -> None:
    must(database, create_volume("long"))
    for start in range(0, 2 * EVERY, 50):
        must(database, *(change_volume("long", {"metadata": {"n": str(start + n)}}) for n in range(50)))
    with database.read() as connection:
        kept = connection.execute(
            select(tables.snapshots.c.version).order_by(tables.snapshots.c.version)
        ).scalars()
        assert kept.all() == [EVERY + 1, 2 * EVERY + 1]
        expected = [fold_log(connection, until=position).states["volume/long"] for position in (5, 300, 401)]
    # Without the events that the snapshots stand for, only those can give the answer.
    sql(database, f"DELETE FROM events WHERE version BETWEEN 6 AND {EVERY + 1}")
    with database.read() as connection:
        got = [state_as_of(connection, "volume/long", position=position) for position in (5, 300, 401)]
    assert got == expected


def test_short_streams_get_no_snapshot(database: Database) -> None:
    fill(database)
    with database.read() as connection:
        assert connection.execute(select(func.count()).select_from(tables.snapshots)).scalar() == 0


def test_a_snapshot_gives_back_every_kind_of_state(database: Database) -> None:
    fill(database)
    with database.read() as connection:
        states = fold_log(connection, until=11).states
    assert {type(state) for state in states.values()} == {ObjectState, BindingState, AttemptState}
    for stream, state in states.items():
        assert loaded(stream, dumped(state)) == state


def test_old_events_are_brought_forward_when_folded(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """As if `patch` had been called `change` in schema 0; live and replayed readers share the one place."""
    must(database, create_volume("a"))
    sql(database, """UPDATE events SET schema = 0, data = '{"change":{"metadata":{"uid":"old"}}}'""")
    steps = {("VolumeCreated", 0): lambda data: {"patch": data["change"]}}
    monkeypatch.setattr("volsched.log.reads.tail.upcast", partial(upcast, upcasters=steps))
    with database.read() as connection:
        state = state_as_of(connection, "volume/a", position=1)
        replayed = fold_log(connection, check=False).states["volume/a"]
    assert state == replayed == ObjectState(version=1, rv=1, manifest={"metadata": {"uid": "old"}})


def test_a_store_for_newer_readers_is_refused(database: Database) -> None:
    sql(database, "UPDATE log_head SET min_reader = 7")
    with pytest.raises(NewerStoreError, match="readers of format 7 or newer"), database.read() as connection:
        read_head(connection)


def test_a_store_without_a_head_is_not_migrated(database: Database) -> None:
    sql(database, "DELETE FROM log_head")
    with pytest.raises(NotMigratedError, match="volsched migrate"), database.read() as connection:
        read_head(connection)


def test_one_object_is_found_by_index_and_not_by_walking_the_log(database: Database) -> None:
    must(database, *(create_volume(f"v{n}") for n in range(300)), delete_volume("v7"))
    asked = "SELECT * FROM events WHERE stream = 'volume/v7' AND version > 0 AND position <= 300 ORDER BY version"
    explain = "EXPLAIN QUERY PLAN " if database.engine.dialect.name == "sqlite" else "EXPLAIN "
    with database.read() as connection:
        if database.engine.dialect.name == "postgresql":
            connection.execute(text("SET LOCAL enable_seqscan = off"))
        steps = " ".join(str(row) for row in connection.execute(text(explain + asked)))
    assert "uq_events_stream_version" in steps or "sqlite_autoindex_events" in steps
