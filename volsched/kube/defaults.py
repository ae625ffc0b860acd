"""Defaults that the API server fills into a manifest, as far as the rules here read them.

Pure: the given manifest is never changed, and a value that is not a mapping is left for the checks to refuse.
"""

from collections.abc import Mapping
from typing import Any

from volsched.kube.kinds import Kind, Manifest
from volsched.kube.meta import DEFAULT_NAMESPACE, NAMESPACE_NAME_LABEL
from volsched.kube.pod_defaults import with_pod_defaults
from volsched.kube.storage import FILESYSTEM, IMMEDIATE
from volsched.kube.validation.storage import BINDING_MODE, BINDING_MODE_ALIAS
from volsched.kube.validation.volumes import DATA_SOURCES

ROLLING_UPDATE = "RollingUpdate"

_Fill = tuple[tuple[str, ...], Any]

# Optional fields: filled only where absent.
_IF_ABSENT: Mapping[str, tuple[_Fill, ...]] = {
    "StorageClass": ((("reclaimPolicy",), "Delete"), ((BINDING_MODE,), IMMEDIATE)),
    "PersistentVolume": ((("spec", "volumeMode"), FILESYSTEM),),
    "PersistentVolumeClaim": ((("spec", "volumeMode"), FILESYSTEM),),
    "StatefulSet": (
        (("spec", "replicas"), 1),
        # kube-controller-manager reads the limit without a nil check, and crashes.
        (("spec", "revisionHistoryLimit"), 10),
        (("spec", "persistentVolumeClaimRetentionPolicy", "whenDeleted"), "Retain"),
        (("spec", "persistentVolumeClaimRetentionPolicy", "whenScaled"), "Retain"),
    ),
    "CSIDriver": ((("spec", "storageCapacity"), False),),
    "PriorityClass": ((("preemptionPolicy",), "PreemptLowerPriority"),),
}
# Plain strings of the API, in which the empty string equals absence.
_IF_EMPTY: Mapping[str, tuple[_Fill, ...]] = {
    "PersistentVolume": ((("spec", "persistentVolumeReclaimPolicy"), "Retain"),),
    "StatefulSet": (
        (("spec", "podManagementPolicy"), "OrderedReady"),
        (("spec", "updateStrategy", "type"), ROLLING_UPDATE),
    ),
}


def with_defaults(kind: Kind, manifest: Manifest) -> dict[str, Any]:
    filled = dict(manifest)
    if kind.namespaced:
        filled = _filled(filled, ("metadata", "namespace"), DEFAULT_NAMESPACE, silent=("", None))
    if kind.name == "StorageClass":
        filled = _without_alias(filled)
    for path, value in _IF_ABSENT.get(kind.name, ()):
        filled = _filled(filled, path, value, silent=(None,))
    for path, value in _IF_EMPTY.get(kind.name, ()):
        filled = _filled(filled, path, value, silent=("", None))
    if kind.name == "Namespace":
        filled = _named_by_label(filled)
    if kind.name == "PersistentVolumeClaim":
        filled = _with_data_source(filled)
    if kind.name == "StatefulSet":
        filled = _with_rolling_update(filled)
    return with_pod_defaults(filled) if kind.name == "Pod" else filled


def _named_by_label(namespace: dict[str, Any]) -> dict[str, Any]:
    """Adds the label by which selectors find a namespace by name."""
    metadata = namespace.get("metadata")
    name = metadata.get("name") if isinstance(metadata, dict) else None
    at = ("metadata", "labels", NAMESPACE_NAME_LABEL)
    return _filled(namespace, at, name, silent=("", None)) if name else namespace


def _with_rolling_update(stateful_set: dict[str, Any]) -> dict[str, Any]:
    spec = stateful_set.get("spec")
    strategy = spec.get("updateStrategy") if isinstance(spec, dict) else None
    if not isinstance(strategy, dict) or strategy.get("type") != ROLLING_UPDATE:
        return stateful_set
    at = ("spec", "updateStrategy", "rollingUpdate")
    filled = _filled(stateful_set, (*at, "partition"), 0, silent=(None,))
    return _filled(filled, (*at, "maxUnavailable"), 1, silent=(None,))


def _filled(
    holder: dict[str, Any], path: tuple[str, ...], value: Any, *, silent: tuple[Any, ...]
) -> dict[str, Any]:
    step, rest = path[0], path[1:]
    if not rest:
        return {**holder, step: value} if holder.get(step) in silent else holder
    inner = holder.get(step, {})
    if not isinstance(inner, dict):
        return holder
    return {**holder, step: _filled(inner, rest, value, silent=silent)}


def _with_data_source(claim: dict[str, Any]) -> dict[str, Any]:
    """`dataSource` and `dataSourceRef` mean the same: each is copied from the other, except for a source in
    another namespace. The older one is dropped where it names a kind that it does not support."""
    spec = claim.get("spec")
    if not isinstance(spec, dict):
        return claim
    old, new = spec.get("dataSource"), spec.get("dataSourceRef")
    if isinstance(old, dict) and (old.get("apiGroup") or "", old.get("kind")) not in DATA_SOURCES:
        spec, old = {key: value for key, value in spec.items() if key != "dataSource"}, None
    if isinstance(old, dict) and new is None:
        return {**claim, "spec": {**spec, "dataSourceRef": old}}
    if old is None and isinstance(new, dict) and not new.get("namespace"):
        given = {key: value for key, value in new.items() if key != "namespace"}
        return {**claim, "spec": {**spec, "dataSource": given}}
    return {**claim, "spec": spec}


def _without_alias(storage_class: dict[str, Any]) -> dict[str, Any]:
    """`bindingMode` renamed to `volumeBindingMode`; where they disagree, both stay, for validation to refuse."""
    alias = storage_class.get(BINDING_MODE_ALIAS)
    if alias is None or storage_class.get(BINDING_MODE, alias) != alias:
        return storage_class
    if BINDING_MODE in storage_class:
        return {key: value for key, value in storage_class.items() if key != BINDING_MODE_ALIAS}
    return {BINDING_MODE if key == BINDING_MODE_ALIAS else key: value for key, value in storage_class.items()}
