"""The envelope of an event: canonical bytes, hash link, upcasting of old schemas, and redaction."""

import hashlib
import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple

import orjson

from volsched.log.events.catalogue import CATALOGUE, StateChange

# The hash covers every column of the row, so an edited, inserted, deleted or reordered row breaks the chain at its
# position. Canonical bytes make the hash independent of the JSON writer.

GENESIS = bytes(32)
"""The hash before the first event."""


class Event(NamedTuple):
    """One row of the log, in the order of its columns. `data` is canonical JSON text."""

    position: int
    stream: str
    version: int
    type: str
    schema: int
    at: int
    """Microseconds since 1970, never less than that of the event before."""
    actor: str
    cause: int | None
    """Position of the event that led to this one."""
    binding: str | None
    data: str
    hash: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class NewEvent:
    """An event that has no position in the log yet."""

    stream: str
    type: str
    data: Mapping[str, Any] = field(default_factory=dict)
    cause: int | None = None
    binding: str | None = None
    is_consequence: bool = False
    """The event follows from the first event of its decision, which is its cause; its actor is `REACTION`."""


REACTION = "volsched"
"""The actor of events that follow from others; their cause is the event they follow from."""


def canonical(data: Any) -> str:
    """The one spelling of a JSON value: sorted keys, no blanks, no escapes that are not needed.

    Raises TypeError for a value that does not survive a round trip, such as an integer beyond 64 bits.
    """
    return orjson.dumps(data, option=orjson.OPT_SORT_KEYS).decode()


def is_finite(data: Any) -> bool:
    """Whether every number is finite; `canonical` turns others into null, which would remove a field."""
    if isinstance(data, Mapping):
        return all(map(is_finite, data.values()))
    if isinstance(data, list | tuple):
        return all(map(is_finite, data))
    return not isinstance(data, float) or math.isfinite(data)


def link(
    previous: bytes,
    position: int,
    stream: str,
    version: int,
    type_: str,
    schema: int,
    at: int,
    actor: str,
    cause: int | None,
    binding: str | None,
    data: str,
) -> bytes:
    """The hash of an event whose predecessor has hash `previous`.

    Fields are separated by a control character that none of them may hold, and None differs from any text.
    """
    text = (
        f"{position}\x1f{stream}\x1f{version}\x1f{type_}\x1f{schema}\x1f{at}\x1f{actor}\x1f"
        f"{'' if cause is None else cause}\x1f{'' if binding is None else '=' + binding}\x1f{data}"
    )
    return hashlib.sha256(previous + text.encode()).digest()


def links_to(event: Event, previous: bytes) -> bool:
    return event.hash == link(previous, *event[:-1])


# Upcasting: pure functions from one schema number of a type to the next.
#
# Stored events are never rewritten; readers always get the catalogue's current schema.

Data = dict[str, Any]
Upcasters = Mapping[tuple[str, int], Callable[[Data], Data]]

UPCASTERS: Upcasters = {}
"""(type, schema) → data of the next schema. Empty while every type is still at its first."""


def upcast(type_: str, schema: int, data: Data, *, upcasters: Upcasters = UPCASTERS) -> Data:
    """The data brought forward step by step; an unknown type or schema is passed through unchanged."""
    step = upcasters.get((type_, schema))
    while step is not None:
        schema += 1
        data = step(data)
        step = upcasters.get((type_, schema))
    return data


# Redaction: which data can be removed from an old event while the log stays provable, and the seal for it.
#
# A redacted event keeps its position, its type and its hash, so that the chain continues over it. Its hash can no
# longer be computed from the rest; instead an event of its own (`EventsRedacted`) records which events were
# redacted and seals their new content. Any other change is still detected.
#
# Only data that no fold needs is touched: the actor's name, the reason given, and the annotations of deleted
# objects. Values are replaced, never removed, so that the rest still has the shape that the catalogue requires.

REDACTION = "EventsRedacted"
REDACTIONS = "retention/redactions"
"""The stream of all redactions of a store."""
BLANK = "redacted"
PEOPLE = frozenset({"api", "cert", "cli", "kubectl", "token"})
"""Prefixes of the actors of people; actors of our own processes name no person."""
KEPT_DOMAINS = ("volsched.io", "kubernetes.io", "k8s.io")
"""Annotations that record how storage was bound. People use domains of their own, or none."""
LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
"""Redacted although its domain is kept: it repeats everything a person wrote."""


class Redact(StrEnum):
    """The kinds of redacted data."""

    ACTORS = "actors"
    REASONS = "reasons"
    ANNOTATIONS = "annotations"
    """The annotations of deleted objects."""


_OF_OBJECTS = frozenset(
    name
    for name, entry in CATALOGUE.items()
    if entry.change in (StateChange.CREATE, StateChange.PATCH, StateChange.DELETE)
)
_WITH_WORDS = _OF_OBJECTS | {"EffectNoted", "LeaseFreed", "TokenIssued", "TokenRevoked"}
"""Events whose reason is free text and part of no state; the reason of a binding's move is part of its state."""


def redacted(event: Event, what: Collection[Redact], *, ended: bool) -> Event:
    """The event without that data; unchanged where it has none. `ended`: its object is deleted."""
    actor = _without_name(event.actor) if Redact.ACTORS in what else event.actor
    data: dict[str, Any] = orjson.loads(event.data)
    if Redact.REASONS in what and event.type in _WITH_WORDS and data.get("reason") is not None:
        data["reason"] = BLANK
    if Redact.ANNOTATIONS in what and ended and event.type in _OF_OBJECTS:
        data = _without_annotations(data)
    text = canonical(data)
    return event if (actor, text) == (event.actor, event.data) else event._replace(actor=actor, data=text)


def seal_of(event: Event) -> bytes:
    """Binds the rest of a redacted event to its original hash; editing either breaks it."""
    return link(event.hash, *event[:-1])


def seals_in(data: str) -> dict[int, bytes]:
    """Position → seal, as recorded by a redaction."""
    given: Mapping[str, str] = orjson.loads(data)["seals"]
    return {int(position): bytes.fromhex(seal) for position, seal in given.items()}


def _without_name(actor: str) -> str:
    """`cli/release/alice` becomes `cli/release/redacted`: that a person did it, and how, stays visible."""
    head, slash, _ = actor.rpartition("/")
    return f"{head}{slash}{BLANK}" if actor.partition("/")[0] in PEOPLE and slash else actor


def _without_annotations(data: dict[str, Any]) -> dict[str, Any]:
    patch = data.get("patch")
    metadata = patch.get("metadata") if isinstance(patch, dict) else None
    notes = metadata.get("annotations") if isinstance(metadata, dict) else None
    if not (isinstance(patch, dict) and isinstance(metadata, dict) and isinstance(notes, dict)):
        return data
    # A null removes an annotation, and must keep doing so.
    blank = {name: BLANK for name, value in notes.items() if value is not None and not _is_kept(name)}
    return {**data, "patch": {**patch, "metadata": {**metadata, "annotations": notes | blank}}}


def _is_kept(name: str) -> bool:
    domain, slash, _ = name.partition("/")
    ours = any(domain == it or domain.endswith(f".{it}") for it in KEPT_DOMAINS)
    return bool(slash) and ours and name != LAST_APPLIED
