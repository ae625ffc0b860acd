"""Disks: what a volume is to the node that attaches it, whatever objects stand for it."""

from collections.abc import Mapping
from dataclasses import dataclass

from volsched.kube.storage import Volume, VolumeSource


@dataclass(frozen=True, slots=True)
class AttachId:
    """One slot of a node: two volumes with the same driver and handle are the same disk."""

    driver: str
    handle: str


@dataclass(frozen=True, slots=True)
class InTreePlugin:
    name: str
    handle_field: str
    limit_key: str
    default_limit: int


EBS = InTreePlugin("kubernetes.io/aws-ebs", "volumeID", "attachable-volumes-aws-ebs", 39)
IN_TREE: Mapping[str, InTreePlugin] = {
    "awsElasticBlockStore": EBS,
    "gcePersistentDisk": InTreePlugin("kubernetes.io/gce-pd", "pdName", "attachable-volumes-gce-pd", 16),
    "azureDisk": InTreePlugin("kubernetes.io/azure-disk", "diskName", "attachable-volumes-azure-disk", 16),
    "cinder": InTreePlugin("kubernetes.io/cinder", "volumeID", "attachable-volumes-cinder", 256),
}
"""The in-tree plugins that attach disks, by the volume source that they serve."""


def attach_id(volume: Volume) -> AttachId | None:
    """The slot that the volume takes on a node; None for a source that is not attached (local, nfs, …)."""
    source = volume.source
    if source is not None and source.kind == "csi":
        return AttachId(source.text("driver"), source.text("volumeHandle"))
    return in_tree_id(source)


def in_tree_id(source: VolumeSource | None) -> AttachId | None:
    """The slot of an in-tree disk, which a pod may also name inline. An inline `csi` source is never attached."""
    plugin = IN_TREE.get(source.kind) if source is not None else None
    if source is None or plugin is None:
        return None
    return AttachId(plugin.name, source.text(plugin.handle_field))
