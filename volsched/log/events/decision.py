"""What a decision leads to: events to be written, and work to be queued with them in the same transaction."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from volsched.log.events.envelope import NewEvent
from volsched.log.events.fold import State

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


NOTHING = Decision()
