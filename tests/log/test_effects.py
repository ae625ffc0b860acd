"""The queue of effects: who gets what, in which order, how often, and what a late-comer can still do (nothing)."""

from typing import Any

import pytest
from sqlalchemy import RowMapping, select

from tests.support.effect_work import effect, queue_up
from tests.support.parked_effects import park
from tests.support.store_samples import NOW, create_volume, must, run
from volsched.log import tables
from volsched.log.batch import lock_head
from volsched.log.commands import Command, ConflictError, DeposedError, Done, EffectDone, Precondition
from volsched.log.database import Database
from volsched.log.effects import (
    LEASE_RAN_OUT,
    LONGEST_BACKOFF_US,
    MAX_ERROR_CHARS,
    Claimed,
    EffectState,
    Retry,
    backoff,
    claim,
    counts,
    extend,
    list_effects,
    next_due,
    retry_later,
    unpark,
)
from volsched.log.events.envelope import NewEvent
from volsched.log.events.fold import Decision, NewEffect, States
from volsched.log.reads.lookups import read_gauges

LEASE = 10_000_000
AFTER_LEASE = NOW + LEASE + 1


def take(
    database: Database,
    *,
    queue: str = "prebind",
    owner: str = "w1",
    limit: int = 100,
    now: int = NOW,
    max_attempts: int = 3,
) -> list[Claimed]:
    return claim(
        database, queue=queue, owner=owner, limit=limit, now=now, lease_for=LEASE, max_attempts=max_attempts
    )


def keys(claimed: list[Claimed]) -> list[str]:
    return [entry.key for entry in claimed]


def record(claimed: Claimed, *, volume: str | None = None, **kw: Any) -> Command:
    """The outcome of a claimed effect, with the event that it caused where a volume is given."""
    done = EffectDone(key=claimed.key, fence=claimed.fence, outcome="done")
    if volume is None:
        return Command(
            actor="w", streams=(), decide=lambda _: Decision(), precondition=Precondition(effect=done, **kw)
        )
    return create_volume(volume, effect=done, **kw)


def row(database: Database, key: str) -> RowMapping:
    with database.read() as connection:
        found = connection.execute(select(tables.effects).where(tables.effects.c.key == key)).one()
    return found._mapping


def done_keys(database: Database) -> set[str]:
    with database.read() as connection:
        return set(connection.execute(select(tables.effects_done.c.key)).scalars())


def test_a_claim_says_all_that_the_work_needs(database: Database) -> None:
    told: dict[str, Any] = {
        "key": "b1/0/prebind", "lane": "b1/0", "queue": "prebind", "kind": "prebind", "binding": "b1",
        "data": {"volume": "ä", "n": 1},
    }  # fmt: skip
    must(database, queue_up(NewEffect(**told)))
    assert take(database) == [Claimed(**told, position=0, fence=1, attempts=1)]
    held = row(database, "b1/0/prebind")
    assert (held["state"], held["lease_owner"], held["lease_until"]) == ("leased", "w1", NOW + LEASE)


def test_new_effects_are_claimed_in_the_order_of_the_log(database: Database) -> None:
    must(database, queue_up(effect("z"), effect("m")), create_volume("v"), queue_up(effect("b")))
    must(database, create_volume("w"), queue_up(effect("a")))
    assert keys(take(database, limit=3)) == ["z", "m", "b"]
    assert keys(take(database, limit=3)) == ["a"]


def test_effects_of_another_queue_are_left_alone(database: Database) -> None:
    must(database, queue_up(effect("a"), effect("b", queue="release")))
    assert keys(take(database, queue="release")) == ["b"]


def test_an_effect_is_not_claimed_before_it_is_due(database: Database) -> None:
    must(database, queue_up(effect("a", due=NOW + 5)))
    assert take(database, now=NOW + 4) == []
    assert keys(take(database, now=NOW + 5)) == ["a"]


def test_a_new_effect_is_late_since_its_event_and_not_since_1970(database: Database) -> None:
    must(database, create_volume("v"), queue_up(effect("a")))
    must(database, create_volume("w"), queue_up(effect("b")), now=NOW + 5)
    must(database, queue_up(effect("c", queue="release", due=NOW + 9)), now=NOW + 6)
    with database.read() as connection:
        gauges = read_gauges(connection)
    assert {it.queue: it.first_due for it in gauges.effects} == {"prebind": NOW, "release": NOW + 9}


def test_what_is_leased_is_not_claimed_by_a_peer(database: Database) -> None:
    must(database, queue_up(effect("a"), effect("b")))
    assert keys(take(database, limit=1)) == ["a"]
    assert keys(take(database, owner="w2")) == ["b"]
    assert take(database, owner="w3", now=NOW + LEASE) == []


def test_an_expired_lease_is_claimed_again_with_a_higher_fence(database: Database) -> None:
    must(database, queue_up(effect("a")))
    (first,) = take(database)
    (second,) = take(database, owner="w2", now=AFTER_LEASE)
    assert (first.fence, second.fence) == (1, 2)
    assert (first.attempts, second.attempts) == (1, 2)


def test_what_waited_longest_goes_before_the_new(database: Database) -> None:
    """Lost leases, then what is due again by its time, then the new: a burst cannot starve what failed once."""
    must(database, queue_up(effect("lost"), effect("later"), effect("sooner")))
    held = {entry.key: entry.fence for entry in take(database)}
    for key, due in (("later", NOW + 2), ("sooner", NOW + 1)):
        retry_later(database, key=key, fence=held[key], due=due, error="no")
    must(database, queue_up(effect("new")))
    assert keys(take(database, now=AFTER_LEASE)) == ["lost", "sooner", "later", "new"]


@pytest.mark.parametrize("first_is", ["leased", "put off", "not due", "parked", "in another queue"])
def test_a_lane_waits_for_its_first_effect_whatever_its_state(database: Database, first_is: str) -> None:
    queue = "release" if first_is == "in another queue" else "prebind"
    due = NOW + 9 if first_is == "not due" else 0
    must(database, queue_up(effect("first", "lane", due=due, queue=queue), effect("a second", "lane")))
    if first_is not in ("not due", "in another queue"):
        (held,) = take(database)
        assert held.key == "first"
        if first_is == "put off":
            retry_later(database, key="first", fence=held.fence, due=NOW + 9, error="no")
        if first_is == "parked":
            park(database, key="first", fence=held.fence, error="never")
    assert take(database) == []


def test_a_lane_goes_on_as_soon_as_its_first_effect_is_done(database: Database) -> None:
    must(database, queue_up(effect("1", "lane"), effect("2", "lane"), effect("3", "lane", queue="release")))
    (first,) = take(database)
    must(database, record(first))
    (second,) = take(database)
    assert (second.key, take(database, queue="release")) == ("2", [])
    must(database, record(second))
    assert keys(take(database, queue="release")) == ["3"]


def test_one_claim_takes_one_effect_of_a_lane(database: Database) -> None:
    must(database, queue_up(*(effect(f"{lane}{n}", lane) for n in range(3) for lane in "ab")))
    assert keys(take(database)) == ["a0", "b0"]


def test_order_in_a_lane_is_that_of_adding_and_not_of_keys(database: Database) -> None:
    """Also across transactions that share a position because they wrote no event, and when some are done."""
    must(database, create_volume("v"))
    must(database, queue_up(effect("c", "lane"), effect("b", "lane")))
    must(database, queue_up(effect("a", "lane")), queue_up(effect("0", "lane")))
    seen = []
    for _ in range(4):
        (held,) = take(database)
        must(database, record(held))
        seen.append(held.key)
        if held.key == "b":
            must(database, queue_up(effect("-", "lane")))
    (last,) = take(database)
    assert [*seen, last.key] == ["c", "b", "a", "0", "-"]


def test_effects_added_while_recording_come_after_those_that_wait(database: Database) -> None:
    must(database, queue_up(effect("z1", "lane"), effect("z2", "lane")))
    (held,) = take(database)
    add = Command(
        actor="w",
        streams=(),
        decide=lambda _: Decision(effects=(effect("a3", "lane"),)),
        precondition=Precondition(effect=EffectDone(key=held.key, fence=held.fence, outcome="done")),
    )
    must(database, add)
    assert keys(take(database)) == ["z2"]


def test_a_failed_attempt_comes_back_when_it_is_due(database: Database) -> None:
    must(database, queue_up(effect("a")))
    (held,) = take(database)
    outcome = retry_later(database, key="a", fence=held.fence, due=NOW + 50, error="the server said no")
    assert outcome is Retry.RETRYING
    assert take(database, now=NOW + 49) == []
    assert row(database, "a")["error"] == "the server said no"
    (again,) = take(database, now=NOW + 50)
    assert (again.attempts, again.fence) == (2, 2)


def test_the_last_failed_attempt_parks_the_effect(database: Database) -> None:
    must(database, queue_up(effect("a")))
    outcomes = []
    for _ in range(2):
        (held,) = take(database)
        outcomes.append(
            retry_later(database, key="a", fence=held.fence, due=NOW, error=f"no {held.attempts}", max_attempts=2)
        )
    assert outcomes == [Retry.RETRYING, Retry.PARKED]
    assert take(database, now=NOW * 2) == []
    (shown,) = list_effects(database, state=EffectState.PARKED)
    assert (shown.key, shown.attempts, shown.error, shown.lease_owner) == ("a", 2, "no 2", None)


def test_a_worker_that_dies_every_time_parks_the_effect_too(database: Database) -> None:
    """Attempts are counted before the work, so a step that kills its worker does not loop for ever."""
    must(database, queue_up(effect("poison"), effect("good")))
    times = [NOW + turn * (LEASE + 1) for turn in range(4)]
    (poison, good) = take(database, now=times[0], max_attempts=3)
    must(database, record(good))
    assert [keys(take(database, now=now, max_attempts=3)) for now in times[1:]] == [["poison"], ["poison"], []]
    (shown,) = list_effects(database)
    assert (shown.state, shown.attempts, shown.error) == (EffectState.PARKED, 3, LEASE_RAN_OUT)
    assert isinstance(run(database, record(poison))[0], DeposedError)


def test_what_is_parked_does_not_take_the_place_of_what_can_be_done(database: Database) -> None:
    must(database, queue_up(effect("poison")))
    take(database, max_attempts=1)
    must(database, queue_up(effect("good")))
    assert keys(take(database, limit=1, now=AFTER_LEASE, max_attempts=1)) == ["good"]


def test_an_operator_retry_gives_all_attempts_anew(database: Database) -> None:
    must(database, queue_up(effect("a")))
    (held,) = take(database)
    assert park(database, key="a", fence=held.fence, error="never")
    assert unpark(database, key="a", now=NOW)
    (again,) = take(database)
    assert (again.attempts, again.fence) == (1, 2)
    assert row(database, "a")["error"] == "never"


def test_only_what_is_parked_can_be_unparked(database: Database) -> None:
    must(database, queue_up(effect("a"), effect("b")))
    take(database, limit=1)
    assert [unpark(database, key=key, now=NOW) for key in ("a", "b", "unknown")] == [False, False, False]
    assert row(database, "a")["state"] == "leased"


def test_a_stale_fence_changes_nothing(database: Database) -> None:
    must(database, queue_up(effect("a")))
    (zombie,) = take(database, owner="zombie")
    take(database, owner="heir", now=AFTER_LEASE)
    before = row(database, "a")
    assert retry_later(database, key="a", fence=zombie.fence, due=NOW, error="late") is Retry.DEPOSED
    assert park(database, key="a", fence=zombie.fence, error="late") is False
    assert extend(database, {"a": zombie.fence}, until=NOW * 2) == set()
    (outcome,) = run(database, record(zombie, volume="v"))
    assert isinstance(outcome, DeposedError)
    assert str(outcome) == 'effect "a" is no longer claimed with fence 1'
    assert row(database, "a") == before
    assert done_keys(database) == set()
    with database.read() as connection:
        assert connection.execute(select(tables.events)).all() == []


@pytest.mark.parametrize("state", ["given back", "parked", "done"])
def test_who_gave_an_effect_away_cannot_record_it(database: Database, state: str) -> None:
    must(database, queue_up(effect("a")))
    (held,) = take(database)
    if state == "given back":
        retry_later(database, key="a", fence=held.fence, due=NOW, error="no")
    elif state == "parked":
        park(database, key="a", fence=held.fence, error="no")
    else:
        must(database, record(held))
    assert isinstance(run(database, record(held, volume="v"))[0], DeposedError)
    assert retry_later(database, key="a", fence=held.fence, due=NOW, error="no") is Retry.DEPOSED
    assert park(database, key="a", fence=held.fence, error="no") is False


def test_a_lease_that_ran_out_and_nobody_took_still_records(database: Database) -> None:
    must(database, queue_up(effect("a")))
    (held,) = take(database)
    must(database, record(held), now=AFTER_LEASE)
    assert done_keys(database) == {"a"}


def test_an_outcome_is_recorded_with_its_events_or_not_at_all(database: Database) -> None:
    def refuse(_: States) -> Decision:
        raise ConflictError("not like this")

    must(database, queue_up(effect("a", n=7)))
    (held,) = take(database)
    done = EffectDone(key="a", fence=held.fence, outcome="done")
    refused = Command(actor="w", streams=(), decide=refuse, precondition=Precondition(effect=done))
    unwritable = Command(
        actor="w",
        streams=("volume/v",),
        decide=lambda _: Decision(events=(NewEvent(stream="volume/v", type="VolumeExploded"),)),
        precondition=Precondition(effect=done),
    )
    assert not any(isinstance(outcome, Done) for outcome in run(database, refused, unwritable))
    assert row(database, "a")["state"] == "leased"
    must(database, record(held, volume="v"), now=NOW + 3)
    assert list_effects(database) == []
    with database.read() as connection:
        (kept,) = connection.execute(select(tables.effects_done)).mappings()
        assert len(connection.execute(select(tables.events)).all()) == 1
    assert (kept["outcome"], kept["attempts"], kept["done_at"], kept["data"]) == ("done", 1, NOW + 3, '{"n":7}')


def test_an_effect_recorded_twice_in_one_batch_is_recorded_once(database: Database) -> None:
    must(database, queue_up(effect("a")))
    (held,) = take(database)
    first, second = run(database, record(held, volume="v"), record(held, volume="w"))
    assert isinstance(first, Done)
    assert isinstance(second, DeposedError)


def test_a_repeated_record_with_an_idempotency_key_gets_its_first_answer(database: Database) -> None:
    must(database, queue_up(effect("a")))
    (held,) = take(database)
    (first,) = must(database, record(held, volume="v", key="record a"))
    (second,) = must(database, record(held, volume="v", key="record a"))
    assert (first.repeated, second.repeated) == (False, True)


def test_the_key_of_a_done_effect_cannot_be_used_again(database: Database) -> None:
    """Else it would be done a second time and could never be recorded; the neighbours of the batch go on."""
    must(database, queue_up(effect("a")))
    (held,) = take(database)
    must(database, record(held))
    again, other = run(database, queue_up(effect("a")), queue_up(effect("b")))
    assert isinstance(again, ConflictError)
    assert isinstance(other, Done)
    assert [shown.key for shown in list_effects(database)] == ["b"]


def test_a_heartbeat_keeps_the_leases_that_are_still_held(database: Database) -> None:
    must(database, queue_up(effect("a"), effect("b"), effect("c")))
    held = {entry.key: entry.fence for entry in take(database)}
    retry_later(database, key="b", fence=held["b"], due=AFTER_LEASE + LONGEST_BACKOFF_US, error="no")
    assert extend(database, held | {"c": 9}, until=NOW + 2 * LEASE) == {"a"}
    assert keys(take(database, now=AFTER_LEASE)) == ["c"]
    assert extend(database, {}, until=NOW) == set()


def test_any_error_text_can_be_kept(database: Database) -> None:
    must(database, queue_up(effect("a")))
    (held,) = take(database)
    retry_later(database, key="a", fence=held.fence, due=NOW, error="\0\ud800" + "x" * 99_999)
    kept = row(database, "a")["error"]
    assert (kept[:3], len(kept)) == ("??x", MAX_ERROR_CHARS)


@pytest.mark.parametrize(
    ("attempts", "wait"), [(0, 100), (1, 100), (2, 200), (3, 400), (5, 1_600), (6, 2_000), (10_000, 2_000)]
)
def test_back_off_doubles_up_to_a_bound(attempts: int, wait: int) -> None:
    assert backoff(attempts, first=100, longest=2_000) == wait


def test_back_off_has_a_bound_by_default() -> None:
    assert backoff(1_000) == LONGEST_BACKOFF_US


def test_the_queue_is_listed_in_pages_that_miss_nothing(database: Database) -> None:
    must(database, queue_up(*(effect(f"e{n:02}", queue="prebind" if n % 2 else "release") for n in range(20))))
    take(database, limit=4)
    pages: list[list[str]] = []
    after = None
    while page := list_effects(database, queue="prebind", state=EffectState.READY, limit=4, after=after):
        pages.append([shown.key for shown in page])
        after = page[-1].key
    assert pages == [["e09", "e11", "e13", "e15"], ["e17", "e19"]]
    assert len(list_effects(database)) == 20


def test_counts_are_by_queue_and_state(database: Database) -> None:
    assert counts(database) == {}
    must(database, queue_up(effect("a"), effect("b"), effect("c"), effect("d", queue="release")))
    (first, _) = take(database, limit=2)
    park(database, key=first.key, fence=first.fence, error="no")
    assert counts(database) == {
        ("prebind", EffectState.PARKED): 1,
        ("prebind", EffectState.LEASED): 1,
        ("prebind", EffectState.READY): 1,
        ("release", EffectState.READY): 1,
    }


def test_next_due_is_when_a_claim_would_find_something(database: Database) -> None:
    assert next_due(database, queues=["prebind"]) is None
    must(database, queue_up(effect("first", "lane", due=NOW + 7), effect("behind", "lane")))
    assert next_due(database, queues=["prebind"]) == NOW + 7
    (held,) = take(database, now=NOW + 7)
    due = next_due(database, queues=["prebind"])
    assert due == NOW + 7 + LEASE + 1
    assert (take(database, now=due - 1), keys(take(database, now=due))) == ([], ["first"])
    (held,) = take(database, now=2 * due)
    park(database, key=held.key, fence=held.fence, error="no")
    assert next_due(database, queues=["prebind"]) is None


@pytest.mark.parametrize("url", ["postgres"], indirect=True)
def test_on_postgres_a_claim_does_not_wait_for_writers(database: Database) -> None:
    must(database, queue_up(effect("a"), effect("b")))
    with database.write() as connection:
        lock_head(database, connection)
        (held, _) = take(database)
        assert retry_later(database, key="a", fence=held.fence, due=NOW, error="no") is Retry.RETRYING


@pytest.mark.parametrize("url", ["postgres"], indirect=True)
def test_on_postgres_a_lease_cannot_be_taken_over_while_its_outcome_is_recorded(database: Database) -> None:
    """`decide` runs between the check of the fence and the commit: just where a claim must find nothing."""
    meanwhile: list[list[Claimed]] = []

    def decide(_: States) -> Decision:
        meanwhile.append(take(database, owner="heir", now=AFTER_LEASE))
        return Decision()

    must(database, queue_up(effect("a", "lane"), effect("b", "lane")))
    (held,) = take(database)
    done = EffectDone(key="a", fence=held.fence, outcome="done")
    must(database, Command(actor="w", streams=(), decide=decide, precondition=Precondition(effect=done)))
    assert meanwhile == [[]]
    assert keys(take(database, now=AFTER_LEASE)) == ["b"]
