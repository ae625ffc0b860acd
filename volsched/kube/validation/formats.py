"""Which strings the API takes as names, label keys and values, and what it says of those that it does not."""

import re
from collections.abc import Callable

LABEL_MAX = 63
SUBDOMAIN_MAX = 253

_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN = rf"{_LABEL}(\.{_LABEL})*"
_KEY = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_VALUE = f"({_KEY})?"
_PERCENT = "[0-9]+%"
_PERCENT_RE = re.compile(_PERCENT)
_LABEL_RE, _SUBDOMAIN_RE = re.compile(_LABEL), re.compile(_SUBDOMAIN)
_KEY_RE, _VALUE_RE = re.compile(_KEY), re.compile(_VALUE)
_PORT_RE, _LETTER_RE = re.compile("[-a-z0-9]+"), re.compile("[a-z]")
_ENDS = "and must start and end with an alphanumeric character"

Format = Callable[[str], list[str]]


def _regex(message: str, pattern: str, *examples: str) -> str:
    shown = " or ".join(f"'{example}', " for example in examples)
    return f"{message} (e.g. {shown}regex used for validation is '{pattern}')"


def _too_long(most: int) -> str:
    return f"must be no more than {most} characters"


def dns_label(text: str) -> list[str]:
    found = [_too_long(LABEL_MAX)] if len(text) > LABEL_MAX else []
    if _LABEL_RE.fullmatch(text):
        return found
    if _SUBDOMAIN_RE.fullmatch(text):
        return [*found, "must not contain dots"]
    message = f"a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', {_ENDS}"
    return [*found, _regex(message, _LABEL, "my-name", "123-abc")]


def dns_subdomain(text: str) -> list[str]:
    found = [_too_long(SUBDOMAIN_MAX)] if len(text) > SUBDOMAIN_MAX else []
    if _SUBDOMAIN_RE.fullmatch(text):
        return found
    message = (
        f"a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', {_ENDS}"
    )
    return [*found, _regex(message, _SUBDOMAIN, "example.com")]


def qualified_name(text: str) -> list[str]:
    """Label keys, taint keys, gates, resources: an optional DNS subdomain and '/', then a name."""
    message = f"must consist of alphanumeric characters, '-', '_' or '.', {_ENDS}"
    shape = _regex(message, _KEY, "MyName", "my.name", "123-abc")
    parts = text.split("/")
    if len(parts) > 2:
        return [
            f"a valid label key {shape} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
        ]
    found: list[str] = []
    if len(parts) == 2:
        problems = dns_subdomain(parts[0]) if parts[0] else ["must be non-empty"]
        found += [f"prefix part {problem}" for problem in problems]
    name = parts[-1]
    if not name:
        found.append("name part must be non-empty")
    elif len(name) > LABEL_MAX:
        found.append(f"name part {_too_long(LABEL_MAX)}")
    if not _KEY_RE.fullmatch(name):
        found.append(f"name part {shape}")
    return found


def label_value(text: str) -> list[str]:
    found = [_too_long(LABEL_MAX)] if len(text) > LABEL_MAX else []
    if _VALUE_RE.fullmatch(text):
        return found
    message = (
        "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', " + _ENDS
    )
    return [*found, _regex(message, _VALUE, "MyValue", "my_value", "12345")]


def port_name(text: str) -> list[str]:
    found = [_too_long(15)] if len(text) > 15 else []
    if not _PORT_RE.fullmatch(text):
        found.append("must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)")
    if not _LETTER_RE.search(text):
        found.append("must contain at least one letter (a-z)")
    if "--" in text:
        found.append("must not contain consecutive hyphens")
    if text.startswith("-") or text.endswith("-"):
        found.append("must not begin or end with a hyphen")
    return found


def percentage(text: str) -> list[str]:
    message = "a valid percent string must be a numeric string followed by an ending '%'"
    return [] if _PERCENT_RE.fullmatch(text) else [_regex(message, _PERCENT, "1%", "93%")]


def port_number(number: int) -> list[str]:
    return [] if 1 <= number <= 65535 else ["must be between 1 and 65535, inclusive"]


def without_backsteps(path: str) -> list[str]:
    return ["must not contain '..'"] if ".." in path.split("/") else []
