"""What a writer is asked to do, and what becomes of it.

A command names the streams it may read or write and carries a pure `decide`; everything it must be guarded against
(versions, a lease, an effect's fence, a repeat) is data beside it, checked under the head lock.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from volsched.log.events.decision import Decision, States
from volsched.log.events.envelope import Event


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    actor: str
    streams: tuple[str, ...]
    decide: Callable[[States], Decision]
    expected: Mapping[str, int] = field(default_factory=dict)
    """Stream → the version it must have (0 = must not exist yet)."""
    cause: int | None = None
    """Position of the event that led to the command: the cause of its events, where they name no other."""
    key: str | None = None
    """Idempotency: a second command with this key gets the first one's result and does nothing."""
    lease: LeaseProof | None = None
    effect: EffectDone | None = None
    seen: "Seen | None" = None


@dataclass(frozen=True, slots=True)
class Seen:
    """What a decision was made on, beyond the streams it touches.

    Events of others since then are shown to `outdated`, which says why one of them makes the decision worthless.
    A decider knows its own events already: those of the command's actor are not shown, unless that actor writes
    other things than decisions too.
    """

    position: int
    outdated: Callable[[Event], str | None]
    knows_own: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """Committed and durable. `position` is that of its last event, or of the log where it had none."""

    position: int
    events: int
    result: Mapping[str, Any]
    repeated: bool = False


class RejectedError(Exception):
    """The command changes nothing. Raised by `decide` or by a guard; the message says why."""


class ConflictError(RejectedError):
    """Something is not, or no longer, as the command expected."""


class DeposedError(RejectedError):
    """The command was given under a lease or a fence that is no longer held."""


Outcome = Done | Exception
"""An exception is why this command alone was not carried out."""
