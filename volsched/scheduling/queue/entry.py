"""One pod in the queue: in which pool it is, how often it was refused, and when it may be tried again."""

from dataclasses import dataclass, field, replace
from enum import Enum, auto

from volsched.kube.workloads import Pod

MILLISECOND = 1_000
SECOND = 1_000 * MILLISECOND
"""Times are microseconds."""
MOST_DOUBLINGS = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueWaits:
    """How long pods wait, in microseconds."""

    first_backoff: int = 1 * SECOND
    longest_backoff: int = 10 * SECOND
    unschedulable: int = 300 * SECOND
    """A pod that found no node is tried again after this long whatever has happened: a hint may be wrong."""

    def backoff(self, times: int) -> int:
        """The first one, doubled with each time up to the longest."""
        return min(self.first_backoff << min(times - 1, MOST_DOUBLINGS), self.longest_backoff) if times else 0


USUAL = QueueWaits()


class Pool(Enum):
    ACTIVE = auto()
    """Its turn comes by priority, time and name."""
    BACKING_OFF = auto()
    """Active when its back-off is over."""
    UNSCHEDULABLE = auto()
    """Waits for something to happen that could help it."""
    IN_FLIGHT = auto()
    """Being decided."""
    PLANNED = auto()
    """Has an open binding. If that fails it comes back, and how often it failed is still known."""


@dataclass(slots=True)
class Entry:
    pod: Pod
    pool: Pool
    since: int
    """When it came, or was last refused: among equals the one that waits longest is first."""
    rejections: int = 0
    errors: int = 0
    """Attempts and bindings that failed in a row since it was last rejected or bound."""
    late: int = 0
    """Plans in a row that came too late."""
    rejectors: frozenset[str] = field(default_factory=frozenset)
    awaited: bool = True
    """Is it worth waiting for its back-off? Not where the same error came out twice."""
    ticket: int = 0
    """Of its place in a heap: older places are void."""
    recorded_from: int = 0
    """The first of the recorded changes that it has not seen, while in flight."""
    changed: bool = False
    """The pod itself was changed while in flight."""

    def not_before(self, waits: QueueWaits) -> int:
        """When its back-off is over."""
        return self.since + waits.backoff(self.errors or self.rejections)


def asks_otherwise(old: Pod, new: Pod) -> bool:
    """Was anything changed that a decision looks at? Not where only the status was, as by our own condition."""
    if old.meta.resource_version == new.meta.resource_version:
        return False
    return _asked(old) != _asked(new)


def _asked(pod: Pod) -> Pod:
    return replace(pod, meta=replace(pod.meta, resource_version=""), phase="")
