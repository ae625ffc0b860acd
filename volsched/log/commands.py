"""What a writer is asked to do, and what becomes of it.

A command names the streams it may read or write and carries a pure `decide`; everything it must be guarded against
(versions, later events, a lease, an effect's fence, a repeat) is its precondition, checked under the head lock.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from volsched.log.events.decision import Decision, States
from volsched.log.events.envelope import Event
from volsched.log.events.fold import ObjectState, State


@dataclass(frozen=True, slots=True)
class LeaseProof:
    """Who acts under a lease says under which epoch; a deposed holder's is no longer the lease's."""

    name: str
    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class EffectDone:
    """The effect whose outcome the command records; void where another has claimed it since."""

    key: str
    fence: int
    outcome: str


@dataclass(frozen=True, slots=True)
class Scan:
    """What a decision was made on beyond the streams it names: the whole log up to a position.

    Events of others since then are shown to `outdated`, which says why one of them makes the decision worthless.
    A decider knows its own events already: those of the command's actor are not shown, unless that actor writes
    other things than decisions too.
    """

    position: int
    outdated: Callable[[Event], str | None]
    knows_own: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Precondition:
    """The read set of a command: everything that must still be so when it is carried out.

    It is data, so that one place (`log.transaction`) checks it for every writer, under the head lock.
    """

    objects: Mapping[str, int] = field(default_factory=dict)
    """Stream → the resourceVersion that its object must have (0 = there must be no object)."""
    versions: Mapping[str, int] = field(default_factory=dict)
    """Stream → the version that the stream must have (0 = must not exist yet). Unlike a resourceVersion it also
    moves when a binding assumes the object or frees it."""
    scan: Scan | None = None
    lease: LeaseProof | None = None
    effect: EffectDone | None = None
    key: str | None = None
    """Idempotency: a second command with this key gets the first one's result and does nothing."""


NO_PRECONDITION = Precondition()


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    actor: str
    streams: tuple[str, ...]
    decide: Callable[[States], Decision]
    cause: int | None = None
    """Position of the event that led to the command: the cause of its events, where they name no other."""
    precondition: Precondition = NO_PRECONDITION

    def under(self, lease: LeaseProof | None) -> "Command":
        """The same command, void once the lease has another holder."""
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
    repeated: bool = False


class RejectedError(Exception):
    """The command changes nothing. Raised by `decide` or by the precondition's check; the message says why."""

    code = 409
    """The HTTP status that says so."""


class ConflictError(RejectedError):
    """Changed by somebody else: an object, or what a decision was made on, is not as the writer has seen it.

    `subject` is the object or stream; `field` says which of its versions differs (`uid`, `resourceVersion`, or
    `version` of the stream), `wanted` which one the writer had in mind, and `have` which one there is.
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
    """The command was given under a lease or a fence that is no longer held."""


Outcome = Done | Exception
"""An exception is why this command alone was not carried out."""
