"""Seats: schedulers on one store find out how many they are, and which pods each of them decides first.

A seat is a numbered lease. A scheduler with a seat sees the other seats in the same table, so that a scaled
service shares its work without knowing its size. A share is an order, not a fence: a seat with two holders, or
with none, only costs duplicate decisions.
"""

from dataclasses import dataclass

from volsched.log.database import Database
from volsched.log.leases import Lease, acquire, release, standings
from volsched.runtime.clock import SECOND
from volsched.scheduling.queue.entry import ALL, Share

NAME = "scheduler-seat/"
TTL = 30 * SECOND
LOOK_EVERY = 10 * SECOND
MOST = 1_000


@dataclass(slots=True)
class Seat:
    database: Database
    owner: str
    share: Share = ALL
    _lease: Lease | None = None
    _look_at: int = 0

    def step(self, now: int) -> bool:
        """Renew the seat and count those of the others; True: the share has changed."""
        if now < self._look_at:
            return False
        self._look_at = now + LOOK_EVERY
        taken = self._seats_of_others(now)
        self._lease = self._acquired_seat(now, taken)
        numbers = sorted({*taken, *([] if self._lease is None else [_number(self._lease)])})
        share = ALL if self._lease is None else Share(numbers.index(_number(self._lease)), len(numbers))
        changed, self.share = share != self.share, share
        return changed

    def close(self) -> None:
        if self._lease is not None:
            release(self.database, self._lease)
            self._lease = None

    def _seats_of_others(self, now: int) -> set[int]:
        """The numbers that others hold. Releases the seats of dead schedulers, which no other process does."""
        seats = [it for it in standings(self.database, now=now, ttl=TTL) if it.lease.name.startswith(NAME)]
        others = [it for it in seats if it.lease.holder != self.owner]
        for it in others:
            if it.over is not None:
                late = acquire(self.database, name=it.lease.name, holder=self.owner, now=now, ttl=TTL)
                if late is not None:
                    release(self.database, late)
        return {_number(it.lease) for it in others if it.over is None}

    def _acquired_seat(self, now: int, taken: set[int]) -> Lease | None:
        first = [] if self._lease is None else [_number(self._lease)]
        for number in (*first, *(it for it in range(MOST) if it not in taken)):
            lease = acquire(self.database, name=f"{NAME}{number}", holder=self.owner, now=now, ttl=TTL)
            if lease is not None:
                return lease
            taken.add(number)
        return None


def _number(lease: Lease) -> int:
    return int(lease.name.removeprefix(NAME))
