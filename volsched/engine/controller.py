"""The PV controller's loop: look at every claim and volume that changed, and do what the tables say.

Level-triggered and exclusive: one controller acts at a time, under a lease whose epoch is checked with every
write. On our own log the writes of a sync are one command, so the four writes of a binding are seen together or
not at all. Everything is looked at again now and then, so a lost or failed sync is only late.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from volsched.cluster.local import versioned
from volsched.core.binding.seen import Manifest, annotations, is_being_deleted, metadata, status
from volsched.core.controller import (
    CLAIM,
    KINDS_SEEN,
    VOLSCHED,
    VOLUME,
    Caches,
    ControllerRules,
    Create,
    Delete,
    Enqueue,
    LiveGet,
    LivePods,
    Notice,
    Request,
    Start,
    Steps,
    SyncError,
    Update,
    after_claim_deleted,
    after_volume_deleted,
    drive,
    protect_claim,
    protect_volume,
    sync_claim,
    sync_volume,
)
from volsched.core.decision import Decision, States
from volsched.core.fold import ObjectState
from volsched.core.notices import notice_event, notice_stream
from volsched.core.objects import ObjectError, create_object, delete_object
from volsched.engine.changes import key_of
from volsched.engine.clock import SECOND, rfc3339
from volsched.engine.world import World
from volsched.events.catalogue import TITLES
from volsched.events.envelope import NewEvent
from volsched.events.patch import difference, merged
from volsched.events.streams import KIND_OF_NOUN, NOUN_OF_KIND, noun_and_key, stream_of
from volsched.faults import reach
from volsched.model.kinds import KINDS
from volsched.model.meta import ROLLBACK
from volsched.store.commands import Command, ConflictError, Done
from volsched.store.database import Database
from volsched.store.leases import Lease, acquire, current, release
from volsched.store.transaction import execute

LEASE_NAME = "controller"
LEASE_TTL = 15 * SECOND
RESYNC = 15 * SECOND
RETRY = 1 * SECOND
TELL_AGAIN = 300 * SECOND
BATCH = 512
COMPONENT = "persistentvolume-controller"
Key = tuple[str, str]


@dataclass(slots=True)
class _Sync:
    """What one sync wants written, in order; made on the controller's caches and conditional on them."""

    key: Key
    events: list[NewEvent] = field(default_factory=list)
    versions: dict[str, int] = field(default_factory=dict)
    """Stream → the version that was seen when the sync first wrote it."""
    notices: list[Notice] = field(default_factory=list)
    operations: list[Start] = field(default_factory=list)


@dataclass(slots=True)
class Controller:
    database: Database
    world: World
    owner: str
    rules: ControllerRules = VOLSCHED
    _caches: Caches = field(default_factory=Caches)
    _queue: dict[Key, None] = field(default_factory=dict)
    _later: dict[Key, int] = field(default_factory=dict)
    _told: dict[tuple[str, str, str], int] = field(default_factory=dict)
    _versions: dict[Key, int] = field(default_factory=dict)
    """What of the world is in the caches."""
    _written: dict[str, int] = field(default_factory=dict)
    """Stream → the version that our own last write gave it."""
    _lease: Lease | None = None
    _free_at: int = 0
    """When the lease of whoever else leads runs out."""
    _resync_at: int = 0

    def update(self, streams: Iterable[str], now: int) -> None:  # noqa: ARG002 - a Part's; nothing here waits
        """Take note of what has changed in the world."""
        for stream in streams:
            noun, key = noun_and_key(stream)
            kind = KIND_OF_NOUN[noun].name if noun in KIND_OF_NOUN else ""
            if kind in KINDS_SEEN:
                self._look(kind, key)

    def step(self, now: int) -> int:
        """Sync what is queued, a batch at a time; answers how many objects were looked at."""
        if not self._leads(now):
            return 0
        self._requeue(now)
        batch = list(islice(self._queue, BATCH))
        for key in batch:
            del self._queue[key]
        syncs = [sync for key in batch if (sync := self._sync(key, now)) is not None]
        reach("controller.decided")
        self._write(syncs, now)
        return len(batch)

    def next_due(self) -> int | None:
        """When there is something to look at again; None: nothing waits."""
        waits = [*self._later.values()]
        if self._queue or self._later:
            # While another leads, nothing is done before its lease has run out.
            waits = [max(due, self._free_at) for due in (waits or [self._free_at])]
        return min(waits, default=None)

    def close(self) -> None:
        """Let another lead at once."""
        if self._lease is not None:
            release(self.database, self._lease)
            self._lease = None

    def _leads(self, now: int) -> bool:
        if self._lease is None or now > self._lease.until - LEASE_TTL * 2 // 3:
            was = self._lease
            self._lease = acquire(self.database, name=LEASE_NAME, holder=self.owner, now=now, ttl=LEASE_TTL)
            if self._lease is None:
                held = current(self.database, name=LEASE_NAME)
                self._free_at = now if held is None else held.until + 1
            elif was is None:
                # Whoever led before may have left anything half done.
                self._resync_at = 0
        return self._lease is not None

    def _requeue(self, now: int) -> None:
        if now >= self._resync_at:
            self._resync_at = now + RESYNC
            self._queue |= {(kind, key): None for kind in (CLAIM, VOLUME) for key in self._caches.keys(kind)}
        for key, due in tuple(self._later.items()):
            if due <= now:
                del self._later[key]
                self._queue[key] = None

    def _look(self, kind: str, key: str) -> None:
        state = self.world.states.get(stream_of(kind, key))
        if isinstance(state, ObjectState) and state.manifest is not None:
            if self._versions.get((kind, key)) == state.rv:
                # Only an assumption came or went, which is the scheduler's business.
                return
            self._versions[kind, key] = state.rv
            self._caches.store(kind, versioned(state))
            ours = self._written.pop(stream_of(kind, key), None) == state.rv
            if kind in (CLAIM, VOLUME) and not (ours and _is_at_rest(state.manifest)):
                self._queue[kind, key] = None
            return
        self._versions.pop((kind, key), None)
        self._written.pop(stream_of(kind, key), None)
        self._drop(kind, key)

    def _drop(self, kind: str, key: str) -> None:
        """The object is gone: what it pointed to is looked at, and what was said of it forgotten."""
        gone = self._caches.drop(kind, key)
        if gone is None or kind not in (CLAIM, VOLUME):
            return
        follow = after_claim_deleted(gone.value) if kind == CLAIM else after_volume_deleted(gone.value)
        if follow is not None:
            self._queue[follow.kind, follow.key] = None
        for what in [what for what in self._told if what[0] == gone.meta.uid]:
            del self._told[what]

    def _sync(self, key: Key, now: int) -> _Sync | None:
        """Run the tables for one object; None where there is nothing to write."""
        sync = _Sync(key)
        try:
            for steps in self._steps(key, sync):
                drive(steps, lambda request: self._answer(request, sync, now))
        except (SyncError, ObjectError):
            # What was written until then stands, as it would have call by call; the rest is tried again.
            self._later[key] = now + RETRY
        return sync if sync.events or sync.notices else None

    def _steps(self, key: Key, sync: _Sync) -> Iterator[Steps[None]]:
        """One after the other, each on the object as the one before left it."""
        kind, name = key
        if kind == CLAIM:
            if (claim := self._caches.claim(name)) is not None:
                yield sync_claim(self._caches, claim, rules=self.rules)
        elif (volume := self._caches.volume(name)) is not None:
            yield sync_volume(self._caches, volume, rules=self.rules)
        for start in sync.operations:
            yield start.operation
        if kind == CLAIM:
            if (claim := self._caches.claim(name)) is not None:
                yield protect_claim(self._caches, claim)
        elif (volume := self._caches.volume(name)) is not None:
            yield protect_volume(volume)

    def _answer(self, request: Request, sync: _Sync, now: int) -> Any:
        if isinstance(request, Update):
            return self._update(request, sync)
        if isinstance(request, Notice):
            sync.notices.append(request)
            return None
        if isinstance(request, Enqueue):
            self._queue[request.kind, request.key] = None
            return None
        if isinstance(request, Start):
            sync.operations.append(request)
            return None
        return self._answer_rare(request, sync, now)

    def _answer_rare(self, request: Request, sync: _Sync, now: int) -> Any:
        if isinstance(request, LiveGet):
            stream = stream_of(request.kind, request.key)
            state = self.world.states.get(stream)
            # As live as can be: the command is refused if it is no longer so when it is carried out.
            sync.versions.setdefault(stream, state.rv if isinstance(state, ObjectState) else 0)
            return versioned(state) if isinstance(state, ObjectState) else None
        if isinstance(request, LivePods):
            prefix = f"pod/{request.namespace}/"
            return [
                versioned(state)
                for stream, state in self.world.states.items()
                if stream.startswith(prefix) and isinstance(state, ObjectState)
            ]
        if isinstance(request, Create):
            stream = stream_of(request.kind, key_of(request.manifest))
            uid, now_text = f"pv-{key_of(request.manifest)}", rfc3339(now)
            event = create_object(
                self.world.states.get(stream), KINDS[request.kind], request.manifest, uid=uid, now=now_text
            )
            return self._note(request.kind, event, sync)
        if isinstance(request, Delete):
            stream = stream_of(request.kind, request.key)
            state = self.world.states.get(stream)
            deletion = delete_object(state, KINDS[request.kind], request.key, now=rfc3339(now), uid=request.uid)
            return None if deletion is None else self._note(request.kind, deletion, sync)
        raise SyncError(f"{type(request).__name__} needs a provisioner, and this controller has none")

    def _update(self, request: Update, sync: _Sync) -> Manifest:
        """As an object store would: a main update leaves the status alone, a status update all the rest."""
        key = key_of(request.manifest)
        held = self._caches.claim(key) if request.kind == CLAIM else self._caches.volume(key)
        old = {} if held is None else held.manifest
        if request.status:
            new = {**old, "status": request.manifest.get("status", {})}
        else:
            new = {**request.manifest, "status": old.get("status", {})}
        stream = stream_of(request.kind, key)
        title = TITLES[NOUN_OF_KIND[request.kind]]
        if "deletionTimestamp" in metadata(new) and not metadata(new).get("finalizers"):
            self._note(request.kind, NewEvent(stream=stream, type=f"{title}Deleted"), sync)
            return new
        patch = difference(old, new)
        if not patch:
            return old
        return self._note(
            request.kind, NewEvent(stream=stream, type=f"{title}Changed", data={"patch": patch}), sync
        )

    def _note(self, kind: str, event: NewEvent, sync: _Sync) -> Manifest:
        """Remember a write, and let the caches show it as done."""
        key = noun_and_key(event.stream)[1]
        held = self._caches.claim(key) if kind == CLAIM else self._caches.volume(key)
        seen = 0 if held is None else int(held.meta.resource_version or 0)
        sync.versions.setdefault(event.stream, seen)
        sync.events.append(event)
        if event.type.endswith("Deleted"):
            self._drop(kind, key)
            return {} if held is None else held.manifest
        stored = merged({} if held is None else held.manifest, event.data["patch"])
        self._caches.store(kind, stored)
        return stored

    def _write(self, syncs: Sequence[_Sync], now: int) -> None:
        if not syncs:
            return
        try:
            outcomes: Sequence[object] = execute(
                self.database, [self._command(sync, now) for sync in syncs], now=now
            )
        except Exception:
            # Nobody knows what was committed. The log does, so nothing that the caches show of it is believed.
            for sync in syncs:
                self._take_back(sync, now)
            raise
        for sync, outcome in zip(syncs, outcomes, strict=True):
            if isinstance(outcome, Done):
                first = outcome.position - outcome.events + 1
                self._written |= {event.stream: first + place for place, event in enumerate(sync.events)}
            else:
                self._take_back(sync, now)
        reach("controller.written")

    def _take_back(self, sync: _Sync, now: int) -> None:
        """Somebody else wrote first: what the caches show of this sync never happened."""
        self._later[sync.key] = now
        for stream in sync.versions:
            self._forget(stream)
        for notice in sync.notices:
            self._told.pop((notice.uid, notice.reason, notice.message), None)

    def _forget(self, stream: str) -> None:
        noun, key = noun_and_key(stream)
        kind = KIND_OF_NOUN[noun].name
        self._caches.drop(kind, key)
        self._versions.pop((kind, key), None)
        self._look(kind, key)

    def _command(self, sync: _Sync, now: int) -> Command:
        told = [notice for notice in sync.notices if self._is_news(notice, now)]
        places = [notice_stream(it.kind, it.key, it.uid, it.reason, it.message) for it in told]

        def decide(states: States) -> Decision:
            for stream, version in sync.versions.items():
                state = states.get(stream)
                if (state.rv if isinstance(state, ObjectState) else 0) != version:
                    raise ConflictError(f"{stream} was changed by somebody else")
            said = [
                notice_event(
                    states.get(place), place, kind=it.kind, key=it.key, uid=it.uid, type_=it.type,
                    reason=it.reason, message=it.message, component=COMPONENT, now=rfc3339(now),
                )
                for it, place in zip(told, places, strict=True)
            ]  # fmt: skip
            return Decision(events=(*sync.events, *said))

        assert self._lease is not None
        streams = tuple({*(event.stream for event in sync.events), *sync.versions, *places})
        return Command(actor=self.owner, streams=streams, decide=decide, lease=self._lease.proof)

    def _is_news(self, notice: Notice, now: int) -> bool:
        """The tables tell at every sync what still holds; that is written down once, and again after a while."""
        what = (notice.uid, notice.reason, notice.message)
        last = self._told.get(what)
        if last is None and notice.patience_seconds:
            self._told[what] = now - TELL_AGAIN + notice.patience_seconds * SECOND
            return False
        if last is not None and now - last < TELL_AGAIN:
            return False
        self._told[what] = now
        return True


def _is_at_rest(manifest: Manifest) -> bool:
    """Bound, by our own hand, and nothing asked of it: to look again would only find that."""
    bound = status(manifest).get("phase") == "Bound"
    return bound and not is_being_deleted(manifest) and ROLLBACK not in annotations(manifest)
