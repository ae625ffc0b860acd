"""Objects, bindings and attempts as documents and as rows."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from volsched.kube.manifest import is_being_deleted, metadata, status
from volsched.log.events.fold import AttemptState, BindingState, ObjectState, State, versioned
from volsched.log.events.streams import KIND_OF_NOUN
from volsched.runtime.clock import SECOND, parse_rfc3339, rfc3339

OUR_API = "volsched.io/v1"


def as_manifest(noun: str, key: str, state: State) -> dict[str, Any]:
    """The object as the API shows it; bindings and attempts have the same form."""
    if isinstance(state, BindingState):
        return _our_manifest("Binding", key, state.plan["pod"], state.planned_at, binding_document(key, state))
    if isinstance(state, AttemptState):
        return _our_manifest("Attempt", key, state.made["pod"], state.first_at, attempt_document(key, state))
    assert isinstance(state, ObjectState)
    kind = KIND_OF_NOUN[noun]
    return {"apiVersion": kind.api_version, "kind": kind.name, **versioned(state)}


def as_list(items: list[dict[str, Any]]) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "List", "items": items}


def binding_document(id_: str, state: BindingState) -> dict[str, Any]:
    plan = state.plan
    document = {
        "id": id_,
        "pod": plan["pod"],
        "node": plan["node"],
        "state": state.state,
        "open": state.open,
        "reason": state.reason,
        "decidedAt": plan["decided_at"],
        "plannedAt": rfc3339(state.planned_at),
        "deadline": _time(plan.get("deadline")),
        "endedAt": _time(state.ended_at),
        "legs": [
            {
                "claim": leg.claim,
                "volume": leg.volume,
                "state": leg.state,
                "open": leg.open,
                "provisioned": leg.dynamic,
                "reason": leg.reason,
            }
            for leg in state.legs
        ],
    }
    return {name: value for name, value in document.items() if value is not None}


def attempt_document(id_: str, state: AttemptState) -> dict[str, Any]:
    attempt = state.made
    document = {
        "id": id_,
        "pod": attempt["pod"],
        "outcome": attempt["outcome"],
        "node": attempt.get("node"),
        "count": state.times,
        "firstAt": rfc3339(state.first_at),
        "lastAt": rfc3339(state.last_at),
        "decidedAt": state.decided_at,
        "decider": attempt["decider"],
        **attempt["detail"],
    }
    return {name: value for name, value in document.items() if value is not None}


def _our_manifest(kind: str, key: str, pod: str, at: int, status: dict[str, Any]) -> dict[str, Any]:
    metadata = {"name": key, "namespace": pod.rpartition("/")[0], "creationTimestamp": rfc3339(at)}
    return {"apiVersion": OUR_API, "kind": kind, "metadata": metadata, "status": status}


def _time(at: int | None) -> str | None:
    return None if at is None else rfc3339(at)


# One row of a list, and the columns that kinds share.

NONE = "<none>"
UNKNOWN = "<unknown>"
UNSET = "<unset>"
Manifest = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Item:
    """One row of a list."""

    key: str
    state: State
    now: int
    binding: BindingState | None = None
    """The open binding whose assumption lies over the object."""

    @property
    def manifest(self) -> Manifest:
        return (self.state.manifest or {}) if isinstance(self.state, ObjectState) else {}

    @property
    def assumed_by(self) -> str | None:
        """The open binding whose assumption lies over the object."""
        assumption = self.state.assumed if isinstance(self.state, ObjectState) else None
        return None if assumption is None or self.binding is None else assumption.binding

    @property
    def namespace(self) -> str:
        return namespace_of(self.key, self.state)

    @property
    def name(self) -> str:
        return self.key.rpartition("/")[2]


@dataclass(frozen=True, slots=True)
class Column:
    header: str
    value: Callable[[Item], str]
    wide: bool = False
    ages: bool = False
    """Whether the column depends on the time of display."""


def namespace_of(key: str, state: State) -> str:
    """The namespace of an object; for a binding or an attempt, that of its pod."""
    if isinstance(state, BindingState):
        return str(state.plan["pod"]).rpartition("/")[0]
    if isinstance(state, AttemptState):
        return str(state.made["pod"]).rpartition("/")[0]
    return key.rpartition("/")[0]


def age(since: int | None, now: int) -> str:
    """An age rounded as by kubectl: 42s, 5m30s, 3h20m, 2d4h, 45d."""
    if since is None:
        return UNKNOWN
    seconds = max(now - since, 0) // SECOND
    minutes, hours, days = seconds // 60, seconds // 3600, seconds // 86400
    if minutes < 2:
        return f"{seconds}s"
    if minutes < 10:
        return _two(minutes, "m", seconds % 60, "s")
    if hours < 3:
        return f"{minutes}m"
    if hours < 8:
        return _two(hours, "h", minutes % 60, "m")
    if days < 2:
        return f"{hours}h"
    if days < 8:
        return _two(days, "d", hours % 24, "h")
    years = days // 365
    if years < 2:
        return f"{days}d"
    return _two(years, "y", days % 365, "d") if years < 8 else f"{years}y"


def _two(count: int, unit: str, remainder: int, finer: str) -> str:
    return f"{count}{unit}{remainder}{finer}" if remainder else f"{count}{unit}"


def value_text(value: object, *, missing: str = NONE) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return missing if value is None or value == "" else str(value)


def field_at(*path: str, missing: str = NONE) -> Callable[[Item], str]:
    def cell(item: Item) -> str:
        value: Any = item.manifest
        for step in path:
            value = value.get(step) if isinstance(value, Mapping) else None
        return value_text(value, missing=missing)

    return cell


def list_text(values: Iterable[object]) -> str:
    return ",".join(map(str, values)) or NONE


def phase(item: Item) -> str:
    return "Terminating" if is_being_deleted(item.manifest) else str(status(item.manifest).get("phase", "Unknown"))


def _age(item: Item) -> str:
    return age(parse_rfc3339(str(metadata(item.manifest).get("creationTimestamp", ""))), item.now)


def assumed_by(item: Item) -> str:
    return item.assumed_by or NONE


def assumed_node(item: Item) -> str:
    return NONE if item.binding is None else str(item.binding.plan["node"])


NAME = Column("NAME", lambda item: item.name)
AGE = Column("AGE", _age, ages=True)
