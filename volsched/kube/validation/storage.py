"""Classes, and the objects that CSI drivers publish: CSINode, CSIDriver, CSIStorageCapacity, VolumeAttachment."""

from typing import Any

from volsched.kube.validation.field_errors import (
    IMMUTABLE,
    FieldErrors,
    dns_subdomain,
    duplicate,
    each,
    forbidden,
    invalid,
    qualified_name,
    required,
    too_long,
    unsupported,
)
from volsched.kube.validation.fields import (
    METADATA_MAX,
    Fields,
    amount_not_negative,
    class_name,
    driver_name,
    fields_at,
    items_at,
    label_selector,
    number_at,
    number_not_negative,
    quantity_of,
    same,
    text_at,
    texts_at,
)

BINDING_MODE = "volumeBindingMode"
BINDING_MODE_ALIAS = "bindingMode"
BINDING_MODES = ("Immediate", "WaitForFirstConsumer")
RECLAIM_POLICIES = ("Delete", "Retain")
PARAMETERS_MAX = 512
NODE_ID_MAX = 256
GROUP_POLICIES = ("File", "None", "ReadWriteOnceWithFSType")
LIFECYCLE_MODES = ("Persistent", "Ephemeral")


# --- StorageClass ---------------------------------------------------------------------------------------


def class_creation_errors(storage_class: Fields) -> FieldErrors:
    provisioner = text_at(storage_class, "provisioner")
    errors = [] if provisioner else [required("provisioner")]
    if provisioner:
        errors += each("provisioner", provisioner.lower(), qualified_name(provisioner.lower()))
    errors += _parameter_errors("parameters", fields_at(storage_class, "parameters"))
    policy = text_at(storage_class, "reclaimPolicy")
    if policy and policy not in RECLAIM_POLICIES:
        errors.append(unsupported("reclaimPolicy", policy, RECLAIM_POLICIES))
    mode = storage_class.get(BINDING_MODE)
    if not isinstance(mode, str):
        errors.append(required(BINDING_MODE))
    elif mode not in BINDING_MODES:
        errors.append(unsupported(BINDING_MODE, mode, BINDING_MODES))
    if BINDING_MODE_ALIAS in storage_class:
        message = f"is another name of {BINDING_MODE}, which says {mode}; remove it"
        errors.append(invalid(BINDING_MODE_ALIAS, storage_class[BINDING_MODE_ALIAS], message))
    return [*errors, *_topology_errors("allowedTopologies", items_at(storage_class, "allowedTopologies"))]


def _parameter_errors(at: str, parameters: Fields) -> FieldErrors:
    if len(parameters) > PARAMETERS_MAX:
        return [too_long(at, PARAMETERS_MAX)]
    errors = [invalid(at, "", "field can not be empty.")] if "" in parameters else []
    size = sum(len(key.encode()) + len(str(value).encode()) for key, value in parameters.items())
    return [*errors, too_long(at, METADATA_MAX)] if size > METADATA_MAX else errors


def _topology_errors(at: str, terms: list[Fields]) -> FieldErrors:
    errors: FieldErrors = []
    # An empty term equals the reference's initial set, and is reported as a duplicate.
    known: set[frozenset[tuple[str, frozenset[str]]]] = {frozenset()}
    for index, term in enumerate(terms):
        where = f"{at}[{index}].matchLabelExpressions"
        values: dict[str, frozenset[str]] = {}
        for number, entry in enumerate(items_at(term, "matchLabelExpressions")):
            errors += _topology_entry_errors(f"{where}[{number}]", entry)
            key = text_at(entry, "key")
            if key in values:
                errors.append(duplicate(f"{where}[{number}].key", key))
            values[key] = frozenset(texts_at(entry, "values"))
        term_values = frozenset(values.items())
        if term_values in known:
            errors.append(duplicate(where, ""))
        known.add(term_values)
    return errors


def _topology_entry_errors(at: str, entry: Fields) -> FieldErrors:
    values, used = texts_at(entry, "values"), set[str]()
    errors = [] if values else [required(f"{at}.values")]
    for index, value in enumerate(values):
        if value in used:
            errors.append(duplicate(f"{at}.values[{index}]", value))
        used.add(value)
    return [*errors, *each(f"{at}.key", text_at(entry, "key"), qualified_name(text_at(entry, "key")))]


def class_update_errors(old: Fields, new: Fields) -> FieldErrors:
    fixed = ("parameters", "provisioner", "reclaimPolicy", "volumeBindingMode")
    return [
        *class_creation_errors(new),
        *(invalid(name, None, IMMUTABLE) for name in fixed if not same(old.get(name), new.get(name))),
    ]


# --- CSINode --------------------------------------------------------------------------------------------


def csi_node_creation_errors(node: Fields) -> FieldErrors:
    errors: FieldErrors = []
    names: set[str] = set()
    for index, driver in enumerate(items_at(fields_at(node, "spec"), "drivers")):
        at, name, node_id = f"spec.drivers[{index}]", text_at(driver, "name"), text_at(driver, "nodeID")
        errors += driver_name(f"{at}.name", name)
        errors += [] if node_id else [required(f"{at}.nodeID")]
        if len(node_id) > NODE_ID_MAX:
            errors.append(invalid(f"{at}.nodeID", node_id, f"must be {NODE_ID_MAX} characters or less"))
        count = number_at(fields_at(driver, "allocatable"), "count")
        errors += number_not_negative(f"{at}.allocatable.count", count)
        errors += [duplicate(f"{at}.name", name)] if name in names else []
        names.add(name)
        errors += _topology_key_errors(at, texts_at(driver, "topologyKeys"))
    return errors


def _topology_key_errors(at: str, keys: list[str]) -> FieldErrors:
    errors: FieldErrors = []
    known: set[str] = set()
    for key in keys:
        errors += [] if key else [required(at)]
        errors += [duplicate(at, key)] if key in known else []
        known.add(key)
        errors += each(at, key, qualified_name(key))
    return errors


def csi_node_update_errors(old: Fields, new: Fields) -> FieldErrors:
    errors = csi_node_creation_errors(new)
    after: dict[str, list[Fields]] = {}
    for driver in items_at(fields_at(new, "spec"), "drivers"):
        after.setdefault(text_at(driver, "name"), []).append(driver)
    for driver in items_at(fields_at(old, "spec"), "drivers"):
        for other in after.get(text_at(driver, "name"), ()):
            one, two = ({k: v for k, v in it.items() if k != "allocatable"} for it in (driver, other))
            if not same(one, two):
                errors.append(invalid("spec.drivers", _as_internal(other), IMMUTABLE))
    return errors


def _as_internal(driver: Fields) -> dict[str, Any]:
    return {
        "Name": text_at(driver, "name"),
        "NodeID": text_at(driver, "nodeID"),
        "TopologyKeys": driver.get("topologyKeys"),
        "Allocatable": None,
    }


# --- CSIDriver ------------------------------------------------------------------------------------------


def csi_driver_creation_errors(driver: Fields) -> FieldErrors:
    spec, at = fields_at(driver, "spec"), "spec"
    errors: FieldErrors = []
    policy = spec.get("fsGroupPolicy")
    if isinstance(policy, str) and policy not in GROUP_POLICIES:
        errors.append(unsupported(f"{at}.fsGroupPolicy", policy, GROUP_POLICIES))
    for mode in texts_at(spec, "volumeLifecycleModes"):
        if mode not in LIFECYCLE_MODES:
            errors.append(unsupported(f"{at}.volumeLifecycleModes", mode, LIFECYCLE_MODES))
    period = number_at(spec, "nodeAllocatableUpdatePeriodSeconds")
    if period is not None and period < 10:
        message = "must be greater than or equal to 10 seconds"
        errors.append(invalid(f"{at}.nodeAllocatableUpdatePeriodSeconds", period, message))
    return errors


def csi_driver_update_errors(old: Fields, new: Fields) -> FieldErrors:
    before, after = fields_at(old, "spec"), fields_at(new, "spec")
    errors = csi_driver_creation_errors(new)
    # The reference itself misspells the first.
    for name, shown, default in (
        ("attachRequired", "attachedRequired", True),
        ("volumeLifecycleModes", "volumeLifecycleModes", ["Persistent"]),
    ):
        if before.get(name, default) != after.get(name, default):
            errors.append(invalid(f"spec.{shown}", after.get(name, default), IMMUTABLE))
    return errors


# --- CSIStorageCapacity, VolumeAttachment ---------------------------------------------------------------


def capacity_creation_errors(capacity: Fields) -> FieldErrors:
    errors = label_selector("nodeTopology", capacity.get("nodeTopology"))
    errors += class_name("storageClassName", text_at(capacity, "storageClassName"))
    amount = quantity_of(capacity.get("capacity"))
    return errors if amount is None else [*errors, *amount_not_negative("capacity", amount)]


def capacity_update_errors(old: Fields, new: Fields) -> FieldErrors:
    errors = capacity_creation_errors(new)
    for name in ("nodeTopology", "storageClassName"):
        if not same(old.get(name), new.get(name)):
            errors.append(invalid(name, new.get(name), IMMUTABLE))
    return errors


def attachment_creation_errors(attachment: Fields) -> FieldErrors:
    spec, at = fields_at(attachment, "spec"), "spec"
    errors = driver_name(f"{at}.attacher", text_at(spec, "attacher"))
    source = fields_at(spec, "source")
    name, inline = source.get("persistentVolumeName"), source.get("inlineVolumeSpec")
    one = "must specify exactly one of inlineVolumeSpec and persistentVolumeName"
    if name is None and inline is None:
        errors.append(required(f"{at}.source", one))
    elif name is not None and inline is not None:
        errors.append(forbidden(f"{at}.source", one))
    elif name == "":
        message = "must specify non empty persistentVolumeName"
        errors.append(required(f"{at}.source.persistentVolumeName", message))
    node = text_at(spec, "nodeName")
    errors += each(f"{at}.nodeName", node, dns_subdomain(node))
    if isinstance(name, str):
        errors += each(f"{at}.source.persistentVolumeName", name, dns_subdomain(name))
    return errors


def attachment_update_errors(old: Fields, new: Fields) -> FieldErrors:
    errors = attachment_creation_errors(new)
    return errors if same(old.get("spec"), new.get("spec")) else [*errors, invalid("spec", None, IMMUTABLE)]
