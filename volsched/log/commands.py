"""Commands to a writer, and their outcomes.

A command names the streams it may read or write and carries a pure `decide`; everything it must be guarded against
(versions, later events, a lease, an effect's fence, a repeat) is its precondition, checked under the head lock.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from volsched.log.events.envelope import Event
from volsched.log.events.fold import Decision, NewEffect, ObjectState, State, States


@dataclass(frozen=True, slots=True)
class LeaseProof:
    """The epoch under which a lease holder acts; after a change of holder the lease has another one."""

    name: str
    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class EffectDone:
    """The effect whose outcome the command records; refused if another process has claimed it since."""

    key: str
    fence: int
    outcome: str


@dataclass(frozen=True, slots=True)
class Scan:
    """The dependency of a decision on more than its named streams: on the whole log up to a position.

    Events that other actors appended since then are passed to `outdated`, which returns why one of them
    invalidates the decision. A decider already knows its own events: those of the command's actor are not passed,
    unless that actor also writes things other than decisions.
    """

    position: int
    outdated: Callable[[Event], str | None]
    knows_own: bool = True
    concerns: Callable[[Event], bool] | None = None
    """Whether an event may invalidate any decision of this kind: asked once for all the decisions of a batch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Precondition:
    """The read set of a command: everything that must still hold when it is committed.

    It is data, so that one place (`log.transaction`) checks it for every writer, under the head lock.
    """

    objects: Mapping[str, int] = field(default_factory=dict)
    """Stream → the resourceVersion that its object must have (0 = the object must not exist)."""
    versions: Mapping[str, int] = field(default_factory=dict)
    """Stream → the version that the stream must have (0 = must not exist yet). Unlike a resourceVersion it also
    grows when a binding assumes or frees the object."""
    scan: Scan | None = None
    lease: LeaseProof | None = None
    effect: EffectDone | None = None
    key: str | None = None
    """Idempotency: a repeat with this key gets the first command's result and changes nothing."""


NO_PRECONDITION = Precondition()


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    actor: str
    streams: tuple[str, ...]
    decide: Callable[[States], Decision]
    cause: int | None = None
    """Position of the event that led to the command: the default cause of its events."""
    precondition: Precondition = NO_PRECONDITION

    def under(self, lease: LeaseProof | None) -> "Command":
        """The same command, refused once the lease has another holder."""
        return replace(self, precondition=replace(self.precondition, lease=lease))


def version_of(state: State | None) -> int:
    """The resourceVersion of a living object, else 0: what `Precondition.objects` compares."""
    return state.rv if isinstance(state, ObjectState) and state.manifest is not None else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """Committed and durable. `position` is that of its last event, or of the log where it had none."""

    position: int
    events: int
    result: Mapping[str, Any]
    basis: Any = None
    """The decision's basis, with positions of the log; those of a draft are provisional (`log.drafts`)."""
    repeated: bool = False


class RejectedError(Exception):
    """The command changes nothing. Raised by `decide` or by the precondition's check; the message says why."""

    code = 409
    """The HTTP status of this rejection."""


class ConflictError(RejectedError):
    """Changed by another writer: an object, or the input of a decision, is not as this writer read it.

    `subject` is the object or stream; `field` names the version that differs (`uid`, `resourceVersion`, or
    `version` of the stream); `wanted` is the version the writer expected, `have` the present one.
    """

    def __init__(
        self, message: str, *, subject: str = "", field: str = "", wanted: str = "", have: str = ""
    ) -> None:
        super().__init__(message)
        self.subject = subject
        self.field = field
        self.wanted = wanted
        self.have = have


class DeposedError(RejectedError):
    """The command carries a lease or a fence that is no longer held."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FollowUp:
    """A command that follows from others and is committed in their transaction. If it fails, the process that
    normally does this after the commit does it."""

    command: Command
    effect: str | None = None
    """The key of the effect that it carries out; one of this transaction, so no process can have claimed it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """The state of a transaction after its commands: what a continuation starts from."""

    bindings: Collection[str]
    """Bindings that may be continued."""
    effects: Sequence[tuple[NewEffect, int]]
    """Their queued effects that no worker has tried, each with the position of the event that queued it."""
    events: Sequence[Event]
    """Events since the last call."""
    states: States


Continuation = Callable[[Progress], Sequence[FollowUp]]
"""Returns the commands that follow; called again until there are none."""

Outcome = Done | Exception
"""An exception means that this command alone was not committed, and why."""
