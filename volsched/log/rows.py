"""The rows of a stream in the views, from its state; `row_states` does the reverse.

Typed columns are derived from the manifest, never a second source of truth; `verify` derives them again.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import cache
from operator import itemgetter
from typing import Any

from sqlalchemy import Table

from volsched.kube.meta import BETA_STORAGE_CLASS, SELECTED_NODE, ZONE
from volsched.kube.quantity import INT64_MAX, QuantityError, parse_quantity
from volsched.log import tables
from volsched.log.events.envelope import canonical
from volsched.log.events.fold import AttemptState, BindingState, LegState, ObjectState, State
from volsched.log.row_states import OVERLAY, VIEW_TABLES, Row

Manifest = Mapping[str, Any]

ASSUMED = ("version", *OVERLAY)
"""All columns of an object's row that an assumption changes."""


def dig(manifest: Manifest, *path: str) -> Any:
    """The value at the path, or None; a manifest may lack any part of it."""
    value: Any = manifest
    for step in path:
        if not isinstance(value, dict):
            return None
        value = value.get(step)
    return value


def _text(manifest: Manifest, *path: str) -> str | None:
    value = dig(manifest, *path)
    return value if isinstance(value, str) else None


def _bytes(manifest: Manifest, *path: str) -> int | None:
    value = dig(manifest, *path)
    if not isinstance(value, str | int | float):
        return None
    try:
        return min(parse_quantity(str(value)).value(), INT64_MAX)
    except QuantityError:
        return None


def class_name_of(manifest: Manifest) -> str | None:
    annotated = _text(manifest, "metadata", "annotations", BETA_STORAGE_CLASS)
    return annotated if annotated is not None else _text(manifest, "spec", "storageClassName")


def _deleting(manifest: Manifest) -> bool:
    return dig(manifest, "metadata", "deletionTimestamp") is not None


def _volume(manifest: Manifest) -> Row:
    ref = dig(manifest, "spec", "claimRef")
    claim = f"{_text(ref, 'namespace')}/{_text(ref, 'name')}" if isinstance(ref, dict) else None
    return {
        "phase": _text(manifest, "status", "phase"),
        "class_name": class_name_of(manifest),
        "capacity_bytes": _bytes(manifest, "spec", "capacity", "storage"),
        "claim": claim,
        "claim_uid": _text(manifest, "spec", "claimRef", "uid"),
        "deleting": _deleting(manifest),
    }


def _claim(manifest: Manifest) -> Row:
    return {
        "phase": _text(manifest, "status", "phase"),
        "class_name": class_name_of(manifest),
        "request_bytes": _bytes(manifest, "spec", "resources", "requests", "storage"),
        "volume": _text(manifest, "spec", "volumeName"),
        "selected_node": _text(manifest, "metadata", "annotations", SELECTED_NODE),
        "deleting": _deleting(manifest),
    }


def _pod(manifest: Manifest) -> Row:
    return {
        "phase": _text(manifest, "status", "phase"),
        "node": _text(manifest, "spec", "nodeName"),
        "scheduler": _text(manifest, "spec", "schedulerName"),
        "deleting": _deleting(manifest),
    }


def _node(manifest: Manifest) -> Row:
    return {
        "zone": _text(manifest, "metadata", "labels", ZONE),
        "unschedulable": dig(manifest, "spec", "unschedulable") is True,
    }


def _class(manifest: Manifest) -> Row:
    return {
        "provisioner": _text(manifest, "provisioner"),
        "binding_mode": _text(manifest, "volumeBindingMode"),
    }


def _capacity(manifest: Manifest) -> Row:
    return {
        "class_name": _text(manifest, "storageClassName"),
        "capacity_bytes": _bytes(manifest, "capacity"),
    }


def _attachment(manifest: Manifest) -> Row:
    return {
        "node": _text(manifest, "spec", "nodeName"),
        "attacher": _text(manifest, "spec", "attacher"),
        "volume": _text(manifest, "spec", "source", "persistentVolumeName"),
    }


def _notice(manifest: Manifest) -> Row:
    about = dig(manifest, "involvedObject")
    key = "/".join(filter(None, (_text(about, name) for name in ("kind", "namespace", "name")))) if about else None
    return {"about": key, "type": _text(manifest, "type"), "reason": _text(manifest, "reason")}


def _nothing_more(_: Manifest) -> Row:
    return {}


_TYPED: Mapping[str, Callable[[Manifest], Row]] = {
    "node": _node,
    "class": _class,
    "volume": _volume,
    "claim": _claim,
    "pod": _pod,
    "capacity": _capacity,
    "attachment": _attachment,
    "notice": _notice,
}
VIEWS: Mapping[str, tuple[Table, Callable[[Manifest], Row]]] = {
    noun: (tables.metadata.tables[name], _TYPED.get(noun, _nothing_more)) for noun, name in VIEW_TABLES.items()
}
"""Noun of a stream → the view of its objects, and how the typed columns follow from the manifest."""

FOLDED: tuple[Table, ...] = (
    *(table for table, _ in VIEWS.values()),
    tables.bindings,
    tables.binding_legs,
    tables.attempts,
)
"""The tables that are only a fold of the log."""


def assumed_values(key: str, state: ObjectState) -> tuple[Any, ...]:
    """The values of ASSUMED, and the key."""
    return (state.version, *_overlay(state), key)


def _overlay(state: ObjectState) -> tuple[str | None, str | None, int | None]:
    held = state.assumed
    return (None, None, None) if held is None else (held.binding, canonical(held.patch), held.rv)


@cache
def values_of(table: Table) -> Callable[[Row], tuple[Any, ...]]:
    """A row's values in the order of the table's columns."""
    return itemgetter(*(column.name for column in table.columns))


def rows_of(noun: str, key: str, state: State) -> Iterator[tuple[Table, Row]]:
    """The rows of a stream in the views; none for a deleted object."""
    if isinstance(state, ObjectState):
        if state.manifest is not None:
            yield _object_row(noun, key, state, state.manifest)
    elif isinstance(state, BindingState):
        yield tables.bindings, _binding_row(key, state)
        for index, leg in enumerate(state.legs):
            yield tables.binding_legs, _leg_row(key, index, leg)
    elif isinstance(state, AttemptState):
        yield tables.attempts, _attempt_row(key, state)


def _object_row(noun: str, key: str, state: ObjectState, manifest: Manifest) -> tuple[Table, Row]:
    table, typed = VIEWS[noun]
    row: Row = {
        "key": key,
        "uid": _text(manifest, "metadata", "uid") or "",
        "rv": state.rv,
        "version": state.version,
        "origin_rv": _text(manifest, "metadata", "resourceVersion"),
        "manifest": canonical(manifest),
        **typed(manifest),
    }
    if "assumed_rv" in table.c:
        row.update(zip(OVERLAY, _overlay(state), strict=True))
    return table, row


def _binding_row(key: str, state: BindingState) -> Row:
    plan = state.plan
    return {
        "id": key,
        "version": state.version,
        "pod": plan["pod"],
        "pod_uid": plan["pod_uid"],
        "node": plan["node"],
        "state": state.state,
        "open": state.open,
        "reason": state.reason,
        "on_failure": plan.get("on_failure", "rollback"),
        "decided_at": plan["decided_at"],
        "planned_at": state.planned_at,
        "deadline": plan.get("deadline"),
        "ended_at": state.ended_at,
    }


def _leg_row(key: str, index: int, leg: LegState) -> Row:
    return {
        "binding": key,
        "leg": index,
        "claim": leg.claim,
        "volume": leg.volume,
        "owner": leg.owner,
        "open": leg.open,
        "state": leg.state,
        "reason": leg.reason,
        "claim_uid": leg.claim_uid,
        "dynamic": leg.dynamic,
        "rv": leg.rv,
        "written_rv": leg.written_rv,
        "joins": leg.joins,
        "capacity": leg.capacity,
        "bytes": leg.bytes,
    }


def _attempt_row(key: str, state: AttemptState) -> Row:
    attempt = state.made
    return {
        "id": key,
        "version": state.version,
        "pod": attempt["pod"],
        "pod_uid": attempt["pod_uid"],
        "outcome": attempt["outcome"],
        "node": attempt.get("node"),
        "detail": canonical(attempt["detail"]),
        "decided_at": state.decided_at,
        "decider": attempt["decider"],
        "first_at": state.first_at,
        "last_at": state.last_at,
        "count": state.times,
    }
