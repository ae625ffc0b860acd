"""Rooms: the capacity objects of one class, by the nodes that they speak for.

As with volumes, what speaks for one node alone is the node's own, and nodes with equal rooms are equal.
"""

from bisect import bisect_left, insort
from collections.abc import Mapping
from dataclasses import dataclass, field

from volsched.index.domains import Domain
from volsched.index.nodes import is_single
from volsched.index.ranking import Census
from volsched.model.storage import StorageCapacity

Order = tuple[str, str]
"""Namespace and name: the order in which capacity objects are tried."""
Facts = tuple[int | None, int | None, int]
"""Capacity, largest volume and what is reserved, in bytes: the rules compare nothing finer here."""


@dataclass(slots=True)
class Rooms:
    objects: Mapping[str, StorageCapacity]
    reserved: Mapping[str, int]
    own: dict[int, list[Order]] = field(default_factory=dict)
    census: Census = field(default_factory=Census)
    shared: dict[Domain, dict[str, None]] = field(default_factory=dict)
    _placed: dict[str, int | Domain] = field(default_factory=dict)

    def put(self, capacity: StorageCapacity, domain: Domain) -> None:
        if is_single(domain.mask):
            position = domain.mask.bit_length() - 1
            self._placed[capacity.key] = position
            insort(self.own.setdefault(position, []), _order(capacity))
            self._restock(position)
        elif domain.mask:
            self._placed[capacity.key] = domain
            self.shared.setdefault(domain, {})[capacity.key] = None

    def take(self, capacity: StorageCapacity) -> None:
        at = self._placed.pop(capacity.key, None)
        if isinstance(at, int):
            del self.own[at][bisect_left(self.own[at], _order(capacity))]
            self._restock(at)
        elif at is not None:
            del self.shared[at][capacity.key]
            if not self.shared[at]:
                del self.shared[at]

    def touch(self, key: str) -> None:
        """What is reserved of it has changed."""
        at = self._placed.get(key)
        if isinstance(at, int):
            self._restock(at)

    def seen_from(self, position: int) -> list[str]:
        bit = 1 << position
        keys = [key for domain, held in self.shared.items() if domain.mask & bit for key in held]
        return [*keys, *map(_key, self.own.get(position, ()))]

    def _restock(self, position: int) -> None:
        held = self.own[position]
        self.census.move(position, tuple(self._facts(_key(order)) for order in held))
        if not held:
            del self.own[position]

    def _facts(self, key: str) -> Facts:
        capacity = self.objects[key]
        total, largest = capacity.capacity, capacity.maximum_volume_size
        return (
            None if total is None else total.value(),
            None if largest is None else largest.value(),
            self.reserved.get(key, 0),
        )


def _order(capacity: StorageCapacity) -> Order:
    return capacity.meta.namespace, capacity.meta.name


def _key(order: Order) -> str:
    return f"{order[0]}/{order[1]}" if order[0] else order[1]
