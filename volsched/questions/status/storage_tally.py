"""Running totals of volumes, claims and pods, kept up to date with the log, so that reading them is cheap.

The reader behind the watches follows the log anyway, and passes on every new state. A scrape then adds up a few
groups; counting a hundred thousand volumes would take seconds.
"""

import threading
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple

import orjson

from volsched.binding.rules.phases import Phase
from volsched.binding.rules.reasons import CHANGED, taken_object
from volsched.binding.rules.reasons import PROVISIONING_FAILED as NOT_PROVISIONED
from volsched.kube.manifest import annotations, has_gate, is_being_deleted, metadata, spec, status
from volsched.kube.meta import HOSTNAME, LEGACY_ZONE, SELECTED_NODE, ZONE, zone_of
from volsched.kube.quantity import INT64_MAX, QuantityError, parse_quantity
from volsched.kube.workloads import TERMINATED
from volsched.log.events.envelope import Event
from volsched.log.events.fold import BindingState, ObjectState, State
from volsched.log.events.streams import BINDING, noun_and_key, stream_of
from volsched.log.garbage_pause import collector_resting
from volsched.log.meters import WAIT_BOUNDS, TimeHistogram
from volsched.log.rows import class_name_of
from volsched.pv_controller.rules.reasons import PROVISIONING_FAILED
from volsched.questions.status.pending_reasons import pending_reason, shortened
from volsched.runtime.clock import SECOND, parse_rfc3339

FREE, RESERVED, BOUND = "free", "reserved", "bound"
NONE = "-"
"""Shown for a missing class or zone."""
MOST_REASONS = 30
OTHER = "other reasons"
"""All reasons beyond the first MOST_REASONS: a label must not have as many values as there are pods."""
COUNTED = ("node", "volume", "claim", "pod", "capacity")
"""Nouns in counting order: a claim's place is that of its volume."""
NOTICE = "notice"


class StoragePlace(NamedTuple):
    """The place of storage by its object: a zone, or a node, whose zone is looked up when the tally is read."""

    zone: str | None = None
    node: str | None = None


class VolumeGroup(NamedTuple):
    class_name: str
    place: StoragePlace
    phase: str
    use: str


class ClaimGroup(NamedTuple):
    class_name: str
    place: StoragePlace
    phase: str


class OpenPlan(NamedTuple):
    """The plan of a binding that has not ended."""

    at: int
    claims: tuple[str, ...]
    """Its claims, in the order of legs."""


class Pending(NamedTuple):
    reason: str
    since: int


Group = VolumeGroup | ClaimGroup


@dataclass(frozen=True, slots=True)
class StorageRow:
    """The storage of one class in one zone."""

    class_name: str
    zone: str
    kind: str
    """A phase, or a use."""
    count: int
    bytes: int


@dataclass(slots=True)
class StorageTally:
    bound_after: TimeHistogram = field(default_factory=lambda: TimeHistogram(WAIT_BOUNDS))
    """Times from a pod's creation until it had its node."""
    ended_after: dict[str, TimeHistogram] = field(default_factory=dict)
    """Outcome of a binding → times from its plan to its end."""
    rollbacks: Counter[str] = field(default_factory=Counter)
    """Number of rollbacks by reason, without names."""
    failed_provisionings: Counter[str] = field(default_factory=Counter)
    """Number of failures by class. A failure is counted by a notice about its claim or by the binding that it
    ends: a notice is not repeated within minutes, and a claim tried on several nodes fails on each of them."""
    conflicts: Counter[str] = field(default_factory=Counter)
    """Number of volumes and claims, by class, that another writer changed between our plan and our write."""
    _groups: dict[str, tuple[Group, int]] = field(default_factory=dict)
    """Stream of a volume, claim or capacity object → the group that it counts in, and its bytes."""
    _counts: dict[Group, list[int]] = field(default_factory=dict)
    """Group → the number of objects, and their bytes."""
    _capacities: dict[str, tuple[str, StoragePlace, int]] = field(default_factory=dict)
    _pending: dict[str, Pending] = field(default_factory=dict)
    _gated: dict[str, int] = field(default_factory=dict)
    """Pod behind our gate → when it was created."""
    _pods: Counter[str] = field(default_factory=Counter)
    """Number of pods by phase."""
    _pod_phases: dict[str, str] = field(default_factory=dict)
    _zones: dict[str, str | None] = field(default_factory=dict)
    """Node → its zone."""
    _planned: dict[str, OpenPlan] = field(default_factory=dict)
    _noticed: set[str] = field(default_factory=set)
    """Claims with a notice of failed provisioning since their last binding was planned."""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def begin(self, states: Mapping[str, State]) -> None:
        """Count all objects. Histograms and counters since the process started are kept."""
        with self._lock, collector_resting():
            self._forget()
            streams: dict[str, list[str]] = {}
            for stream in states:
                streams.setdefault(noun_and_key(stream)[0], []).append(stream)
            for noun in COUNTED:
                for stream in streams.get(noun, ()):
                    self._take(stream, states[stream], None)
            for stream in streams.get(BINDING, ()):
                state = states[stream]
                if isinstance(state, BindingState):
                    self._planned[stream] = OpenPlan(state.planned_at, _claims_of(state.plan))

    def follow(self, event: Event, state: State | None) -> None:
        """Take the next event; `state` is the object's state after it, None if the event is about no object."""
        with self._lock:
            if state is not None:
                self._take(event.stream, state, event)
            else:
                self._follow_binding(event)

    def _follow_binding(self, event: Event) -> None:
        if event.type == "BindingPlanned":
            plan = OpenPlan(event.at, _claims_of(orjson.loads(event.data)))
            self._planned[event.stream] = plan
            self._noticed.difference_update(plan.claims)
        elif event.type == "LegMoved" and CHANGED in event.data:
            self._follow_conflict(event)
        elif event.type == "BindingMoved":
            data = orjson.loads(event.data)
            if not data["open"]:
                self._observe_end(event, str(data["state"]))
            elif data["state"] == Phase.COMPENSATING:
                reason = shortened(str(data.get("reason") or NONE))
                is_counted = reason in self.rollbacks or len(self.rollbacks) < MOST_REASONS
                self.rollbacks[reason if is_counted else OTHER] += 1
                if NOT_PROVISIONED in reason:
                    self._not_provisioned(event.stream, data.get("leg"))

    def _not_provisioned(self, binding: str, leg: int | None) -> None:
        plan = self._planned.get(binding)
        claim = plan.claims[leg] if plan is not None and leg is not None and leg < len(plan.claims) else None
        if claim not in self._noticed:
            self._count_failure(claim)

    def _count_failure(self, claim: str | None) -> None:
        group = self._groups.get(f"claim/{claim}")
        self.failed_provisionings[group[0].class_name if group else NONE] += 1

    def _follow_conflict(self, event: Event) -> None:
        taken = taken_object(str(orjson.loads(event.data).get("reason") or ""))
        if taken is not None:
            group = self._groups.get(stream_of(*taken))
            self.conflicts[NONE if group is None else group[0].class_name] += 1

    def volumes_by_phase(self) -> list[StorageRow]:
        return self._rows(VolumeGroup, "phase")

    def volumes_by_use(self) -> list[StorageRow]:
        return self._rows(VolumeGroup, "use")

    def claims(self) -> list[StorageRow]:
        return self._rows(ClaimGroup, "phase")

    def room(self) -> list[StorageRow]:
        """The capacity for new volumes that provisioners publish (CSIStorageCapacity)."""
        totals: dict[tuple[str, str], list[int]] = {}
        with self._lock:
            for class_name, place, size in self._capacities.values():
                total = totals.setdefault((class_name, self._zone(place)), [0, 0])
                total[0] += 1
                total[1] += size
        return [
            StorageRow(*key, "room", count, min(size, INT64_MAX)) for key, (count, size) in sorted(totals.items())
        ]

    def pending(self) -> list[tuple[str, int]]:
        """The reasons why pods wait, with the number of pods; the most frequent first."""
        with self._lock:
            reasons = Counter(it.reason for it in self._pending.values())
        ranked = sorted(reasons.items(), key=lambda it: (-it[1], it[0]))
        others = sum(count for _, count in ranked[MOST_REASONS:])
        return ranked[:MOST_REASONS] + ([(OTHER, others)] if others else [])

    def oldest_pending(self) -> int | None:
        with self._lock:
            return min((it.since for it in self._pending.values()), default=None)

    def gated(self) -> tuple[int, int | None]:
        """Number of pods behind our gate, and since when the oldest waits."""
        with self._lock:
            return len(self._gated), min(self._gated.values(), default=None)

    def pods(self) -> dict[str, int]:
        with self._lock:
            return {phase: count for phase, count in sorted(self._pods.items()) if count}

    def _forget(self) -> None:
        self._groups.clear()
        self._counts.clear()
        self._capacities.clear()
        self._pending.clear()
        self._gated.clear()
        self._pods.clear()
        self._pod_phases.clear()
        self._zones.clear()
        self._planned.clear()
        self._noticed.clear()

    def _rows(self, kind: type[Group], label: str) -> list[StorageRow]:
        totals: dict[tuple[str, str, str], list[int]] = {}
        with self._lock:
            for group, (count, size) in self._counts.items():
                if isinstance(group, kind):
                    key = (group.class_name, self._zone(group.place), getattr(group, label))
                    total = totals.setdefault(key, [0, 0])
                    total[0] += count
                    total[1] += size
        return [StorageRow(*key, count, min(size, INT64_MAX)) for key, (count, size) in sorted(totals.items())]

    def _zone(self, place: StoragePlace) -> str:
        return place.zone or (place.node and self._zones.get(place.node)) or NONE

    def _take(self, stream: str, state: State, event: Event | None) -> None:
        noun, key = noun_and_key(stream)
        if not isinstance(state, ObjectState):
            return
        manifest = state.manifest
        if noun == "node":
            labels = metadata(manifest or {}).get("labels") or {}
            zone = zone_of(labels)
            # A volume names the node's hostname label, which is usually the node's name.
            self._zones[key] = self._zones[str(labels.get(HOSTNAME, key))] = zone
        elif noun == "volume":
            self._count(stream, None if manifest is None else (volume_group(state), _size(manifest, "capacity")))
        elif noun == "claim":
            self._count(stream, None if manifest is None else self._claim(manifest))
            if manifest is None:
                self._noticed.discard(key)
        elif noun == "pod":
            self._take_pod(stream, state, event)
        elif noun == "capacity":
            self._capacities.pop(stream, None)
            if manifest is not None:
                self._capacities[stream] = _room(manifest)
        elif noun == NOTICE and manifest is not None and manifest.get("reason") == PROVISIONING_FAILED:
            involved = manifest.get("involvedObject") or {}
            claim = f"{involved.get('namespace')}/{involved.get('name')}"
            self._count_failure(claim)
            self._noticed.add(claim)

    def _count(self, stream: str, contribution: tuple[Group, int] | None) -> None:
        before = self._groups.pop(stream, None)
        if before is not None:
            total = self._counts[before[0]]
            total[0] -= 1
            total[1] -= before[1]
            if not total[0]:
                del self._counts[before[0]]
        if contribution is not None:
            self._groups[stream] = contribution
            total = self._counts.setdefault(contribution[0], [0, 0])
            total[0] += 1
            total[1] += contribution[1]

    def _claim(self, manifest: Mapping[str, Any]) -> tuple[Group, int]:
        volume = self._groups.get(f"volume/{spec(manifest).get('volumeName')}")
        selected = annotations(manifest).get(SELECTED_NODE)
        place = volume[0].place if volume is not None else StoragePlace(node=selected)
        phase = str(status(manifest).get("phase") or "Pending")
        return ClaimGroup(class_name_of(manifest) or NONE, place, phase), _size(manifest, "resources", "requests")

    def _take_pod(self, stream: str, state: ObjectState, event: Event | None) -> None:
        manifest, before = state.manifest, self._pending.pop(stream, None)
        gated_since = self._gated.pop(stream, None)
        phase = self._pod_phases.pop(stream, None)
        if phase is not None:
            self._pods[phase] -= 1
        if manifest is None:
            return
        phase = self._pod_phases[stream] = str(status(manifest).get("phase") or "Pending")
        self._pods[phase] += 1
        if spec(manifest).get("nodeName"):
            if before is not None and event is not None:
                self.bound_after.observe(max(event.at - before.since, 0) / SECOND)
            return
        if phase in TERMINATED or is_being_deleted(manifest):
            return
        created = parse_rfc3339(str(metadata(manifest).get("creationTimestamp", ""))) or 0
        since = event.at if event is not None and event.type == "PodCreated" else created
        if has_gate(manifest):
            self._gated[stream] = since if gated_since is None else gated_since
        reason = pending_reason(manifest, in_flight=state.assumed is not None)
        self._pending[stream] = Pending(reason, since if before is None else before.since)

    def _observe_end(self, event: Event, outcome: str) -> None:
        planned = self._planned.pop(event.stream, None)
        if planned is not None:
            times = self.ended_after.setdefault(outcome, TimeHistogram(WAIT_BOUNDS))
            times.observe((event.at - planned.at) / SECOND)


def _claims_of(plan: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(str(leg["claim"]) for leg in plan.get("legs") or ())


def zone_label(manifest: Mapping[str, Any]) -> str | None:
    return zone_of(metadata(manifest).get("labels") or {})


def volume_group(state: ObjectState) -> VolumeGroup:
    manifest = state.manifest or {}
    phase = str(status(manifest).get("phase") or "Pending")
    is_taken = state.is_assumed or spec(manifest).get("claimRef") is not None
    use = FREE if phase == "Available" else phase.lower()
    if is_taken and phase in ("Available", "Pending"):
        use = RESERVED
    return VolumeGroup(class_name_of(manifest) or NONE, volume_place(manifest), phase, use)


def volume_place(manifest: Mapping[str, Any]) -> StoragePlace:
    """The only zone or node that the node affinity names; else the zone of the volume's label, if any."""
    required = (spec(manifest).get("nodeAffinity") or {}).get("required") or {}
    places: set[StoragePlace] = set()
    for term in required.get("nodeSelectorTerms") or ():
        for expression in term.get("matchExpressions") or ():
            if expression.get("operator") == "In" and expression.get("key") in (ZONE, LEGACY_ZONE, HOSTNAME):
                is_zone = expression["key"] != HOSTNAME
                places |= {
                    StoragePlace(zone=v) if is_zone else StoragePlace(node=v)
                    for v in expression.get("values") or ()
                }
    if len(places) == 1:
        return places.pop()
    zones = {expression for expression in places if expression.zone is not None}
    return zones.pop() if len(zones) == 1 else StoragePlace(zone=zone_label(manifest))


def _room(manifest: Mapping[str, Any]) -> tuple[str, StoragePlace, int]:
    topology = (manifest.get("nodeTopology") or {}).get("matchLabels") or {}
    place = StoragePlace(zone=zone_of(topology), node=topology.get(HOSTNAME))
    return str(manifest.get("storageClassName") or NONE), place, quantity_bytes(manifest.get("capacity"))


def _size(manifest: Mapping[str, Any], *path: str) -> int:
    value: Any = spec(manifest)
    for step in path:
        value = value.get(step) or {}
    return quantity_bytes(value.get("storage"))


def quantity_bytes(quantity: Any) -> int:
    """The bytes of a quantity; 0 if it is not one."""
    return 0 if quantity is None else _parsed_bytes(str(quantity))


@lru_cache(maxsize=4_096)
def _parsed_bytes(quantity: str) -> int:
    """The bytes of a quantity. Cached, because volumes have few sizes."""
    try:
        return parse_quantity(quantity).value()
    except QuantityError:
        return 0
