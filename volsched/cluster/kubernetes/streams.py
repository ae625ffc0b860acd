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
"""Timeout of a watch, at random between the two, so that watches of many clients do not end together."""
BRIEF_SECONDS = 1.0
"""A watch that ends within this time without an event is reopened after a delay."""
JOIN_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class StreamHealth:
    last_heard: float | None
    """Monotonic time of the last report; None: none yet. While changes wait to be taken, the time at which the
    first of them arrived, because the caller's knowledge ends there."""
    trouble: str | None
    """Why the stream is not open now."""
    queued: int


class WatchStream:
    def __init__(self, kind: str, lists: Lists, *, random: Random, capacity: int = QUEUE) -> None:
        self.kind = kind
        self._lists, self._random, self._capacity = lists, random, capacity
        self._changed = threading.Condition()
        self._queue: deque[tuple[str, PortChange | None, float]] = deque()
        """Version, change and time of arrival; a bookmark has no change."""
        self._cursor: str | None = None
        """The version up to which `take` has delivered."""
        self._requested_from: str | None = None
        self._delivered = False
        """Whether any change since then was delivered."""
        self._reads_from: str | None = None
        """The version from which the next connection reads; None: nothing is to be read."""
        self._seeks = 0
        self._checked = 0
        """The last seek with an opened connection. Until one is opened, a seek's cursor is fresh from a list."""
        self._error: ClusterError | None = None
        self._stopped = True
        self._stream: ByteStream | None = None
        self._heard: float | None = None
        self._trouble: str | None = None
        self.wake: Callable[[], None] = lambda: None
        """Called by the reading thread when a change arrives that a binding may wait for."""

    # --- called by the watcher ---------------------------------------------------------------------------

    def take(self, cursor: str, limit: int) -> tuple[list[PortChange], str]:
        """Up to `limit` changes since the cursor; after the last, raises the error that ended the stream."""
        with self._changed:
            if self._stopped:
                raise RuntimeError(f"no thread reads the watch of {self.kind}: start the streams with `reading`")
            # If only bookmarks were delivered, a caller that repeats its cursor has missed nothing.
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
                    # If the caller repeats the cursor, it is tried again.
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
        """Read until stopped; no response of a server ends the loop."""
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
                # The connection was silent for too long: reopened at once, from the same version.
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
        """Whether changes read for this seek are obsolete."""
        return self._stopped or self._seeks != seeks

    def _follow(self, version: str, seeks: int) -> bool:
        """Read one connection to its end; returns whether it had an event or became obsolete."""
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
        """Raises for a cursor ahead of the server: a restored server would accept it and send nothing."""
        head = self._lists.head(self.kind)
        if int(head) < int(version):
            raise ExpiredError(
                self.kind,
                f"watch {self.kind}: the cursor {version} is ahead of the server, which is at {head}; the cluster "
                "was restored from a backup or replaced: list again",
            )

    def _open(self, stream: ByteStream, seeks: int, *, is_fresh: bool) -> bool:
        """Opening counts as a report only with a fresh cursor from a list: another one may have expired."""
        with self._changed:
            if self._is_over(seeks):
                return False
            self._stream, self._trouble = stream, None
            if is_fresh:
                self._heard = monotonic()
            self._error = None
            return True

    def _put(self, event: WatchLine, seeks: int) -> bool:
        """Queue the event; False if it is obsolete."""
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
        """Pass the error to the watcher, which must give another cursor if this one has expired."""
        with self._changed:
            if self._seeks == seeks:
                self._error = error
                if isinstance(error, ExpiredError):
                    self._reads_from = None


def _change(kind: str, event: WatchLine, project: Projection) -> PortChange | None:
    """The change of an event; None if only the version has changed."""
    match event.type:
        case "BOOKMARK":
            return None
        case "DELETED":
            # The last state of the object, with the version of its deletion.
            return PortChange(kind, key_of(kind, event.object), None, event.version)
        case _:
            kept = project(kind, event.object)
            return None if kept is None else PortChange(kind, key_of(kind, event.object), kept, event.version)


def _is_awaited(change: PortChange) -> bool:
    """Whether a binding may start or continue with the change: a pod without a node, or a claim. Others wait for
    the next step, which batches them: a large cluster has hundreds in a second."""
    if change.kind == "Pod":
        return change.manifest is not None and not spec(change.manifest).get("nodeName")
    return change.kind == "PersistentVolumeClaim" and change.manifest is not None


@contextmanager
def reading(streams: Sequence[WatchStream]) -> Iterator[None]:
    """Runs a reading thread for each stream while the context lasts."""
    with ExitStack() as stack:
        for stream in streams:
            stream.begin()
            thread = threading.Thread(target=stream.run, name=f"volsched-watch-{stream.kind}", daemon=True)
            thread.start()
            stack.callback(thread.join, JOIN_SECONDS)
        for stream in streams:
            stack.callback(stream.stop)
        yield
