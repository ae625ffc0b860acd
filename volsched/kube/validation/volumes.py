"""PersistentVolumes: what a volume must say, and what of it is fixed."""

from collections.abc import Callable, Mapping
from posixpath import normpath
from typing import Any

from volsched.kube.meta import LEGACY_REGION, LEGACY_ZONE, REGION, ZONE
from volsched.kube.storage import SOURCES
from volsched.kube.validation.claims import VOLUME_MODES, access_modes
from volsched.kube.validation.field_errors import (
    IMMUTABLE,
    FieldErrors,
    each,
    forbidden,
    internal_terms,
    invalid,
    required,
    unsupported,
)
from volsched.kube.validation.fields import (
    Fields,
    class_name,
    difference,
    driver_name,
    fields_at,
    node_selector,
    plain,
    positive_amount,
    quantity_of,
    same,
    text_at,
    texts_at,
)
from volsched.kube.validation.formats import without_backsteps

RECLAIM_POLICIES = ("Delete", "Recycle", "Retain")
HOST_PATH_TYPES = (
    "", "BlockDevice", "CharDevice", "Directory", "DirectoryOrCreate", "File", "FileOrCreate", "Socket",
)  # fmt: skip
_SECRET_REFS = (
    "controllerPublishSecretRef", "controllerExpandSecretRef", "nodePublishSecretRef", "nodeExpandSecretRef",
)  # fmt: skip
STABLE_LABELS = {
    LEGACY_ZONE: ZONE,
    LEGACY_REGION: REGION,
    "beta.kubernetes.io/arch": "kubernetes.io/arch",
    "beta.kubernetes.io/os": "kubernetes.io/os",
    "beta.kubernetes.io/instance-type": "node.kubernetes.io/instance-type",
}
"""The labels that were renamed when they became stable; a volume's affinity may follow them."""
_ORDER = (
    "hostPath", "gcePersistentDisk", "awsElasticBlockStore", "glusterfs", "flocker", "nfs", "rbd", "quobyte",
    "cephfs", "iscsi", "cinder", "fc", "flexVolume", "azureFile", "vsphereVolume", "photonPersistentDisk",
    "portworxVolume", "azureDisk", "scaleIO", "local", "storageos", "csi",
)  # fmt: skip
"""In which order the reference looks at a volume's sources: the second that it meets is one too many."""


def volume_creation_errors(volume: Fields) -> FieldErrors:
    return volume_spec_errors("spec", fields_at(volume, "spec"))


def volume_spec_errors(at: str, spec: Fields) -> FieldErrors:
    modes = texts_at(spec, "accessModes")
    found = [] if modes else [required(f"{at}.accessModes")]
    found += access_modes(f"{at}.accessModes", modes)
    found += _capacity_errors(f"{at}.capacity", spec.get("capacity"))
    policy = text_at(spec, "persistentVolumeReclaimPolicy")
    if policy and policy not in RECLAIM_POLICIES:
        found.append(unsupported(f"{at}.persistentVolumeReclaimPolicy", policy, RECLAIM_POLICIES))
    found += _affinity_errors(f"{at}.nodeAffinity", spec.get("nodeAffinity"))
    found += _source_errors(at, spec)
    host_path = text_at(fields_at(spec, "hostPath"), "path")
    if host_path and policy == "Recycle" and normpath(host_path).strip("/") == "":
        message = "may not be 'recycle' for a hostPath mount of '/'"
        found.append(forbidden(f"{at}.persistentVolumeReclaimPolicy", message))
    if name := text_at(spec, "storageClassName"):
        found += class_name(f"{at}.storageClassName", name)
    mode = spec.get("volumeMode")
    if isinstance(mode, str) and mode not in VOLUME_MODES:
        found.append(unsupported(f"{at}.volumeMode", mode, VOLUME_MODES))
    return [*found, *_attributes_class_errors(at, spec)]


def _capacity_errors(at: str, capacity: Any) -> FieldErrors:
    given = capacity if isinstance(capacity, Mapping) else {}
    found = [] if given else [required(at)]
    if list(given) != ["storage"]:
        found.append(unsupported(at, capacity, ("storage",)))
    for name, raw in given.items():
        amount = quantity_of(raw)
        if amount is not None:
            where = f"{at}[{name}]"
            whole = amount.nano // 10**9
            found += [invalid(where, whole, "must be a valid resource quantity")] if whole < 0 else []
            found += positive_amount(where, amount)
    return found


def _affinity_errors(at: str, affinity: Any) -> FieldErrors:
    if not isinstance(affinity, Mapping):
        return []
    selector = affinity.get("required")
    if not isinstance(selector, Mapping):
        return [required(f"{at}.required", "must specify required node constraints")]
    return node_selector(f"{at}.required", selector)


def _source_errors(at: str, spec: Fields) -> FieldErrors:
    present = [name for name in _ORDER if isinstance(spec.get(name), Mapping)]
    if not present:
        return [required(at, "must specify a volume type")]
    first, *others = present
    found = SOURCE_RULES[first](f"{at}.{first}", spec[first]) if first in SOURCE_RULES else []
    if first == "local" and not isinstance(spec.get("nodeAffinity"), Mapping):
        found.append(required(f"{at}.nodeAffinity", "Local volume requires node affinity"))
    return [*found, *(forbidden(f"{at}.{name}", "may not specify more than 1 volume type") for name in others)]


def _path_errors(at: str, source: Fields) -> FieldErrors:
    path = text_at(source, "path")
    return each(f"{at}.path", path, without_backsteps(path)) if path else [required(f"{at}.path")]


def host_path_errors(at: str, source: Fields) -> FieldErrors:
    type_ = text_at(source, "type")
    unknown = [] if type_ in HOST_PATH_TYPES else [unsupported(f"{at}.type", type_, HOST_PATH_TYPES)]
    return [*_path_errors(at, source), *unknown]


def nfs_errors(at: str, source: Fields) -> FieldErrors:
    path = text_at(source, "path")
    found = [required(f"{at}.{name}") for name in ("server", "path") if not text_at(source, name)]
    return found if path.startswith("/") else [*found, invalid(f"{at}.path", path, "must be an absolute path")]


def _csi_errors(at: str, source: Fields) -> FieldErrors:
    found = driver_name(f"{at}.driver", text_at(source, "driver"))
    if not text_at(source, "volumeHandle"):
        found.append(required(f"{at}.volumeHandle"))
    for name in _SECRET_REFS:
        if isinstance(source.get(name), Mapping):
            found += [
                required(f"{at}.{name}.{part}")
                for part in ("name", "namespace")
                if not text_at(source[name], part)
            ]
    return found


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
    found = class_name(where, name) if name else [required(where, "an empty string is disallowed")]
    if not isinstance(spec.get("csi"), Mapping):
        found.append(required(f"{at}.csi", "has to be specified when using volumeAttributesClassName"))
    return found


def volume_update_errors(old: Fields, new: Fields) -> FieldErrors:
    before, after = fields_at(old, "spec"), fields_at(new, "spec")
    found = volume_spec_errors("spec", after)
    sources = [{name: it[name] for name in SOURCES if name in it} for it in (before, after)]
    if not same(_without_expand_secret(*sources)[0], _without_expand_secret(*sources)[1]):
        diff = difference("core.PersistentVolumeSource", *sources)
        message = f"spec.persistentvolumesource is immutable after creation\n{diff}"
        found.append(forbidden("spec.persistentvolumesource", message))
    if not same(before.get("volumeMode"), after.get("volumeMode")):
        found.append(invalid("volumeMode", after.get("volumeMode"), IMMUTABLE))
    if before.get("nodeAffinity") and not _follows(before.get("nodeAffinity"), after.get("nodeAffinity")):
        message = f"{IMMUTABLE}, except for updating from beta label to GA"
        found.append(invalid("nodeAffinity", _as_internal(after.get("nodeAffinity")), message))
    if before.get("volumeAttributesClassName") is not None and after.get("volumeAttributesClassName") is None:
        message = "update from non-nil value to nil is forbidden"
        found.append(forbidden("spec.volumeAttributesClassName", message))
    return found


def _without_expand_secret(old: Fields, new: Fields) -> tuple[Fields, Fields]:
    """It may be added later, once."""
    name = "controllerExpandSecretRef"
    if name in fields_at(old, "csi") or name not in fields_at(new, "csi"):
        return old, new
    csi = {key: value for key, value in new["csi"].items() if key != name}
    return old, {**new, "csi": csi}


def _follows(old: Any, new: Any) -> bool:
    """Is it the same, with at most legacy label keys made stable?"""
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
