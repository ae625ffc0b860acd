"""Columns of volumes, claims, classes and what CSI has."""

from collections.abc import Callable, Mapping
from typing import Any

from volsched.kube.manifest import annotations, spec, status
from volsched.kube.meta import BETA_STORAGE_CLASS, DEFAULT_CLASS_KEYS, SELECTED_NODE
from volsched.log.events.fold import ObjectState
from volsched.questions.get.cells import (
    AGE,
    NAME,
    NONE,
    UNSET,
    Column,
    Item,
    Manifest,
    assumed_by,
    assumed_node,
    field_at,
    listed,
    phase,
    shown,
)

MODES = {"ReadWriteOnce": "RWO", "ReadOnlyMany": "ROX", "ReadWriteMany": "RWX", "ReadWriteOncePod": "RWOP"}


def _modes(modes: object) -> str:
    return ",".join(MODES.get(str(mode), str(mode)) for mode in modes) if isinstance(modes, list) else ""


def _class(item: Item) -> str:
    annotated = annotations(item.manifest).get(BETA_STORAGE_CLASS)
    return shown(annotated if annotated is not None else spec(item.manifest).get("storageClassName"), missing="")


def _volume_mode(item: Item) -> str:
    return str(spec(item.manifest).get("volumeMode", "Filesystem"))


def _volume_claim(item: Item) -> str:
    ref = spec(item.manifest).get("claimRef")
    return _ref(ref) if isinstance(ref, Mapping) else ""


def _assumed_claim(item: Item) -> str:
    if item.assumed_by is None or not isinstance(item.state, ObjectState) or item.state.assumed is None:
        return NONE
    ref = spec(item.state.assumed.patch).get("claimRef")
    return _ref(ref) if isinstance(ref, Mapping) else NONE


def _ref(ref: Manifest) -> str:
    return f"{ref.get('namespace', '')}/{ref.get('name', '')}"


def _of_bound_claim(field: str, cell: Callable[[Any], str]) -> Callable[[Item], str]:
    """kubectl shows what the volume gives, and nothing before there is one."""
    return lambda item: cell(status(item.manifest).get(field)) if spec(item.manifest).get("volumeName") else ""


def _storage(capacity: object) -> str:
    return str(capacity.get("storage", "")) if isinstance(capacity, Mapping) else ""


def _class_name(item: Item) -> str:
    is_default = any(annotations(item.manifest).get(key) == "true" for key in DEFAULT_CLASS_KEYS)
    return f"{item.name} (default)" if is_default else item.name


def _topology(item: Item) -> str:
    labels = item.manifest.get("nodeTopology", {}).get("matchLabels", {})
    return listed(f"{key}={value}" for key, value in sorted(labels.items()))


def _driver_modes(item: Item) -> str:
    return listed(spec(item.manifest).get("volumeLifecycleModes", ("Persistent",)))


def _tokens(item: Item) -> str:
    wanted = [str(it.get("audience", "")) for it in spec(item.manifest).get("tokenRequests", ())]
    return listed(wanted) if wanted else UNSET


STORAGE_COLUMNS: Mapping[str, tuple[Column, ...]] = {
    "volume": (
        NAME,
        Column("CAPACITY", lambda item: _storage(spec(item.manifest).get("capacity"))),
        Column("ACCESS MODES", lambda item: _modes(spec(item.manifest).get("accessModes"))),
        Column("RECLAIM POLICY", field_at("spec", "persistentVolumeReclaimPolicy", missing="")),
        Column("STATUS", phase),
        Column("CLAIM", _volume_claim),
        Column("STORAGECLASS", _class),
        Column("VOLUMEATTRIBUTESCLASS", field_at("spec", "volumeAttributesClassName", missing=UNSET)),
        Column("REASON", field_at("status", "reason", missing="")),
        AGE,
        Column("VOLUMEMODE", _volume_mode, wide=True),
        Column("BINDING", assumed_by, wide=True),
        Column("ASSUMED CLAIM", _assumed_claim, wide=True),
        Column("NODE", assumed_node, wide=True),
    ),
    "claim": (
        NAME,
        Column("STATUS", phase),
        Column("VOLUME", field_at("spec", "volumeName", missing="")),
        Column("CAPACITY", _of_bound_claim("capacity", _storage)),
        Column("ACCESS MODES", _of_bound_claim("accessModes", _modes)),
        Column("STORAGECLASS", _class),
        Column("VOLUMEATTRIBUTESCLASS", field_at("spec", "volumeAttributesClassName", missing=UNSET)),
        AGE,
        Column("VOLUMEMODE", _volume_mode, wide=True),
        Column("SELECTED NODE", field_at("metadata", "annotations", SELECTED_NODE), wide=True),
        Column("BINDING", assumed_by, wide=True),
        Column("NODE", assumed_node, wide=True),
    ),
    "class": (
        Column("NAME", _class_name),
        Column("PROVISIONER", field_at("provisioner", missing="")),
        Column("RECLAIMPOLICY", field_at("reclaimPolicy", missing="Delete")),
        Column("VOLUMEBINDINGMODE", field_at("volumeBindingMode", missing="Immediate")),
        Column("ALLOWVOLUMEEXPANSION", field_at("allowVolumeExpansion", missing="false")),
        AGE,
    ),
    "driver": (
        NAME,
        Column("ATTACHREQUIRED", field_at("spec", "attachRequired", missing="true")),
        Column("PODINFOONMOUNT", field_at("spec", "podInfoOnMount", missing="false")),
        Column("STORAGECAPACITY", field_at("spec", "storageCapacity", missing="false")),
        Column("TOKENREQUESTS", _tokens),
        Column("REQUIRESREPUBLISH", field_at("spec", "requiresRepublish", missing="false")),
        Column("MODES", _driver_modes),
        AGE,
    ),
    "csinode": (NAME, Column("DRIVERS", lambda item: str(len(spec(item.manifest).get("drivers", ())))), AGE),
    "capacity": (
        NAME,
        Column("STORAGECLASS", field_at("storageClassName", missing="")),
        Column("CAPACITY", field_at("capacity")),
        AGE,
        Column("MAXIMUM", field_at("maximumVolumeSize"), wide=True),
        Column("TOPOLOGY", _topology, wide=True),
    ),
    "attachment": (
        NAME,
        Column("ATTACHER", field_at("spec", "attacher", missing="")),
        Column("PV", field_at("spec", "source", "persistentVolumeName", missing="")),
        Column("NODE", field_at("spec", "nodeName", missing="")),
        Column("ATTACHED", field_at("status", "attached", missing="false")),
        AGE,
    ),
}
