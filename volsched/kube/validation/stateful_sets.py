"""StatefulSets: a template for pods, templates for claims, and the immutable fields."""

from typing import Any

from volsched.kube.selectors import LabelSelector, Requirement, label_selector_matches
from volsched.kube.validation.field_errors import (
    IMMUTABLE,
    FieldErrors,
    dns_label,
    duplicate,
    each,
    forbidden,
    invalid,
    percentage,
    required,
    unsupported,
)
from volsched.kube.validation.fields import (
    Fields,
    annotations,
    fields_at,
    int_or_percent,
    items_at,
    label_selector,
    labels,
    number_at,
    number_not_negative,
    same,
    text_at,
    texts_at,
)
from volsched.kube.validation.pods import pod_spec_errors
from volsched.kube.validation.volumes import claim_spec_errors

POLICIES = ("OrderedReady", "Parallel")
STRATEGIES = ("RollingUpdate", "OnDelete")
NOT_RETAINED = "Delete"
RETENTION = ("Retain", NOT_RETAINED)
_CLAIMS_ARE_KEPT = "is not supported: the claims of a set are kept; write Retain, and delete claims by hand"
COUNTED = ("readyReplicas", "currentReplicas", "updatedReplicas", "availableReplicas")
_FIXED = ("selector", "volumeClaimTemplates", "serviceName", "podManagementPolicy")


def stateful_set_creation_errors(stateful_set: Fields) -> FieldErrors:
    spec, at = fields_at(stateful_set, "spec"), "spec"
    errors: FieldErrors = []
    policy = text_at(spec, "podManagementPolicy")
    if policy and policy not in POLICIES:
        errors.append(invalid(f"{at}.podManagementPolicy", policy, "must be 'OrderedReady' or 'Parallel'"))
    errors += _strategy_errors(f"{at}.updateStrategy", fields_at(spec, "updateStrategy"))
    retention = fields_at(spec, "persistentVolumeClaimRetentionPolicy")
    for name in ("whenDeleted", "whenScaled"):
        given = text_at(retention, name)
        where = f"{at}.persistentVolumeClaimRetentionPolicy.{name}"
        if given == NOT_RETAINED:
            # Claims hold data, and volsched never deletes those of a set; users of this policy must know that.
            errors.append(invalid(where, given, _CLAIMS_ARE_KEPT))
        elif given and given not in RETENTION:
            errors.append(unsupported(where, given, RETENTION))
    names: set[str] = set()
    for index, template in enumerate(items_at(spec, "volumeClaimTemplates")):
        where = f"{at}.volumeClaimTemplates[{index}]"
        errors += claim_spec_errors(f"{where}.spec", fields_at(template, "spec"))
        name = text_at(fields_at(template, "metadata"), "name")
        if name in names:
            # Kubernetes accepts duplicates, and creates one claim from two templates.
            errors.append(duplicate(f"{where}.metadata.name", name))
        names |= {name} - {""}
    for name in ("replicas", "minReadySeconds"):
        errors += number_not_negative(f"{at}.{name}", number_at(spec, name))
    errors += number_not_negative(f"{at}.ordinals.start", number_at(fields_at(spec, "ordinals"), "start"))
    if service := text_at(spec, "serviceName"):
        errors += each(f"{at}.serviceName", service, dns_label(service))
    errors += _selector_errors(f"{at}.selector", spec.get("selector"))
    return [*errors, *_template_errors(f"{at}.template", spec)]


def _strategy_errors(at: str, strategy: Fields) -> FieldErrors:
    type_, rolling = text_at(strategy, "type"), strategy.get("rollingUpdate")
    if type_ == "OnDelete" and isinstance(rolling, dict):
        message = "only allowed for updateStrategy 'RollingUpdate'"
        return [invalid(f"{at}.rollingUpdate", _as_internal(rolling), message)]
    if type_ and type_ not in STRATEGIES:
        shown = {"Type": type_, "RollingUpdate": None}
        return [invalid(at, shown, "must be 'RollingUpdate' or 'OnDelete'")]
    errors = number_not_negative(
        f"{at}.rollingUpdate.partition", number_at(fields_at(strategy, "rollingUpdate"), "partition")
    )
    most = fields_at(strategy, "rollingUpdate").get("maxUnavailable")
    where = f"{at}.rollingUpdate.maxUnavailable"
    errors += int_or_percent(where, most)
    if most == 0 or (isinstance(most, str) and most.rstrip("%").strip("0") == "" and not percentage(most)):
        errors.append(invalid(where, most, "cannot be 0"))
    return errors


def _as_internal(rolling: Fields) -> dict[str, Any]:
    return {"Partition": rolling.get("partition", 0), "MaxUnavailable": rolling.get("maxUnavailable")}


def _selector_errors(at: str, selector: Any) -> FieldErrors:
    if not isinstance(selector, dict):
        return [required(at)]
    errors = label_selector(at, selector)
    if not selector.get("matchLabels") and not selector.get("matchExpressions"):
        errors.append(invalid(at, selector, "empty selector is invalid for statefulset"))
    return errors


def _template_errors(at: str, spec: Fields) -> FieldErrors:
    template = fields_at(spec, "template")
    given = fields_at(template, "metadata", "labels")
    selector = spec.get("selector")
    errors: FieldErrors = []
    # A missing selector selects nothing, an empty one everything.
    readable = not isinstance(selector, dict) or not label_selector(at, selector)
    matches = isinstance(selector, dict) and readable and label_selector_matches(_selector(selector), dict(given))
    if readable and not matches:
        message = "`selector` does not match template `labels`"
        errors.append(invalid(f"{at}.metadata.labels", dict(given) or None, message))
    errors += labels(f"{at}.labels", given)
    errors += annotations(f"{at}.annotations", fields_at(template, "metadata", "annotations"))
    errors += pod_spec_errors(f"{at}.spec", _with_claims(spec, fields_at(template, "spec")), "")
    policy = text_at(fields_at(template, "spec"), "restartPolicy") or "Always"
    if policy != "Always":
        errors.append(unsupported(f"{at}.spec.restartPolicy", policy, ("Always",)))
    if fields_at(template, "spec").get("activeDeadlineSeconds") is not None:
        message = "activeDeadlineSeconds in StatefulSet is not Supported"
        errors.append(forbidden(f"{at}.spec.activeDeadlineSeconds", message))
    return errors


def _selector(raw: Fields) -> LabelSelector:
    requirements = tuple(
        Requirement(text_at(it, "key"), text_at(it, "operator"), tuple(texts_at(it, "values")))
        for it in items_at(raw, "matchExpressions")
    )
    return LabelSelector(dict(fields_at(raw, "matchLabels")), requirements)


def _with_claims(spec: Fields, pod: Fields) -> dict[str, Any]:
    """The spec that the set's pods will have: with a volume for each claim that is created for the pod."""
    names = [text_at(fields_at(it, "metadata"), "name") for it in items_at(spec, "volumeClaimTemplates")]
    claim_volumes = [{"name": name, "persistentVolumeClaim": {"claimName": name}} for name in dict.fromkeys(names)]
    taken = set(names)
    others = [it for it in items_at(pod, "volumes") if text_at(it, "name") not in taken]
    kept = {name: value for name, value in pod.items() if name not in ("hostname", "subdomain")}
    return {**kept, "volumes": [*claim_volumes, *others]}


def _comparable(name: str, value: Any) -> Any:
    if name != "volumeClaimTemplates":
        return value
    return [_internal_claim(it) for it in value] if isinstance(value, list) and value else None


def _internal_claim(claim: Fields) -> dict[str, Any]:
    spec, resources = fields_at(claim, "spec"), fields_at(claim, "spec", "resources")
    return {
        **fields_at(claim, "metadata"),
        "Spec": {
            "AccessModes": spec.get("accessModes"),
            "Selector": spec.get("selector"),
            "Resources": {"Limits": resources.get("limits"), "Requests": resources.get("requests")},
            "VolumeName": text_at(spec, "volumeName"),
            "StorageClassName": spec.get("storageClassName"),
            "VolumeMode": spec.get("volumeMode", "Filesystem"),
            "DataSource": spec.get("dataSource"),
            "DataSourceRef": spec.get("dataSourceRef"),
            "VolumeAttributesClassName": spec.get("volumeAttributesClassName"),
        },
    }


def stateful_set_update_errors(old: Fields, new: Fields) -> FieldErrors:
    before, after = fields_at(old, "spec"), fields_at(new, "spec")
    return [
        *stateful_set_creation_errors(new),
        *(
            invalid(f"spec.{name}", _comparable(name, after.get(name)), IMMUTABLE)
            for name in _FIXED
            if not same(before.get(name), after.get(name))
        ),
    ]


def stateful_set_status_errors(old: Fields, new: Fields) -> FieldErrors:
    before, status, at = fields_at(old, "status"), fields_at(new, "status"), "status"
    counts = {name: number_at(status, name) or 0 for name in ("replicas", *COUNTED)}
    errors: FieldErrors = []
    for name in counts:
        errors += number_not_negative(f"{at}.{name}", counts[name])
    for name in ("observedGeneration", "collisionCount"):
        errors += number_not_negative(f"{at}.{name}", number_at(status, name))
    for name in COUNTED:
        if counts[name] > counts["replicas"]:
            errors.append(invalid(f"{at}.{name}", counts[name], "cannot be greater than status.replicas"))
    if counts["availableReplicas"] > counts["readyReplicas"]:
        message = "cannot be greater than status.readyReplicas"
        errors.append(invalid(f"{at}.availableReplicas", counts["availableReplicas"], message))
    collisions = number_at(status, "collisionCount") or 0
    if collisions < (number_at(before, "collisionCount") or 0):
        errors.append(invalid(f"{at}.collisionCount", collisions, "cannot be decremented"))
    return errors
