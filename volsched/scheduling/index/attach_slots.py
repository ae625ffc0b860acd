"""Attach slots: which nodes have how many left of a driver, which hold a given disk, which have a driver at all.

Counting is left to the rules and done for one node at a time, when something about the node has changed and a
pod comes for which limits matter.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from volsched.kube.meta import Metadata
from volsched.kube.workloads import Pod
from volsched.scheduling.index.node_sets import Nodes, clear
from volsched.scheduling.index.relations import Relations
from volsched.scheduling.rules.attach_limits import attach_limits, csi_limits, slots_in_use
from volsched.scheduling.rules.disks import AttachId, slots_by_driver
from volsched.scheduling.rules.snapshot import Snapshot

NOBODY = Pod(meta=Metadata())


@dataclass(frozen=True, slots=True)
class _Counted:
    left: dict[str, int]
    slots: frozenset[AttachId]


@dataclass(slots=True)
class Usage:
    nodes: Nodes
    whole: Snapshot
    relations: Relations
    in_decision: bool
    """Limits are part of the binding decision: then every known one counts, else only those of CSI drivers."""
    _limits: dict[str, dict[str, int]] = field(default_factory=dict)
    _limited: Counter[str] = field(default_factory=Counter)
    _drivers: dict[str, frozenset[str]] = field(default_factory=dict)
    _installed: dict[str, int] = field(default_factory=dict)
    _counted: dict[str, _Counted] = field(default_factory=dict)
    _stale: dict[str, None] = field(default_factory=dict)
    _left: dict[str, dict[int, int]] = field(default_factory=dict)
    _holders: dict[AttachId, int] = field(default_factory=dict)

    def describe(self, name: str) -> None:
        """The node, or what its drivers say of it, is new or has changed."""
        node, bit = self.whole.nodes.get(name), self.nodes.mask_of(name)
        if node is None:
            return
        self._undescribe(name, bit)
        csi_node = self.whole.csi_nodes.get(name)
        drivers = frozenset(driver.name for driver in csi_node.drivers) if csi_node is not None else frozenset()
        every = self.in_decision
        limits = attach_limits(self.whole, node, max_in_tree=None) if every else csi_limits(self.whole, node)
        self._limits[name], self._drivers[name] = limits, drivers
        self._limited.update(limits.keys())
        for driver in drivers:
            self._installed[driver] = self._installed.get(driver, 0) | bit
        self.touch([name])

    def forget(self, name: str, bit: int) -> None:
        """The node is gone, and its position with it."""
        self._undescribe(name, bit)
        self._uncount(name, bit)
        self._stale.pop(name, None)

    def touch(self, names: Iterable[str]) -> None:
        """Something about the volumes in use on these nodes has changed."""
        for name in names:
            self._stale[name] = None

    def limited(self, drivers: Iterable[str]) -> bool:
        """Some node has a limit for one of the drivers."""
        return any(map(self._limited.get, drivers))

    def installed(self, driver: str) -> int:
        return self._installed.get(driver, 0)

    def masks(self, drivers: Iterable[str], slots: Iterable[AttachId], *, most: int) -> list[int]:
        """Sets of nodes between which the slots left, or the disks already attached, make a difference.

        `most`: how many slots the pod can need; having more than that left makes none.
        """
        self.settle()
        masks = []
        for driver in drivers:
            by_left: dict[int, int] = {}
            for left, mask in self._left.get(driver, {}).items():
                shown = min(max(left, 0), most)
                by_left[shown] = by_left.get(shown, 0) | mask
            masks += [mask for left, mask in by_left.items() if left < most]
        return masks + [self._holders[slot] for slot in slots if slot in self._holders]

    def settle(self) -> None:
        """Count what has changed since the last time."""
        for name in self._stale:
            bit = self.nodes.mask_of(name)
            if bit:
                self._uncount(name, bit)
                self._count(name, bit)
        self._stale.clear()

    def _count(self, name: str, bit: int) -> None:
        pods, attachments = self.relations.pods_on(name), self.relations.attachments_to(name)
        slots: frozenset[AttachId] = frozenset()
        if pods or attachments:
            on_node = replace(self.whole, pods=pods, attachments=attachments)
            slots = frozenset(slots_in_use(on_node, self.whole.nodes[name], besides=NOBODY))
        used = slots_by_driver(slots, self.whole.csi_nodes.get(name))
        left = {driver: limit - used[driver] for driver, limit in self._limits[name].items()}
        self._counted[name] = _Counted(left, slots)
        for driver, free in left.items():
            by_left = self._left.setdefault(driver, {})
            by_left[free] = by_left.get(free, 0) | bit
        for slot in slots:
            self._holders[slot] = self._holders.get(slot, 0) | bit

    def _uncount(self, name: str, bit: int) -> None:
        counted = self._counted.pop(name, None)
        if counted is not None:
            for driver, free in counted.left.items():
                clear(self._left[driver], free, bit)
            for slot in counted.slots:
                clear(self._holders, slot, bit)

    def _undescribe(self, name: str, bit: int) -> None:
        self._limited.subtract(self._limits.pop(name, {}).keys())
        for driver in self._drivers.pop(name, ()):
            clear(self._installed, driver, bit)
