"""Time as the store counts it: whole microseconds since 1970. The only place that asks the machine for it."""

import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime

from volsched.runtime.fault_points import DRILL_FLAG, ArmingError

Clock = Callable[[], int]

MILLISECOND = 1_000
SECOND = 1_000_000
SKEW = "VOLSCHED_CLOCK_SKEW_SECONDS"
"""By how much a drill sets this process's clock wrong."""

_skew = 0


def system_clock() -> int:
    return time.time_ns() // 1_000 + _skew


def skew_from(environ: Mapping[str, str]) -> None:
    """Set this process's clock wrong, as the environment asks for; in drills only."""
    global _skew
    asked = environ.get(SKEW)
    if asked is None:
        return
    if environ.get(DRILL_FLAG) != "1":
        raise ArmingError(f"{SKEW} is for drills only; set {DRILL_FLAG}=1 if this is one, or take it away")
    try:
        _skew = int(float(asked) * SECOND)
    except (ValueError, OverflowError):
        raise ArmingError(f'{SKEW}: "{asked}" is no number of seconds') from None


def rfc3339(time: int) -> str:
    """A time of the store as manifests write it."""
    return datetime.fromtimestamp(time // SECOND, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def parse_rfc3339(text: str) -> int | None:
    """A time as manifests write it, as the store counts; None where it is not one."""
    try:
        read = datetime.fromisoformat(text)
    except ValueError:
        return None
    return int((read if read.tzinfo else read.replace(tzinfo=UTC)).timestamp()) * SECOND
