"""One error of one field in Kubernetes' words, and the checks of names and labels."""

import json
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from volsched.kube.names import (
    DNS_LABEL,
    DNS_SUBDOMAIN,
    LABEL_MAX,
    LABEL_RE,
    NAME_PART,
    NAME_PART_RE,
    SUBDOMAIN_MAX,
    SUBDOMAIN_RE,
)

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
    """The value as shown in the message; None where this type of error shows none."""

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
    return FieldError(field, _INVALID, detail, _json_text(value))


def unsupported(field: str, value: Any, supported: Sequence[str]) -> FieldError:
    known = ", ".join(json.dumps(it) for it in supported)
    return FieldError(field, _UNSUPPORTED, f"supported values: {known}", _json_text(value))


def duplicate(field: str, value: Any, detail: str = "") -> FieldError:
    return FieldError(field, _DUPLICATE, detail, _json_text(value))


def required(field: str, detail: str = "") -> FieldError:
    return FieldError(field, _REQUIRED, detail)


def forbidden(field: str, detail: str) -> FieldError:
    return FieldError(field, _FORBIDDEN, detail)


def not_found(field: str, value: Any) -> FieldError:
    return FieldError(field, _NOT_FOUND, "", _json_text(value))


def too_long(field: str, most: int) -> FieldError:
    return FieldError(field, _TOO_LONG, f"may not be more than {most} bytes")


def each(field: str, value: Any, problems: Iterable[str]) -> FieldErrors:
    return [invalid(field, value, problem) for problem in problems]


def _json_text(value: Any) -> str:
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    text = json.dumps(_ordered(value), ensure_ascii=False, separators=(",", ":"), default=str)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _ordered(value: Any) -> Any:
    """Mappings by key, as Go writes them; the reference's own types in the order of their fields."""
    if isinstance(value, dict):
        typed = any(key[:1].isupper() for key in value)
        return {key: _ordered(item) for key, item in (value.items() if typed else sorted(value.items()))}
    return [_ordered(item) for item in value] if isinstance(value, list) else value


def internal_terms(terms: Any) -> Any:
    """Node selector terms as the reference shows them: its internal types have no JSON names."""
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


# The strings that the API accepts as names, label keys and values, and its messages for the others.

_VALUE = f"({NAME_PART})?"
_PERCENT = "[0-9]+%"
_PERCENT_RE = re.compile(_PERCENT)
_VALUE_RE = re.compile(_VALUE)
_PORT_RE, _LETTER_RE = re.compile("[-a-z0-9]+"), re.compile("[a-z]")
_ENDS = "and must start and end with an alphanumeric character"

Format = Callable[[str], list[str]]


def _regex(message: str, pattern: str, *examples: str) -> str:
    shown = " or ".join(f"'{example}', " for example in examples)
    return f"{message} (e.g. {shown}regex used for validation is '{pattern}')"


def _too_long(most: int) -> str:
    return f"must be no more than {most} characters"


def dns_label(text: str) -> list[str]:
    problems = [_too_long(LABEL_MAX)] if len(text) > LABEL_MAX else []
    if LABEL_RE.fullmatch(text):
        return problems
    if SUBDOMAIN_RE.fullmatch(text):
        return [*problems, "must not contain dots"]
    message = f"a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', {_ENDS}"
    return [*problems, _regex(message, DNS_LABEL, "my-name", "123-abc")]


def dns_subdomain(text: str) -> list[str]:
    problems = [_too_long(SUBDOMAIN_MAX)] if len(text) > SUBDOMAIN_MAX else []
    if SUBDOMAIN_RE.fullmatch(text):
        return problems
    message = (
        f"a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', {_ENDS}"
    )
    return [*problems, _regex(message, DNS_SUBDOMAIN, "example.com")]


def qualified_name(text: str) -> list[str]:
    """Label keys, taint keys, gates, resources: an optional DNS subdomain and '/', then a name."""
    message = f"must consist of alphanumeric characters, '-', '_' or '.', {_ENDS}"
    shape = _regex(message, NAME_PART, "MyName", "my.name", "123-abc")
    parts = text.split("/")
    if len(parts) > 2:
        return [
            f"a valid label key {shape} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
        ]
    complaints: list[str] = []
    if len(parts) == 2:
        problems = dns_subdomain(parts[0]) if parts[0] else ["must be non-empty"]
        complaints += [f"prefix part {problem}" for problem in problems]
    name = parts[-1]
    if not name:
        complaints.append("name part must be non-empty")
    elif len(name) > LABEL_MAX:
        complaints.append(f"name part {_too_long(LABEL_MAX)}")
    if not NAME_PART_RE.fullmatch(name):
        complaints.append(f"name part {shape}")
    return complaints


def label_value(text: str) -> list[str]:
    problems = [_too_long(LABEL_MAX)] if len(text) > LABEL_MAX else []
    if _VALUE_RE.fullmatch(text):
        return problems
    message = (
        "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', " + _ENDS
    )
    return [*problems, _regex(message, _VALUE, "MyValue", "my_value", "12345")]


def port_name(text: str) -> list[str]:
    problems = [_too_long(15)] if len(text) > 15 else []
    if not _PORT_RE.fullmatch(text):
        problems.append("must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)")
    if not _LETTER_RE.search(text):
        problems.append("must contain at least one letter (a-z)")
    if "--" in text:
        problems.append("must not contain consecutive hyphens")
    if text.startswith("-") or text.endswith("-"):
        problems.append("must not begin or end with a hyphen")
    return problems


def percentage(text: str) -> list[str]:
    message = "a valid percent string must be a numeric string followed by an ending '%'"
    return [] if _PERCENT_RE.fullmatch(text) else [_regex(message, _PERCENT, "1%", "93%")]


def port_number(number: int) -> list[str]:
    return [] if 1 <= number <= 65535 else ["must be between 1 and 65535, inclusive"]


def without_backsteps(path: str) -> list[str]:
    return ["must not contain '..'"] if ".." in path.split("/") else []
