"""The catalogue: every type of event, what its data must look like, and which version of that we write.

An object event is an intent plus a merge patch of the object's manifest; decision events (assumed, freed, planned,
attempted) change no object and no resourceVersion. Events are never rewritten: a changed shape gets a higher
`schema` number and an upcaster from the one before.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from volsched.log.events.streams import ATTEMPT, AUDIT, BINDING, CLOCK, LEASE, NOUN_OF_KIND, RETENTION, TOKEN


class StateChange(StrEnum):
    """What an event does to the state of its stream."""

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
    """Nothing: it says what a person did beside the log."""
    ISSUE = "issue"
    REVOKE = "revoke"
    ASK = "ask"
    """Nothing: a question."""
    TAKE_AWAY = "take-away"
    CORRECT = "correct"
    """Nothing: time is what the events say that follow."""


class Payload(BaseModel):
    """Data of an event. Unknown fields are refused when writing, because nobody would ever read them."""

    # Validators are made when an event is first written: most commands only read.
    model_config = ConfigDict(extra="forbid", strict=True, defer_build=True)


class Patch(Payload):
    patch: dict[str, Any]
    reason: str | None = None


class Deletion(Payload):
    reason: str | None = None


class Assumption(Payload):
    binding: str
    patch: dict[str, Any]
    rv: int
    """The resourceVersion it was made on: it counts only while the object still has it."""


class Freeing(Payload):
    binding: str
    reason: str | None = None


class Leg(Payload):
    claim: str
    claim_uid: str = ""
    volume: str | None = None
    """None: to be provisioned."""
    rv: str = ""
    """The cluster's version of the object to be written (volume, or claim to be provisioned): the precondition."""
    owner: bool = True
    joins: str | None = None
    """The binding that owns the claim's leg, where this one only waits for it."""
    capacity: str | None = None
    """The capacity object that has room for the volume, and how many bytes of it are reserved."""
    bytes: int | None = None


class PlanData(Payload):
    pod: str
    pod_uid: str
    node: str
    decided_at: int
    """Position of the log that the decision was made on."""
    legs: list[Leg]
    """None where all claims of the pod are bound already: there is only the pod to be bound."""
    deadline: int | None = None
    on_failure: Literal["rollback", "retain"] = "rollback"
    repels: bool = False
    """The pod keeps others away from its domain: who decided without knowing of it must decide again."""
    reserved: bool = False
    """It began as a reservation, which the move that follows says; a program that knows none leaves it alone."""
    key: str | None = None
    """Of a reservation: the idempotency key that it was asked for with, "" for none. None: an earlier program."""


class BindingMove(Payload):
    state: str
    open: bool
    reason: str | None = None
    deadline: int | None = None
    """The binding's from now on: a lease is renewed, or a reservation is confirmed."""
    stage: Literal["PreBind", "Bind"] | None = None
    """Of a move that gives a decision up: in which stage, and which of its legs failed. A reservation has none."""
    leg: int | None = None


class LegMove(Payload):
    leg: int
    state: str
    open: bool
    volume: str | None = None
    rv: str | None = None
    """The version that the cluster gave the object when we wrote it."""
    reason: str | None = None


class AttemptData(Payload):
    pod: str
    pod_uid: str
    outcome: str
    node: str | None = None
    detail: dict[str, Any]
    decided_at: int
    decider: str


class Repeat(Payload):
    decided_at: int


class AttemptFailure(Payload):
    """A node was chosen, and the binding came to nothing."""

    message: str
    """What the pod was told."""
    stage: str
    reason: str
    """The binding's own words."""
    claim: str | None = None
    """Of the leg that failed, if it was one of them; its volume, where it was not to be provisioned."""
    volume: str | None = None
    words: str | None = None
    """What the provisioner said of the claim."""


class Note(Payload):
    effect: str
    """Key of the effect that a person dealt with."""
    done: Literal["retried", "cancelled"]
    reason: str | None = None


class TokenIssue(Payload):
    """All that may be known of a token. The token, and the hash it is compared with, stay out of the log, which is
    exported and copied."""

    id: str
    roles: list[str]
    namespaces: list[str] | None = None
    """None: everywhere."""
    expires: int | None = None
    fingerprint: str | None = None
    """Of the row's hash: shows that the hash was replaced, and tells nothing of it. None: an earlier program."""
    reason: str | None = None


class TokenRevocation(Payload):
    id: str
    reason: str | None = None


class LeaseFreeing(Payload):
    holder: str
    epoch: int
    """Of the holder whose lease it was."""
    reason: str | None = None


class ClockCorrection(Payload):
    """Whoever wrote last had a clock that was ahead by far: from here on the log follows the writer's own."""

    before: int
    after: int


class AuditQuestion(Payload):
    question: str
    client: str | None = None
    """The address it came from."""


class Redaction(Payload):
    first: int
    last: int
    what: list[str]
    seals: dict[str, str]
    """Position of a redacted event → what seals the rest of it (`events.redacting`)."""
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class EventType:
    name: str
    noun: str
    change: StateChange
    payload: type[Payload]
    schema: int = 1


def _object_types(noun: str, title: str, *, assumable: bool) -> list[EventType]:
    types = [
        EventType(f"{title}Created", noun, StateChange.CREATE, Patch),
        EventType(f"{title}Changed", noun, StateChange.PATCH, Patch),
        EventType(f"{title}Deleted", noun, StateChange.DELETE, Deletion),
    ]
    if assumable:
        types.append(EventType(f"{title}Assumed", noun, StateChange.ASSUME, Assumption))
        types.append(EventType(f"{title}Freed", noun, StateChange.FREE, Freeing))
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
        EventType("BindingPlanned", BINDING, StateChange.PLAN, PlanData),
        EventType("BindingMoved", BINDING, StateChange.MOVE_BINDING, BindingMove),
        EventType("LegMoved", BINDING, StateChange.MOVE_LEG, LegMove),
        EventType("EffectNoted", BINDING, StateChange.NOTE, Note),
        EventType("TokenIssued", TOKEN, StateChange.ISSUE, TokenIssue),
        EventType("TokenRevoked", TOKEN, StateChange.REVOKE, TokenRevocation),
        EventType("LeaseFreed", LEASE, StateChange.TAKE_AWAY, LeaseFreeing),
        EventType(CLOCK_CORRECTED, CLOCK, StateChange.CORRECT, ClockCorrection),
        EventType("AuditRead", AUDIT, StateChange.ASK, AuditQuestion),
        EventType("AttemptMade", ATTEMPT, StateChange.ATTEMPT, AttemptData),
        EventType("AttemptRepeated", ATTEMPT, StateChange.REPEAT, Repeat),
        EventType("AttemptFailed", ATTEMPT, StateChange.FAIL, AttemptFailure),
        EventType("EventsRedacted", RETENTION, StateChange.NOTE, Redaction),
    )
}


class CatalogueError(ValueError):
    """An event that the catalogue does not allow to be written."""


def _needs_a_patch_alone(payload: type[Payload]) -> bool:
    required = {name for name, field in payload.model_fields.items() if field.is_required()}
    return required == {"patch"} and payload.model_fields["patch"].annotation == dict[str, Any]


_PATCH_ALONE = frozenset(name for name, entry in CATALOGUE.items() if _needs_a_patch_alone(entry.payload))


def check_payload(type_: str, noun: str, data: Mapping[str, Any]) -> EventType:
    """The entry of a type about to be written; raises CatalogueError where the event does not fit it."""
    entry = CATALOGUE.get(type_)
    if entry is None:
        raise CatalogueError(f"event type {type_} is not in the catalogue")
    if entry.noun != noun:
        raise CatalogueError(f"event type {type_} belongs to a {entry.noun} stream, not to a {noun} stream")
    # What most events are can be told at sight, and the validator would only copy it. Whether all keys are text is
    # seen when the patch is made JSON.
    if type_ in _PATCH_ALONE and len(data) == 1 and type(data.get("patch")) is dict:
        return entry
    try:
        entry.payload.__pydantic_validator__.validate_python(data)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(map(str, first["loc"])) or "data"
        raise CatalogueError(f"event type {type_}: {place}: {first['msg']}") from None
    return entry
