"""What the API refuses in storage objects at their creation, and the checks that all kinds share."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from volsched.kube.defaults import BINDING_MODE, BINDING_MODE_ALIAS
from volsched.kube.kinds import Manifest
from volsched.kube.names import (
    annotation_key_problem,
    csi_driver_problem,
    dns_label_problem,
    dns_subdomain_problem,
    label_value_problem,
    qualified_name_problem,
)
from volsched.kube.problems import Defect, Path, shown
from volsched.kube.quantity import ZERO, Quantity
from volsched.kube.selectors import (
    NAME_FIELD,
    LabelSelector,
    NodeSelector,
    NodeTerm,
    Requirement,
    TopologyTerm,
    label_requirement_problem,
    node_field_problem,
    node_requirement_problem,
    topology_expression_problem,
)
from volsched.kube.storage import (
    ACCESS_MODES,
    FILESYSTEM,
    IMMEDIATE,
    READ_WRITE_ONCE_POD,
    SOURCES,
    WAIT_FOR_FIRST_CONSUMER,
    Claim,
    CSINode,
    StorageCapacity,
    StorageClass,
    Volume,
    VolumeAttachment,
    VolumeSource,
)
from volsched.kube.validation.fields import METADATA_MAX
from volsched.kube.validation.storage import PARAMETERS_MAX

# Checks that objects of several kinds share: choices, names, labels, amounts and selectors.
#
# Each yields defects whose paths start at the caller's path, so that a template's claim is checked like a claim.


def one_of(path: Path, value: str | None, allowed: Sequence[str]) -> Iterator[Defect]:
    if not value:
        yield Defect(path, f"is required; write one of {', '.join(allowed)}")
    elif value not in allowed:
        yield Defect(path, f"is not one of {', '.join(allowed)}", shown(value))


def named(path: Path, value: str, problem_of: Callable[[str], str | None], *, what: str) -> Iterator[Defect]:
    """A required string that follows one of the rules of `names`."""
    if not value:
        yield Defect(path, f"is required; write {what}")
    elif problem := problem_of(value):
        yield Defect(path, problem, shown(value))


def unique(values: Iterable[str], at: Callable[[int], Path], *, what: str) -> Iterator[Defect]:
    first: dict[str, int] = {}
    for index, value in enumerate(values):
        if value and first.setdefault(value, index) != index:
            yield Defect(at(index), f"is the {what} of entry {first[value]} as well; use another", shown(value))


def positive(path: Path, amounts: Mapping[str, Quantity]) -> Iterator[Defect]:
    """`storage` among the amounts, above zero."""
    if "storage" not in amounts:
        yield Defect((*path, "storage"), "is required; write a size such as 10Gi")
    elif amounts["storage"] <= ZERO:
        yield Defect((*path, "storage"), "must be greater than zero", shown(str(amounts["storage"])))


def not_negative(path: Path, amounts: Mapping[str, Quantity]) -> Iterator[Defect]:
    for name, amount in amounts.items():
        if amount < ZERO:
            yield Defect((*path, name), "must not be negative", shown(str(amount)))


def within(path: Path, value: int | None, low: int, high: int) -> Iterator[Defect]:
    if value is not None and not low <= value <= high:
        yield Defect(path, f"is not a whole number from {low} to {high}", shown(value))


def label_defects(path: Path, labels: Mapping[str, str]) -> Iterator[Defect]:
    for key, value in labels.items():
        if problem := qualified_name_problem(key):
            yield Defect((*path, key), f"the key {problem}")
        elif problem := label_value_problem(value):
            yield Defect((*path, key), problem, shown(value))


def annotation_defects(path: Path, annotations: Mapping[str, str]) -> Iterator[Defect]:
    for key in annotations:
        if problem := annotation_key_problem(key):
            yield Defect((*path, key), f"the key {problem}")
    size = text_size(annotations)
    if size > METADATA_MAX:
        yield Defect(path, f"hold {size} bytes in all, more than {METADATA_MAX}; shorten them")


def text_size(texts: Mapping[str, str]) -> int:
    return sum(len(key.encode()) + len(value.encode()) for key, value in texts.items())


# --- selectors ------------------------------------------------------------------------------------------


def label_selector_defects(path: Path, selector: LabelSelector | None) -> Iterator[Defect]:
    if selector is None:
        return
    yield from label_defects((*path, "matchLabels"), selector.match_labels)
    for index, requirement in enumerate(selector.match_expressions):
        if problem := label_requirement_problem(requirement):
            yield Defect((*path, "matchExpressions", index), problem)


def node_selector_defects(path: Path, selector: NodeSelector) -> Iterator[Defect]:
    terms = selector.node_selector_terms
    if not terms:
        yield Defect((*path, "nodeSelectorTerms"), "is required; without a term no node fits")
    for index, term in enumerate(terms):
        yield from node_term_defects((*path, "nodeSelectorTerms", index), term)


def node_term_defects(path: Path, term: NodeTerm) -> Iterator[Defect]:
    for index, requirement in enumerate(term.match_expressions):
        if problem := node_requirement_problem(_integer_unchecked(requirement)):
            yield Defect((*path, "matchExpressions", index), problem)
    for index, requirement in enumerate(term.match_fields):
        if problem := node_field_problem(requirement):
            yield Defect((*path, "matchFields", index), problem)
        elif requirement.key != NAME_FIELD:
            yield Defect(
                (*path, "matchFields", index, "key"),
                f"is not a field that can be selected by; use {NAME_FIELD}",
                shown(requirement.key),
            )


def _integer_unchecked(requirement: Requirement) -> Requirement:
    """The API accepts `Gt ["x"]`; only its evaluation finds that it is no integer."""
    if requirement.operator in ("Gt", "Lt") and len(requirement.values) == 1:
        return replace(requirement, operator="In")
    return requirement


def mapping_at(manifest: Any, *path: str) -> Mapping[str, Any]:
    """The mapping at a path of a manifest, or an empty one."""
    for step in path:
        manifest = manifest.get(step) if isinstance(manifest, Mapping) else None
    return manifest if isinstance(manifest, Mapping) else {}


LOCAL_NEEDS_AFFINITY = "Local volume requires node affinity"
VOLUME_MODES = (FILESYSTEM, "Block")
INT32_MAX = 2**31 - 1
# Sources that only a pod can have: they live and die with it.
POD_ONLY_SOURCES = frozenset({"configMap", "downwardAPI", "emptyDir", "gitRepo", "image", "projected", "secret"})

_SPEC: Path = ("spec",)
_CLASS = "the name of a StorageClass"
_DRIVER = "the name of a CSI driver"


# --- StorageClass ---------------------------------------------------------------------------------------


def class_defects(storage_class: StorageClass, manifest: Manifest) -> Iterator[Defect]:
    yield from named(("provisioner",), storage_class.provisioner, annotation_key_problem, what="who makes volumes")
    yield from one_of(("reclaimPolicy",), storage_class.reclaim_policy, ("Delete", "Retain"))
    modes = (IMMEDIATE, WAIT_FOR_FIRST_CONSUMER)
    yield from one_of((BINDING_MODE,), storage_class.volume_binding_mode, modes)
    if BINDING_MODE_ALIAS in manifest:
        yield Defect(
            (BINDING_MODE_ALIAS,),
            f"is another name of {BINDING_MODE}, which says {shown(manifest.get(BINDING_MODE))}; remove it",
            shown(manifest[BINDING_MODE_ALIAS]),
        )
    yield from _parameter_defects(storage_class.parameters)
    yield from _topology_defects(storage_class.allowed_topologies)


def _parameter_defects(parameters: Mapping[str, str]) -> Iterator[Defect]:
    path = ("parameters",)
    if len(parameters) > PARAMETERS_MAX:
        yield Defect(path, f"has {len(parameters)} entries, more than {PARAMETERS_MAX}; remove some")
    if "" in parameters:
        yield Defect((*path, ""), "has an empty key; name the parameter")
    if text_size(parameters) > METADATA_MAX:
        yield Defect(path, f"holds more than {METADATA_MAX} bytes; shorten it")


def _topology_defects(terms: Sequence[TopologyTerm]) -> Iterator[Defect]:
    first: dict[frozenset[tuple[str, frozenset[str]]], int] = {}
    for index, term in enumerate(terms):
        path: Path = ("allowedTopologies", index)
        if not term.match_label_expressions:
            yield Defect((*path, "matchLabelExpressions"), "is required; an empty term allows no node")
            continue
        yield from _topology_term_defects((*path, "matchLabelExpressions"), term)
        same = frozenset((entry.key, frozenset(entry.values)) for entry in term.match_label_expressions)
        if first.setdefault(same, index) != index:
            yield Defect(path, f"repeats allowedTopologies[{first[same]}]; remove one of the two")


def _topology_term_defects(path: Path, term: TopologyTerm) -> Iterator[Defect]:
    expressions = term.match_label_expressions
    yield from unique([entry.key for entry in expressions], lambda index: (*path, index, "key"), what="key")
    for index, entry in enumerate(expressions):
        if problem := topology_expression_problem(entry):
            yield Defect((*path, index), problem)
        values_path = (*path, index, "values")
        yield from unique(entry.values, lambda at, base=values_path: (*base, at), what="value")  # type: ignore[misc]


# --- PersistentVolume -----------------------------------------------------------------------------------


def volume_defects(volume: Volume, manifest: Manifest) -> Iterator[Defect]:
    yield from _capacity_defects(volume.capacity)
    yield from access_mode_defects(_SPEC, volume.access_modes)
    policies = ("Retain", "Delete", "Recycle")
    yield from one_of((*_SPEC, "persistentVolumeReclaimPolicy"), volume.reclaim_policy, policies)
    if volume.storage_class_name:
        yield from _class_name_defects((*_SPEC, "storageClassName"), volume.storage_class_name)
    yield from _mode_defects(_SPEC, volume.volume_mode)
    yield from _source_defects(volume, mapping_at(manifest, "spec"))
    yield from _affinity_defects(volume, mapping_at(manifest, "spec", "nodeAffinity"))
    if volume.claim_ref is not None:
        # Kubernetes accepts an incomplete claimRef, and no claim ever matches it.
        path = (*_SPEC, "claimRef")
        named_claim = (
            ("namespace", volume.claim_ref.namespace, dns_label_problem),
            ("name", volume.claim_ref.name, dns_subdomain_problem),
        )
        for name, value, problem_of in named_claim:
            if value and (problem := problem_of(value)):
                yield Defect((*path, name), problem, shown(value))


def _capacity_defects(capacity: Mapping[str, Quantity]) -> Iterator[Defect]:
    path = (*_SPEC, "capacity")
    yield from positive(path, capacity)
    for name in capacity:
        if name != "storage":
            yield Defect((*path, name), "is not a capacity of a volume, which has only storage; remove it")


def _source_defects(volume: Volume, spec: Mapping[str, Any]) -> Iterator[Defect]:
    present = [name for name in spec if name in SOURCES]
    if len(present) != 1:
        found = f"has {len(present)} volume sources ({', '.join(present)})" if present else "has no volume source"
        yield Defect(_SPEC, f"{found}; write exactly one, such as csi, local or nfs")
    for name in present:
        if name in POD_ONLY_SOURCES:
            yield Defect((*_SPEC, name), "is a source that only a pod's volume can have; use csi, local or nfs")
    source = volume.source or VolumeSource("")
    if source.kind == "csi":
        yield from named((*_SPEC, "csi", "driver"), source.text("driver"), csi_driver_problem, what=_DRIVER)
    if source.kind == "hostPath" and volume.reclaim_policy == "Recycle" and _is_root(source.text("path")):
        path = (*_SPEC, "persistentVolumeReclaimPolicy")
        yield Defect(path, "may not be Recycle for the hostPath /; use Retain")
    yield from _attributes_class_defects(volume, source)


def _is_root(path: str) -> bool:
    return path.startswith("/") and all(step in ("", ".", "..") for step in path.split("/"))


def _attributes_class_defects(volume: Volume, source: VolumeSource) -> Iterator[Defect]:
    path = (*_SPEC, "volumeAttributesClassName")
    if volume.attributes_class == "":
        yield Defect(path, "is empty; name a VolumeAttributesClass or remove the field")
    elif volume.attributes_class is not None and source.kind != "csi":
        yield Defect(path, "needs a csi volume source; remove it", shown(volume.attributes_class))


def _affinity_defects(volume: Volume, raw: Mapping[str, Any]) -> Iterator[Defect]:
    path = (*_SPEC, "nodeAffinity")
    affinity = volume.node_affinity
    if affinity is None:
        if volume.source is not None and volume.source.kind == "local":
            yield Defect(path, f"{LOCAL_NEEDS_AFFINITY}; write nodeAffinity.required with the volume's node")
        return
    for name in raw:
        if name != "required":
            yield Defect((*path, name), "is not a field of a volume's node affinity; only required is, remove it")
    if affinity.required is None:
        local = volume.source is not None and volume.source.kind == "local"
        reason = f"is required ({LOCAL_NEEDS_AFFINITY})" if local else "is required"
        yield Defect((*path, "required"), f"{reason}; write nodeSelectorTerms, or remove nodeAffinity")
    else:
        yield from node_selector_defects((*path, "required"), affinity.required)


def access_mode_defects(spec: Path, modes: Sequence[str]) -> Iterator[Defect]:
    path = (*spec, "accessModes")
    if not modes:
        yield Defect(path, f"is required; list at least one of {', '.join(ACCESS_MODES)}")
    for index, mode in enumerate(modes):
        yield from one_of((*path, index), mode, ACCESS_MODES)
    if READ_WRITE_ONCE_POD in modes and len(modes) > 1:
        yield Defect(path, f"{READ_WRITE_ONCE_POD} must be the only access mode; remove the others")


def _mode_defects(spec: Path, mode: str | None) -> Iterator[Defect]:
    if mode is not None:
        yield from one_of((*spec, "volumeMode"), mode, VOLUME_MODES)


def _class_name_defects(path: Path, name: str) -> Iterator[Defect]:
    yield from named(path, name, dns_subdomain_problem, what=_CLASS)


# --- PersistentVolumeClaim ------------------------------------------------------------------------------


def claim_defects(claim: Claim) -> Iterator[Defect]:
    yield from access_mode_defects(_SPEC, claim.access_modes)
    yield from positive((*_SPEC, "resources", "requests"), claim.requests)
    if claim.storage_class_name:
        yield from _class_name_defects((*_SPEC, "storageClassName"), claim.storage_class_name)
    yield from _mode_defects(_SPEC, claim.volume_mode)
    yield from label_selector_defects((*_SPEC, "selector"), claim.selector)


# --- what CSI drivers publish ---------------------------------------------------------------------------


def csi_node_defects(node: CSINode) -> Iterator[Defect]:
    path: Path = (*_SPEC, "drivers")
    yield from unique([driver.name for driver in node.drivers], lambda at: (*path, at, "name"), what="name")
    for index, driver in enumerate(node.drivers):
        yield from named((*path, index, "name"), driver.name, csi_driver_problem, what=_DRIVER)
        keys: Path = (*path, index, "topologyKeys")
        for at, key in enumerate(driver.topology_keys):
            yield from named((*keys, at), key, qualified_name_problem, what="a label key")
        yield from unique(driver.topology_keys, lambda at, base=keys: (*base, at), what="key")  # type: ignore[misc]
        yield from within((*path, index, "allocatable", "count"), driver.attach_limit, 0, INT32_MAX)


def storage_capacity_defects(capacity: StorageCapacity) -> Iterator[Defect]:
    yield from _class_name_defects(("storageClassName",), capacity.storage_class_name)
    yield from label_selector_defects(("nodeTopology",), capacity.node_topology)
    if capacity.capacity is not None:
        yield from not_negative((), {"capacity": capacity.capacity})


def attachment_defects(attachment: VolumeAttachment, manifest: Manifest) -> Iterator[Defect]:
    yield from named((*_SPEC, "attacher"), attachment.attacher, csi_driver_problem, what=_DRIVER)
    yield from named((*_SPEC, "nodeName"), attachment.node_name, dns_subdomain_problem, what="the name of a Node")
    source = mapping_at(manifest, "spec", "source")
    if bool(attachment.volume_name) == ("inlineVolumeSpec" in source):
        yield Defect((*_SPEC, "source"), "must hold exactly one of persistentVolumeName and inlineVolumeSpec")
