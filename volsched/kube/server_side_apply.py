"""Server-side apply: the object after a manager applies its fields, and the owner of each field.

A manager owns the fields that it applied last. The fields it names are merged into the object; those it named
before and no longer names are removed, unless another manager owns them. Changing a field of another manager is a
conflict.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
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
    holders,
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
        super().__init__(_conflict_message(conflicts))


def _conflict_message(conflicts: Sequence[FieldConflict]) -> str:
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
    """The fields without those that have no owner or that this part of the object cannot change."""
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
    held = wanted.union(*(it.fields for it in others))
    new = _without_fields(new, type_, None, _tree(last - held - holders(held)))
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
    places = {part.name: place for place, part in enumerate(theirs)}
    items, done = list[Any](), 0
    for part in ours:
        place = places.get(part.name)
        if place is None:
            items.append(part.value)
        else:
            items += [join(it) for it in theirs[done : place + 1]]
            done = max(done, place + 1)
    return [*items, *(join(it) for it in theirs[done:])]


def _parts(value: Any, type_: str, topology: Topology) -> list[FieldStep] | None:
    return None if value is None else steps(value, type_, topology)


@dataclass(slots=True)
class _Branch:
    """The paths that begin with one step."""

    ends: bool = False
    """Whether the step itself is one of the paths."""
    below: dict[str, "_Branch"] = field(default_factory=dict)


def _tree(paths: Iterable[FieldPath]) -> dict[str, _Branch]:
    root = _Branch()
    for path in paths:
        branch = root
        for step in path:
            branch = branch.below.setdefault(step, _Branch())
        branch.ends = True
    return root.below


def _without_fields(value: Any, type_: str, topology: Topology, branches: Mapping[str, _Branch]) -> Any:
    """The value without the paths; a mapping or list that becomes empty is removed too."""
    parts = _parts(value, type_, topology) if branches else None
    if parts is None:
        return value
    waiting, kept = dict(branches), list[tuple[FieldStep, Any]]()
    for part in parts:
        # Of equal items, only the first is removed.
        branch = waiting.pop(part.name, None)
        if branch is None:
            kept.append((part, part.value))
        elif not branch.ends:
            below = _without_fields(part.value, part.type, part.topology, _changeable(topology, branch.below))
            if below not in ({}, []) or part.value in ({}, []):
                kept.append((part, below))
    if isinstance(value, dict):
        return {part.name.removeprefix("f:"): below for part, below in kept}
    return [below for _, below in kept]


def _changeable(topology: Topology, below: Mapping[str, _Branch]) -> Mapping[str, _Branch]:
    """A key field of an item is removed only with the item."""
    if not isinstance(topology, tuple):
        return below
    keys = {f"f:{key}" for key in topology}
    return {name: _Branch(False, it.below) if name in keys else it for name, it in below.items()}


def _json(value: str) -> str:
    return orjson.dumps(value).decode()
