"""Limits of one client: requests, and the size and duration of bodies as they arrive."""

import asyncio
import math
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from typing import TypeVar

import anyio
import anyio.to_thread
from starlette.requests import Request
from starlette.types import Message, Send

from volsched.api.kubernetes.statuses import RETRY_AFTER_SECONDS, ApiError

T = TypeVar("T")
MOST_HEADER_BYTES = 64 * 2**10
BURST_SECONDS = 2
"""Seconds' worth of tokens that a quiet client may use at once."""
YAML_WEIGHT = 16
"""YAML takes this many times as long to parse, and counts accordingly."""
MOST_CLIENTS = 10_000
"""Clients whose rates are remembered. A forgotten one starts over, with a full bucket."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    requests_per_second: float = 1_000
    """Per client; 0 is no limit."""
    body_bytes_per_second: float = 16 * 2**20
    """Per client; 0 is no limit. A body that is slow to parse counts several times its size."""
    watches: int = 5_000
    """Open watches of all clients together."""
    watches_per_caller: int = 1_000
    """Per authenticated caller. Without TLS all programs of this machine are one caller; `watches` limits them."""
    waiting_bytes: int = 256 * 2**20
    """Unread bytes of one caller's watches, including initial lists; and as many of its other answers."""
    body_bytes: int = 3 * 2**20
    """Limit of a body, as in Kubernetes."""
    hypothesis_seconds: float = 30
    """Limit of an explanation or a simulation."""
    long_seconds: float = 600
    """Limit of any other long question: a verification, an export."""
    header_seconds: float = 10
    """From the first byte of a request, or of a connection, to the end of its headers."""
    body_seconds: float = 30
    read_seconds: float = 30
    """How long a client may read next to nothing of an answer."""
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
        """0 where the request may proceed; else the seconds until it may."""
        tokens = self._tokens(client, now)
        if tokens < 1:
            self._left[client] = tokens, now
            return (1 - tokens) / self.per_second
        if len(self._left) >= MOST_CLIENTS and client not in self._left:
            self._left.clear()
        self._left[client] = tokens - 1, now
        return 0.0

    def spend(self, client: str, amount: float, now: float) -> float:
        """Take the amount and return the debt, if there is one: the next request waits until it is paid."""
        tokens = self._tokens(client, now) - amount
        self._left[client] = tokens, now
        return -tokens

    def rest(self, client: str, now: float) -> float:
        """What `take` would return, without taking a token."""
        return max(1 - self._tokens(client, now), 0.0) / self.per_second

    def _tokens(self, client: str, now: float) -> float:
        most = max(self.per_second * BURST_SECONDS, 1.0)
        tokens, at = self._left.get(client, (most, now))
        return min(tokens + (now - at) * self.per_second, most)


class Rates:
    """Request rates by client: `client` is the caller's name, or the address of an unknown one."""

    def __init__(self, limits: Limits) -> None:
        self._buckets = Buckets(limits.requests_per_second) if limits.requests_per_second else None
        self._bytes = Buckets(limits.body_bytes_per_second) if limits.body_bytes_per_second else None
        self._body_bytes = limits.body_bytes

    def take(self, client: str) -> None:
        """Count a request; ApiError 429 where it exceeds the limit."""
        if self._buckets is not None:
            self._refuse(client, self._buckets.take(client, time.monotonic()))

    def check(self, client: str) -> None:
        """ApiError 429 where one more would exceed the limit."""
        if self._buckets is not None:
            self._refuse(client, self._buckets.rest(client, time.monotonic()))

    def check_bytes(self, client: str) -> None:
        """ApiError 429 where the client has sent more than it may, and another body follows."""
        if self._bytes is not None and (rest := self._bytes.rest(client, time.monotonic())):
            raise _too_much(client, f"{self._bytes.per_second:g} bytes", rest)

    def take_bytes(self, client: str, amount: int) -> None:
        """Count a part of a body; ApiError 429 where the client's debt is more than one body can cause: then it
        sends many at once, all of which began before the first had arrived."""
        if self._bytes is None:
            return
        debt = self._bytes.spend(client, amount, time.monotonic())
        if debt > self._body_bytes * YAML_WEIGHT:
            raise _too_much(client, f"{self._bytes.per_second:g} bytes", debt / self._bytes.per_second)

    def _refuse(self, client: str, rest: float) -> None:
        if rest:
            assert self._buckets is not None
            raise _too_much(client, f"{self._buckets.per_second:g} requests", rest)


def _too_much(client: str, amount: str, rest: float) -> ApiError:
    return ApiError(
        429,
        f'"{client}" has sent more than {amount} a second; try again later',
        details={"retryAfterSeconds": math.ceil(rest)},
    )


@dataclass(slots=True)
class WatchShare:
    """One caller's share of the watches."""

    open: int = 0
    waiting: int = 0
    """Bytes queued for its watches that it has not read."""


@dataclass(slots=True)
class WatchShares:
    """The callers' shares of the watches. Lives in the event loop."""

    limits: Limits
    _shares: dict[str | None, WatchShare] = field(default_factory=dict)
    """Caller → its share; None: all callers that cannot be distinguished."""

    def enter(self, caller: str | None) -> "WatchSlot":
        """Adds a watch, from its request on; ApiError 429 where it would be too many."""
        if sum(it.open for it in self._shares.values()) >= self.limits.watches:
            raise _too_many(f"{self.limits.watches} watches are open already")
        share = self._shares.get(caller) or WatchShare()
        if caller is not None and share.open >= self.limits.watches_per_caller:
            raise _too_many(f'"{caller}" has {share.open} watches already')
        if caller is not None and share.waiting >= self.limits.waiting_bytes:
            raise _too_many(f'"{caller}" has watches that wait to be read, with {share.waiting} bytes')
        self._shares[caller] = share
        share.open += 1
        return WatchSlot(self, caller, share)

    def leave(self, caller: str | None) -> None:
        self._shares[caller].open -= 1
        if not self._shares[caller].open:
            del self._shares[caller]


@dataclass(slots=True)
class WatchSlot:
    """One watch in its caller's share, until it ends."""

    shares: WatchShares
    caller: str | None
    share: WatchShare
    _waiting: int = 0

    def wait_for(self, amount: int) -> None:
        """Sets how many bytes of this watch wait to be read."""
        self.share.waiting += amount - self._waiting
        self._waiting = amount

    @property
    def is_over(self) -> bool:
        return self.caller is not None and self.share.waiting > self.shares.limits.waiting_bytes

    def end(self) -> None:
        self.wait_for(0)
        self.shares.leave(self.caller)


# Answers: a client that does not read fills the buffer of its connection, and takes no more memory than that.

PIECE_BYTES = 2**18
"""A connection takes a piece when it has sent most of the earlier ones; it would buffer one large piece whole."""


def in_pieces(content: bytes) -> Iterator[bytes]:
    return (content[at : at + PIECE_BYTES] for at in range(0, len(content), PIECE_BYTES))


@dataclass(slots=True)
class UnreadAnswers:
    """Large answers that wait to be read, by caller. Lives in the event loop."""

    most: int
    _bytes: Counter[str] = field(default_factory=Counter)

    def sending(self, caller: str | None, send: Send, refuse: Callable[[ApiError], Awaitable[None]]) -> Send:
        """Sends an answer piece by piece. One that would wait with too many others of its caller is refused."""
        start: Message | None = None
        is_refused = False

        async def sent(message: Message) -> None:
            nonlocal start, is_refused
            if is_refused:
                return
            if message["type"] == "http.response.start":
                start = message
                return
            body: bytes = message.get("body", b"")
            if start is not None:
                if caller is not None and len(body) > PIECE_BYTES and self._bytes[caller] + len(body) > self.most:
                    is_refused = True
                    unread = f'"{caller}" has answers that wait to be read, with {self._bytes[caller]} bytes'
                    await refuse(_too_many(unread))
                    return
                head, start = start, None
                await send(head)
            if len(body) <= PIECE_BYTES:
                await send(message)
            else:
                await self._send(caller, send, message, body)

        return sent

    async def _send(self, caller: str | None, send: Send, message: Message, body: bytes) -> None:
        name = caller or ""
        self._bytes[name] += len(body)
        left = len(body)
        try:
            for piece in in_pieces(body):
                more = left > len(piece) or message.get("more_body", False)
                await send({**message, "body": piece, "more_body": more})
                self._bytes[name] -= len(piece)
                left -= len(piece)
        finally:
            self._bytes[name] -= left
            if not self._bytes[name]:
                del self._bytes[name]


def _too_many(reason: str) -> ApiError:
    return ApiError(429, f"{reason}; try again later", details={"retryAfterSeconds": RETRY_AFTER_SECONDS})


# Threads: long computations run beside the event loop, and callers take turns.


@dataclass(slots=True)
class _Share:
    """One caller's share of the threads."""

    turn: asyncio.Semaphore
    requests: int = 0
    """Requests that compute, or wait for their turn."""


@dataclass(slots=True)
class CallerThreads:
    """Threads that all callers share. One caller never has all of them: its further requests wait, and those of
    others do not. Lives in the event loop."""

    at_once: int
    per_caller: int
    waiting: int | None = None
    """Requests of one caller that may wait, each with its body; None: any number."""
    _threads: anyio.CapacityLimiter | None = None
    _shares: dict[str, _Share] = field(default_factory=dict)

    async def run(self, caller: str | None, call: Callable[[], T]) -> T:
        """`caller` is None where callers cannot be distinguished. ApiError 429 where too many of it wait."""
        if self._threads is None:
            self._threads = anyio.CapacityLimiter(self.at_once)
        if caller is None:
            return await anyio.to_thread.run_sync(call, limiter=self._threads)
        share = self._shares.setdefault(caller, _Share(asyncio.Semaphore(self.per_caller)))
        if self.waiting is not None and share.requests >= self.per_caller + self.waiting:
            raise _too_many(f'"{caller}" has {share.requests} large requests under way')
        share.requests += 1
        try:
            async with share.turn:
                return await anyio.to_thread.run_sync(call, limiter=self._threads)
        finally:
            share.requests -= 1
            if not share.requests:
                del self._shares[caller]


# Request bodies: their maximum size and duration.


async def receive_body(request: Request, *, most: int, seconds: float) -> bytes:
    """The whole body; ApiError 413 where it is too large, 408 where it is late, 415 where it is compressed."""
    if request.headers.get("content-encoding", "identity").lower() != "identity":
        raise ApiError(415, "compressed bodies are not read; send it without Content-Encoding")
    length = request.headers.get("content-length", "0")
    if length.isdecimal() and int(length[:20]) > most:
        raise _too_large(most)
    parts: list[bytes] = []
    total = 0
    try:
        async with asyncio.timeout(seconds):
            async for part in request.stream():
                total += len(part)
                if total > most:
                    raise _too_large(most)
                parts.append(part)
    except TimeoutError:
        raise ApiError(408, f"the body did not arrive within {seconds:g} s") from None
    return b"".join(parts)


def _too_large(most: int) -> ApiError:
    return ApiError(413, f"Request entity too large: limit is {most}")
