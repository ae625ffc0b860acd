"""What an operation is: where it is, what it takes, what it answers, and which function serves it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from pydantic import BaseModel

from volsched.api.kubernetes.answers import HttpAnswer
from volsched.api.kubernetes.negotiation import JSON, PLAIN, AnswerRequest
from volsched.api.services import Services
from volsched.questions.registry import API_VERSION, Turn
from volsched.scheduling.pod_reservations import Reserver
from volsched.scheduling.rules.configuration import Configuration

GROUP, VERSION = API_VERSION.split("/")
BASE = f"/apis/{API_VERSION}"
Type = Literal["string", "integer", "boolean"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Param:
    """Of the query."""

    name: str
    about: str
    type: Type = "string"
    default: str | int | bool | None = None
    least: int | None = None
    most: int | None = None
    choices: tuple[str, ...] = ()
    required: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """What operations are served with; they run in threads, beside the event loop."""

    services: Services
    configuration: Configuration
    reserver: Reserver
    """For one thread at a time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationRequest:
    """A request, read and judged as far as that can be done without looking at the store."""

    path: Mapping[str, str]
    query: Mapping[str, Any]
    actor: str
    now: int
    body: Any = None
    """Of the operation's own model."""
    wanted: AnswerRequest = PLAIN
    key: str | None = None
    """Idempotency-Key."""
    namespaces: frozenset[str] | None = None
    """Those of which the caller may know; None: all."""

    def text(self, name: str) -> str | None:
        found = self.query.get(name)
        return None if found is None else str(found)

    @property
    def namespace(self) -> str | None:
        return self.path.get("namespace")


Serve = Callable[[Context, OperationRequest], HttpAnswer]


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    method: str
    path: str
    """Below `/apis/volsched.io/v1`, as `/namespaces/{namespace}/bindings/{name}`."""
    about: str
    serve: Serve
    answer: str
    """The name of the answer's schema."""
    query: tuple[Param, ...] = ()
    body: type[BaseModel] | None = None
    needs_body: bool = False
    media: str = JSON
    """Of the body; YAML is taken for JSON too."""
    code: int = 200
    turn: Turn = "reader"
    writes: bool = False
    action: str = ""
    """As Kubernetes names it, where the resource is one that kubectl can get."""
    codes: tuple[int, ...] = field(default=())
    """Others that it may answer with, beside those that anything may."""

    @property
    def segments(self) -> tuple[str, ...]:
        return tuple(self.path.strip("/").split("/"))

    @property
    def resource(self) -> str:
        """As authorization and metrics name it."""
        rest = self.segments[2:] if self.segments[0] == "namespaces" else self.segments
        return rest[0]
