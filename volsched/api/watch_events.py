"""What the log's events mean to whoever watches objects: one was added, modified or deleted.

Selectors are part of it: an object that begins to match is added for that watcher, one that ceases to is deleted.
"""

from collections.abc import Iterable, Iterator, Mapping, MutableMapping
from dataclasses import dataclass, field
from typing import Any

import orjson

from volsched.api.kubernetes.queries import Selection
from volsched.log.events.envelope import Event
from volsched.log.events.fold import ObjectState, State
from volsched.log.events.streams import KIND_OF_NOUN, noun_and_key
from volsched.log.reads.tail import fold_event
from volsched.questions.get.documents import as_manifest

ADDED, MODIFIED, DELETED, BOOKMARK, ERROR = "ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR"
States = MutableMapping[str, State]


@dataclass(slots=True)
class WatchEvent:
    """A new version of an object, or its end. `lines` are its spellings, made once for all watchers."""

    position: int
    noun: str
    key: str
    before: ObjectState | None
    after: ObjectState | None
    lines: dict[str, bytes] = field(default_factory=dict)

    def shown(self, type_: str) -> tuple[ObjectState, dict[str, Any]]:
        """The object under that type of event; one that is deleted, as it was, at the version of its end."""
        state = self.before if type_ == DELETED else self.after
        assert state is not None
        state = state._replace(rv=self.position)
        return state, as_manifest(self.noun, self.key, state)

    def line(self, type_: str) -> bytes:
        known = self.lines.get(type_)
        if known is None:
            known = self.lines[type_] = event_line(type_, self.shown(type_)[1])
        return known


@dataclass(frozen=True, slots=True)
class Scope:
    """Which objects of a kind a watcher wants."""

    namespace: str | None
    selection: Selection

    def type_for(self, change: WatchEvent) -> str | None:
        """What the change is to this watcher; None: nothing."""
        if self.namespace is not None and not change.key.startswith(f"{self.namespace}/"):
            return None
        had, has = self._has(change.before), self._has(change.after)
        if has:
            return MODIFIED if had else ADDED
        return DELETED if had else None

    def _has(self, state: ObjectState | None) -> bool:
        return state is not None and self.selection.matches(state.manifest or {})


def changes_of(events: Iterable[Event], states: States) -> Iterator[WatchEvent]:
    """The changes of objects among the events; `states` is what streams were before, and is brought forward.

    Decisions about an object leave its version alone and are no change of it.
    """
    for it in events:
        noun, key = noun_and_key(it.stream)
        if noun not in KIND_OF_NOUN:
            continue
        before = states.get(it.stream)
        after = fold_event(before, it.position, it.version, it.type, it.schema, it.at, it.data)
        if _living(after) is None:
            states.pop(it.stream, None)
        else:
            states[it.stream] = after
        if isinstance(after, ObjectState) and after.rv == it.position:
            had, has = _living(before), _living(after)
            if had is not None or has is not None:
                yield WatchEvent(it.position, noun, key, had, has)


def event_line(type_: str, shown: Mapping[str, Any]) -> bytes:
    return orjson.dumps({"type": type_, "object": shown}, option=orjson.OPT_APPEND_NEWLINE)


def _living(state: State | None) -> ObjectState | None:
    return state if isinstance(state, ObjectState) and state.manifest is not None else None
