"""Whom a command asks a question: a store that it opens itself, or a server. The answer is the same document."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from pydantic import ValidationError

from volsched.cli.console import Exit, fail
from volsched.cli.remote.paths import own
from volsched.cli.remote.server_choice import chosen_server
from volsched.cli.store_option import opened
from volsched.log.events.kind_names import UnknownKindError
from volsched.questions.audit.answers import QuestionError, TokenError, UnknownError
from volsched.questions.context import QuestionContext
from volsched.questions.history.moments import MomentError
from volsched.questions.parameters import Parameters
from volsched.questions.registry import Question, Route, ask, loaded, model_of, question
from volsched.runtime.clock import system_clock

if TYPE_CHECKING:
    from volsched.cli.remote.server import RemoteServer


class Client(Protocol):
    def ask(self, asked: Question, parameters: Parameters) -> dict[str, Any]:
        """The answer, or the end of the command with what is wrong."""


@dataclass(frozen=True, slots=True)
class StoreClient:
    db: str | None

    def ask(self, asked: Question, parameters: Parameters) -> dict[str, Any]:
        with opened(self.db) as database, refusals():
            return ask(asked, QuestionContext(database=database, now=system_clock()), parameters)


@dataclass(frozen=True, slots=True)
class ServerClient:
    server: "RemoteServer"

    def ask(self, asked: Question, parameters: Parameters) -> dict[str, Any]:
        route = route_for(asked, parameters)
        path, query, body = request_of(route, parameters)
        answer: dict[str, Any] = self.server.ask(route.method, path, query=query, body=body, unasked=Exit.USAGE)
        return answer


def client_of(db: str | None) -> Client:
    server = chosen_server(db)
    return StoreClient(db) if server is None else ServerClient(server)


def asked_of(db: str | None, name: str, **parameters: Any) -> dict[str, Any]:
    """For verbs that print an answer in a way of their own."""
    wanted = question(name)
    with refusals():
        checked = model_of(wanted)(**parameters)
    return client_of(db).ask(wanted, checked)


@contextmanager
def refusals() -> Iterator[None]:
    """What is not there ends the command with 3, what cannot be asked with 2."""
    try:
        yield
    except (UnknownError, UnknownKindError) as error:
        fail(Exit.NOT_FOUND, str(error))
    except (TokenError, MomentError, QuestionError) as error:
        fail(Exit.USAGE, str(error))
    except ValidationError as error:
        fail(Exit.USAGE, *(f"{'.'.join(map(str, it['loc']))}: {it['msg']}" for it in error.errors()))


def route_for(asked: Question, parameters: Parameters) -> Route:
    """The first route that takes all parameters that are given."""
    given = {name for name in parameters.model_fields_set if getattr(parameters, name) is not None}
    for route in asked.routes:
        spelled = _path_fields(route)
        in_namespace = "namespace" in given
        fits = route.within == "either" or (route.within == "namespace") == in_namespace
        defaults = {it for it in given if getattr(parameters, it) == type(parameters).model_fields[it].default}
        taken = spelled | set(parameters.query_names(route.query)) | body_fields(route) | {"namespace"}
        if fits and spelled <= given and given - defaults <= taken:
            return route
    raise LookupError(f"no route of {asked.name} takes {sorted(given)}")


def request_of(
    route: Route, parameters: Parameters
) -> tuple[str, Mapping[str, str | int | None], dict[str, Any] | None]:
    """Path, query and body."""
    segments = [
        str(getattr(parameters, route.names.get(it[1:-1], it[1:-1]))) if it.startswith("{") else it
        for it in route.path.strip("/").split("/")
    ]
    namespace = getattr(parameters, "namespace", None)
    query = {called: getattr(parameters, name) for name, called in parameters.query_names(route.query).items()}
    sent = {name: getattr(parameters, name) for name in sorted(body_fields(route))}
    body = sent if route.method == "POST" else None
    return own(*segments, namespace=namespace), query, body


def _path_fields(route: Route) -> set[str]:
    names = (it[1:-1] for it in route.path.split("/") if it.startswith("{"))
    return {route.names.get(it, it) for it in names}


def body_fields(route: Route) -> set[str]:
    return set(loaded(route.body).model_fields) if route.body else set()
