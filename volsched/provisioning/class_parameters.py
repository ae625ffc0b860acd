"""The class parameters of simulated storage.

| parameter | default | meaning |
|---|---|---|
| `topologyKeys` | `topology.kubernetes.io/zone` | node labels that make a domain, separated by commas |
| `replicas` | 1 | domains that every volume is in |
| `capacityPerDomain` | without end | what the class may use in one domain; it is published |
| `latencySeconds` | 0 | how long a volume takes |
| `failure` | none | `exhausted`, `refused`, `hang`, `raise`, `too-small` or `wrong-domain` |
| `failureRate` | 1 | how often that happens, from 0 to 1; which volumes it hits follows from the seed |
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from volsched.kube.meta import ZONE
from volsched.kube.quantity import QuantityError, parse_quantity
from volsched.runtime.clock import SECOND

EXHAUSTED, REFUSED, HANG, RAISE, TOO_SMALL, WRONG_DOMAIN = FAILURES = (
    "exhausted",
    "refused",
    "hang",
    "raise",
    "too-small",
    "wrong-domain",
)


class ParameterError(ValueError):
    """A class parameter that means nothing; the message says which, and what would."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageParameters:
    keys: tuple[str, ...] = (ZONE,)
    replicas: int = 1
    room: int | None = None
    latency: int = 0
    failure: str = ""
    failure_rate: float = 1.0


def read_parameters(given: Mapping[str, str]) -> StorageParameters:
    """Raises ParameterError where one is unknown, or cannot be read."""
    unknown = sorted(given.keys() - _READERS.keys())
    if unknown:
        raise ParameterError(f"parameters.{unknown[0]} is unknown; there are {', '.join(_READERS)}")
    fields: dict[str, Any] = {}
    for name, text in given.items():
        field_name, read, remedy = _READERS[name]
        try:
            fields[field_name] = read(text)
        except (ValueError, QuantityError):
            raise ParameterError(f'parameters.{name} is "{text}"; {remedy}') from None
    return StorageParameters(**fields)


def _keys(text: str) -> tuple[str, ...]:
    found = tuple(filter(None, (key.strip() for key in text.split(","))))
    return found or _refuse()


def _count(text: str) -> int:
    return int(text) if text.isdecimal() and int(text) > 0 else _refuse()


def _microseconds(text: str) -> int:
    return int(float(text) * SECOND) if float(text) >= 0 else _refuse()


def _failure(text: str) -> str:
    return text if text in FAILURES else _refuse()


def _rate(text: str) -> float:
    return float(text) if 0 <= float(text) <= 1 else _refuse()


def _refuse() -> Any:
    raise ValueError


_READERS: Mapping[str, tuple[str, Callable[[str], Any], str]] = {
    "topologyKeys": ("keys", _keys, "write label keys, separated by commas"),
    "replicas": ("replicas", _count, "write a number from 1 on"),
    "capacityPerDomain": ("room", lambda text: parse_quantity(text).value(), "write a size such as 100Gi"),
    "latencySeconds": ("latency", _microseconds, "write a number of seconds from 0 on"),
    "failure": ("failure", _failure, f"write one of {', '.join(FAILURES)}"),
    "failureRate": ("failure_rate", _rate, "write a number from 0 to 1"),
}
