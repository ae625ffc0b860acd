"""The catalogue: every type of event, the shape of its data (`payloads`), and the schema version that we write.

An object event is an intent plus a merge patch of the object's manifest; decision events (assumed, freed, planned,
attempted) change no object and no resourceVersion. Events are never rewritten: a changed shape gets a higher
`schema` number and an upcaster from the one before.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from typing import TYPE_CHECKING, Any

from volsched.log.events.streams import (
    ATTEMPT,
    AUDIT,
    BINDING,
    CLOCK,
    CLUSTER,
    LEASE,
    NOUN_OF_KIND,
    RETENTION,
    TOKEN,
)

if TYPE_CHECKING:
    from volsched.log.events.payloads import Payload


class StateChange(StrEnum):
    """The effect of an event on the state of its stream."""

    CREATE = "create"
    PATCH = "patch"
    DELETE = "delete"
    ASSUME = "assume"
    FREE = "free"
    PLAN = "plan"
    MOVE_BINDING = "move-binding"
    MOVE_LEG = "move-leg"
    ATTEMPT = "attempt"
    REPEAT = "repeat"
    FAIL = "fail"
    NOTE = "note"
    """No change: the event records an action outside the log."""
    ISSUE = "issue"
    REVOKE = "revoke"
    ASK = "ask"
    """No change: the event records a question."""
    TAKE_AWAY = "take-away"
    CORRECT = "correct"
    """No change: the following events carry the corrected time."""


@dataclass(frozen=True, slots=True)
class EventType:
    name: str
    noun: str
    change: StateChange
    payload: str
    """The model of its data in `payloads`, which only writers load."""
    schema: int = 1


def _object_types(noun: str, title: str, *, assumable: bool) -> list[EventType]:
    types = [
        EventType(f"{title}Created", noun, StateChange.CREATE, "Patch"),
        EventType(f"{title}Changed", noun, StateChange.PATCH, "Patch"),
        EventType(f"{title}Deleted", noun, StateChange.DELETE, "Deletion"),
    ]
    if assumable:
        types.append(EventType(f"{title}Assumed", noun, StateChange.ASSUME, "Assumption"))
        types.append(EventType(f"{title}Freed", noun, StateChange.FREE, "Freeing"))
    return types


ASSUMABLE = ("volume", "claim", "pod")
TITLES = {noun: noun.capitalize() for noun in NOUN_OF_KIND.values()} | {
    "csinode": "CSINode",
    "statefulset": "StatefulSet",
    "disruptionbudget": "DisruptionBudget",
    "priorityclass": "PriorityClass",
}
CLOCK_CORRECTED = "ClockCorrected"
CATALOGUE = {
    entry.name: entry
    for entry in (
        *(t for noun, title in TITLES.items() for t in _object_types(noun, title, assumable=noun in ASSUMABLE)),
        EventType("BindingPlanned", BINDING, StateChange.PLAN, "PlanData"),
        EventType("BindingMoved", BINDING, StateChange.MOVE_BINDING, "BindingMove"),
        EventType("LegMoved", BINDING, StateChange.MOVE_LEG, "LegMove"),
        EventType("EffectNoted", BINDING, StateChange.NOTE, "Note"),
        EventType("TokenIssued", TOKEN, StateChange.ISSUE, "TokenIssue"),
        EventType("TokenRevoked", TOKEN, StateChange.REVOKE, "TokenRevocation"),
        EventType("LeaseFreed", LEASE, StateChange.TAKE_AWAY, "LeaseFreeing"),
        EventType(CLOCK_CORRECTED, CLOCK, StateChange.CORRECT, "ClockCorrection"),
        EventType("ClusterAttached", CLUSTER, StateChange.NOTE, "ClusterAttachment"),
        EventType("MirrorGap", CLUSTER, StateChange.NOTE, "CursorGap"),
        EventType("ClusterRestored", CLUSTER, StateChange.NOTE, "ClusterRestoration"),
        EventType("MirrorDrift", CLUSTER, StateChange.NOTE, "ClusterDrift"),
        EventType("AuditRead", AUDIT, StateChange.ASK, "AuditQuestion"),
        EventType("AttemptMade", ATTEMPT, StateChange.ATTEMPT, "AttemptData"),
        EventType("AttemptRepeated", ATTEMPT, StateChange.REPEAT, "Repeat"),
        EventType("AttemptFailed", ATTEMPT, StateChange.FAIL, "AttemptFailure"),
        EventType("EventsRedacted", RETENTION, StateChange.NOTE, "Redaction"),
    )
}


class CatalogueError(ValueError):
    """An event that the catalogue does not allow."""


_PATCH_ALONE = frozenset(name for name, entry in CATALOGUE.items() if entry.payload == "Patch")


@cache
def payload_model(type_: str) -> "type[Payload]":
    """The model of the data of this type of event."""
    from volsched.log.events import payloads

    model: type[Payload] = getattr(payloads, CATALOGUE[type_].payload)
    return model


def check_payload(type_: str, noun: str, data: Mapping[str, Any]) -> EventType:
    """The entry of a type about to be written; raises CatalogueError where the event does not fit it."""
    entry = CATALOGUE.get(type_)
    if entry is None:
        raise CatalogueError(f"event type {type_} is not in the catalogue")
    if entry.noun != noun:
        raise CatalogueError(f"event type {type_} belongs to a {entry.noun} stream, not to a {noun} stream")
    # The most common payload is recognised directly, and the validator would only copy it. Serialisation checks
    # that all keys are text.
    if type_ in _PATCH_ALONE and len(data) == 1 and type(data.get("patch")) is dict:
        return entry
    # Most commands only read, and pydantic takes long to load.
    from pydantic import ValidationError

    try:
        payload_model(type_).__pydantic_validator__.validate_python(data)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(map(str, first["loc"])) or "data"
        raise CatalogueError(f"event type {type_}: {place}: {first['msg']}") from None
    return entry
