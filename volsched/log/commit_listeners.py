"""Listeners to what this process commits: log lines and counters are made from events, after the commit.

Rules and drivers report nothing themselves. Their decisions are in the events they append, so a listener cannot
report something that was not committed. A commit whose answer was lost with its connection is not reported; the
log has it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from volsched.log.events.envelope import Event
from volsched.log.events.fold import State


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """One transaction of this process."""

    events: Sequence[Event]
    states: Mapping[str, State]
    """The new states of the streams that it touched."""
    seconds: float
    """From the lock on the log's head to the commit: other writers were blocked for this long."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseChange:
    """A lease that this process acquired or released."""

    name: str
    holder: str
    epoch: int
    taken: bool
    from_holder: str = ""
    """The previous holder, if it did not release the lease."""


class CommitListener(Protocol):
    def committed(self, commit: Commit) -> None: ...

    def lease_changed(self, change: LeaseChange) -> None: ...
