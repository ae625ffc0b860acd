"""Watches are the log's tail: one reader per process folds it, and all watchers read what it has found.

`Tail` is a loop as any other (`step`), and runs in a thread because it asks the database. `Fan` lives in the event
loop. It keeps the last changes of every kind in a ring, and a watcher is nothing but a position in it: whoever
falls out of the ring is cut off, and costs nobody else anything.
"""

import asyncio
from bisect import bisect_right
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from operator import attrgetter

from volsched.api.kubernetes.resources import RESOURCES
from volsched.api.watch_events import WatchEvent, changes_of
from volsched.log.database import Database
from volsched.log.errors import ArchivedError
from volsched.log.events.fold import State
from volsched.log.reads.startup import load_world
from volsched.log.reads.tail import tail

CHUNK = 2_000
RING = 8_192
"""Changes that are kept per kind."""
PAUSE_SECONDS_A_WATCHER = 0.0002
"""Between two times that watchers are woken: several times what it takes to tell one of them what is new.

So a crowd of them takes a part of a core and not all of it. What comes after a pause is told at once.
"""


@dataclass(frozen=True, slots=True)
class WatchBatch:
    """What a reader has found, up to a position."""

    position: int
    changes: tuple[WatchEvent, ...] = ()
    anew: bool = False
    """The reader has begun anew: what was between is not known."""


@dataclass(slots=True)
class Tail:
    database: Database
    publish: Callable[[WatchBatch], None]
    position: int = -1
    _states: dict[str, State] = field(default_factory=dict)

    def step(self, now: int) -> int:  # noqa: ARG002 - a loop's; the log is read whenever it is asked
        """Read on; answers how many events were new."""
        if self.position < 0:
            return self._begin()
        try:
            with self.database.read() as connection:
                events = tail(connection, after=self.position, limit=CHUNK)
        except ArchivedError:
            # We slept too long, and what we have missed is no longer there.
            return self._begin()
        if not events:
            return 0
        changes = tuple(changes_of(events, self._states))
        self.position = events[-1].position
        self.publish(WatchBatch(self.position, changes))
        return len(events)

    def _begin(self) -> int:
        with self.database.read() as connection:
            world = load_world(connection)
        self.position, self._states = world.position, world.states
        self.publish(WatchBatch(self.position, anew=True))
        return 1


@dataclass(slots=True)
class Ring:
    """The last changes of one kind: all that came after `floor`."""

    floor: int = 0
    size: int = RING
    _changes: list[WatchEvent] = field(default_factory=list)
    _waiting: set["asyncio.Future[None]"] = field(default_factory=set)
    _said: dict[tuple[Hashable, int, int], bytes] = field(default_factory=dict)
    """(what is shown, after, up to) → the lines of it, until there is more."""

    def add(self, changes: list[WatchEvent]) -> None:
        self._changes += changes
        surplus = len(self._changes) - self.size
        # Trimmed seldom, by a good part at a time.
        if surplus > self.size // 4:
            self.floor = self._changes[surplus - 1].position
            del self._changes[:surplus]
        self._said.clear()

    def begin(self, floor: int) -> None:
        self.floor = floor
        self._changes.clear()
        self.tell()

    def tell(self) -> None:
        """Wake all that wait."""
        waiting, self._waiting = self._waiting, set()
        for it in waiting:
            if not it.done():
                it.set_result(None)

    def news(self) -> "asyncio.Future[None]":
        """Done when there is more. Whoever does not wait any longer cancels it."""
        waiting = asyncio.get_running_loop().create_future()
        self._waiting.add(waiting)
        waiting.add_done_callback(self._waiting.discard)
        return waiting

    def since(self, position: int) -> list[WatchEvent] | None:
        """What came after a position; None where some of it is not here any more."""
        if position < self.floor:
            return None
        if not self._changes or self._changes[-1].position <= position:
            return []
        return self._changes[bisect_right(self._changes, position, key=_position) :]

    def said(self, like: Hashable, part: list[WatchEvent], shown: Callable[[WatchEvent], bytes]) -> bytes:
        """The changes as lines; those that are alike for many watchers (`like`) are put together once for all."""
        if like is None:
            return b"".join(map(shown, part))
        key = (like, part[0].position, part[-1].position)
        lines = self._said.get(key)
        if lines is None:
            lines = self._said[key] = b"".join(map(shown, part))
        return lines


_position = attrgetter("position")


@dataclass(slots=True)
class Fan:
    position: int = -1
    """Up to where everything is known; -1: nothing is."""
    stopping: bool = False
    watchers: int = 0
    cut_off: int = 0
    """How many watchers could not keep up."""
    ring_size: int = RING
    rings: dict[str, Ring] = field(init=False)
    _untold: set[str] = field(default_factory=set)
    """The kinds of which there is more than its watchers were woken for."""
    _told_at: float = 0.0
    _telling: asyncio.TimerHandle | None = None

    def __post_init__(self) -> None:
        self.rings = {noun: Ring(size=self.ring_size) for noun in {it.noun for it in RESOURCES}}

    def receive(self, batch: WatchBatch) -> None:
        self.position = batch.position
        if batch.anew:
            for ring in self.rings.values():
                ring.begin(batch.position)
            return
        by_noun: dict[str, list[WatchEvent]] = {}
        for change in batch.changes:
            by_noun.setdefault(change.noun, []).append(change)
        for noun, changes in by_noun.items():
            self.rings[noun].add(changes)
        self._untold |= by_noun.keys()
        if self._untold and self._telling is None:
            loop = asyncio.get_running_loop()
            rest = self._told_at + self.watchers * PAUSE_SECONDS_A_WATCHER - loop.time()
            if rest <= 0:
                self._tell()
            else:
                self._telling = loop.call_later(rest, self._tell)

    def _tell(self) -> None:
        self._telling, self._told_at = None, asyncio.get_running_loop().time()
        untold, self._untold = self._untold, set()
        for noun in untold:
            self.rings[noun].tell()

    def stop(self) -> None:
        """Let all watchers end."""
        self.stopping = True
        for ring in self.rings.values():
            ring.tell()
