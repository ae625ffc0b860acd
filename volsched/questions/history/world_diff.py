"""How the world differs between two positions: every object that was made, changed or deleted in between."""

from collections.abc import Mapping
from typing import Any

from sqlalchemy import Connection

from volsched.kube.merge_patch import difference
from volsched.log.events.envelope import Event
from volsched.log.events.fold import ObjectState, State
from volsched.log.events.streams import KIND_OF_NOUN, noun_and_key
from volsched.log.reads.event_audit import Window, first_changes, objects_now, states_as_of
from volsched.log.reads.tail import read_head
from volsched.questions.audit.answers import Answer, Item, number_in
from volsched.questions.history.event_text import change_words

QUIET = frozenset({"notice"})
"""Nouns that are left out unless they are asked for."""


def world_diff(
    connection: Connection, within: Window, *, noun: str | None = None, after: str | None, limit: int
) -> Answer:
    """The objects that differ between the position before the window and its end, by their first change in it.

    A page looks at so many events and no more, and what was changed back is left out: it may be short, or even
    empty, and there is more all the same.
    """
    nouns = frozenset({noun}) if noun is not None else KIND_OF_NOUN.keys() - QUIET
    firsts, looked = first_changes(connection, within, nouns=nouns, after=number_in(after), limit=limit)
    streams = [it.stream for it in firsts]
    old = states_as_of(connection, [it.stream for it in firsts if it.version > 1], position=within.first - 1)
    until_now = within.last == read_head(connection).position
    new = (
        objects_now(connection, streams) if until_now else states_as_of(connection, streams, position=within.last)
    )
    told = (_changed(it, _object(old.get(it.stream)), _object(new.get(it.stream))) for it in firsts)
    items = [item for item in told if item is not None]
    return Answer(items=items, after=str(looked) if looked < within.last else None)


def _changed(first: Event, before: ObjectState | None, after: ObjectState | None) -> Item | None:
    old = None if before is None else before.manifest
    new = None if after is None else after.manifest
    patch = difference(old or {}, new or {})
    if (old is None) == (new is None) and _says_nothing(patch):
        return None
    noun, key = noun_and_key(first.stream)
    change = "created" if old is None else "deleted" if new is None else "changed"
    return {
        "kind": KIND_OF_NOUN[noun].name,
        "name": key,
        "change": change,
        "what": change_words(before, after, patch),
        "firstPosition": first.position,
        "patch": None if new is None else patch,
    }


def _says_nothing(patch: Mapping[str, Any]) -> bool:
    """An empty map is as good as none: taking the last annotation off leaves one behind."""
    return all(isinstance(value, dict) and _says_nothing(value) for value in patch.values())


def _object(state: State | None) -> ObjectState | None:
    return state if isinstance(state, ObjectState) else None
