"""Nodes as bits of an integer: a set of thousands is one number, and sets combine in a microsecond."""

from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import reduce
from itertools import chain, compress
from operator import or_
from typing import Any, TypeVar

from volsched.kube.meta import TOPOLOGY_LABELS
from volsched.kube.workloads import Node, Taint

Label = tuple[str, str]
_BITS = bytes.maketrans(b"01", b"\x00\x01")
K = TypeVar("K")


def positions(mask: int) -> Iterator[int]:
    """The positions of the mask's bits, lowest first."""
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low


def is_single(mask: int) -> bool:
    return mask != 0 and mask & (mask - 1) == 0


def clear(masks: dict[K, int], key: K, bit: int) -> None:
    """Remove a node from the set under the key; an empty set is not kept."""
    masks[key] &= ~bit
    if not masks[key]:
        del masks[key]


@dataclass(slots=True)
class Nodes:
    """A node keeps its position while it exists; a free position is reused.

    Positions need not follow the names; otherwise adding a node would move every mask. But they usually do,
    because nodes are mostly added in name order, and then the first of a set is its lowest bit.
    """

    everyone: int = 0
    _ahead: dict[int, int] = field(default_factory=dict)
    """Place among the names → the nodes from that name on."""
    _at: list[Node | None] = field(default_factory=list)
    _position: dict[str, int] = field(default_factory=dict)
    _vacant: list[int] = field(default_factory=list)
    _names: list[str] = field(default_factory=list)
    _in_order: list[int] = field(default_factory=list)
    """The positions in the order of the names."""
    _out_of_order: int = 0
    """How often, in the order of the names, a lower position follows a higher one."""
    _carriers: dict[str, dict[str, int]] = field(default_factory=dict)
    _labelled: dict[str, int] = field(default_factory=dict)
    cordoned: int = 0
    tainted: dict[tuple[Taint, ...], int] = field(default_factory=dict)
    """Nodes by their taints, without untainted ones."""
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
            self._ahead.clear()
            rank = bisect_left(self._names, node.name)
            self._names.insert(rank, node.name)
            self._out_of_order -= self._drops(rank, rank + 1)
            self._in_order.insert(rank, position)
            self._out_of_order += self._drops(rank, rank + 2)
            self.everyone |= 1 << position
        else:
            self._unmark(position)
        self._at[position] = node
        bit = 1 << position
        for key, value in node.labels.items():
            carriers = self._carriers.setdefault(key, {})
            carriers[value] = carriers.get(value, 0) | bit
            self._labelled[key] = self._labelled.get(key, 0) | bit
        zone = _zone(node)
        self.zones[zone] = self.zones.get(zone, 0) | bit
        if node.taints:
            self.tainted[node.taints] = self.tainted.get(node.taints, 0) | bit
        if node.unschedulable:
            self.cordoned |= bit
        return position

    def drop(self, name: str) -> None:
        position = self._position.pop(name)
        self._ahead.clear()
        self._unmark(position)
        self._at[position] = None
        self._vacant.append(position)
        rank = bisect_left(self._names, name)
        self._out_of_order -= self._drops(rank, rank + 2)
        del self._names[rank], self._in_order[rank]
        self._out_of_order += self._drops(rank, rank + 1)
        self.everyone &= ~(1 << position)

    def _drops(self, start: int, end: int) -> int:
        """How many of the positions with these ranks are lower than their predecessor."""
        order = self._in_order
        return sum(order[rank] < order[rank - 1] for rank in range(max(start, 1), min(end, len(order))))

    def _unmark(self, position: int) -> None:
        node, bit = self.at(position), 1 << position
        for key, value in node.labels.items():
            clear(self._carriers[key], value, bit)
            clear(self._labelled, key, bit)
        clear(self.zones, _zone(node), bit)
        if node.taints:
            clear(self.tainted, node.taints, bit)
        self.cordoned &= ~bit

    def at(self, position: int) -> Node:
        node = self._at[position]
        assert node is not None
        return node

    def any(self, mask: int) -> Node:
        """Any one of the nodes, the fastest to find."""
        return self.at(mask.bit_length() - 1)

    def position_of(self, name: str) -> int:
        """The position of an existing node."""
        return self._position[name]

    def mask_of(self, name: str) -> int:
        position = self._position.get(name)
        return 0 if position is None else 1 << position

    def carriers(self, labels: Iterable[Label]) -> int:
        """The nodes that carry one of the labels."""
        mask = 0
        for key, value in labels:
            mask |= self._carriers.get(key, {}).get(value, 0)
        return mask

    def labelled(self, key: str) -> int:
        """The nodes that carry the label, with any value."""
        return self._labelled.get(key, 0)

    def domains(self, key: str) -> Mapping[str, int]:
        """The values of the label, each with the nodes that carry it."""
        return self._carriers.get(key, {})

    def tells_apart(self, key: str) -> bool:
        """Whether no two nodes share a value of the label, as with host names: every carrier is its own domain."""
        return len(self.domains(key)) == self.labelled(key).bit_count()

    def neighbours(self, key: str, mask: int) -> int:
        """All nodes of the label's domains that contain a node of the mask."""
        mask &= self.labelled(key)
        if not mask or self.tells_apart(key):
            return mask
        domains = self.domains(key)
        if mask.bit_count() < len(domains):
            values = {self.at(position).labels[key] for position in positions(mask)}
            return self.carriers((key, value) for value in values)
        return reduce(or_, (domain for domain in domains.values() if domain & mask), 0)

    def turns(self, place: int) -> "Turns":
        """Ties start with the name at this place."""
        return Turns(self, place)

    def first(self, mask: int, place: int = 0) -> Node:
        """The node with the smallest name. `place`: no node of the mask comes before it."""
        if not self._out_of_order:
            return self.at((mask & -mask).bit_length() - 1)
        return next(self.by_name(mask, place))

    def named_from(self, place: int) -> int:
        """The nodes from the name at this place on."""
        if not self._out_of_order:
            return self.everyone & (-1 << self._in_order[place])
        mask = self._ahead.get(place)
        if mask is None:
            bits = bytearray(len(self._at) // 8 + 1)
            for position in self._in_order[place:]:
                bits[position >> 3] |= 1 << (position & 7)
            mask = self._ahead[place] = int.from_bytes(bits, "little")
        return mask

    def name_at(self, place: int) -> str:
        return self._names[place]

    def by_name(self, mask: int, place: int = 0) -> Iterator[Node]:
        """The nodes in name order. Few bits are sorted; for many bits, all names are filtered."""
        if not self._out_of_order:
            yield from map(self.at, positions(mask))
            return
        if mask.bit_count() ** 2 <= len(self._names):
            yield from sorted((self.at(position) for position in positions(mask)), key=_name)
            return
        # One byte per position, and a loop in C: thousands of names may be skipped.
        there = format(mask, f"0{len(self._at)}b")[::-1].encode().translate(_BITS)
        order = self._in_order[place:] if place else self._in_order
        yield from map(self.at, compress(order, map(there.__getitem__, order)))


@dataclass(slots=True)
class Turns:
    """The order that breaks ties: by name, starting at some place, then from the smallest on."""

    nodes: Nodes
    place: int
    _ahead: int = -1

    def __post_init__(self) -> None:
        if self.place:
            self._ahead = self.nodes.named_from(self.place)

    def first(self, mask: int) -> Node:
        ahead = mask & self._ahead
        return self.nodes.first(ahead, self.place) if ahead else self.nodes.first(mask)

    def in_turn(self, mask: int) -> Iterator[Node]:
        if not self.place:
            return self.nodes.by_name(mask)
        return chain(self.nodes.by_name(mask & self._ahead, self.place), self.nodes.by_name(mask & ~self._ahead))

    def turn_of(self, name: str) -> tuple[bool, str]:
        """The sort key that breaks ties: the smaller one wins."""
        return bool(self.place) and name < self.nodes.name_at(self.place), name


def _zone(node: Node) -> tuple[str | None, ...]:
    return tuple(node.labels.get(key) for key in TOPOLOGY_LABELS)


def _name(node: Node) -> str:
    return node.name


# A mapping for lookups only, never iterated: the index chooses what is iterated.

V = TypeVar("V")


class Lookup(Mapping[str, V]):
    """Finds every key of the other mapping, but iterates over none."""

    def __init__(self, everything: Mapping[str, V]) -> None:
        self._everything = everything
        # Not through `__getitem__`, as a mapping would: rules do dozens of lookups.
        self._get = everything.get

    def __getitem__(self, key: str) -> V:
        return self._everything[key]

    def get(self, key: str, default: Any = None) -> Any:
        return self._get(key, default)

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 0


class Chosen(Lookup[V]):
    """A lookup that iterates over chosen keys."""

    def __init__(self, everything: Mapping[str, V], keys: Collection[str]) -> None:
        super().__init__(everything)
        self._keys = keys

    def __iter__(self) -> Iterator[str]:
        return iter(self._keys)

    def __len__(self) -> int:
        return len(self._keys)
