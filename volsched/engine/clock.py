"""Time as the store counts it: whole microseconds since 1970. The only place that asks the machine for it."""

import time
from collections.abc import Callable
from datetime import UTC, datetime

Clock = Callable[[], int]

MILLISECOND = 1_000
SECOND = 1_000_000


def system_clock() -> int:
    return time.time_ns() // 1_000


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
