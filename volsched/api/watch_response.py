"""A watch as an answer: lines of JSON for as long as the client stays, each chunk with all the news.

A client that does not read blocks only itself. If it resumes after its position has left the ring, it gets 410 and
has to list again; if it does not resume at all, the connection is closed.
"""

import asyncio
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any

from starlette.types import Receive, Send

from volsched.api.kubernetes.statuses import ApiError, expired
from volsched.api.limits import WatchSlot, in_pieces
from volsched.api.watch_cache import BOOKMARK, ERROR, Fan, WatchEvent, event_line

DEFAULT_SECONDS = 3_600
MOST_SECONDS = 86_400
BOOKMARK_SECONDS = 60
LOOK_SECONDS = 5.0
LEAST_SECONDS = 0.01
MOST_AT_ONCE = 500
"""Changes in a chunk; between two chunks the loop serves other requests."""
TOO_SLOW = "the watch could not keep up, and the missed changes are no longer available; list again"

LineOf = Callable[[WatchEvent], bytes]
"""A change as a line for this watcher; empty: it does not match."""


@dataclass(slots=True, kw_only=True)
class Watch:
    """One watcher: its selection, and its start."""

    fan: Fan
    slot: WatchSlot
    noun: str
    position: int
    """Everything after it is sent."""
    line_of: LineOf
    line_group: Hashable = None
    """Watchers of a kind with the same group get the same lines; None: this one shares its lines with no other."""
    first: bytes = b""
    """Lines that are sent before anything else."""
    seconds: float = DEFAULT_SECONDS
    bookmark: Callable[[int], dict[str, Any]] | None = None
    """The object of a bookmark at a position; None: no bookmarks are requested."""
    ends: float = 0.0
    bookmark_at: float = 0.0
    ended: bool = False
    _sent_up_to: int = 0
    """The position that the client can resume from, as far as it was sent one."""

    def begin(self, now: float) -> None:
        self.ends, self.bookmark_at, self._sent_up_to = now + self.seconds, now + BOOKMARK_SECONDS, self.position

    def due(self) -> float:
        """The next time of action even if nothing changes."""
        return self.ends if self.bookmark is None else min(self.ends, self.bookmark_at)

    def take(self, now: float) -> bytes:
        """The bytes to send now; empty while waiting, or once it has `ended`."""
        if self.first:
            first, self.first = self.first, b""
            return first
        ring = self.fan.rings[self.noun]
        while not self.fan.stopping and now < self.ends:
            known = self.fan.position
            changes = ring.since(self.position)
            if changes is None:
                self.fan.cut_off += 1
                self.ended = True
                return error_line(expired(TOO_SLOW))
            if not changes:
                self.position = max(known, self.position)
                return self._bookmark(now) if self.bookmark is not None and now >= self.bookmark_at else b""
            part = changes[:MOST_AT_ONCE]
            self.position = part[-1].position if len(part) < len(changes) else max(known, self.position)
            if lines := ring.lines(self.line_group, part, self.line_of):
                self._sent_up_to = part[-1].position
                return lines
        self.ended = True
        if self.bookmark is not None and self.fan.position > self._sent_up_to and ring.since(self.position) == []:
            # So that a reconnecting client continues from here, and not from its last change.
            self.position = self.fan.position
            return self._bookmark(now)
        return b""

    def _bookmark(self, now: float) -> bytes:
        assert self.bookmark is not None
        self.bookmark_at = now + BOOKMARK_SECONDS
        self._sent_up_to = self.position
        return event_line(BOOKMARK, self.bookmark(self.position))


class Sending:
    """A watch being sent. It has one timer: with many watchers, timers for every chunk and every wait would
    cost more than sending."""

    def __init__(self, watch: Watch, send: Send) -> None:
        self._watch, self._send = watch, send
        self._loop = asyncio.get_running_loop()
        self._news: asyncio.Future[None] | None = None
        self.is_sending = False
        """A chunk is being sent, and the client has not read all of it."""
        self._timer: asyncio.TimerHandle

    async def run(self) -> None:
        watch, loop = self._watch, self._loop
        watch.begin(loop.time())
        self._timer = loop.call_at(self._next_check(), self._check)
        ring = watch.fan.rings[watch.noun]
        watch.slot.wait_for(len(watch.first))
        try:
            while True:
                self._news = ring.news()
                if chunk := watch.take(loop.time()):
                    self._news.cancel()
                    self.is_sending = True
                    left = len(chunk)
                    for piece in in_pieces(chunk):
                        watch.slot.wait_for(left)
                        if watch.slot.is_over:
                            watch.fan.cut_off += 1
                            return
                        await self._send({"type": "http.response.body", "body": piece, "more_body": True})
                        left -= len(piece)
                    self.is_sending = False
                    watch.slot.wait_for(0)
                if watch.ended:
                    return
                if not chunk:
                    await self._news
        finally:
            if self._news is not None:
                self._news.cancel()
            self._timer.cancel()

    def _check(self) -> None:
        """Wake a watch that is due."""
        now = self._loop.time()
        if now >= self._watch.due() and self._news is not None and not self._news.done():
            self._news.set_result(None)
        self._timer = self._loop.call_at(self._next_check(), self._check)

    def _next_check(self) -> float:
        now = self._loop.time()
        return min(now + LOOK_SECONDS, max(self._watch.due(), now + LEAST_SECONDS))


def error_line(error: ApiError) -> bytes:
    return event_line(ERROR, error.status)


async def send_watch(watch: Watch, receive: Receive, send: Send) -> None:
    """Send the chunks until the watch ends or the client disconnects."""
    try:
        await _send_watch(watch, receive, send)
    finally:
        watch.slot.end()


async def _send_watch(watch: Watch, receive: Receive, send: Send) -> None:
    await _start(send)
    sender = Sending(watch, send)
    sending = asyncio.create_task(sender.run())
    leaving = asyncio.create_task(_wait_for_disconnect(receive))
    watch.fan.watchers += 1
    try:
        await asyncio.wait({sending, leaving}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        watch.fan.watchers -= 1
        if leaving.done() and sender.is_sending:
            watch.fan.cut_off += 1
        for task in (sending, leaving):
            task.cancel()
        await asyncio.gather(sending, leaving, return_exceptions=True)
    await send({"type": "http.response.body", "body": b"", "more_body": False})


async def send_refusal(error: ApiError, send: Send) -> None:
    """A watch that cannot start reports the error as its only event: clients look for it there."""
    await _start(send)
    await send({"type": "http.response.body", "body": error_line(error), "more_body": False})


async def _start(send: Send) -> None:
    headers = [(b"content-type", b"application/json"), (b"cache-control", b"no-cache, private")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    # Sent at once: clients wait for the headers before they consider the watch open.
    await send({"type": "http.response.body", "body": b"", "more_body": True})


async def _wait_for_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
