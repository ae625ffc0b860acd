"""Disks: what a volume is to the node that attaches it, whatever objects stand for it."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from volsched.kube.meta import MIGRATED_PLUGINS
from volsched.kube.storage import CSINode, Volume, VolumeSource


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
    csi_driver: str
    """Who attaches the disks on a node that has migrated."""


EBS = InTreePlugin("kubernetes.io/aws-ebs", "volumeID", "attachable-volumes-aws-ebs", 39, "ebs.csi.aws.com")
IN_TREE: Mapping[str, InTreePlugin] = {
    "awsElasticBlockStore": EBS,
    "gcePersistentDisk": InTreePlugin(
        "kubernetes.io/gce-pd", "pdName", "attachable-volumes-gce-pd", 16, "pd.csi.storage.gke.io"
    ),
    "azureDisk": InTreePlugin(
        "kubernetes.io/azure-disk", "diskName", "attachable-volumes-azure-disk", 16, "disk.csi.azure.com"
    ),
    "cinder": InTreePlugin(
        "kubernetes.io/cinder", "volumeID", "attachable-volumes-cinder", 256, "cinder.csi.openstack.org"
    ),
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


def migrated_plugins(csi_node: CSINode | None) -> Iterator[InTreePlugin]:
    """The in-tree plugins that the node says it has migrated to CSI."""
    names = "" if csi_node is None else csi_node.meta.annotations.get(MIGRATED_PLUGINS, "")
    if names:
        migrated = names.split(",")
        yield from (plugin for plugin in IN_TREE.values() if plugin.name in migrated)


def csi_attached_plugins(csi_node: CSINode | None) -> list[InTreePlugin]:
    """The in-tree plugins whose disks a CSI driver attaches on this node: the driver is there, or said to be."""
    if csi_node is None:
        return []
    installed = {driver.name for driver in csi_node.drivers}
    migrated = list(migrated_plugins(csi_node))
    return [plugin for plugin in IN_TREE.values() if plugin in migrated or plugin.csi_driver in installed]


def slots_by_driver(slots: Iterable[AttachId], csi_node: CSINode | None) -> Counter[str]:
    """How many slots of the node each driver needs. A plugin and the CSI driver that attaches its disks share
    theirs, so both are given the sum."""
    counted = Counter(slot.driver for slot in slots)
    for plugin in csi_attached_plugins(csi_node):
        together = counted[plugin.name] + counted[plugin.csi_driver]
        if together:
            counted[plugin.name] = counted[plugin.csi_driver] = together
    return counted
