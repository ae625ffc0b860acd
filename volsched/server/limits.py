"""What one client may take of the server, so that something is left for the others."""

import math
import time
from dataclasses import dataclass, field

from volsched.server.statuses import ApiError

MOST_HEADER_BYTES = 64 * 2**10
BURST_SECONDS = 2
"""So many seconds' worth may come at once from a client that was quiet before."""
MOST_CLIENTS = 10_000
"""Whose rates are remembered. Whoever is forgotten begins anew, with a full bucket."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    requests_per_second: float = 1_000
    """Of one client; 0 is no limit."""
    watches: int = 5_000
    """Of all clients together."""
    body_bytes: int = 3 * 2**20
    """As in Kubernetes."""
    header_seconds: float = 10
    """From the first byte of a request, or of a connection, to the end of its headers."""
    body_seconds: float = 30
    keep_alive_seconds: float = 75
    """How long a connection may stay open between two requests."""


DEFAULT_LIMITS = Limits()


@dataclass(slots=True)
class Buckets:
    """A token bucket for each client: a request takes a token, and time fills the bucket again."""

    per_second: float
    _left: dict[str, tuple[float, float]] = field(default_factory=dict)
    """Client → tokens that it had, and when."""

    def take(self, client: str, now: float) -> float:
        """0 where the request may go on; else the seconds until it may."""
        tokens = self._tokens(client, now)
        if tokens < 1:
            self._left[client] = tokens, now
            return (1 - tokens) / self.per_second
        if len(self._left) >= MOST_CLIENTS and client not in self._left:
            self._left.clear()
        self._left[client] = tokens - 1, now
        return 0.0

    def rest(self, client: str, now: float) -> float:
        """As `take` would answer, without taking."""
        return max(1 - self._tokens(client, now), 0.0) / self.per_second

    def _tokens(self, client: str, now: float) -> float:
        most = max(self.per_second * BURST_SECONDS, 1.0)
        tokens, at = self._left.get(client, (most, now))
        return min(tokens + (now - at) * self.per_second, most)


class Rates:
    """How often each client has come; `client` is how it is known, or its address where it is not."""

    def __init__(self, limits: Limits) -> None:
        self._buckets = Buckets(limits.requests_per_second) if limits.requests_per_second else None

    def take(self, client: str) -> None:
        """Count a request; ApiError 429 where it is one too many."""
        if self._buckets is not None:
            self._refuse(client, self._buckets.take(client, time.monotonic()))

    def check(self, client: str) -> None:
        """ApiError 429 where one more would be too many."""
        if self._buckets is not None:
            self._refuse(client, self._buckets.rest(client, time.monotonic()))

    def _refuse(self, client: str, rest: float) -> None:
        if rest:
            assert self._buckets is not None
            raise ApiError(
                429,
                f'"{client}" has sent more than {self._buckets.per_second:g} requests a second; try again later',
                details={"retryAfterSeconds": math.ceil(rest)},
            )
