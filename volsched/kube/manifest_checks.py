"""What the API refuses in a new object: metadata, nodes, pods and StatefulSets; storage has its own module."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from volsched.kube.kinds import KINDS, Kind, Manifest
from volsched.kube.manifest_checks_storage import (
    INT32_MAX,
    annotation_defects,
    attachment_defects,
    claim_defects,
    class_defects,
    csi_node_defects,
    label_defects,
    label_selector_defects,
    mapping_at,
    named,
    node_selector_defects,
    node_term_defects,
    not_negative,
    one_of,
    storage_capacity_defects,
    unique,
    volume_defects,
    within,
)
from volsched.kube.meta import Metadata
from volsched.kube.names import (
    dns_label_problem,
    dns_subdomain_problem,
    label_value_problem,
    qualified_name_problem,
)
from volsched.kube.object_values import Object
from volsched.kube.problems import Defect, Path, shown
from volsched.kube.selectors import LabelSelector, label_selector_matches, label_selector_problem
from volsched.kube.shapes import read_shape
from volsched.kube.storage import (
    SOURCES,
    Claim,
    CSIDriver,
    CSINode,
    StorageCapacity,
    StorageClass,
    Volume,
    VolumeAttachment,
)
from volsched.kube.validation.placement import DO_NOT_SCHEDULE, TAINT_EFFECTS, UNSATISFIABLE
from volsched.kube.validation.stateful_sets import POLICIES
from volsched.kube.workloads import (
    Container,
    EventObject,
    Namespace,
    Node,
    Pod,
    PodAffinity,
    PodAffinityTerm,
    SpreadConstraint,
    StatefulSet,
    Toleration,
)

# What the API refuses in new nodes, pods and StatefulSets, as far as scheduling reads it.

# `local` needs the node affinity that only a PersistentVolume has.
POD_SOURCES = SOURCES - {"local"} | {"persistentVolumeClaim", "ephemeral"}
INT32_MIN = -(2**31)

_SPEC: Path = ("spec",)
_LABEL_KEY = "the key of a node label"


def node_defects(node: Node) -> Iterator[Defect]:
    for index, taint in enumerate(node.taints):
        path: Path = (*_SPEC, "taints", index)
        yield from named((*path, "key"), taint.key, qualified_name_problem, what="the taint's key")
        if problem := label_value_problem(taint.value):
            yield Defect((*path, "value"), problem, shown(taint.value))
        yield from one_of((*path, "effect"), taint.effect, TAINT_EFFECTS)
    yield from not_negative(("status", "allocatable"), node.allocatable)


# --- Pod ------------------------------------------------------------------------------------------------


def pod_defects(pod: Pod, manifest: Manifest) -> Iterator[Defect]:
    if pod.node_name:
        yield from named((*_SPEC, "nodeName"), pod.node_name, dns_subdomain_problem, what="the name of a Node")
    yield from within((*_SPEC, "priority"), pod.priority, INT32_MIN, INT32_MAX)
    yield from label_defects((*_SPEC, "nodeSelector"), pod.node_selector)
    yield from _node_affinity_defects(pod)
    yield from _pod_affinity_defects((*_SPEC, "affinity", "podAffinity"), pod.pod_affinity)
    yield from _pod_affinity_defects((*_SPEC, "affinity", "podAntiAffinity"), pod.pod_anti_affinity)
    for index, toleration in enumerate(pod.tolerations):
        yield from _toleration_defects((*_SPEC, "tolerations", index), toleration)
    yield from _spread_defects(pod.spread)
    yield from _container_defects(pod)
    yield from not_negative((*_SPEC, "overhead"), pod.overhead)
    yield from _volume_defects(mapping_at(manifest, "spec").get("volumes", []))


def _node_affinity_defects(pod: Pod) -> Iterator[Defect]:
    path: Path = (*_SPEC, "affinity", "nodeAffinity")
    if pod.node_affinity.required is not None:
        required = (*path, "requiredDuringSchedulingIgnoredDuringExecution")
        yield from node_selector_defects(required, pod.node_affinity.required)
    for index, term in enumerate(pod.node_affinity.preferred):
        at = (*path, "preferredDuringSchedulingIgnoredDuringExecution", index)
        yield from within((*at, "weight"), term.weight, 1, 100)
        yield from node_term_defects((*at, "preference"), term.preference)


def _pod_affinity_defects(path: Path, affinity: PodAffinity) -> Iterator[Defect]:
    for index, term in enumerate(affinity.required):
        yield from _affinity_term_defects((*path, "requiredDuringSchedulingIgnoredDuringExecution", index), term)
    for index, weighted in enumerate(affinity.preferred):
        at = (*path, "preferredDuringSchedulingIgnoredDuringExecution", index)
        yield from within((*at, "weight"), weighted.weight, 1, 100)
        yield from _affinity_term_defects((*at, "podAffinityTerm"), weighted.pod_affinity_term)


def _affinity_term_defects(path: Path, term: PodAffinityTerm) -> Iterator[Defect]:
    yield from named((*path, "topologyKey"), term.topology_key, qualified_name_problem, what=_LABEL_KEY)
    yield from label_selector_defects((*path, "labelSelector"), term.label_selector)
    yield from label_selector_defects((*path, "namespaceSelector"), term.namespace_selector)
    for index, namespace in enumerate(term.namespaces):
        yield from named((*path, "namespaces", index), namespace, dns_label_problem, what="a namespace")


def _toleration_defects(path: Path, toleration: Toleration) -> Iterator[Defect]:
    exists = toleration.operator == "Exists"
    if toleration.operator:
        yield from one_of((*path, "operator"), toleration.operator, ("Exists", "Equal"))
    if toleration.key and (problem := qualified_name_problem(toleration.key)):
        yield Defect((*path, "key"), problem, shown(toleration.key))
    if not toleration.key and not exists:
        yield Defect((*path, "operator"), "must be Exists where no key is given; write Exists or a key")
    if exists and toleration.value:
        yield Defect((*path, "value"), "must be absent where the operator is Exists", shown(toleration.value))
    elif problem := label_value_problem(toleration.value):
        yield Defect((*path, "value"), problem, shown(toleration.value))
    if toleration.effect:
        yield from one_of((*path, "effect"), toleration.effect, TAINT_EFFECTS)
    if toleration.toleration_seconds is not None and toleration.effect != "NoExecute":
        yield Defect((*path, "tolerationSeconds"), "needs the effect NoExecute; remove it or change the effect")


def _spread_defects(constraints: Sequence[SpreadConstraint]) -> Iterator[Defect]:
    path: Path = (*_SPEC, "topologySpreadConstraints")
    for index, spread in enumerate(constraints):
        at: Path = (*path, index)
        yield from within((*at, "maxSkew"), spread.max_skew, 1, INT32_MAX)
        yield from named((*at, "topologyKey"), spread.topology_key, qualified_name_problem, what=_LABEL_KEY)
        yield from one_of((*at, "whenUnsatisfiable"), spread.when_unsatisfiable, UNSATISFIABLE)
        yield from within((*at, "minDomains"), spread.min_domains, 1, INT32_MAX)
        if spread.min_domains is not None and spread.when_unsatisfiable != DO_NOT_SCHEDULE:
            yield Defect((*at, "minDomains"), f"needs whenUnsatisfiable {DO_NOT_SCHEDULE}; remove it")
        yield from label_selector_defects((*at, "labelSelector"), spread.label_selector)
        for name, policy in (
            ("nodeAffinityPolicy", spread.node_affinity_policy),
            ("nodeTaintsPolicy", spread.node_taints_policy),
        ):
            if policy:
                yield from one_of((*at, name), policy, ("Honor", "Ignore"))
    pairs = [f"{spread.topology_key} {spread.when_unsatisfiable}" for spread in constraints]
    what = "topologyKey and whenUnsatisfiable"
    yield from unique(pairs, lambda index: (*path, index), what=what)


def _container_defects(pod: Pod) -> Iterator[Defect]:
    names = Counter(container.name for container in (*pod.init_containers, *pod.containers) if container.name)
    for group, containers in (("initContainers", pod.init_containers), ("containers", pod.containers)):
        for index, container in enumerate(containers):
            path: Path = (*_SPEC, group, index)
            if container.name:
                yield from named((*path, "name"), container.name, dns_label_problem, what="a name")
            if names[container.name] > 1:
                message = "is the name of more than one container; use another"
                yield Defect((*path, "name"), message, shown(container.name))
            yield from _resource_defects((*path, "resources"), container)


def _resource_defects(path: Path, container: Container) -> Iterator[Defect]:
    yield from not_negative((*path, "requests"), container.requests)
    yield from not_negative((*path, "limits"), container.limits)
    for name, amount in container.requests.items():
        limit = container.limits.get(name)
        if limit is not None and amount > limit:
            message = f"is above its limit {limit}; lower the request or raise the limit"
            yield Defect((*path, "requests", name), message, shown(str(amount)))


# --- volumes and templates ------------------------------------------------------------------------------


def _volume_defects(volumes: Any) -> Iterator[Defect]:
    if not isinstance(volumes, list):
        return
    entries = [volume if isinstance(volume, dict) else {} for volume in volumes]
    path: Path = (*_SPEC, "volumes")
    names = [str(volume.get("name", "")) for volume in entries]
    yield from unique(names, lambda index: (*path, index, "name"), what="name")
    for index, volume in enumerate(entries):
        yield from named((*path, index, "name"), names[index], dns_label_problem, what="the volume's name")
        yield from _pod_source_defects((*path, index), volume)


def _pod_source_defects(path: Path, volume: Mapping[str, Any]) -> Iterator[Defect]:
    present = [name for name in volume if name in POD_SOURCES]
    strange = [name for name in volume if name not in POD_SOURCES and name != "name"]
    # To the API, a volume with only a name is an emptyDir.
    if len(present) > 1:
        yield Defect(path, f"has {len(present)} volume sources ({', '.join(present)}); keep one")
    elif not present and strange:
        yield Defect(
            (*path, strange[0]),
            "is not a volume source; use for example persistentVolumeClaim, ephemeral, csi or emptyDir",
        )
    if "persistentVolumeClaim" in present:
        claim = str(mapping_at(volume, "persistentVolumeClaim").get("claimName", ""))
        what = "the name of a claim in the pod's namespace"
        at = (*path, "persistentVolumeClaim", "claimName")
        yield from named(at, claim, dns_subdomain_problem, what=what)
    if "ephemeral" in present:
        at = (*path, "ephemeral", "volumeClaimTemplate")
        template = mapping_at(volume, "ephemeral").get("volumeClaimTemplate")
        if template is None:
            yield Defect(at, "is required; write the claim to make, with its spec")
        elif isinstance(template, dict):
            yield from _ephemeral_defects(at, template)


def _ephemeral_defects(path: Path, template: Manifest) -> Iterator[Defect]:
    for name in mapping_at(template, "metadata"):
        if name not in ("labels", "annotations"):
            message = "is not allowed in a template, whose metadata holds only labels and annotations; remove it"
            yield Defect((*path, "metadata", name), message)
    yield from claim_template_defects(path, template)


def claim_template_defects(path: Path, template: Manifest) -> Iterator[Defect]:
    """A claim to be created later: checked as one, except for its name."""
    reading = read_shape(KINDS["PersistentVolumeClaim"], template)
    for defect in reading.defects:
        yield defect.below(path)
    if isinstance(reading.value, Claim):
        claim = reading.value
        found = [
            *label_defects(("metadata", "labels"), claim.meta.labels),
            *annotation_defects(("metadata", "annotations"), claim.meta.annotations),
            *claim_defects(claim),
        ]
        for defect in reading.unexplained(found):
            yield defect.below(path)


# --- StatefulSet ----------------------------------------------------------------------------------------


def stateful_set_defects(stateful_set: StatefulSet) -> Iterator[Defect]:
    yield from within((*_SPEC, "replicas"), stateful_set.replicas, 0, INT32_MAX)
    yield from within((*_SPEC, "ordinals", "start"), stateful_set.first_ordinal, 0, INT32_MAX)
    yield from one_of((*_SPEC, "podManagementPolicy"), stateful_set.pod_management_policy, POLICIES)
    yield from _pod_template_defects(stateful_set)
    for index, template in enumerate(stateful_set.claim_templates):
        path: Path = (*_SPEC, "volumeClaimTemplates", index)
        name = mapping_at(template, "metadata").get("name", "")
        if isinstance(name, str):
            yield from named((*path, "metadata", "name"), name, dns_subdomain_problem, what="the template's name")
        yield from claim_template_defects(path, template)
    names = [str(mapping_at(template, "metadata").get("name", "")) for template in stateful_set.claim_templates]
    base: Path = (*_SPEC, "volumeClaimTemplates")
    yield from unique(names, lambda index: (*base, index, "metadata", "name"), what="name")
    yield from _retention_defects(stateful_set)


def _retention_defects(stateful_set: StatefulSet) -> Iterator[Defect]:
    """Claims hold data, and volsched never deletes those of a set; users who rely on deletion must know before."""
    policies = {"whenDeleted": stateful_set.claims_when_deleted, "whenScaled": stateful_set.claims_when_scaled}
    for name, policy in policies.items():
        path: Path = (*_SPEC, "persistentVolumeClaimRetentionPolicy", name)
        if policy == "Delete":
            message = "is not supported: the claims of a set are kept; write Retain, and delete claims by hand"
            yield Defect(path, message, shown(policy))
        elif policy:
            yield from one_of(path, policy, ("Retain",))


def _pod_template_defects(stateful_set: StatefulSet) -> Iterator[Defect]:
    path: Path = (*_SPEC, "template")
    if not stateful_set.pod_template:
        yield Defect(path, "is required; write the pod to run")
        return
    reading = read_shape(KINDS["Pod"], stateful_set.pod_template)
    for defect in reading.defects:
        yield defect.below(path)
    if not isinstance(reading.value, Pod):
        return
    pod = reading.value
    found = [
        *label_defects(("metadata", "labels"), pod.meta.labels),
        *annotation_defects(("metadata", "annotations"), pod.meta.annotations),
        *pod_defects(pod, stateful_set.pod_template),
    ]
    for defect in reading.unexplained(found):
        yield defect.below(path)
    yield from _selector_defects(stateful_set.selector, pod.meta.labels)


def _selector_defects(selector: LabelSelector | None, labels: Mapping[str, str]) -> Iterator[Defect]:
    path: Path = (*_SPEC, "selector")
    if selector is None or not (selector.match_labels or selector.match_expressions):
        yield Defect(path, "is required; select the labels of spec.template.metadata")
        return
    yield from label_selector_defects(path, selector)
    if label_selector_problem(selector) is None and not label_selector_matches(selector, labels):
        yield Defect(path, "does not match the labels of spec.template.metadata; make them agree")


_METADATA: Path = ("metadata",)


def validation_defects(kind: Kind, manifest: Manifest, value: Object) -> list[Defect]:
    """Every defect of a defaulted manifest and the value read from it, metadata first."""
    return [*_metadata_defects(kind, value), *_kind_defects(manifest, value)]


def _kind_defects(manifest: Manifest, value: Object) -> Iterator[Defect]:
    match value:
        case StorageClass():
            return class_defects(value, manifest)
        case Volume():
            return volume_defects(value, manifest)
        case Claim():
            return claim_defects(value)
        case Pod():
            return pod_defects(value, manifest)
        case Node():
            return node_defects(value)
        case StatefulSet():
            return stateful_set_defects(value)
        case CSINode():
            return csi_node_defects(value)
        case StorageCapacity():
            return storage_capacity_defects(value)
        case VolumeAttachment():
            return attachment_defects(value, manifest)
        case _:
            return iter(())


def _metadata_defects(kind: Kind, value: Object) -> Iterator[Defect]:
    meta: Metadata = value.meta
    yield from named((*_METADATA, "name"), meta.name, _name_rule(value), what=f"the name of the {kind.name}")
    if kind.namespaced:
        yield from named((*_METADATA, "namespace"), meta.namespace, dns_label_problem, what="a namespace")
    elif meta.namespace:
        message = f"must be absent: a {kind.name} belongs to no namespace; remove it"
        yield Defect((*_METADATA, "namespace"), message, shown(meta.namespace))
    yield from label_defects((*_METADATA, "labels"), meta.labels)
    yield from annotation_defects((*_METADATA, "annotations"), meta.annotations)


def _name_rule(value: Object) -> Callable[[str], str | None]:
    if isinstance(value, EventObject):
        # Recorders derive an event's name from its object's, so a long one outgrows the rule.
        return lambda _: None
    if isinstance(value, CSIDriver) and "/" in value.name:
        # A driver is found by the provisioner that classes name, and those of volsched itself have a '/'.
        return qualified_name_problem
    return dns_label_problem if isinstance(value, Namespace) else dns_subdomain_problem
