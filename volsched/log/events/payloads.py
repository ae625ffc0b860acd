"""The data of events as pydantic models; `catalogue` says which type has which. Only writers load them."""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict


class Payload(BaseModel):
    """Data of an event. Unknown fields are refused when writing, because no reader would ever read them."""

    # Validators are built when an event is first written: most commands only read.
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
    """The resourceVersion that the assumption is based on; it applies only while the object has this version."""


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
    """The capacity object that has room for the volume, and the number of bytes reserved there."""
    bytes: int | None = None


class PlanData(Payload):
    pod: str
    pod_uid: str
    node: str
    decided_at: int
    """Position of the log that the decision was made on."""
    legs: list[Leg]
    """Empty where all claims of the pod are bound already: only the pod has to be bound."""
    deadline: int | None = None
    on_failure: Literal["rollback", "retain"] = "rollback"
    repels: bool = False
    """The pod repels others from its domain: a decision made without knowing it must be repeated."""
    reserved: bool = False
    """Began as a reservation, as its next move records; a program without reservations ignores the flag."""
    key: str | None = None
    """The idempotency key of a reservation, "" for none. None: an earlier program."""
    staged: bool = False
    """On a foreign cluster: the pod is nominated first, then static legs are written, then dynamic ones."""


class BindingMove(Payload):
    state: str
    open: bool
    reason: str | None = None
    deadline: int | None = None
    """The binding's new deadline: a lease was renewed, or a reservation confirmed."""
    stage: Literal["PreBind", "Bind"] | None = None
    """The stage and the leg that failed, for a move that gives a decision up. A reservation has none."""
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
    """A node was chosen, and the binding failed."""

    message: str
    """The message that the pod got."""
    stage: str
    reason: str
    """The binding's own message."""
    claim: str | None = None
    """The claim of the failed leg, if a leg failed; and its volume, unless it was to be provisioned."""
    volume: str | None = None
    words: str | None = None
    """The provisioner's message about the claim."""


class Note(Payload):
    effect: str
    """Key of the effect that a person dealt with."""
    done: Literal["retried", "cancelled"]
    reason: str | None = None


class TokenIssue(Payload):
    """The public data of a token. The token, and the hash it is compared with, stay out of the log, which is
    exported and copied."""

    id: str
    roles: list[str]
    namespaces: list[str] | None = None
    """None: everywhere."""
    expires: int | None = None
    fingerprint: str | None = None
    """A fingerprint of the row's hash: shows a replaced hash without revealing it. None: an earlier program."""
    reason: str | None = None


class TokenRevocation(Payload):
    id: str
    reason: str | None = None


class LeaseFreeing(Payload):
    holder: str
    epoch: int
    """The epoch of the holder that lost the lease."""
    reason: str | None = None


class ClockCorrection(Payload):
    """The last writer's clock was far ahead: from here on the log follows the present writer's clock."""

    before: int
    after: int


class ClusterAttachment(Payload):
    """The store mirrors this cluster from here on."""

    uid: str | None
    version: str | None
    url: str
    mode: str | None = None
    """How it decides for that cluster; None: it only observes it, or was attached before modes were recorded."""


class CursorGap(Payload):
    """A kind was listed again: the changes to its objects between the two cursors are not known in detail."""

    kind: str
    before: int | None
    after: int
    since: int | None
    """The time of the previous report on the kind, in microseconds."""
    reason: str


class ClusterRestoration(Payload):
    """The cluster's versions went back: it was restored from a backup, and later changes are undone."""

    kind: str
    before: int
    after: int


class ClusterDrift(Payload):
    """Our objects of a kind differed from the cluster's for longer than a list takes."""

    kind: str
    missing: list[str]
    left_over: list[str]
    stale: list[str]


class AuditQuestion(Payload):
    question: str
    client: str | None = None
    """The caller's address."""


class Redaction(Payload):
    first: int
    last: int
    what: list[str]
    seals: dict[str, str]
    """Position of a redacted event → the seal of the rest (`log.events.envelope`)."""
    reason: str | None = None
