"""Observed facts: the state of an object in a foreign cluster, recorded unchanged.

Another store has admitted the object, so it is neither defaulted nor validated. Only late or duplicate
observations are dropped: the foreign cluster's version of the object is compared under the head lock.
"""

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple

from volsched.binding.rules.late_writes import undoing, writers_of
from volsched.kube.manifest import uid
from volsched.kube.patches import difference
from volsched.log.commands import Command
from volsched.log.events.envelope import NewEvent
from volsched.log.events.fold import NOTHING, Decision, States, binding_stream, living, origin_version
from volsched.log.events.streams import stream_of
from volsched.objects.rules.object_events import changed_event, created_event, deleted_event

Manifest = Mapping[str, Any]


class Fact(NamedTuple):
    """An object's state in the foreign cluster; without a manifest it is deleted."""

    kind: str
    key: str
    manifest: Manifest | None
    version: int
    """The object's version there, or that of its deletion."""
    is_reset: bool = False
    """The cluster was restored: its versions started over, and the versions recorded before are meaningless."""
    tells_version: bool = True
    """Whether a change of the version alone is recorded. A cluster that is only observed is never written to, so
    the versions of unchanged objects are not needed."""
    is_news_at_same_version: bool = False
    """Whether a fact of the recorded version is compared too, because another projection may have recorded it."""


def record_fact(fact: Fact, *, actor: str) -> Command:
    """Record the fact; writes nothing if it is not newer than the recorded one."""
    writers = () if fact.manifest is None else writers_of(fact.manifest)
    streams = (stream_of(fact.kind, fact.key), *(binding_stream(binding) for binding in writers))
    return Command(actor=actor, streams=streams, decide=partial(_decide, fact))


def without_null_fields(value: Any) -> Any:
    """The value without null fields: the API treats them as absent, but a merge patch would remove the field."""
    if isinstance(value, Mapping):
        return {name: without_null_fields(below) for name, below in value.items() if below is not None}
    return [without_null_fields(below) for below in value] if isinstance(value, list | tuple) else value


def _decide(fact: Fact, states: States) -> Decision:
    stream = stream_of(fact.kind, fact.key)
    state = living(states, stream)
    known = None if state is None else origin_version(state)
    if known is not None and not fact.is_reset and _is_old(fact, int(known)):
        return NOTHING
    if fact.manifest is None:
        return NOTHING if state is None else Decision(events=(deleted_event(stream),))
    manifest = without_null_fields(fact.manifest)
    # A late write of a binding that was given up is undone by any process that observes it.
    effects = undoing(stream, manifest, states)
    return Decision(
        events=tuple(_events(fact, stream, None if state is None else state.manifest, manifest)), effects=effects
    )


def _is_old(fact: Fact, known: int) -> bool:
    return fact.version < known or (fact.version == known and not fact.is_news_at_same_version)


def _events(fact: Fact, stream: str, old: Manifest | None, new: Manifest) -> Iterator[NewEvent]:
    if old is not None and uid(old) == uid(new):
        patch = difference(old, new)
        if patch and (fact.tells_version or fact.is_reset or not _is_version_alone(patch)):
            yield changed_event(stream, patch)
        return
    if old is not None:
        yield deleted_event(stream, "another object has its name now")
    yield created_event(stream, new)


def _is_version_alone(patch: Mapping[str, Any]) -> bool:
    return patch.keys() == {"metadata"} and patch["metadata"].keys() == {"resourceVersion"}
