"""PersistentVolumes and PersistentVolumeClaims: required fields, and immutable ones."""

from collections.abc import Callable, Mapping
from posixpath import normpath
from typing import Any

from volsched.kube.meta import BETA_STORAGE_CLASS, ROLLBACK, STABLE_LABELS
from volsched.kube.quantity import ZERO
from volsched.kube.storage import READ_WRITE_ONCE_POD, SOURCES
from volsched.kube.validation.field_errors import (
    IMMUTABLE,
    FieldErrors,
    dns_label,
    dns_subdomain,
    each,
    forbidden,
    internal_terms,
    invalid,
    required,
    unsupported,
    without_backsteps,
)
from volsched.kube.validation.fields import (
    Fields,
    annotations,
    class_name,
    difference,
    driver_name,
    fields_at,
    label_selector,
    labels,
    node_selector,
    plain,
    positive_amount,
    quantity_of,
    same,
    text_at,
    texts_at,
)

# PersistentVolumeClaims: the allowed requests, and that a request does not change.

ACCESS_MODES = ("ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod")
VOLUME_MODES = ("Block", "Filesystem")
BOUND = "Bound"
DATA_SOURCES = (("", "PersistentVolumeClaim"), ("snapshot.storage.k8s.io", "VolumeSnapshot"))
_STORAGE = "spec.resources.requests.storage"
_OPTIONAL = ("storageClassName", "volumeAttributesClassName")
"""An empty name is not the same as none."""
_CLAIM_SPEC = (
    "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims"
)


def access_modes(at: str, modes: list[str]) -> FieldErrors:
    errors = [unsupported(at, mode, ACCESS_MODES) for mode in modes if mode not in ACCESS_MODES]
    others = [mode for mode in modes if mode in ACCESS_MODES and mode != READ_WRITE_ONCE_POD]
    if READ_WRITE_ONCE_POD in modes and others:
        errors.append(forbidden(at, "may not use ReadWriteOncePod with other access modes"))
    return errors


def claim_spec_errors(at: str, spec: Fields) -> FieldErrors:
    modes = texts_at(spec, "accessModes")
    errors = [] if modes else [required(f"{at}.accessModes", "at least 1 access mode is required")]
    errors += label_selector(f"{at}.selector", spec.get("selector"))
    errors += access_modes(f"{at}.accessModes", modes)
    requests = fields_at(spec, "resources", "requests")
    size = quantity_of(requests.get("storage"))
    if "storage" not in requests:
        errors.append(required(f"{at}.resources[storage]"))
    elif size is not None:
        errors += positive_amount(f"{at}.resources[storage]", size)
    errors += _class_and_mode_errors(at, spec)
    errors += _claim_source_errors(at, spec)
    if name := text_at(spec, "volumeAttributesClassName"):
        errors += class_name(f"{at}.volumeAttributesClassName", name)
    return errors


def _claim_source_errors(at: str, spec: Fields) -> FieldErrors:
    """The older field is an alias of the newer, and is skipped where it names an unsupported kind."""
    source, reference = spec.get("dataSource"), spec.get("dataSourceRef")
    known = isinstance(source, dict) and (text_at(source, "apiGroup"), text_at(source, "kind")) in DATA_SOURCES
    if not known and source != reference:
        source = None
    if not isinstance(reference, dict):
        reference = source
    errors: FieldErrors = []
    for name, given in (("dataSource", source), ("dataSourceRef", reference)):
        if isinstance(given, dict):
            errors += _data_source(f"{at}.{name}", given)
    if not isinstance(source, dict) or not isinstance(reference, dict):
        return errors
    if text_at(reference, "namespace"):
        errors.append(invalid(at, {}, "may not be specified when dataSourceRef.namespace is specified"))
    elif any(source.get(name) != reference.get(name) for name in ("apiGroup", "kind", "name")):
        errors.append(invalid(at, {}, "must match dataSourceRef"))
    return errors


def _data_source(at: str, source: Fields) -> FieldErrors:
    errors = [required(f"{at}.{name}") for name in ("name", "kind") if not text_at(source, name)]
    group = text_at(source, "apiGroup")
    if not group and text_at(source, "kind") != "PersistentVolumeClaim":
        message = "must be 'PersistentVolumeClaim' when referencing the default apiGroup"
        errors.append(invalid(at, text_at(source, "kind"), message))
    if group:
        errors += each(f"{at}.apiGroup", group, dns_subdomain(group))
    if namespace := text_at(source, "namespace"):
        errors += each(f"{at}.namespace", namespace, dns_label(namespace))
    return errors


def template_errors(at: str, template: Fields) -> FieldErrors:
    """A claim to be created for a pod: its metadata holds only labels and annotations."""
    meta = fields_at(template, "metadata")
    errors = annotations(f"{at}.metadata.annotations", fields_at(meta, "annotations"))
    errors += labels(f"{at}.metadata.labels", fields_at(meta, "labels"))
    errors += [
        forbidden(f"{at}.metadata.{name}", "cannot be set")
        for name, value in meta.items()
        if name not in ("labels", "annotations") and value
    ]
    return [*errors, *claim_spec_errors(f"{at}.spec", fields_at(template, "spec"))]


def claim_creation_errors(claim: Fields) -> FieldErrors:
    return claim_spec_errors("spec", fields_at(claim, "spec"))


def claim_update_errors(old: Fields, new: Fields, *, by_controller: bool = False) -> FieldErrors:
    before, after = fields_at(old, "spec"), fields_at(new, "spec")
    errors = claim_spec_errors("spec", after)
    compared_old, compared_new = dict(before), dict(after)
    rolled_back = by_controller and not text_at(after, "volumeName") and _is_rollback(old)
    if rolled_back or not text_at(before, "volumeName"):
        compared_old.pop("volumeName", None)
        compared_new.pop("volumeName", None)
    errors += _class_errors(old, new, compared_old, compared_new)
    bound = text_at(fields_at(old, "status"), "phase") == BOUND
    if bound:
        for compared in (compared_old, compared_new):
            compared.pop("volumeAttributesClassName", None)
            requests = dict(compared.get("resources", {}).get("requests", {}))
            requests.pop("storage", None)
            compared["resources"] = {**compared.get("resources", {}), "requests": requests}
    named = any(compared_old.get(name) != compared_new.get(name) for name in _OPTIONAL)
    if named or not same(compared_old, compared_new):
        diff = difference("core.PersistentVolumeClaimSpec", compared_old, compared_new)
        errors.append(forbidden("spec", f"{_CLAIM_SPEC}\n{diff}"))
    return [*errors, *_size_errors(old, new), *_other_errors(old, new)]


def _is_rollback(claim: Fields) -> bool:
    """Whether the PV controller may remove the claim's volume: the claim had the annotation before the write."""
    return ROLLBACK in fields_at(claim, "metadata", "annotations")


def _class_errors(old: Fields, new: Fields, before: dict[str, object], after: dict[str, object]) -> FieldErrors:
    """A class may be set once, and must then equal the old annotation, if there is one."""
    noted = fields_at(old, "metadata", "annotations").get(BETA_STORAGE_CLASS)
    now = fields_at(new, "metadata", "annotations").get(BETA_STORAGE_CLASS)
    wanted = fields_at(new, "spec").get("storageClassName")
    unnamed = fields_at(old, "spec").get("storageClassName") is None
    if unnamed and wanted is not None and noted is not None and wanted == noted and now in (None, noted):
        after.pop("storageClassName", None)
        return []
    errors: FieldErrors = []
    if (now or "") != (noted or ""):
        errors.append(invalid(f"metadata.annotations.{BETA_STORAGE_CLASS}", now or "", IMMUTABLE))
    if unnamed and wanted is not None and noted in (None, wanted):
        after.pop("storageClassName", None)
        before.pop("storageClassName", None)
    return errors


def _size_errors(old: Fields, new: Fields) -> FieldErrors:
    before, after = (
        quantity_of(fields_at(it, "spec", "resources", "requests").get("storage")) or ZERO for it in (old, new)
    )
    granted = quantity_of(fields_at(old, "status", "capacity").get("storage")) or ZERO
    if after < before and after <= granted:
        return [forbidden(_STORAGE, "field can not be less than status.capacity")]
    return []


def _class_and_mode_errors(at: str, spec: Fields) -> FieldErrors:
    name, mode = text_at(spec, "storageClassName"), spec.get("volumeMode")
    errors = class_name(f"{at}.storageClassName", name) if name else []
    if isinstance(mode, str) and mode not in VOLUME_MODES:
        errors.append(unsupported(f"{at}.volumeMode", mode, VOLUME_MODES))
    return errors


def _mode_change_errors(before: Fields, after: Fields) -> FieldErrors:
    if same(before.get("volumeMode"), after.get("volumeMode")):
        return []
    return [invalid("volumeMode", after.get("volumeMode"), IMMUTABLE)]


def _other_errors(old: Fields, new: Fields) -> FieldErrors:
    before, after = fields_at(old, "spec"), fields_at(new, "spec")
    errors = _mode_change_errors(before, after)
    current = fields_at(old, "status").get("currentVolumeAttributesClassName")
    wanted = after.get("volumeAttributesClassName")
    if current is not None and before.get("volumeAttributesClassName") != wanted and not wanted:
        what = "nil" if wanted is None else "empty string"
        message = f"update to {what} is forbidden when status.currentVolumeAttributesClassName is not nil"
        errors.append(forbidden("spec.volumeAttributesClassName", message))
    return errors


def claim_status_errors(_: Fields, new: Fields) -> FieldErrors:
    errors: FieldErrors = []
    for name, raw in fields_at(new, "status", "capacity").items():
        amount = quantity_of(raw)
        if amount is not None and amount < ZERO:
            whole = amount.nano // 10**9
            errors.append(invalid(f"status.capacity[{name}]", whole, "must be a valid resource quantity"))
    return errors


RECLAIM_POLICIES = ("Delete", "Recycle", "Retain")
HOST_PATH_TYPES = (
    "", "BlockDevice", "CharDevice", "Directory", "DirectoryOrCreate", "File", "FileOrCreate", "Socket",
)  # fmt: skip
_SECRET_REFS = (
    "controllerPublishSecretRef", "controllerExpandSecretRef", "nodePublishSecretRef", "nodeExpandSecretRef",
)  # fmt: skip
_ORDER = (
    "hostPath", "gcePersistentDisk", "awsElasticBlockStore", "glusterfs", "flocker", "nfs", "rbd", "quobyte",
    "cephfs", "iscsi", "cinder", "fc", "flexVolume", "azureFile", "vsphereVolume", "photonPersistentDisk",
    "portworxVolume", "azureDisk", "scaleIO", "local", "storageos", "csi",
)  # fmt: skip
"""The order in which the reference checks a volume's sources: the second one present is an error."""


def volume_creation_errors(volume: Fields) -> FieldErrors:
    return volume_spec_errors("spec", fields_at(volume, "spec"))


def volume_spec_errors(at: str, spec: Fields) -> FieldErrors:
    modes = texts_at(spec, "accessModes")
    errors = [] if modes else [required(f"{at}.accessModes")]
    errors += access_modes(f"{at}.accessModes", modes)
    errors += _capacity_errors(f"{at}.capacity", spec.get("capacity"))
    policy = text_at(spec, "persistentVolumeReclaimPolicy")
    if policy and policy not in RECLAIM_POLICIES:
        errors.append(unsupported(f"{at}.persistentVolumeReclaimPolicy", policy, RECLAIM_POLICIES))
    errors += _affinity_errors(f"{at}.nodeAffinity", spec.get("nodeAffinity"))
    errors += _volume_source_errors(at, spec)
    host_path = text_at(fields_at(spec, "hostPath"), "path")
    if host_path and policy == "Recycle" and normpath(host_path).strip("/") == "":
        message = "may not be 'recycle' for a hostPath mount of '/'"
        errors.append(forbidden(f"{at}.persistentVolumeReclaimPolicy", message))
    errors += _class_and_mode_errors(at, spec)
    return [*errors, *_attributes_class_errors(at, spec)]


def _capacity_errors(at: str, capacity: Any) -> FieldErrors:
    given = capacity if isinstance(capacity, Mapping) else {}
    errors = [] if given else [required(at)]
    if list(given) != ["storage"]:
        errors.append(unsupported(at, capacity, ("storage",)))
    for name, raw in given.items():
        amount = quantity_of(raw)
        if amount is not None:
            where = f"{at}[{name}]"
            whole = amount.nano // 10**9
            errors += [invalid(where, whole, "must be a valid resource quantity")] if whole < 0 else []
            errors += positive_amount(where, amount)
    return errors


def _affinity_errors(at: str, affinity: Any) -> FieldErrors:
    if not isinstance(affinity, Mapping):
        return []
    selector = affinity.get("required")
    if not isinstance(selector, Mapping):
        return [required(f"{at}.required", "must specify required node constraints")]
    return node_selector(f"{at}.required", selector)


def _volume_source_errors(at: str, spec: Fields) -> FieldErrors:
    present = [name for name in _ORDER if isinstance(spec.get(name), Mapping)]
    if not present:
        return [required(at, "must specify a volume type")]
    first, *others = present
    errors = SOURCE_RULES[first](f"{at}.{first}", spec[first]) if first in SOURCE_RULES else []
    if first == "local" and not isinstance(spec.get("nodeAffinity"), Mapping):
        errors.append(required(f"{at}.nodeAffinity", "Local volume requires node affinity"))
    return [*errors, *(forbidden(f"{at}.{name}", "may not specify more than 1 volume type") for name in others)]


def _path_errors(at: str, source: Fields) -> FieldErrors:
    path = text_at(source, "path")
    return each(f"{at}.path", path, without_backsteps(path)) if path else [required(f"{at}.path")]


def host_path_errors(at: str, source: Fields) -> FieldErrors:
    type_ = text_at(source, "type")
    unknown = [] if type_ in HOST_PATH_TYPES else [unsupported(f"{at}.type", type_, HOST_PATH_TYPES)]
    return [*_path_errors(at, source), *unknown]


def nfs_errors(at: str, source: Fields) -> FieldErrors:
    path = text_at(source, "path")
    errors = [required(f"{at}.{name}") for name in ("server", "path") if not text_at(source, name)]
    return errors if path.startswith("/") else [*errors, invalid(f"{at}.path", path, "must be an absolute path")]


def _csi_errors(at: str, source: Fields) -> FieldErrors:
    errors = driver_name(f"{at}.driver", text_at(source, "driver"))
    if not text_at(source, "volumeHandle"):
        errors.append(required(f"{at}.volumeHandle"))
    for name in _SECRET_REFS:
        if isinstance(source.get(name), Mapping):
            errors += [
                required(f"{at}.{name}.{part}")
                for part in ("name", "namespace")
                if not text_at(source[name], part)
            ]
    return errors


SOURCE_RULES: Mapping[str, Callable[[str, Fields], FieldErrors]] = {
    "hostPath": host_path_errors,
    "local": _path_errors,
    "nfs": nfs_errors,
    "csi": _csi_errors,
}


def _attributes_class_errors(at: str, spec: Fields) -> FieldErrors:
    name = spec.get("volumeAttributesClassName")
    if not isinstance(name, str):
        return []
    where = f"{at}.volumeAttributesClassName"
    errors = class_name(where, name) if name else [required(where, "an empty string is disallowed")]
    if not isinstance(spec.get("csi"), Mapping):
        errors.append(required(f"{at}.csi", "has to be specified when using volumeAttributesClassName"))
    return errors


def volume_update_errors(old: Fields, new: Fields) -> FieldErrors:
    before, after = fields_at(old, "spec"), fields_at(new, "spec")
    errors = volume_spec_errors("spec", after)
    sources = [{name: it[name] for name in SOURCES if name in it} for it in (before, after)]
    if not same(_without_expand_secret(*sources)[0], _without_expand_secret(*sources)[1]):
        diff = difference("core.PersistentVolumeSource", *sources)
        message = f"spec.persistentvolumesource is immutable after creation\n{diff}"
        errors.append(forbidden("spec.persistentvolumesource", message))
    errors += _mode_change_errors(before, after)
    if before.get("nodeAffinity") and not _follows(before.get("nodeAffinity"), after.get("nodeAffinity")):
        message = f"{IMMUTABLE}, except for updating from beta label to GA"
        errors.append(invalid("nodeAffinity", _as_internal(after.get("nodeAffinity")), message))
    if before.get("volumeAttributesClassName") is not None and after.get("volumeAttributesClassName") is None:
        message = "update from non-nil value to nil is forbidden"
        errors.append(forbidden("spec.volumeAttributesClassName", message))
    return errors


def _without_expand_secret(old: Fields, new: Fields) -> tuple[Fields, Fields]:
    """Both sources without the expansion secret where it is added, which is allowed once."""
    name = "controllerExpandSecretRef"
    if name in fields_at(old, "csi") or name not in fields_at(new, "csi"):
        return old, new
    csi = {key: value for key, value in new["csi"].items() if key != name}
    return old, {**new, "csi": csi}


def _follows(old: Any, new: Any) -> bool:
    """Whether the values are equal except for legacy label keys that became stable ones."""
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        before, after = plain(old), plain(new)
        return before.keys() == after.keys() and all(
            (name == "key" and after[name] == STABLE_LABELS.get(before[name]))
            or _follows(before[name], after[name])
            for name in before
        )
    if isinstance(old, list) and isinstance(new, list):
        return len(old) == len(new) and all(map(_follows, old, new))
    return bool(old == new)


def _as_internal(affinity: Any) -> Any:
    if not isinstance(affinity, Mapping):
        return None
    selector = affinity.get("required")
    if not isinstance(selector, Mapping):
        return {"Required": None}
    return {"Required": {"NodeSelectorTerms": internal_terms(selector.get("nodeSelectorTerms"))}}
