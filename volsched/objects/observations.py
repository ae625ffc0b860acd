"""Observed facts: what an object of a foreign cluster has become there, recorded as it is.

Another store has admitted the object, so nothing of it is defaulted, validated or refused. Only what is told late
or twice is no fact: the version that the other cluster gave the object is compared under the head lock.
"""

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple

from volsched.binding.rules.late_writes import undoing, writers_of
from volsched.kube.manifest import uid
from volsched.kube.merge_patch import difference
from volsched.log.commands import Command
from volsched.log.events.decision import NOTHING, Decision, States
from volsched.log.events.envelope import NewEvent
from volsched.log.events.object_states import binding_stream, living, origin_version
from volsched.log.events.streams import stream_of
from volsched.objects.rules.object_events import changed_event, created_event, deleted_event

Manifest = Mapping[str, Any]


class Fact(NamedTuple):
    """An object as it has become elsewhere; without a manifest it is gone."""

    kind: str
    key: str
    manifest: Manifest | None
    version: int
    """The object's there, or that of its deletion."""


def record_fact(fact: Fact, *, actor: str) -> Command:
    """Nothing is written where the fact is not newer than what is known."""
    writers = () if fact.manifest is None else writers_of(fact.manifest)
    streams = (stream_of(fact.kind, fact.key), *(binding_stream(binding) for binding in writers))
    return Command(actor=actor, streams=streams, decide=partial(_decide, fact))


def without_null_fields(value: Any) -> Any:
    """In the API a field that is null is a field that is not there; to a merge patch it would be a removal."""
    if isinstance(value, Mapping):
        return {name: without_null_fields(below) for name, below in value.items() if below is not None}
    return [without_null_fields(below) for below in value] if isinstance(value, list | tuple) else value


def _decide(fact: Fact, states: States) -> Decision:
    stream = stream_of(fact.kind, fact.key)
    held = living(states, stream)
    known = None if held is None else origin_version(held)
    if known is not None and fact.version <= int(known):
        return NOTHING
    if fact.manifest is None:
        return NOTHING if held is None else Decision(events=(deleted_event(stream),))
    manifest = without_null_fields(fact.manifest)
    # A late write of a binding that was given up is undone, whoever sees it land.
    effects = undoing(stream, manifest, states)
    return Decision(
        events=tuple(_events(stream, None if held is None else held.manifest, manifest)), effects=effects
    )


def _events(stream: str, old: Manifest | None, new: Manifest) -> Iterator[NewEvent]:
    if old is not None and uid(old) == uid(new):
        yield changed_event(stream, difference(old, new))
        return
    if old is not None:
        yield deleted_event(stream, "another object has its name now")
    yield created_event(stream, new)
