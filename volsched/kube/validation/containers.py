"""The containers of a pod: names, images, ports, mounts and amounts."""

from collections.abc import Iterable, Mapping

from volsched.kube.validation.field_errors import (
    FieldErrors,
    dns_label,
    duplicate,
    each,
    forbidden,
    invalid,
    not_found,
    port_name,
    port_number,
    qualified_name,
    required,
    unsupported,
    without_backsteps,
)
from volsched.kube.validation.fields import (
    Fields,
    amount_not_negative,
    fields_at,
    items_at,
    number_at,
    quantity_of,
    text_at,
)

PROTOCOLS = ("SCTP", "TCP", "UDP")
PULL_POLICIES = ("Always", "IfNotPresent", "Never")
STANDARD = ("cpu", "memory", "ephemeral-storage")
_OTHER_STANDARD = (
    "storage", "pods", "services", "replicationcontrollers", "resourcequotas", "secrets", "configmaps",
    "persistentvolumeclaims", "services.nodeports", "services.loadbalancers", "requests.cpu", "requests.memory",
    "requests.ephemeral-storage", "requests.storage", "limits.cpu", "limits.memory", "limits.ephemeral-storage",
)  # fmt: skip
"""Resources that the API knows, but not for containers."""
CLAIM_SOURCES = ("persistentVolumeClaim", "ephemeral")
_ONE_BY_ONE = "may not be set for init containers without restartPolicy=Always"


def containers_errors(at: str, containers: list[Fields], volumes: Mapping[str, Fields]) -> FieldErrors:
    if not containers:
        return [required(at)]
    errors: FieldErrors = []
    names: set[str] = set()
    for index, container in enumerate(containers):
        errors += container_errors(f"{at}[{index}]", container, volumes)
        name = text_at(container, "name")
        if name in names:
            errors.append(duplicate(f"{at}[{index}].name", name))
        names.add(name)
    return [*errors, *_host_ports(at, containers)]


def init_containers_errors(
    at: str, containers: list[Fields], volumes: Mapping[str, Fields], taken: Iterable[str]
) -> FieldErrors:
    errors: FieldErrors = []
    names = set(taken)
    for index, container in enumerate(containers):
        where, name = f"{at}[{index}]", text_at(container, "name")
        errors += container_errors(where, container, volumes)
        if name in names:
            errors.append(duplicate(f"{where}.name", name))
        names.add(name)
        errors += _host_ports(at, [container])
        if container.get("restartPolicy") != "Always":
            for probe in ("lifecycle", "livenessProbe", "readinessProbe", "startupProbe"):
                if container.get(probe) is not None:
                    errors.append(forbidden(f"{where}.{probe}", _ONE_BY_ONE))
    return errors


def container_errors(at: str, container: Fields, volumes: Mapping[str, Fields]) -> FieldErrors:
    name = text_at(container, "name")
    errors = each(f"{at}.name", name, dns_label(name)) if name else [required(f"{at}.name")]
    errors += [] if text_at(container, "image") else [required(f"{at}.image")]
    errors += _port_errors(f"{at}.ports", items_at(container, "ports"))
    for index, variable in enumerate(items_at(container, "env")):
        if not text_at(variable, "name"):
            errors.append(required(f"{at}.env[{index}].name"))
    mounts, devices = items_at(container, "volumeMounts"), items_at(container, "volumeDevices")
    errors += _mount_errors(f"{at}.volumeMounts", mounts, devices, volumes)
    errors += _device_errors(f"{at}.volumeDevices", devices, mounts, volumes)
    policy = text_at(container, "imagePullPolicy")
    if policy and policy not in PULL_POLICIES:
        errors.append(unsupported(f"{at}.imagePullPolicy", policy, PULL_POLICIES))
    return [*errors, *resource_errors(f"{at}.resources", fields_at(container, "resources"))]


def _port_errors(at: str, ports: list[Fields]) -> FieldErrors:
    errors: FieldErrors = []
    names: set[str] = set()
    for index, port in enumerate(ports):
        where, name, number = f"{at}[{index}]", text_at(port, "name"), number_at(port, "containerPort") or 0
        if name and (problems := port_name(name)):
            errors += each(f"{where}.name", name, problems)
        elif name:
            errors += [duplicate(f"{where}.name", name)] if name in names else []
            names.add(name)
        if number == 0:
            errors.append(required(f"{where}.containerPort"))
        else:
            errors += each(f"{where}.containerPort", number, port_number(number))
        if host := number_at(port, "hostPort"):
            errors += each(f"{where}.hostPort", host, port_number(host))
        protocol = text_at(port, "protocol") or "TCP"
        if protocol not in PROTOCOLS:
            errors.append(unsupported(f"{where}.protocol", protocol, PROTOCOLS))
    return errors


def _host_ports(at: str, containers: list[Fields]) -> FieldErrors:
    errors: FieldErrors = []
    taken: set[str] = set()
    for index, container in enumerate(containers):
        for number, port in enumerate(items_at(container, "ports")):
            host = number_at(port, "hostPort")
            if not host:
                continue
            place = f"{text_at(port, 'protocol') or 'TCP'}/{text_at(port, 'hostIP')}/{host}"
            if place in taken:
                errors.append(duplicate(f"{at}[{index}].ports[{number}].hostPort", place))
            taken.add(place)
    return errors


def _mount_errors(
    at: str, mounts: list[Fields], devices: list[Fields], volumes: Mapping[str, Fields]
) -> FieldErrors:
    errors: FieldErrors = []
    used_names = {text_at(device, "name") for device in devices}
    used_paths = {text_at(device, "devicePath") for device in devices}
    paths: set[str] = set()
    for index, mount in enumerate(mounts):
        where, name, path = f"{at}[{index}]", text_at(mount, "name"), text_at(mount, "mountPath")
        errors += [] if name else [required(f"{where}.name")]
        errors += [] if name in volumes else [not_found(f"{where}.name", name)]
        errors += [] if path else [required(f"{where}.mountPath")]
        errors += [invalid(f"{where}.mountPath", path, "must be unique")] if path in paths else []
        paths.add(path)
        if name in used_names:
            errors.append(invalid(f"{where}.name", name, "must not already exist in volumeDevices"))
        if path in used_paths:
            errors.append(invalid(f"{where}.mountPath", path, "must not already exist as a path in volumeDevices"))
        # The reference leaves the mount's number out of these two.
        for field in ("subPath", "subPathExpr"):
            if below := text_at(mount, field):
                errors += _descending(f"{at}.{field}", below)
    return errors


def _descending(at: str, path: str) -> FieldErrors:
    absolute = [invalid(at, path, "must be a relative path")] if path.startswith("/") else []
    return [*absolute, *each(at, path, without_backsteps(path))]


def _device_errors(
    at: str, devices: list[Fields], mounts: list[Fields], volumes: Mapping[str, Fields]
) -> FieldErrors:
    errors: FieldErrors = []
    mounted_names = {text_at(mount, "name") for mount in mounts}
    mounted_paths = {text_at(mount, "mountPath") for mount in mounts}
    names: set[str] = set()
    paths: set[str] = set()
    for index, device in enumerate(devices):
        where, name, path = f"{at}[{index}]", text_at(device, "name"), text_at(device, "devicePath")
        errors += [] if name else [required(f"{where}.name")]
        errors += [invalid(f"{where}.name", name, "must be unique")] if name in names else []
        if name not in volumes:
            errors.append(not_found(f"{where}.name", name))
        elif not any(source in volumes[name] for source in CLAIM_SOURCES):
            message = "can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode"
            errors.append(invalid(f"{where}.name", name, message))
        errors += [] if path else [required(f"{where}.devicePath")]
        errors += [invalid(f"{where}.devicePath", path, "must be unique")] if path in paths else []
        if without_backsteps(path):
            errors.append(invalid(f"{where}.devicePath", path, "can not contain backsteps ('..')"))
        if name in mounted_names:
            errors.append(invalid(f"{where}.name", name, "must not already exist in volumeMounts"))
        if path in mounted_paths:
            message = "must not already exist as a path in volumeMounts"
            errors.append(invalid(f"{where}.devicePath", path, message))
        names.add(name)
        paths.add(path)
    return errors


def resource_errors(at: str, resources: Fields) -> FieldErrors:
    limits, requests = fields_at(resources, "limits"), fields_at(resources, "requests")
    errors: FieldErrors = []
    for group, amounts in (("limits", limits), ("requests", requests)):
        for name, raw in amounts.items():
            where = f"{at}.{group}[{name}]"
            errors += _resource_name(where, name)
            amount = quantity_of(raw)
            if amount is None:
                continue
            errors += amount_not_negative(where, amount)
            limit = quantity_of(limits.get(name)) if group == "requests" else None
            if limit is not None and amount != limit and not _may_overcommit(name):
                errors.append(invalid(f"{at}.requests", str(amount), f"must be equal to {name} limit of {limit}"))
            elif limit is not None and amount > limit:
                message = f"must be less than or equal to {name} limit of {limit}"
                errors.append(invalid(f"{at}.requests", str(amount), message))
            elif group == "requests" and limit is None and not _may_overcommit(name):
                errors.append(required(f"{at}.limits", "Limit must be set for non overcommitable resources"))
    return errors


def _may_overcommit(name: str) -> bool:
    """Kubernetes' own resources may be overcommitted; others, and huge pages, may not."""
    native = "/" not in name or name.split("/")[0].endswith("kubernetes.io")
    return native and not name.startswith("hugepages-")


def _resource_name(at: str, name: str) -> FieldErrors:
    errors = each(at, name, qualified_name(name))
    if "/" in name or name in STANDARD or name.startswith("hugepages-"):
        return errors
    if not errors and name not in _OTHER_STANDARD:
        errors.append(invalid(at, name, "must be a standard resource type or fully qualified"))
    return [*errors, invalid(at, name, "must be a standard resource for containers")]
