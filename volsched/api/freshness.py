"""Whether the objects in memory are the newest: a read must not be older than any write before it.

A request needs the end of the log. On an SQLite file that is a row which the event loop reads itself. Otherwise,
and where there are new events, a thread reads the log up to its end, once for all waiting requests: those that
arrive while it reads share the next read, because events that they must see may have come after this one began.
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
        """True once all that was committed before the call is in memory; StoreError where the store fails."""
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
            # The thread has handed its events to the event loop before it is done.
            self._running = None
