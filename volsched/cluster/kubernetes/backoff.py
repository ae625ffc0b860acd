"""Backoff and rate limiting of calls. Pure: time and random numbers are passed in."""

from dataclasses import dataclass, field

FIRST_SECONDS = 0.8
LONGEST_SECONDS = 30.0
HEALTHY_SECONDS = 120.0
"""After this time without a failure, the next one counts as the first."""


def delay(failures: int, chance: float, *, retry_after: float | None = None) -> float:
    """Seconds to wait after this many consecutive failures: doubling, plus up to 100% jitter (`chance`, 0 to 1).

    Without the jitter, all observers of a cluster would return at once after its server has restarted.
    """
    if failures <= 0:
        return retry_after or 0.0
    base = min(FIRST_SECONDS * float(1 << min(failures - 1, 16)), LONGEST_SECONDS)
    return max(base * (1 + chance), retry_after or 0.0)


@dataclass(slots=True)
class FailureStreak:
    """Counts consecutive failures; restarts after `HEALTHY_SECONDS` without one."""

    count: int = 0
    since: float = 0.0

    def failed(self, now: float) -> int:
        if now - self.since >= HEALTHY_SECONDS:
            self.count = 0
        self.count, self.since = self.count + 1, now
        return self.count


@dataclass(slots=True)
class TokenBucket:
    """Our own rate limit, independent of the server's: requests per second, and a burst."""

    per_second: float
    burst: float
    at_start: float = 0
    """Extra tokens, once, for the requests of a starting program."""
    _tokens: float = field(init=False)
    _filled_at: float | None = None

    def __post_init__(self) -> None:
        self._tokens = max(self.burst, self.at_start)

    def take(self, now: float) -> float:
        """Take a token; returns the seconds to wait for it."""
        if self._filled_at is not None:
            filled = min(self.burst, self._tokens + (now - self._filled_at) * self.per_second)
            self._tokens = max(self._tokens, filled)
        self._filled_at = now
        self._tokens -= 1
        return max(-self._tokens / self.per_second, 0.0)
