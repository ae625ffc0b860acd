"""Strategic merge patches: merge patches whose lists are merged by a key, as `kubectl apply` sends them.

Kubernetes defines the merge key of each list field; all other lists are replaced as a whole.
"""

from collections import Counter, deque
from collections.abc import Hashable, Mapping
from typing import Any

import orjson

from volsched.kube.known_fields import fields_of, item_type
from volsched.kube.patches import PatchError

PRIMITIVE = ""
"""Used instead of a key: the list is a set of plain values."""
_CONTAINER = {"env": "name", "ports": "containerPort", "volumeMounts": "mountPath", "volumeDevices": "devicePath"}
MERGE_KEYS: Mapping[str, Mapping[str, str]] = {
    "V1ObjectMeta": {"ownerReferences": "uid", "finalizers": PRIMITIVE},
    "V1PodSpec": {
        "containers": "name",
        "initContainers": "name",
        "ephemeralContainers": "name",
        "volumes": "name",
        "imagePullSecrets": "name",
        "hostAliases": "ip",
        "topologySpreadConstraints": "topologyKey",
        "resourceClaims": "name",
        "schedulingGates": "name",
    },
    "V1Container": _CONTAINER,
    "V1EphemeralContainer": _CONTAINER,
    "V1PodStatus": {"conditions": "type", "podIPs": "ip", "hostIPs": "ip", "resourceClaimStatuses": "name"},
    "V1NodeSpec": {"podCIDRs": PRIMITIVE},
    "V1NodeStatus": {"conditions": "type", "addresses": "type"},
    "V1PersistentVolumeClaimStatus": {"conditions": "type"},
    "V1NamespaceStatus": {"conditions": "type"},
    "V1StatefulSetStatus": {"conditions": "type"},
    "V1CSINodeSpec": {"drivers": "name"},
}
"""Type → field → the merge key of its items."""
_DIRECTIVE = "$patch"
_RETAIN = "$retainKeys"
_ORDER = "$setElementOrder/"
_DELETE = "$deleteFromPrimitiveList/"
MOST_REPEATS = 16
"""How often a patch may name one item of a list, because each time the whole item is merged again."""
_GONE = object()
"""Replaces a deleted item, so that the indexes of the others do not change."""
Json = Mapping[str, Any]


class RepeatedError(PatchError):
    """The patch names one item of a list too often."""


def strategic_merged(target: Json, patch: Json, type_: str) -> dict[str, Any]:
    """The target, of that type, with the patch applied. Neither is changed."""
    directive = patch.get(_DIRECTIVE)
    if directive not in (None, "merge", "replace", "delete"):
        raise PatchError(f"unknown patch type: {directive} in map: {go_text(patch)}")
    if directive is not None and directive != "merge":
        return {} if directive == "delete" else _plain(patch)
    retained = _retained(patch)
    result = {key: value for key, value in target.items() if retained is None or key in retained}
    types = fields_of(type_) or {}
    keys = MERGE_KEYS.get(type_, {})
    for name, value in patch.items():
        if name.startswith("$"):
            continue
        below = types.get(name, item_type(type_) if type_.startswith("{") else "any")
        if value is None or (isinstance(value, dict) and value.get(_DIRECTIVE) == "delete"):
            result.pop(name, None)
        elif isinstance(value, dict):
            value_before = result.get(name)
            result[name] = strategic_merged(value_before if isinstance(value_before, dict) else {}, value, below)
        elif isinstance(value, list) and name in keys:
            value_before = result.get(name)
            result[name] = _merged_list(
                value_before if isinstance(value_before, list) else [], value, keys[name], item_type(below)
            )
        else:
            result[name] = _plain(value)
    _apply_directives(result, patch, keys)
    return result


def _retained(patch: Json) -> frozenset[Any] | None:
    names = patch.get(_RETAIN)
    return frozenset(map(_hashable, names)) if isinstance(names, list) else None


def _apply_directives(result: dict[str, Any], patch: Json, keys: Mapping[str, str]) -> None:
    for name, value in patch.items():
        if name.startswith(_DELETE) and isinstance(value, list):
            field = name.removeprefix(_DELETE)
            if isinstance(result.get(field), list):
                unwanted = set(map(_hashable, value))
                result[field] = [item for item in result[field] if _hashable(item) not in unwanted]
    for name, value in patch.items():
        field = name.removeprefix(_ORDER)
        if name.startswith(_ORDER) and isinstance(value, list) and isinstance(result.get(field), list):
            key = keys.get(field, PRIMITIVE)
            order: dict[Hashable, int] = {}
            for place, item in enumerate(value):
                order.setdefault(_identity(item, key), place)
            # Items that the patch does not name follow those it names, in their old order. A new list: the old one
            # may be the stored object's.
            places = [order.get(_identity(item, key), len(value)) for item in result[field]]
            result[field] = [result[field][at] for at in sorted(range(len(places)), key=places.__getitem__)]


def _merged_list(before: list[Any], patch: list[Any], key: str, type_: str) -> list[Any]:
    if key == PRIMITIVE:
        known = set(map(_hashable, before))
        return [*before, *(item for item in _plain(patch) if _hashable(item) not in known)]
    result = list(before)
    places: dict[Hashable, deque[int]] = {}
    for at, item in enumerate(result):
        places.setdefault(_identity(item, key), deque()).append(at)
    repeats: Counter[Hashable] = Counter()
    for item in patch:
        if not isinstance(item, dict):
            raise PatchError(f"an item of a list that is merged by {key} is not a mapping")
        directive = item.get(_DIRECTIVE)
        if directive == "replace" and key not in item:
            return [_plain(it) for it in patch if it is not item]
        if item.get(key) is None:
            raise PatchError(f"map: {go_text(item)} does not contain declared merge key: {key}")
        identity = _hashable(item[key])
        repeats[identity] += 1
        if repeats[identity] > MOST_REPEATS:
            named = go_text(item[key])[:80]
            raise RepeatedError(f"{key} {named} is named more than {MOST_REPEATS} times; name it once")
        alike = places.setdefault(identity, deque())
        if directive == "delete":
            if alike:
                result[alike.popleft()] = _GONE
        elif not alike:
            alike.append(len(result))
            result.append(strategic_merged({}, item, type_))
        else:
            result[alike[0]] = strategic_merged(result[alike[0]], item, type_)
    return [item for item in result if item is not _GONE]


def _identity(item: Any, key: str) -> Hashable:
    return _hashable(item.get(key) if key and isinstance(item, dict) else item)


def _hashable(value: Any) -> Hashable:
    """A hashable form, equal for equal values, so that a lookup does not walk the list."""
    if isinstance(value, dict | list):
        return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
    scalar: Hashable = value
    return scalar


def _plain(value: Any) -> Any:
    """The value without directives, which would otherwise be stored as fields."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items() if not key.startswith("$") and item is not None}
    return [_plain(item) for item in value] if isinstance(value, list) else value


def go_text(value: Any) -> str:
    """A value as Kubernetes shows a patch in its errors: `map[spec:map[replicas:3]]`."""
    if isinstance(value, Mapping):
        return f"map[{' '.join(f'{key}:{go_text(item)}' for key, item in sorted(value.items()))}]"
    if isinstance(value, list):
        return f"[{' '.join(map(go_text, value))}]"
    if value is None or isinstance(value, bool):
        return {None: "<nil>", True: "true", False: "false"}[value]
    return str(value)
