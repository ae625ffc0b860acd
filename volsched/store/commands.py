"""What a writer is asked to do, and what becomes of it.

A command names the streams it may read or write and carries a pure `decide`; everything it must be guarded against
(versions, a lease, an effect's fence, a repeat) is data beside it, checked under the head lock.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from volsched.core.fold import State
from volsched.events.envelope import NewEvent

States = Mapping[str, State]
"""Stream → what it has become. A stream that never was is missing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewEffect:
    """Work to be done outside the log once the events are committed. `key` makes it unique for ever."""

    key: str
    lane: str
    """Effects of one lane are done one after the other."""
    queue: str
    kind: str
    data: Mapping[str, Any] = field(default_factory=dict)
    due: int = 0
    binding: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    events: tuple[NewEvent, ...] = ()
    effects: tuple[NewEffect, ...] = ()
    result: Mapping[str, Any] = field(default_factory=dict)
    """Kept with the idempotency key and answered again to a repeat."""


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
    key: str | None = None
    """Idempotency: a second command with this key gets the first one's result and does nothing."""
    lease: LeaseProof | None = None
    effect: EffectDone | None = None


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
