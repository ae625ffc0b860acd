"""What the index holds: the live objects, and the structures over them that every change is folded into."""

from collections.abc import MutableMapping
from dataclasses import dataclass, field, replace
from typing import Any

from volsched.kube.kinds import Object
from volsched.kube.storage import Claim, CSINode, StorageCapacity, StorageClass, Volume, VolumeAttachment
from volsched.kube.workloads import Node, Pod
from volsched.scheduling.index.attach_slots import Usage
from volsched.scheduling.index.domains import Domains
from volsched.scheduling.index.lookup import Lookup
from volsched.scheduling.index.node_loads import Loads
from volsched.scheduling.index.node_sets import Nodes
from volsched.scheduling.index.pod_affinity_index import Crowd, weight_of
from volsched.scheduling.index.relations import Keys, Relations
from volsched.scheduling.index.selector_cache import Selections
from volsched.scheduling.index.storage_by_node import StorageByNode
from volsched.scheduling.rules.attach_limits import TERMINATED
from volsched.scheduling.rules.disks import attach_id
from volsched.scheduling.rules.profile import Profile
from volsched.scheduling.rules.snapshot import FIELD_OF, Snapshot


@dataclass(slots=True)
class Contents:
    profile: Profile
    whole: Snapshot = field(default_factory=Snapshot)
    """All objects. Its mappings are changed in place: it is always the present."""
    quiet: Snapshot = field(init=False)
    """The same, but that volumes are only found by name, and that no pod, attachment or capacity object is seen:
    enough to look at a pod itself, and at the nodes where nothing of that matters."""
    nodes: Nodes = field(init=False)
    domains: Domains = field(init=False)
    relations: Relations = field(init=False)
    usage: Usage = field(init=False)
    selections: Selections = field(init=False)
    crowd: Crowd = field(init=False)
    loads: Loads = field(default_factory=Loads)
    storage: StorageByNode = field(init=False)
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
        self.storage.touch_capacity(capacity)

    def promise(self, claim_uid: str, capacity: str | None) -> None:
        """The claim's room is part of what is reserved of this capacity object; None: no longer."""
        if capacity is None:
            self._promised.pop(claim_uid, None)
        elif claim_uid:
            self._promised[claim_uid] = capacity

    def lay(self, pod: Pod) -> None:
        """Count a pod that is on a node there is among those that others meet there."""
        position = self._place_of(pod)
        if position is not None:
            self.crowd.enter(pod, position)
            self.loads.enter(pod, position)

    def lift(self, pod: Pod) -> None:
        """As if the pod were not there."""
        position = self._place_of(pod)
        if position is not None:
            self.crowd.leave(pod, position)
            self.loads.leave(pod, position)

    def _place_of(self, pod: Pod) -> int | None:
        bit = self.nodes.mask_of(pod.node_name) if pod.node_name and pod.phase not in TERMINATED else 0
        return bit.bit_length() - 1 if bit else None

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
    """Whose slots its claims take, or whether those of volumes that were given to them."""
    return (before.provisioner, before.volume_binding_mode) != (after.provisioner, after.volume_binding_mode)
