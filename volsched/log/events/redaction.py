"""Redaction: what an old event may lose without the log losing its proof, and the seal that is left in its place.

A redacted event keeps its place, its type and its hash, so that the chain goes on over it. Its own hash can no
longer be computed from what is left; instead the log says, in an event of its own (`EventsRedacted`), which events
were redacted and seals what each of them has become. Whatever is changed beside that is still found.

Only what no fold needs is touched: who it was, why they said they did it, and the annotations of objects that are
gone. Values are replaced and never taken out, so that what is left has the shape that the catalogue asks for.
"""

from collections.abc import Collection, Mapping
from enum import StrEnum
from typing import Any

import orjson

from volsched.log.events.catalogue import CATALOGUE, StateChange
from volsched.log.events.envelope import Event, canonical, link

REDACTION = "EventsRedacted"
REDACTIONS = "retention/redactions"
"""The stream of all redactions of a store."""
BLANK = "redacted"
PEOPLE = frozenset({"api", "cert", "cli", "kubectl", "token"})
"""What the actor of a person begins with; those of our own processes name nobody."""
KEPT_DOMAINS = ("volsched.io", "kubernetes.io", "k8s.io")
"""Annotations that say how storage was bound. People write theirs under domains of their own, or none."""
LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
"""Under a domain that is kept, but it repeats all that a person wrote."""


class Redact(StrEnum):
    """What is redacted."""

    ACTORS = "actors"
    REASONS = "reasons"
    ANNOTATIONS = "annotations"
    """Of objects that are gone."""


_OF_OBJECTS = frozenset(
    name
    for name, entry in CATALOGUE.items()
    if entry.change in (StateChange.CREATE, StateChange.PATCH, StateChange.DELETE)
)
_WITH_WORDS = _OF_OBJECTS | {"EffectNoted"}
"""Events whose reason is somebody's own words, and part of no state; why a binding moved is part of its state."""


def redacted(event: Event, what: Collection[Redact], *, ended: bool) -> Event:
    """The event without that; itself where there is nothing of it. `ended`: the object it is about is gone."""
    actor = _without_name(event.actor) if Redact.ACTORS in what else event.actor
    data: dict[str, Any] = orjson.loads(event.data)
    if Redact.REASONS in what and event.type in _WITH_WORDS and data.get("reason") is not None:
        data["reason"] = BLANK
    if Redact.ANNOTATIONS in what and ended and event.type in _OF_OBJECTS:
        data = _without_annotations(data)
    text = canonical(data)
    return event if (actor, text) == (event.actor, event.data) else event._replace(actor=actor, data=text)


def seal_of(event: Event) -> bytes:
    """Binds what is left of a redacted event to the hash it had; whoever edits either breaks it."""
    return link(event.hash, *event[:-1])


def seals_in(data: str) -> dict[int, bytes]:
    """Position → seal, as a redaction says it."""
    given: Mapping[str, str] = orjson.loads(data)["seals"]
    return {int(position): bytes.fromhex(seal) for position, seal in given.items()}


def _without_name(actor: str) -> str:
    """`cli/release/alice` is `cli/release/redacted`: what was done by hand stays known, and with which command."""
    head, slash, _ = actor.rpartition("/")
    return f"{head}{slash}{BLANK}" if actor.partition("/")[0] in PEOPLE and slash else actor


def _without_annotations(data: dict[str, Any]) -> dict[str, Any]:
    patch = data.get("patch")
    metadata = patch.get("metadata") if isinstance(patch, dict) else None
    notes = metadata.get("annotations") if isinstance(metadata, dict) else None
    if not (isinstance(patch, dict) and isinstance(metadata, dict) and isinstance(notes, dict)):
        return data
    # A null takes an annotation off, and has to go on doing so.
    blank = {name: BLANK for name, value in notes.items() if value is not None and not _is_kept(name)}
    return {**data, "patch": {**patch, "metadata": {**metadata, "annotations": notes | blank}}}


def _is_kept(name: str) -> bool:
    domain, slash, _ = name.partition("/")
    ours = any(domain == it or domain.endswith(f".{it}") for it in KEPT_DOMAINS)
    return bool(slash) and ours and name != LAST_APPLIED
