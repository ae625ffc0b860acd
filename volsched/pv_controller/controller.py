"""The PV controller's loop: sync every claim and volume that changed, as the tables say.

Level-triggered and exclusive: one controller acts at a time, under a lease whose epoch is checked with every
write. On our own log the writes of a sync are one command, so the four writes of a binding are atomic. A periodic
resync covers all objects, so a lost or failed sync is only delayed.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from uuid import uuid4

from volsched.kube.manifest import Manifest, annotations, claim_is_bound, claim_of, is_being_deleted, spec, status
from volsched.kube.meta import ROLLBACK, SELECTED_NODE
from volsched.kube.storage import WAIT_FOR_FIRST_CONSUMER
from volsched.kube.workloads import Pod
from volsched.log.commands import Done, RejectedError
from volsched.log.database import Database
from volsched.log.events.fold import ObjectState
from volsched.log.events.streams import KIND_OF_NOUN, noun_and_key, stream_of
from volsched.log.leases import Lease, acquire, current, release
from volsched.log.transaction import execute
from volsched.provisioning.host import Keeper
from volsched.provisioning.protocol import Provisioner
from volsched.pv_controller.operations import Key, NoticeThrottle, Operations
from volsched.pv_controller.rules import (
    CLAIM,
    KINDS_SEEN,
    VOLSCHED,
    VOLUME,
    Caches,
    ControllerRules,
    ParsedObject,
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
TURN = 1_500
"""Objects at rest per resync. Their sync changes nothing, unless we have a defect; syncing all of 100,000 every
time would permanently take a tenth of a core."""
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
    is_undecided: Callable[[str], bool] = lambda _pod: False
    """Whether a scheduler in this process has the pod in its queue and has not tried it yet."""
    _caches: Caches = field(default_factory=Caches)
    _queue: dict[Key, None] = field(default_factory=dict)
    _first: dict[Key, None] = field(default_factory=dict)
    """Volumes without a phase, and claims that name one of them. They are synced before all others, so that a
    claim that was created together with its volume finds it, in either order.
    """
    _askers: dict[str, dict[str, None]] = field(default_factory=dict)
    """Volume → claims that named it when they were last seen."""
    _later: dict[Key, int] = field(default_factory=dict)
    _put_off: dict[str, str] = field(default_factory=dict)
    """Claim → the pod that must be decided first: until then the claim is not synced."""
    _throttle: NoticeThrottle = field(default_factory=NoticeThrottle)
    _versions: dict[Key, int] = field(default_factory=dict)
    """The versions of the world's objects that are in the caches."""
    _lease: Lease | None = None
    _free_at: int = 0
    """When the lease of the current leader expires; it may be released earlier."""
    _leader: Lease | None = None
    """The leader's lease as last read."""
    _is_led: bool = False
    """Whether the holder renews its lease: it was alive a few seconds ago."""
    _resync_at: int = 0
    """When the next resync is due; 0: sync all objects, because we have just begun to lead."""
    _restless: dict[Key, None] = field(default_factory=dict)
    """Claims and volumes that still change."""
    _turns: Iterator[Key] = field(default_factory=lambda: iter(()))
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
            throttle=self._throttle,
            sync_later=self._sync_later,
            in_doubt=self._keeper.suspect,
        )

    def update(self, streams: Iterable[str], now: int) -> None:  # noqa: ARG002 - a Part's; nothing here waits
        """Queue what has changed in the world."""
        streams = tuple(streams)
        self._keeper.update(streams)
        for stream in streams:
            noun, key = noun_and_key(stream)
            kind = KIND_OF_NOUN[noun].name if noun in KIND_OF_NOUN else ""
            if kind in KINDS_SEEN:
                self._update_object(kind, key)

    def step(self, now: int) -> int:
        """Sync a batch of queued objects; returns how many were synced."""
        if not self._leads(now):
            return 0
        self._requeue(now)
        queue = self._first or self._queue
        # Claims before volumes: a volume that a claim names is never offered as free.
        batch = sorted(islice(queue, BATCH), key=_claims_first) if self._first else list(islice(queue, BATCH))
        for key in batch:
            del queue[key]
        syncs = [sync for key in batch if (sync := self._sync(key, now)) is not None]
        reach("controller.decided")
        self._write([sync for sync in syncs if sync.events or sync.notices], now)
        for sync in syncs:
            # A sync that has written is followed by another, which reads the objects as written.
            for start in () if sync.events else sync.operations:
                self._operations.start(start, sync.key, now)
        return len(batch) + self._work(now)

    def next_due(self) -> int | None:
        """When the next object is due; None: nothing waits, or another process leads."""
        if self._is_led:
            return None
        working = (self._operations.next_due(), self._keeper.next_due())
        waits = [*self._later.values(), *(due for due in working if due is not None)]
        if self._queue or self._first or waits:
            # While another process leads, nothing is done before its lease has expired.
            waits = [max(due, self._free_at) for due in (waits or [self._free_at])]
        return min(waits, default=None)

    @property
    def leads(self) -> bool:
        return self._lease is not None

    def close(self) -> None:
        """Release the lease, so that another process can lead at once."""
        self._operations.clear()
        if self._lease is not None:
            release(self.database, self._lease)
            self._lease = None

    def _work(self, now: int) -> int:
        """Step the provisioners' operations and the publishing of their room."""
        assert self._lease is not None
        proof = self._lease.proof
        progress = self._operations.step(now, proof)
        return progress + self._keeper.step(now, busy=self._operations.creating, lease=proof)

    def _leads(self, now: int) -> bool:
        # Also after our clock went back: others would otherwise see only the lease that we wrote with the later
        # time.
        late = self._lease is None or not 0 <= self._lease.until - now - LEASE_TTL * 2 // 3 <= LEASE_TTL // 3
        if late:
            was = self._lease
            self._lease = acquire(self.database, name=LEASE_NAME, holder=self.owner, now=now, ttl=LEASE_TTL)
            if self._lease is None:
                self._operations.clear()
                leader = current(self.database, name=LEASE_NAME)
                self._free_at = now if leader is None else min(leader.until + 1, now + LEASE_TTL)
                self._is_led = leader is not None and self._is_renewed(leader, now)
                self._leader = leader
                return False
            self._is_led, self._leader = False, None
            if was is None or was.epoch != self._lease.epoch:
                # The previous leader may have left partial work; our own operations began on stale state.
                self._operations.clear()
                self._resync_at = 0
                self._keeper.begin()
        return self._lease is not None

    def _is_renewed(self, leader: Lease, now: int) -> bool:
        known = self._leader
        if known is None or (known.holder, known.epoch) != (leader.holder, leader.epoch):
            return False
        # A leader renews its lease after a third of its time.
        return (self._is_led or leader.until > known.until) and leader.until - now > LEASE_TTL // 2

    def _requeue(self, now: int) -> None:
        if now >= self._resync_at:
            keys = self._everything() if self._resync_at == 0 else self._due_for_resync()
            self._resync_at = now + RESYNC
            self._queue |= dict.fromkeys(keys)
        for key, due in tuple(self._later.items()):
            if due <= now:
                del self._later[key]
                self._queue[key] = None
        # Pods are decided in the order of their arrival. No claim is forgotten: the resync covers all.
        for claim, pod in tuple(islice(self._put_off.items(), BATCH)):
            if not self.is_undecided(pod):
                del self._put_off[claim]
                self._queue[CLAIM, claim] = None

    def _everything(self) -> list[Key]:
        return [(kind, key) for kind in (CLAIM, VOLUME) for key in self._caches.keys(kind)]

    def _due_for_resync(self) -> list[Key]:
        """All objects that still change, and the next ones of the others in rotation."""
        resting = list(islice(self._turns, TURN))
        if not resting:
            self._turns = iter(self._everything())
            resting = list(islice(self._turns, TURN))
        return [*self._restless, *resting]

    def _update_object(self, kind: str, key: str) -> None:
        stream = stream_of(kind, key)
        state, parsed = self.world.states.get(stream), self.world.read(stream)
        if isinstance(state, ObjectState) and state.manifest is not None and parsed is not None:
            if self._versions.get((kind, key)) == state.rv:
                # Only an assumption changed, which concerns the scheduler alone.
                return
            before = self._caches.object_of(kind, key)
            if before is not None and before.meta.uid != parsed[1].meta.uid:
                # Recreated under the same name before we saw the deletion.
                self._drop(kind, key)
            elif before is not None and kind == POD:
                self._release_claims(before.value)
            self._versions[kind, key] = state.rv
            self._caches.put(kind, ParsedObject(*parsed))
            if kind == CLAIM:
                self._put_off.pop(key, None)
            if kind in (CLAIM, VOLUME):
                self._note_rest((kind, key), state.manifest)
            ours = self.world.authors.get(stream) == self.owner
            if kind in (CLAIM, VOLUME) and not (ours and _is_at_rest(state.manifest)):
                self._enqueue(kind, key, state.manifest)
            return
        self._versions.pop((kind, key), None)
        self._queue.pop((kind, key), None)
        self._first.pop((kind, key), None)
        self._later.pop((kind, key), None)
        self._restless.pop((kind, key), None)
        if kind == CLAIM:
            self._put_off.pop(key, None)
        self._drop(kind, key)

    def _note_rest(self, key: Key, manifest: Manifest) -> None:
        if _is_at_rest(manifest) or _is_free(manifest):
            self._restless.pop(key, None)
        else:
            self._restless[key] = None

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
        """Remove a deleted object from the caches, sync the object that it pointed to, and forget its notices."""
        gone = self._caches.drop(kind, key)
        if gone is not None and isinstance(gone.value, Pod):
            self._release_claims(gone.value)
        if gone is None or kind not in (CLAIM, VOLUME):
            return
        follow = after_claim_deleted(gone.value) if kind == CLAIM else after_volume_deleted(gone.value)
        if follow is not None:
            self._queue[follow.kind, follow.key] = None
        self._throttle.forget(gone.meta.uid)
        self._operations.forget((kind, key))

    def _release_claims(self, pod: Pod) -> None:
        """Sync claims whose deletion may have waited for this pod to be deleted, end or lose its node."""
        for use in claim_uses(pod):
            claim = self._caches.claim(use.key)
            if claim is not None and claim.meta.being_deleted:
                self._queue[CLAIM, use.key] = None

    def _sync_later(self, key: Key, at: int) -> None:
        self._later[key] = min(at, self._later.get(key, at))

    def _sync(self, key: Key, now: int) -> Sync | None:
        """Run the tables for one object; None if there is nothing to do."""
        pod = self._decided_first(key[1]) if key[0] == CLAIM else None
        if pod is not None:
            self._put_off[key[1]] = pod
            return None
        sync = Sync(key, self.world.states, self.world.position, self._caches, self._drop)
        for steps in self._steps(key):
            try:
                drive(steps, sync.answer)
            except (SyncError, RejectedError):
                # Writes before the error are kept, as they would be call by call; the rest is retried.
                self._later[key] = now + RETRY
        self._queue |= {(it.kind, it.key): None for it in sync.enqueued}
        return sync if sync.events or sync.notices or sync.operations else None

    def _decided_first(self, name: str) -> str | None:
        """The pod that the claim waits for, if it was not decided yet: a sync could only report that."""
        claim = self._caches.claim(name)
        if claim is None or claim.value.volume_name or claim.meta.being_deleted:
            return None
        if not claim.meta.annotations.keys().isdisjoint((ROLLBACK, SELECTED_NODE)):
            return None
        pods = (pod.meta.key for pod in self._caches.pods_using(name))
        first = next((pod for pod in pods if self.is_undecided(pod)), None)
        if first is None or any(True for _ in self._caches.volumes_reserved_for(name)):
            return None
        class_ = self._caches.storage_class(claim.value.class_name or "")
        is_delayed = class_ is not None and class_.value.volume_binding_mode == WAIT_FOR_FIRST_CONSUMER
        return first if is_delayed else None

    def _steps(self, key: Key) -> Iterator[Steps[None]]:
        """The tables to run, one after the other, each on the result of the previous one."""
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
        commands = [it.command(actor=self.owner, lease=proof, throttle=self._throttle, now=now) for it in syncs]
        try:
            outcomes: Sequence[object] = execute(self.database, commands, now=now)
        except Exception:
            # The outcome of the commit is unknown, so the caches are reset from the log.
            for sync in syncs:
                self._take_back(sync, now)
            raise
        for sync, outcome in zip(syncs, outcomes, strict=True):
            if not isinstance(outcome, Done):
                self._take_back(sync, now)
        reach("controller.written")

    def _take_back(self, sync: Sync, now: int) -> None:
        """Remove the effects of a sync that was not committed from the caches."""
        self._later[sync.key] = now
        for stream in sync.versions:
            self._forget(stream)
        self._throttle.take_back(sync.notices)

    def _forget(self, stream: str) -> None:
        noun, key = noun_and_key(stream)
        kind = KIND_OF_NOUN[noun].name
        self._caches.drop(kind, key)
        self._versions.pop((kind, key), None)
        self._update_object(kind, key)


def _claims_first(key: Key) -> bool:
    return key[0] != CLAIM


def _is_at_rest(manifest: Manifest) -> bool:
    """Whether the object is bound and nothing is pending: another sync would change nothing."""
    bound = status(manifest).get("phase") == "Bound"
    return bound and not is_being_deleted(manifest) and ROLLBACK not in annotations(manifest)


def _is_free(manifest: Manifest) -> bool:
    """Whether a volume has no claim: only the sync of a claim can change that."""
    free = status(manifest).get("phase") == "Available" and claim_of(manifest) is None
    return free and not is_being_deleted(manifest)
