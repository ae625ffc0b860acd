"""Whether volumes can be made for claims on a node: provisioner, allowed topologies, attach slots, free storage.

In the reference each claim is judged alone, so two claims of 60Gi both pass against 100Gi. With `joint_capacity`
the claims of a pod are placed on capacity objects together, next to what in-flight bindings have reserved.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from volsched.kube.quantity import NANO, Quantity, SuffixFamily
from volsched.kube.selectors import label_selector_matches, label_selector_problem, topology_allows
from volsched.kube.short_text import labels_text, topologies_text
from volsched.kube.storage import NO_PROVISIONER, Claim, StorageCapacity, StorageClass
from volsched.kube.workloads import Node
from volsched.scheduling.rules.profile import Profile
from volsched.scheduling.rules.promised_capacity import promised_room
from volsched.scheduling.rules.rejection import Failure, Rejection, Rule
from volsched.scheduling.rules.snapshot import Snapshot
from volsched.scheduling.rules.status import NO_VOLUME_TO_BIND, NOT_ENOUGH_SPACE, TOO_MANY_VOLUMES, AttemptError

# How many placements of claims on overlapping capacity objects are tried before the node counts as full.
SEARCH_LIMIT = 10_000


@dataclass(frozen=True, slots=True)
class PlannedVolume:
    """A volume to be made for the claim; `capacity` is the object that says there is room, if one was asked."""

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
            taken = _taken(claims, placed)
            return Provisions(rejection=_no_space(snapshot, node, claim, storage_class, profile, taken))
        placed = together
    return Provisions(decided=tuple(map(PlannedVolume, claims, placed)))


def _class_of(snapshot: Snapshot, claim: Claim) -> StorageClass:
    if claim.class_name == "":
        raise AttemptError(f'no class for claim "{claim.key}"')
    storage_class = snapshot.classes.get(claim.class_name)
    if storage_class is None:
        raise AttemptError(f'failed to find storage class "{claim.class_name}"')
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
    """What may be asked for room: of a claim that was promised its room already, only what it was promised."""
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
    """The capacity objects that have room for the claim alone, in key order; (None,) = none needs asking."""
    if not _asks_for_room(snapshot, claim, storage_class):
        return (None,)
    wanted = profile.bytes_of(claim.size)
    return tuple(
        capacity
        for capacity in _published(snapshot, node, storage_class)
        if capacity.limit is not None and profile.bytes_of(capacity.limit) >= wanted
    )


def _published(snapshot: Snapshot, node: Node, storage_class: StorageClass) -> list[StorageCapacity]:
    """The capacity objects of the class that speak for this node, in key order."""
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
    """Of what is reserved, that which the claims were promised themselves."""
    taken: dict[str, int] = field(default_factory=dict)
    tries: int = 0

    def left(self, capacity: StorageCapacity) -> int | None:
        """None where the driver publishes only a largest volume size: then the sum is not known."""
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
        # What was promised is part of what is reserved, and maybe no longer published: it is not asked for again.
        promised = claims[len(placed)].meta.uid in snapshot.promised
        wanted = 0 if promised else claims[len(placed)].size.value()
        for capacity in options[len(placed)]:
            room.tries += 1
            left = None if promised or capacity is None else room.left(capacity)
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
    """Bytes that the claims were promised of each capacity object before any pod came for them."""
    own: dict[str, int] = {}
    for claim in claims:
        room = None if claim.meta.uid in snapshot.promised else promised_room(claim.meta.annotations)
        if room is not None:
            own[room.capacity] = own.get(room.capacity, 0) + room.bytes
    return own


def _taken(claims: Sequence[Claim], placed: Sequence[StorageCapacity | None]) -> dict[str, int]:
    """Bytes that earlier claims of the pod take of each capacity object."""
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
        parts.append(f"{_size_text(reserved)} reserved for other pods")
    if taken:
        parts.append(f"{_size_text(taken)} for other claims of the pod")
    return f"{capacity.key}: {', '.join(parts)}"


def _size_text(size: int) -> str:
    return str(Quantity(size * NANO, SuffixFamily.BINARY))
