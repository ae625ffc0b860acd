"""The transaction: dense positions, versions, isolation of commands, idempotency, views in the same commit."""

from typing import Any

import pytest

from tests.support.log_reads import log, rows
from tests.support.store_samples import NOW, append, change_volume, create_volume, delete_volume, must, plan, run
from volsched.log import tables
from volsched.log.batch import load_states
from volsched.log.commands import ConflictError, DeposedError, Done, LeaseProof, Scan
from volsched.log.database import Database
from volsched.log.events.catalogue import CatalogueError
from volsched.log.events.envelope import GENESIS, NewEvent, links_to
from volsched.log.events.fold import Decision, ObjectState


def test_positions_and_versions_are_dense_and_the_chain_holds(database: Database) -> None:
    must(database, create_volume("a"), create_volume("b"), change_volume("a", {"status": {"phase": "Bound"}}))
    must(database, change_volume("a", {"status": {"phase": "Released"}}), delete_volume("b"))
    events = log(database)
    assert [event.position for event in events] == [1, 2, 3, 4, 5]
    assert [(event.stream, event.version) for event in events] == [
        ("volume/a", 1), ("volume/b", 1), ("volume/a", 2), ("volume/a", 3), ("volume/b", 2),
    ]  # fmt: skip
    previous = GENESIS
    for event in events:
        assert links_to(event, previous)
        previous = event.hash
    (head,) = rows(database, tables.log_head)
    assert (head["position"], bytes(head["hash"])) == (5, previous)  # type: ignore[call-overload]


def test_views_are_written_with_the_events(database: Database) -> None:
    must(database, create_volume("a"), change_volume("a", {"status": {"phase": "Bound"}, "spec": {"x": None}}))
    (row,) = rows(database, tables.volumes)
    assert (row["key"], row["rv"], row["version"], row["phase"], row["capacity_bytes"]) == (
        "a", 2, 2, "Bound", 10 * 2**30,
    )  # fmt: skip
    must(database, delete_volume("a"))
    assert rows(database, tables.volumes) == []


def test_a_name_used_again_goes_on_in_its_stream(database: Database) -> None:
    must(database, create_volume("a"), delete_volume("a"))
    must(database, create_volume("a", "5Gi"))
    (row,) = rows(database, tables.volumes)
    assert (row["version"], row["rv"], row["capacity_bytes"]) == (3, 3, 5 * 2**30)


def test_commands_of_a_batch_see_each_other(database: Database) -> None:
    first, second = must(database, create_volume("a"), plan("b1", "a"))
    assert (first.position, second.position) == (1, 3)
    (row,) = rows(database, tables.volumes)
    assert (row["assumed_binding"], row["assumed_rv"], row["rv"], row["version"]) == ("b1", 1, 1, 2)
    assert [(leg["claim"], leg["volume"], leg["open"]) for leg in rows(database, tables.binding_legs)] == [
        ("db/data", "a", True)
    ]
    assert [effect["key"] for effect in rows(database, tables.effects)] == ["b1/0/prebind"]


def test_a_refused_command_does_not_touch_its_neighbours(database: Database) -> None:
    def explode(_: object) -> Decision:
        raise ZeroDivisionError("a bug in a rule")

    broken = append(NewEvent(stream="volume/x", type="VolumeChanged", data={"patch": "not a mapping"}))
    foreign = append(NewEvent(stream="claim/db/x", type="VolumeDeleted"))
    unknown = append(NewEvent(stream="volume/x", type="VolumeExploded"))
    raising = create_volume("y")
    object.__setattr__(raising, "decide", explode)
    outcomes = run(database, create_volume("a"), broken, foreign, unknown, raising, create_volume("b"))
    kinds = [type(outcome) for outcome in outcomes]
    assert kinds == [Done, CatalogueError, CatalogueError, CatalogueError, ZeroDivisionError, Done]
    assert [event.stream for event in log(database)] == ["volume/a", "volume/b"]


def test_a_payload_that_is_not_what_the_catalogue_says_is_refused(database: Database) -> None:
    wrong: tuple[dict[Any, Any], ...] = (
        {}, {"patch": None}, {"patch": []}, {"patch": {}, "more": 1}, {"more": {}}, {"patch": {}, "reason": 7},
        {"patch": {1: "key"}}, {"patch": {"a": {1: "key"}}}, {"patch": {"a": object()}}, {"patch": {"a": float}},
        {"patch": {"a": [{"b": float("nan")}]}}, {"patch": {"a": (1.5, float("inf"))}},
    )  # fmt: skip
    made = [append(NewEvent(stream="volume/x", type="VolumeChanged", data=data)) for data in wrong]
    assert [type(outcome) for outcome in run(database, *made)] == [CatalogueError] * len(wrong)
    right: list[dict[str, Any]] = [
        {"patch": {}}, {"patch": {}, "reason": "told"}, {"patch": {"a": None}, "reason": None}
    ]  # fmt: skip
    for given in right:
        must(database, append(NewEvent(stream="volume/x", type="VolumeChanged", data=given)))
    assert len(log(database)) == 3


def test_an_integer_that_could_not_be_read_back_is_refused(database: Database) -> None:
    (refused, taken) = run(
        database, change_volume("a", {"x": 2**64}), change_volume("a", {"x": 2**64 - 1, "y": 1.5, "z": "é\u2028"})
    )
    assert isinstance(refused, CatalogueError)
    assert "write such a value as a string" in str(refused)
    assert isinstance(taken, Done)
    (row,) = rows(database, tables.volumes)
    assert row["manifest"] == '{"x":18446744073709551615,"y":1.5,"z":"é\u2028"}'


def test_a_row_the_database_refuses_fails_its_own_command_only(database: Database) -> None:
    """Two owner legs for one volume: refused by the index, found by halving the batch."""
    must(database, *(create_volume(name) for name in "abcde"))
    outcomes = run(
        database,
        plan("b1", "a", claim="db/1"),
        plan("b2", "b", claim="db/2"),
        plan("b3", "a", claim="db/3"),
        plan("b4", "c", claim="db/2"),
        plan("b5", "d", claim="db/5"),
    )
    assert [isinstance(outcome, Done) for outcome in outcomes] == [True, True, False, False, True]
    assert isinstance(outcomes[2], database.refusals)
    assert {leg["binding"] for leg in rows(database, tables.binding_legs)} == {"b1", "b2", "b5"}
    assert [event.position for event in log(database)] == list(range(1, 12))


def test_expected_versions_decide_between_writers(database: Database) -> None:
    must(database, create_volume("a", versions={"volume/a": 0}))
    again, right, stale = run(
        database,
        create_volume("a", versions={"volume/a": 0}),
        change_volume("a", {"status": {"phase": "Bound"}}, versions={"volume/a": 1}),
        change_volume("a", {"status": {"phase": "Failed"}}, versions={"volume/a": 1}),
    )
    assert isinstance(again, ConflictError)
    assert isinstance(right, Done)
    assert str(stale) == "volume/a is at version 2, not at 1"


def test_what_was_read_must_still_be_so_even_where_it_is_not_written(database: Database) -> None:
    (made,) = must(database, create_volume("a"))
    refused, later, allowed = run(
        database,
        create_volume("b", objects={"volume/a": made.position + 7}),
        create_volume("b", objects={"volume/a": 0}),
        create_volume("b", objects={"volume/a": made.position, "volume/nobody": 0}),
    )
    assert isinstance(refused, ConflictError)
    assert isinstance(later, ConflictError)
    assert isinstance(allowed, Done)
    told = (refused.subject, refused.field, refused.wanted, refused.have)
    assert told == ("volume/a", "resourceVersion", str(made.position + 7), str(made.position))


def test_an_object_is_the_same_when_a_binding_assumes_it_and_its_stream_is_not(database: Database) -> None:
    (made,) = must(database, create_volume("a"))
    must(database, plan("b1", "a"))
    same, moved = run(
        database,
        create_volume("b", objects={"volume/a": made.position}),
        create_volume("c", versions={"volume/a": 1}),
    )
    assert isinstance(same, Done)
    assert isinstance(moved, ConflictError)


def test_a_decision_is_refused_for_what_others_wrote_since_also_earlier_in_the_batch(database: Database) -> None:
    """Its own events do not refuse it, unless it asks for them: each decision of a batch looks at what is new."""

    def after(position: int, **kw: Any) -> Scan:
        return Scan(position, lambda event: f"{event.stream} came", **kw)

    must(database, create_volume("before", actor="b"), create_volume("own", actor="a"))
    outcomes = run(
        database,
        create_volume("a1", actor="a", scan=after(1)),
        create_volume("a2", actor="a", scan=after(0)),
        create_volume("a3", actor="a", scan=after(3)),
        create_volume("b1", actor="b", scan=after(4)),
        create_volume("b2", actor="b", scan=after(2)),
        create_volume("a4", actor="a", scan=after(4)),
        create_volume("a5", actor="a", scan=after(5)),
        create_volume("a6", actor="a", scan=after(5, knows_own=False)),
    )
    told = [str(it) if isinstance(it, Exception) else it.position for it in outcomes]
    assert told == [
        3, "decided at 0, but at 1 volume/before came", 4,
        5, "decided at 2, but at 3 volume/a1 came",
        "decided at 4, but at 5 volume/b1 came", 6, "decided at 5, but at 6 volume/a5 came",
    ]  # fmt: skip


def test_a_repeated_key_gets_the_first_result_and_does_nothing(database: Database) -> None:
    def command(result: int) -> object:
        made = create_volume("a", key="once")
        object.__setattr__(made, "decide", lambda _: Decision(events=made_events, result={"n": result}))
        return made

    made_events = (NewEvent(stream="volume/a", type="VolumeChanged", data={"patch": {"x": "y"}}),)
    first, twin = must(database, command(1), command(2))  # type: ignore[arg-type]
    (later,) = must(database, command(3))  # type: ignore[arg-type]
    assert (first.result, first.repeated) == ({"n": 1}, False)
    assert (twin.result, twin.repeated, twin.position) == ({"n": 1}, True, 1)
    assert (later.result, later.repeated, later.position) == ({"n": 1}, True, 1)
    assert len(log(database)) == 1


def test_a_command_may_only_write_what_it_named(database: Database) -> None:
    sneaky = create_volume("a")
    object.__setattr__(sneaky, "streams", ("volume/b",))
    (outcome,) = run(database, sneaky)
    assert isinstance(outcome, CatalogueError)


def test_without_its_lease_a_command_changes_nothing(database: Database) -> None:
    (outcome,) = run(database, create_volume("a", lease=LeaseProof("controller", 1)))
    assert isinstance(outcome, DeposedError)
    assert log(database) == []


def test_time_never_runs_backwards_in_the_log(database: Database) -> None:
    must(database, create_volume("a"), now=NOW)
    must(database, create_volume("b"), now=NOW - 5_000_000)
    assert [event.at for event in log(database)] == [NOW, NOW]


def test_states_read_back_from_the_views_are_the_folded_ones(database: Database) -> None:
    must(database, create_volume("a"), plan("b1", "a"))
    streams = ("volume/a", "binding/b1", "volume/gone")
    with database.read() as connection:
        states, versions = load_states(database, connection, streams)
    assert set(states) == {"volume/a", "binding/b1"}
    assert versions == {}
    held = states["volume/a"]
    assert isinstance(held, ObjectState)
    assert held.assumed is not None
    assert held.assumed.patch == {"spec": {"claimRef": {"name": "db/data"}}}


@pytest.mark.parametrize("count", [0, 1, 300])
def test_batches_of_any_size(database: Database, count: int) -> None:
    outcomes = must(database, *(create_volume(f"v{index}") for index in range(count)))
    assert [done.position for done in outcomes] == list(range(1, count + 1))
