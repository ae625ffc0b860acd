"""A server, asked through the routes that the registry declares."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from volsched.cli.console import Exit
from volsched.cli.remote.get import own
from volsched.cli.remote.server import JSON, TABLE, Query, RemoteServer, ServerAnswer, ServerRefusedError
from volsched.kube.manifest import metadata
from volsched.questions.get.object_rows import ObjectRow, ObjectsAnswer
from volsched.questions.refusals import UnknownError
from volsched.questions.registry import MOMENT, DatedDocument, Question, Route, loaded
from volsched.runtime.clock import system_clock

if TYPE_CHECKING:
    from pydantic.fields import FieldInfo

    from volsched.questions.parameters import Parameters

WITH_OBJECTS: Query = {"includeObject": "Object"}


@dataclass(frozen=True, slots=True)
class ServerClient:
    server: RemoteServer

    def document(self, declaration: Question, parameters: "Parameters") -> DatedDocument:
        answer = self._answer(declaration, parameters, JSON)
        return DatedDocument(answer.body, int(answer.headers.get(MOMENT, system_clock())))

    def permitted(self, declaration: Question, parameters: "Parameters") -> DatedDocument | None:
        try:
            answer = self._ask(declaration, parameters, JSON)
        except ServerRefusedError as error:
            if error.code in (403, 404):
                return None
            self.server.refuse(error, unprocessable=Exit.USAGE)
        return DatedDocument(answer.body, int(answer.headers.get(MOMENT, system_clock())))

    def objects(self, declaration: Question, parameters: "Parameters") -> ObjectsAnswer:
        return table_answer(self._answer(declaration, parameters, TABLE, WITH_OBJECTS).body)

    def _answer(
        self, declaration: Question, parameters: "Parameters", accept: str, more: Query | None = None
    ) -> ServerAnswer:
        try:
            return self._ask(declaration, parameters, accept, more)
        except ServerRefusedError as error:
            if error.code == 404:
                raise UnknownError(str(error)) from None
            self.server.refuse(error, unprocessable=Exit.USAGE)

    def _ask(
        self, declaration: Question, parameters: "Parameters", accept: str, more: Query | None = None
    ) -> ServerAnswer:
        route = route_for(declaration, parameters)
        path, query, body = request_of(route, parameters)
        return self.server.request(route.method, path, query={**query, **(more or {})}, body=body, accept=accept)


def route_for(declaration: Question, parameters: "Parameters") -> Route:
    """The first route that takes all parameters that are given."""
    given = {name for name, it in type(parameters).model_fields.items() if _is_given(parameters, name, it)}
    for route in declaration.routes:
        named, in_namespace = _path_fields(route), route.within == "namespace"
        fits = route.within == "either" or bool(route.body) or in_namespace == ("namespace" in given)
        sent = loaded(route.body).takes if route.body else frozenset()
        taken = {*named, *parameters.query_names(route.query), *sent, "namespace"}
        if fits and named <= given <= taken:
            return route
    raise LookupError(f"no route of {declaration.name} takes {sorted(given)}")


def _is_given(parameters: "Parameters", name: str, info: "FieldInfo") -> bool:
    return bool(getattr(parameters, name) != info.get_default(call_default_factory=True))


def request_of(route: Route, parameters: "Parameters") -> tuple[str, Query, dict[str, Any] | None]:
    """Path, query and body of the request."""
    segments = [
        str(getattr(parameters, route.names.get(it[1:-1], it[1:-1]))) if it.startswith("{") else it
        for it in route.path.strip("/").split("/")
    ]
    namespace = None if route.within == "cluster" else getattr(parameters, "namespace", None)
    query = {called: getattr(parameters, name) for name, called in parameters.query_names(route.query).items()}
    body = loaded(route.body).of(parameters) if route.body else None
    return own(*segments, namespace=namespace), query, body


def _path_fields(route: Route) -> set[str]:
    names = (it[1:-1] for it in route.path.split("/") if it.startswith("{"))
    return {route.names.get(it, it) for it in names}


def table_answer(table: Mapping[str, Any]) -> ObjectsAnswer:
    """A Table with its objects, as Kubernetes' API and ours send them."""
    head = metadata(table)
    return ObjectsAnswer(
        rows=[_row(it["cells"], it["object"]) for it in table["rows"]],
        position=int(head.get("resourceVersion") or 0),
        after=head.get("continue") or None,
        begins=head.get("logBegins"),
    )


def _row(cells: list[str], manifest: Mapping[str, Any]) -> ObjectRow:
    head = metadata(manifest)
    name, namespace = str(head["name"]), str(head.get("namespace", ""))
    # The key of our own kinds is the id alone, though they have a namespace.
    ours = str(manifest.get("apiVersion", "")).startswith("volsched.io/")
    key = f"{namespace}/{name}" if namespace and not ours else name
    return ObjectRow(key, name, namespace, lambda: cells, lambda: dict(manifest))
