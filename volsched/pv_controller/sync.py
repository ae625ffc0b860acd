"""One sync of the PV controller: the tables' requests, answered from the caches, and the command that comes of it.

What is written shows in the caches at once, so that the next step of the same sync sees it, and becomes true when
the command is committed: all of it together, or not at all.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from volsched.kube.kinds import key_of
from volsched.kube.manifest import Manifest
from volsched.kube.merge_patch import difference, merged
from volsched.log.commands import Command, LeaseProof, Precondition, Scan, version_of
from volsched.log.events.decision import Decision, States
from volsched.log.events.envelope import Event, NewEvent
from volsched.log.events.fold import ObjectState, versioned
from volsched.log.events.streams import noun_and_key, stream_of
from volsched.objects.rules.edit import edit_object
from volsched.objects.rules.notices import notice_event, notice_stream
from volsched.objects.rules.object_events import is_deletion
from volsched.pv_controller.notice_throttle import Said
from volsched.pv_controller.operations import COMPONENT, Key
from volsched.pv_controller.rules import (
    Caches,
    Enqueue,
    Held,
    LiveGet,
    LivePods,
    Notice,
    Request,
    StartOperation,
    SyncError,
    Update,
)
from volsched.runtime.clock import rfc3339
from volsched.runtime.world import World


@dataclass(slots=True)
class Sync:
    """What one sync wants written, in order; made on the controller's caches and conditional on them."""

    key: Key
    world: World
    caches: Caches
    drop: Callable[[str, str], None]
    """Told when an object goes."""
    events: list[NewEvent] = field(default_factory=list)
    versions: dict[str, int] = field(default_factory=dict)
    """Stream → the version that was seen when the sync first wrote it."""
    notices: list[Notice] = field(default_factory=list)
    operations: list[StartOperation] = field(default_factory=list)
    enqueued: list[Enqueue] = field(default_factory=list)
    scan: Scan | None = None
    """What must not have happened since the sync looked."""
    _before: Manifest = field(default_factory=dict)
    """What the last event's object was before it."""

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
            state = self.world.states.get(stream)
            # As live as can be: the command is refused if it is no longer so when it is carried out.
            self.versions.setdefault(stream, version_of(state))
            return versioned(state) if isinstance(state, ObjectState) else None
        if isinstance(request, LivePods):
            # Likewise: the caches are as the world is, and whoever got a node since makes the command too late.
            self.scan = Scan(self.world.position, _placing_in(request.namespace))
            return [held.manifest for held in self.caches.pods_using(self.key[1])]
        raise SyncError(f"{type(request).__name__} is for operations, and this is a sync")

    def command(self, *, actor: str, lease: LeaseProof, said: Said, now: int) -> Command:
        """All that the sync wrote and told, refused where something is no longer as it was seen."""
        told = [notice for notice in self.notices if said.is_news(notice, now)]
        places = [notice_stream(it.kind, it.key, it.uid, it.reason, it.message) for it in told]

        def decide(states: States) -> Decision:
            notices = [
                notice_event(
                    states.get(place), place, kind=it.kind, key=it.key, uid=it.uid, type_=it.type,
                    reason=it.reason, message=it.message, component=COMPONENT, now=rfc3339(now),
                )
                for it, place in zip(told, places, strict=True)
            ]  # fmt: skip
            return Decision(events=(*self.events, *notices))

        streams = tuple({*(event.stream for event in self.events), *places})
        precondition = Precondition(objects=self.versions, scan=self.scan, lease=lease)
        return Command(actor=actor, streams=streams, decide=decide, precondition=precondition)

    def _update(self, request: Update) -> Held[Any] | None:
        key = key_of(request.kind, request.manifest)
        held = self.caches.held(request.kind, key)
        old = {} if held is None else held.manifest
        event = edit_object(request.kind, key, old, request.manifest, status=request.status)
        if event is None:
            return held
        return self._note(request.kind, event)

    def _note(self, kind: str, event: NewEvent) -> Held[Any] | None:
        """Remember a write, and let the caches show it as done."""
        key = noun_and_key(event.stream)[1]
        held = self.caches.held(kind, key)
        seen = 0 if held is None else int(held.meta.resource_version or 0)
        self.versions.setdefault(event.stream, seen)
        if is_deletion(event):
            self.events.append(event)
            self.drop(kind, key)
            return held
        before = {} if held is None else held.manifest
        after = merged(before, event.data["patch"])
        self._add(event, before, after)
        self.caches.store(kind, after)
        return self.caches.held(kind, key)

    def _add(self, event: NewEvent, before: Manifest, after: Manifest) -> None:
        """An object's status right after the object itself is one event: the command is atomic, so nobody could
        see what lies between."""
        last = self.events[-1] if self.events else None
        if last is not None and last.stream == event.stream and last.type == event.type:
            self.events[-1] = replace(event, data={"patch": difference(self._before, after)})
        else:
            self._before = before
            self.events.append(event)


def _placing_in(namespace: str) -> Callable[[Event], str | None]:
    """Pods there that have got a node meanwhile may be using any claim of the namespace."""

    def outdated(event: Event) -> str | None:
        placed = event.stream.startswith(f"pod/{namespace}/") and '"nodeName"' in event.data
        return f"{event.stream} got a node" if placed else None

    return outdated
