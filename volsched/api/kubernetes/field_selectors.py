"""Field selectors: `spec.nodeName=n1,status.phase!=Failed`. Only the fields that Kubernetes can select by."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from volsched.api.kubernetes.resources import Resource
from volsched.api.kubernetes.statuses import ApiError

_NAMES = ("metadata.name", "metadata.namespace")
_EVENT = ("kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath")
SELECTABLE: Mapping[str, tuple[str, ...]] = {
    "Pod": (
        "spec.nodeName",
        "spec.restartPolicy",
        "spec.schedulerName",
        "spec.serviceAccountName",
        "spec.hostNetwork",
        "status.phase",
        "status.podIP",
        "status.nominatedNodeName",
    ),
    "Node": ("spec.unschedulable",),
    "Namespace": ("status.phase",),
    "Event": (
        *(f"involvedObject.{field}" for field in _EVENT),
        "reason",
        "reportingComponent",
        "source",
        "type",
    ),
}
_TERM = re.compile(r"(?P<field>[^=!,]+?)(?P<operator>==|=|!=)(?P<value>(?:\\.|[^\\,=])*)(?:,|$)")
_ESCAPE = re.compile(r"\\(.)")


@dataclass(frozen=True, slots=True)
class FieldTerm:
    field: str
    equal: bool
    value: str


FieldSelector = tuple[FieldTerm, ...]


def parse_field_selector(text: str, resource: Resource) -> FieldSelector:
    """All terms must hold; ApiError 400 where it cannot be read, or names a field that cannot be selected by."""
    terms: list[FieldTerm] = []
    place = 0
    while place < len(text):
        found = _TERM.match(text, place)
        if found is None:
            part = text[place:].split(",")[0]
            raise ApiError(400, f"invalid selector: '{text}'; can't understand '{part}'")
        field = found["field"].strip()
        if field not in _NAMES and field not in SELECTABLE.get(resource.kind.name, ()):
            raise _unknown_field(field, resource)
        terms.append(FieldTerm(field, found["operator"] != "!=", _ESCAPE.sub(r"\1", found["value"].strip())))
        place = found.end()
    return tuple(terms)


def _unknown_field(field: str, resource: Resource) -> ApiError:
    """Kinds with fields of their own to select by have another sentence than those without."""
    if resource.kind.name in SELECTABLE:
        return ApiError(400, f"field label not supported: {field}")
    only = ", ".join(f'"{name}"' for name in _NAMES)
    return ApiError(400, f'"{field}" is not a known field selector: only {only}')


def fields_match(selector: FieldSelector, manifest: Mapping[str, Any]) -> bool:
    return all((_value(manifest, term.field) == term.value) == term.equal for term in selector)


def selected_name(selector: FieldSelector) -> str | None:
    """The one name that can match, if the selector says so: kubectl watches single objects in this way."""
    return next((it.value for it in selector if it.field == "metadata.name" and it.equal), None)


def _value(manifest: Mapping[str, Any], field: str) -> str:
    value: Any = manifest
    # Kubernetes names a component by this, not by the mapping that stands there.
    for step in ("source.component" if field == "source" else field).split("."):
        value = value.get(step) if isinstance(value, Mapping) else None
    if value is None:
        return "false" if field in ("spec.unschedulable", "spec.hostNetwork") else ""
    return str(value).lower() if isinstance(value, bool) else str(value)
