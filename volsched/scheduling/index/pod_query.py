"""One pod's query to the index: the wants of its claims, and the sets of nodes that these distinguish."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import chain
from operator import and_

from volsched.kube.storage import NO_PROVISIONER, READ_WRITE_ONCE_POD, Claim, Volume, VolumeSource
from volsched.kube.workloads import Pod
from volsched.scheduling.index.contents import Contents
from volsched.scheduling.index.domains import Domain
from volsched.scheduling.index.relations import CONTENDED
from volsched.scheduling.index.volume_index import Few, Rooms, Shape, Shelf, best_rows
from volsched.scheduling.rules.attach_limits import claim_slot, claimed_slots
from volsched.scheduling.rules.claim_plan import in_serving_order
from volsched.scheduling.rules.disks import AttachId, attach_id, in_tree_id
from volsched.scheduling.rules.pod_claims import PodClaims, selected_node
from volsched.scheduling.rules.volume_restrictions import ZoneRule, volume_zone_filter

EMPTY_SHELF = Shelf(set())


# Not frozen, though never modified: created for every decision, in a third of the time.
@dataclass(slots=True)
class Want:
    """A claim that looks for a volume."""

    claim: Claim
    size: int
    fitting: frozenset[int]
    """The pools whose volumes may serve it."""
    named_by: tuple[Volume, ...]
    """Volumes that name the claim already, on any node."""


@dataclass(slots=True)
class Errand:
    """The wants of one class, in the order in which they are served. Errands do not compete with each other."""

    class_name: str
    shelf: Shelf
    wants: tuple[Want, ...]
    shape: Shape
    shared: Mapping[Domain, Few]
    """The volumes worth trying, per shared domain."""

    def names_at(self, position: int) -> Sequence[str]:
        """All volumes that are worth trying on one node, in name order."""
        reached = [few.names for domain, few in self.shared.items() if domain.mask >> position & 1]
        own = self.shelf.rows_at(position)
        named = [volume.name for want in self.wants for volume in want.named_by]
        if len(reached) == 1 and not own and not named:
            return reached[0]
        names = {*named, *chain.from_iterable(reached)}
        if own:
            names.update(best_rows(own, self.shape))
        return sorted(names)


@dataclass(slots=True, kw_only=True)
class PodQuery:
    pod: Pod
    claims: PodClaims
    rules: tuple[ZoneRule, ...]
    """The rules from the zone labels of the pod's volumes."""
    errands: tuple[Errand, ...]
    rooms: tuple[Rooms, ...]
    """The rooms of the classes whose driver publishes its remaining capacity."""
    plain: bool
    """Whether every delayed claim looks for a volume, and no volume names one of them already."""
    provisionable: bool
    """Whether some claim that waits for a volume may be provisioned."""
    limited: bool
    """Whether the attach limits of some node matter."""
    inline: bool
    """Whether the pod has inline disks, which other pods of a node may use."""
    exclusive: tuple[str, ...]
    """Claims that one pod at a time may use."""
    masks: tuple[int, ...]
    """Sets of nodes that distinguish nodes, apart from what each node has exclusively."""
    required: int
    """The nodes that may fit: no other node fits, whatever volumes it has."""
    allowed: int
    """The nodes where all the classes allow provisioning."""


def ask(contents: Contents, pod: Pod, claims: PodClaims, rules: tuple[ZoneRule, ...]) -> PodQuery:
    errands = _errands(contents, claims)
    waiting = sum([len(errand.wants) for errand in errands])
    named = [want for errand in errands for want in errand.wants if want.named_by]
    classes = [contents.whole.classes[name] for name in claims.candidates]
    makers = [it for it in classes if it.provisioner not in ("", NO_PROVISIONER)]
    sources = [volume.source for volume in pod.volumes if volume.source is not None]
    disks = [*_bound_slots(contents, claims.bound), *_inline_slots(sources)] if claims.bound or sources else []
    drivers = dict.fromkeys([it.provisioner for it in classes] + [slot.driver for slot in disks])
    needed = [*_bound_masks(contents, claims.bound), *_driver_masks(contents, drivers)]
    if waiting < len(claims.delayed):
        needed += _selected_masks(contents, claims)
    if rules:
        needed.append(_zone_mask(contents, rules))
    masks = needed + [domain.mask for errand in errands for domain in errand.shared]
    if named:
        masks += _named_masks(contents, errands)
    drivers |= dict.fromkeys(_drivers(errands))
    limited = contents.usage.limited(drivers)
    if limited:
        slots = [*claimed_slots(contents.whole, pod), *disks]
        masks += contents.usage.masks(drivers, slots, most=len(pod.volumes))
    allowed = [contents.storage.allowed[it.name].mask for it in makers]
    masks += allowed
    rooms = []
    for storage_class in classes if contents.storage.rooms else ():
        driver = contents.whole.drivers.get(storage_class.provisioner)
        if storage_class.name in contents.storage.rooms and driver is not None and driver.storage_capacity:
            rooms.append(contents.storage.rooms[storage_class.name])
            masks += [domain.mask for domain in contents.storage.rooms[storage_class.name].shared]
    if sources or pod.node_name or pod.key in contents.whole.pods:
        masks += _own_place(contents, pod, sources)
    everyone = contents.nodes.everyone
    return PodQuery(
        pod=pod,
        claims=claims,
        rules=rules,
        errands=errands,
        rooms=tuple(rooms),
        plain=not named and waiting == len(claims.delayed),
        provisionable=bool(makers),
        limited=limited,
        inline=any(source.kind in CONTENDED for source in sources),
        exclusive=tuple(
            [it.key for it in claims.bound + claims.delayed if READ_WRITE_ONCE_POD in it.access_modes]
        ),
        masks=tuple(masks),
        required=reduce(and_, needed, everyone) if needed else everyone,
        allowed=reduce(and_, allowed, everyone) if allowed else everyone,
    )


def _errands(contents: Contents, claims: PodClaims) -> tuple[Errand, ...]:
    shelves = contents.storage.shelves
    wants: dict[str, list[Want]] = {}
    for claim in in_serving_order(claims.delayed, contents.profile):
        name = claim.class_name
        shelf = shelves.get(name, EMPTY_SHELF)
        want = Want(claim, claim.size.nano, shelf.fitting(claim), _named_by(contents, claim))
        wants.setdefault(name, []).append(want)
    return tuple([_errand(name, shelves.get(name, EMPTY_SHELF), mine) for name, mine in wants.items()])


def _errand(name: str, shelf: Shelf, wants: list[Want]) -> Errand:
    shape = tuple([(want.size, want.fitting) for want in wants])
    shared: dict[Domain, Few] = {}
    for domain, volumes in shelf.shared.items():
        few = volumes.few(shape)
        if few.rows:
            shared[domain] = few
    return Errand(name, shelf, tuple(wants), shape, shared)


def _named_by(contents: Contents, claim: Claim) -> tuple[Volume, ...]:
    naming = contents.relations.volumes_naming(claim.key)
    return tuple([it for it in naming if it.class_name == claim.class_name]) if naming else ()


def _drivers(errands: Iterable[Errand]) -> Iterator[str]:
    """The drivers of the volumes that may be chosen; one that names a claim takes a slot as well."""
    for errand in errands:
        drivers = errand.shelf.drivers
        for fitting in {fitting for _, fitting in errand.shape}:
            yield from [driver for pool in fitting if (driver := drivers[pool]) is not None]
        for want in errand.wants:
            yield from (slot.driver for volume in want.named_by if (slot := attach_id(volume)) is not None)


def _bound_slots(contents: Contents, bound: Iterable[Claim]) -> Iterator[AttachId]:
    for claim in bound:
        slot = claim_slot(contents.whole, claim)
        if slot is not None:
            yield slot


def _inline_slots(sources: Iterable[VolumeSource]) -> Iterator[AttachId]:
    for source in sources:
        slot = in_tree_id(source)
        if slot is not None:
            yield slot


def _bound_masks(contents: Contents, bound: Iterable[Claim]) -> Iterator[int]:
    for claim in bound:
        reached = contents.storage.reaches.get(claim.volume_name)
        yield 0 if reached is None else reached.mask


def _selected_masks(contents: Contents, claims: PodClaims) -> Iterator[int]:
    for claim in claims.delayed:
        name = selected_node(claim, alpha=contents.profile.reads_alpha_annotations)
        if name is not None:
            yield contents.nodes.mask_of(name)


def _named_masks(contents: Contents, errands: Iterable[Errand]) -> Iterator[int]:
    for errand in errands:
        for want in errand.wants:
            yield from (contents.storage.reaches[volume.name].mask for volume in want.named_by)


def _driver_masks(contents: Contents, drivers: Iterable[str]) -> Iterator[int]:
    for name in drivers if contents.whole.drivers else ():
        driver = contents.whole.drivers.get(name)
        if driver is not None and driver.prevent_scheduling_if_missing:
            yield contents.usage.installed(name)


def _zone_mask(contents: Contents, rules: tuple[ZoneRule, ...]) -> int:
    """The nodes that the zone rules accept: one check for all nodes with equal zone labels."""
    nodes = contents.nodes
    return sum(mask for mask in nodes.zones.values() if volume_zone_filter(rules, nodes.any(mask)).passed)


def _own_place(contents: Contents, pod: Pod, sources: Iterable[VolumeSource]) -> Iterator[int]:
    """Nodes unlike any other for this pod: its own, and those where inline disks may conflict."""
    placed = contents.whole.pods.get(pod.key)
    for name in {pod.node_name, placed.node_name if placed is not None else ""} - {""}:
        yield contents.nodes.mask_of(name)
    for kind in {source.kind for source in sources}:
        for name in contents.relations.nodes_with_disks(kind):
            yield contents.nodes.mask_of(name)
