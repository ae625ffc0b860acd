"""PriorityClass and PodDisruptionBudget: which pods may be displaced, by whom, and how many at a time."""

from typing import Any

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

SYSTEM_PREFIX = "system-"
SYSTEM_PRIORITIES = {"system-node-critical": 2_000_001_000, "system-cluster-critical": 2_000_000_000}
HIGHEST_USER_PRIORITY = 1_000_000_000
PREEMPTS = "PreemptLowerPriority"
PREEMPTION_POLICIES = (PREEMPTS, "Never")
EVICTION_POLICIES = ("AlwaysAllow", "IfHealthyBudget")


def priority_class_creation_errors(priority_class: Fields) -> FieldErrors:
    name, value = text_at(fields_at(priority_class, "metadata"), "name"), number_at(priority_class, "value") or 0
    found: FieldErrors = []
    if name.startswith(SYSTEM_PREFIX):
        if problem := _system_problem(name, value, global_default=priority_class.get("globalDefault") is True):
            message = "priority class names with 'system-' prefix are reserved for system use only. error: "
            found.append(forbidden("metadata.name", message + problem))
    elif value > HIGHEST_USER_PRIORITY:
        message = f"maximum allowed value of a user defined priority is {HIGHEST_USER_PRIORITY}"
        found.append(forbidden("value", message))
    policy = priority_class.get("preemptionPolicy")
    if isinstance(policy, str) and policy not in PREEMPTION_POLICIES:
        found.append(unsupported("preemptionPolicy", policy, PREEMPTION_POLICIES))
    return found


def _system_problem(name: str, value: int, *, global_default: bool) -> str | None:
    if name not in SYSTEM_PRIORITIES:
        return f"{name} is not a known system priority class"
    if value != SYSTEM_PRIORITIES[name]:
        return f"value of {name} PriorityClass must be {SYSTEM_PRIORITIES[name]}"
    return f"globalDefault of {name} PriorityClass must be false" if global_default else None


def priority_class_update_errors(old: Fields, new: Fields) -> FieldErrors:
    found: FieldErrors = []
    if (number_at(old, "value") or 0) != (number_at(new, "value") or 0):
        found.append(forbidden("value", "may not be changed in an update."))
    if not same(old.get("preemptionPolicy"), new.get("preemptionPolicy")):
        found.append(invalid("preemptionPolicy", new.get("preemptionPolicy"), IMMUTABLE))
    return found


def budget_creation_errors(budget: Fields) -> FieldErrors:
    spec, at = fields_at(budget, "spec"), "spec"
    least, most = spec.get("minAvailable"), spec.get("maxUnavailable")
    found: FieldErrors = []
    if least is not None and most is not None:
        found.append(invalid(at, _as_internal(spec), "minAvailable and maxUnavailable cannot be both set"))
    found += int_or_percent(f"{at}.minAvailable", least)
    found += int_or_percent(f"{at}.maxUnavailable", most)
    found += label_selector(f"{at}.selector", spec.get("selector"))
    policy = spec.get("unhealthyPodEvictionPolicy")
    if isinstance(policy, str) and policy not in EVICTION_POLICIES:
        found.append(unsupported(f"{at}.unhealthyPodEvictionPolicy", policy, EVICTION_POLICIES))
    return found


def _as_internal(spec: Fields) -> dict[str, Any]:
    return {
        "MinAvailable": spec.get("minAvailable"),
        "Selector": spec.get("selector"),
        "MaxUnavailable": spec.get("maxUnavailable"),
        "UnhealthyPodEvictionPolicy": spec.get("unhealthyPodEvictionPolicy"),
    }


def budget_update_errors(old: Fields, new: Fields) -> FieldErrors:  # noqa: ARG001 - all of it may be changed
    return budget_creation_errors(new)
