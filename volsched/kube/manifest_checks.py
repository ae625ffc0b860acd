"""What the API refuses in an object at its creation: metadata here, the rest by kind in the modules beside."""

from collections.abc import Callable, Iterator

from volsched.kube.kinds import Kind, Manifest, Object
from volsched.kube.manifest_checks_parts import annotation_defects, label_defects, named
from volsched.kube.manifest_checks_storage import (
    attachment_defects,
    claim_defects,
    class_defects,
    csi_node_defects,
    storage_capacity_defects,
    volume_defects,
)
from volsched.kube.manifest_checks_workloads import node_defects, pod_defects, stateful_set_defects
from volsched.kube.meta import Metadata
from volsched.kube.names import dns_label_problem, dns_subdomain_problem, qualified_name_problem
from volsched.kube.problems import Defect, Path, shown
from volsched.kube.storage import (
    Claim,
    CSIDriver,
    CSINode,
    StorageCapacity,
    StorageClass,
    Volume,
    VolumeAttachment,
)
from volsched.kube.workloads import EventObject, Namespace, Node, Pod, StatefulSet

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
