"""The rules of each kind, and those of PriorityClass and PodDisruptionBudget."""

from collections.abc import Callable, Mapping
from typing import Any

from volsched.kube.kinds import Kind
from volsched.kube.validation import fields, placement, pods, stateful_sets, storage, volumes
from volsched.kube.validation.field_errors import IMMUTABLE, FieldErrors, forbidden, invalid, unsupported
from volsched.kube.validation.fields import (
    Fields,
    fields_at,
    int_or_percent,
    label_selector,
    number_at,
    same,
    text_at,
)

# PriorityClass and PodDisruptionBudget: which pods may be displaced, by whom, and how many at a time.

SYSTEM_PREFIX = "system-"
SYSTEM_PRIORITIES = {"system-node-critical": 2_000_001_000, "system-cluster-critical": 2_000_000_000}
HIGHEST_USER_PRIORITY = 1_000_000_000
PREEMPTS = "PreemptLowerPriority"
PREEMPTION_POLICIES = (PREEMPTS, "Never")
CLAIM = "PersistentVolumeClaim"
EVICTION_POLICIES = ("AlwaysAllow", "IfHealthyBudget")


def priority_class_creation_errors(priority_class: Fields) -> FieldErrors:
    name, value = text_at(fields_at(priority_class, "metadata"), "name"), number_at(priority_class, "value") or 0
    errors: FieldErrors = []
    if name.startswith(SYSTEM_PREFIX):
        if problem := _system_problem(name, value, global_default=priority_class.get("globalDefault") is True):
            message = "priority class names with 'system-' prefix are reserved for system use only. error: "
            errors.append(forbidden("metadata.name", message + problem))
    elif value > HIGHEST_USER_PRIORITY:
        message = f"maximum allowed value of a user defined priority is {HIGHEST_USER_PRIORITY}"
        errors.append(forbidden("value", message))
    policy = priority_class.get("preemptionPolicy")
    if isinstance(policy, str) and policy not in PREEMPTION_POLICIES:
        errors.append(unsupported("preemptionPolicy", policy, PREEMPTION_POLICIES))
    return errors


def _system_problem(name: str, value: int, *, global_default: bool) -> str | None:
    if name not in SYSTEM_PRIORITIES:
        return f"{name} is not a known system priority class"
    if value != SYSTEM_PRIORITIES[name]:
        return f"value of {name} PriorityClass must be {SYSTEM_PRIORITIES[name]}"
    return f"globalDefault of {name} PriorityClass must be false" if global_default else None


def priority_class_update_errors(old: Fields, new: Fields) -> FieldErrors:
    errors: FieldErrors = []
    if (number_at(old, "value") or 0) != (number_at(new, "value") or 0):
        errors.append(forbidden("value", "may not be changed in an update."))
    if not same(old.get("preemptionPolicy"), new.get("preemptionPolicy")):
        errors.append(invalid("preemptionPolicy", new.get("preemptionPolicy"), IMMUTABLE))
    return errors


def budget_creation_errors(budget: Fields) -> FieldErrors:
    spec, at = fields_at(budget, "spec"), "spec"
    least, most = spec.get("minAvailable"), spec.get("maxUnavailable")
    errors: FieldErrors = []
    if least is not None and most is not None:
        errors.append(invalid(at, _as_internal(spec), "minAvailable and maxUnavailable cannot be both set"))
    errors += int_or_percent(f"{at}.minAvailable", least)
    errors += int_or_percent(f"{at}.maxUnavailable", most)
    errors += label_selector(f"{at}.selector", spec.get("selector"))
    policy = spec.get("unhealthyPodEvictionPolicy")
    if isinstance(policy, str) and policy not in EVICTION_POLICIES:
        errors.append(unsupported(f"{at}.unhealthyPodEvictionPolicy", policy, EVICTION_POLICIES))
    return errors


def _as_internal(spec: Fields) -> dict[str, Any]:
    return {
        "MinAvailable": spec.get("minAvailable"),
        "Selector": spec.get("selector"),
        "MaxUnavailable": spec.get("maxUnavailable"),
        "UnhealthyPodEvictionPolicy": spec.get("unhealthyPodEvictionPolicy"),
    }


def budget_update_errors(old: Fields, new: Fields) -> FieldErrors:  # noqa: ARG001 - all of it may be changed
    return budget_creation_errors(new)


_CREATION: Mapping[str, Callable[[Fields], FieldErrors]] = {
    "Pod": pods.pod_creation_errors,
    "Node": placement.node_creation_errors,
    "PersistentVolume": volumes.volume_creation_errors,
    "PersistentVolumeClaim": volumes.claim_creation_errors,
    "StatefulSet": stateful_sets.stateful_set_creation_errors,
    "StorageClass": storage.class_creation_errors,
    "CSINode": storage.csi_node_creation_errors,
    "CSIDriver": storage.csi_driver_creation_errors,
    "CSIStorageCapacity": storage.capacity_creation_errors,
    "VolumeAttachment": storage.attachment_creation_errors,
    "PriorityClass": priority_class_creation_errors,
    "PodDisruptionBudget": budget_creation_errors,
}
_UPDATE: Mapping[str, Callable[[Fields, Fields], FieldErrors]] = {
    "Pod": pods.pod_update_errors,
    "Node": placement.node_update_errors,
    "PersistentVolume": volumes.volume_update_errors,
    "StatefulSet": stateful_sets.stateful_set_update_errors,
    "StorageClass": storage.class_update_errors,
    "CSINode": storage.csi_node_update_errors,
    "CSIDriver": storage.csi_driver_update_errors,
    "CSIStorageCapacity": storage.capacity_update_errors,
    "VolumeAttachment": storage.attachment_update_errors,
    "PriorityClass": priority_class_update_errors,
    "PodDisruptionBudget": budget_update_errors,
}
_STATUS: Mapping[str, Callable[[Fields, Fields], FieldErrors]] = {
    "Pod": pods.pod_status_errors,
    "PersistentVolumeClaim": volumes.claim_status_errors,
    "StatefulSet": stateful_sets.stateful_set_status_errors,
}


def creation_errors(kind: Kind, manifest: Fields) -> FieldErrors:
    """The errors for which the API would not create this object; the manifest has its defaults."""
    errors = fields.creation_errors(kind, manifest)
    if kind.name in _CREATION:
        errors += _CREATION[kind.name](manifest)
    return _once(errors)


def update_errors(kind: Kind, old: Fields, new: Fields, *, by_controller: bool = False) -> FieldErrors:
    """The errors for which `new` may not replace `old`. Existing defects of an object do not prevent its update.

    `by_controller`: the writer is the PV controller, which may roll back the binding of a claim.
    """
    errors = fields.update_errors(old, new)
    if kind.name == CLAIM:
        errors += volumes.claim_update_errors(old, new, by_controller=by_controller)
    elif kind.name in _UPDATE:
        errors += _UPDATE[kind.name](old, new)
    if not errors:
        return errors
    known = {str(error) for error in creation_errors(kind, old)}
    return [error for error in _once(errors) if str(error) not in known]


def status_errors(kind: Kind, old: Fields, new: Fields) -> FieldErrors:
    return _STATUS[kind.name](old, new) if kind.name in _STATUS else []


def _once(errors: FieldErrors) -> FieldErrors:
    return list({str(error): error for error in errors}.values())
