"""The operations that answer the questions of the registry: one for each path of each route."""

from collections.abc import Iterator, Mapping
from types import NoneType
from typing import Any, Literal, get_args, get_origin

from annotated_types import Ge, Le
from pydantic.fields import FieldInfo

from volsched.api.kubernetes.answers import HttpAnswer
from volsched.api.kubernetes.statuses import ApiError
from volsched.api.questions.operations import Context, Operation, OperationRequest, Param, Serve, Type
from volsched.questions.context import QuestionContext
from volsched.questions.parameters import Body, ObjectParameters, Parameters
from volsched.questions.registry import Question, Route, ask, every_question, loaded, model_of

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
                    query=_params(model_of(question), route),
                    body=loaded(route.body) if route.body else None,
                    needs_body=route.needs_body,
                    turn=question.turn,
                )


def _serve(question: Question, route: Route) -> Serve:
    model = model_of(question)

    def serve(context: Context, asked: OperationRequest) -> HttpAnswer:
        words: dict[str, Any] = {route.names.get(name, name): it for name, it in asked.path.items()}
        words |= {name: asked.query[called] for name, called in model.query_names(route.query).items()}
        words |= asked.body.words() if isinstance(asked.body, Body) else {}
        parameters = model(**words)
        if isinstance(parameters, ObjectParameters):
            _check_namespace(parameters)
        asker = QuestionContext(
            store=context.services.database,
            now=asked.now,
            namespaces=asked.namespaces,
            profile=context.configuration.profile,
        )
        return HttpAnswer(ask(question, asker, parameters))

    return serve


def _check_namespace(parameters: ObjectParameters) -> None:
    named = parameters.named
    if named.is_object and named.namespaced != (parameters.namespace is not None):
        where = "in a namespace: /namespaces/NAMESPACE/…" if named.namespaced else "in no namespace"
        raise ApiError(404, f"{named.plural} are {where}")
    if not named.is_object and parameters.namespace is not None:
        # By its id alone it could be of any namespace: who is let into one must not read of another.
        raise ApiError(404, f"{named.plural} are asked for in no namespace")


def _params(model: type[Parameters], route: Route) -> tuple[Param, ...]:
    fields = model.spellings()
    return tuple(_param(called, fields[name][0]) for name, called in model.query_names(route.query).items())


def _param(name: str, info: FieldInfo) -> Param:
    kinds = [it for it in (get_args(info.annotation) or (info.annotation,)) if it is not NoneType]
    literal = next((it for it in (info.annotation, *kinds) if get_origin(it) is Literal), None)
    bounds = info.metadata
    return Param(
        name=name,
        about=info.description or "",
        type="string" if literal is not None else TYPES.get(kinds[0], "string"),
        default=None if info.is_required() else info.default,
        least=next((int(str(it.ge)) for it in bounds if isinstance(it, Ge)), None),
        most=next((int(str(it.le)) for it in bounds if isinstance(it, Le)), None),
        choices=() if literal is None else get_args(literal),
        required=info.is_required(),
    )
