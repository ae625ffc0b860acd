"""Time as the store counts it: whole microseconds since 1970. The only place that asks the machine for it."""

import time
from collections.abc import Callable

Clock = Callable[[], int]

MILLISECOND = 1_000
SECOND = 1_000_000


def system_clock() -> int:
    return time.time_ns() // 1_000
