"""What every object has: its metadata, and references from one object to another."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from volsched.kube.field_readers import Flag
from volsched.kube.selectors import CAMEL

# Annotations -----------------------------------------------------------------------------------------
BIND_COMPLETED = "pv.kubernetes.io/bind-completed"
BOUND_BY_CONTROLLER = "pv.kubernetes.io/bound-by-controller"
SELECTED_NODE = "volume.kubernetes.io/selected-node"
ALPHA_SELECTED_NODES = ("volume.alpha.kubernetes.io/selected-node", "volume.alpha.kubernetes.io/selectedNode")
"""What provisioners of the alpha phase read, and what the first design called it."""
SELECTED_NODE_KEYS = (SELECTED_NODE, *ALPHA_SELECTED_NODES)
"""The first that is there counts."""
BETA_STORAGE_CLASS = "volume.beta.kubernetes.io/storage-class"
MIGRATED_PLUGINS = "storage.alpha.kubernetes.io/migrated-plugins"
ROLLBACK = "pv.kubernetes.io/rollback"
STORAGE_PROVISIONER = "volume.kubernetes.io/storage-provisioner"
BETA_STORAGE_PROVISIONER = "volume.beta.kubernetes.io/storage-provisioner"
PROVISIONED_BY = "pv.kubernetes.io/provisioned-by"
MIGRATED_TO = "pv.kubernetes.io/migrated-to"
PRE_RESIZE_CAPACITY = "volume.alpha.kubernetes.io/pre-resize-capacity"
BINDING_STAMP = "volsched.io/binding"
DEFAULT_CLASS_KEYS = (
    "storageclass.kubernetes.io/is-default-class",
    "storageclass.beta.kubernetes.io/is-default-class",
)

# Finalizers ------------------------------------------------------------------------------------------
PVC_PROTECTION = "kubernetes.io/pvc-protection"
PV_PROTECTION = "kubernetes.io/pv-protection"
PV_CONTROLLER_FINALIZER = "kubernetes.io/pv-controller"
EXTERNAL_PROVISIONER_FINALIZER = "external-provisioner.volume.kubernetes.io/finalizer"

# Labels ----------------------------------------------------------------------------------------------
HOSTNAME = "kubernetes.io/hostname"
ZONE = "topology.kubernetes.io/zone"
REGION = "topology.kubernetes.io/region"
LEGACY_ZONE = "failure-domain.beta.kubernetes.io/zone"
LEGACY_REGION = "failure-domain.beta.kubernetes.io/region"
# Zone labels first, legacy before GA: the order in which the reference looks at them.
TOPOLOGY_LABELS = (LEGACY_ZONE, LEGACY_REGION, ZONE, REGION)
ZONE_SEPARATOR = "__"
KEPT_METADATA = ("uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds")
"""Set by the store alone; an update carries them along unchanged, whatever it says."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnerReference:
    __pydantic_config__ = CAMEL
    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: Flag = False
    block_owner_deletion: Flag = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Metadata:
    __pydantic_config__ = CAMEL
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    creation_timestamp: str = ""
    deletion_timestamp: str | None = None
    finalizers: tuple[str, ...] = ()
    owner_references: tuple[OwnerReference, ...] = ()

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name

    @property
    def being_deleted(self) -> bool:
        return self.deletion_timestamp is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectReference:
    """A pointer to another object, such as a volume's claimRef."""

    __pydantic_config__ = CAMEL
    api_version: str = ""
    kind: str = ""
    namespace: str = ""
    name: str = ""
    uid: str = ""
    resource_version: str = ""


def without_bookkeeping(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Metadata without what other servers keep in it for themselves (managedFields, selfLink); we do not."""
    return {field: value for field, value in metadata.items() if field not in ("managedFields", "selfLink")}
