"""Storage by place: which nodes reach a volume, may have one made, or have room for it, as all of that changes."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial

from volsched.kube.storage import Claim, StorageCapacity, StorageClass, Volume
from volsched.scheduling.index.capacity_index import Rooms
from volsched.scheduling.index.domains import (
    Domain,
    Domains,
    places_of_capacity,
    places_of_selector,
    places_of_topologies,
    selector_key,
)
from volsched.scheduling.index.volume_index import Shelf, is_free
from volsched.scheduling.rules.profile import Profile
from volsched.scheduling.rules.snapshot import Snapshot


@dataclass(slots=True)
class StorageByNode:
    """Follows the volumes, classes and capacity objects of `whole`; told of every change."""

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
        """A claim asks for the volume by name, or no longer."""
        volume = self.whole.stored_volumes.get(name)
        if volume is not None:
            self._unshelve(volume)
            self._shelve(volume)

    def put_class(self, held: StorageClass) -> None:
        terms = held.allowed_topologies
        places_of = partial(places_of_topologies, terms)
        self.allowed[held.name] = self.domains.join(("allow", terms), places_of, held.name)

    def take_class(self, held: StorageClass) -> None:
        self._leave(self.allowed, held.name)

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
        """What is reserved of it has changed."""
        held = self.whole.capacities.get(key)
        if held is not None and held.storage_class_name in self.rooms:
            self.rooms[held.storage_class_name].touch(key)

    def rehome(self, domains: Iterable[Domain]) -> None:
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

    def learn_labels(self, claim: Claim) -> None:
        """A selector that asks about a label no claim asked about before splits pools that were one."""
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
