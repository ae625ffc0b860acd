"""Patches of objects: JSON merge patches (RFC 7386) and JSON patches (RFC 6902)."""

from collections.abc import Mapping
from copy import deepcopy
from typing import Any

import orjson

from volsched.kube.problems import DEPTH_MAX, is_deeper

# JSON merge patches (RFC 7386): an object event stores exactly what changed.
#
# A patch cannot hold a null as a value, since null removes; nulls are stripped where manifests enter.

Json = Mapping[str, Any]


def merged(target: Json, patch: Json) -> dict[str, Any]:
    """The target with the patch applied. Neither is changed; unchanged parts are shared, not copied."""
    result = dict(target)
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        elif isinstance(value, dict):
            below = result.get(key)
            result[key] = merged(below, value) if isinstance(below, dict) else without_nulls(value)
        else:
            result[key] = value
    return result


def without_nulls(patch: Json) -> Json:
    """The patch applied to an empty object: the patch itself unless it holds a null, which is rare."""
    result: dict[str, Any] | None = None
    for key, value in patch.items():
        kept = without_nulls(value) if isinstance(value, dict) else value
        if kept is None or kept is not value:
            result = dict(patch) if result is None else result
            if kept is None:
                del result[key]
            else:
                result[key] = kept
    return patch if result is None else result


def difference(old: Json, new: Json) -> dict[str, Any]:
    """The smallest patch that turns old into new; empty where they are equal."""
    patch: dict[str, Any] = {key: None for key in old if key not in new}
    for key, value in new.items():
        before = old.get(key)
        if before is value and value is not None:
            # Most of a rewritten object is shared with the old one.
            continue
        if isinstance(value, dict) and isinstance(before, dict):
            below = difference(before, value)
            if below:
                patch[key] = below
        elif before != value or key not in old or type(before) is not type(value):
            patch[key] = value
    return patch


# JSON patches (RFC 6902). A patch is applied as a whole or not at all; the arguments are never changed.

MOST_OPERATIONS = 10_000
MOST_COPIED = 3 * 2**20
"""Bytes that `copy` may add: otherwise a few copies of copies would exhaust memory."""
_WITH_VALUE = frozenset({"add", "replace", "test"})
_WITH_FROM = frozenset({"move", "copy"})


class PatchError(ValueError):
    """The patch is malformed, or does not fit the object."""


class DiffersError(PatchError):
    """A `test` of the patch fails on the object."""


def json_patched(target: Mapping[str, Any], operations: Any) -> Any:
    if not isinstance(operations, list):
        raise PatchError("a JSON patch is a list of operations")
    if len(operations) > MOST_OPERATIONS:
        raise PatchError(f"the patch holds {len(operations)} operations; at most {MOST_OPERATIONS} are taken")
    document: Any = deepcopy(dict(target))
    room = MOST_COPIED
    for number, operation in enumerate(operations):
        op, path = _checked(number, operation)
        match op:
            case "add":
                document = _added(document, path, deepcopy(operation["value"]))
            case "remove":
                document, _ = _removed(document, path)
            case "replace":
                _value_at(document, path)
                document = _replaced(document, path, deepcopy(operation["value"]))
            case "test":
                if not _same(_value_at(document, path), operation["value"]):
                    raise DiffersError(f"operation {number}: the value at {operation['path']} differs")
            case "copy":
                source_value = _value_at(document, _pointer(operation["from"]))
                # Level by level: moves and copies may nest deeper than recursion can go.
                _refuse_depth(source_value)
                room -= len(orjson.dumps(source_value))
                if room < 0:
                    raise PatchError(f"the patch copies more than {MOST_COPIED} bytes")
                document = _added(document, path, deepcopy(source_value))
            case "move":
                source = _pointer(operation["from"])
                if path[: len(source)] == source and path != source:
                    raise PatchError(f"operation {number}: a value cannot be moved into itself")
                document, moved = _removed(document, source)
                document = _added(document, path, moved)
    _refuse_depth(document)
    return document


def _refuse_depth(value: Any) -> None:
    if is_deeper(value, DEPTH_MAX):
        raise PatchError(f"the patch would make an object that is nested more than {DEPTH_MAX} levels deep")


def _checked(number: int, operation: Any) -> tuple[str, list[str]]:
    if not isinstance(operation, dict):
        raise PatchError(f"operation {number} is not a mapping")
    op, path = operation.get("op"), operation.get("path")
    if op not in (*_WITH_VALUE, *_WITH_FROM, "remove"):
        raise PatchError(f"operation {number}: op is not one of add, remove, replace, move, copy, test")
    if not isinstance(path, str):
        raise PatchError(f"operation {number}: path is missing")
    if op in _WITH_VALUE and "value" not in operation:
        raise PatchError(f"operation {number}: {op} needs a value")
    if op in _WITH_FROM and not isinstance(operation.get("from"), str):
        raise PatchError(f"operation {number}: {op} needs a from")
    return str(op), _pointer(path)


def _pointer(text: str) -> list[str]:
    if text and not text.startswith("/"):
        raise PatchError(f'"{text[:80]}" is not a path; it begins with a slash')
    return [step.replace("~1", "/").replace("~0", "~") for step in text.split("/")[1:]]


def _value_at(document: Any, path: list[str]) -> Any:
    for step in path:
        document = document[_place(document, step)]
    return document


def _place(holder: Any, step: str, *, end: bool = False) -> Any:
    """The key or index of a step in a mapping or list; `end`: also the index after the last."""
    if isinstance(holder, dict):
        if step not in holder and not end:
            raise PatchError(f'there is nothing at "{step[:80]}"')
        return step
    if isinstance(holder, list):
        if end and step == "-":
            return len(holder)
        plain = step.isascii() and step.isdecimal() and len(step) < 10 and (step == "0" or step[0] != "0")
        if not plain or int(step) > len(holder) - (0 if end else 1):
            raise PatchError(f'the list has no place "{step[:80]}"')
        return int(step)
    raise PatchError(f'there is nothing at "{step[:80]}": its parent is a plain value')


def _added(document: Any, path: list[str], value: Any) -> Any:
    if not path:
        return value
    holder = _value_at(document, path[:-1])
    place = _place(holder, path[-1], end=True)
    if isinstance(holder, list):
        holder.insert(place, value)
    else:
        holder[place] = value
    return document


def _replaced(document: Any, path: list[str], value: Any) -> Any:
    if not path:
        return value
    holder = _value_at(document, path[:-1])
    holder[_place(holder, path[-1])] = value
    return document


def _removed(document: Any, path: list[str]) -> tuple[Any, Any]:
    if not path:
        raise PatchError("the object as a whole cannot be removed by a patch; delete it")
    holder = _value_at(document, path[:-1])
    return document, holder.pop(_place(holder, path[-1]))


def _same(one: Any, other: Any) -> bool:
    """JSON equality: true is not 1. Stops at the first difference, so the cost is bounded by the patch's size."""
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(_same(value, other[key]) for key, value in one.items())
    if isinstance(one, list):
        return len(one) == len(other) and all(map(_same, one, other))
    return bool(one == other)
