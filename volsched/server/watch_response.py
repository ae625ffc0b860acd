"""A watch as an answer: lines of JSON for as long as the client stays, each chunk all that is new to it.

A client that does not read blocks nobody but itself. When it comes back and what it has missed is no longer in the
ring, it is told 410 and has to list again; if it does not come back at all, the connection is given up.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any

from starlette.types import Receive, Send

from volsched.server.changes import BOOKMARK, ERROR, Change, event_line
from volsched.server.fan import Fan
from volsched.server.statuses import ApiError, expired

DEFAULT_SECONDS = 3_600
MOST_SECONDS = 86_400
BOOKMARK_SECONDS = 60
SEND_SECONDS = 30
"""How long a client may leave a chunk unread."""
MOST_AT_ONCE = 500
"""Changes in a chunk; between two of them the loop serves others."""
TOO_SLOW = "the watch could not keep up, and what it has missed is no longer at hand; list again"

Shown = Callable[[Change], bytes]
"""A change as a line for this watcher; empty: it does not concern it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Watch:
    """One watcher: what it is shown, and from where."""

    fan: Fan
    noun: str
    position: int
    """Everything after it is sent."""
    shown: Shown
    first: bytes = b""
    """Lines that are sent before anything else."""
    seconds: float = DEFAULT_SECONDS
    bookmark: Callable[[int], dict[str, Any]] | None = None
    """The object of a bookmark at a position; None: none are wanted."""

    async def chunks(self) -> AsyncIterator[bytes]:
        if self.first:
            yield self.first
        loop = asyncio.get_running_loop()
        ends = loop.time() + self.seconds
        bookmark_at = loop.time() + BOOKMARK_SECONDS
        position, told = self.position, self.position
        ring = self.fan.rings[self.noun]
        while not self.fan.stopping and loop.time() < ends:
            news, known = ring.news, self.fan.position
            changes = ring.since(position)
            if changes is None:
                self.fan.cut_off += 1
                yield error_line(expired(TOO_SLOW))
                return
            if changes:
                part = changes[:MOST_AT_ONCE]
                position = part[-1].position if len(part) < len(changes) else max(known, position)
                if lines := b"".join(map(self.shown, part)):
                    told = part[-1].position
                    yield lines
                continue
            position = max(known, position)
            if self.bookmark is not None and loop.time() >= bookmark_at:
                bookmark_at = loop.time() + BOOKMARK_SECONDS
                told = position
                yield event_line(BOOKMARK, self.bookmark(position))
            wait = ends - loop.time()
            if self.bookmark is not None:
                wait = min(wait, bookmark_at - loop.time())
            await _wait(news, wait)
        known = self.fan.position
        if self.bookmark is not None and known > told and ring.since(position) == []:
            # So that a client which comes back goes on from here, and not from its last change.
            yield event_line(BOOKMARK, self.bookmark(known))


def error_line(error: ApiError) -> bytes:
    return event_line(ERROR, error.status)


async def _wait(news: asyncio.Event, seconds: float) -> None:
    try:
        async with asyncio.timeout(max(seconds, 0)):
            await news.wait()
    except TimeoutError:
        return


async def send_watch(watch: Watch, receive: Receive, send: Send) -> None:
    """Send the chunks until the watch ends or the client goes."""
    await _start(send)
    sending = asyncio.create_task(_send_all(watch, send))
    leaving = asyncio.create_task(_left(receive))
    watch.fan.watchers += 1
    try:
        await asyncio.wait({sending, leaving}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        watch.fan.watchers -= 1
        for task in (sending, leaving):
            task.cancel()
        await asyncio.gather(sending, leaving, return_exceptions=True)
    await send({"type": "http.response.body", "body": b"", "more_body": False})


async def send_refusal(error: ApiError, send: Send) -> None:
    """A watch that cannot begin says so as its only event: that is where clients look for it."""
    await _start(send)
    await send({"type": "http.response.body", "body": error_line(error), "more_body": False})


async def _start(send: Send) -> None:
    headers = [(b"content-type", b"application/json"), (b"cache-control", b"no-cache, private")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    # Sent at once: clients wait for the headers before they believe that they watch.
    await send({"type": "http.response.body", "body": b"", "more_body": True})


async def _send_all(watch: Watch, send: Send) -> None:
    async for chunk in watch.chunks():
        try:
            async with asyncio.timeout(SEND_SECONDS):
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
        except TimeoutError:
            watch.fan.cut_off += 1
            return


async def _left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
