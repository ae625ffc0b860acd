"""Provisioning volumes for claims on a node: whether it is possible, and the room that is promised already."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import orjson

from volsched.kube.display_text import labels_text, topologies_text
from volsched.kube.meta import BINDING_STAMP, SELECTED_NODE
from volsched.kube.quantity import bytes_text
from volsched.kube.selectors import label_selector_matches, label_selector_problem, topology_allows
from volsched.kube.storage import NO_PROVISIONER, Claim, StorageCapacity, StorageClass, Volume
from volsched.kube.workloads import Node
from volsched.scheduling.rules.disks import attach_id
from volsched.scheduling.rules.matching import Search
from volsched.scheduling.rules.profile import Profile
from volsched.scheduling.rules.reasons import (
    NO_VOLUME_TO_BIND,
    NOT_ENOUGH_SPACE,
    TOO_MANY_VOLUMES,
    claim_without_class,
    class_of_claim_not_found,
)
from volsched.scheduling.rules.snapshot import Snapshot
from volsched.scheduling.rules.status import AttemptError, Failure, Rejection, Rule

# One node with all the inputs of serving a claim there, shared by serving and explaining.

Plan = list[tuple[Claim, Volume | None]]
"""The volume for each claim, in serving order; None: to be provisioned."""


# Not frozen, though never modified: created for every node, in a third of the time of a frozen one.
@dataclass(slots=True, kw_only=True)
class NodeStorage:
    snapshot: Snapshot
    node: Node
    profile: Profile
    candidates: Mapping[str, Sequence[Volume]]
    slots: Mapping[str, int]
    """Attach slots left per driver; a driver that is not listed has no limit."""

    def search(
        self, claim: Claim, *, taken: Collection[Volume] = (), slots: Mapping[str, int] | None = None
    ) -> Search:
        """A search for the claim here, without these volumes and within these slots."""
        return Search(
            claim=claim,
            node=self.node,
            taken={volume.name for volume in taken} if taken else (),
            full_drivers={driver for driver, free in slots.items() if free <= 0} if slots else (),
            enforce_match_fields=self.profile.enforce_match_fields,
            unseen=self.profile.takes_unseen,
        )

    def provisioner_of(self, claim: Claim) -> str:
        return self.snapshot.classes[claim.class_name].provisioner


def slots_after(slots: Mapping[str, int], volumes: Iterable[Volume]) -> Mapping[str, int]:
    """The attach slots left once these volumes are attached; negative: they do not fit."""
    if not slots:
        return slots
    left = dict(slots)
    for volume in volumes:
        attached_as = attach_id(volume)
        if attached_as is not None and attached_as.driver in left:
            left[attached_as.driver] -= 1
    return left


# Room promised to a claim without a pod: written on the claim itself, as no binding holds it.
#
# The promise names the claim's selected node, and counts only while the claim keeps that node: a provisioner
# that gives up removes the node from the claim, which releases the room.

PROMISED_ROOM = "volsched.io/promised-room"


class PromisedCapacity(NamedTuple):
    capacity: str
    """The key of a capacity object."""
    bytes: int


def written_room(node: str, room: PromisedCapacity) -> dict[str, str]:
    """The promise as annotations of the claim, beside the selected node."""
    return {PROMISED_ROOM: orjson.dumps({"node": node, "capacity": room.capacity, "bytes": room.bytes}).decode()}


def promised_room(annotations: Mapping[str, str]) -> PromisedCapacity | None:
    """The promise in the annotations; users may write anything there, and an invalid one counts as none."""
    text = annotations.get(PROMISED_ROOM)
    if text is None:
        return None
    try:
        read: Any = orjson.loads(text)
    except ValueError:
        return None
    match read:
        case {"node": str(node), "capacity": str(capacity), "bytes": int(size)} if size > 0:
            return PromisedCapacity(capacity, size) if annotations.get(SELECTED_NODE) == node else None
    return None


def selected_by_others(annotations: Mapping[str, str]) -> str | None:
    """The node that another scheduler chose for the claim; none of our bindings holds the room."""
    return None if {BINDING_STAMP, PROMISED_ROOM} & annotations.keys() else annotations.get(SELECTED_NODE)


def room_of_others(snapshot: Snapshot, claim: Claim, profile: Profile) -> PromisedCapacity | None:
    """The room that another scheduler's choice will take, on the first capacity object that has it."""
    node = snapshot.nodes.get(selected_by_others(claim.meta.annotations) or "")
    storage_class = snapshot.classes.get(claim.class_name)
    if node is None or storage_class is None:
        return None
    capacity = next(iter(_sufficient(snapshot, node, claim, storage_class, profile)), None)
    return None if capacity is None else PromisedCapacity(capacity.key, claim.size.value())


# In the reference each claim is checked alone, so two claims of 60Gi both pass against 100Gi. With
# `joint_capacity` the claims of a pod are placed on capacity objects together, besides what in-flight bindings
# have reserved.

# Maximum number of placements on overlapping capacity objects to try; then the node counts as full.
SEARCH_LIMIT = 10_000


@dataclass(frozen=True, slots=True)
class PlannedVolume:
    """A volume to provision for the claim; `capacity` is the object that has the room, if one was needed."""

    claim: Claim
    capacity: StorageCapacity | None


@dataclass(frozen=True, slots=True)
class Provisions:
    decided: tuple[PlannedVolume, ...] = ()
    rejection: Rejection | None = None


NOTHING = Provisions()


def check_provisions(
    snapshot: Snapshot,
    node: Node,
    claims: Sequence[Claim],
    *,
    profile: Profile,
    slots: Mapping[str, int],
) -> Provisions:
    """A provision for every claim, or the first claim that cannot have one. `slots`: attach slots left."""
    if not claims:
        return NOTHING
    left = dict(slots)
    options: list[tuple[StorageCapacity | None, ...]] = []
    placed: list[StorageCapacity | None] = []
    for index, claim in enumerate(claims):
        storage_class = _class_of(snapshot, claim)
        refusal = _class_refusal(storage_class, node, left)
        if refusal is not None:
            reason, failure = refusal
            return Provisions(rejection=Rejection(reason=reason, claim=claim.key, failures=(failure,)))
        if storage_class.provisioner in left:
            left[storage_class.provisioner] -= 1
        options.append(_options(snapshot, node, claim, storage_class, profile))
        together = _place(snapshot, claims[: index + 1], options, profile)
        if together is None:
            taken = _bytes_taken(claims, placed)
            return Provisions(rejection=_no_space(snapshot, node, claim, storage_class, profile, taken))
        placed = together
    return Provisions(decided=tuple(map(PlannedVolume, claims, placed)))


def _class_of(snapshot: Snapshot, claim: Claim) -> StorageClass:
    if claim.class_name == "":
        raise AttemptError(claim_without_class(claim.key))
    storage_class = snapshot.classes.get(claim.class_name)
    if storage_class is None:
        raise AttemptError(class_of_claim_not_found(claim.class_name))
    return storage_class


def _class_refusal(
    storage_class: StorageClass, node: Node, slots: Mapping[str, int]
) -> tuple[str, Failure] | None:
    provisioner = storage_class.provisioner
    if provisioner in ("", NO_PROVISIONER):
        wanted = "a class that provisions volumes"
        got = f'class "{storage_class.name}" has provisioner {provisioner or "none"}'
        return NO_VOLUME_TO_BIND, Failure(Rule.PROVISIONER, wanted, got)
    if not topology_allows(storage_class.allowed_topologies, node.labels):
        wanted = topologies_text(storage_class.allowed_topologies)
        return NO_VOLUME_TO_BIND, Failure(Rule.ALLOWED_TOPOLOGIES, wanted, labels_text(node.labels))
    if slots.get(provisioner, 1) <= 0:
        return TOO_MANY_VOLUMES, Failure(Rule.ATTACH_LIMIT, f"a free attach slot of {provisioner}", "none left")
    return None


def _options(
    snapshot: Snapshot, node: Node, claim: Claim, storage_class: StorageClass, profile: Profile
) -> tuple[StorageCapacity | None, ...]:
    """The capacity objects to try: for a claim with promised room, only the promised one."""
    if not _asks_for_room(snapshot, claim, storage_class):
        return (None,)
    if profile.joint_capacity and claim.meta.uid in snapshot.promised:
        return (snapshot.capacities.get(snapshot.promised[claim.meta.uid]),)
    return _sufficient(snapshot, node, claim, storage_class, profile)


def _asks_for_room(snapshot: Snapshot, claim: Claim, storage_class: StorageClass) -> bool:
    driver = snapshot.drivers.get(storage_class.provisioner)
    return "storage" in claim.requests and driver is not None and driver.storage_capacity


def _sufficient(
    snapshot: Snapshot, node: Node, claim: Claim, storage_class: StorageClass, profile: Profile
) -> tuple[StorageCapacity | None, ...]:
    """The capacity objects that have room for the claim alone, in key order; (None,): none is needed."""
    if not _asks_for_room(snapshot, claim, storage_class):
        return (None,)
    wanted = profile.bytes_of(claim.size)
    return tuple(
        capacity
        for capacity in _published(snapshot, node, storage_class)
        if capacity.limit is not None and profile.bytes_of(capacity.limit) >= wanted
    )


def _published(snapshot: Snapshot, node: Node, storage_class: StorageClass) -> list[StorageCapacity]:
    """The capacity objects of the class that cover this node, in key order."""
    return [
        capacity
        for _, capacity in sorted(
            ((capacity.meta.namespace, capacity.meta.name), capacity) for capacity in snapshot.capacities.values()
        )
        if capacity.storage_class_name == storage_class.name and _accessible(capacity, node)
    ]


def _accessible(capacity: StorageCapacity, node: Node) -> bool:
    topology = capacity.node_topology
    return (
        topology is not None
        and label_selector_problem(topology) is None
        and label_selector_matches(topology, node.labels)
    )


@dataclass(slots=True)
class _Room:
    """Bytes left of each capacity object while claims are placed one after the other."""

    snapshot: Snapshot
    own: Mapping[str, int]
    """The part of the reserved bytes that is promised to the claims themselves."""
    taken: dict[str, int] = field(default_factory=dict)
    tries: int = 0

    def free_bytes(self, capacity: StorageCapacity) -> int | None:
        """The bytes left; None: unknown, because the driver publishes only a largest volume size."""
        if capacity.capacity is None:
            return None
        total = max(capacity.capacity.value(), capacity.limit.value() if capacity.limit else 0)
        others = max(0, self.snapshot.reserved.get(capacity.key, 0) - self.own.get(capacity.key, 0))
        return total - others - self.taken.get(capacity.key, 0)


def _place(
    snapshot: Snapshot,
    claims: Sequence[Claim],
    options: Sequence[Sequence[StorageCapacity | None]],
    profile: Profile,
) -> list[StorageCapacity | None] | None:
    """One capacity object per claim, the first that works in key order; None if there is no such placement."""
    if not profile.joint_capacity:
        return [mine[0] for mine in options] if all(options) else None
    room = _Room(snapshot, _own(snapshot, claims))
    placed: list[StorageCapacity | None] = []

    def place_rest() -> bool:
        if len(placed) == len(claims):
            return True
        # Promised room is part of the reserved bytes, and maybe no longer published: it is not needed again.
        promised = claims[len(placed)].meta.uid in snapshot.promised
        wanted = 0 if promised else claims[len(placed)].size.value()
        for capacity in options[len(placed)]:
            room.tries += 1
            left = None if promised or capacity is None else room.free_bytes(capacity)
            if room.tries > SEARCH_LIMIT or (left is not None and left < wanted):
                continue
            key = "" if capacity is None else capacity.key
            room.taken[key] = room.taken.get(key, 0) + wanted
            placed.append(capacity)
            if place_rest():
                return True
            placed.pop()
            room.taken[key] -= wanted
        return False

    return placed if place_rest() else None


def _own(snapshot: Snapshot, claims: Sequence[Claim]) -> dict[str, int]:
    """Bytes of each capacity object that the claims were promised before any pod used them."""
    own: dict[str, int] = {}
    for claim in claims:
        room = None if claim.meta.uid in snapshot.promised else promised_room(claim.meta.annotations)
        if room is not None:
            own[room.capacity] = own.get(room.capacity, 0) + room.bytes
    return own


def _bytes_taken(claims: Sequence[Claim], placed: Sequence[StorageCapacity | None]) -> dict[str, int]:
    """Bytes of each capacity object that earlier claims of the pod take."""
    taken: dict[str, int] = {}
    for claim, capacity in zip(claims, placed, strict=False):
        if capacity is not None:
            taken[capacity.key] = taken.get(capacity.key, 0) + claim.size.value()
    return taken


def _no_space(
    snapshot: Snapshot,
    node: Node,
    claim: Claim,
    storage_class: StorageClass,
    profile: Profile,
    taken: Mapping[str, int],
) -> Rejection:
    failures: tuple[Failure, ...] = ()
    if profile.explains:
        got = "; ".join(
            _room_text(capacity, snapshot.reserved.get(capacity.key, 0), taken.get(capacity.key, 0))
            for capacity in _published(snapshot, node, storage_class)
        )
        failures = (
            Failure(Rule.FREE_STORAGE, f"{claim.size} free", got or "no capacity published for this node"),
        )
    return Rejection(reason=NOT_ENOUGH_SPACE, claim=claim.key, failures=failures)


def _room_text(capacity: StorageCapacity, reserved: int, taken: int) -> str:
    parts = [f"{capacity.capacity} in all" if capacity.capacity is not None else "total unknown"]
    if capacity.maximum_volume_size is not None:
        parts.append(f"at most {capacity.maximum_volume_size} a volume")
    if reserved:
        parts.append(f"{bytes_text(reserved)} reserved for other pods")
    if taken:
        parts.append(f"{bytes_text(taken)} for other claims of the pod")
    return f"{capacity.key}: {', '.join(parts)}"
