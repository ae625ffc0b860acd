"""Pods and their volumes: required fields, and the few that may change once a pod exists."""

from collections.abc import Callable, Mapping
from typing import Any

import orjson

from volsched.kube.validation.containers import containers_errors, init_containers_errors, resource_errors
from volsched.kube.validation.field_errors import (
    IMMUTABLE,
    FieldErrors,
    dns_label,
    dns_subdomain,
    duplicate,
    each,
    forbidden,
    invalid,
    qualified_name,
    required,
    unsupported,
)
from volsched.kube.validation.fields import (
    Fields,
    difference,
    driver_name,
    fields_at,
    items_at,
    labels,
    number_at,
    plain,
    same,
    text_at,
)
from volsched.kube.validation.placement import (
    affinity_errors,
    affinity_tightening_errors,
    gate_errors,
    spread_errors,
    toleration_errors,
)
from volsched.kube.validation.volumes import host_path_errors, nfs_errors, template_errors

# The volumes of a pod: each has a unique name and one source.

_ORDER = (
    "emptyDir", "hostPath", "gitRepo", "gcePersistentDisk", "awsElasticBlockStore", "secret", "nfs", "iscsi",
    "glusterfs", "persistentVolumeClaim", "rbd", "cinder", "cephfs", "flocker", "downwardAPI", "fc", "flexVolume",
    "configMap", "azureFile", "vsphereVolume", "photonPersistentDisk", "portworxVolume", "azureDisk", "storageos",
    "projected", "scaleIO", "csi", "ephemeral", "image",
)  # fmt: skip
"""The order in which the reference checks a volume's sources: the second one present is an error."""


def volumes_errors(at: str, volumes: list[Fields], pod_name: str) -> tuple[Mapping[str, Fields], FieldErrors]:
    """The volumes that containers may mount, by name, and the errors of all volumes."""
    sound: dict[str, Fields] = {}
    reported: FieldErrors = []
    templated = {f"{pod_name}-{text_at(it, 'name')}" for it in volumes if pod_name and "ephemeral" in it}
    for index, volume in enumerate(volumes):
        where, name = f"{at}[{index}]", text_at(volume, "name")
        errors = _source_errors(where, volume)
        errors += each(f"{where}.name", name, dns_label(name)) if name else [required(f"{where}.name")]
        if name in sound:
            errors.append(duplicate(f"{where}.name", name))
        if not errors:
            sound[name] = volume
        reported += errors
        claim = text_at(fields_at(volume, "persistentVolumeClaim"), "claimName")
        if claim in templated:
            message = "must not reference a PVC that gets created for an ephemeral volume"
            reported.append(invalid(f"{where}.persistentVolumeClaim.claimName", claim, message))
    return sound, reported


def _source_errors(at: str, volume: Fields) -> FieldErrors:
    present = [name for name in _ORDER if isinstance(volume.get(name), Mapping)]
    if not present:
        # A volume with only a name is an emptyDir.
        return []
    first, *others = present
    errors = list(SOURCE_RULES[first](f"{at}.{first}", volume[first])) if first in SOURCE_RULES else []
    return [*errors, *(forbidden(f"{at}.{name}", "may not specify more than 1 volume type") for name in others)]


def _claim_errors(at: str, source: Fields) -> FieldErrors:
    return [] if text_at(source, "claimName") else [required(f"{at}.claimName")]


def _ephemeral_errors(at: str, source: Fields) -> FieldErrors:
    template = source.get("volumeClaimTemplate")
    where = f"{at}.volumeClaimTemplate"
    return template_errors(where, template) if isinstance(template, Mapping) else [required(where)]


SOURCE_RULES: Mapping[str, Callable[[str, Fields], FieldErrors]] = {
    "hostPath": host_path_errors,
    "nfs": nfs_errors,
    "secret": lambda at, source: [] if text_at(source, "secretName") else [required(f"{at}.secretName")],
    "configMap": lambda at, source: [] if text_at(source, "name") else [required(f"{at}.name")],
    "persistentVolumeClaim": _claim_errors,
    "csi": lambda at, source: driver_name(f"{at}.driver", text_at(source, "driver")),
    "ephemeral": _ephemeral_errors,
}


INT32_MAX = 2**31 - 1
RESTART_POLICIES = ("Always", "OnFailure", "Never")
DNS_POLICIES = ("ClusterFirstWithHostNet", "ClusterFirst", "Default", "None")
PREEMPTION_POLICIES = ("PreemptLowerPriority", "Never")
OWN_CONDITIONS = ("PodScheduled", "Ready", "Initialized")
_MAY_CHANGE = ",".join(
    (
        "`spec.containers[*].image`",
        "`spec.initContainers[*].image`",
        "`spec.activeDeadlineSeconds`",
        "`spec.tolerations` (only additions to existing tolerations)",
        "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)",
    )
)
_NOT_COMPARED = ("activeDeadlineSeconds", "schedulingGates", "tolerations")


def pod_creation_errors(pod: Fields) -> FieldErrors:
    spec = fields_at(pod, "spec")
    errors = _pod_errors(pod)
    if spec.get("ephemeralContainers"):
        errors.append(forbidden("spec.ephemeralContainers", "cannot be set on create"))
    if text_at(spec, "nodeName") and items_at(spec, "schedulingGates"):
        errors.append(forbidden("spec.nodeName", "cannot be set until all schedulingGates have been cleared"))
    return errors


def _pod_errors(pod: Fields) -> FieldErrors:
    spec = fields_at(pod, "spec")
    errors = pod_spec_errors("spec", spec, text_at(fields_at(pod, "metadata"), "name"))
    for group in ("containers", "initContainers"):
        for index, container in enumerate(items_at(spec, group)):
            errors += _image_errors(f"spec.{group}[{index}].image", text_at(container, "image"))
    return errors


def _image_errors(at: str, image: str) -> FieldErrors:
    trimmed = image.strip() == image
    return [] if trimmed else [invalid(at, image, "must not have leading or trailing whitespace")]


def pod_spec_errors(at: str, spec: Fields, pod_name: str) -> FieldErrors:
    volumes, errors = volumes_errors(f"{at}.volumes", items_at(spec, "volumes"), pod_name)
    containers = items_at(spec, "containers")
    errors += containers_errors(f"{at}.containers", containers, volumes)
    names = [text_at(it, "name") for it in containers]
    errors += init_containers_errors(f"{at}.initContainers", items_at(spec, "initContainers"), volumes, names)
    for name, supported in (("restartPolicy", RESTART_POLICIES), ("dnsPolicy", DNS_POLICIES)):
        policy = text_at(spec, name)
        if policy and policy not in supported:
            errors.append(unsupported(f"{at}.{name}", policy, supported))
    errors += labels(f"{at}.nodeSelector", fields_at(spec, "nodeSelector"))
    errors += affinity_errors(f"{at}.affinity", fields_at(spec, "affinity"))
    errors += gate_errors(f"{at}.schedulingGates", items_at(spec, "schedulingGates"))
    errors += spread_errors(f"{at}.topologySpreadConstraints", items_at(spec, "topologySpreadConstraints"))
    for name, form in (("serviceAccountName", dns_subdomain), ("nodeName", dns_subdomain)):
        if given := text_at(spec, name):
            errors += each(f"{at}.{name}", given, form(given))
    deadline = number_at(spec, "activeDeadlineSeconds")
    if deadline is not None and not 1 <= deadline <= INT32_MAX:
        message = f"must be between 1 and {INT32_MAX}, inclusive"
        errors.append(invalid(f"{at}.activeDeadlineSeconds", deadline, message))
    for name in ("hostname", "subdomain"):
        if given := text_at(spec, name):
            errors += each(f"{at}.{name}", given, dns_label(given))
    errors += toleration_errors(f"{at}.tolerations", items_at(spec, "tolerations"))
    if given := text_at(spec, "priorityClassName"):
        errors += each(f"{at}.priorityClassName", given, dns_subdomain(given))
    preemption = text_at(spec, "preemptionPolicy")
    if preemption and preemption not in PREEMPTION_POLICIES:
        errors.append(unsupported(f"{at}.preemptionPolicy", preemption, PREEMPTION_POLICIES))
    return [*errors, *resource_errors(f"{at}.overhead", {"limits": fields_at(spec, "overhead")})]


# --- update ---------------------------------------------------------------------------------------------


def pod_update_errors(old: Fields, new: Fields) -> FieldErrors:
    before, after = fields_at(old, "spec"), fields_at(new, "spec")
    errors = _pod_errors(new)
    for group in ("containers", "initContainers"):
        if len(items_at(before, group)) != len(items_at(after, group)):
            return [*errors, forbidden(f"spec.{group}", "pod updates may not add or remove containers")]
        for index, container in enumerate(items_at(after, group)):
            if not text_at(container, "image"):
                errors.append(required(f"spec.{group}[{index}].image"))
    deadline = _deadline_errors(before, after)
    if any(error.detail != _CLEARED for error in deadline):
        return [*errors, *deadline]
    errors += [*deadline, *_toleration_errors(before, after), *_gate_errors(before, after)]
    compared_old, compared_new = _compared(before), _compared(after)
    if items_at(before, "schedulingGates"):
        errors += _tightening_errors(before, after, compared_old, compared_new)
    if (number_at(before, "terminationGracePeriodSeconds") or 0) < 0:
        one = number_at(after, "terminationGracePeriodSeconds") == 1
        for compared in (compared_old, compared_new) if one else ():
            compared.pop("terminationGracePeriodSeconds", None)
    if not same(compared_old, compared_new):
        diff = difference("core.PodSpec", compared_old, compared_new)
        errors.append(forbidden("spec", f"pod updates may not change fields other than {_MAY_CHANGE}\n{diff}"))
    return errors


_CLEARED = "must not update from a positive integer to nil value"


def _deadline_errors(before: Fields, after: Fields) -> FieldErrors:
    at = "spec.activeDeadlineSeconds"
    old, new = number_at(before, "activeDeadlineSeconds"), number_at(after, "activeDeadlineSeconds")
    if new is None:
        return [] if old is None else [invalid(at, None, _CLEARED)]
    if not 0 <= new <= INT32_MAX:
        return [invalid(at, new, f"must be between 0 and {INT32_MAX}, inclusive")]
    if old is not None and new > old:
        return [invalid(at, new, "must be less than or equal to previous value")]
    return []


def _toleration_errors(before: Fields, after: Fields) -> FieldErrors:
    def identity(toleration: Fields) -> bytes:
        kept = plain({name: value for name, value in toleration.items() if name != "tolerationSeconds"})
        return orjson.dumps(kept, option=orjson.OPT_SORT_KEYS, default=str)

    given = set(map(identity, items_at(after, "tolerations")))
    if given.issuperset(map(identity, items_at(before, "tolerations"))):
        return []
    message = "existing toleration can not be modified except its tolerationSeconds"
    return [forbidden("spec.tolerations", message)]


def _gate_errors(before: Fields, after: Fields) -> FieldErrors:
    known = {text_at(it, "name") for it in items_at(before, "schedulingGates")}
    return [
        forbidden(
            f"spec.schedulingGates[{index}].name",
            f"only deletion is allowed, but found new scheduling gate '{text_at(gate, 'name')}'",
        )
        for index, gate in enumerate(items_at(after, "schedulingGates"))
        if text_at(gate, "name") not in known
    ]


def _compared(spec: Fields) -> dict[str, Any]:
    compared = {name: value for name, value in spec.items() if name not in _NOT_COMPARED}
    for group in ("containers", "initContainers"):
        if group in compared:
            compared[group] = [
                {name: value for name, value in it.items() if name != "image"} for it in items_at(spec, group)
            ]
    return compared


def _tightening_errors(
    before: Fields, after: Fields, compared_old: dict[str, Any], compared_new: dict[str, Any]
) -> FieldErrors:
    """A gated pod may still become stricter: more node labels, and more requirements in each affinity term."""
    errors: FieldErrors = []
    old, new = fields_at(before, "nodeSelector"), fields_at(after, "nodeSelector")
    if any(new.get(key) != value for key, value in old.items()):
        message = "only additions to spec.nodeSelector are allowed (no mutations or deletions)"
        errors.append(invalid("spec.nodeSelector", dict(new) or None, message))
    affinities = fields_at(before, "affinity", "nodeAffinity"), fields_at(after, "affinity", "nodeAffinity")
    if not same(*affinities):
        errors += affinity_tightening_errors("spec.affinity.nodeAffinity", *affinities)
    for compared in (compared_old, compared_new):
        compared.pop("nodeSelector", None)
        affinity = fields_at(compared, "affinity")
        compared["affinity"] = {name: value for name, value in affinity.items() if name != "nodeAffinity"}
    return errors


def pod_status_errors(old: Fields, new: Fields) -> FieldErrors:
    """A status update: the rest of the object is ignored."""
    before, after = fields_at(old, "status"), fields_at(new, "status")
    errors: FieldErrors = []
    nominated = text_at(after, "nominatedNodeName")
    if nominated and nominated != text_at(before, "nominatedNodeName"):
        errors += each("status.nominatedNodeName", nominated, dns_subdomain(nominated))
        if text_at(fields_at(old, "spec"), "nodeName"):
            message = "may not be set on pods that are already bound to a node"
            errors.append(forbidden("status.nominatedNodeName", message))
    if isinstance(before.get("qosClass"), str) and before.get("qosClass") != after.get("qosClass"):
        errors.append(invalid("status.qosClass", after.get("qosClass"), IMMUTABLE))
    for index, condition in enumerate(items_at(after, "conditions")):
        type_ = text_at(condition, "type")
        if type_ not in OWN_CONDITIONS:
            errors += each(f"status.conditions[{index}].Type", type_, qualified_name(type_))
    return errors
