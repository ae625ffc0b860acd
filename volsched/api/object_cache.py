"""All objects of the log in memory, kept by the reader behind the watches, each encoded once for all who read it.

It holds what the log held at one event (`place`). Whoever must not get anything older asks `freshness` first.
The event loop alone uses it. The objects are those of the reader behind the watches; what is made of them is kept
for `MOST_OBJECTS` and `MOST_LISTS` of a kind.
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
Found = list[tuple[str, ObjectState]]


@dataclass(slots=True)
class KindCache:
    """The objects of one kind."""

    changed: int
    """No object of the kind was added, modified or deleted after this position."""
    states: dict[str, ObjectState] = field(default_factory=dict)
    _keys: list[str] = field(default_factory=list)
    """In order."""
    _kept: dict[str, tuple[int, dict[Hashable, Any]]] = field(default_factory=dict)
    """Key → the object's version, and what was made of it."""
    _lists: dict[Hashable, Any] = field(default_factory=dict)
    """What was made of several objects, until one of them changes."""

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

    def objects(self, *, namespace: str | None, after: str, most: int | None) -> Found:
        """Those behind a key, in the order of keys: that of their bytes, as the database has it."""
        keys = self._keys
        first = bisect_right(keys, after)
        last = len(keys)
        if namespace is not None:
            first = max(first, bisect_right(keys, f"{namespace}/"))
            last = bisect_left(keys, f"{namespace}{AFTER_SLASH}")
        if most is not None:
            last = min(last, first + most)
        found = keys[first:last]
        return list(zip(found, map(self.states.__getitem__, found), strict=True))

    def kept(self, key: str, state: ObjectState, form: Hashable, make: Callable[[], T]) -> T:
        """What `make` makes of the object, made once: the form and the object's version alone decide about it."""
        known = self._kept.get(key)
        if known is None or known[0] != state.rv:
            if len(self._kept) >= MOST_OBJECTS:
                self._kept.clear()
            known = self._kept[key] = state.rv, {}
        made: T | None = known[1].get(form)
        if made is None:
            made = known[1][form] = make()
        return made

    def kept_list(self, form: Hashable, make: Callable[[], T]) -> T:
        """The same for a list: as long as no object of the kind changes."""
        made: T | None = self._lists.get(form)
        if made is None:
            if len(self._lists) >= MOST_LISTS:
                self._lists.clear()
            made = self._lists[form] = make()
        return made


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
        made = cls(place, {noun: KindCache(place[0]) for noun in by_noun})
        for noun, kind in made._kinds.items():
            kind.begin(by_noun[noun])
        return made

    def follow(self, place: Place, states: Mapping[str, State | None]) -> None:
        """Go on to an event; `states` are those of all streams of objects that had events since the last place."""
        for stream, state in states.items():
            noun, key = noun_and_key(stream)
            self._kinds[noun].put(key, state)
        self.place = place

    def kind(self, noun: str) -> KindCache:
        return self._kinds[noun]
