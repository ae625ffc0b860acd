"""The coalescing writer, one per process: it commits the commands of many callers as one transaction.

A commit costs one disk write whatever its size, so sharing it gives throughput. A command is acknowledged (its
future resolved) only after its commit: acknowledged commands are durable.

If the connection is lost while committing, only the log shows whether the commit happened: it has the batch's last
event, at its position and with its hash, or not. Only if not, the commands are retried.
"""

import threading
from collections import deque
from concurrent.futures import Future
from dataclasses import dataclass, field, replace

from volsched.log.commands import Command, Done, Outcome
from volsched.log.database import Database
from volsched.log.errors import ConnectionLostError, StoreError
from volsched.log.transaction import execute, is_committed
from volsched.runtime.clock import MILLISECOND, SECOND

MAX_BATCH = 128
MAX_QUEUED = 10_000
RETRY_FIRST = 50 * MILLISECOND
RETRY_MOST = 2 * SECOND
GIVE_UP_AFTER = 60 * SECOND
ALONE_AFTER = 2
"""After this many transactions ended by the server, the commands of the batch are committed one by one."""
MOST_TRIES = 4
"""After this many transactions ended by the server, while it answers otherwise, their command is refused."""


class OverloadedError(StoreError):
    """More commands wait than the writer accepts; nothing was queued."""


class EndedError(StoreError):
    """The server ended the command's transaction repeatedly; nothing was written."""


class WriterClosedError(StoreError):
    """The writer is shutting down and accepts no more commands."""


@dataclass(slots=True)
class _Waiting:
    command: Command
    future: Future[Done]


@dataclass(slots=True)
class _Interrupted:
    """A batch whose connection was lost; its outcome is read when the database answers again."""

    batch: list[_Waiting]
    lost: ConnectionLostError
    retry_at: int
    delay: int = RETRY_FIRST
    tries: int = 1
    """Number of transactions that were begun for the batch."""


@dataclass(slots=True)
class Writer:
    database: Database
    max_batch: int = MAX_BATCH
    max_queued: int = MAX_QUEUED
    _queue: deque[_Waiting] = field(default_factory=deque)
    _changed: threading.Condition = field(default_factory=threading.Condition)
    _closed: bool = False
    _interrupted: _Interrupted | None = None
    _alone: int = 0
    """Number of commands at the front of the queue to commit one by one: one of them ends transactions."""
    _lost_since: int | None = None
    """Since when the database has not answered; after a timeout commands are refused."""

    def submit(self, command: Command) -> "Future[Done]":
        """Queue a command. The future gets its outcome once it is durable."""
        waiting = _Waiting(command, Future())
        with self._changed:
            if self._closed:
                raise WriterClosedError("the writer is shutting down; send the command to another process")
            if len(self._queue) >= self.max_queued:
                raise OverloadedError(f"{len(self._queue)} commands are waiting already; try again in a moment")
            self._queue.append(waiting)
            self._changed.notify()
        return waiting.future

    def close(self) -> None:
        """Accept no more commands; queued ones are still committed."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    @property
    def drained(self) -> bool:
        """Whether the writer is closed, with no work left."""
        return self._closed and not self._queue and self._interrupted is None

    @property
    def retries(self) -> bool:
        """Whether a batch waits for the database to answer again."""
        return self._interrupted is not None

    def wait_for_work(self, timeout: float) -> None:
        """Block until there may be work; the runner calls it between steps."""
        with self._changed:
            if not self._queue and not self._closed:
                self._changed.wait(timeout)

    def step(self, now: int) -> int:
        """Commit one batch; returns how many commands were settled."""
        if self._interrupted is not None:
            return self._settle(self._interrupted, now)
        with self._changed:
            size = min(len(self._queue), 1 if self._alone else self.max_batch)
            batch = [self._queue.popleft() for _ in range(size)]
            tries = ALONE_AFTER + 1 if self._alone else 1
            self._alone = max(self._alone - size, 0)
        return self._carry_out(batch, now, tries)

    def _carry_out(self, batch: list[_Waiting], now: int, tries: int) -> int:
        if not batch:
            return 0
        try:
            outcomes = execute(self.database, [waiting.command for waiting in batch], now=now)
        except ConnectionLostError as lost:
            _resolve(batch, lost.settled)
            rest = _Interrupted(batch[len(lost.settled) :], lost, now + RETRY_FIRST, tries=tries)
            return len(lost.settled) + self._wait_or_give_up(rest, now)
        except Exception as error:
            # The store as a whole failed (disk full, damaged): nothing of the batch was written.
            outcomes = [error] * len(batch)
        self._lost_since = None
        _resolve(batch, outcomes)
        return len(batch)

    def _settle(self, interrupted: _Interrupted, now: int) -> int:
        # Later than any possible delay: the clock was set back meanwhile.
        if 0 < interrupted.retry_at - now <= RETRY_MOST:
            return 0
        self._interrupted = None
        try:
            committed = is_committed(self.database, interrupted.lost.mark)
        except StoreError:
            # Lost again, or too busy to answer. The commands wait while their outcome is unknown.
            delay = min(2 * interrupted.delay, RETRY_MOST)
            return self._wait_or_give_up(replace(interrupted, retry_at=now + delay, delay=delay), now)
        if committed:
            _resolve(interrupted.batch, interrupted.lost.outcomes)
            return len(interrupted.batch)
        return self._again(interrupted, now)

    def _again(self, interrupted: _Interrupted, now: int) -> int:
        """Retry a batch that the database does not have, up to a limit."""
        batch, tries = interrupted.batch, interrupted.tries
        if len(batch) == 1 and tries >= MOST_TRIES:
            told = f"the database has ended this transaction {tries} times; send less at once, or see its log"
            _resolve(batch, [EndedError(told)])
            return 1
        if len(batch) > 1 and tries >= ALONE_AFTER:
            with self._changed:
                self._queue.extendleft(reversed(batch))
                self._alone = len(batch)
            return 0
        return self._carry_out(batch, now, tries + 1)

    def _wait_or_give_up(self, interrupted: _Interrupted, now: int) -> int:
        if self._lost_since is None or now < self._lost_since:
            self._lost_since = now
        if now - self._lost_since <= GIVE_UP_AFTER:
            self._interrupted = interrupted
            return 0
        _resolve(interrupted.batch, [interrupted.lost] * len(interrupted.batch))
        return len(interrupted.batch)


def _resolve(batch: list[_Waiting], outcomes: list[Outcome]) -> None:
    for waiting, outcome in zip(batch, outcomes, strict=False):
        if not waiting.future.set_running_or_notify_cancel():
            continue
        if isinstance(outcome, Done):
            waiting.future.set_result(outcome)
        else:
            waiting.future.set_exception(outcome)
