"""Replay: the fold of the whole log, its checks, and that it stops at the exact position that is wrong."""

import gc

import pytest

from tests.support.histories import fill, log, rewrite, sql
from tests.support.store_samples import change_volume, create_volume, must
from volsched.log.database import Database
from volsched.log.errors import BrokenLogError
from volsched.log.events.envelope import Event
from volsched.log.events.fold import AttemptState, BindingState, ObjectState, UnknownState
from volsched.log.integrity.replay import Folded, fold_log, fold_tail


def test_every_stream_is_folded_and_the_end_is_reported(database: Database) -> None:
    fill(database)
    with database.read() as connection:
        folded = fold_log(connection)
    last = log(database)[-1]
    assert (folded.head.position, folded.head.hash, folded.head.at) == (15, last.hash, last.at)
    kinds = {stream: type(state) for stream, state in folded.states.items()}
    assert kinds == {
        "volume/a": ObjectState, "volume/b": ObjectState, "volume/c": ObjectState, "attempt/1": AttemptState,
        "binding/b1": BindingState, "binding/b2": BindingState,
    }  # fmt: skip


def test_an_empty_log_folds_to_nothing(database: Database) -> None:
    with database.read() as connection:
        assert fold_log(connection) == Folded()


def test_a_prefix_and_its_tail_make_the_whole(database: Database) -> None:
    fill(database)
    with database.read() as connection:
        whole = fold_log(connection)
        for position in range(16):
            part = fold_log(connection, until=position)
            assert part.head.position == position
            fold_tail(connection, part)
            assert part == whole


def test_progress_is_reported_by_position_and_ends_at_the_last(database: Database) -> None:
    must(database, *(create_volume(f"v{n}") for n in range(1200)))
    told: list[int] = []
    with database.read() as connection:
        fold_log(connection, progress=told.append)
    assert told == sorted(told)
    assert told[-1] == 1200


def test_the_collector_is_as_it_was_even_after_a_failure(database: Database) -> None:
    fill(database)
    sql(database, "UPDATE events SET actor = 'me' WHERE position = 4")
    assert gc.isenabled()
    with pytest.raises(BrokenLogError), database.read() as connection:
        fold_log(connection)
    assert gc.isenabled()


def test_without_check_the_chain_is_not_looked_at_but_the_order_is(database: Database) -> None:
    fill(database)
    sql(database, "UPDATE events SET actor = 'me' WHERE position = 4")
    with database.read() as connection:
        assert fold_log(connection, check=False).head.position == 15
    sql(database, "DELETE FROM events WHERE position = 4")
    with pytest.raises(BrokenLogError, match="position 4: the event is missing"), database.read() as connection:
        fold_log(connection, check=False)


def test_unknown_types_are_passed_through(database: Database) -> None:
    fill(database)
    events = log(database)
    foreign = Event(0, "quota/x", 1, "QuotaCreated", 3, events[-1].at, "newer", None, None, "{}", b"")
    on_known = Event(0, "volume/b", 3, "VolumeFrozen", 1, events[-1].at, "newer", None, None, '{"x":1}', b"")
    rewrite(database, [*events, foreign, on_known])
    with database.read() as connection:
        states = fold_log(connection).states
        before = fold_log(connection, until=15).states["volume/b"]
    assert states["quota/x"] == UnknownState(1)
    assert states["volume/b"] == before._replace(version=3)


NEVER_WRITTEN = [
    ("volume/z", 2, "VolumeCreated", '{"patch":{}}', "the event does not continue its stream (expected 1, got 2)"),
    ("volume/a", 7, "VolumeChanged", '{"patch":{}}', "the event does not continue its stream (expected 6, got 7)"),
    (
        "volume/z",
        1,
        "VolumeAssumed",
        '{"binding":"b","patch":{},"rv":1}',
        "an absent object is assumed",
    ),
    ("volume/c", 3, "VolumeFreed", '{"binding":"b"}', "an absent object is freed"),
    ("binding/z", 1, "LegMoved", '{"leg":0,"state":"x","open":true}', "a binding is moved before it is planned"),
    (
        "binding/b1",
        4,
        "LegMoved",
        '{"leg":7,"state":"x","open":true}',
        "leg 7 is moved, and the binding has only 1",
    ),
    ("attempt/z", 1, "AttemptRepeated", '{"decided_at":1}', "an attempt is repeated before it is recorded"),
    ("volume/z", 1, "VolumeCreated", "{}", "the event cannot follow the ones before: 'patch'"),
    ("volume/z", 1, "VolumeCreated", '{"patch":"text"}', "the event cannot follow the ones before"),
    ("volume/z", 1, "VolumeCreated", "{", "the event cannot follow the ones before: unexpected end"),
]


def test_a_well_linked_event_that_we_never_wrote_is_found(database: Database) -> None:
    fill(database)
    events = log(database)
    for stream, version, type_, data, message in NEVER_WRITTEN:
        forged = Event(0, stream, version, type_, 1, events[-1].at, "me", None, None, data, b"")
        rewrite(database, [*events, forged])
        with database.read() as connection, pytest.raises(BrokenLogError) as caught:
            fold_log(connection)
        assert caught.value.finding.position == 16
        assert message in str(caught.value)


def test_time_that_runs_backwards_is_found(database: Database) -> None:
    fill(database)
    events = log(database)
    rewrite(database, [*events[:9], events[9]._replace(at=5), *events[10:]])
    with (
        database.read() as connection,
        pytest.raises(BrokenLogError, match="position 10, column at: time runs back"),
    ):
        fold_log(connection)


def test_events_in_a_stream_of_another_kind_are_found(database: Database) -> None:
    fill(database)
    events = log(database)
    forged = Event(0, "binding/z", 1, "VolumeCreated", 1, events[-1].at, "me", None, None, '{"patch":{}}', b"")
    rewrite(database, [*events, forged])
    with database.read() as connection, pytest.raises(BrokenLogError, match='events "binding/z"'):
        fold_log(connection)


def test_nulls_in_a_first_patch_remove_nothing_and_are_not_kept(database: Database) -> None:
    """What a live fold and a replay must agree on, whichever way the object came to be."""
    must(database, change_volume("n", {"metadata": {"uid": "u", "labels": None}, "spec": {"a": {"b": None}}}))
    with database.read() as connection:
        state = fold_log(connection).states["volume/n"]
    assert isinstance(state, ObjectState)
    assert state.manifest == {"metadata": {"uid": "u"}, "spec": {"a": {}}}
