"""The fields of a kind and their types, for refusing or warning about fields, and the keys that merge lists.

`fields.json` holds Kubernetes' own types, taken from its official client (`tests/api/field_types.py`). The rules
read far fewer fields; an object keeps them all.
"""

import difflib
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.resources import files
from typing import Any

import orjson

from volsched.kube.kinds import Kind
from volsched.kube.problems import Path, field_name
from volsched.kube.validation.fields import quantity_of

_OURS = {
    "V1PersistentVolumeClaimStatus": {"dataState": "string"},
    "V1PodStatus": {"admittedBy": "string"},
    "V1StorageClass": {"bindingMode": "string"},
}
"""Fields that Kubernetes does not have, or no longer has."""
_PLAIN = frozenset({"string", "int", "number", "bool", "any"})
_HELD: Mapping[str, Any] = {"string": str, "int": int, "number": (int, float), "bool": bool, "[": list}
"""Type, or its prefix → the accepted Python types. All others are mappings."""
_AMOUNT_LISTS = frozenset({"requests", "limits", "capacity", "allocatable", "overhead", "allocatedResources"})
_AMOUNTS = frozenset({"capacity", "maximumVolumeSize", "sizeLimit"})
_NO_QUANTITY = r"quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
_GO_FIELDS = {"accessModes": "[]v1.PersistentVolumeAccessMode"}
_INT32 = range(-(2**31), 2**31)
_INT64_FIELDS = frozenset(
    {
        "activeDeadlineSeconds",
        "capacity",
        "defaultUser",
        "deletionGracePeriodSeconds",
        "expirationSeconds",
        "fsGroup",
        "generation",
        "gid",
        "nodeAllocatableUpdatePeriodSeconds",
        "observedGeneration",
        "revision",
        "runAsGroup",
        "runAsUser",
        "seconds",
        "sizeBytes",
        "supplementalGroups",
        "terminationGracePeriodSeconds",
        "tolerationSeconds",
        "uid",
        "user",
    }
)
"""All other whole numbers of Kubernetes have 32 bits."""
_GO = {"string": "string", "int": "int32", "number": "float64", "bool": "bool", "any": "interface {}"}

ALIKE = 0.7
"""The least similarity, up to 1, at which an unknown field counts as a misspelt known one."""
LEVELS_SEARCHED = 3

Types = Mapping[str, Mapping[str, str]]


@cache
def _catalogue() -> tuple[Mapping[str, str], Types]:
    read = orjson.loads(files("volsched.kube").joinpath("fields.json").read_bytes())
    types = {name: fields | _OURS.get(name, {}) for name, fields in read["types"].items()}
    return read["kinds"], types


def type_of(kind: Kind) -> str:
    return _catalogue()[0][f"{kind.api_version} {kind.name}"]


def fields_of(type_: str) -> Mapping[str, str] | None:
    """Field → its type; None where any key is allowed, or the type is no mapping."""
    return _catalogue()[1].get(type_)


def all_types() -> Types:
    return _catalogue()[1]


def item_type(type_: str) -> str:
    """The type of the items of a list `[T]` or a mapping `{T}`."""
    return type_[1:-1]


def wrong_types(kind: Kind, manifest: Mapping[str, Any]) -> list[str]:
    """Fields with values of the wrong type, in the words of Kubernetes' decoder.

    The rules read few fields, so most wrong types would show only in output, or in a client that trusts them.
    """
    return list(_wrong(manifest, type_of(kind), (), ""))


def json_type(value: Any) -> str:
    """The type's name in JSON, or in Go's reader of it."""
    if isinstance(value, bool):
        return "bool"
    called = {dict: "object", list: "array", str: "string", int: "number", float: "number"}
    return called.get(type(value), "null")


def _wrong(value: Any, type_: str, at: Path, holder: str) -> Iterator[str]:
    """`holder` is the type that has the field; items of lists are reported under their list."""
    types = _HELD.get(type_[0], _HELD.get(type_, dict))
    if value is None or type_ == "any":
        return
    if type_ == "string" and _is_quantity(at):
        if quantity_of(value) is None:
            yield _NO_QUANTITY
        return
    unfit = not isinstance(value, types) or (isinstance(value, bool) and type_ != "bool")
    too_large = type_ == "int" and not unfit and value not in _INT32 and _INT64_FIELDS.isdisjoint(at)
    if unfit or too_large:
        given = f"{json_type(value)} {value}" if too_large else json_type(value)
        place = ".".join(str(step) for step in at if isinstance(step, str))
        owner = holder.removeprefix("V1")
        wanted = _GO_FIELDS.get(str(at[-1])) or _GO.get(type_) or _go_name(type_)
        yield f"json: cannot unmarshal {given} into Go struct field {owner}.{place} of type {wanted}"
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _wrong(item, item_type(type_), (*at, index), holder)
    elif isinstance(value, dict):
        fields = fields_of(type_)
        amounts = bool(at) and at[-1] in _AMOUNT_LISTS
        for key, item in value.items():
            below = item_type(type_) if type_.startswith("{") else (fields or {}).get(key, "any")
            # A fast path: most fields are correct strings, and bulk creation spends time here.
            if type(item) is str and below == "string" and not amounts and key not in _AMOUNTS:
                continue
            yield from _wrong(item, below, (*at, key), type_ if fields else holder)


def _is_quantity(at: Path) -> bool:
    """Quantities may be written as numbers. The names of the enclosing fields identify them."""
    if not at or "metadata" in at:
        return False
    return at[-1] in _AMOUNTS or (len(at) > 1 and at[-2] in _AMOUNT_LISTS)


def _go_name(type_: str) -> str:
    if type_.startswith("["):
        inner = item_type(type_)
        return f"[]{_GO.get(inner) or _go_name(inner)}"
    if type_.startswith("{"):
        inner = item_type(type_)
        return f"map[string]{_GO.get(inner) or _go_name(inner)}"
    return f"v1.{type_.removeprefix('V1')}"


def unknown_fields(kind: Kind, manifest: Mapping[str, Any]) -> list[str]:
    """The paths of fields that the kind does not have: `spec.volums`."""
    return [field_name(path) for path, _ in _unknown(manifest, type_of(kind), ())]


def unknown_field_hints(kind: Kind, manifest: Mapping[str, Any]) -> dict[str, str | None]:
    """`unknown_fields`, each with the field that was probably meant: a similar name, or the same one elsewhere."""
    return {field_name(path): _nearest(kind, path, names) for path, names in _unknown(manifest, type_of(kind), ())}


def unknown_field_text(field: str, meant: str | None) -> str:
    return f'unknown field "{field}"' + ("" if meant is None else f" (did you mean {meant}?)")


def _nearest(kind: Kind, path: Path, names: Mapping[str, str]) -> str | None:
    *above, last = path
    wanted = str(last).lower()
    by_lower = {name.lower(): name for name in names}
    alike = difflib.get_close_matches(wanted, by_lower, 1, cutoff=ALIKE)
    if alike:
        return field_name((*above, by_lower[alike[0]]))
    return _elsewhere(kind, wanted)


def _elsewhere(kind: Kind, wanted: str) -> str | None:
    """The path of a field with exactly this name, nearest to the top; lists are not searched."""
    level: list[tuple[Path, str]] = [((), type_of(kind))]
    for _ in range(LEVELS_SEARCHED):
        fields = [((*at, name), type_) for at, above in level for name, type_ in (fields_of(above) or {}).items()]
        found = next((at for at, _ in fields if str(at[-1]).lower() == wanted and at[0] != "status"), None)
        if found is not None:
            return field_name(found)
        level = fields
    return None


def _unknown(value: Any, type_: str, at: Path) -> Iterator[tuple[Path, Mapping[str, str]]]:
    """Paths of unknown fields, each with the known fields of the same mapping."""
    if type_ in _PLAIN:
        return
    if isinstance(value, list) and type_.startswith("["):
        for index, item in enumerate(value):
            yield from _unknown(item, item_type(type_), (*at, index))
    elif isinstance(value, dict) and type_.startswith("{"):
        for key, item in value.items():
            yield from _unknown(item, item_type(type_), (*at, key))
    elif isinstance(value, dict):
        fields = fields_of(type_)
        for key, item in value.items() if fields is not None else ():
            if fields is not None and key in fields:
                yield from _unknown(item, fields[key], (*at, key))
            else:
                yield (*at, key), fields or {}
