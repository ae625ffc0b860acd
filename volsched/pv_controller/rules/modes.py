"""In what the two ways to run the PV controller differ, and which volume plugins it has.

`PARITY` does what the reference does, faults included; `VOLSCHED` adds rollback and never trusts a cache alone
before it reclaims.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from volsched.kube.quantity import Quantity
from volsched.kube.storage import Volume

IN_TREE_PREFIX = "kubernetes.io/"
MIGRATED = {
    "kubernetes.io/aws-ebs": "ebs.csi.aws.com",
    "kubernetes.io/gce-pd": "pd.csi.storage.gke.io",
    "kubernetes.io/azure-disk": "disk.csi.azure.com",
    "kubernetes.io/cinder": "cinder.csi.openstack.org",
    "kubernetes.io/vsphere-volume": "csi.vsphere.vmware.com",
    "kubernetes.io/azure-file": "file.csi.azure.com",
    "kubernetes.io/portworx-volume": "pxd.portworx.com",
}
"""In-tree plugins whose work a CSI driver has taken over, everywhere and for good."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VolumePlugin:
    """A volume plugin that the controller itself calls."""

    name: str
    provisions: bool = True
    deletes: bool = True
    recycles: bool = False
    mount_options: bool = False
    sources: frozenset[str] | None = frozenset()
    """Volume sources that it deletes and recycles even where it did not provision them; None: all of them."""

    def serves(self, volume: Volume) -> bool:
        return self.sources is None or (volume.source is not None and volume.source.kind in self.sources)


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerRules:
    provisioning: bool = True
    """Provision volumes for claims that find none."""
    plugins: Mapping[str, VolumePlugin] = field(default_factory=dict)
    """By name. A name that is not here and not `kubernetes.io/...` is an external provisioner's."""
    migrated: Mapping[str, str] = field(default_factory=lambda: MIGRATED)
    rollback: bool
    """Undo the bindings of claims that ask for it."""
    data_state: bool
    """Note on a claim that its new binding is still clean."""
    safe_release: bool
    """Look for the claim in the store, not only in a cache, before the storage of a released volume is touched."""
    int64_sizes: bool
    """Sizes beyond an int64 read as 0 bytes."""
    alpha_annotations: bool
    """The selected node counts under its alpha names too."""
    refuses_other_attributes: bool
    """Delete a volume again that a plugin made without the claim's volumeAttributesClassName: they would never be
    bound. The reference keeps it, and the claim waits for ever."""

    def is_in_tree(self, provisioner: str) -> bool:
        """Its volumes are ours to look after."""
        return provisioner.startswith(IN_TREE_PREFIX) or provisioner in self.plugins

    def bytes_of(self, quantity: Quantity) -> int:
        return quantity.int64_value() if self.int64_sizes else quantity.value()


PARITY = ControllerRules(
    rollback=False,
    data_state=False,
    safe_release=False,
    int64_sizes=True,
    alpha_annotations=False,
    refuses_other_attributes=False,
)
VOLSCHED = ControllerRules(
    rollback=True,
    data_state=True,
    safe_release=True,
    int64_sizes=False,
    alpha_annotations=True,
    refuses_other_attributes=True,
)
