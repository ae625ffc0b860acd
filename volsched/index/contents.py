"""What the index holds: the live objects, and the structures over them that every change is folded into."""

from collections.abc import Iterable, MutableMapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from volsched.core.attach import attach_id
from volsched.core.profile import Profile
from volsched.core.snapshot import FIELD_OF, Snapshot
from volsched.index.domains import (
    Domain,
    Domains,
    places_of_capacity,
    places_of_selector,
    places_of_topologies,
    selector_key,
)
from volsched.index.nodes import Nodes
from volsched.index.relations import Relations
from volsched.index.rooms import Rooms
from volsched.index.shelves import Shelf, is_free
from volsched.index.usage import Usage
from volsched.model.kinds import Object
from volsched.model.storage import (
    Claim,
    CSINode,
    StorageCapacity,
    StorageClass,
    Volume,
    VolumeAttachment,
)
from volsched.model.workloads import Node, Pod


@dataclass(slots=True)
class Contents:
    profile: Profile
    whole: Snapshot = field(default_factory=Snapshot)
    """All objects. Its mappings are changed in place: it is always the present."""
    nodes: Nodes = field(default_factory=Nodes)
    domains: Domains = field(init=False)
    relations: Relations = field(init=False)
    usage: Usage = field(init=False)
    shelves: dict[str, Shelf] = field(default_factory=dict)
    rooms: dict[str, Rooms] = field(default_factory=dict)
    reaches: dict[str, Domain] = field(default_factory=dict)
    """Volume → the nodes that reach it."""
    allowed: dict[str, Domain] = field(default_factory=dict)
    """Class → the nodes where it allows provisioning."""
    _speaks_for: dict[str, Domain] = field(default_factory=dict)
    _label_keys: set[str] = field(default_factory=set)
    _reserved: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        mappings: dict[str, Any] = {name: {} for name in FIELD_OF.values()}
        self.whole = Snapshot(**mappings, reserved=self._reserved)
        self.domains = Domains(self.nodes)
        self.relations = Relations(self.whole)
        self.usage = Usage(self.nodes, self.whole, self.relations, in_decision=self.profile.attach_limits)

    def put(self, value: Object) -> None:
        """Take in an object as it is now, assumptions laid over it. Kinds that decide nothing here are ignored."""
        name = FIELD_OF.get(type(value))
        if name is None:
            return
        held: MutableMapping[str, Any] = getattr(self.whole, name)
        before = held.get(value.meta.key)
        if before == value:
            return
        self._change(held, value.meta.key, before, value)

    def drop(self, kind: type[Object], key: str) -> None:
        name = FIELD_OF.get(kind)
        held: MutableMapping[str, Any] = {} if name is None else getattr(self.whole, name)
        if key in held:
            self._change(held, key, held[key], None)

    def reserve(self, capacity: str, size: int) -> None:
        """So many bytes of the capacity object are promised to bindings in flight."""
        if size:
            self._reserved[capacity] = size
        else:
            self._reserved.pop(capacity, None)
        held = self.whole.capacities.get(capacity)
        if held is not None and held.storage_class_name in self.rooms:
            self.rooms[held.storage_class_name].touch(capacity)

    def _change(self, held: MutableMapping[str, Any], key: str, before: Any, after: Any) -> None:
        """Out with the old, the mapping changed, in with the new: each structure sees one consistent state."""
        if before is not None:
            self._out(before, after)
        if after is None:
            del held[key]
            if isinstance(before, CSINode):
                self.usage.describe(key)
        else:
            held[key] = after
            self._in(before, after)

    def _out(self, value: Any, after: Any) -> None:
        match value:
            case Node() if after is None:
                self._drop_node(value)
            case Volume():
                self._touch_volume(value, after)
                self._unshelve(value)
                self._leave(self.reaches, value.name)
                self.relations.unlink(value)
            case Claim():
                self.usage.touch(self.relations.nodes_using_claim(value.key))
                self.relations.unlink(value)
            case Pod():
                self.usage.touch([value.node_name] if value.node_name else [])
                self.relations.unlink(value)
            case VolumeAttachment():
                self.usage.touch([value.node_name])
                self.relations.unlink(value)
            case StorageClass():
                self._leave(self.allowed, value.name)
                if after is None or after.provisioner != value.provisioner:
                    self.usage.touch(self.whole.nodes)
            case StorageCapacity() if value.key in self._speaks_for:
                self.rooms[value.storage_class_name].take(value)
                self._leave(self._speaks_for, value.key)

    def _in(self, before: Any, value: Any) -> None:
        match value:
            case Node():
                self._put_node(before, value)
            case Volume():
                if before is None:
                    self._touch_volume(value, None)
                self.relations.link(value)
                selector = None if value.node_affinity is None else value.node_affinity.required
                places_of = partial(places_of_selector, selector, self.profile.enforce_match_fields)
                self.reaches[value.name] = self.domains.join(("reach", selector), places_of, value.name)
                self._shelve(value)
            case Claim():
                self.relations.link(value)
                self.usage.touch(self.relations.nodes_using_claim(value.key))
                self._learn_labels(value)
            case Pod():
                self.relations.link(value)
                self.usage.touch([value.node_name] if value.node_name else [])
            case VolumeAttachment():
                self.relations.link(value)
                self.usage.touch([value.node_name])
            case StorageClass():
                terms = value.allowed_topologies
                self.allowed[value.name] = self.domains.join(
                    ("allow", terms), partial(places_of_topologies, terms), value.name
                )
                if before is None:
                    self.usage.touch(self.whole.nodes)
            case StorageCapacity() if value.node_topology is not None:
                topology = value.node_topology
                self._speaks_for[value.key] = self.domains.join(
                    ("room", selector_key(topology)), partial(places_of_capacity, topology), value.key
                )
                self._room(value.storage_class_name).put(value, self._speaks_for[value.key])
            case CSINode():
                self.usage.describe(value.name)

    def _put_node(self, before: Node | None, node: Node) -> None:
        position = self.nodes.put(node)
        if before is None or before.labels != node.labels:
            labels = {**dict.fromkeys(node.labels.items()), **dict.fromkeys((before or node).labels.items())}
            self._rehome(self.domains.follow(position, labels))
        self.usage.describe(node.name)

    def _drop_node(self, node: Node) -> None:
        bit = self.nodes.mask_of(node.name)
        self.usage.forget(node.name, bit)
        self.nodes.drop(node.name)
        self._rehome(self.domains.follow(bit.bit_length() - 1, node.labels.items()))

    def _rehome(self, domains: Iterable[Domain]) -> None:
        """What stands in a domain that has changed may be reached by one node instead of several, or by none."""
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

    def _shelve(self, volume: Volume) -> None:
        if is_free(volume):
            shelf = self.shelves.get(volume.class_name)
            if shelf is None:
                shelf = self.shelves[volume.class_name] = Shelf(self._label_keys)
            shelf.put(volume, self.reaches[volume.name])

    def _unshelve(self, volume: Volume) -> None:
        if volume.class_name in self.shelves:
            self.shelves[volume.class_name].take(volume.name)

    def _room(self, class_name: str) -> Rooms:
        if class_name not in self.rooms:
            self.rooms[class_name] = Rooms(self.whole.capacities, self._reserved)
        return self.rooms[class_name]

    def _touch_volume(self, volume: Volume, after: Volume | None) -> None:
        if after is None or attach_id(after) != attach_id(volume):
            self.usage.touch(self.relations.nodes_using_volume(volume.name))

    def _learn_labels(self, claim: Claim) -> None:
        """A selector that asks about a label no claim asked about before splits pools that were one."""
        if claim.selector is None:
            return
        asked = {*claim.selector.match_labels, *(part.key for part in claim.selector.match_expressions)}
        if not asked <= self._label_keys:
            self._label_keys |= asked
            self.shelves.clear()
            for volume in self.whole.stored_volumes.values():
                self._shelve(volume)

    def _leave(self, where: dict[str, Domain], member: str) -> None:
        domain = where.pop(member, None)
        if domain is not None:
            self.domains.leave(domain, member)
