"""All objects of the log in memory, updated by the reader behind the watches, each encoded once for all readers.

It holds the objects as of one event (`place`). A read that must not return anything older asks `freshness` first.
Only the event loop uses it. The objects are those of the reader behind the watches; their encodings are kept for
`MOST_OBJECTS` objects and `MOST_LISTS` lists of a kind.
"""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from volsched.log.database import Place
from volsched.log.events.fold import ObjectState, State
from volsched.log.events.streams import KIND_OF_NOUN, noun_and_key
from volsched.log.reads.lookups import AFTER_SLASH

NOWHERE: Place = (-1, b"")
T = TypeVar("T")
MOST_OBJECTS = 10_000
"""Objects of a kind whose encodings are kept."""
MOST_LISTS = 16
"""Lists of a kind that are kept: clients that poll ask for the same ones."""
KeyedStates = list[tuple[str, ObjectState]]


@dataclass(slots=True)
class KindCache:
    """The objects of one kind."""

    changed: int
    """No object of the kind was added, modified or deleted after this position."""
    states: dict[str, ObjectState] = field(default_factory=dict)
    _keys: list[str] = field(default_factory=list)
    """The keys, sorted."""
    _kept: dict[str, tuple[int, dict[Hashable, Any]]] = field(default_factory=dict)
    """Key → the object's version, and its encodings by form."""
    _lists: dict[Hashable, Any] = field(default_factory=dict)
    """Form → the encoding of a list, until an object of the kind changes."""

    def begin(self, states: dict[str, ObjectState]) -> None:
        self.states, self._keys = states, sorted(states)

    def put(self, key: str, state: State | None) -> None:
        if isinstance(state, ObjectState) and state.rv > self.changed:
            self.changed = state.rv
            self._lists = {}
        if isinstance(state, ObjectState) and state.manifest is not None:
            if key not in self.states:
                insort(self._keys, key)
            self.states[key] = state
        elif self.states.pop(key, None) is not None:
            del self._keys[bisect_left(self._keys, key)]
            self._kept.pop(key, None)

    def objects(self, *, namespace: str | None, after: str, most: int | None) -> KeyedStates:
        """The objects after a key, ordered by the bytes of their keys, as in the database."""
        keys = self._keys
        first = bisect_right(keys, after)
        last = len(keys)
        if namespace is not None:
            first = max(first, bisect_right(keys, f"{namespace}/"))
            last = bisect_left(keys, f"{namespace}{AFTER_SLASH}")
        if most is not None:
            last = min(last, first + most)
        chosen = keys[first:last]
        return list(zip(chosen, map(self.states.__getitem__, chosen), strict=True))

    def encoding(self, key: str, state: ObjectState, form: Hashable, make: Callable[[], T]) -> T:
        """The object's encoding in that form, cached: it depends on the form and the object's version alone."""
        known = self._kept.get(key)
        if known is None or known[0] != state.rv:
            if len(self._kept) >= MOST_OBJECTS:
                self._kept.clear()
            known = self._kept[key] = state.rv, {}
        encoding: T | None = known[1].get(form)
        if encoding is None:
            encoding = known[1][form] = make()
        return encoding

    def cached_list(self, form: Hashable, make: Callable[[], T]) -> T:
        """The same for a list, as long as no object of the kind changes."""
        encoding: T | None = self._lists.get(form)
        if encoding is None:
            if len(self._lists) >= MOST_LISTS:
                self._lists.clear()
            encoding = self._lists[form] = make()
        return encoding


@dataclass(slots=True)
class ObjectCache:
    place: Place = NOWHERE
    """The event up to which everything is known."""
    _kinds: dict[str, KindCache] = field(default_factory=dict)

    @classmethod
    def of(cls, place: Place, states: Mapping[str, State]) -> "ObjectCache":
        by_noun: dict[str, dict[str, ObjectState]] = {noun: {} for noun in KIND_OF_NOUN}
        for stream, state in states.items():
            noun, key = noun_and_key(stream)
            if noun in by_noun and isinstance(state, ObjectState) and state.manifest is not None:
                by_noun[noun][key] = state
        cache = cls(place, {noun: KindCache(place[0]) for noun in by_noun})
        for noun, kind in cache._kinds.items():
            kind.begin(by_noun[noun])
        return cache

    def follow(self, place: Place, states: Mapping[str, State | None]) -> None:
        """Advance to an event; `states` are those of all objects' streams that had events since the last place."""
        for stream, state in states.items():
            noun, key = noun_and_key(stream)
            self._kinds[noun].put(key, state)
        self.place = place

    def kind(self, noun: str) -> KindCache:
        return self._kinds[noun]
