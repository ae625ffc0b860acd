"""Whom a command asks a question: a store that it opens itself, or a server. The answer is the same document."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from pydantic import ValidationError
from pydantic.fields import FieldInfo

from volsched.cli.console import Exit, fail
from volsched.cli.remote.paths import own
from volsched.cli.remote.server_choice import chosen_server
from volsched.cli.store_option import bar, opened
from volsched.log.database import Database
from volsched.log.events.kind_names import UnknownKindError
from volsched.log.reads.tail import read_head
from volsched.questions.audit.answers import QuestionError, TokenError, UnknownError
from volsched.questions.context import QuestionContext
from volsched.questions.history.moments import MomentError
from volsched.questions.parameters import Parameters
from volsched.questions.registry import Question, Route, ask, loaded, model_of, question
from volsched.runtime.clock import system_clock

if TYPE_CHECKING:
    from volsched.cli.remote.server import RemoteServer
    from volsched.kube.kinds import Object
    from volsched.scheduling.rules.profile import Profile


class Client(Protocol):
    def ask(self, asked: Question, parameters: Parameters) -> dict[str, Any]:
        """The answer, or the end of the command with what is wrong."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreClient:
    db: str | None
    over: Sequence["Object"] = ()
    """Objects that are laid over the store in memory; without a store, they are all there is."""
    profile: "Profile | None" = None
    bar: str = ""
    """What long work is called where its progress is shown."""

    def ask(self, asked: Question, parameters: Parameters) -> dict[str, Any]:
        if self.over and self.db is None:
            return self._asked(None, asked, parameters)
        with opened(self.db) as database:
            if not self.bar:
                return self._asked(database, asked, parameters)
            with database.read() as connection:
                last = read_head(connection).position
            with bar(self.bar, last) as progress:
                return self._asked(database, asked, parameters, progress)

    def _asked(
        self,
        database: Database | None,
        asked: Question,
        parameters: Parameters,
        progress: Callable[[int], None] | None = None,
    ) -> dict[str, Any]:
        context = QuestionContext(
            store=database, now=system_clock(), profile=self.profile, over=self.over, progress=progress
        )
        with refusals():
            return ask(asked, context, parameters)


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
    return StoreClient(db=db) if server is None else ServerClient(server)


def asked_of(client: Client, name: str, /, **parameters: Any) -> dict[str, Any]:
    """For verbs that have options of their own, or print an answer in a way of their own."""
    wanted = question(name)
    with refusals():
        checked = model_of(wanted)(**parameters)
    return client.ask(wanted, checked)


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
    given = {name for name, it in type(parameters).model_fields.items() if _is_given(parameters, name, it)}
    for route in asked.routes:
        named, in_namespace = _path_fields(route), route.within == "namespace"
        fits = route.within == "either" or bool(route.body) or in_namespace == ("namespace" in given)
        sent = loaded(route.body).takes if route.body else frozenset()
        taken = {*named, *parameters.query_names(route.query), *sent, "namespace"}
        if fits and named <= given <= taken:
            return route
    raise LookupError(f"no route of {asked.name} takes {sorted(given)}")


def _is_given(parameters: Parameters, name: str, info: FieldInfo) -> bool:
    return bool(getattr(parameters, name) != info.get_default(call_default_factory=True))


def request_of(
    route: Route, parameters: Parameters
) -> tuple[str, Mapping[str, str | int | None], dict[str, Any] | None]:
    """Path, query and body."""
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
