"""Listeners to what this process commits: log lines and counters are derived from events, after the commit.

Rules and drivers report nothing themselves. Their decisions are in the events they append, so a listener cannot
report something that was not committed. A commit whose answer was lost with its connection is not reported; the
log has it.
"""

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
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


MOST_KEPT = 32
"""Commits kept for a follower. One that falls further behind reads the log instead."""


@dataclass(slots=True, weakref_slot=True, eq=False)
class OwnCommits:
    """The commits of this process that a follower of the log has not taken yet.

    Positions are dense and only committed events have one. So a commit that begins right after the follower's
    position holds every event up to its end. They need not be read and folded again, even with other writers.
    """

    _commits: deque[Commit] = field(default_factory=lambda: deque(maxlen=MOST_KEPT))

    def add(self, commit: Commit) -> None:
        """Called in the thread that committed."""
        self._commits.append(commit)

    def after(self, position: int) -> Iterator[Commit]:
        """The commits that follow the position without a gap; those behind a gap are kept for later."""
        while self._commits:
            try:
                commit = self._commits.popleft()
            except IndexError:
                # Another thread's commit has just displaced the last one.
                return
            if commit.events[0].position > position + 1:
                self._commits.appendleft(commit)
                return
            if commit.events[0].position == position + 1:
                yield commit
                position = commit.events[-1].position
