"""The pools of pods that wait for a node, how a pod moves between them, and which pods a change may help."""

import heapq
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from volsched.kube.workloads import Pod
from volsched.scheduling.queue.entry import ALL, SECOND, USUAL, Entry, Pool, QueueWaits, Share, asks_otherwise
from volsched.scheduling.queue.hints import are_known, helps, hints_for
from volsched.scheduling.queue.object_changes import Aspects, ObjectChange, aspects_of, claim_concerned
from volsched.scheduling.rules.failure_memory import REJECTED_NODES
from volsched.scheduling.rules.pod_claims import claim_uses
from volsched.scheduling.rules.snapshot import Snapshot

# The pool of pods that found no node, indexed so that a change finds the pods it may help without a full scan.

_Group = TypeVar("_Group", bound=Hashable)


@dataclass(slots=True)
class Unschedulable:
    _by_rejectors: dict[frozenset[str], dict[str, Entry]] = field(default_factory=dict)
    """Lets a change that concerns none of a set's plugins skip all its pods at once."""
    _by_claim: dict[str, dict[str, Entry]] = field(default_factory=dict)
    """Pods by claim: most changes are of claims and volumes that belong to one pod."""

    def __bool__(self) -> bool:
        return bool(self._by_rejectors)

    def __iter__(self) -> Iterator[Entry]:
        return (entry for members in self._by_rejectors.values() for entry in members.values())

    def add(self, entry: Entry) -> None:
        key = entry.pod.key
        self._by_rejectors.setdefault(entry.rejectors, {})[key] = entry
        for use in claim_uses(entry.pod):
            self._by_claim.setdefault(use.key, {})[key] = entry

    def remove(self, entry: Entry) -> None:
        _take(self._by_rejectors, entry.rejectors, entry.pod.key)
        for claim in {use.key for use in claim_uses(entry.pod)}:
            _take(self._by_claim, claim, entry.pod.key)

    def concerned(self, change: ObjectChange, aspects: Aspects) -> list[Entry]:
        """The pods whose hints are worth calling for the change."""
        claim = claim_concerned(change)
        users = None if claim is None else self._by_claim.get(claim, {})
        entries: list[Entry] = []
        for rejectors, members in self._by_rejectors.items():
            if not hints_for(rejectors, aspects):
                continue
            if users is None or not are_known(rejectors):
                entries += members.values()
            else:
                entries += (members[key] for key in users if key in members)
        return entries


def _take(groups: dict[_Group, dict[str, Entry]], group: _Group, key: str) -> None:
    del groups[group][key]
    if not groups[group]:
        del groups[group]


# ```
#  offer ─► active ── take ──► in flight ── planned ──► (open binding; comes back with back-off if that fails)
#             ▲                   │ rejected, put off           │ failed, late too often
#             │ a hint, 5 minutes ▼                             ▼
#             └────────── unschedulable ── still backing off ─► backing off ── back-off over ─► active
# ```
#
# Changes that happen while pods are in flight are recorded: a pod that is then rejected checks those first,
# because they may be exactly what it would wait for.

SCAN_EVERY = 30 * SECOND
MOST_LATE = 3
"""Plans that may come too late in a row before their pod backs off."""


@dataclass(slots=True)
class Queue:
    share: Share = ALL
    waits: QueueWaits = USUAL
    _entries: dict[str, Entry] = field(default_factory=dict)
    _active: list[tuple[int, int, str, int]] = field(default_factory=list)
    _backing_off: list[tuple[int, str, int]] = field(default_factory=list)
    _unschedulable: Unschedulable = field(default_factory=Unschedulable)
    _in_flight: int = 0
    _recorded: list[ObjectChange] = field(default_factory=list)
    _tickets: int = 0
    _scan_at: int = 0

    @property
    def listens(self) -> bool:
        """Whether a change could matter to any pod."""
        return bool(self._unschedulable) or self._in_flight > 0

    def __contains__(self, key: str) -> bool:
        return key in self._entries

    def pool_of(self, key: str) -> Pool | None:
        entry = self._entries.get(key)
        return None if entry is None else entry.pool

    def is_undecided(self, key: str) -> bool:
        """Whether the pod waits for its first attempt."""
        entry = self._entries.get(key)
        return (
            entry is not None
            and entry.pool is Pool.ACTIVE
            and not (entry.rejections or entry.errors or entry.late)
        )

    def offer(self, pod: Pod, now: int) -> None:
        """Add or update a pod that needs a node: it is new, was changed, or its binding failed."""
        entry = self._entry_of(pod)
        if entry is None:
            # A node has just rejected it; the cause may take a moment to go away.
            errors = 1 if pod.meta.annotations.get(REJECTED_NODES) else 0
            entry = self._entries[pod.key] = Entry(pod, Pool.PLANNED, now, errors=errors)
            self._wait_or_go(entry, now)
        elif entry.pool is Pool.PLANNED:
            entry.pod = pod
            self._fail(entry, now)
        else:
            self._change(entry, pod, now)

    def planned(self, pod: Pod) -> None:
        """Record that the pod has an open binding, of ours or of another scheduler."""
        entry = self._entry_of(pod)
        if entry is None:
            self._entries[pod.key] = Entry(pod, Pool.PLANNED, 0)
            return
        self._leave(entry)
        entry.pod, entry.pool, entry.late = pod, Pool.PLANNED, 0

    def forget(self, key: str) -> None:
        """Remove a pod that is deleted, bound, or not ours to place."""
        entry = self._entries.pop(key, None)
        if entry is not None:
            self._leave(entry)

    def take(self, now: int) -> Pod | None:
        """The next pod to decide; it is in flight until its outcome is reported."""
        self._wake_due(now)
        while self._active:
            *_, key, ticket = heapq.heappop(self._active)
            if ticket == self._ticket(key, Pool.ACTIVE):
                entry = self._entries[key]
                entry.pool, entry.recorded_from, entry.changed = Pool.IN_FLIGHT, len(self._recorded), False
                self._in_flight += 1
                return entry.pod
        return None

    def rejected(self, key: str, rejectors: frozenset[str], snapshot: Snapshot, now: int) -> None:
        """Record that no node accepts the pod. Changes during the decision are checked first."""
        entry = self._landed(key)
        if entry is None:
            return
        entry.rejections, entry.errors, entry.late = entry.rejections + 1, 0, 0
        entry.rejectors, entry.since, entry.awaited = rejectors, now, True
        self._set_aside(entry, snapshot, now)
        self._clear_recorded()

    def put_off(self, key: str, waits_for: frozenset[str], snapshot: Snapshot, now: int) -> None:
        """Record that there is a node, but the pod's volumes there are not ready. The pod waits for these plugins'
        hints like a rejected pod; as it was not rejected, it is active at once when a hint says yes."""
        entry = self._landed(key)
        if entry is not None:
            entry.rejections, entry.errors, entry.late = 0, 0, 0
            entry.rejectors, entry.since = waits_for, now
            self._set_aside(entry, snapshot, now)
        self._clear_recorded()

    def failed(self, key: str, now: int, *, awaited: bool = True) -> None:
        """Record that the attempt failed: no hint can help, so the pod backs off."""
        entry = self._landed(key)
        if entry is not None:
            self._fail(entry, now, awaited=awaited)
        self._clear_recorded()

    def late(self, key: str, now: int) -> None:
        """Record that another writer invalidated the pod's plan: decide again at once, on the new state."""
        entry = self._landed(key)
        if entry is not None:
            entry.late += 1
            if entry.late <= MOST_LATE:
                self._activate(entry)
            else:
                entry.late = 0
                self._fail(entry, now)
        self._clear_recorded()

    def returned(self, key: str) -> None:
        """Return a pod whose outcome is unknown: it keeps its place."""
        entry = self._landed(key)
        if entry is not None:
            self._activate(entry)
        self._clear_recorded()

    def happened(self, changes: Sequence[ObjectChange], snapshot: Snapshot, now: int) -> None:
        """Wake the pods that the changes may help, and record the changes for pods in flight."""
        if self._in_flight:
            self._recorded += changes
        for change in changes if self._unschedulable else ():
            aspects = aspects_of(change)
            for entry in self._unschedulable.concerned(change, aspects) if aspects else ():
                if self._is_helped(entry, change, aspects, snapshot):
                    self._leave(entry)
                    self._wait_or_go(entry, now)

    def next_due(self) -> int | None:
        """The time at which a pod is due without any change: 0 for at once, None for never.

        Pods in the unschedulable pool do not count, nor those with the same error twice: they are retried in time,
        but the caller need not wait for it.
        """
        active = (ticket == self._ticket(key, Pool.ACTIVE) for *_, key, ticket in self._active)
        if any(active):
            return 0
        waits = (
            expiry
            for expiry, key, ticket in self._backing_off
            if ticket == self._ticket(key, Pool.BACKING_OFF) and self._entries[key].awaited
        )
        return min(waits, default=None)

    def counts(self) -> dict[Pool, int]:
        """How many pods are in each pool."""
        counts = dict.fromkeys(Pool, 0)
        for entry in self._entries.values():
            counts[entry.pool] += 1
        return counts

    def _entry_of(self, pod: Pod) -> Entry | None:
        """The entry of this pod; one recreated under the same name is another pod."""
        entry = self._entries.get(pod.key)
        if entry is not None and entry.pod.meta.uid != pod.meta.uid:
            self.forget(pod.key)
            return None
        return entry

    def _change(self, entry: Entry, pod: Pod, now: int) -> None:
        otherwise, before = asks_otherwise(entry.pod, pod), entry.pod
        if entry.pool is Pool.UNSCHEDULABLE and otherwise:
            self._leave(entry)
            entry.pod = pod
            self._wait_or_go(entry, now)
            return
        entry.pod = pod
        if entry.pool is Pool.IN_FLIGHT:
            entry.changed = entry.changed or otherwise
        elif entry.pool is Pool.ACTIVE and before.priority != pod.priority:
            self._activate(entry)

    def _set_aside(self, entry: Entry, snapshot: Snapshot, now: int) -> None:
        missed = self._recorded[entry.recorded_from :]
        if entry.changed or any(self._is_helped(entry, it, aspects_of(it), snapshot) for it in missed):
            self._wait_or_go(entry, now)
        else:
            entry.pool = Pool.UNSCHEDULABLE
            self._unschedulable.add(entry)

    def _is_helped(self, entry: Entry, change: ObjectChange, aspects: Aspects, snapshot: Snapshot) -> bool:
        return bool(aspects) and helps(hints_for(entry.rejectors, aspects), change, entry.pod, snapshot)

    def _fail(self, entry: Entry, now: int, *, awaited: bool = True) -> None:
        entry.errors, entry.since, entry.awaited = entry.errors + 1, now, awaited
        entry.rejectors = frozenset()
        self._wait_or_go(entry, now)

    def _wait_or_go(self, entry: Entry, now: int) -> None:
        not_before = entry.not_before(self.waits)
        if not_before <= now:
            self._activate(entry)
            return
        entry.pool, entry.ticket = Pool.BACKING_OFF, self._next_ticket()
        heapq.heappush(self._backing_off, (not_before, entry.pod.key, entry.ticket))

    def _activate(self, entry: Entry) -> None:
        entry.pool, entry.ticket = Pool.ACTIVE, self._next_ticket()
        pod = entry.pod
        turn = self.share.turn(pod.meta.uid, entry.since)
        heapq.heappush(self._active, (-pod.priority, turn, pod.key, entry.ticket))

    def _wake_due(self, now: int) -> None:
        while self._backing_off and self._backing_off[0][0] <= now:
            _, key, ticket = heapq.heappop(self._backing_off)
            if ticket == self._ticket(key, Pool.BACKING_OFF):
                self._activate(self._entries[key])
        if now >= self._scan_at:
            self._scan_at = now + min(SCAN_EVERY, self.waits.unschedulable)
            for entry in [it for it in self._unschedulable if now - it.since >= self.waits.unschedulable]:
                self._leave(entry)
                self._activate(entry)

    def _leave(self, entry: Entry) -> None:
        """Remove it from its pool; its heap entries become void when its pool or ticket changes."""
        if entry.pool is Pool.UNSCHEDULABLE:
            self._unschedulable.remove(entry)
        elif entry.pool is Pool.IN_FLIGHT:
            self._in_flight -= 1
            self._clear_recorded()

    def _landed(self, key: str) -> Entry | None:
        entry = self._entries.get(key)
        if entry is None or entry.pool is not Pool.IN_FLIGHT:
            return None
        self._in_flight -= 1
        return entry

    def _clear_recorded(self) -> None:
        if not self._in_flight:
            self._recorded.clear()

    def _ticket(self, key: str, pool: Pool) -> int | None:
        entry = self._entries.get(key)
        return entry.ticket if entry is not None and entry.pool is pool else None

    def _next_ticket(self) -> int:
        self._tickets += 1
        return self._tickets
