"""One pod in the queue: its pool and when it is retried; and the shares of several schedulers."""

from dataclasses import dataclass, field, replace
from enum import Enum, auto
from zlib import crc32

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
    """A pod that found no node is retried after this long in any case: a hint may be wrong."""

    def backoff(self, times: int) -> int:
        """The back-off after that many failures: doubled each time, up to the longest."""
        return min(self.first_backoff << min(times - 1, MOST_DOUBLINGS), self.longest_backoff) if times else 0


USUAL = QueueWaits()


class Pool(Enum):
    ACTIVE = auto()
    """Ready to be decided, by priority, time and name."""
    BACKING_OFF = auto()
    """Becomes active when its back-off is over."""
    UNSCHEDULABLE = auto()
    """Waits for a change that could help it."""
    IN_FLIGHT = auto()
    """Being decided."""
    PLANNED = auto()
    """Has an open binding. If that fails the pod comes back, with its count of failures."""


@dataclass(slots=True)
class Entry:
    pod: Pod
    pool: Pool
    since: int
    """When it was added, or last refused: among equals the one that waits longest is first."""
    rejections: int = 0
    errors: int = 0
    """Attempts and bindings that failed in a row since it was last rejected or bound."""
    late: int = 0
    """Plans in a row that came too late."""
    rejectors: frozenset[str] = field(default_factory=frozenset)
    awaited: bool = True
    """Whether `next_due` includes its back-off. Not after the same error occurred twice."""
    ticket: int = 0
    """Identifies its current heap entry: older entries are void."""
    recorded_from: int = 0
    """While in flight: the index of the first recorded change that it has not seen."""
    changed: bool = False
    """Whether the pod itself changed while in flight."""

    def not_before(self, waits: QueueWaits) -> int:
        """The time at which its back-off is over."""
        return self.since + waits.backoff(self.errors or self.rejections)


def asks_otherwise(old: Pod, new: Pod) -> bool:
    """Whether a decision reads anything that changed. A change of status alone, as by our condition, does not."""
    if old.meta.resource_version == new.meta.resource_version:
        return False
    return _without_status(old) != _without_status(new)


def _without_status(pod: Pod) -> Pod:
    return replace(pod, meta=replace(pod.meta, resource_version=""), phase="")


# Several schedulers on one store: each starts with the pods of its own share, so that they seldom decide the
# same pod.
#
# A share is an order, not a fence: a scheduler that has finished its own takes the others', because theirs may
# be dead. And it does not defer them forever: another's pod is ordered as if it had been added a little later.
#
# The same holds for nodes that are equally good: their names form a ring, and each scheduler starts in another
# part of it, so that they do not all plan with the same volumes. Within its part every pod starts at its own
# place, so that a faulty node affects few pods. Without a pod's name, the first place of the part is used.

OTHERS_LATER = 30 * SECOND
"""Longer than the share's owner needs, and no longer than its pods should wait if it is dead."""
PLACES = 64


@dataclass(frozen=True, slots=True)
class Share:
    """The `number`th of `of` schedulers, counted from 0; users count from 1 and write 1/4."""

    number: int = 0
    of: int = 1

    def __post_init__(self) -> None:
        if not 0 <= self.number < self.of:
            raise ValueError(f"scheduler {self.number} of {self.of}: the number must be from 0 to {self.of - 1}")

    def holds(self, uid: str) -> bool:
        return self.of == 1 or crc32(uid.encode()) % self.of == self.number

    def turn(self, uid: str, since: int) -> int:
        """The pod's position in the order of its priority, as a time."""
        return since if self.holds(uid) else since + OTHERS_LATER

    def first_of(self, count: int, pod: str) -> int:
        """The index, among `count` sorted names, at which ties of the pod (namespace/name) start.

        One of `PLACES` in the part, so that a caller can cache the set of nodes behind each.
        """
        place = crc32(pod.encode()) % PLACES if pod else 0
        return count * (self.number * PLACES + place) // (self.of * PLACES)


def read_share(text: str) -> Share:
    """`2/4` is the second of four. Raises ValueError for other formats."""
    number, _, of = text.partition("/")
    if not (number.isdecimal() and of.isdecimal() and 1 <= int(number) <= int(of)):
        raise ValueError(f'"{text}" is no share; write 2/4 for the second of four schedulers')
    return Share(int(number) - 1, int(of))


ALL = Share()
"""The share of a single scheduler."""
