"""Which fields a kind has, and of which types: what is refused or warned of, and what lists are merged by.

`fields.json` holds Kubernetes' own types, taken from its official client (`tests/server/field_types.py`). The
rules read far fewer fields; an object keeps them all.
"""

from collections.abc import Iterator, Mapping
from functools import cache
from importlib.resources import files
from typing import Any

import orjson

from volsched.model.kinds import Kind
from volsched.model.problems import Path, field_name

_OURS = {
    "V1PersistentVolumeClaimStatus": {"dataState": "string"},
    "V1StorageClass": {"bindingMode": "string"},
}
"""Fields that Kubernetes has not, or not any more."""
_PLAIN = frozenset({"string", "int", "number", "bool", "any"})
_MAPPING = (dict, "a mapping")
_HELD: Mapping[str, tuple[Any, str]] = {
    # A quantity may be written as a number; what must be text, the model knows.
    "string": ((str, int, float), "a string"),
    "int": (int, "a whole number"),
    "number": ((int, float), "a number"),
    "bool": (bool, "true or false"),
    "[": (list, "a list"),
}
"""Type, or how it begins → what may stand there, and what that is called. All others are mappings."""

Types = Mapping[str, Mapping[str, str]]


@cache
def _catalogue() -> tuple[Mapping[str, str], Types]:
    read = orjson.loads(files("volsched.server").joinpath("fields.json").read_bytes())
    types = {name: fields | _OURS.get(name, {}) for name, fields in read["types"].items()}
    return read["kinds"], types


def type_of(kind: Kind) -> str:
    return _catalogue()[0][f"{kind.api_version} {kind.name}"]


def fields_of(type_: str) -> Mapping[str, str] | None:
    """Field → its type; None where any key may stand, or no mapping at all."""
    return _catalogue()[1].get(type_)


def all_types() -> Types:
    return _catalogue()[1]


def item_type(type_: str) -> str:
    """Of a list `[T]` or a mapping `{T}`."""
    return type_[1:-1]


def wrong_types(kind: Kind, manifest: Mapping[str, Any]) -> list[str]:
    """Fields that hold something else than they can: `status.conditions must be a list`.

    Nobody looks at most of them before they are shown, or read by whoever trusts an object that was accepted.
    """
    return [f"{field_name(path)} must be {wanted}" for path, wanted in _wrong(manifest, type_of(kind), ())]


def _wrong(value: Any, type_: str, at: Path) -> Iterator[tuple[Path, str]]:
    types, called = _HELD.get(type_[0], _HELD.get(type_, _MAPPING))
    if value is None or type_ == "any":
        return
    if not isinstance(value, types) or (isinstance(value, bool) and type_ != "bool"):
        yield at, called
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _wrong(item, item_type(type_), (*at, index))
    elif isinstance(value, dict):
        fields = fields_of(type_)
        for key, item in value.items():
            below = item_type(type_) if type_.startswith("{") else (fields or {}).get(key, "any")
            yield from _wrong(item, below, (*at, key))


def unknown_fields(kind: Kind, manifest: Mapping[str, Any]) -> list[str]:
    """The places of fields that the kind does not have: `spec.volums`."""
    return [field_name(path) for path in _unknown(manifest, type_of(kind), ())]


def _unknown(value: Any, type_: str, at: Path) -> Iterator[Path]:
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
                yield (*at, key)
