"""The PV controller's loop: look at every claim and volume that changed, and do what the tables say.

Level-triggered and exclusive: one controller acts at a time, under a lease whose epoch is checked with every
write. On our own log the writes of a sync are one command, so the four writes of a binding are seen together or
not at all. Everything is looked at again now and then, so a lost or failed sync is only late.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from uuid import uuid4

from volsched.kube.manifest import Manifest, annotations, claim_is_bound, is_being_deleted, spec, status
from volsched.kube.meta import ROLLBACK
from volsched.kube.workloads import Pod
from volsched.log.commands import Done, RejectedError
from volsched.log.database import Database
from volsched.log.events.fold import ObjectState
from volsched.log.events.streams import KIND_OF_NOUN, noun_and_key, stream_of
from volsched.log.leases import Lease, acquire, current, release
from volsched.log.transaction import execute
from volsched.provisioning.host import Keeper
from volsched.provisioning.protocol import Provisioner
from volsched.pv_controller.notice_throttle import Said
from volsched.pv_controller.operations import Key, Operations
from volsched.pv_controller.rules import (
    CLAIM,
    KINDS_SEEN,
    VOLSCHED,
    VOLUME,
    Caches,
    ControllerRules,
    Held,
    Steps,
    SyncError,
    after_claim_deleted,
    after_volume_deleted,
    drive,
    protect_claim,
    protect_volume,
    sync_claim,
    sync_volume,
)
from volsched.pv_controller.sync import Sync
from volsched.runtime.clock import SECOND
from volsched.runtime.fault_points import reach
from volsched.runtime.world import World
from volsched.scheduling.rules.pod_claims import claim_uses

LEASE_NAME = "controller"
POD = "Pod"
LEASE_TTL = 15 * SECOND
RESYNC = 15 * SECOND
RETRY = 1 * SECOND
BATCH = 512


@dataclass(slots=True)
class Controller:
    database: Database
    world: World
    owner: str
    rules: ControllerRules = VOLSCHED
    provisioners: Sequence[Provisioner] = ()
    new_uid: Callable[[], str] = lambda: str(uuid4())
    _caches: Caches = field(default_factory=Caches)
    _queue: dict[Key, None] = field(default_factory=dict)
    _first: dict[Key, None] = field(default_factory=dict)
    """Volumes without a phase, and claims that ask for one of them by name. They are looked at before all others,
    so that a claim that came with its volume finds it, in whatever order they came."""
    _askers: dict[str, dict[str, None]] = field(default_factory=dict)
    """Volume → claims that asked for it by name when they were last looked at."""
    _later: dict[Key, int] = field(default_factory=dict)
    _said: Said = field(default_factory=Said)
    _versions: dict[Key, int] = field(default_factory=dict)
    """What of the world is in the caches."""
    _written: dict[str, int] = field(default_factory=dict)
    """Stream → the version that our own last write gave it."""
    _lease: Lease | None = None
    _free_at: int = 0
    """When the lease of whoever else leads runs out; it may be over before that."""
    _resync_at: int = 0
    _operations: Operations = field(init=False)
    _keeper: Keeper = field(init=False)

    def __post_init__(self) -> None:
        known = {it.plugin.name: it for it in self.provisioners}
        self.rules = replace(self.rules, plugins={name: it.plugin for name, it in known.items()})
        self._keeper = Keeper(self.database, self.world, self.owner, known, self.new_uid)
        self._operations = Operations(
            self.database,
            self.owner,
            known,
            new_uid=self.new_uid,
            said=self._said,
            look_again=self._look_later,
            in_doubt=self._keeper.suspect,
        )

    def update(self, streams: Iterable[str], now: int) -> None:  # noqa: ARG002 - a Part's; nothing here waits
        """Take note of what has changed in the world."""
        streams = tuple(streams)
        self._keeper.update(streams)
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
        queue = self._first or self._queue
        # Claims before volumes: what was asked for by name is never free.
        batch = sorted(islice(queue, BATCH), key=_claims_first) if self._first else list(islice(queue, BATCH))
        for key in batch:
            del queue[key]
        syncs = [sync for key in batch if (sync := self._sync(key, now)) is not None]
        reach("controller.decided")
        self._write([sync for sync in syncs if sync.events or sync.notices], now)
        for sync in syncs:
            # One that has written is followed by another, which sees the objects as they are then.
            for start in () if sync.events else sync.operations:
                self._operations.start(start, sync.key, now)
        return len(batch) + self._work(now)

    def next_due(self) -> int | None:
        """When there is something to look at again; None: nothing waits."""
        working = (self._operations.next_due(), self._keeper.next_due())
        waits = [*self._later.values(), *(due for due in working if due is not None)]
        if self._queue or self._first or waits:
            # While another leads, nothing is done before its lease has run out.
            waits = [max(due, self._free_at) for due in (waits or [self._free_at])]
        return min(waits, default=None)

    def close(self) -> None:
        """Let another lead at once."""
        self._operations.clear()
        if self._lease is not None:
            release(self.database, self._lease)
            self._lease = None

    def _work(self, now: int) -> int:
        """What provisioners do, and what is told of them."""
        assert self._lease is not None
        proof = self._lease.proof
        progress = self._operations.step(now, proof)
        return progress + self._keeper.step(now, busy=self._operations.making, lease=proof)

    def _leads(self, now: int) -> bool:
        # Also after our clock went back: what we have written with it would else be all that others see of us.
        late = self._lease is None or not 0 <= self._lease.until - now - LEASE_TTL * 2 // 3 <= LEASE_TTL // 3
        if late:
            was = self._lease
            self._lease = acquire(self.database, name=LEASE_NAME, holder=self.owner, now=now, ttl=LEASE_TTL)
            if self._lease is None:
                self._operations.clear()
                held = current(self.database, name=LEASE_NAME)
                self._free_at = now if held is None else min(held.until + 1, now + LEASE_TTL)
            elif was is None or was.epoch != self._lease.epoch:
                # Whoever led before may have left anything half done; what ran here began on what was so then.
                self._operations.clear()
                self._resync_at = 0
                self._keeper.begin()
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
        stream = stream_of(kind, key)
        state, found = self.world.states.get(stream), self.world.read(stream)
        if isinstance(state, ObjectState) and state.manifest is not None and found is not None:
            if self._versions.get((kind, key)) == state.rv:
                # Only an assumption came or went, which is the scheduler's business.
                return
            before = self._caches.held(kind, key)
            if before is not None and before.meta.uid != found[1].meta.uid:
                # Made anew under its name, before anybody saw that the one before it was gone.
                self._drop(kind, key)
            elif before is not None and kind == POD:
                self._release_claims(before.value)
            if kind == POD and isinstance(found[1], Pod) and not found[1].node_name:
                self._await_pod(found[1])
            self._versions[kind, key] = state.rv
            self._caches.put(kind, Held(*found))
            ours = self._written.pop(stream_of(kind, key), None) == state.rv
            if kind in (CLAIM, VOLUME) and not (ours and _is_at_rest(state.manifest)):
                self._enqueue(kind, key, state.manifest)
            return
        self._versions.pop((kind, key), None)
        self._written.pop(stream_of(kind, key), None)
        self._queue.pop((kind, key), None)
        self._first.pop((kind, key), None)
        self._later.pop((kind, key), None)
        self._drop(kind, key)

    def _enqueue(self, kind: str, key: str, manifest: Manifest) -> None:
        if kind == VOLUME and not status(manifest).get("phase"):
            self._first |= {(CLAIM, asker): None for asker in self._askers.pop(key, ())}
            self._first[kind, key] = None
            return
        named = spec(manifest).get("volumeName") if kind == CLAIM and not claim_is_bound(manifest) else None
        if named:
            self._askers.setdefault(named, {})[key] = None
        volume = self._caches.volume(named) if named else None
        asks = volume is not None and not volume.value.phase
        (self._first if asks else self._queue)[kind, key] = None

    def _drop(self, kind: str, key: str) -> None:
        """The object is gone: what it pointed to is looked at, and what was said of it forgotten."""
        gone = self._caches.drop(kind, key)
        if gone is not None and isinstance(gone.value, Pod):
            self._release_claims(gone.value)
        if gone is None or kind not in (CLAIM, VOLUME):
            return
        follow = after_claim_deleted(gone.value) if kind == CLAIM else after_volume_deleted(gone.value)
        if follow is not None:
            self._queue[follow.kind, follow.key] = None
        self._said.forget(gone.meta.uid)
        self._operations.forget((kind, key))

    def _release_claims(self, pod: Pod) -> None:
        """Claims that are being deleted may have waited for this pod to go, to end or to lose its node."""
        for use in claim_uses(pod):
            claim = self._caches.claim(use.key)
            if claim is not None and claim.meta.being_deleted:
                self._queue[CLAIM, use.key] = None

    def _await_pod(self, pod: Pod) -> None:
        """Claims that wait for a consumer are told of it with the next resync, if it still waits then."""
        for use in claim_uses(pod):
            claim = self._caches.claim(use.key)
            if claim is not None and claim.value.volume_name == "":
                self._later.setdefault((CLAIM, use.key), self._resync_at)

    def _look_later(self, key: Key, at: int) -> None:
        self._later[key] = min(at, self._later.get(key, at))

    def _sync(self, key: Key, now: int) -> Sync | None:
        """Run the tables for one object; None where there is nothing to be done."""
        sync = Sync(key, self.world, self._caches, self._drop)
        for steps in self._steps(key):
            try:
                drive(steps, sync.answer)
            except (SyncError, RejectedError):
                # What was written until then stands, as it would have call by call; the rest is tried again.
                self._later[key] = now + RETRY
        self._queue |= {(it.kind, it.key): None for it in sync.enqueued}
        return sync if sync.events or sync.notices or sync.operations else None

    def _steps(self, key: Key) -> Iterator[Steps[None]]:
        """One after the other, each on the object as the one before left it."""
        kind, name = key
        if kind == CLAIM:
            if (claim := self._caches.claim(name)) is not None:
                yield sync_claim(self._caches, claim, rules=self.rules)
            if (claim := self._caches.claim(name)) is not None:
                yield protect_claim(self._caches, claim)
        else:
            if (volume := self._caches.volume(name)) is not None:
                yield sync_volume(self._caches, volume, rules=self.rules)
            if (volume := self._caches.volume(name)) is not None:
                yield protect_volume(volume)

    def _write(self, syncs: Sequence[Sync], now: int) -> None:
        if not syncs:
            return
        assert self._lease is not None
        proof = self._lease.proof
        commands = [it.command(actor=self.owner, lease=proof, said=self._said, now=now) for it in syncs]
        try:
            outcomes: Sequence[object] = execute(self.database, commands, now=now)
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

    def _take_back(self, sync: Sync, now: int) -> None:
        """Somebody else wrote first: what the caches show of this sync never happened."""
        self._later[sync.key] = now
        for stream in sync.versions:
            self._forget(stream)
        self._said.take_back(sync.notices)

    def _forget(self, stream: str) -> None:
        noun, key = noun_and_key(stream)
        kind = KIND_OF_NOUN[noun].name
        self._caches.drop(kind, key)
        self._versions.pop((kind, key), None)
        self._look(kind, key)


def _claims_first(key: Key) -> bool:
    return key[0] != CLAIM


def _is_at_rest(manifest: Manifest) -> bool:
    """Bound, by our own hand, and nothing asked of it: to look again would only find that."""
    bound = status(manifest).get("phase") == "Bound"
    return bound and not is_being_deleted(manifest) and ROLLBACK not in annotations(manifest)
