"""Who uses whom: pods by node and claim, claims by volume, attachments by node, volumes by the claim they name."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from volsched.kube.storage import Claim, Volume, VolumeAttachment
from volsched.kube.workloads import Pod
from volsched.scheduling.rules.pod_claims import claim_uses
from volsched.scheduling.rules.snapshot import Snapshot

# The inline sources of which two pods on one node may be in each other's way.
CONTENDED = frozenset({"awsElasticBlockStore", "gcePersistentDisk", "iscsi", "rbd"})
Keys = dict[str, dict[str, None]]
"""Insertion-ordered sets: what is answered must not depend on hashing."""


@dataclass(slots=True)
class Relations:
    """Maps over the live objects of `whole`; told of every change before and after it."""

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
        """The entries of one object, each once: a claim mounted twice is used once."""
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
        """Where pods have an inline disk that another pod's disk of the kind may collide with."""
        pods = (self.whole.pods[key] for key in self._disks.get(kind, ()))
        return list(dict.fromkeys(pod.node_name for pod in pods if pod.node_name))

    def nodes_using_volume(self, volume: str) -> list[str]:
        """Where the volume may take an attach slot."""
        attached = (self.whole.attachments.get(key) for key in self._attachments_of.get(volume, ()))
        names = [held.node_name for held in attached if held is not None]
        for claim in self._claims_of.get(volume, ()):
            names += self.nodes_using_claim(claim)
        return names
