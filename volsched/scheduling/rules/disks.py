"""Disks: a volume's identity on the node that attaches it; an in-tree volume as its CSI driver sees it."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from volsched.kube.meta import LEGACY_ZONE, MIGRATED_PLUGINS, ZONE, ZONE_SEPARATOR
from volsched.kube.selectors import NodeSelector, NodeTerm, Requirement
from volsched.kube.storage import CSINode, Volume, VolumeNodeAffinity, VolumeSource
from volsched.scheduling.rules.status import AttemptError


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
    """The driver that attaches the disks on a migrated node."""


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
"""The in-tree plugins that attach disks, by their volume source."""


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
    """The in-tree plugins that the node reports as migrated to CSI."""
    names = "" if csi_node is None else csi_node.meta.annotations.get(MIGRATED_PLUGINS, "")
    if names:
        migrated = names.split(",")
        yield from (plugin for plugin in IN_TREE.values() if plugin.name in migrated)


def csi_attached_plugins(csi_node: CSINode | None) -> list[InTreePlugin]:
    """The in-tree plugins whose disks a CSI driver attaches here: it is installed, or the node reports it."""
    if csi_node is None:
        return []
    installed = {driver.name for driver in csi_node.drivers}
    migrated = list(migrated_plugins(csi_node))
    return [plugin for plugin in IN_TREE.values() if plugin in migrated or plugin.csi_driver in installed]


def slots_by_driver(slots: Iterable[AttachId], csi_node: CSINode | None) -> Counter[str]:
    """The number of slots that each driver needs. A plugin and the CSI driver that attaches its disks share their
    slots, so both get the sum."""
    counted = Counter(slot.driver for slot in slots)
    for plugin in csi_attached_plugins(csi_node):
        together = counted[plugin.name] + counted[plugin.csi_driver]
        if together:
            counted[plugin.name] = counted[plugin.csi_driver] = together
    return counted


# CSI migration: an in-tree volume as its CSI driver sees it on a node where the driver has taken over.
#
# Only the node affinity matters, and only while a bound claim is checked; the stored volume is never changed.

# Where a volume or its affinity has both labels, the first one found here is its zone label.
ZONE_LABELS = (ZONE, LEGACY_ZONE)
GCE_PD = "gcePersistentDisk"
# Portworx migrates as well, but has no zones: its affinity is unchanged.
CSI_ZONE_KEYS: Mapping[str, str] = {
    "awsElasticBlockStore": "topology.ebs.csi.aws.com/zone",
    GCE_PD: "topology.gke.io/zone",
    "azureDisk": "topology.disk.csi.azure.com/zone",
    "cinder": "topology.cinder.csi.openstack.org/zone",
}


def zone_in_unexpected_format(zone: str) -> str:
    return (
        "could not translate pv: failed to get region from zones: "
        f"zone in unexpected format, expected: {{locale}}-{{region}}-{{zone}}, got: {zone}"
    )


def translate(volume: Volume, csi_node: CSINode | None) -> Volume:
    """The volume with its zones under the CSI driver's key, or the same object if nothing applies."""
    source = volume.source
    if source is None or source.kind not in CSI_ZONE_KEYS:
        return volume
    if IN_TREE[source.kind] not in migrated_plugins(csi_node):
        return volume
    csi_key = CSI_ZONE_KEYS[source.kind]
    zones = _labelled_zones(volume)
    if source.kind == GCE_PD:
        _require_regional_zones(zones)
    selector = (volume.node_affinity and volume.node_affinity.required) or NodeSelector()
    zone_key = _zone_key_of(selector)
    if zone_key is not None:
        return _with_terms(volume, [_renamed(term, zone_key, csi_key) for term in selector.node_selector_terms])
    if not zones:
        return volume
    added = Requirement(csi_key, "In", zones)
    terms = selector.node_selector_terms or (NodeTerm(),)
    return _with_terms(
        volume, [replace(term, match_expressions=(*term.match_expressions, added)) for term in terms]
    )


def _labelled_zones(volume: Volume) -> tuple[str, ...]:
    for key in ZONE_LABELS:
        if key in volume.meta.labels:
            return tuple(volume.meta.labels[key].split(ZONE_SEPARATOR))
    return ()


def _require_regional_zones(zones: Sequence[str]) -> None:
    """A GCE disk in several zones is regional, and its region is derived from the zones' names."""
    if len(zones) < 2:
        return
    for zone in zones:
        if zone.count("-") != 2:
            raise AttemptError(zone_in_unexpected_format(zone))


def _zone_key_of(selector: NodeSelector) -> str | None:
    used = {requirement.key for term in selector.node_selector_terms for requirement in term.match_expressions}
    return next((key for key in ZONE_LABELS if key in used), None)


def _renamed(term: NodeTerm, old: str, new: str) -> NodeTerm:
    expressions = tuple(replace(part, key=new) if part.key == old else part for part in term.match_expressions)
    return replace(term, match_expressions=expressions)


def _with_terms(volume: Volume, terms: Sequence[NodeTerm]) -> Volume:
    return replace(volume, node_affinity=VolumeNodeAffinity(required=NodeSelector(tuple(terms))))
