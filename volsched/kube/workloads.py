"""Nodes, pods and related objects. A pod has every field that decides where it may run."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

from pydantic import BeforeValidator

from volsched.kube.meta import Amount, Flag, Metadata, ObjectReference, Whole, at
from volsched.kube.selectors import CAMEL, LabelSelector, NodeSelector, NodeTerm
from volsched.kube.storage import VolumeSource, read_source

TERMINATED = ("Succeeded", "Failed")
"""Phases of a pod whose containers have ended for good."""

Amounts = Mapping[str, Amount]


@dataclass(frozen=True, slots=True, kw_only=True)
class Namespace:
    meta: Annotated[Metadata, at("metadata")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Taint:
    key: str = ""
    value: str = ""
    effect: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    meta: Annotated[Metadata, at("metadata")]
    unschedulable: Annotated[Flag, at("spec", "unschedulable")] = False
    taints: Annotated[tuple[Taint, ...], at("spec", "taints")] = ()
    allocatable: Annotated[Amounts, at("status", "allocatable")] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return self.meta.name

    @property
    def labels(self) -> Mapping[str, str]:
        return self.meta.labels


@dataclass(frozen=True, slots=True, kw_only=True)
class Toleration:
    __pydantic_config__ = CAMEL
    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""
    toleration_seconds: Whole | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PreferredNodeTerm:
    weight: Whole = 0
    preference: NodeTerm = NodeTerm()


@dataclass(frozen=True, slots=True, kw_only=True)
class PodAffinityTerm:
    __pydantic_config__ = CAMEL
    label_selector: LabelSelector | None = None
    namespaces: tuple[str, ...] = ()
    namespace_selector: LabelSelector | None = None
    topology_key: str = ""
    match_label_keys: tuple[str, ...] = ()
    mismatch_label_keys: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightedPodAffinityTerm:
    __pydantic_config__ = CAMEL
    weight: Whole = 0
    pod_affinity_term: PodAffinityTerm = PodAffinityTerm()


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeAffinity:
    required: Annotated[NodeSelector | None, at("requiredDuringSchedulingIgnoredDuringExecution")] = None
    preferred: Annotated[tuple[PreferredNodeTerm, ...], at("preferredDuringSchedulingIgnoredDuringExecution")] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PodAffinity:
    """Both `podAffinity` and `podAntiAffinity`."""

    required: Annotated[tuple[PodAffinityTerm, ...], at("requiredDuringSchedulingIgnoredDuringExecution")] = ()
    preferred: Annotated[
        tuple[WeightedPodAffinityTerm, ...], at("preferredDuringSchedulingIgnoredDuringExecution")
    ] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SpreadConstraint:
    __pydantic_config__ = CAMEL
    max_skew: Whole = 0
    topology_key: str = ""
    when_unsatisfiable: str = ""
    label_selector: LabelSelector | None = None
    min_domains: Whole | None = None
    node_affinity_policy: str = ""
    node_taints_policy: str = ""
    match_label_keys: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Container:
    __pydantic_config__ = CAMEL
    name: str = ""
    requests: Annotated[Amounts, at("resources", "requests")] = field(default_factory=dict)
    limits: Annotated[Amounts, at("resources", "limits")] = field(default_factory=dict)
    restart_policy: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PodVolume:
    """One entry of a pod's volumes: a claim by name, a claim created from a template, or an inline source."""

    name: str = ""
    claim_name: Annotated[str | None, at("persistentVolumeClaim", "claimName")] = None
    claim_template: Annotated[Mapping[str, Any] | None, at("ephemeral", "volumeClaimTemplate")] = None
    source: VolumeSource | None = None


# The value of a claim volume that does not name its claim: the presence of the source makes the volume.
_UNSAID: tuple[tuple[str, dict[str, Any]], ...] = (
    ("persistentVolumeClaim", {"claimName": ""}),
    ("ephemeral", {"volumeClaimTemplate": {}}),
)


def _with_source(raw: Any) -> Any:
    if not isinstance(raw, dict):
        return raw
    unsaid = {name: {**empty, **raw[name]} for name, empty in _UNSAID if isinstance(raw.get(name), dict)}
    return {**raw, **unsaid, "source": read_source(raw)}


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulingGate:
    name: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pod:
    meta: Annotated[Metadata, at("metadata")]
    node_name: Annotated[str, at("spec", "nodeName")] = ""
    scheduler_name: Annotated[str, at("spec", "schedulerName")] = ""
    priority: Annotated[Whole, at("spec", "priority")] = 0
    scheduling_gates: Annotated[tuple[SchedulingGate, ...], at("spec", "schedulingGates")] = ()
    node_selector: Annotated[Mapping[str, str], at("spec", "nodeSelector")] = field(default_factory=dict)
    node_affinity: Annotated[NodeAffinity, at("spec", "affinity", "nodeAffinity")] = NodeAffinity()
    pod_affinity: Annotated[PodAffinity, at("spec", "affinity", "podAffinity")] = PodAffinity()
    pod_anti_affinity: Annotated[PodAffinity, at("spec", "affinity", "podAntiAffinity")] = PodAffinity()
    tolerations: Annotated[tuple[Toleration, ...], at("spec", "tolerations")] = ()
    spread: Annotated[tuple[SpreadConstraint, ...], at("spec", "topologySpreadConstraints")] = ()
    containers: Annotated[tuple[Container, ...], at("spec", "containers")] = ()
    init_containers: Annotated[tuple[Container, ...], at("spec", "initContainers")] = ()
    overhead: Annotated[Amounts, at("spec", "overhead")] = field(default_factory=dict)
    volumes: Annotated[tuple[Annotated[PodVolume, BeforeValidator(_with_source)], ...], at("spec", "volumes")] = ()
    phase: Annotated[str, at("status", "phase")] = ""
    nominated_node: Annotated[str, at("status", "nominatedNodeName")] = ""
    """The node on which its scheduler is about to place the pod."""

    @property
    def name(self) -> str:
        return self.meta.name

    @property
    def namespace(self) -> str:
        return self.meta.namespace

    @property
    def key(self) -> str:
        return self.meta.key


@dataclass(frozen=True, slots=True, kw_only=True)
class StatefulSet:
    meta: Annotated[Metadata, at("metadata")]
    replicas: Annotated[Whole, at("spec", "replicas")] = 1
    first_ordinal: Annotated[Whole, at("spec", "ordinals", "start")] = 0
    pod_management_policy: Annotated[str, at("spec", "podManagementPolicy")] = ""
    selector: Annotated[LabelSelector | None, at("spec", "selector")] = None
    pod_template: Annotated[Mapping[str, Any], at("spec", "template")] = field(default_factory=dict)
    claim_templates: Annotated[tuple[Mapping[str, Any], ...], at("spec", "volumeClaimTemplates")] = ()
    service_name: Annotated[str, at("spec", "serviceName")] = ""
    claims_when_deleted: Annotated[str, at("spec", "persistentVolumeClaimRetentionPolicy", "whenDeleted")] = ""
    claims_when_scaled: Annotated[str, at("spec", "persistentVolumeClaimRetentionPolicy", "whenScaled")] = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PodDisruptionBudget:
    meta: Annotated[Metadata, at("metadata")]
    selector: Annotated[LabelSelector | None, at("spec", "selector")] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EventObject:
    __pydantic_config__ = CAMEL
    meta: Annotated[Metadata, at("metadata")]
    involved_object: ObjectReference = ObjectReference()
    type: str = ""
    reason: str = ""
    message: str = ""
    count: Whole = 1
    component: Annotated[str, at("source", "component")] = ""
    first_timestamp: str = ""
    last_timestamp: str = ""
