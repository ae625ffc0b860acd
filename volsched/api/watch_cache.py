"""Watches are the log's tail: one reader per process folds it into what was added, modified or deleted."""

import asyncio
import threading
from bisect import bisect_right
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, MutableMapping
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any

import orjson

from volsched.api.kubernetes.queries import Selection
from volsched.api.kubernetes.resources import RESOURCES
from volsched.api.object_cache import NOWHERE, ObjectCache
from volsched.log.database import Database, Place
from volsched.log.errors import ArchivedError
from volsched.log.events.envelope import Event
from volsched.log.events.fold import ObjectState, State
from volsched.log.events.streams import KIND_OF_NOUN, noun_and_key
from volsched.log.reads.head import current_head
from volsched.log.reads.startup import load_world
from volsched.log.reads.tail import fold_event, read_head, tail
from volsched.questions.get.documents import as_manifest
from volsched.questions.status.storage_tally import StorageTally

# The log's events as watch events: an object was added, modified or deleted.
#
# Selectors count: an object that begins to match is added for that watcher, one that no longer matches is deleted.

ADDED, MODIFIED, DELETED, BOOKMARK, ERROR = "ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR"
States = MutableMapping[str, State]


@dataclass(slots=True)
class WatchEvent:
    """A new version of an object, or its end. `lines` are its serialisations, made once for all watchers."""

    position: int
    noun: str
    key: str
    before: ObjectState | None
    after: ObjectState | None
    lines: dict[str, bytes] = field(default_factory=dict)

    def object_in(self, type_: str) -> tuple[ObjectState, dict[str, Any]]:
        """The object in an event of that type; a deleted one in its last state, at the version of its deletion."""
        state = self.before if type_ == DELETED else self.after
        assert state is not None
        state = state._replace(rv=self.position)
        return state, as_manifest(self.noun, self.key, state)

    def line(self, type_: str) -> bytes:
        known = self.lines.get(type_)
        if known is None:
            known = self.lines[type_] = event_line(type_, self.object_in(type_)[1])
        return known


@dataclass(frozen=True, slots=True)
class Scope:
    """Which objects of a kind a watcher wants."""

    namespace: str | None
    selection: Selection

    def type_for(self, change: WatchEvent) -> str | None:
        """The type of the change for this watcher; None: it does not match."""
        if self.namespace is not None and not change.key.startswith(f"{self.namespace}/"):
            return None
        had, has = self._has(change.before), self._has(change.after)
        if has:
            return MODIFIED if had else ADDED
        return DELETED if had else None

    def _has(self, state: ObjectState | None) -> bool:
        return state is not None and self.selection.matches(state.manifest or {})


def changes_of(
    events: Iterable[Event], states: States, follow: Callable[[Event, State | None], None] = lambda *_: None
) -> Iterator[WatchEvent]:
    """The changes of objects among the events; `states` are the earlier states of the streams, and are updated.

    Decisions about an object do not change its version and are no change of it. `follow` gets every event, with
    the resulting object.
    """
    for event in events:
        noun, key = noun_and_key(event.stream)
        if noun not in KIND_OF_NOUN:
            follow(event, None)
            continue
        before = states.get(event.stream)
        after = fold_event(before, event.position, event.version, event.type, event.schema, event.at, event.data)
        follow(event, after)
        if _living(after) is None:
            states.pop(event.stream, None)
        else:
            states[event.stream] = after
        if isinstance(after, ObjectState) and after.rv == event.position:
            had, has = _living(before), _living(after)
            if had is not None or has is not None:
                yield WatchEvent(event.position, noun, key, had, has)


def event_line(type_: str, shown: Mapping[str, Any]) -> bytes:
    return orjson.dumps({"type": type_, "object": shown}, option=orjson.OPT_APPEND_NEWLINE)


def _living(state: State | None) -> ObjectState | None:
    return state if isinstance(state, ObjectState) and state.manifest is not None else None


# `Tail` is a loop as any other (`step`), and runs in a thread because it reads the database. `Fan` lives in the
# event loop. It keeps the last changes of every kind in a ring, and a watcher is only a position in it: one that
# falls out of the ring is cut off, and costs the others nothing.

CHUNK = 2_000
RING = 8_192
"""Changes that are kept per kind."""
PAUSE_SECONDS_A_WATCHER = 0.0002
"""Per watcher, between two wake-ups of all: several times the cost of sending one of them the changes.

So many watchers take a part of a core and not all of it. A change after a pause is sent at once.
"""


@dataclass(frozen=True, slots=True)
class WatchBatch:
    """The changes that a reader has found, up to an event."""

    place: Place
    changes: tuple[WatchEvent, ...] = ()
    states: Mapping[str, State | None] = field(default_factory=dict)
    """Stream → state now, for all objects that had events, even where the object did not change."""
    restarted: ObjectCache | None = None
    """The reader has started over with these objects: the changes in between are unknown."""

    @property
    def position(self) -> int:
        return self.place[0]


@dataclass(slots=True)
class Tail:
    database: Database
    publish: Callable[[WatchBatch], None]
    tally: StorageTally = field(default_factory=StorageTally)
    place: Place = NOWHERE
    """The last event that was read."""
    _states: dict[str, State] = field(default_factory=dict)
    _reading: threading.Lock = field(default_factory=threading.Lock)
    """Its own loop reads, and so do requests that need the newest events."""

    def step(self, now: int) -> int:  # noqa: ARG002 - the signature of a loop's step
        """Read the tail; returns how many events were new."""
        with self._reading:
            return self._step()

    def catch_up(self) -> int:
        """Read all that is committed now; returns the position of the last event of it."""
        head = current_head(self.database)
        with self._reading:
            if self.place[0] >= head[0] and self.place != head and current_head(self.database) == head:
                # A backup was restored: this is another log than the one that was read before.
                self.place = NOWHERE
            while self.place[0] < head[0] and self._step():
                pass
        return head[0]

    def _step(self) -> int:
        if self.place == NOWHERE:
            return self._begin()
        try:
            with self.database.glance() as connection:
                events = tail(connection, after=self.place[0], limit=CHUNK)
        except ArchivedError:
            # The reader slept too long, and the missed events are archived.
            return self._begin()
        if not events:
            return 0
        states: dict[str, State | None] = {}

        def follow(event: Event, after: State | None) -> None:
            self.tally.follow(event, after)
            if after is not None:
                states[event.stream] = after

        changes = tuple(changes_of(events, self._states, follow))
        self.place = events[-1].position, bytes(events[-1].hash)
        self.publish(WatchBatch(self.place, changes, states))
        return len(events)

    def _begin(self) -> int:
        with self.database.read() as connection:
            head = read_head(connection)
            world = load_world(connection)
        self.place, self._states = (world.position, head.hash), world.states
        self.tally.begin(world.states)
        self.publish(WatchBatch(self.place, restarted=ObjectCache.of(self.place, world.states)))
        return 1


@dataclass(slots=True)
class Ring:
    """The last changes of one kind: all that came after `floor`."""

    floor: int = 0
    size: int = RING
    _changes: list[WatchEvent] = field(default_factory=list)
    _waiting: set["asyncio.Future[None]"] = field(default_factory=set)
    _shared_lines: dict[tuple[Hashable, int, int], bytes] = field(default_factory=dict)
    """(group of watchers, first and last position) → the lines, until there are more changes."""

    def add(self, changes: list[WatchEvent]) -> None:
        self._changes += changes
        surplus = len(self._changes) - self.size
        # Trimmed rarely, by a large part at a time.
        if surplus > self.size // 4:
            self.floor = self._changes[surplus - 1].position
            del self._changes[:surplus]
        self._shared_lines.clear()

    def begin(self, floor: int) -> None:
        self.floor = floor
        self._changes.clear()
        self.wake()

    def wake(self) -> None:
        """Wake all waiters."""
        waiters, self._waiting = self._waiting, set()
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    def news(self) -> "asyncio.Future[None]":
        """Done when there is more. A caller that stops waiting cancels it."""
        waiter = asyncio.get_running_loop().create_future()
        self._waiting.add(waiter)
        waiter.add_done_callback(self._waiting.discard)
        return waiter

    def since(self, position: int) -> list[WatchEvent] | None:
        """The changes after a position; None where some of them are no longer in the ring."""
        if position < self.floor:
            return None
        if not self._changes or self._changes[-1].position <= position:
            return []
        return self._changes[bisect_right(self._changes, position, key=_position) :]

    def lines(self, group: Hashable, changes: list[WatchEvent], line_of: Callable[[WatchEvent], bytes]) -> bytes:
        """The changes as lines; a group of watchers that get the same lines shares one copy. None: no group."""
        if group is None:
            return b"".join(map(line_of, changes))
        key = (group, changes[0].position, changes[-1].position)
        lines = self._shared_lines.get(key)
        if lines is None:
            lines = self._shared_lines[key] = b"".join(map(line_of, changes))
        return lines


_position = attrgetter("position")


@dataclass(slots=True)
class Fan:
    objects: ObjectCache = field(default_factory=ObjectCache)
    """All objects, as of the position up to which everything is known."""
    stopping: bool = False
    watchers: int = 0
    cut_off: int = 0
    """Watchers that could not keep up."""
    ring_size: int = RING
    rings: dict[str, Ring] = field(init=False)
    _unwoken: set[str] = field(default_factory=set)
    """The kinds whose watchers were not yet woken for the last changes."""
    _woken_at: float = 0.0
    _wake_timer: asyncio.TimerHandle | None = None

    def __post_init__(self) -> None:
        self.rings = {noun: Ring(size=self.ring_size) for noun in {it.noun for it in RESOURCES}}

    @property
    def position(self) -> int:
        """The position up to which everything is known; -1: nothing is."""
        return self.objects.place[0]

    def receive(self, batch: WatchBatch) -> None:
        if batch.restarted is not None:
            self.objects = batch.restarted
            for ring in self.rings.values():
                ring.begin(batch.position)
            return
        self.objects.follow(batch.place, batch.states)
        by_noun: dict[str, list[WatchEvent]] = {}
        for change in batch.changes:
            by_noun.setdefault(change.noun, []).append(change)
        for noun, changes in by_noun.items():
            self.rings[noun].add(changes)
        self._unwoken |= by_noun.keys()
        if self._unwoken and self._wake_timer is None:
            loop = asyncio.get_running_loop()
            rest = self._woken_at + self.watchers * PAUSE_SECONDS_A_WATCHER - loop.time()
            if rest <= 0:
                self._wake()
            else:
                self._wake_timer = loop.call_later(rest, self._wake)

    def _wake(self) -> None:
        self._wake_timer, self._woken_at = None, asyncio.get_running_loop().time()
        unwoken, self._unwoken = self._unwoken, set()
        for noun in unwoken:
            self.rings[noun].wake()

    def stop(self) -> None:
        """Let all watchers end."""
        self.stopping = True
        for ring in self.rings.values():
            ring.wake()
