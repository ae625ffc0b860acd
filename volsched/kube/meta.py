"""Metadata and references, which every object has, and how fields of a manifest are read."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

from pydantic import AliasPath, BeforeValidator, Field, Strict
from pydantic.fields import FieldInfo

from volsched.kube.quantity import Quantity, QuantityError, parse_quantity
from volsched.kube.selectors import CAMEL

DEFAULT_NAMESPACE = "default"

# How a manifest's fields become the fields of a value: `at` names the path, readers turn scalars into values.
#
# Objects are declared once, as dataclasses; pydantic builds them straight from a manifest and reports every field
# whose type is wrong. Content (is this a legal access mode?) is checked in `validation`, so that foreign objects
# can be read even if they are invalid.


def at(*path: str) -> FieldInfo:
    """The place of a field in the manifest, for use in `Annotated`."""
    info: FieldInfo = Field(validation_alias=AliasPath(*path))
    return info


def read_quantity(raw: Any) -> Quantity:
    """A quantity as JSON or YAML may hold it: a string, or a number."""
    if isinstance(raw, Quantity):
        return raw
    if isinstance(raw, bool) or not isinstance(raw, str | int | float):
        raise ValueError("must be a quantity such as 10Gi")
    try:
        return parse_quantity(raw.strip() if isinstance(raw, str) else repr(raw))
    except QuantityError as error:
        raise ValueError(f"is not a quantity: {error}; write for example 10Gi, 10G or 1500m") from None


Amount = Annotated[Quantity, BeforeValidator(read_quantity)]
Flag = Annotated[bool, Strict()]
Whole = Annotated[int, Strict()]


# Annotations -----------------------------------------------------------------------------------------
BIND_COMPLETED = "pv.kubernetes.io/bind-completed"
BOUND_BY_CONTROLLER = "pv.kubernetes.io/bound-by-controller"
SELECTED_NODE = "volume.kubernetes.io/selected-node"
ALPHA_SELECTED_NODES = ("volume.alpha.kubernetes.io/selected-node", "volume.alpha.kubernetes.io/selectedNode")
"""The keys that alpha provisioners read, and the spelling of the first design."""
SELECTED_NODE_KEYS = (SELECTED_NODE, *ALPHA_SELECTED_NODES)
"""The keys of the selected node; the first one present counts."""
BETA_STORAGE_CLASS = "volume.beta.kubernetes.io/storage-class"
MIGRATED_PLUGINS = "storage.alpha.kubernetes.io/migrated-plugins"
ROLLBACK = "pv.kubernetes.io/rollback"
STORAGE_PROVISIONER = "volume.kubernetes.io/storage-provisioner"
BETA_STORAGE_PROVISIONER = "volume.beta.kubernetes.io/storage-provisioner"
PROVISIONED_BY = "pv.kubernetes.io/provisioned-by"
MIGRATED_TO = "pv.kubernetes.io/migrated-to"
PRE_RESIZE_CAPACITY = "volume.alpha.kubernetes.io/pre-resize-capacity"
BINDING_STAMP = "volsched.io/binding"
FENCE = "volsched.io/fence"
"""The annotation gets a new value with every fence, because only a write with a change raises the version."""
SCHEDULER_NAME = "volsched"
"""The schedulerName of pods that are ours on every cluster."""
DEFAULT_SCHEDULER = "default-scheduler"
OUR_SCHEDULERS = ("", DEFAULT_SCHEDULER, SCHEDULER_NAME)
"""Values of schedulerName that mean us, where the cluster is our own."""
ATTACHED_SCHEDULERS = (SCHEDULER_NAME,)
"""Values of schedulerName that mean us on a cluster with its own scheduler."""
CLUSTER_SCHEDULERS = ("", DEFAULT_SCHEDULER)
"""Values that mean a cluster's own scheduler."""
GATE = "volsched.io/volumes"
"""A scheduling gate: the pod's own scheduler waits until we have bound its claims."""
GAVE_UP = "volsched.io/gave-up"
"""Annotation of a pod whose gate was removed although its claims are not bound: the reason."""
BIND_TIMEOUT_SECONDS = "volsched.io/bind-timeout-seconds"
ON_FAILURE = "volsched.io/on-failure"
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
STABLE_LABELS = {
    LEGACY_ZONE: ZONE,
    LEGACY_REGION: REGION,
    "beta.kubernetes.io/arch": "kubernetes.io/arch",
    "beta.kubernetes.io/os": "kubernetes.io/os",
    "beta.kubernetes.io/instance-type": "node.kubernetes.io/instance-type",
}
"""The labels that were renamed when they became stable; a volume's affinity may follow them."""
# Zone labels first, legacy before GA: the order in which the reference reads them.
TOPOLOGY_LABELS = (LEGACY_ZONE, LEGACY_REGION, ZONE, REGION)
ZONE_SEPARATOR = "__"
NAMESPACE_NAME_LABEL = "kubernetes.io/metadata.name"
"""A label of every namespace, so that selectors can name one."""
KEPT_METADATA = (
    "uid",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "managedFields",
)
"""Set by the store alone; an update cannot change them."""


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
    """Metadata without servers' own bookkeeping (managedFields, selfLink), which no client writes."""
    return {field: value for field, value in metadata.items() if field not in ("managedFields", "selfLink")}


def zone_of(labels: Mapping[str, Any]) -> str | None:
    """The zone in these labels, by the present label or the one before 1.17, which old clusters still have.

    For output only. The rules compare labels by their keys, as the reference does.
    """
    key = zone_key(labels)
    return None if key is None else str(labels[key])


def zone_key(labels: Mapping[str, Any]) -> str | None:
    """The key of the label with the node's zone; a volume in that zone must use the same key."""
    return next((key for key in (ZONE, LEGACY_ZONE) if labels.get(key)), None)
