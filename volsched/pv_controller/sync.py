"""One sync of the PV controller, which answers the tables' requests from caches; returning a volume by hand."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from volsched.kube.kinds import key_of
from volsched.kube.manifest import Manifest
from volsched.kube.patches import difference, merged
from volsched.log.batch import load_states
from volsched.log.commands import Command, LeaseProof, Precondition, Scan, version_of
from volsched.log.database import Database
from volsched.log.events.envelope import Event, NewEvent
from volsched.log.events.fold import Decision, ObjectState, States, binding_stream, living, versioned
from volsched.log.events.streams import noun_and_key, stream_of
from volsched.log.reactions import touching_bindings
from volsched.log.reads.lookups import attachments_of
from volsched.objects.rules.object_events import edit_object, is_deletion, notice_event, notice_stream
from volsched.pv_controller.operations import COMPONENT, Key, NoticeThrottle
from volsched.pv_controller.rules import (
    Caches,
    Enqueue,
    LiveGet,
    LivePods,
    Notice,
    ParsedObject,
    Request,
    StartOperation,
    SyncError,
    Update,
)
from volsched.pv_controller.rules.rollback import claim_stream, return_volume, returned_notice
from volsched.runtime.clock import rfc3339

# The caches show a write at once, so that the next step of the same sync sees it; all writes take effect
# atomically when the command is committed.


@dataclass(slots=True)
class Sync:
    """The writes of one sync, in order; based on the controller's caches and conditional on them."""

    key: Key
    states: States
    """The states that a live read returns."""
    position: int
    """The log position of the states."""
    caches: Caches
    drop: Callable[[str, str], None]
    """Called when an object is removed."""
    events: list[NewEvent] = field(default_factory=list)
    versions: dict[str, int] = field(default_factory=dict)
    """Stream → the version that was seen when the sync first wrote it."""
    notices: list[Notice] = field(default_factory=list)
    operations: list[StartOperation] = field(default_factory=list)
    enqueued: list[Enqueue] = field(default_factory=list)
    scan: Scan | None = None
    """Events that must not have happened since the sync read."""
    _before: Manifest = field(default_factory=dict)
    """The object of the last event before that event."""

    def answer(self, request: Request) -> Any:
        if isinstance(request, Update):
            return self._update(request)
        if isinstance(request, Notice):
            self.notices.append(request)
            return None
        if isinstance(request, Enqueue):
            self.enqueued.append(request)
            return None
        if isinstance(request, StartOperation):
            self.operations.append(request)
            return None
        if isinstance(request, LiveGet):
            stream = stream_of(request.kind, request.key)
            state = self.states.get(stream)
            # Equivalent to a live read: the command is refused if the object has changed when it is carried out.
            self.versions.setdefault(stream, version_of(state))
            return versioned(state) if isinstance(state, ObjectState) else None
        if isinstance(request, LivePods):
            # Likewise: the caches equal the world, and a pod that got a node since then invalidates the command.
            self.scan = Scan(self.position, _placing_in(request.namespace))
            return [pod.manifest for pod in self.caches.pods_using(self.key[1])]
        raise SyncError(f"{type(request).__name__} is for operations, and this is a sync")

    def command(self, *, actor: str, lease: LeaseProof, throttle: NoticeThrottle, now: int) -> Command:
        """All writes and notices of the sync as a command, refused if any object that it read has changed."""
        news = [notice for notice in self.notices if throttle.is_news(notice, now)]
        places = [notice_stream(it.kind, it.key, it.uid, it.reason, it.message) for it in news]

        def decide(states: States) -> Decision:
            notices = [
                notice_event(
                    states.get(place), place, kind=it.kind, key=it.key, uid=it.uid, type_=it.type,
                    reason=it.reason, message=it.message, component=COMPONENT, now=rfc3339(now),
                )
                for it, place in zip(news, places, strict=True)
            ]  # fmt: skip
            return Decision(events=(*self.events, *notices))

        streams = tuple({*(event.stream for event in self.events), *places})
        precondition = Precondition(objects=self.versions, scan=self.scan, lease=lease)
        return Command(actor=actor, streams=streams, decide=decide, precondition=precondition)

    def _update(self, request: Update) -> ParsedObject[Any] | None:
        key = key_of(request.kind, request.manifest)
        cached = self.caches.object_of(request.kind, key)
        old = {} if cached is None else cached.manifest
        event = edit_object(request.kind, key, old, request.manifest, status=request.status)
        if event is None:
            return cached
        return self._note(request.kind, event)

    def _note(self, kind: str, event: NewEvent) -> ParsedObject[Any] | None:
        """Record a write, and apply it to the caches."""
        key = noun_and_key(event.stream)[1]
        cached = self.caches.object_of(kind, key)
        version = 0 if cached is None else int(cached.meta.resource_version or 0)
        self.versions.setdefault(event.stream, version)
        if is_deletion(event):
            self.events.append(event)
            self.drop(kind, key)
            return cached
        before = {} if cached is None else cached.manifest
        after = merged(before, event.data["patch"])
        self._add(event, before, after)
        self.caches.store(kind, after)
        return self.caches.object_of(kind, key)

    def _add(self, event: NewEvent, before: Manifest, after: Manifest) -> None:
        """Add a write. An object and its status written in succession are one event: the command is atomic, so no
        reader could see the intermediate state.
        """
        last = self.events[-1] if self.events else None
        if last is not None and last.stream == event.stream and last.type == event.type:
            self.events[-1] = replace(event, data={"patch": difference(self._before, after)})
        else:
            self._before = before
            self.events.append(event)


def _placing_in(namespace: str) -> Callable[[Event], str | None]:
    """Tests an event: a pod of the namespace that got a node meanwhile may be using any of its claims."""

    def outdated(event: Event) -> str | None:
        placed = event.stream.startswith(f"pod/{namespace}/") and '"nodeName"' in event.data
        return f"{event.stream} got a node" if placed else None

    return outdated


# The command that returns a released volume, with all streams to check.


def releasing(database: Database, name: str, *, reason: str, by: str, actor: str, now: int) -> Command | None:
    """The command, or None if the volume does not exist. A concurrent plan or write of the volume refuses it."""
    stream = f"volume/{name}"
    with database.read() as connection:
        states, _ = load_states(database, connection, [stream])
        volume = living(states, stream)
        if volume is None or volume.manifest is None:
            return None
        claim = claim_stream(volume.manifest)
        around = [stream, *((claim,) if claim else ())]
        bindings = touching_bindings(database, connection, around)
        attachments = attachments_of(connection, name)

    def decide(states: States) -> Decision:
        return Decision(events=return_volume(name, states, reason=reason, by=by, now=rfc3339(now)))

    streams = (
        *around,
        returned_notice(volume.manifest),
        *map(binding_stream, bindings),
        *(f"attachment/{key}" for key in attachments),
    )
    return Command(
        actor=actor, streams=streams, decide=decide, precondition=Precondition(versions={stream: volume.version})
    )
