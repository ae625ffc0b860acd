"""Sets of fields, as `managedFields` lists them: the fields of an object that a manager owns, or has changed.

A path is a tuple of steps in the spelling of fieldsV1: `f:spec`, `k:{"name":"main"}`, `v:"x"`. Which steps an
object has depends on its type: a list may be compared item by item or as one value (`list_types`).
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import orjson

from volsched.kube.known_fields import fields_of, item_type
from volsched.kube.list_types import ATOMIC, ATOMIC_TYPES, KEY_DEFAULTS, SET, Topology, topology_of

FieldPath = tuple[str, ...]
FieldSet = frozenset[FieldPath]
EMPTY: FieldSet = frozenset()
_ROOTED = frozenset({"metadata", "spec", "status", "template", "updateStrategy", "containers"})
"""Fields that every object of their kind has: their presence has no owner."""


class UntypedError(Exception):
    """The object does not fit its type; the message is that of Kubernetes' typed patch."""


class FieldStep(NamedTuple):
    """One part of a structured value, and its step in a path."""

    name: str
    value: Any
    type: str
    topology: Topology
    listed: bool
    """An item of a list, or an entry of a mapping with any keys: its presence is owned separately."""


def steps(value: Any, type_: str, topology: Topology) -> list[FieldStep] | None:
    """The parts of a value; None where it is compared as one value. Raises UntypedError."""
    if isinstance(value, dict) and topology != ATOMIC and type_ not in ATOMIC_TYPES:
        return list(_fields(value, type_))
    if isinstance(value, list) and topology == SET:
        return [FieldStep(f"v:{_json(item)}", item, item_type(type_), None, True) for item in value]
    if isinstance(value, list) and isinstance(topology, tuple):
        inner = item_type(type_)
        return [FieldStep(_key(item, topology), item, inner, None, True) for item in value]
    return None


def _fields(value: Mapping[str, Any], type_: str) -> Iterator[FieldStep]:
    if type_.startswith("{"):
        for name, item in value.items():
            yield FieldStep(f"f:{name}", item, item_type(type_), None, True)
        return
    known = fields_of(type_)
    for name, item in value.items():
        if known is not None and name not in known:
            raise UntypedError(f".{name}: field not declared in schema")
        yield FieldStep(f"f:{name}", item, (known or {}).get(name, "any"), topology_of(type_, name), False)


def _key(item: Any, keys: tuple[str, ...]) -> str:
    if not isinstance(item, dict):
        raise UntypedError(": associative list with keys may not have non-map elements")
    given = {key: item[key] if key in item else KEY_DEFAULTS.get(key) for key in keys}
    return f"k:{_json({key: value for key, value in given.items() if value is not None})}"


def field_set(value: Any, type_: str, topology: Topology = None) -> FieldSet:
    """The fields that a manifest names; raises UntypedError."""
    return frozenset(_named(value, type_, topology, ()))


def _named(value: Any, type_: str, topology: Topology, at: FieldPath) -> Iterator[FieldPath]:
    parts = _steps_at(value, type_, topology, at)
    if parts is None:
        yield at
        return
    _refuse_twins(parts, at)
    for part in parts:
        place = (*at, part.name)
        yield from _named(part.value, part.type, part.topology, place)
        if part.listed or part.value in ({}, None):
            yield place


def _steps_at(value: Any, type_: str, topology: Topology, at: FieldPath) -> list[FieldStep] | None:
    try:
        return steps(value, type_, topology)
    except UntypedError as error:
        raise UntypedError(f"{path_text(at)}{error}") from None


def _refuse_twins(parts: Iterable[FieldStep], at: FieldPath) -> None:
    known: set[str] = set()
    for part in parts:
        if part.name in known:
            raise UntypedError(f"{path_text(at)}: duplicate entries for key {_step_text(part.name)}")
        known.add(part.name)


class FieldChanges(NamedTuple):
    changed: FieldSet
    """Fields that were added or have another value."""
    removed: FieldSet


def field_changes(old: Any, new: Any, type_: str) -> FieldChanges:
    changed: set[FieldPath] = set()
    removed: set[FieldPath] = set()
    _compare(old, new, type_, None, (), changed, removed)
    return FieldChanges(frozenset(changed), frozenset(removed))


def _compare(
    old: Any, new: Any, type_: str, topology: Topology, at: FieldPath, changed: set[FieldPath],
    removed: set[FieldPath],
) -> None:  # fmt: skip
    if old is new:
        return
    before, after = _lenient(old, type_, topology), _lenient(new, type_, topology)
    if before is None or after is None:
        if old != new:
            changed.add(at)
        return
    theirs = {part.name: part for part in after}
    known = {part.name: part for part in before}
    for name, part in theirs.items():
        place = (*at, name)
        if name in known:
            _compare(known[name].value, part.value, part.type, part.topology, place, changed, removed)
        else:
            changed.update(_all(part, place))
    for name, part in known.items():
        if name not in theirs:
            removed.update(_all(part, (*at, name)))


def _all(part: FieldStep, at: FieldPath) -> Iterator[FieldPath]:
    if at[-1].removeprefix("f:") not in _ROOTED:
        yield at
    below = _lenient(part.value, part.type, part.topology)
    for inner in below or ():
        yield from _all(inner, (*at, inner.name))


def _lenient(value: Any, type_: str, topology: Topology) -> list[FieldStep] | None:
    """`steps` for stored objects, in which a newer program may have written unknown fields."""
    try:
        return steps(value, type_, topology)
    except UntypedError:
        return None


def holders(fields: Iterable[FieldPath]) -> FieldSet:
    """Every path that is a prefix of one of the fields."""
    return frozenset(path[:depth] for path in fields for depth in range(1, len(path)))


def to_fields_v1(fields: FieldSet) -> dict[str, Any]:
    tree: dict[str, Any] = {}
    for path in sorted(fields):
        level = tree
        for step in path:
            level = level.setdefault(step, {})
    for path in fields & holders(fields):
        level = tree
        for step in path:
            level = level[step]
        level["."] = {}
    return tree


def from_fields_v1(tree: Mapping[str, Any], at: FieldPath = ()) -> FieldSet:
    paths: set[FieldPath] = set()
    for step, below in tree.items():
        if step == ".":
            paths.add(at)
        elif below:
            paths |= from_fields_v1(below, (*at, step))
        else:
            paths.add((*at, step))
    return frozenset(paths)


def path_text(path: FieldPath) -> str:
    """The path as Kubernetes shows it: `.spec.containers[name="main"].image`."""
    return "".join(map(_step_text, path))


def _step_text(step: str) -> str:
    sort, _, rest = step.partition(":")
    if sort == "f":
        return f".{rest}"
    if sort == "v":
        return f"[={rest}]"
    return "[" + ",".join(f"{name}={_json(value)}" for name, value in orjson.loads(rest).items()) + "]"


def _json(value: Any) -> str:
    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS).decode()
