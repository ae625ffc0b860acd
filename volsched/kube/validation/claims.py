"""PersistentVolumeClaims: what may be asked for, and that it stays what was asked for."""

from volsched.kube.meta import BETA_STORAGE_CLASS
from volsched.kube.quantity import ZERO
from volsched.kube.storage import READ_WRITE_ONCE_POD
from volsched.kube.validation.field_errors import (
    IMMUTABLE,
    FieldErrors,
    each,
    forbidden,
    invalid,
    required,
    unsupported,
)
from volsched.kube.validation.fields import (
    Fields,
    annotations,
    class_name,
    difference,
    fields_at,
    label_selector,
    labels,
    positive_amount,
    quantity_of,
    same,
    text_at,
    texts_at,
)
from volsched.kube.validation.formats import dns_label, dns_subdomain

ACCESS_MODES = ("ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod")
VOLUME_MODES = ("Block", "Filesystem")
BOUND = "Bound"
DATA_SOURCES = (("", "PersistentVolumeClaim"), ("snapshot.storage.k8s.io", "VolumeSnapshot"))
_STORAGE = "spec.resources.requests.storage"
_CLAIM_SPEC = (
    "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims"
)


def access_modes(at: str, modes: list[str]) -> FieldErrors:
    found = [unsupported(at, mode, ACCESS_MODES) for mode in modes if mode not in ACCESS_MODES]
    others = [mode for mode in modes if mode in ACCESS_MODES and mode != READ_WRITE_ONCE_POD]
    if READ_WRITE_ONCE_POD in modes and others:
        found.append(forbidden(at, "may not use ReadWriteOncePod with other access modes"))
    return found


def claim_spec_errors(at: str, spec: Fields) -> FieldErrors:
    modes = texts_at(spec, "accessModes")
    found = [] if modes else [required(f"{at}.accessModes", "at least 1 access mode is required")]
    found += label_selector(f"{at}.selector", spec.get("selector"))
    found += access_modes(f"{at}.accessModes", modes)
    requests = fields_at(spec, "resources", "requests")
    size = quantity_of(requests.get("storage"))
    if "storage" not in requests:
        found.append(required(f"{at}.resources[storage]"))
    elif size is not None:
        found += positive_amount(f"{at}.resources[storage]", size)
    if name := text_at(spec, "storageClassName"):
        found += class_name(f"{at}.storageClassName", name)
    mode = spec.get("volumeMode")
    if isinstance(mode, str) and mode not in VOLUME_MODES:
        found.append(unsupported(f"{at}.volumeMode", mode, VOLUME_MODES))
    found += _source_errors(at, spec)
    if name := text_at(spec, "volumeAttributesClassName"):
        found += class_name(f"{at}.volumeAttributesClassName", name)
    return found


def _source_errors(at: str, spec: Fields) -> FieldErrors:
    """The older field is another name of the newer, and is passed over where it names what it never could."""
    source, reference = spec.get("dataSource"), spec.get("dataSourceRef")
    known = isinstance(source, dict) and (text_at(source, "apiGroup"), text_at(source, "kind")) in DATA_SOURCES
    if not known and source != reference:
        source = None
    if not isinstance(reference, dict):
        reference = source
    found: FieldErrors = []
    for name, given in (("dataSource", source), ("dataSourceRef", reference)):
        if isinstance(given, dict):
            found += _data_source(f"{at}.{name}", given)
    if not isinstance(source, dict) or not isinstance(reference, dict):
        return found
    if text_at(reference, "namespace"):
        found.append(invalid(at, {}, "may not be specified when dataSourceRef.namespace is specified"))
    elif any(source.get(name) != reference.get(name) for name in ("apiGroup", "kind", "name")):
        found.append(invalid(at, {}, "must match dataSourceRef"))
    return found


def _data_source(at: str, source: Fields) -> FieldErrors:
    found = [required(f"{at}.{name}") for name in ("name", "kind") if not text_at(source, name)]
    group = text_at(source, "apiGroup")
    if not group and text_at(source, "kind") != "PersistentVolumeClaim":
        message = "must be 'PersistentVolumeClaim' when referencing the default apiGroup"
        found.append(invalid(at, text_at(source, "kind"), message))
    if group:
        found += each(f"{at}.apiGroup", group, dns_subdomain(group))
    if namespace := text_at(source, "namespace"):
        found += each(f"{at}.namespace", namespace, dns_label(namespace))
    return found


def template_errors(at: str, template: Fields) -> FieldErrors:
    """A claim to be made for a pod: its metadata holds only labels and annotations."""
    meta = fields_at(template, "metadata")
    found = annotations(f"{at}.metadata.annotations", fields_at(meta, "annotations"))
    found += labels(f"{at}.metadata.labels", fields_at(meta, "labels"))
    found += [
        forbidden(f"{at}.metadata.{name}", "cannot be set")
        for name, value in meta.items()
        if name not in ("labels", "annotations") and value
    ]
    return [*found, *claim_spec_errors(f"{at}.spec", fields_at(template, "spec"))]


def claim_creation_errors(claim: Fields) -> FieldErrors:
    return claim_spec_errors("spec", fields_at(claim, "spec"))


def claim_update_errors(old: Fields, new: Fields) -> FieldErrors:
    before, after = fields_at(old, "spec"), fields_at(new, "spec")
    found = claim_spec_errors("spec", after)
    compared_old, compared_new = dict(before), dict(after)
    if not text_at(before, "volumeName"):
        compared_old.pop("volumeName", None)
        compared_new.pop("volumeName", None)
    found += _class_errors(old, new, compared_old, compared_new)
    bound = text_at(fields_at(old, "status"), "phase") == BOUND
    if bound:
        for compared in (compared_old, compared_new):
            compared.pop("volumeAttributesClassName", None)
            requests = dict(compared.get("resources", {}).get("requests", {}))
            requests.pop("storage", None)
            compared["resources"] = {**compared.get("resources", {}), "requests": requests}
    if not same(compared_old, compared_new):
        diff = difference("core.PersistentVolumeClaimSpec", compared_old, compared_new)
        found.append(forbidden("spec", f"{_CLAIM_SPEC}\n{diff}"))
    return [*found, *_size_errors(old, new), *_other_errors(old, new)]


def _class_errors(old: Fields, new: Fields, before: dict[str, object], after: dict[str, object]) -> FieldErrors:
    """A class may be named once, and must then be what the annotation of old says, if that says anything."""
    noted = fields_at(old, "metadata", "annotations").get(BETA_STORAGE_CLASS)
    now = fields_at(new, "metadata", "annotations").get(BETA_STORAGE_CLASS)
    wanted = fields_at(new, "spec").get("storageClassName")
    unnamed = fields_at(old, "spec").get("storageClassName") is None
    if unnamed and wanted is not None and noted is not None and wanted == noted and now in (None, noted):
        after.pop("storageClassName", None)
        return []
    found: FieldErrors = []
    if (now or "") != (noted or ""):
        found.append(invalid(f"metadata.annotations.{BETA_STORAGE_CLASS}", now or "", IMMUTABLE))
    if unnamed and wanted is not None and noted in (None, wanted):
        after.pop("storageClassName", None)
        before.pop("storageClassName", None)
    return found


def _size_errors(old: Fields, new: Fields) -> FieldErrors:
    before, after = (
        quantity_of(fields_at(it, "spec", "resources", "requests").get("storage")) or ZERO for it in (old, new)
    )
    granted = quantity_of(fields_at(old, "status", "capacity").get("storage")) or ZERO
    if after < before and after <= granted:
        return [forbidden(_STORAGE, "field can not be less than status.capacity")]
    return []


def _other_errors(old: Fields, new: Fields) -> FieldErrors:
    before, after = fields_at(old, "spec"), fields_at(new, "spec")
    found: FieldErrors = []
    if not same(before.get("volumeMode"), after.get("volumeMode")):
        found.append(invalid("volumeMode", after.get("volumeMode"), IMMUTABLE))
    current = fields_at(old, "status").get("currentVolumeAttributesClassName")
    wanted = after.get("volumeAttributesClassName")
    if current is not None and before.get("volumeAttributesClassName") != wanted and not wanted:
        what = "nil" if wanted is None else "empty string"
        message = f"update to {what} is forbidden when status.currentVolumeAttributesClassName is not nil"
        found.append(forbidden("spec.volumeAttributesClassName", message))
    return found


def claim_status_errors(_: Fields, new: Fields) -> FieldErrors:
    found: FieldErrors = []
    for name, raw in fields_at(new, "status", "capacity").items():
        amount = quantity_of(raw)
        if amount is not None and amount < ZERO:
            whole = amount.nano // 10**9
            found.append(invalid(f"status.capacity[{name}]", whole, "must be a valid resource quantity"))
    return found
