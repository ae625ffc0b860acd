"""The store's time, read from the machine in this one place; and timeouts on other processes' progress."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from volsched.runtime.fault_points import DRILL_FLAG, ArmingError

Clock = Callable[[], int]

MILLISECOND = 1_000
SECOND = 1_000_000
SKEW = "VOLSCHED_CLOCK_SKEW_SECONDS"
"""The variable with the clock skew that a drill gives this process."""

_skew = 0


def system_clock() -> int:
    return time.time_ns() // 1_000 + _skew


def skew_from(environ: Mapping[str, str]) -> None:
    """Skew this process's clock by the environment's value; in drills only."""
    global _skew
    given = environ.get(SKEW)
    if given is None:
        return
    if environ.get(DRILL_FLAG) != "1":
        raise ArmingError(f"{SKEW} is for drills only; set {DRILL_FLAG}=1 if this is one, or take it away")
    try:
        _skew = int(float(given) * SECOND)
    except (ValueError, OverflowError):
        raise ArmingError(f'{SKEW}: "{given}" is no number of seconds') from None


def rfc3339(time: int) -> str:
    """A time of the store in the format of manifests."""
    return datetime.fromtimestamp(time // SECOND, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def rfc3339_micro(time: int) -> str:
    """A time with microseconds, in the format of Kubernetes' newer types."""
    return datetime.fromtimestamp(time / SECOND, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def parse_rfc3339(text: str) -> int | None:
    """A time in the format of manifests as a time of the store; None if it is not one."""
    try:
        read = datetime.fromisoformat(text)
    except ValueError:
        return None
    return int((read if read.tzinfo else read.replace(tzinfo=UTC)).timestamp()) * SECOND


# Patience with other processes: a timeout without progress, independent of the machine's load.
#
# Durations depend on the machine's load, so a fixed timeout from the start is always wrong. Every change of the
# progress value restarts the timeout. Time in which the waiting process itself does not run is not counted
# either: at most `MOST_SECONDS` are counted between two polls.

MOST_SECONDS = 0.25


@dataclass(slots=True)
class Patience:
    seconds: float
    """The timeout without progress."""
    clock: Callable[[], float] = time.monotonic
    _spent: float = 0.0
    _progress: Any = None
    _looked: float = field(init=False)

    def __post_init__(self) -> None:
        self._looked = self.clock()

    def is_over(self, progress: object = None) -> bool:
        """Whether the timeout is over; called at every poll. `progress` must change only with real progress."""
        now = self.clock()
        self._spent, self._looked = self._spent + min(now - self._looked, MOST_SECONDS), now
        if progress != self._progress:
            self._spent, self._progress = 0.0, progress
        return self._spent >= self.seconds
