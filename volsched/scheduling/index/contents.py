"""The contents of the index: the live objects, the structures over them, and which nodes reach which storage."""

from collections.abc import Iterable, MutableMapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from volsched.kube.object_values import Object
from volsched.kube.storage import Claim, CSINode, StorageCapacity, StorageClass, Volume, VolumeAttachment
from volsched.kube.workloads import TERMINATED, Node, Pod
from volsched.scheduling.index.domains import (
    Domain,
    Domains,
    Selections,
    places_of_capacity,
    places_of_selector,
    places_of_topologies,
    selector_key,
)
from volsched.scheduling.index.node_sets import Lookup, Nodes
from volsched.scheduling.index.pod_affinity_index import Crowd, weight_of
from volsched.scheduling.index.relations import Keys, Relations, Usage
from volsched.scheduling.index.stock_ranks import Loads
from volsched.scheduling.index.volume_index import Rooms, Shelf, is_free
from volsched.scheduling.rules.disks import attach_id
from volsched.scheduling.rules.nominations import is_nominated
from volsched.scheduling.rules.profile import Profile
from volsched.scheduling.rules.snapshot import FIELD_OF, Snapshot

# Storage by node: which nodes reach a volume, may provision one, or have room for it, kept up to date.


@dataclass(slots=True)
class StorageByNode:
    """Storage by node, updated on every change of the volumes, classes and capacity objects of `whole`."""

    whole: Snapshot
    domains: Domains
    profile: Profile
    shelves: dict[str, Shelf] = field(default_factory=dict)
    rooms: dict[str, Rooms] = field(default_factory=dict)
    reaches: dict[str, Domain] = field(default_factory=dict)
    """Volume → the nodes that reach it."""
    allowed: dict[str, Domain] = field(default_factory=dict)
    """Class → the nodes where it allows provisioning."""
    _speaks_for: dict[str, Domain] = field(default_factory=dict)
    _label_keys: set[str] = field(default_factory=set)

    def put_volume(self, volume: Volume) -> None:
        selector = None if volume.node_affinity is None else volume.node_affinity.required
        places_of = partial(places_of_selector, selector, self.profile.enforce_match_fields)
        self.reaches[volume.name] = self.domains.join(("reach", selector), places_of, volume.name)
        self._shelve(volume)

    def take_volume(self, volume: Volume) -> None:
        self._unshelve(volume)
        self._leave(self.reaches, volume.name)

    def reshelve(self, name: str) -> None:
        """Index a volume again after a claim started or stopped naming it."""
        volume = self.whole.stored_volumes.get(name)
        if volume is not None:
            self._unshelve(volume)
            self._shelve(volume)

    def settle(self) -> None:
        """Update the counts now, instead of in the next decision."""
        for shelf in self.shelves.values():
            shelf.settle()

    def put_class(self, class_: StorageClass) -> None:
        terms = class_.allowed_topologies
        places_of = partial(places_of_topologies, terms)
        self.allowed[class_.name] = self.domains.join(("allow", terms), places_of, class_.name)

    def take_class(self, class_: StorageClass) -> None:
        self._leave(self.allowed, class_.name)

    def put_capacity(self, capacity: StorageCapacity) -> None:
        topology, name = capacity.node_topology, capacity.storage_class_name
        if topology is None:
            return
        key, places_of = ("room", selector_key(topology)), partial(places_of_capacity, topology)
        domain = self._speaks_for[capacity.key] = self.domains.join(key, places_of, capacity.key)
        if name not in self.rooms:
            self.rooms[name] = Rooms(self.whole.capacities, self.whole.reserved)
        self.rooms[name].put(capacity, domain)

    def take_capacity(self, capacity: StorageCapacity) -> None:
        if capacity.key in self._speaks_for:
            self.rooms[capacity.storage_class_name].take(capacity)
            self._leave(self._speaks_for, capacity.key)

    def touch_capacity(self, key: str) -> None:
        """Index a capacity object again after its reserved bytes changed."""
        held = self.whole.capacities.get(key)
        if held is not None and held.storage_class_name in self.rooms:
            self.rooms[held.storage_class_name].touch(key)

    def rehome(self, domains: Iterable[Domain]) -> None:
        """Index the members of changed domains again: one node may reach them now instead of several, or none."""
        for domain in domains:
            for member in domain.members:
                if self.reaches.get(member) is domain:
                    volume = self.whole.stored_volumes[member]
                    self._unshelve(volume)
                    self._shelve(volume)
                if self._speaks_for.get(member) is domain:
                    capacity = self.whole.capacities[member]
                    self.rooms[capacity.storage_class_name].take(capacity)
                    self.rooms[capacity.storage_class_name].put(capacity, domain)

    def learn_labels(self, claim: Claim) -> None:
        """Split the existing pools if the claim selects by a label that no claim used before."""
        if claim.selector is None:
            return
        asked = {*claim.selector.match_labels, *(part.key for part in claim.selector.match_expressions)}
        if not asked <= self._label_keys:
            self._label_keys |= asked
            self.shelves.clear()
            for volume in self.whole.stored_volumes.values():
                self._shelve(volume)

    def _shelve(self, volume: Volume) -> None:
        if is_free(self.whole.volume(volume.name) or volume, unseen=self.profile.takes_unseen):
            shelf = self.shelves.get(volume.class_name)
            if shelf is None:
                shelf = self.shelves[volume.class_name] = Shelf(self._label_keys)
            shelf.put(volume, self.reaches[volume.name])

    def _unshelve(self, volume: Volume) -> None:
        if volume.class_name in self.shelves:
            self.shelves[volume.class_name].take(volume.name)

    def _leave(self, where: dict[str, Domain], member: str) -> None:
        domain = where.pop(member, None)
        if domain is not None:
            self.domains.leave(domain, member)


@dataclass(slots=True)
class Contents:
    profile: Profile
    whole: Snapshot = field(default_factory=Snapshot)
    """All objects. Its mappings are changed in place: it is always current."""
    quiet: Snapshot = field(init=False)
    """The same, but volumes are only found by name, and no pod, attachment or capacity object is visible: enough
    to check a pod itself, and nodes where none of those matters."""
    nodes: Nodes = field(init=False)
    domains: Domains = field(init=False)
    relations: Relations = field(init=False)
    usage: Usage = field(init=False)
    selections: Selections = field(init=False)
    crowd: Crowd = field(init=False)
    loads: Loads = field(default_factory=Loads)
    storage: StorageByNode = field(init=False)
    nominated: dict[str, Pod] = field(default_factory=dict)
    """Pods that have no node yet, and are nominated for one."""
    _reserved: dict[str, int] = field(default_factory=dict)
    _promised: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        mappings: dict[str, Any] = {name: {} for name in FIELD_OF.values()}
        naming: Keys = {}
        asking: Keys = {}
        if self.profile.counts_in_flight:
            mappings |= {"naming": naming, "asking": asking}
        self.whole = Snapshot(**mappings, reserved=self._reserved, promised=self._promised)
        volumes: Lookup[Volume] = Lookup(self.whole.stored_volumes)
        self.quiet = replace(self.whole, stored_volumes=volumes, pods={}, attachments={}, capacities={})
        self.nodes = Nodes()
        self.domains = Domains(self.nodes)
        self.storage = StorageByNode(self.whole, self.domains, self.profile)
        self.relations = Relations(self.whole, naming, asking)
        self.selections = Selections(self.domains)
        self.crowd = Crowd(self.whole)
        self.usage = Usage(self.nodes, self.whole, self.relations, in_decision=self.profile.attach_limits)

    def put(self, value: Object) -> None:
        """Add or replace an object, with its assumptions. Kinds that no decision reads are ignored."""
        name = FIELD_OF.get(type(value))
        if name is None:
            return
        objects: MutableMapping[str, Any] = getattr(self.whole, name)
        before = objects.get(value.meta.key)
        if before is not None and before == value:
            return
        self._change(objects, value.meta.key, before, value)

    def drop(self, kind: type[Object], key: str) -> None:
        name = FIELD_OF.get(kind)
        objects: MutableMapping[str, Any] = {} if name is None else getattr(self.whole, name)
        if key in objects:
            self._change(objects, key, objects[key], None)

    def reserve(self, capacity: str, size: int) -> None:
        """Set the total bytes of the capacity object that are promised to bindings in flight."""
        if size:
            self._reserved[capacity] = size
        else:
            self._reserved.pop(capacity, None)
        self.storage.touch_capacity(capacity)

    def promise(self, claim_uid: str, capacity: str | None) -> None:
        """Count the claim's room as part of the reserved bytes of this capacity object; None: no longer."""
        if capacity is None:
            self._promised.pop(claim_uid, None)
        elif claim_uid:
            self._promised[claim_uid] = capacity

    def lay(self, pod: Pod) -> None:
        """Count a pod that is on an existing node among its neighbours."""
        position = self._place_of(pod)
        if position is not None:
            self.crowd.enter(pod, position)
            self.loads.enter(pod, position)

    def lift(self, pod: Pod) -> None:
        """Stop counting the pod, as if it did not exist."""
        position = self._place_of(pod)
        if position is not None:
            self.crowd.leave(pod, position)
            self.loads.leave(pod, position)

    def _place_of(self, pod: Pod) -> int | None:
        bit = self.nodes.mask_of(pod.node_name) if pod.node_name and pod.phase not in TERMINATED else 0
        return bit.bit_length() - 1 if bit else None

    def _change(self, objects: MutableMapping[str, Any], key: str, before: Any, after: Any) -> None:
        """Remove the old, change the mapping, add the new: each structure sees one consistent state."""
        if before is not None:
            self._out(before, after)
        if after is None:
            del objects[key]
            if isinstance(before, CSINode):
                self.usage.describe(key)
        else:
            objects[key] = after
            self._in(before, after)
        for claim in (before, after):
            if isinstance(claim, Claim) and claim.volume_name:
                self.storage.reshelve(claim.volume_name)

    def _out(self, value: Any, after: Any) -> None:
        match value:
            case Node() if after is None:
                self._drop_node(value)
            case Volume():
                self._touch_volume(value, after)
                self.storage.take_volume(value)
                self.relations.unlink(value)
            case Claim():
                self.usage.touch(self.relations.nodes_using_claim(value.key))
                self.relations.unlink(value)
            case Pod():
                self.nominated.pop(value.key, None)
                self.usage.touch([value.node_name] if value.node_name else [])
                self.relations.unlink(value)
                if after is None or weight_of(value) != weight_of(after):
                    self.lift(value)
            case VolumeAttachment():
                self.usage.touch([value.node_name])
                self.relations.unlink(value)
            case StorageClass():
                self.storage.take_class(value)
                if after is None or _makes_otherwise(value, after):
                    self.usage.touch(self.whole.nodes)
            case StorageCapacity():
                self.storage.take_capacity(value)

    def _in(self, before: Any, value: Any) -> None:
        match value:
            case Node():
                self._put_node(before, value)
            case Volume():
                if before is None:
                    self._touch_volume(value, None)
                self.relations.link(value)
                self.storage.put_volume(value)
            case Claim():
                self.relations.link(value)
                self.usage.touch(self.relations.nodes_using_claim(value.key))
                self.storage.learn_labels(value)
            case Pod():
                if is_nominated(value):
                    self.nominated[value.key] = value
                self.relations.link(value)
                self.usage.touch([value.node_name] if value.node_name else [])
                if before is None or weight_of(before) != weight_of(value):
                    self.lay(value)
            case VolumeAttachment():
                self.relations.link(value)
                self.usage.touch([value.node_name])
            case StorageClass():
                self.storage.put_class(value)
                if before is None:
                    self.usage.touch(self.whole.nodes)
            case StorageCapacity():
                self.storage.put_capacity(value)
            case CSINode():
                self.usage.describe(value.name)

    def _put_node(self, before: Node | None, node: Node) -> None:
        position = self.nodes.put(node)
        if before is None or before.labels != node.labels:
            labels = {**dict.fromkeys(node.labels.items()), **dict.fromkeys((before or node).labels.items())}
            self.storage.rehome(self.domains.follow(position, labels))
        self.usage.describe(node.name)
        if before is None or before.allocatable != node.allocatable:
            self.loads.describe(position, node)
        if before is None:
            for pod in self.relations.pods_on(node.name).values():
                self.lay(pod)

    def _drop_node(self, node: Node) -> None:
        bit = self.nodes.mask_of(node.name)
        for pod in self.relations.pods_on(node.name).values():
            self.lift(pod)
        self.loads.forget(bit.bit_length() - 1)
        self.usage.forget(node.name, bit)
        self.nodes.drop(node.name)
        self.storage.rehome(self.domains.follow(bit.bit_length() - 1, node.labels.items()))

    def _touch_volume(self, volume: Volume, after: Volume | None) -> None:
        if after is None or attach_id(after) != attach_id(volume):
            self.usage.touch(self.relations.nodes_using_volume(volume.name))
        for ref in (volume.claim_ref, None if after is None else after.claim_ref):
            if ref is not None:
                # In flight: its slot is counted for the claim, which does not name the volume yet.
                self.usage.touch(self.relations.nodes_using_claim(f"{ref.namespace}/{ref.name}"))


def _makes_otherwise(before: StorageClass, after: StorageClass) -> bool:
    """Whether the class's claims take other slots: the provisioner or the binding mode differs."""
    return (before.provisioner, before.volume_binding_mode) != (after.provisioner, after.volume_binding_mode)
