"""Operations (path, parameters, answer), and those that are generated from the registry's questions."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import NoneType
from typing import Any, Literal, get_args, get_origin

from annotated_types import Ge, Le
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from volsched.api.kubernetes.negotiation import INCLUDES, JSON, PLAIN, AnswerRequest, HttpAnswer
from volsched.api.kubernetes.statuses import ApiError
from volsched.api.questions.object_answers import INCLUDED, list_answer, object_answer
from volsched.api.services import Services
from volsched.questions.context import QuestionContext
from volsched.questions.parameters import Body, ObjectParameters, Spelling
from volsched.questions.registry import (
    API_VERSION,
    MOMENT,
    DatedDocument,
    Question,
    Route,
    Turn,
    document_of,
    every_question,
    handler_answer,
    loaded,
    model_of,
)
from volsched.scheduling.pod_reservations import Reserver
from volsched.scheduling.rules.configuration import Configuration

GROUP, VERSION = API_VERSION.split("/")
BASE = f"/apis/{API_VERSION}"
Type = Literal["string", "integer", "boolean"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Param:
    """A parameter of the query."""

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
    """The dependencies of operations, which run in threads beside the event loop."""

    services: Services
    configuration: Configuration
    reserver: Reserver
    """Used by one thread at a time."""


_INCLUDE = Param(
    name="includeObject",
    about="For a Table: how much of its object each row has.",
    default=INCLUDED,
    choices=INCLUDES,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationRequest:
    """A request, parsed and checked as far as possible without reading the store."""

    path: Mapping[str, str]
    query: Mapping[str, Any]
    actor: str
    now: int
    body: Any = None
    """An instance of the operation's model."""
    wanted: AnswerRequest = PLAIN
    key: str | None = None
    """Idempotency-Key."""
    namespaces: frozenset[str] | None = None
    """The namespaces that the caller may read; None: all."""
    unpacks: bool = False
    """The caller accepts gzip."""

    def text(self, name: str) -> str | None:
        value = self.query.get(name)
        return None if value is None else str(value)

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
    """The body's media type; YAML is accepted for JSON too."""
    code: int = 200
    turn: Turn = "reader"
    writes: bool = False
    action: str = ""
    """Kubernetes' name for it, where kubectl can get the resource."""
    codes: tuple[int, ...] = field(default=())
    """Codes that it may answer with, beside the common ones."""

    @property
    def segments(self) -> tuple[str, ...]:
        return tuple(self.path.strip("/").split("/"))

    @property
    def resource(self) -> str:
        """The name in authorization and metrics."""
        rest = self.segments[2:] if self.segments[0] == "namespaces" else self.segments
        return rest[0]


# The operations that answer the questions of the registry: one for each path of each route.

TYPES: Mapping[Any, Type] = {int: "integer", bool: "boolean"}


def question_operations() -> Iterator[Operation]:
    for question in every_question():
        for route in question.routes:
            for path in route.paths:
                yield Operation(
                    method=route.method,
                    path=path,
                    about=route.help or question.help,
                    serve=_serve(question, route),
                    answer=question.schema,
                    query=_params(question, route),
                    body=loaded(route.body) if route.body else None,
                    needs_body=route.needs_body,
                    turn=question.turn,
                    action=route.action,
                )


def _serve(question: Question, route: Route) -> Serve:
    model = model_of(question)

    def serve(context: Context, request: OperationRequest) -> HttpAnswer:
        words: dict[str, Any] = {route.names.get(name, name): it for name, it in request.path.items()}
        words |= {name: request.query[spelling] for name, spelling in model.query_names(route.query).items()}
        words |= request.body.words() if isinstance(request.body, Body) else {}
        parameters = model(**words)
        if isinstance(parameters, ObjectParameters):
            _check_namespace(parameters)
        context_of_question = QuestionContext(
            store=context.services.database,
            now=request.now,
            namespaces=request.namespaces,
            profile=context.configuration.profile,
            tally=context.services.tally,
        )
        return _answer_in_form(question, handler_answer(question, context_of_question, parameters), request)

    return serve


def _answer_in_form(question: Question, answer: Any, request: OperationRequest) -> HttpAnswer:
    match question.answer:
        case "objects":
            return list_answer(answer, request)
        case "object":
            return object_answer(answer, request)
    headers = {MOMENT: str(answer.moment)} if isinstance(answer, DatedDocument) else {}
    return HttpAnswer(document_of(question, answer), headers=headers)


def _check_namespace(parameters: ObjectParameters) -> None:
    named = parameters.named
    if named.is_object and named.namespaced != (parameters.namespace is not None):
        where = "in a namespace: /namespaces/NAMESPACE/…" if named.namespaced else "in no namespace"
        raise ApiError(404, f"{named.plural} are {where}")
    if not named.is_object and parameters.namespace is not None:
        # An id alone could be of any namespace: a caller of one namespace must not read another.
        raise ApiError(404, f"{named.plural} are requested without a namespace")


def _params(question: Question, route: Route) -> tuple[Param, ...]:
    model = model_of(question)
    fields = model.spellings()
    params = [_param(spelling, *fields[name]) for name, spelling in model.query_names(route.query).items()]
    return (*params, _INCLUDE) if question.answer in ("objects", "object") else tuple(params)


def _param(name: str, info: FieldInfo, spelling: Spelling) -> Param:
    kinds = [it for it in (get_args(info.annotation) or (info.annotation,)) if it is not NoneType]
    literal = next((it for it in (info.annotation, *kinds) if get_origin(it) is Literal), None)
    members = kinds[0] if isinstance(kinds[0], type) and issubclass(kinds[0], StrEnum) else ()
    choices = spelling.choices if literal is None else get_args(literal)
    bounds = info.metadata
    return Param(
        name=name,
        about=info.description or "",
        type="string" if literal is not None else TYPES.get(kinds[0], "string"),
        default=None if info.is_required() else info.default,
        least=next((int(str(it.ge)) for it in bounds if isinstance(it, Ge)), None),
        most=next((int(str(it.le)) for it in bounds if isinstance(it, Le)), None),
        choices=choices or tuple(it.value for it in members),
        required=info.is_required(),
    )
