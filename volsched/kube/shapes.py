"""Checks a manifest against the shape of its kind: every field of the wrong type, not only the first.

pydantic reports wrong types, but it silently uses a default where a path leads through a value that is no mapping:
`spec.resources: "x"` would read as a claim without requests. So the mappings on the paths of all declared fields
are checked here first.
"""

import types
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields, is_dataclass
from functools import cache
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

from pydantic import AliasPath, ValidationError
from pydantic.alias_generators import to_camel
from pydantic.fields import FieldInfo

from volsched.kube.kinds import Kind, Manifest
from volsched.kube.object_values import Object
from volsched.kube.problems import Defect, Path, value_text
from volsched.kube.storage import SOURCES, Volume, VolumeSource
from volsched.kube.workloads import PodVolume

NOT_A_MAPPING = "is not a mapping; write its fields below it, each as `name: value`"
NOT_A_LIST = "is not a list; write each entry on its own line after `- `"

_TOP = ("metadata", "spec", "status")
# Which mapping holds the volume sources of a value.
_SOURCE_HOLDERS: dict[type, tuple[str, ...]] = {Volume: ("spec",), PodVolume: ()}
# pydantic reports everything at once, so a second pass finds nothing; a third would mean a loop.
_PASSES = 3
_CALLED = {
    str: "a string",
    bool: "a boolean",
    int: "a number",
    float: "a number",
    list: "a list",
    dict: "a mapping",
}


@dataclass(frozen=True, slots=True)
class Reading:
    """The value, as far as it could be read, and the fields that were left out for a wrong type."""

    value: Object | None
    defects: tuple[Defect, ...]


def read_shape(kind: Kind, manifest: Manifest) -> Reading:
    """The manifest as a value; fields of a wrong type are left out."""
    defects = list(_mapping_defects(kind, manifest))
    remaining = _pruned(manifest, [defect.path for defect in defects]) if defects else manifest
    for _ in range(_PASSES):
        try:
            return Reading(kind.read({**remaining, "metadata": remaining.get("metadata", {})}), tuple(defects))
        except ValidationError as error:
            found = [_type_defect(detail) for detail in error.errors(include_url=False, include_context=True)]
            defects += found
            remaining = _pruned(remaining, [defect.path for defect in found])
    return Reading(None, tuple(defects))


# --- mappings on the path of a field --------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Part:
    """The path of a field of a value, and the type of the values there, if they have fields of their own."""

    path: tuple[str, ...]
    inner: type | None
    many: bool


def _mapping_defects(kind: Kind, manifest: Manifest) -> Iterator[Defect]:
    defects: dict[Path, Defect] = {}
    for name in _TOP:
        if name in manifest and not isinstance(manifest[name], dict):
            defects[(name,)] = Defect((name,), NOT_A_MAPPING, value_text(manifest[name]))
    for defect in _holder_defects(kind.value, manifest, ()):
        defects.setdefault(defect.path, defect)
    return iter(defects.values())


def _holder_defects(cls: type, raw: Manifest, at: Path) -> Iterator[Defect]:
    for part in _parts(cls):
        holder: Any = raw
        for depth, step in enumerate(part.path):
            if not isinstance(holder, dict):
                yield Defect((*at, *part.path[:depth]), NOT_A_MAPPING, value_text(holder))
                holder = None
                break
            holder = holder.get(step)
            if holder is None:
                break
        if part.inner is None or holder is None:
            continue
        if part.many and isinstance(holder, list):
            for index, item in enumerate(holder):
                if isinstance(item, dict):
                    yield from _holder_defects(part.inner, item, (*at, *part.path, index))
        elif not part.many and isinstance(holder, dict):
            yield from _holder_defects(part.inner, holder, (*at, *part.path))
    if cls in _SOURCE_HOLDERS:
        yield from _source_defects(raw, at, _SOURCE_HOLDERS[cls])


def _source_defects(raw: Manifest, at: Path, path: tuple[str, ...]) -> Iterator[Defect]:
    sources: Any = raw
    for step in path:
        sources = sources.get(step)
    if isinstance(sources, dict):
        for name in SOURCES & sources.keys():
            if not isinstance(sources[name], dict):
                yield Defect((*at, *path, name), NOT_A_MAPPING, value_text(sources[name]))


@cache
def _parts(cls: type) -> tuple[_Part, ...]:
    """The fields of a value whose paths lead through mappings; pydantic checks the others."""
    hints = get_type_hints(cls, include_extras=True)
    camel = hasattr(cls, "__pydantic_config__")
    parts = []
    for declared in fields(cls):
        hint = hints[declared.name]
        path = _alias(hint) or (to_camel(declared.name) if camel else declared.name,)
        inner, many = _inner(hint)
        if inner is not None and (inner is VolumeSource or not (_parts(inner) or inner in _SOURCE_HOLDERS)):
            inner = None
        if inner is not None or len(path) > 1:
            parts.append(_Part(path, inner, many))
    return tuple(parts)


def _alias(hint: Any) -> tuple[str, ...] | None:
    for extra in getattr(hint, "__metadata__", ()):
        if isinstance(extra, FieldInfo) and isinstance(extra.validation_alias, AliasPath):
            return tuple(str(step) for step in extra.validation_alias.path)
    return None


def _inner(hint: Any) -> tuple[type | None, bool]:
    """The value with fields of its own that a type hint leads to, and whether it is a list of them."""
    origin = get_origin(hint)
    if origin is Annotated:
        return _inner(get_args(hint)[0])
    if origin is tuple:
        return _inner(get_args(hint)[0])[0], True
    if origin in (Union, types.UnionType):
        found = (_inner(option) for option in get_args(hint))
        return next((answer for answer in found if answer[0]), (None, False))
    return (hint, False) if is_dataclass(hint) and isinstance(hint, type) else (None, False)


# --- pydantic's errors as defects -----------------------------------------------------------------------


def _type_defect(detail: Any) -> Defect:
    path = tuple(step for step in detail["loc"] if step != "[key]")
    raw = detail["input"]
    return Defect(path, _type_message(detail, raw), "" if detail["type"] == "missing" else value_text(raw))


def _type_message(detail: Any, raw: Any) -> str:
    called = _CALLED.get(type(raw), "null")
    match detail["type"]:
        case "string_type":
            remedy = "; put it in quotes" if isinstance(raw, bool | int | float) else ""
            return f"must be a string, not {called}{remedy}"
        case "bool_type":
            remedy = "; write true or false without quotes" if isinstance(raw, str) else "; write true or false"
            return f"must be a boolean, not {called}{remedy}"
        case "int_type":
            remedy = "; write it without quotes" if isinstance(raw, str) and raw.isdecimal() else ""
            return f"must be a whole number, not {'a fraction' if isinstance(raw, float) else called}{remedy}"
        case "tuple_type":
            return NOT_A_LIST
        case "dict_type" | "mapping_type" | "dataclass_type":
            return NOT_A_MAPPING
        case "value_error":
            return str(detail["ctx"]["error"])
        case "missing":
            return "is required"
        case _:
            return f"cannot be read: {detail['msg']}"


def _pruned(holder: Any, paths: Iterable[Path]) -> Any:
    """The holder without the values at the paths; an entry removes its whole list, so that no index shifts."""
    below: dict[str | int, list[Path]] = {}
    for path in paths:
        below.setdefault(path[0], []).append(path[1:])
    if isinstance(holder, dict):
        return {
            key: _pruned(value, below[key]) if key in below else value
            for key, value in holder.items()
            if not any(_ends_here(rest) for rest in below.get(key, ()))
        }
    if isinstance(holder, list):
        return [_pruned(item, below[index]) if index in below else item for index, item in enumerate(holder)]
    return holder


def _ends_here(rest: Path) -> bool:
    return not rest or (len(rest) == 1 and isinstance(rest[0], int))
