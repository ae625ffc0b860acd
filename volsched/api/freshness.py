"""Whether the objects in memory are the newest: a read must not be older than what anybody wrote before it.

A request asks where the log ends. On an SQLite file that is a row which the event loop reads itself. Otherwise,
and where there is something new, a thread reads the log up to its end, once for all requests that wait: those that
come while it reads share the next read, because what they must see may have been written after this one looked.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field

from volsched.api.watch_cache import Fan, Tail
from volsched.log.reads.head import FileHead

Reading = Callable[[Callable[[], int]], Awaitable[int]]


@dataclass(slots=True)
class Freshness:
    tail: Tail
    fan: Fan
    read: Reading
    """Runs a database read beside the event loop."""
    file: FileHead
    _running: "asyncio.Future[int] | None" = field(default=None)
    _next: "asyncio.Future[int] | None" = field(default=None)

    async def confirm(self) -> bool:
        """True once all is in memory that was committed before the call; StoreError where the store fails."""
        if self.file.read() == self.fan.objects.place:
            return True
        head = await self._caught_up()
        return self.fan.position >= head

    async def _caught_up(self) -> int:
        if self._running is None:
            self._running = asyncio.ensure_future(self._catch_up())
            return await asyncio.shield(self._running)
        if self._next is None:
            self._next = asyncio.ensure_future(self._after(self._running))
        return await asyncio.shield(self._next)

    async def _after(self, running: "asyncio.Future[int]") -> int:
        with suppress(Exception):
            await asyncio.shield(running)
        self._running, self._next = self._next, None
        return await self._catch_up()

    async def _catch_up(self) -> int:
        try:
            return await self.read(self.tail.catch_up)
        finally:
            # What the thread has read was handed to the event loop before the thread said that it is done.
            self._running = None
