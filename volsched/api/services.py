"""Shared services of requests: the store, its one writer, the fan of watches, and the caller."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ParamSpec, TypeVar
from uuid import uuid4

from volsched.api.access.callers import current_caller, current_reason
from volsched.api.limits import DEFAULT_LIMITS, CallerThreads, Limits, WatchShares
from volsched.api.watch_cache import Fan
from volsched.log.commands import ConflictError
from volsched.log.database import Database
from volsched.log.errors import FullError
from volsched.objects.object_write import Author, HeavyError, ObjectWrite, WrittenObject
from volsched.objects.rules.admission import NO_CONTEXT, AdmissionContext, Origin
from volsched.objects.surroundings import Subject, has_surroundings, read_surroundings
from volsched.questions.status.storage_tally import StorageTally
from volsched.runtime.clock import Clock, rfc3339
from volsched.runtime.writer import Writer

if TYPE_CHECKING:
    from volsched.api.freshness import Freshness

READERS = 8
"""Requests that read the database at the same time; as many connections are opened."""
READERS_PER_CALLER = 4
HEAVY_AT_ONCE = 2
"""Large bodies that are processed at the same time: each computing thread delays the event loop."""
HEAVY_PER_CALLER = 1
HEAVY_WAITING = 32
"""Large bodies of one caller that wait: each is kept in memory."""
WRITE_TRIES = 5
"""Kubernetes' number of attempts to apply a patch to a changing object, before it reports the conflict."""
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
    """The actor of writes without a known caller: the user who started the server."""
    zonal_upgrade: bool = True
    committed: Callable[[], None] = lambda: None
    """Called after every commit: readers of the log in this process need not wait for their next poll."""
    new_uid: Callable[[], str] = new_uid
    limits: Limits = DEFAULT_LIMITS
    distinguishes_callers: bool = False
    """Callers authenticate; without, all are the user who started the server."""
    read_only: bool = False
    """The objects are those of an observed cluster."""
    follows: bool = False
    """This process observes the cluster itself, so its answers are as fresh as the last message received."""
    reserves: bool = True
    """Reservations are made, renewed and ended."""
    binds: bool = True
    """Bindings planned or confirmed here are carried out, by this process or by workers."""
    shares: WatchShares = field(init=False)
    tally: StorageTally = field(default_factory=StorageTally)
    """Updated by the reader behind the watches."""
    freshness: "Freshness | None" = None
    """Set while the reader behind the watches runs; without, every request reads the database."""
    full_at: int | None = None
    """When a write last found the disk full, until one succeeds."""
    _readers: CallerThreads = field(default_factory=lambda: CallerThreads(READERS, READERS_PER_CALLER))
    _heavy: CallerThreads = field(
        default_factory=lambda: CallerThreads(HEAVY_AT_ONCE, HEAVY_PER_CALLER, HEAVY_WAITING)
    )

    def __post_init__(self) -> None:
        self.shares = WatchShares(self.limits)

    def caller(self) -> str | None:
        """The caller, as far as callers can be distinguished."""
        caller = current_caller() if self.distinguishes_callers else None
        return None if caller is None else caller.actor

    async def read(self, call: Callable[P, T], *args: P.args, **named: P.kwargs) -> T:
        """Run a database read beside the event loop."""
        return await self._readers.run(self.caller(), lambda: call(*args, **named))

    async def work(self, heavy: bool, call: Callable[P, T], *args: P.args, **named: P.kwargs) -> T:
        """Run a computation: a heavy one beside the event loop."""
        if not heavy:
            return call(*args, **named)
        return await self._heavy.run(self.caller(), lambda: call(*args, **named))

    async def write(self, write: ObjectWrite, *, dry_run: bool = False, heavy: bool = False) -> WrittenObject:
        """Commit the write; raises the refusal of the rules or the store.

        A heavy write is decided before the log's lock is taken, and again if the object has changed by then.
        """
        if dry_run:
            return await self.work(True, write.try_out, self.database)
        for _ in range(WRITE_TRIES):
            if heavy:
                await self.work(True, write.prepare, self.database)
            try:
                outcome = await asyncio.wrap_future(self.writer.submit(write.command))
            except HeavyError:
                heavy = True
            except ConflictError:
                # The preparation may be out of date: prepare again before reporting a conflict.
                if not write.prepared:
                    raise
            except FullError:
                self.full_at = self.clock()
                raise
            else:
                self.full_at = None
                self.committed()
                return write.written(outcome)
        raise ConflictError("the object changed at every attempt to write it; try again")

    async def surroundings(self, subject: Subject) -> AdmissionContext:
        """The context that admission reads before the object is written; usually empty."""
        if not has_surroundings(subject, zonal_upgrade=self.zonal_upgrade):
            return NO_CONTEXT
        (context,) = await self.read(read_surroundings, self.database, [subject], zonal_upgrade=self.zonal_upgrade)
        return context

    def author(self, manager: str = "", subresource: str | None = None) -> Author:
        """The author of this request's writes."""
        caller = current_caller()
        actor = self.actor if caller is None else caller.actor
        return Author(
            actor,
            rfc3339(self.clock()),
            Origin.API,
            current_reason(),
            manager=manager,
            subresource=subresource or "",
        )
