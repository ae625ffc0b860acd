"""One thing wrong with one field, as Kubernetes words it: `spec.replicas: Invalid value: -1: must be …`."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

IMMUTABLE = "field is immutable"
NOT_NEGATIVE = "must be greater than or equal to 0"
NOT_POSITIVE = "must be greater than zero"

_INVALID = "Invalid value"
_UNSUPPORTED = "Unsupported value"
_DUPLICATE = "Duplicate value"
_REQUIRED = "Required value"
_FORBIDDEN = "Forbidden"
_NOT_FOUND = "Not found"
_TOO_LONG = "Too long"
_CAUSES = {
    _INVALID: "FieldValueInvalid",
    _UNSUPPORTED: "FieldValueNotSupported",
    _DUPLICATE: "FieldValueDuplicate",
    _REQUIRED: "FieldValueRequired",
    _FORBIDDEN: "FieldValueForbidden",
    _NOT_FOUND: "FieldValueNotFound",
    _TOO_LONG: "FieldValueTooLong",
}


@dataclass(frozen=True, slots=True)
class FieldError:
    field: str
    type: str
    detail: str = ""
    value: str | None = None
    """As it is shown, or None where this type of error shows none."""

    @property
    def cause(self) -> str:
        return _CAUSES[self.type]

    @property
    def body(self) -> str:
        parts = (self.type, self.value, self.detail or None)
        return ": ".join(part for part in parts if part is not None)

    def __str__(self) -> str:
        return f"{self.field}: {self.body}"


FieldErrors = list[FieldError]


def invalid(field: str, value: Any, detail: str) -> FieldError:
    return FieldError(field, _INVALID, detail, _shown(value))


def unsupported(field: str, value: Any, supported: Sequence[str]) -> FieldError:
    known = ", ".join(json.dumps(it) for it in supported)
    return FieldError(field, _UNSUPPORTED, f"supported values: {known}", _shown(value))


def duplicate(field: str, value: Any, detail: str = "") -> FieldError:
    return FieldError(field, _DUPLICATE, detail, _shown(value))


def required(field: str, detail: str = "") -> FieldError:
    return FieldError(field, _REQUIRED, detail)


def forbidden(field: str, detail: str) -> FieldError:
    return FieldError(field, _FORBIDDEN, detail)


def not_found(field: str, value: Any) -> FieldError:
    return FieldError(field, _NOT_FOUND, "", _shown(value))


def too_long(field: str, most: int) -> FieldError:
    return FieldError(field, _TOO_LONG, f"may not be more than {most} bytes")


def each(field: str, value: Any, problems: Iterable[str]) -> FieldErrors:
    return [invalid(field, value, problem) for problem in problems]


def _shown(value: Any) -> str:
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    text = json.dumps(_ordered(value), ensure_ascii=False, separators=(",", ":"), default=str)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _ordered(value: Any) -> Any:
    """Mappings by key, as Go writes them; but those of the reference's own types, in the order of its fields."""
    if isinstance(value, dict):
        typed = any(key[:1].isupper() for key in value)
        return {key: _ordered(item) for key, item in (value.items() if typed else sorted(value.items()))}
    return [_ordered(item) for item in value] if isinstance(value, list) else value


def internal_terms(terms: Any) -> Any:
    """Node selector terms as the reference shows them: its own types have no names for JSON."""
    if not terms:
        return None
    return [
        {
            name[:1].upper() + name[1:]: [_internal_requirement(it) for it in term[name]]
            if term.get(name)
            else None
            for name in ("matchExpressions", "matchFields")
        }
        for term in terms
    ]


def _internal_requirement(requirement: Any) -> dict[str, Any]:
    values = requirement.get("values") or None
    return {"Key": requirement.get("key", ""), "Operator": requirement.get("operator", ""), "Values": values}
