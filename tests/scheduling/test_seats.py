"""Seats: schedulers of one store find out among themselves how many they are."""

from volsched.log.database import Database
from volsched.log.leases import standings
from volsched.runtime.clock import SECOND
from volsched.runtime.system import embedded
from volsched.scheduling.queue.entry import ALL, Share
from volsched.scheduling.seats import LOOK_EVERY, TTL, Seat

NOW = 1_800_000_000 * SECOND


def shares(seats: list[Seat], now: int) -> list[Share]:
    """Twice round: who came first learns of the others when it looks again."""
    for at in (now, now + LOOK_EVERY):
        for seat in seats:
            seat.step(at)
    return [seat.share for seat in seats]


def test_each_of_several_gets_a_share_of_its_own(database: Database) -> None:
    seats = [Seat(database, f"scheduler/{it}") for it in range(4)]
    assert shares(seats, NOW) == [Share(number, 4) for number in range(4)]


def test_one_alone_has_all_and_nothing_changes_while_nobody_comes(database: Database) -> None:
    seat = Seat(database, "scheduler/a")
    assert not seat.step(NOW)
    assert not seat.step(NOW + LOOK_EVERY)
    assert seat.share == ALL


def test_who_ends_leaves_its_part_to_the_others(database: Database) -> None:
    seats = [Seat(database, f"scheduler/{it}") for it in range(3)]
    shares(seats, NOW)
    seats[0].close()
    assert shares(seats[1:], NOW + 2 * LOOK_EVERY) == [Share(0, 2), Share(1, 2)]
    newcomer = Seat(database, "scheduler/new")
    assert shares([newcomer, *seats[1:]], NOW + 4 * LOOK_EVERY) == [Share(it, 3) for it in range(3)]


def test_the_dead_are_counted_out_and_leave_no_lease_behind(database: Database) -> None:
    alive, dead = Seat(database, "scheduler/alive"), Seat(database, "scheduler/dead")
    assert shares([dead, alive], NOW) == [Share(0, 2), Share(1, 2)]
    now = NOW + LOOK_EVERY
    for _ in range(6):
        now += LOOK_EVERY
        alive.step(now)
    assert now > NOW + TTL
    assert alive.share == ALL
    assert [it.lease.holder for it in standings(database, now=now)] == ["scheduler/alive"]


def test_a_scheduler_without_a_share_orders_its_queue_by_its_seat(database: Database) -> None:
    systems = [
        embedded(database, owner=name, clock=lambda: NOW, new_id=iter(map(str, range(9))).__next__, share=None)
        for name in ("a", "b")
    ]
    for now in (NOW, NOW + LOOK_EVERY):
        for system in systems:
            system.step(now)
    assert [it.scheduler.queue.share for it in systems] == [Share(0, 2), Share(1, 2)]
    assert [it.picture.index.share for it in systems] == [Share(0, 2), Share(1, 2)]
    systems[0].close()
    systems[1].step(NOW + 2 * LOOK_EVERY)
    assert systems[1].scheduler.queue.share == ALL
