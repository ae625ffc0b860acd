"""The world: all current states in one process's memory, updated from the log's tail; and a system's parts."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from sqlalchemy import Connection

from volsched.kube.object_values import Object
from volsched.log.commit_listeners import Commit, OwnCommits
from volsched.log.database import Database
from volsched.log.errors import ArchivedError
from volsched.log.events.envelope import Event
from volsched.log.events.fold import BindingState, ObjectState, State, versioned
from volsched.log.events.streams import ATTEMPT, BINDING, KIND_OF_NOUN, noun_and_key
from volsched.log.reads.startup import load_world
from volsched.log.reads.tail import fold_event, tails
from volsched.scheduling.rules.failure_memory import Failures

# Loaded once from the views, then folded event by event with the common fold. Parts that keep the objects in
# another shape (the scheduler's snapshot, the controller's caches) are notified of the changed streams.


@dataclass(slots=True)
class World:
    database: Database
    position: int = -1
    """The position of the last event read; -1: nothing is loaded yet."""
    states: dict[str, State] = field(default_factory=dict)
    failures: Failures = field(default_factory=Failures)
    """Bindings that failed recently; they are no longer in `states`."""
    authors: dict[str, str] = field(default_factory=dict)
    """The last writer of each object that the last `catch_up` found changed."""
    _read: dict[str, tuple[int, dict[str, Any], Object]] = field(default_factory=dict)
    """Cache of decoded objects: the version, the manifest and the value."""
    _own: OwnCommits = field(init=False)

    def __post_init__(self) -> None:
        self._own = self.database.follow()

    def catch_up(self) -> dict[str, None]:
        """The streams that changed since the last call, in order of their changes; all of them at first."""
        changed: dict[str, None] = {}
        self.authors.clear()
        if self.position >= 0:
            try:
                for commit in self._own.after(self.position):
                    changed |= self._take_own(commit)
                with self.database.glance() as connection:
                    for events in tails(connection, after=self.position):
                        changed |= self.take(events)
            except ArchivedError:
                # Unread events are archived: this process slept too long, and reads all states again.
                changed |= dict.fromkeys(self.states)
            else:
                return changed
        with self.database.read() as connection:
            self._load(connection)
        return changed | dict.fromkeys(self.states)

    def _load(self, connection: Connection) -> None:
        loaded = load_world(connection)
        self.position, self.states, self.failures = loaded.position, loaded.states, Failures()
        for binding, state in loaded.failed:
            self.failures.note(binding, state)

    def begin(self, states: Mapping[str, State]) -> None:
        """Start from given states at our position, in place of the views."""
        for stream, state in states.items():
            self._keep(stream, state)

    def take(self, events: Sequence[Event]) -> dict[str, None]:
        """Fold the events that follow; returns the streams that they changed."""
        changed: dict[str, None] = {}
        for event in events:
            if event.stream.startswith(f"{ATTEMPT}/"):
                continue
            known = self.states.get(event.stream)
            if known is None and event.version > 1 and event.stream.startswith(f"{BINDING}/"):
                # The binding has ended and was dropped, but a late write of a leg is recorded in its stream.
                continue
            state = fold_event(
                known, event.position, event.version, event.type, event.schema, event.at, event.data
            )
            self._keep(event.stream, state)
            changed[event.stream] = None
            if isinstance(state, ObjectState) and state.rv == event.position:
                self.authors[event.stream] = event.actor
        if events:
            self.position = events[-1].position
        return changed

    def _take_own(self, commit: Commit) -> dict[str, None]:
        """Take the resulting states of a commit of this process, instead of folding its events again."""
        changed: dict[str, None] = {}
        for event in commit.events:
            if event.stream.startswith(f"{ATTEMPT}/"):
                continue
            state = commit.states[event.stream]
            if event.stream not in changed:
                if (
                    event.version > 1
                    and event.stream.startswith(f"{BINDING}/")
                    and event.stream not in self.states
                ):
                    continue
                self._keep(event.stream, state)
                changed[event.stream] = None
            if isinstance(state, ObjectState) and state.rv == event.position:
                self.authors[event.stream] = event.actor
        self.position = commit.events[-1].position
        return changed

    def _keep(self, stream: str, state: State) -> None:
        """Store a state, or drop it: only live objects and open bindings are kept."""
        living = isinstance(state, ObjectState) and state.manifest is not None
        if living or (isinstance(state, BindingState) and state.open):
            self.states[stream] = state
        else:
            self.failures.note(noun_and_key(stream)[1], state)
            self.states.pop(stream, None)
            self._read.pop(stream, None)

    def read(self, stream: str) -> tuple[dict[str, Any], Object] | None:
        """The current object: its manifest with our version, and its value. Decoded once."""
        state = self.states.get(stream)
        if not isinstance(state, ObjectState) or state.manifest is None:
            self._read.pop(stream, None)
            return None
        known = self._read.get(stream)
        if known is None or known[0] != state.rv:
            manifest = versioned(state)
            known = self._read[stream] = state.rv, manifest, KIND_OF_NOUN[noun_and_key(stream)[0]].read(manifest)
        return known[1], known[2]

    def binding(self, binding: str) -> BindingState | None:
        state = self.states.get(f"{BINDING}/{binding}")
        return state if isinstance(state, BindingState) else None


# A part of a running system: it is notified of changes, and does a batch of work at a time.


class Part(Protocol):
    """A loop without its own thread (`runtime.system` steps it)."""

    def update(self, streams: Iterable[str], now: int) -> None:
        """Record changes in the world; at first, all streams."""
        ...

    def step(self, now: int) -> int:
        """Do a batch of work; returns the amount done, 0 if there was no work."""
        ...

    def next_due(self) -> int | None:
        """When work becomes due without any change; None: not before something changes."""
        ...
