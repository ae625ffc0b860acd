"""Leases: one holder at a time, and one who was replaced appends nothing any more."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.support.log_reads import log
from tests.support.patience import HANG_SECONDS
from tests.support.store_samples import NOW, create_volume, must, run
from volsched.log.batch import lock_head
from volsched.log.commands import DeposedError
from volsched.log.database import Database, open_database
from volsched.log.leases import Lease, acquire, current, release, renew

TTL = 5_000_000
AFTER = NOW + TTL + 1


def get(database: Database, holder: str, *, name: str = "controller", now: int = NOW) -> Lease | None:
    return acquire(database, name=name, holder=holder, now=now, ttl=TTL)


def held(database: Database, holder: str, *, now: int = NOW) -> Lease:
    lease = get(database, holder, now=now)
    assert lease is not None
    return lease


def test_the_first_to_ask_gets_it_and_the_others_do_not(database: Database) -> None:
    assert current(database, name="controller") is None
    lease = get(database, "a")
    assert lease == Lease(name="controller", holder="a", epoch=1, until=NOW + TTL)
    assert get(database, "b") is None
    assert get(database, "b", now=NOW + TTL) is None
    assert current(database, name="controller") == lease


def test_leases_of_different_names_do_not_meet(database: Database) -> None:
    assert get(database, "a") is not None
    assert get(database, "b", name="recovery") is not None


def test_every_change_of_holder_raises_the_epoch(database: Database) -> None:
    epochs = [held(database, holder, now=NOW + turn * (TTL + 1)).epoch for turn, holder in enumerate("abab")]
    assert epochs == [1, 2, 3, 4]


def test_asking_again_extends_the_same_epoch(database: Database) -> None:
    """So that an answer lost on the way does not cost the lease."""
    held(database, "a")
    assert held(database, "a", now=NOW + 1) == Lease(name="controller", holder="a", epoch=1, until=NOW + 1 + TTL)


def test_a_renewed_lease_is_not_taken_over(database: Database) -> None:
    lease = held(database, "a")
    assert renew(database, lease, now=NOW + TTL, ttl=TTL) is not None
    assert get(database, "b", now=AFTER) is None


def test_an_expired_lease_that_nobody_took_is_still_its_holders(database: Database) -> None:
    lease = held(database, "a")
    must(database, create_volume("v", lease=lease.proof), now=AFTER)
    renewed = renew(database, lease, now=AFTER, ttl=TTL)
    assert renewed == Lease(name="controller", holder="a", epoch=1, until=AFTER + TTL)


def test_a_deposed_holder_can_neither_append_nor_renew_nor_release(database: Database) -> None:
    old = held(database, "a")
    new = held(database, "b", now=AFTER)
    (outcome,) = run(database, create_volume("v", lease=old.proof), now=AFTER)
    assert isinstance(outcome, DeposedError)
    assert str(outcome) == 'lease "controller" is no longer held in epoch 1'
    assert renew(database, old, now=AFTER, ttl=TTL) is None
    assert release(database, old) is False
    assert current(database, name="controller") == new
    assert log(database) == []
    must(database, create_volume("v", lease=new.proof), now=AFTER)


def test_who_comes_back_after_being_deposed_has_a_new_epoch_and_the_old_one_stays_void(database: Database) -> None:
    first = held(database, "a")
    held(database, "b", now=AFTER)
    again = held(database, "a", now=AFTER + TTL + 1)
    assert again.epoch == 3
    assert renew(database, first, now=AFTER, ttl=TTL) is None
    assert isinstance(run(database, create_volume("v", lease=first.proof))[0], DeposedError)


def test_a_released_lease_is_free_at_once_and_void_for_who_released_it(database: Database) -> None:
    lease = held(database, "a")
    assert release(database, lease)
    assert current(database, name="controller") is None
    assert isinstance(run(database, create_volume("v", lease=lease.proof))[0], DeposedError)
    assert renew(database, lease, now=NOW, ttl=TTL) is None
    assert release(database, lease) is False
    assert held(database, "b").epoch > lease.epoch
    assert isinstance(run(database, create_volume("v", lease=lease.proof))[0], DeposedError)


def test_a_holder_must_have_a_name(database: Database) -> None:
    with pytest.raises(ValueError, match="holder"):
        get(database, "")


def test_of_many_who_ask_at_once_one_gets_it(database: Database, url: str) -> None:
    start, answered = threading.Barrier(6), threading.Barrier(6)

    def ask(holder: str) -> Lease | None:
        own = open_database(url)
        try:
            start.wait()
            answer = get(own, holder)
            # Whoever closes its store is gone, and its lease is free.
            answered.wait()
            return answer
        finally:
            own.close()

    with ThreadPoolExecutor(6) as pool:
        answers = list(pool.map(ask, "abcdef"))
    winners = [answer for answer in answers if answer is not None]
    assert winners == [current(database, name="controller")]


def test_a_lease_cannot_change_hands_between_check_and_commit(database: Database, url: str) -> None:
    """A writer that holds the head lock makes the acquisition wait, so what it appends lies before it."""
    held(database, "a")
    own = open_database(url)
    with ThreadPoolExecutor(1) as pool:
        with database.write() as connection:
            lock_head(database, connection)
            asked = pool.submit(get, own, "b", now=AFTER)
            with pytest.raises(TimeoutError):
                asked.result(timeout=0.3)
        taken = asked.result(timeout=HANG_SECONDS)
    own.close()
    assert taken is not None
    assert taken.epoch == 2
