"""Storage objects: volumes, claims, classes and the objects that CSI drivers publish."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache, lru_cache
from typing import Annotated, Any

import orjson
from pydantic import BeforeValidator, TypeAdapter, ValidationError

from volsched.kube.meta import BETA_STORAGE_CLASS, Amount, Flag, Metadata, ObjectReference, Whole, at
from volsched.kube.quantity import ZERO, Quantity
from volsched.kube.selectors import CAMEL, LabelSelector, NodeSelector, TopologyTerm

WAIT_FOR_FIRST_CONSUMER = "WaitForFirstConsumer"
IMMEDIATE = "Immediate"
NO_PROVISIONER = "kubernetes.io/no-provisioner"
AVAILABLE = "Available"
LOST = "Lost"
FILESYSTEM = "Filesystem"
READ_WRITE_ONCE_POD = "ReadWriteOncePod"
# In the order in which sets of modes are written.
ACCESS_MODES = ("ReadWriteOnce", "ReadOnlyMany", "ReadWriteMany", READ_WRITE_ONCE_POD)

# Every volume source of the core API, inline in a pod or in a PersistentVolume.
SOURCES = frozenset(
    {
        "awsElasticBlockStore", "azureDisk", "azureFile", "cephfs", "cinder", "configMap", "csi", "downwardAPI",
        "emptyDir", "fc", "flexVolume", "flocker", "gcePersistentDisk", "gitRepo", "glusterfs", "hostPath",
        "image", "iscsi", "local", "nfs", "photonPersistentDisk", "portworxVolume", "projected", "quobyte", "rbd",
        "scaleIO", "secret", "storageos", "vsphereVolume",
    }
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class VolumeSource:
    """The source of a volume's data: its field name (`csi`, `local`, …) and content."""

    kind: str
    fields: Mapping[str, Any] = field(default_factory=dict)

    def text(self, name: str) -> str:
        value = self.fields.get(name, "")
        return value if isinstance(value, str) else ""

    def flag(self, name: str) -> bool:
        return self.fields.get(name) is True


def read_source(spec: Any) -> VolumeSource | None:
    """The first known source among the fields of a volume's spec."""
    if isinstance(spec, VolumeSource):
        return spec
    if not isinstance(spec, dict):
        raise ValueError("must be a mapping of fields")
    for kind in spec:
        if kind in SOURCES:
            if not isinstance(spec[kind], dict):
                raise ValueError(f"the volume source {kind} must be a mapping of fields")
            return VolumeSource(kind, spec[kind])
    return None


SourceIn = BeforeValidator(read_source)


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageClass:
    __pydantic_config__ = CAMEL
    meta: Annotated[Metadata, at("metadata")]
    provisioner: str = ""
    parameters: Mapping[str, str] = field(default_factory=dict)
    reclaim_policy: str = ""
    volume_binding_mode: str | None = None
    allowed_topologies: tuple[TopologyTerm, ...] = ()

    @property
    def name(self) -> str:
        return self.meta.name


@dataclass(frozen=True, slots=True, kw_only=True)
class VolumeNodeAffinity:
    required: NodeSelector | None = None


SHARED_AFFINITIES = 20_000
"""How many are kept: a cluster has one for each node or zone, and very many volumes of each."""


def _shared_affinity(raw: Any) -> Any:
    """The value that volumes with an equal affinity share; `raw` itself where it cannot be read."""
    if not isinstance(raw, dict):
        return raw
    try:
        text = orjson.dumps(raw, option=orjson.OPT_PASSTHROUGH_DATETIME)
        # What is not finite is written as null: it must be refused, not read as missing.
        return raw if b"null" in text else _affinity_of(text)
    except (ValidationError, TypeError):
        # Read once more as a part of its volume, whose errors name the place.
        return raw


@lru_cache(maxsize=SHARED_AFFINITIES)
def _affinity_of(text: bytes) -> VolumeNodeAffinity:
    return _affinity_reader().validate_python(orjson.loads(text))


@cache
def _affinity_reader() -> TypeAdapter[VolumeNodeAffinity]:
    """Built on first use: commands that read no volume do not wait for it."""
    return TypeAdapter(VolumeNodeAffinity)


AffinityIn = BeforeValidator(_shared_affinity)


@dataclass(frozen=True, slots=True, kw_only=True)
class Volume:
    """A PersistentVolume."""

    meta: Annotated[Metadata, at("metadata")]
    capacity: Annotated[Mapping[str, Amount], at("spec", "capacity")] = field(default_factory=dict)
    access_modes: Annotated[tuple[str, ...], at("spec", "accessModes")] = ()
    reclaim_policy: Annotated[str, at("spec", "persistentVolumeReclaimPolicy")] = ""
    storage_class_name: Annotated[str, at("spec", "storageClassName")] = ""
    volume_mode: Annotated[str | None, at("spec", "volumeMode")] = None
    attributes_class: Annotated[str | None, at("spec", "volumeAttributesClassName")] = None
    claim_ref: Annotated[ObjectReference | None, at("spec", "claimRef")] = None
    node_affinity: Annotated[VolumeNodeAffinity | None, at("spec", "nodeAffinity"), AffinityIn] = None
    source: Annotated[VolumeSource | None, at("spec"), SourceIn] = None
    phase: Annotated[str, at("status", "phase")] = ""

    @property
    def name(self) -> str:
        return self.meta.name

    @property
    def key(self) -> str:
        return self.meta.name

    @property
    def size(self) -> Quantity:
        return self.capacity.get("storage", ZERO)

    @property
    def class_name(self) -> str:
        """The beta annotation wins over the field, even when it is empty."""
        return self.meta.annotations.get(BETA_STORAGE_CLASS, self.storage_class_name)

    @property
    def mode(self) -> str:
        return self.volume_mode or FILESYSTEM


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A PersistentVolumeClaim."""

    meta: Annotated[Metadata, at("metadata")]
    access_modes: Annotated[tuple[str, ...], at("spec", "accessModes")] = ()
    requests: Annotated[Mapping[str, Amount], at("spec", "resources", "requests")] = field(default_factory=dict)
    storage_class_name: Annotated[str | None, at("spec", "storageClassName")] = None
    volume_name: Annotated[str, at("spec", "volumeName")] = ""
    volume_mode: Annotated[str | None, at("spec", "volumeMode")] = None
    selector: Annotated[LabelSelector | None, at("spec", "selector")] = None
    attributes_class: Annotated[str | None, at("spec", "volumeAttributesClassName")] = None
    phase: Annotated[str, at("status", "phase")] = ""
    status_capacity: Annotated[Mapping[str, Amount], at("status", "capacity")] = field(default_factory=dict)
    data_state: Annotated[str | None, at("status", "dataState")] = None

    @property
    def name(self) -> str:
        return self.meta.name

    @property
    def key(self) -> str:
        return self.meta.key

    @property
    def size(self) -> Quantity:
        """The requested size; a missing request compares as 0."""
        return self.requests.get("storage", ZERO)

    @property
    def class_name(self) -> str:
        return self.meta.annotations.get(BETA_STORAGE_CLASS, self.storage_class_name or "")

    @property
    def has_class(self) -> bool:
        """An explicit empty name counts: it means "no class, and no default either"."""
        return BETA_STORAGE_CLASS in self.meta.annotations or self.storage_class_name is not None

    @property
    def mode(self) -> str:
        return self.volume_mode or FILESYSTEM


@dataclass(frozen=True, slots=True, kw_only=True)
class CSIDriver:
    meta: Annotated[Metadata, at("metadata")]
    storage_capacity: Annotated[Flag, at("spec", "storageCapacity")] = False
    prevent_scheduling_if_missing: Annotated[Flag, at("spec", "preventPodSchedulingIfMissing")] = False

    @property
    def name(self) -> str:
        return self.meta.name


@dataclass(frozen=True, slots=True, kw_only=True)
class CSINodeDriver:
    __pydantic_config__ = CAMEL
    name: str = ""
    node_id: Annotated[str, at("nodeID")] = ""
    topology_keys: tuple[str, ...] = ()
    attach_limit: Annotated[Whole | None, at("allocatable", "count")] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CSINode:
    meta: Annotated[Metadata, at("metadata")]
    drivers: Annotated[tuple[CSINodeDriver, ...], at("spec", "drivers")] = ()

    @property
    def name(self) -> str:
        return self.meta.name


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageCapacity:
    """A CSIStorageCapacity: how much a driver can still create for a class, seen from some nodes."""

    __pydantic_config__ = CAMEL
    meta: Annotated[Metadata, at("metadata")]
    storage_class_name: str = ""
    node_topology: LabelSelector | None = None
    capacity: Amount | None = None
    maximum_volume_size: Amount | None = None

    @property
    def key(self) -> str:
        return self.meta.key

    @property
    def limit(self) -> Quantity | None:
        """The largest single volume; None = nothing can be created."""
        return self.capacity if self.maximum_volume_size is None else self.maximum_volume_size


@dataclass(frozen=True, slots=True, kw_only=True)
class VolumeAttachment:
    meta: Annotated[Metadata, at("metadata")]
    attacher: Annotated[str, at("spec", "attacher")] = ""
    node_name: Annotated[str, at("spec", "nodeName")] = ""
    volume_name: Annotated[str, at("spec", "source", "persistentVolumeName")] = ""
    attached: Annotated[Flag, at("status", "attached")] = False
