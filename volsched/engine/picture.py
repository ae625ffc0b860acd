"""The scheduler's picture: the world's objects as values, with what is decided but not written laid over them.

A volume, claim or pod of an open binding keeps its assumption whatever happened to the object meanwhile: a foreign
change makes the binding fail, and until it has failed nobody else may plan with what it holds.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from volsched.core.fold import BindingState, ObjectState
from volsched.engine.world import World
from volsched.events.patch import merged
from volsched.events.streams import BINDING, KIND_OF_NOUN, noun_and_key
from volsched.index import Index
from volsched.model.kinds import Object

NOUNS = frozenset({"node", "class", "volume", "claim", "pod", "driver", "csinode", "capacity", "attachment"})
"""What decisions are made of."""
MANY = 1_000
"""Objects at once after which the index puts itself in order before it is asked."""


@dataclass(slots=True)
class Picture:
    world: World
    index: Index = field(default_factory=Index)
    owners: dict[str, str] = field(default_factory=dict)
    """Claim → the open binding that binds it."""
    planned: dict[str, str] = field(default_factory=dict)
    """Pod → the open binding that binds it."""
    _bindings: dict[str, BindingState] = field(default_factory=dict)
    _reserved: dict[str, int] = field(default_factory=dict)
    _imagined: dict[str, int] = field(default_factory=dict)

    def update(self, streams: Iterable[str]) -> None:
        """Look again at these streams: they have changed in the world, or were only imagined here."""
        touched = dict.fromkeys(streams)
        for stream in tuple(touched):
            noun, key = noun_and_key(stream)
            if noun == BINDING:
                touched |= dict.fromkeys(self._follow(key))
        for stream in touched:
            noun, key = noun_and_key(stream)
            if noun in NOUNS:
                self._look(stream, noun, key)
        if len(touched) > MANY:
            self.index.settle()

    def imagine(self, values: Iterable[Object], reserved: Mapping[str, int]) -> None:
        """Lay a decision over the picture before it is planned; `update` with its streams takes it off again."""
        for value in values:
            self.index.put(value)
        for capacity, size in reserved.items():
            self._imagined[capacity] = self._imagined.get(capacity, 0) + size
            self.index.reserve(capacity, self._reserved.get(capacity, 0) + self._imagined[capacity])

    def wake_up(self) -> None:
        """Take every imagined reservation off again: it is planned by now, or refused."""
        for capacity in self._imagined:
            self.index.reserve(capacity, self._reserved.get(capacity, 0))
        self._imagined.clear()

    def _follow(self, binding: str) -> list[str]:
        """Take note of how a binding stands; the streams of which it may hold an assumption."""
        before, after = self._bindings.pop(binding, None), self.world.binding(binding)
        for state, sign in ((before, -1), (after, 1)):
            for leg in () if state is None else state.legs:
                if leg.open and leg.capacity is not None and leg.bytes is not None:
                    self._reserve(leg.capacity, sign * leg.bytes)
                if leg.owner and self.owners.get(leg.claim) in (None, binding):
                    _set(self.owners, leg.claim, binding if sign > 0 and leg.open else None)
            if state is not None:
                _set(self.planned, state.plan["pod"], binding if sign > 0 else None)
        if after is not None:
            self._bindings[binding] = after
        if before is not None and after is not None:
            # A leg that lets go says so in the stream of what it held.
            return []
        known = [state for state in (before, after) if state is not None]
        legs = [leg for state in known for leg in state.legs]
        return [
            *(f"pod/{state.plan['pod']}" for state in known),
            *(f"claim/{leg.claim}" for leg in legs),
            *(f"volume/{leg.volume}" for leg in legs if leg.volume is not None),
        ]

    def _reserve(self, capacity: str, change: int) -> None:
        left = self._reserved.get(capacity, 0) + change
        _set(self._reserved, capacity, left or None)
        self.index.reserve(capacity, left)

    def _look(self, stream: str, noun: str, key: str) -> None:
        state = self.world.states.get(stream)
        if not isinstance(state, ObjectState) or state.manifest is None:
            self.index.drop(KIND_OF_NOUN[noun].value, key)
            return
        overlay, manifest = state.assumed, state.manifest
        if overlay is not None and overlay.binding in self._bindings:
            manifest = merged(manifest, overlay.patch)
        self.index.put(read_object(noun, manifest, state.rv))


def _set(mapping: dict[str, str] | dict[str, int], key: str, value: Any) -> None:
    if value is None:
        mapping.pop(key, None)
    else:
        mapping[key] = value


def read_object(noun: str, manifest: Mapping[str, Any], rv: int) -> Object:
    """The object as a value, at our own version of it."""
    metadata = {**manifest["metadata"], "resourceVersion": str(rv)}
    return KIND_OF_NOUN[noun].read({**manifest, "metadata": metadata})
