"""Watches: one stream per kind, read by a thread into a bounded queue.

The adapter starts no thread. `reading` does, for the streams of one adapter, and `take` never waits. A full queue
stops reading: the server then ends the watch, which continues later from the cursor, or the kind is listed.
"""

import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from random import Random
from time import monotonic

from volsched.cluster.kubernetes import requests
from volsched.cluster.kubernetes.backoff import LONGEST_SECONDS, FailureStreak, delay
from volsched.cluster.kubernetes.lists import Lists
from volsched.cluster.kubernetes.responses import error_in_stream
from volsched.cluster.kubernetes.transport import ByteStream, SilentError
from volsched.cluster.kubernetes.watch_lines import WatchLine, lines, watch_line
from volsched.cluster.port import CallRefusedError, ClusterError, ExpiredError, PortChange, UnansweredError
from volsched.cluster.projection import Projection
from volsched.kube.kinds import key_of
from volsched.kube.manifest import spec

QUEUE = 10_000
LEAST_TIMEOUT_SECONDS, MOST_TIMEOUT_SECONDS = 300, 600
"""Time-out of a watch, at random between the two, so that watches of many clients do not end together."""
BRIEF_SECONDS = 1.0
"""A watch that ends so soon, and had no event, is reopened after a delay."""
JOIN_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class StreamHealth:
    last_heard: float | None
    """By the monotonic clock; None: never yet. While changes wait to be taken, the time at which the first of them
    arrived: the caller knows nothing later."""
    trouble: str | None
    """Why the stream is not open at the moment."""
    queued: int


class WatchStream:
    def __init__(self, kind: str, lists: Lists, *, random: Random, capacity: int = QUEUE) -> None:
        self.kind = kind
        self._lists, self._random, self._capacity = lists, random, capacity
        self._changed = threading.Condition()
        self._queue: deque[tuple[str, PortChange | None, float]] = deque()
        """Version, change and time of arrival; a bookmark has no change."""
        self._cursor: str | None = None
        """Up to where `take` has delivered."""
        self._requested_from: str | None = None
        self._delivered = False
        """Whether any change since then was delivered."""
        self._reads_from: str | None = None
        """Where the next connection begins; None: nothing is to be read."""
        self._seeks = 0
        self._checked = 0
        """The last seek for which a connection was opened: before that, its cursor came from a list just now."""
        self._error: ClusterError | None = None
        self._stopped = True
        self._stream: ByteStream | None = None
        self._heard: float | None = None
        self._trouble: str | None = None
        self.wake: Callable[[], None] = lambda: None
        """Called by the reading thread when a change arrives that a binding may wait for."""

    # --- called by the watcher ---------------------------------------------------------------------------

    def take(self, cursor: str, limit: int) -> tuple[list[PortChange], str]:
        """Up to so many changes since the cursor; once all are delivered, raises what the stream ended with."""
        with self._changed:
            if self._stopped:
                raise RuntimeError(f"no thread reads the watch of {self.kind}: start the streams with `reading`")
            # Where only bookmarks were delivered, a caller that repeats its cursor has missed nothing.
            if cursor != self._cursor and (cursor != self._requested_from or self._delivered):
                self._seek(cursor)
            changes: list[PortChange] = []
            while self._queue and (len(changes) < limit or self._queue[0][1] is None):
                self._cursor, change, _ = self._queue.popleft()
                if change is not None:
                    changes.append(change)
            if self._error is not None and not changes and not self._queue:
                error = self._error
                if isinstance(error, ExpiredError):
                    # A caller that repeats the cursor wants it to be tried again.
                    self._error = self._cursor = self._requested_from = None
                raise error
            self._requested_from, self._delivered = cursor, bool(changes)
            self._changed.notify_all()
            return changes, self._cursor or cursor

    def health(self) -> StreamHealth:
        with self._changed:
            heard = self._queue[0][2] if self._queue else self._heard
            return StreamHealth(heard, self._trouble, len(self._queue))

    def _seek(self, cursor: str) -> None:
        self._queue.clear()
        self._cursor = self._reads_from = cursor
        self._requested_from = None
        self._error = None
        self._seeks += 1
        if self._stream is not None:
            self._stream.cut()
        self._changed.notify_all()

    # --- called by the reading thread --------------------------------------------------------------------

    def begin(self) -> None:
        with self._changed:
            self._stopped = False

    def stop(self) -> None:
        with self._changed:
            self._stopped = True
            if self._stream is not None:
                self._stream.cut()
            self._changed.notify_all()

    def run(self) -> None:
        """Read until it is stopped; no answer of a server ends it."""
        streak = FailureStreak()
        while (place := self._next_place()) is not None:
            version, seeks = place
            opened = monotonic()
            failure: ClusterError | None = None
            try:
                has_events = self._follow(version, seeks)
                if not has_events and monotonic() - opened < BRIEF_SECONDS:
                    failure = UnansweredError(f"watch {self.kind}: the server ended it at once")
            except (ExpiredError, CallRefusedError) as error:
                self._end(seeks, error)
                failure = error
            except SilentError:
                # The silence has lasted long enough: the connection is reopened at once, from where it was.
                continue
            except ClusterError as error:
                failure = error
            with self._changed:
                if failure is None or self._is_over(seeks):
                    continue
                self._trouble = str(failure)
                wait = delay(
                    streak.failed(monotonic()),
                    self._random.random(),
                    retry_after=failure.retry_after if isinstance(failure, UnansweredError) else None,
                )
                if isinstance(failure, CallRefusedError):
                    # A permission is not granted within a second.
                    wait = max(wait, LONGEST_SECONDS)
                self._changed.wait_for(partial(self._is_over, seeks), timeout=wait)

    def _next_place(self) -> tuple[str, int] | None:
        with self._changed:
            self._changed.wait_for(lambda: self._stopped or self._reads_from is not None)
            return None if self._stopped or self._reads_from is None else (self._reads_from, self._seeks)

    def _is_over(self, seeks: int) -> bool:
        """Changes that were read for this seek are no longer wanted."""
        return self._stopped or self._seeks != seeks

    def _follow(self, version: str, seeks: int) -> bool:
        """One connection, to its end; returns whether it had an event, or was not wanted any more."""
        is_fresh = self._checked != seeks
        if not is_fresh:
            self._refuse_from_the_future(version)
        self._checked = seeks
        seconds = self._random.randint(LEAST_TIMEOUT_SECONDS, MOST_TIMEOUT_SECONDS)
        request = requests.watch(self.kind, version=version, timeout_seconds=seconds)
        has_events = False
        with self._lists.transport.stream(request) as stream:
            if not self._open(stream, seeks, is_fresh=is_fresh):
                return True
            try:
                for line in lines(stream.chunks()):
                    event = watch_line(line)
                    if event.type == "ERROR":
                        raise error_in_stream(request, event.object)
                    if not self._put(event, seeks):
                        return True
                    has_events = True
            finally:
                with self._changed:
                    self._stream = None
        return has_events

    def _refuse_from_the_future(self, version: str) -> None:
        """A server that was restored from a backup accepts a cursor that is ahead of it, and sends nothing."""
        head = self._lists.head(self.kind)
        if int(head) < int(version):
            raise ExpiredError(
                self.kind,
                f"watch {self.kind}: the cursor {version} is ahead of the server, which is at {head}; the cluster "
                "was restored from a backup or replaced: list again",
            )

    def _open(self, stream: ByteStream, seeks: int, *, is_fresh: bool) -> bool:
        """Opening counts as a report only with a cursor that came from a list just now: another may be too old."""
        with self._changed:
            if self._is_over(seeks):
                return False
            self._stream, self._trouble = stream, None
            if is_fresh:
                self._heard = monotonic()
            self._error = None
            return True

    def _put(self, event: WatchLine, seeks: int) -> bool:
        """False where it is no longer wanted."""
        change = _change(self.kind, event, self._lists.project)
        with self._changed:
            self._heard = arrived = monotonic()
            self._changed.wait_for(lambda: self._is_over(seeks) or len(self._queue) < self._capacity)
            if self._is_over(seeks):
                return False
            self._queue.append((event.version, change, arrived))
            self._reads_from = event.version
        if change is not None and _is_awaited(change):
            self.wake()
        return True

    def _end(self, seeks: int, error: ClusterError) -> None:
        """Pass the error on to the watcher, which has to give another cursor where this one has expired."""
        with self._changed:
            if self._seeks == seeks:
                self._error = error
                if isinstance(error, ExpiredError):
                    self._reads_from = None


def _change(kind: str, event: WatchLine, project: Projection) -> PortChange | None:
    """None: only the version has changed."""
    match event.type:
        case "BOOKMARK":
            return None
        case "DELETED":
            # The object as it was last, with the version of its deletion.
            return PortChange(kind, key_of(kind, event.object), None, event.version)
        case _:
            kept = project(kind, event.object)
            return None if kept is None else PortChange(kind, key_of(kind, event.object), kept, event.version)


def _is_awaited(change: PortChange) -> bool:
    """A pod without a node, or a claim: a binding starts or continues with it. Other changes wait for the next
    step, which takes many together: a large cluster has hundreds in a second."""
    if change.kind == "Pod":
        return change.manifest is not None and not spec(change.manifest).get("nodeName")
    return change.kind == "PersistentVolumeClaim" and change.manifest is not None


@contextmanager
def reading(streams: Sequence[WatchStream]) -> Iterator[None]:
    """A thread for each stream, for as long as it lasts."""
    with ExitStack() as stack:
        for stream in streams:
            stream.begin()
            thread = threading.Thread(target=stream.run, name=f"volsched-watch-{stream.kind}", daemon=True)
            thread.start()
            stack.callback(thread.join, JOIN_SECONDS)
        for stream in streams:
            stack.callback(stream.stop)
        yield
