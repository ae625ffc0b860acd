"""The PV controller's requests to its driver, the errors that it gets back, and its two modes."""

from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from volsched.kube.quantity import Quantity
from volsched.kube.storage import Volume
from volsched.log.commands import RejectedError

# A sync is a generator: it yields these requests, and the driver sends answers or throws errors into it. So the
# same rules run against our log in one transaction, against a foreign API call by call, and in a test that stops
# midway.

CLAIM = "PersistentVolumeClaim"
VOLUME = "PersistentVolume"

Manifest = Mapping[str, Any]
T = TypeVar("T")


class SyncError(Exception):
    """The sync cannot continue and must be retried later. Failed writes arrive as RejectedError instead."""


class PluginError(Exception):
    """A volume plugin could not do its work; nothing is left behind."""


class VolumeInUseError(PluginError):
    """The volume is still in use; its deletion is retried later."""


class UnfinishedError(PluginError):
    """Provisioning has no final answer and may still be running."""


@dataclass(frozen=True, slots=True)
class Update:
    """Write the whole object if it still has the manifest's resourceVersion. Answer: the `ParsedObject` stored."""

    kind: str
    manifest: Manifest
    status: bool = False
    """Write the status alone; otherwise everything but the status."""


@dataclass(frozen=True, slots=True)
class Create:
    """Create the object; no object of its name may exist."""

    kind: str
    manifest: Manifest


@dataclass(frozen=True, slots=True)
class Delete:
    """Delete the object of that name if it is the one with that uid."""

    kind: str
    key: str
    uid: str


@dataclass(frozen=True, slots=True)
class LiveGet:
    """Read the object from the store, never from a cache. Answer: the manifest, or None."""

    kind: str
    key: str


@dataclass(frozen=True, slots=True)
class LivePods:
    """Read all pods of a namespace from the store. Answer: manifests."""

    namespace: str


@dataclass(frozen=True, slots=True)
class Notice:
    """A Kubernetes event about an object."""

    kind: str
    key: str
    uid: str
    type: str
    reason: str
    message: str
    patience_seconds: int = 0
    """Write the notice only after it was requested for this long without a break, and then once per this time."""


@dataclass(frozen=True, slots=True)
class Enqueue:
    """Sync that object soon."""

    kind: str
    key: str


@dataclass(frozen=True, slots=True)
class StartOperation:
    """Run a long operation after the sync, unless one of that name runs or is backing off after an error."""

    name: str
    operation: "Steps[None]"


@dataclass(frozen=True, slots=True)
class Pause:
    """Continue after this many seconds. Only for operations."""

    seconds: int


@dataclass(frozen=True, slots=True)
class Provision:
    """Create storage for a claim. Answer: a volume's manifest with at least its capacity, modes and source."""

    plugin: str
    volume_name: str
    claim: Manifest
    storage_class: Manifest
    node: Manifest | None
    """The node of the first consumer; None: anywhere the class allows."""


@dataclass(frozen=True, slots=True)
class DeleteAsset:
    """Destroy the storage behind a volume."""

    plugin: str
    volume: Manifest


@dataclass(frozen=True, slots=True)
class Recycle:
    """Erase the storage behind a volume, so that another claim can use it."""

    plugin: str
    volume: Manifest


Request = (
    Update
    | Create
    | Delete
    | LiveGet
    | LivePods
    | Notice
    | Enqueue
    | StartOperation
    | Pause
    | Provision
    | DeleteAsset
    | Recycle
)
Steps = Generator[Request, Any, T]
"""A sync or a part of one: yields requests, receives answers, returns T."""


def drive(steps: Steps[T], answer: Callable[[Request], Any]) -> T:
    """Run a sync to its end. RejectedError and PluginError from `answer` are thrown into it."""
    try:
        request = next(steps)
        while True:
            try:
                given = answer(request)
            except (RejectedError, PluginError) as error:
                request = steps.throw(error)
            else:
                request = steps.send(given)
    except StopIteration as end:
        result: T = end.value
        return result


# The differences between the two modes of the PV controller, and its volume plugins.
#
# `PARITY` behaves as the reference, faults included; `VOLSCHED` adds rollback and never trusts a cache alone
# before it reclaims.

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
"""In-tree plugins that a CSI driver has replaced everywhere, permanently."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VolumePlugin:
    """A volume plugin that the controller itself calls."""

    name: str
    provisions: bool = True
    deletes: bool = True
    recycles: bool = False
    mount_options: bool = False
    sources: frozenset[str] | None = frozenset()
    """Volume sources that the plugin deletes and recycles even if it did not provision them; None: all."""

    def serves(self, volume: Volume) -> bool:
        return self.sources is None or (volume.source is not None and volume.source.kind in self.sources)


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerRules:
    provisioning: bool = True
    """Provision volumes for claims that find none."""
    plugins: Mapping[str, VolumePlugin] = field(default_factory=dict)
    """The plugins by name. Any other name, except `kubernetes.io/...`, is an external provisioner's."""
    migrated: Mapping[str, str] = field(default_factory=lambda: MIGRATED)
    rollback: bool
    """Undo the bindings of claims that request it."""
    data_state: bool
    """Record on a claim that its new binding is still clean."""
    safe_release: bool
    """Read the claim from the store, not only from a cache, before touching the storage of a released volume."""
    int64_sizes: bool
    """Read sizes beyond an int64 as 0 bytes."""
    alpha_annotations: bool
    """Read the selected node under its alpha names too."""
    refuses_other_attributes: bool
    """Delete a volume that a plugin created without the claim's volumeAttributesClassName: the two could never be
    bound. The reference keeps it, and the claim waits forever.
    """

    def is_in_tree(self, provisioner: str) -> bool:
        """Whether we manage the provisioner's volumes."""
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
