"""The scheduler's cluster view (picture): the world's objects as values, with unwritten decisions laid over them.

A volume, claim or pod of an open binding keeps its assumption even if the object changes meanwhile: a foreign
change makes the binding fail, and until it has failed no other plan may use what it holds.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from volsched.kube.object_values import Object
from volsched.kube.patches import merged
from volsched.kube.workloads import Pod
from volsched.log.database import Database
from volsched.log.events.fold import BindingState, ObjectState
from volsched.log.events.streams import BINDING, KIND_OF_NOUN, NOUN_OF_KIND, noun_and_key
from volsched.log.garbage_pause import collector_resting
from volsched.runtime.clock import SECOND
from volsched.runtime.world import World
from volsched.scheduling.capacity_ledger import HOLD_AT_MOST, CapacityLedger
from volsched.scheduling.index import Index
from volsched.scheduling.queue.object_changes import ObjectChange, aspects_of
from volsched.scheduling.rules.configuration import Configuration
from volsched.scheduling.rules.dynamic_volumes import PromisedCapacity, room_of_others
from volsched.scheduling.rules.failure_memory import Demerits, demerits, rejected_by_kubelet
from volsched.scheduling.rules.snapshot import FIELD_OF

NOUNS = frozenset(
    {"node", "namespace", "class", "volume", "claim", "pod", "driver", "csinode", "capacity", "attachment"}
)
"""The kinds that decisions read."""
_NOUN_OF_VALUE = {kind.value: NOUN_OF_KIND[kind.name] for kind in KIND_OF_NOUN.values()}
MANY = 1_000
"""Number of changed objects above which the index settles eagerly, and no garbage is collected meanwhile."""


@dataclass(slots=True)
class Picture:
    world: World
    index: Index = field(default_factory=Index)
    hold: int = HOLD_AT_MOST
    """How long room is held that a driver should have published as used, in microseconds."""
    owners: dict[str, str] = field(default_factory=dict)
    """Claim → the open binding that binds it."""
    planned: dict[str, str] = field(default_factory=dict)
    """Pod → the open binding that binds it."""
    changes: list[ObjectChange] | None = None
    """The picture's changes; None while no pod waits for one, to save the cost."""
    _nodes_changed: dict[str, int] = field(default_factory=dict)
    _rejecting: dict[str, str] = field(default_factory=dict)
    """Node → when its kubelet last rejected a pod. Kept longer than the pod, which its owner soon deletes."""
    _bindings: dict[str, BindingState] = field(default_factory=dict)
    _reserved: dict[str, int] = field(default_factory=dict)
    _imagined: dict[str, PromisedCapacity] = field(default_factory=dict)
    """The imagined room, by claim uid."""
    _shown: dict[str, tuple[int, str | None]] = field(default_factory=dict)
    """Stream → the version that the index shows, and the binding whose assumption lies over it."""

    _capacity_ledger: CapacityLedger = field(init=False)

    def __post_init__(self) -> None:
        self._capacity_ledger = CapacityLedger(self.world, self._reserve, self._room_of_others, self.hold)

    @classmethod
    def on(cls, database: Database, configuration: Configuration) -> "Picture":
        """A separate picture, for decisions outside the schedulers."""
        hold = configuration.capacity_hold_seconds * SECOND
        return cls(World(database), Index(profile=configuration.profile), hold)

    def catch_up(self, now: int) -> None:
        """Apply everything committed until now, and expire reserved capacity."""
        begins = self.world.position < 0
        self.update(self.world.catch_up())
        if begins:
            self.recall(now)
        self.expire(now)

    def recall(self, now: int) -> None:
        """Restore the reservations of bindings that ended before this process began."""
        self._capacity_ledger.recall(now)

    def expire(self, now: int) -> None:
        """Release reservations that were held long enough."""
        self._capacity_ledger.expire(now)

    def update(self, streams: Iterable[str]) -> dict[str, None]:
        """Read these streams again: they changed in the world, or were only imagined here.

        Returns them, and the streams of everything held by a binding that began or ended: only these show that a
        pod that was recreated under its name may be planned now.
        """
        touched = dict.fromkeys(streams)
        if len(touched) <= MANY:
            self._read_again(touched)
        else:
            # These objects are long-lived: the garbage collector would only walk all existing ones repeatedly.
            with collector_resting():
                self._read_again(touched)
                self.index.settle()
        return touched

    def _read_again(self, touched: dict[str, None]) -> None:
        for stream in tuple(touched):
            if stream.startswith(f"{BINDING}/"):
                touched |= dict.fromkeys(self._follow(noun_and_key(stream)[1]))
        for stream in touched:
            noun, key = noun_and_key(stream)
            if noun in NOUNS:
                self._update_object(stream, noun, key)
            if noun in ("volume", "capacity", "claim"):
                self._capacity_ledger.update(noun, key)

    def imagine(self, values: Iterable[Object], reserved: Mapping[str, PromisedCapacity]) -> None:
        """Lay a decision over the picture before it is planned; `update` with its streams removes it again."""
        for value in values:
            self._put(value)
            self._shown.pop(f"{_NOUN_OF_VALUE[type(value)]}/{value.meta.key}", None)
        for claim_uid, room in reserved.items():
            if claim_uid in self.index.snapshot.promised:
                # A claim gets one volume, however many pods wait for it.
                continue
            self._imagined[claim_uid] = room
            self.index.promise(claim_uid, room.capacity)
            self._show(room.capacity)

    def wake_up(self) -> None:
        """Remove everything imagined: it is planned by now, or refused."""
        imagined, self._imagined = self._imagined, {}
        for claim_uid, room in imagined.items():
            if not self._capacity_ledger.holds(claim_uid):
                self.index.promise(claim_uid, None)
            self._show(room.capacity)

    def note_room(self, capacities: Iterable[str]) -> None:
        """Report that less of these capacity objects is promised than before."""
        if self.changes is not None:
            known = self.index.snapshot.capacities
            self.changes += [
                ObjectChange(known[key], known[key], let_go=True) for key in capacities if key in known
            ]

    def rejecting_nodes(self, since: str) -> frozenset[str]:
        """Nodes whose kubelets rejected a pod after `since` (RFC 3339)."""
        if not self._rejecting:
            return frozenset()
        return frozenset(node for node, at in self._rejecting.items() if at > since)

    def demerits(self, pod: Pod, now: int) -> Demerits:
        """The demerits of nodes in a decision about the pod, from its failed bindings."""
        index = self.index
        return demerits(self.world.failures, index.snapshot, pod, profile=index.profile, now=now)

    def node_changed_at(self, name: str) -> int:
        """The position at which the node last changed in a way that decisions read; 0: not known.

        A heartbeat is no change. A write from before this process began counts as one.
        """
        return self._nodes_changed.get(name, 0)

    def _follow(self, binding: str) -> list[str]:
        """Read the state of a binding; returns the streams on which it may hold an assumption."""
        before, after = self._bindings.pop(binding, None), self.world.binding(binding)
        for state, sign in ((before, -1), (after, 1)):
            for leg in () if state is None else state.legs:
                if leg.owner and self.owners.get(leg.claim) in (None, binding):
                    _set(self.owners, leg.claim, binding if sign > 0 and leg.open else None)
            if state is not None:
                _set(self.planned, state.plan["pod"], binding if sign > 0 else None)
        if after is not None:
            self._bindings[binding] = after
        self._capacity_ledger.follow(binding, before, after)
        if before is not None and after is not None:
            # A leg that releases an object writes to the object's own stream.
            return []
        known = [state for state in (before, after) if state is not None]
        legs = [leg for state in known for leg in state.legs]
        return [
            *(f"pod/{state.plan['pod']}" for state in known),
            *(f"claim/{leg.claim}" for leg in legs),
            *(f"volume/{leg.volume}" for leg in legs if leg.volume is not None),
        ]

    def _reserve(self, claim_uid: str, capacity: str, change: int) -> None:
        _set(self._reserved, capacity, (self._reserved.get(capacity, 0) + change) or None)
        self.index.promise(claim_uid, capacity if change > 0 else None)
        self._show(capacity)
        if change < 0:
            self.note_room([capacity])

    def _room_of_others(self, claim: str) -> PromisedCapacity | None:
        value = self.index.snapshot.claim(claim)
        return None if value is None else room_of_others(self.index.snapshot, value, self.index.profile)

    def _show(self, capacity: str) -> None:
        imagined = sum(room.bytes for room in self._imagined.values() if room.capacity == capacity)
        self.index.reserve(capacity, self._reserved.get(capacity, 0) + imagined)

    def _update_object(self, stream: str, noun: str, key: str) -> None:
        state, parsed = self.world.states.get(stream), self.world.read(stream)
        if not isinstance(state, ObjectState) or parsed is None:
            self._shown.pop(stream, None)
            kind = KIND_OF_NOUN[noun].value
            if noun in ("node", "csinode"):
                self._nodes_changed[key] = self.world.position
            self._note(kind, key, None)
            self.index.drop(kind, key)
            return
        (manifest, value), overlay = parsed, state.assumed
        if overlay is not None and overlay.binding not in self._bindings:
            overlay = None
        shown = state.rv, None if overlay is None else overlay.binding
        if self._shown.get(stream) == shown:
            return
        self._shown[stream] = shown
        if noun == "pod" and (rejected := rejected_by_kubelet(manifest)) is not None:
            node, at = rejected
            self._rejecting[node] = max(at, self._rejecting.get(node, ""))
        if overlay is not None and (assumed := merged(manifest, overlay.patch)) != manifest:
            value = KIND_OF_NOUN[noun].read(assumed)
        if noun in ("node", "csinode"):
            before = getattr(self.index.snapshot, FIELD_OF[type(value)]).get(key)
            if before is None or aspects_of(ObjectChange(before, value)):
                self._nodes_changed[key] = state.rv
        self._put(value)

    def _put(self, value: Object) -> None:
        self._note(type(value), value.meta.key, value)
        self.index.put(value)

    def _note(self, kind: type[Object], key: str, after: Object | None) -> None:
        if self.changes is not None and kind in FIELD_OF:
            before = getattr(self.index.snapshot, FIELD_OF[kind]).get(key)
            if before is not None and after is not None and before.meta.uid != after.meta.uid:
                # Recreated since the last read: for waiting pods, one object was deleted and another created.
                self.changes += [ObjectChange(before, None), ObjectChange(None, after)]
            elif before is not None or after is not None:
                self.changes.append(ObjectChange(before, after))


def _set(mapping: dict[str, str] | dict[str, int], key: str, value: Any) -> None:
    if value is None:
        mapping.pop(key, None)
    else:
        mapping[key] = value


def read_object(noun: str, manifest: Mapping[str, Any], rv: int) -> Object:
    """The object as a value, at our own version."""
    metadata = {**manifest["metadata"], "resourceVersion": str(rv)}
    return KIND_OF_NOUN[noun].read({**manifest, "metadata": metadata})
