"""Uses among pods, claims, volumes and nodes; and which nodes have how many attach slots left."""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

from volsched.kube.meta import Metadata
from volsched.kube.storage import Claim, Volume, VolumeAttachment
from volsched.kube.workloads import Pod
from volsched.scheduling.index.node_sets import Nodes, clear
from volsched.scheduling.rules.attach_limits import attach_limits, csi_limits, slots_in_use
from volsched.scheduling.rules.disks import AttachId, slots_by_driver
from volsched.scheduling.rules.pod_claims import claim_uses
from volsched.scheduling.rules.snapshot import Snapshot

# The inline sources of which two pods on one node may conflict.
CONTENDED = frozenset({"awsElasticBlockStore", "gcePersistentDisk", "iscsi", "rbd"})
Keys = dict[str, dict[str, None]]
"""Insertion-ordered sets: answers must not depend on hashing."""


@dataclass(slots=True)
class Relations:
    """Maps between the live objects of `whole`, updated before and after every change."""

    whole: Snapshot
    _naming: Keys = field(default_factory=dict)
    """Claim → the volumes that name it."""
    _claims_of: Keys = field(default_factory=dict)
    """Volume → the claims that name it."""
    _pods_on: Keys = field(default_factory=dict)
    _pods_using: Keys = field(default_factory=dict)
    _attached_to: Keys = field(default_factory=dict)
    _attachments_of: Keys = field(default_factory=dict)
    _disks: Keys = field(default_factory=dict)

    def link(self, value: Pod | Claim | Volume | VolumeAttachment) -> None:
        for relation, key in self._of(value):
            relation.setdefault(key, {})[value.meta.key] = None

    def unlink(self, value: Pod | Claim | Volume | VolumeAttachment) -> None:
        for relation, key in self._of(value):
            held = relation[key]
            held.pop(value.meta.key, None)
            if not held:
                del relation[key]

    def _of(self, value: Pod | Claim | Volume | VolumeAttachment) -> Iterator[tuple[Keys, str]]:
        """The map entries of one object, each once: a claim mounted twice is used once."""
        match value:
            case Pod():
                if value.node_name:
                    yield self._pods_on, value.node_name
                for key in dict.fromkeys(use.key for use in claim_uses(value)):
                    yield self._pods_using, key
                for kind in CONTENDED & {held.source.kind for held in value.volumes if held.source is not None}:
                    yield self._disks, kind
            case Claim():
                if value.volume_name:
                    yield self._claims_of, value.volume_name
            case Volume():
                if value.claim_ref is not None:
                    yield self._naming, f"{value.claim_ref.namespace}/{value.claim_ref.name}"
            case VolumeAttachment():
                yield self._attached_to, value.node_name
                yield self._attachments_of, value.volume_name

    def pods_on(self, node: str) -> dict[str, Pod]:
        return {key: self.whole.pods[key] for key in self._pods_on.get(node, ())}

    def pods_using(self, claims: Iterable[str]) -> dict[str, Pod]:
        return {key: self.whole.pods[key] for claim in claims for key in self._pods_using.get(claim, ())}

    def attachments_to(self, node: str) -> dict[str, VolumeAttachment]:
        return {key: self.whole.attachments[key] for key in self._attached_to.get(node, ())}

    def volumes_naming(self, claim: str) -> list[Volume]:
        names = self._naming.get(claim)
        return [self.whole.stored_volumes[name] for name in names] if names else []

    def nodes_using_claim(self, claim: str) -> list[str]:
        pods = (self.whole.pods.get(key) for key in self._pods_using.get(claim, ()))
        return [pod.node_name for pod in pods if pod is not None and pod.node_name]

    def nodes_with_disks(self, kind: str) -> list[str]:
        """The nodes with an inline disk that may conflict with another pod's disk of the kind."""
        pods = (self.whole.pods[key] for key in self._disks.get(kind, ()))
        return list(dict.fromkeys(pod.node_name for pod in pods if pod.node_name))

    def nodes_using_volume(self, volume: str) -> list[str]:
        """The nodes on which the volume may take an attach slot."""
        attachments = self.whole.attachments
        names = [attachments[key].node_name for key in self._attachments_of.get(volume, ()) if key in attachments]
        for claim in self._claims_of.get(volume, ()):
            names += self.nodes_using_claim(claim)
        return names


# Attach slots: which nodes have how many left of a driver, which hold a given disk, which have a driver at all.
#
# The rules do the counting, for one node at a time, when the node has changed and limits matter to a pod.

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
    """Whether limits are part of the binding decision: then all count, else only those of CSI drivers."""
    _limits: dict[str, dict[str, int]] = field(default_factory=dict)
    _limited: Counter[str] = field(default_factory=Counter)
    _drivers: dict[str, frozenset[str]] = field(default_factory=dict)
    _installed: dict[str, int] = field(default_factory=dict)
    _counted: dict[str, _Counted] = field(default_factory=dict)
    _stale: dict[str, None] = field(default_factory=dict)
    _left: dict[str, dict[int, int]] = field(default_factory=dict)
    _holders: dict[AttachId, int] = field(default_factory=dict)

    def describe(self, name: str) -> None:
        """Read a node and its drivers' information after either was added or changed."""
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
        """Remove a deleted node and its position."""
        self._undescribe(name, bit)
        self._uncount(name, bit)
        self._stale.pop(name, None)

    def touch(self, names: Iterable[str]) -> None:
        """Mark nodes as stale whose volumes in use have changed."""
        for name in names:
            self._stale[name] = None

    def limited(self, drivers: Iterable[str]) -> bool:
        """Whether some node has a limit for one of the drivers."""
        return any(map(self._limited.get, drivers))

    def installed(self, driver: str) -> int:
        return self._installed.get(driver, 0)

    def masks(self, drivers: Iterable[str], slots: Iterable[AttachId], *, most: int) -> list[int]:
        """Sets of nodes that differ in the slots left, or in the disks already attached.

        `most`: how many slots the pod can need; more than that makes no difference.
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
        """Count the stale nodes again."""
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
