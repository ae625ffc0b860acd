"""Server-side apply: the object after a manager applies its fields, and the owner of each field.

A manager owns the fields that it applied last. The fields it names are merged into the object; those it named
before and names no more are removed, unless another manager owns them. Changing a field that another manager owns
is a conflict.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import orjson

from volsched.kube.field_sets import (
    EMPTY,
    FieldChanges,
    FieldPath,
    FieldSet,
    FieldStep,
    field_changes,
    field_set,
    from_fields_v1,
    is_within,
    path_text,
    steps,
    to_fields_v1,
)
from volsched.kube.list_types import Topology

APPLY, UPDATE = "Apply", "Update"
STATUS = "status"
BEFORE = "before-first-apply"
KUBECTL = "kubectl"
LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
_UNOWNED = (
    *((f"f:{name}",) for name in ("apiVersion", "kind", "metadata")),
    *(
        ("f:metadata", f"f:{name}")
        for name in (
            "name", "namespace", "creationTimestamp", "selfLink", "uid", "generation", "managedFields",
            "resourceVersion", "deletionTimestamp", "deletionGracePeriodSeconds",
        )
    ),
)  # fmt: skip
_STATUS = (f"f:{STATUS}",)
Manifest = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class FieldOwner:
    manager: str
    operation: str
    api_version: str
    subresource: str = ""
    time: str = ""
    fields: FieldSet = EMPTY

    @property
    def identity(self) -> tuple[str, str, str, str]:
        version = "" if self.operation == APPLY else self.api_version
        return self.manager, self.operation, version, self.subresource

    def __str__(self) -> str:
        text = _json(self.manager)
        if self.subresource:
            text += f" with subresource {_json(self.subresource)}"
        return text if self.operation == APPLY else f"{text} using {self.api_version}"


@dataclass(frozen=True, slots=True)
class FieldConflict:
    owner: FieldOwner
    path: FieldPath

    @property
    def field(self) -> str:
        return path_text(self.path)


class ApplyConflictError(Exception):
    def __init__(self, conflicts: Sequence[FieldConflict]) -> None:
        self.conflicts = conflicts
        super().__init__(_told(conflicts))


def _told(conflicts: Sequence[FieldConflict]) -> str:
    if len(conflicts) == 1:
        (one,) = conflicts
        return f"Apply failed with 1 conflict: conflict with {one.owner}: {one.field}"
    lines: dict[str, list[str]] = {}
    for conflict in conflicts:
        lines.setdefault(f"conflicts with {conflict.owner}:", []).append(f"- {conflict.field}")
    told = "\n".join("\n".join((head, *fields)) for head, fields in sorted(lines.items()))
    return f"Apply failed with {len(conflicts)} conflicts: {told}"


# --- managedFields ----------------------------------------------------------------------------------------


def owners_of(manifest: Manifest) -> list[FieldOwner]:
    entries = manifest.get("metadata", {}).get("managedFields")
    return [_owner(it) for it in entries if isinstance(it, dict)] if isinstance(entries, list) else []


def _owner(entry: Manifest) -> FieldOwner:
    return FieldOwner(
        manager=str(entry.get("manager", "")),
        operation=str(entry.get("operation", "")),
        api_version=str(entry.get("apiVersion", "")),
        subresource=str(entry.get("subresource", "")),
        time=str(entry.get("time", "")),
        fields=from_fields_v1(entry.get("fieldsV1") or {}),
    )


def managed_fields(owners: Iterable[FieldOwner]) -> list[dict[str, Any]]:
    return [
        {
            "manager": owner.manager,
            "operation": owner.operation,
            "apiVersion": owner.api_version,
            **({"time": owner.time} if owner.time else {}),
            "fieldsType": "FieldsV1",
            "fieldsV1": to_fields_v1(owner.fields),
            **({"subresource": owner.subresource} if owner.subresource else {}),
        }
        for owner in sorted(owners, key=lambda it: (it.operation, it.time, it.manager, it.subresource))
        if owner.fields
    ]


def _owned(fields: FieldSet, *, status: bool) -> FieldSet:
    """Without fields that have no owner, and fields that this part of the object cannot change."""
    kept = (it for it in fields if it not in _UNOWNED)
    return frozenset(it for it in kept if (it[:1] == _STATUS) is status)


def after_update(old: Manifest, new: Manifest, type_: str, by: FieldOwner) -> list[FieldOwner]:
    """The owners after `by` has written the object: the fields it changed are its own, and no other manager's."""
    changes = field_changes(_bare(old), _bare(new), type_)
    changed = _owned(changes.changed, status=by.subresource == STATUS)
    owners = owners_of(old)
    if not changed and not changes.removed:
        return owners
    mine = next((it for it in owners if it.identity == by.identity), by)
    others = [_without(it, changes) for it in owners if it.identity != by.identity]
    fields = (mine.fields | changed) - changes.removed
    return [*others, replace(mine, fields=fields, time=by.time if changed else mine.time)]


def _without(owner: FieldOwner, changes: FieldChanges) -> FieldOwner:
    return replace(owner, fields=owner.fields - changes.changed - changes.removed)


# --- apply ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class AppliedFields:
    manifest: dict[str, Any]
    """The resulting object, without managedFields."""
    owners: list[FieldOwner]


def applied_fields(live: Manifest, config: Manifest, type_: str, by: FieldOwner, *, force: bool) -> AppliedFields:
    """Raises ApplyConflictError, and UntypedError where the manifest does not fit its type."""
    named = field_set(config, type_)
    wanted = _owned(named, status=by.subresource == STATUS)
    owners = owners_of(live) or _before_first_apply(live, type_, by)
    last = next((it.fields for it in owners if it.identity == by.identity), EMPTY)
    others = [it for it in owners if it.identity != by.identity]
    bare = _bare(live)
    new = _merged(bare, config, type_, None)
    held = frozenset().union(*(it.fields for it in others), wanted)
    for path in sorted(last - wanted, key=len):
        if not is_within(path, held):
            new = _removed(new, type_, None, path)
    changes = field_changes(bare, new, type_)
    conflicts = [FieldConflict(owner, path) for owner in others for path in sorted(owner.fields & changes.changed)]
    if conflicts and not force:
        allowed = _last_applied(live, type_) if by.manager == KUBECTL else EMPTY
        refused = [it for it in conflicts if it.path not in allowed]
        if refused:
            raise ApplyConflictError(refused)
    time = by.time if wanted != last or changes.changed or changes.removed else _time(owners, by)
    return AppliedFields(new, [*(_without(it, changes) for it in others), replace(by, fields=wanted, time=time)])


def created_fields(config: Manifest, type_: str, by: FieldOwner) -> list[FieldOwner]:
    return [replace(by, fields=_owned(field_set(config, type_), status=False))]


def _time(owners: Iterable[FieldOwner], by: FieldOwner) -> str:
    return next((it.time for it in owners if it.identity == by.identity), by.time)


def _before_first_apply(live: Manifest, type_: str, by: FieldOwner) -> list[FieldOwner]:
    """Writers before the first apply are not recorded: all fields get one collective owner."""
    there = field_changes({}, _bare(live), type_).changed
    if not live:
        return []
    plain = FieldOwner(BEFORE, UPDATE, by.api_version, time=by.time)
    status = replace(plain, subresource=STATUS, fields=_owned(there, status=True))
    return [replace(plain, fields=_owned(there, status=False)), status]


def _last_applied(live: Manifest, type_: str) -> FieldSet:
    """Fields of a client-side `kubectl apply` that are unchanged since: kubectl owns them."""
    text = (live.get("metadata", {}).get("annotations") or {}).get(LAST_APPLIED)
    try:
        before = orjson.loads(text or "null")
        named = field_set(before, type_) if isinstance(before, dict) else EMPTY
    except (ValueError, TypeError):
        return EMPTY
    changes = field_changes(before, _bare(live), type_)
    return named - changes.changed - changes.removed


def _bare(manifest: Manifest) -> dict[str, Any]:
    metadata = manifest.get("metadata")
    if not isinstance(metadata, dict) or "managedFields" not in metadata:
        return dict(manifest)
    return {**manifest, "metadata": {key: value for key, value in metadata.items() if key != "managedFields"}}


def _merged(live: Any, config: Any, type_: str, topology: Topology) -> Any:
    theirs, ours = steps(config, type_, topology), _parts(live, type_, topology)
    if theirs is None or ours is None:
        return config
    known = {part.name: part for part in ours}
    if isinstance(config, dict):
        made = {part.name: _joined(known.get(part.name), part) for part in theirs}
        kept = {part.name: part.value for part in ours}
        return {name.removeprefix("f:"): value for name, value in (kept | made).items()}
    return _interleaved(ours, theirs, lambda part: _joined(known.get(part.name), part))


def _joined(live: FieldStep | None, config: FieldStep) -> Any:
    return config.value if live is None else _merged(live.value, config.value, config.type, config.topology)


def _interleaved(ours: list[FieldStep], theirs: list[FieldStep], join: Callable[[FieldStep], Any]) -> list[Any]:
    """Items in the order of the manifest; items it does not name keep their places between them."""
    named, items, left = {part.name for part in theirs}, list[Any](), list(theirs)
    for part in ours:
        if part.name not in named:
            items.append(part.value)
            continue
        at = next((index for index, it in enumerate(left) if it.name == part.name), None)
        if at is not None:
            items += [join(it) for it in left[: at + 1]]
            left = left[at + 1 :]
    return [*items, *(join(it) for it in left)]


def _parts(value: Any, type_: str, topology: Topology) -> list[FieldStep] | None:
    return None if value is None else steps(value, type_, topology)


def _removed(value: Any, type_: str, topology: Topology, path: FieldPath) -> Any:
    """The value without the path; a mapping or list that becomes empty is removed too."""
    parts, (name, *rest) = _parts(value, type_, topology), path
    part = next((it for it in parts or () if it.name == name), None)
    if parts is None or part is None or _tells_apart(topology, path):
        return value
    below = _removed(part.value, part.type, part.topology, tuple(rest)) if rest else None
    gone = below is None or (below in ({}, []) and part.value not in ({}, []))
    if isinstance(value, dict):
        key = name.removeprefix("f:")
        return {it: held for it, held in {**value, key: below}.items() if it != key or not gone}
    return [below if it is part else it.value for it in parts if it is not part or not gone]


def _tells_apart(topology: Topology, path: FieldPath) -> bool:
    """A key field of an item is removed only with the item."""
    return isinstance(topology, tuple) and len(path) == 2 and path[1].removeprefix("f:") in topology


def _json(value: str) -> str:
    return orjson.dumps(value).decode()
