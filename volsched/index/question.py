"""One pod's question to the index: what its claims want, and between which nodes that can make a difference."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import reduce
from operator import and_

from volsched.core.attach import AttachId, attach_id, claimed_slots, in_tree_id
from volsched.core.claims import PodClaims, selected_node
from volsched.index.contents import Contents
from volsched.index.domains import Domain
from volsched.index.relations import CONTENDED
from volsched.index.rooms import Rooms
from volsched.index.shelves import Row, Shelf, best_shared
from volsched.model.storage import NO_PROVISIONER, Claim, Volume
from volsched.model.workloads import Pod

EMPTY_SHELF = Shelf(set())


@dataclass(frozen=True, slots=True)
class Want:
    """A claim that looks for a volume."""

    claim: Claim
    size: int
    fitting: frozenset[int]
    """The pools whose volumes may serve it."""
    named_by: tuple[Volume, ...]
    """Volumes that name the claim already, wherever they are."""


@dataclass(frozen=True, slots=True)
class Errand:
    """The wants of one class, in the order in which they are served. Errands do not compete with each other."""

    shelf: Shelf
    wants: tuple[Want, ...]
    shared: Mapping[Domain, list[Row]]
    """Per domain that several nodes share, the volumes that are worth trying."""

    def rows_at(self, position: int) -> Iterator[Row]:
        """All that is worth trying on one node but for volumes that name a claim; some may come twice."""
        for domain, rows in self.shared.items():
            if domain.mask >> position & 1:
                yield from rows
        for want in self.wants:
            yield from self.shelf.best_rows(position, want.fitting, size=want.size, count=len(self.wants))


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    pod: Pod
    claims: PodClaims
    errands: tuple[Errand, ...]
    rooms: tuple[Rooms, ...]
    """Of the classes whose driver publishes what it can still create."""
    provisionable: bool
    """Some claim that waits for a volume may have one made."""
    limited: bool
    """Attach limits of some node matter."""
    inline: bool
    """The pod has inline disks, which other pods of a node may use."""
    masks: tuple[int, ...]
    """Sets of nodes that tell nodes apart, but for what each node has for itself alone."""
    required: int
    """No node outside of it will do, whatever volumes it has."""
    allowed: int
    """Where all the classes allow provisioning."""


def ask(held: Contents, pod: Pod, claims: PodClaims, in_zone: int | None) -> Question:
    """`in_zone`: the nodes that the zone labels of the pod's volumes leave; None where there are none."""
    errands = tuple(_errands(held, claims))
    classes = [held.whole.classes[name] for name in dict.fromkeys(claim.class_name for claim in claims.delayed)]
    provisioners = [it.provisioner for it in classes if it.provisioner not in ("", NO_PROVISIONER)]
    slots = [*claimed_slots(held.whole, pod), *_inline_slots(pod)]
    drivers = dict.fromkeys([*_drivers(errands), *provisioners, *(slot.driver for slot in slots)])
    limited = bool(drivers) and held.usage.limited(drivers)
    needed = [*_bound_masks(held, claims), *_selected_masks(held, claims)]
    needed += _driver_masks(held, dict.fromkeys(slot.driver for slot in slots))
    if in_zone is not None:
        needed.append(in_zone)
    masks = [*needed, *_static_masks(held, errands)]
    if limited:
        masks += held.usage.masks(drivers, slots, most=len(pod.volumes))
    allowed = [held.allowed[it.name].mask for it in classes if it.provisioner not in ("", NO_PROVISIONER)]
    masks += allowed
    rooms = []
    for it in classes:
        driver = held.whole.drivers.get(it.provisioner)
        if it.name in held.rooms and driver is not None and driver.storage_capacity:
            rooms.append(held.rooms[it.name])
            masks += [domain.mask for domain in held.rooms[it.name].shared]
    masks += _own_place(held, pod)
    return Question(
        pod=pod,
        claims=claims,
        errands=errands,
        rooms=tuple(rooms),
        provisionable=bool(provisioners),
        limited=limited,
        inline=any(volume.source is not None and volume.source.kind in CONTENDED for volume in pod.volumes),
        masks=tuple(masks),
        required=reduce(and_, needed, held.nodes.everyone),
        allowed=reduce(and_, allowed, held.nodes.everyone),
    )


def _errands(held: Contents, claims: PodClaims) -> Iterator[Errand]:
    waiting = sorted(
        (claim for claim in claims.delayed if selected_node(claim) is None),
        key=lambda claim: claim.size,
        reverse=held.profile.largest_claim_first,
    )
    for name in dict.fromkeys(claim.class_name for claim in waiting):
        shelf = held.shelves.get(name, EMPTY_SHELF)
        wants = (
            Want(claim, claim.size.nano, shelf.fitting(claim), _named_by(held, claim))
            for claim in waiting
            if claim.class_name == name
        )
        yield _errand(shelf, tuple(wants))


def _errand(shelf: Shelf, wants: tuple[Want, ...]) -> Errand:
    """Of a domain's volumes no want needs to look past as many as there are wants: the others take fewer."""
    shared: dict[Domain, list[Row]] = {}
    for domain, pools in shelf.shared.items():
        found: dict[Row, None] = {}
        for want in wants:
            found |= dict.fromkeys(best_shared(pools, want.fitting, size=want.size, count=len(wants)))
        if found:
            shared[domain] = sorted(found)
    return Errand(shelf, wants, shared)


def _named_by(held: Contents, claim: Claim) -> tuple[Volume, ...]:
    naming = held.relations.volumes_naming(claim.key)
    return tuple(volume for volume in naming if volume.class_name == claim.class_name)


def _drivers(errands: Iterable[Errand]) -> Iterator[str]:
    """Of the volumes that may be chosen; one that names a claim takes a slot as well."""
    for errand in errands:
        for want in errand.wants:
            yield from (driver for pool in want.fitting if (driver := errand.shelf.drivers[pool]) is not None)
            yield from (slot.driver for volume in want.named_by if (slot := attach_id(volume)) is not None)


def _inline_slots(pod: Pod) -> Iterator[AttachId]:
    for volume in pod.volumes:
        slot = in_tree_id(volume.source)
        if slot is not None:
            yield slot


def _bound_masks(held: Contents, claims: PodClaims) -> Iterator[int]:
    for claim in claims.bound:
        reached = held.reaches.get(claim.volume_name)
        yield 0 if reached is None else reached.mask


def _selected_masks(held: Contents, claims: PodClaims) -> Iterator[int]:
    for claim in claims.delayed:
        name = selected_node(claim)
        if name is not None:
            yield held.nodes.mask_of(name)


def _static_masks(held: Contents, errands: Iterable[Errand]) -> Iterator[int]:
    for errand in errands:
        yield from (domain.mask for domain in errand.shared)
        for want in errand.wants:
            yield from (held.reaches[volume.name].mask for volume in want.named_by)


def _driver_masks(held: Contents, drivers: Iterable[str]) -> Iterator[int]:
    for name in drivers:
        driver = held.whole.drivers.get(name)
        if driver is not None and driver.prevent_scheduling_if_missing:
            yield held.usage.installed(name)


def _own_place(held: Contents, pod: Pod) -> Iterator[int]:
    """Nodes that are like no other for this pod: where it is itself, and where inline disks may collide."""
    placed = held.whole.pods.get(pod.key)
    for name in {pod.node_name, placed.node_name if placed is not None else ""} - {""}:
        yield held.nodes.mask_of(name)
    for kind in {volume.source.kind for volume in pod.volumes if volume.source is not None}:
        for name in held.relations.nodes_with_disks(kind):
            yield held.nodes.mask_of(name)
