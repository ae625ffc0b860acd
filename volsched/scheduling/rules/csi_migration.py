"""CSI migration: an in-tree volume as its CSI driver sees it on a node where the driver has taken over.

Only the node affinity matters, and only while a bound claim is checked; the stored volume is never changed.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from volsched.kube.meta import LEGACY_ZONE, ZONE, ZONE_SEPARATOR
from volsched.kube.selectors import NodeSelector, NodeTerm, Requirement
from volsched.kube.storage import CSINode, Volume, VolumeNodeAffinity
from volsched.scheduling.rules.disks import IN_TREE, migrated_plugins
from volsched.scheduling.rules.status import AttemptError

# Where a volume or its affinity has both labels, the first one found here is its zone label.
ZONE_LABELS = (ZONE, LEGACY_ZONE)
GCE_PD = "gcePersistentDisk"
# Portworx migrates as well, but has no zones: its affinity stays as it is.
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
    """The volume with its zones under the CSI driver's key, or the very same volume where nothing applies."""
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
    """A GCE disk in several zones is a regional one, and its region is read out of the zones' names."""
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
