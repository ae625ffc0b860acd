"""Nodes as bits of an integer: a set of thousands of nodes is one number, and sets combine in a microsecond."""

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TypeVar

from volsched.model.meta import TOPOLOGY_LABELS
from volsched.model.workloads import Node

Label = tuple[str, str]
K = TypeVar("K")


def positions(mask: int) -> Iterator[int]:
    """Where the mask has a bit, lowest first."""
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low


def is_single(mask: int) -> bool:
    return mask != 0 and mask & (mask - 1) == 0


def clear(masks: dict[K, int], key: K, bit: int) -> None:
    """Take a node out of the set under the key; an empty set is not kept."""
    masks[key] &= ~bit
    if not masks[key]:
        del masks[key]


@dataclass(slots=True)
class Nodes:
    """A node keeps its position while it exists; a position that is given back is used again.

    Positions do not follow the names, which would move every mask when a node is added: `first` pays for it.
    """

    everyone: int = 0
    _at: list[Node | None] = field(default_factory=list)
    _position: dict[str, int] = field(default_factory=dict)
    _vacant: list[int] = field(default_factory=list)
    _names: list[str] = field(default_factory=list)
    _carriers: dict[Label, int] = field(default_factory=dict)
    zones: dict[tuple[str | None, ...], int] = field(default_factory=dict)
    """Nodes by their values of the zone and region labels: few sets, however many nodes."""

    def __len__(self) -> int:
        return len(self._names)

    def put(self, node: Node) -> int:
        position = self._position.get(node.name)
        if position is None:
            position = self._vacant.pop() if self._vacant else len(self._at)
            if position == len(self._at):
                self._at.append(None)
            self._position[node.name] = position
            insort(self._names, node.name)
            self.everyone |= 1 << position
        else:
            self._unlabel(position)
        self._at[position] = node
        for label in node.labels.items():
            self._carriers[label] = self._carriers.get(label, 0) | 1 << position
        zone = _zone(node)
        self.zones[zone] = self.zones.get(zone, 0) | 1 << position
        return position

    def drop(self, name: str) -> None:
        position = self._position.pop(name)
        self._unlabel(position)
        self._at[position] = None
        self._vacant.append(position)
        del self._names[bisect_left(self._names, name)]
        self.everyone &= ~(1 << position)

    def _unlabel(self, position: int) -> None:
        node = self.at(position)
        for label in node.labels.items():
            clear(self._carriers, label, 1 << position)
        clear(self.zones, _zone(node), 1 << position)

    def at(self, position: int) -> Node:
        node = self._at[position]
        assert node is not None
        return node

    def any(self, mask: int) -> Node:
        """One of the nodes, whichever is found fastest."""
        return self.at(mask.bit_length() - 1)

    def mask_of(self, name: str) -> int:
        position = self._position.get(name)
        return 0 if position is None else 1 << position

    def carriers(self, labels: Iterable[Label]) -> int:
        """The nodes that carry one of the labels."""
        mask = 0
        for label in labels:
            mask |= self._carriers.get(label, 0)
        return mask

    def first(self, mask: int) -> Node:
        """The node with the smallest name. Few bits are looked at one by one, many met early among all names."""
        if mask.bit_count() ** 2 <= len(self._names):
            return min((self.at(position) for position in positions(mask)), key=_name)
        name = next(name for name in self._names if mask >> self._position[name] & 1)
        return self.at(self._position[name])


def _zone(node: Node) -> tuple[str | None, ...]:
    return tuple(node.labels.get(key) for key in TOPOLOGY_LABELS)


def _name(node: Node) -> str:
    return node.name
