"""What requests are served with: the store, its one writer, the fan of watches, and whose they are."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import ParamSpec, TypeVar
from uuid import uuid4

import anyio
import anyio.to_thread

from volsched.engine.clock import Clock, rfc3339
from volsched.engine.writer import Writer
from volsched.server.access.callers import current_caller, current_reason
from volsched.server.fan import Fan
from volsched.server.limits import DEFAULT_LIMITS, Limits
from volsched.server.writing import Who, Write, Written
from volsched.store.database import Database

READERS = 8
"""Requests that ask the database at the same time; as many connections are opened."""
P = ParamSpec("P")
T = TypeVar("T")


def new_uid() -> str:
    return str(uuid4())


@dataclass(slots=True)
class Services:
    database: Database
    writer: Writer
    fan: Fan
    clock: Clock
    actor: str
    """Who the log says has written what no request of a known caller asked for: the one who started us."""
    zonal_upgrade: bool = True
    committed: Callable[[], None] = lambda: None
    """Told after every commit: whoever reads the log in this process need not wait for its next look."""
    new_uid: Callable[[], str] = new_uid
    limits: Limits = DEFAULT_LIMITS
    _readers: anyio.CapacityLimiter | None = field(default=None)

    async def read(self, call: Callable[P, T], *args: P.args, **named: P.kwargs) -> T:
        """Call something that asks the database, beside the event loop."""
        if self._readers is None:
            self._readers = anyio.CapacityLimiter(READERS)
        return await anyio.to_thread.run_sync(lambda: call(*args, **named), limiter=self._readers)

    async def write(self, write: Write, *, dry_run: bool = False) -> Written:
        """Carry the write out; raises what its rules, or the store, have against it."""
        if dry_run:
            return await self.read(write.tried, self.database)
        done = await asyncio.wrap_future(self.writer.submit(write.command))
        self.committed()
        return write.written(done)

    def who(self) -> Who:
        """On whose behalf this request writes."""
        caller = current_caller()
        actor = self.actor if caller is None else caller.actor
        return Who(actor, rfc3339(self.clock()), current_reason())
