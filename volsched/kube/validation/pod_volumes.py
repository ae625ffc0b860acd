"""The volumes of a pod: each has a name of its own and one source."""

from collections.abc import Callable, Mapping

from volsched.kube.validation.claims import template_errors
from volsched.kube.validation.field_errors import FieldErrors, duplicate, each, forbidden, invalid, required
from volsched.kube.validation.fields import Fields, driver_name, fields_at, text_at
from volsched.kube.validation.formats import dns_label
from volsched.kube.validation.volumes import host_path_errors, nfs_errors

_ORDER = (
    "emptyDir", "hostPath", "gitRepo", "gcePersistentDisk", "awsElasticBlockStore", "secret", "nfs", "iscsi",
    "glusterfs", "persistentVolumeClaim", "rbd", "cinder", "cephfs", "flocker", "downwardAPI", "fc", "flexVolume",
    "configMap", "azureFile", "vsphereVolume", "photonPersistentDisk", "portworxVolume", "azureDisk", "storageos",
    "projected", "scaleIO", "csi", "ephemeral", "image",
)  # fmt: skip
"""In which order the reference looks at a volume's sources: the second that it meets is one too many."""


def volumes_errors(at: str, volumes: list[Fields], pod_name: str) -> tuple[Mapping[str, Fields], FieldErrors]:
    """The volumes that containers may mount, by name, and what is wrong with them all."""
    sound: dict[str, Fields] = {}
    found: FieldErrors = []
    made = {f"{pod_name}-{text_at(it, 'name')}" for it in volumes if pod_name and "ephemeral" in it}
    for index, volume in enumerate(volumes):
        where, name = f"{at}[{index}]", text_at(volume, "name")
        errors = _source_errors(where, volume)
        errors += each(f"{where}.name", name, dns_label(name)) if name else [required(f"{where}.name")]
        if name in sound:
            errors.append(duplicate(f"{where}.name", name))
        if not errors:
            sound[name] = volume
        found += errors
        claim = text_at(fields_at(volume, "persistentVolumeClaim"), "claimName")
        if claim in made:
            message = "must not reference a PVC that gets created for an ephemeral volume"
            found.append(invalid(f"{where}.persistentVolumeClaim.claimName", claim, message))
    return sound, found


def _source_errors(at: str, volume: Fields) -> FieldErrors:
    present = [name for name in _ORDER if isinstance(volume.get(name), Mapping)]
    if not present:
        # A volume that says nothing but its name is an emptyDir.
        return []
    first, *others = present
    found = list(SOURCE_RULES[first](f"{at}.{first}", volume[first])) if first in SOURCE_RULES else []
    return [*found, *(forbidden(f"{at}.{name}", "may not specify more than 1 volume type") for name in others)]


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
