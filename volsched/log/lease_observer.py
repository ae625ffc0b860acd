"""What one process has seen of others' leases: whether a lease is over is not for the holder's clock alone to say.

A clock may be wrong by hours, and its process dead. So a lease is over when any of these is so:

- the session of its holder is gone (`store.sessions`);
- it has run out on our clock;
- nobody has renewed it for its whole length, on our own monotonic clock, which nobody sets;
- its end lies more than two lengths ahead: no clock that agrees with ours has written it. Not so while we see it
  renewed: then its holder lives, and two processes whose clocks disagree would take it from each other for ever.

To be wrong costs a change of holder and nothing else, because of epochs and fences.
"""

import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from enum import StrEnum

from sqlalchemy import Connection

from volsched.log.sessions import NoSession, Session

LOOK_EVERY = 100_000
"""Microseconds between two looks at what others have claimed: most of the time they are all well."""


class Over(StrEnum):
    """Why a lease no longer keeps others away."""

    HOLDER_GONE = "its holder is gone"
    RAN_OUT = "it has run out"
    NOT_RENEWED = "it was not renewed for its whole length"
    TOO_FAR_AHEAD = "it was written by a clock that is ahead"


@dataclass(frozen=True, slots=True)
class LeaseTerm:
    """What is known of a lease by its row; a renewal changes `stamp`."""

    stamp: tuple[object, ...]
    until: int
    length: int
    session: int | None


@dataclass(frozen=True, slots=True)
class _Seen:
    stamp: tuple[object, ...]
    since: int
    renewed: bool
    """We saw the one before it, too."""


def monotonic_clock() -> int:
    return time.monotonic_ns() // 1_000


@dataclass(slots=True)
class Observer:
    session: Session = field(default_factory=NoSession)
    clock: Callable[[], int] = monotonic_clock
    """Microseconds since whenever; it only ever goes on."""
    _seen: dict[str, _Seen] = field(default_factory=dict)
    _looked: dict[str, int] = field(default_factory=dict)

    def look(self, connection: Connection, terms: dict[str, LeaseTerm], *, now: int) -> dict[str, Over]:
        """Which of these leases are over, and why."""
        gone = self._gone(connection, {it.session for it in terms.values() if it.session is not None})
        over = {name: self._judge(name, term, gone, now) for name, term in terms.items()}
        return {name: why for name, why in over.items() if why is not None}

    def may_look(self, what: str) -> bool:
        """Not again so soon."""
        now = self.clock()
        if what in self._looked and now - self._looked[what] < LOOK_EVERY:
            return False
        self._looked[what] = now
        return True

    def forget(self, prefix: str, kept: Collection[str]) -> None:
        """What was seen under these names, but for those that are still there."""
        for name in [it for it in self._seen if it.startswith(prefix) and it not in kept]:
            self._seen.pop(name, None)

    def unchanged_for(self, name: str) -> int | None:
        """For how long we have seen the lease as it is; None: we have not seen it."""
        seen = self._seen.get(name)
        return None if seen is None else self.clock() - seen.since

    def _gone(self, connection: Connection, sessions: set[int]) -> frozenset[int]:
        return self.session.gone(connection, sessions) if sessions else frozenset()

    def _judge(self, name: str, term: LeaseTerm, gone: frozenset[int], now: int) -> Over | None:
        at, seen = self.clock(), self._seen.get(name)
        if seen is None or seen.stamp != term.stamp:
            seen = self._seen[name] = _Seen(term.stamp, at, renewed=seen is not None)
        if term.session in gone:
            return Over.HOLDER_GONE
        if term.until < now:
            return Over.RAN_OUT
        if at - seen.since > term.length:
            return Over.NOT_RENEWED
        if term.until > now + 2 * term.length and not seen.renewed:
            return Over.TOO_FAR_AHEAD
        return None
