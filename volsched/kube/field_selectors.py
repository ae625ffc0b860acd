"""Field selectors as requests and commands write them: `spec.nodeName=n1,status.phase!=Failed`."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_TERM = re.compile(r"(?P<field>[^=!,]+?)(?P<operator>==|=|!=)(?P<value>(?:\\.|[^\\,=])*)(?:,|$)")
_ESCAPE = re.compile(r"\\(.)")


class FieldSelectorError(ValueError):
    """The selector cannot be parsed; the message quotes the part that is wrong."""


@dataclass(frozen=True, slots=True)
class FieldTerm:
    field: str
    equal: bool
    value: str


FieldSelector = tuple[FieldTerm, ...]


def field_terms(text: str) -> FieldSelector:
    """The terms of a selector; all of them must hold."""
    terms: list[FieldTerm] = []
    place = 0
    while place < len(text):
        match = _TERM.match(text, place)
        if match is None:
            part = text[place:].split(",")[0]
            raise FieldSelectorError(f"invalid selector: '{text}'; can't understand '{part}'")
        equal = match["operator"] != "!="
        terms.append(FieldTerm(match["field"].strip(), equal, _ESCAPE.sub(r"\1", match["value"].strip())))
        place = match.end()
    return tuple(terms)


def fields_match(selector: FieldSelector, manifest: Mapping[str, Any]) -> bool:
    return all((_value(manifest, term.field) == term.value) == term.equal for term in selector)


def _value(manifest: Mapping[str, Any], field: str) -> str:
    value: Any = manifest
    # Kubernetes uses this path for a component, not the mapping there.
    for step in ("source.component" if field == "source" else field).split("."):
        value = value.get(step) if isinstance(value, Mapping) else None
    if value is None:
        return "false" if field in ("spec.unschedulable", "spec.hostNetwork") else ""
    return str(value).lower() if isinstance(value, bool) else str(value)
