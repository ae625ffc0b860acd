"""JSON patches (RFC 6902). A patch is applied as a whole or not at all; nothing that is given is changed."""

from collections.abc import Mapping
from copy import deepcopy
from typing import Any

import orjson

from volsched.kube.limits import DEPTH_MAX, is_deeper

MOST_OPERATIONS = 10_000
MOST_COPIED = 3 * 2**20
"""Bytes that `copy` may add: a few copies of copies would otherwise fill any memory."""
_WITH_VALUE = frozenset({"add", "replace", "test"})
_WITH_FROM = frozenset({"move", "copy"})


class PatchError(ValueError):
    """The patch is none, or does not fit the object."""


class DiffersError(PatchError):
    """The object is not what a `test` of the patch says it is."""


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
                _found(document, path)
                document = _replaced(document, path, deepcopy(operation["value"]))
            case "test":
                if not _same(_found(document, path), operation["value"]):
                    raise DiffersError(f"operation {number}: the value at {operation['path']} is another one")
            case "copy":
                source_value = _found(document, _pointer(operation["from"]))
                # Looked at level by level: what moves and copies have made may be deeper than any recursion goes.
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
        raise PatchError(f"operation {number}: op is none of add, remove, replace, move, copy, test")
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


def _found(document: Any, path: list[str]) -> Any:
    for step in path:
        document = document[_place(document, step)]
    return document


def _place(holder: Any, step: str, *, end: bool = False) -> Any:
    """Where a step leads to in a mapping or a list; `end`: one behind the last is a place too."""
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
    raise PatchError(f'there is nothing at "{step[:80]}": what should hold it is a plain value')


def _added(document: Any, path: list[str], value: Any) -> Any:
    if not path:
        return value
    holder = _found(document, path[:-1])
    place = _place(holder, path[-1], end=True)
    if isinstance(holder, list):
        holder.insert(place, value)
    else:
        holder[place] = value
    return document


def _replaced(document: Any, path: list[str], value: Any) -> Any:
    if not path:
        return value
    holder = _found(document, path[:-1])
    holder[_place(holder, path[-1])] = value
    return document


def _removed(document: Any, path: list[str]) -> tuple[Any, Any]:
    if not path:
        raise PatchError("the object as a whole cannot be removed by a patch; delete it")
    holder = _found(document, path[:-1])
    return document, holder.pop(_place(holder, path[-1]))


def _same(one: Any, other: Any) -> bool:
    """As JSON has it: true is not 1. It ends at a difference, and so costs no more than what the patch holds."""
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(_same(value, other[key]) for key, value in one.items())
    if isinstance(one, list):
        return len(one) == len(other) and all(map(_same, one, other))
    return bool(one == other)
