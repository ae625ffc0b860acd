"""Which changes of an object the API refuses.

Both manifests are defaulted and valid. Fields are compared as decoded values, so that `1Gi` and `1024Mi`, or an
absent and an empty list, are no change. Status is not compared: an update ignores it.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from volsched.kube.kinds import Kind, Manifest
from volsched.kube.manifest_checks_storage import mapping_at
from volsched.kube.meta import BETA_STORAGE_CLASS, ROLLBACK, STABLE_LABELS, Metadata
from volsched.kube.problems import Defect, Path, shown
from volsched.kube.quantity import ZERO
from volsched.kube.selectors import NodeSelector, NodeTerm, Requirement
from volsched.kube.storage import Claim, Volume

IMMUTABLE = "may not be changed once the object exists; delete it and make a new one"
BOUND = "Bound"

_Field = tuple[Path, Callable[[Any], Any]]

_FIXED: Mapping[str, tuple[_Field, ...]] = {
    "StorageClass": (
        (("provisioner",), lambda value: value.provisioner),
        (("parameters",), lambda value: value.parameters),
        (("reclaimPolicy",), lambda value: value.reclaim_policy),
        (("volumeBindingMode",), lambda value: value.volume_binding_mode),
    ),
    "PersistentVolume": (
        (("spec", "volumeMode"), lambda value: value.mode),
        (("spec",), lambda value: value.source),
    ),
    "PersistentVolumeClaim": (
        (("spec", "accessModes"), lambda value: value.access_modes),
        (("spec", "volumeMode"), lambda value: value.mode),
        (("spec", "selector"), lambda value: value.selector),
        (
            ("metadata", "annotations", BETA_STORAGE_CLASS),
            lambda value: value.meta.annotations.get(BETA_STORAGE_CLASS),
        ),
    ),
    "CSIStorageCapacity": (
        (("storageClassName",), lambda value: value.storage_class_name),
        (("nodeTopology",), lambda value: value.node_topology),
    ),
}
# Fields of a claim's spec with a rule of their own; all others may not change.
_CLAIM_FIELDS = frozenset(
    {
        "accessModes",
        "volumeMode",
        "selector",
        "resources",
        "storageClassName",
        "volumeName",
        "volumeAttributesClassName",
    }
)


def update_problems(
    kind: Kind, old: Manifest, new: Manifest, *, by_volume_controller: bool = False
) -> list[Defect]:
    """Why `new` may not replace `old`; only the PV controller may remove a claim's volume, in a rollback."""
    before: Any = kind.read(old)
    after: Any = kind.read(new)
    found = [*_metadata_changes(before.meta, after.meta)]
    for path, value_of in _FIXED.get(kind.name, ()):
        if value_of(before) != value_of(after):
            found.append(_fixed(path, value_of(after)))
    if isinstance(before, Volume):
        found += _volume_changes(before, after)
    if isinstance(before, Claim):
        found += _claim_changes(before, after, by_volume_controller=by_volume_controller)
        found += _other_claim_changes(mapping_at(old, "spec"), mapping_at(new, "spec"))
    return found


def _fixed(path: Path, value: Any) -> Defect:
    if path == ("spec",):
        return Defect(path, f"the volume source {IMMUTABLE}")
    return Defect(path, IMMUTABLE, shown(value) if isinstance(value, str) else "")


def _metadata_changes(old: Metadata, new: Metadata) -> Iterator[Defect]:
    if new.name != old.name:
        yield Defect(("metadata", "name"), f"is not the object's name {shown(old.name)}; keep it", shown(new.name))
    if new.namespace != old.namespace:
        message = f"is not the object's namespace {shown(old.namespace)}; keep it"
        yield Defect(("metadata", "namespace"), message, shown(new.namespace))
    # A manifest that is applied again does not know the uid; one with another uid means another object.
    if new.uid and old.uid and new.uid != old.uid:
        message = f"is not the object's uid {shown(old.uid)}: it was replaced; read it again"
        yield Defect(("metadata", "uid"), message, shown(new.uid))
    known = set(old.finalizers)
    added = [finalizer for finalizer in new.finalizers if finalizer not in known]
    if old.being_deleted and added:
        message = "may not be added while the object is being deleted; leave it out"
        yield Defect(("metadata", "finalizers"), message, shown(", ".join(added)))


# --- PersistentVolume -----------------------------------------------------------------------------------


def _volume_changes(old: Volume, new: Volume) -> Iterator[Defect]:
    required = old.node_affinity.required if old.node_affinity else None
    if required is not None and not _follows(required, new.node_affinity.required if new.node_affinity else None):
        yield Defect(
            ("spec", "nodeAffinity"),
            "may not be changed once set, except that a legacy label key may become its stable one; restore it",
        )
    if old.attributes_class is not None and new.attributes_class is None:
        message = f"may not be removed once set; keep {shown(old.attributes_class)} or name another class"
        yield Defect(("spec", "volumeAttributesClassName"), message)


def _follows(old: NodeSelector, new: NodeSelector | None) -> bool:
    """Whether `new` is the old selector, with at most legacy keys made stable."""
    if new is None or len(old.node_selector_terms) != len(new.node_selector_terms):
        return False
    return all(map(_term_follows, old.node_selector_terms, new.node_selector_terms))


def _term_follows(old: NodeTerm, new: NodeTerm) -> bool:
    if old.match_fields != new.match_fields or len(old.match_expressions) != len(new.match_expressions):
        return False
    return all(map(_requirement_follows, old.match_expressions, new.match_expressions))


def _requirement_follows(old: Requirement, new: Requirement) -> bool:
    same_key = new.key in (old.key, STABLE_LABELS.get(old.key))
    return same_key and (old.operator, old.values) == (new.operator, new.values)


# --- PersistentVolumeClaim ------------------------------------------------------------------------------


def _claim_changes(old: Claim, new: Claim, *, by_volume_controller: bool) -> Iterator[Defect]:
    bound = old.phase == BOUND
    yield from _size_changes(old, new, bound=bound)
    yield from _class_changes(old, new)
    if old.volume_name and new.volume_name != old.volume_name:
        rolling_back = new.volume_name == "" and ROLLBACK in old.meta.annotations and by_volume_controller
        if not rolling_back:
            message = f"may not be changed once set; keep {shown(old.volume_name)}"
            yield Defect(("spec", "volumeName"), message, shown(new.volume_name))
    if new.attributes_class != old.attributes_class and not bound:
        message = "may only be changed while the claim is Bound; wait for it"
        yield Defect(("spec", "volumeAttributesClassName"), message, shown(new.attributes_class))


def _size_changes(old: Claim, new: Claim, *, bound: bool) -> Iterator[Defect]:
    path: Path = ("spec", "resources", "requests", "storage")
    if new.size == old.size:
        return
    if not bound:
        message = f"may only be changed while the claim is Bound; keep {old.size}"
        yield Defect(path, message, shown(str(new.size)))
        return
    granted = old.status_capacity.get("storage", ZERO)
    if new.size < old.size and new.size <= granted:
        message = f"is less than {old.size} and not more than the claim's capacity {granted}; ask for more"
        yield Defect(path, message, shown(str(new.size)))


def _class_changes(old: Claim, new: Claim) -> Iterator[Defect]:
    path: Path = ("spec", "storageClassName")
    if new.storage_class_name == old.storage_class_name:
        return
    if old.storage_class_name is not None:
        yield Defect(path, f"may not be changed once set; keep {shown(old.storage_class_name)}")
        return
    annotated = old.meta.annotations.get(BETA_STORAGE_CLASS)
    if annotated is not None and new.storage_class_name != annotated:
        message = f"must equal the annotation {BETA_STORAGE_CLASS}, which says {shown(annotated)}"
        yield Defect(path, message, shown(new.storage_class_name))


def _other_claim_changes(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[Defect]:
    for name in dict.fromkeys((*old, *new)):
        if name not in _CLAIM_FIELDS and old.get(name) != new.get(name):
            yield Defect(("spec", name), IMMUTABLE)
    if _fixed_resources(old) != _fixed_resources(new):
        yield Defect(("spec", "resources"), f"{IMMUTABLE}; only requests.storage may grow")


def _fixed_resources(spec: Mapping[str, Any]) -> dict[str, Any]:
    """A claim's requests besides storage; volsched gives them no meaning, so they are compared as written."""
    resources = mapping_at(spec, "resources")
    requests = {name: amount for name, amount in mapping_at(resources, "requests").items() if name != "storage"}
    others = {name: value for name, value in resources.items() if name != "requests"}
    return {**others, "requests": requests}
