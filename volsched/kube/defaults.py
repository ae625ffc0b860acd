"""What the API server fills in where a manifest is silent, as far as it decides anything here.

Pure: the given manifest is never changed, and what is not a mapping is left for the checks to refuse.
"""

from collections.abc import Mapping
from typing import Any

from volsched.kube.kinds import Kind, Manifest
from volsched.kube.storage import FILESYSTEM, IMMEDIATE
from volsched.kube.validation.claims import DATA_SOURCES

DEFAULT_NAMESPACE = "default"
DEFAULT_SCHEDULER = "default-scheduler"
NAME_LABEL = "kubernetes.io/metadata.name"
BINDING_MODE_ALIAS = "bindingMode"
BINDING_MODE = "volumeBindingMode"

EXECUTE = "NoExecute"
TOLERATED_AT_FIRST = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
TOLERATED_SECONDS = 300

_Fill = tuple[tuple[str, ...], Any]

# Optional fields: only absence is silence.
_IF_ABSENT: Mapping[str, tuple[_Fill, ...]] = {
    "StorageClass": ((("reclaimPolicy",), "Delete"), ((BINDING_MODE,), IMMEDIATE)),
    "PersistentVolume": ((("spec", "volumeMode"), FILESYSTEM),),
    "PersistentVolumeClaim": ((("spec", "volumeMode"), FILESYSTEM),),
    "StatefulSet": (
        (("spec", "replicas"), 1),
        # kube-controller-manager follows the limit without looking whether there is one, and dies of it.
        (("spec", "revisionHistoryLimit"), 10),
        (("spec", "updateStrategy"), {"type": "RollingUpdate", "rollingUpdate": {"partition": 0}}),
        (("spec", "persistentVolumeClaimRetentionPolicy", "whenDeleted"), "Retain"),
        (("spec", "persistentVolumeClaimRetentionPolicy", "whenScaled"), "Retain"),
    ),
    "Pod": ((("spec", "terminationGracePeriodSeconds"), 30),),
    "CSIDriver": ((("spec", "storageCapacity"), False),),
    "PriorityClass": ((("preemptionPolicy",), "PreemptLowerPriority"),),
}
# Plain strings of the API, where it cannot tell the empty string from absence.
_IF_EMPTY: Mapping[str, tuple[_Fill, ...]] = {
    "PersistentVolume": ((("spec", "persistentVolumeReclaimPolicy"), "Retain"),),
    "Pod": (
        (("spec", "restartPolicy"), "Always"),
        (("spec", "dnsPolicy"), "ClusterFirst"),
        (("spec", "schedulerName"), DEFAULT_SCHEDULER),
    ),
    "StatefulSet": ((("spec", "podManagementPolicy"), "OrderedReady"),),
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
    return _with_tolerations(_with_requests(filled)) if kind.name == "Pod" else filled


def _named_by_label(namespace: dict[str, Any]) -> dict[str, Any]:
    """Selectors find a namespace by its name through this label."""
    metadata = namespace.get("metadata")
    name = metadata.get("name") if isinstance(metadata, dict) else None
    return _filled(namespace, ("metadata", "labels", NAME_LABEL), name, silent=("", None)) if name else namespace


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
    """Two fields that mean the same: each is given where the other is, but for a source of another namespace. The
    older one is dropped where it names what it never could."""
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
    """The seeds' name of the binding mode, renamed; where the two names disagree, both stay, to be refused."""
    alias = storage_class.get(BINDING_MODE_ALIAS)
    if alias is None or storage_class.get(BINDING_MODE, alias) != alias:
        return storage_class
    if BINDING_MODE in storage_class:
        return {key: value for key, value in storage_class.items() if key != BINDING_MODE_ALIAS}
    return {BINDING_MODE if key == BINDING_MODE_ALIAS else key: value for key, value in storage_class.items()}


def _with_requests(pod: dict[str, Any]) -> dict[str, Any]:
    spec = pod.get("spec")
    if not isinstance(spec, dict):
        return pod
    changed = {
        name: [_requesting(container) for container in spec[name]]
        for name in ("containers", "initContainers")
        if isinstance(spec.get(name), list)
    }
    return {**pod, "spec": {**spec, **changed}}


def _with_tolerations(pod: dict[str, Any]) -> dict[str, Any]:
    """A pod may stay for a while on a node that has gone, and be placed there, unless it says something of it."""
    spec = pod.get("spec")
    given = spec.get("tolerations") or [] if isinstance(spec, dict) else None
    if not isinstance(spec, dict) or not isinstance(given, list):
        return pod
    named = {
        str(it.get("key") or "")
        for it in given
        if isinstance(it, dict) and it.get("effect") in [EXECUTE, "", None]
    }
    added = [
        {"key": key, "operator": "Exists", "effect": EXECUTE, "tolerationSeconds": TOLERATED_SECONDS}
        for key in TOLERATED_AT_FIRST
        if not named.intersection((key, ""))
    ]
    return {**pod, "spec": {**spec, "tolerations": [*given, *added]}} if added else pod


def _requesting(container: Any) -> Any:
    """A container that requests what it is limited to, where it does not say what it requests."""
    resources = container.get("resources") if isinstance(container, dict) else None
    if not isinstance(resources, dict):
        return container
    limits, requests = resources.get("limits"), resources.get("requests", {})
    if not isinstance(limits, dict) or not isinstance(requests, dict) or limits.keys() <= requests.keys():
        return container
    missing = {name: amount for name, amount in limits.items() if name not in requests}
    return {**container, "resources": {**resources, "requests": {**requests, **missing}}}
