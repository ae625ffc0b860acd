"""A question of the registry as a command, and whom it asks: a store, or a server with the same answer."""

import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any, Protocol

import typer
from annotated_types import Ge, Le
from pydantic import ValidationError
from pydantic.fields import FieldInfo
from typer.core import TyperCommand

from volsched.cli import completion
from volsched.cli.app import modules_loaded
from volsched.cli.audit_output import AnswerForm, FormOption, answer_of, print_answer, print_item
from volsched.cli.console import Exit, fail
from volsched.cli.kind_names import KindArgument, bare_name, key_of, kind_of, one_of, words_of
from volsched.cli.moment_option import with_absolute_times
from volsched.cli.remote.server_choice import chosen_server
from volsched.cli.store_option import Db
from volsched.log.events.streams import UnknownKindError, kind_called
from volsched.questions.parameters import (
    NodeParameters,
    ObjectParameters,
    Parameters,
    PodParameters,
    Spelling,
    VolumeParameters,
)
from volsched.questions.refusals import MomentError, QuestionError, TokenError, UnknownError
from volsched.questions.registry import DatedDocument, Question, loaded, model_of, question

if TYPE_CHECKING:
    from volsched.kube.object_values import Object
    from volsched.questions.get.object_rows import ObjectsAnswer
    from volsched.scheduling.rules.profile import Profile


# Whom a command asks a question: a store that it opens itself, or a server. The answer is the same.


class Client(Protocol):
    """What is not there is an UnknownError; whatever else cannot be answered ends the command."""

    def document(self, asked: Question, parameters: "Parameters") -> DatedDocument:
        """The answer as JSON has it, and the time that it is of."""

    def permitted(self, asked: Question, parameters: "Parameters") -> DatedDocument | None:
        """The document; None where this user may not ask for it."""
        ...

    def objects(self, asked: Question, parameters: "Parameters") -> "ObjectsAnswer":
        """Of a question that is answered with things that have columns."""


@contextmanager
def client_of(
    db: str | None,
    *,
    over: "Sequence[Object]" = (),
    profile: "Profile | None" = None,
    archives: Sequence[str] = (),
    bar: str = "",
) -> Iterator[Client]:
    """`over`: objects that are laid over the store in memory; without a store, they are all there is.

    `profile`: how a store is decided on; a server has its own. `archives`: files with its oldest events. `bar`:
    what long work is called where its progress is shown.
    """
    server = chosen_server(db)
    # A command pays for a database, or for HTTP, and not for both.
    if server is not None:
        from volsched.cli.remote.server_client import ServerClient

        with refusals():
            yield ServerClient(server)
        return
    with modules_loaded():
        from volsched.cli.store_client import store_client

    with store_client(db, over=over, profile=profile, archives=archives, bar=bar) as client, refusals():
        yield client


def asked_of(client: Client, name: str, /, **parameters: Any) -> dict[str, Any]:
    """The answer as JSON has it."""
    return client.document(question(name), checked(name, **parameters)).document


def checked(name: str, /, **parameters: Any) -> "Parameters":
    model = model_of(question(name))
    return model(**with_absolute_times(model, parameters))


def objects_of(client: Client, name: str, *, most: int, **parameters: Any) -> Iterator[dict[str, Any]]:
    """At most so many of a question for a list of things, page by page."""
    page, after = 1_000, parameters.pop("after", None)
    while most > 0:
        told = asked_of(client, name, limit=min(most, page), after=after, **parameters)
        yield from told["items"]
        most, after = most - len(told["items"]), told["metadata"].get("continue")
        if after is None:
            return


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


# Typer reads a command from the signature of a function, so that one is made for each question.

PRINTERS = {
    "audit why": "volsched.cli.audit_output:print_why",
    "status": "volsched.cli.status_output:print_status",
}
"""Questions whose answer people are shown in another way than as a table or a list of fields."""


Command = Callable[..., None]


def add_question(app: typer.Typer, asked: Question, name: str) -> None:
    model = model_of(asked)
    needs_words = any(
        info.is_required() or (spelling.place == "path" and not spelling.flags)
        for info, spelling in model.spellings().values()
    )
    cls = NamedCommand if issubclass(model, (PodParameters, VolumeParameters, NodeParameters)) else TyperCommand
    app.command(name, cls=cls, epilog=asked.examples, no_args_is_help=needs_words)(command_of(asked))


class NamedCommand(TyperCommand):
    """`audit why pod shop/db`: where only one kind is asked for, it may be named all the same."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if len(args) > 1 and not args[1].startswith("-") and _is_kind(args[0]):
            args = [" ".join(args[:2]), *args[2:]]
        return super().parse_args(ctx, args)


def _is_kind(word: str) -> bool:
    try:
        return kind_called(word) is not None
    except UnknownKindError:
        return False


def command_of(asked: Question) -> Command:
    model = model_of(asked)

    def command(output: FormOption = AnswerForm.table, db: Db = None, **words: Any) -> None:
        parameters = parameters_of(model, words)
        with client_of(db) as client:
            document = client.document(asked, parameters).document
        if asked.name in PRINTERS:
            loaded(PRINTERS[asked.name])(document, output)
        elif asked.answer == "page":
            fields = parameters.model_dump() | {"subject": parameters.subject}
            empty = asked.empty.format(**fields)
            print_answer(answer_of(document), asked.columns_for(parameters), output, nothing=empty)
        else:
            print_item(document, output)

    return declared(asked)(command)


def declared(asked: Question, *, without: tuple[str, ...] = ()) -> Callable[[Command], Command]:
    """A function with options of its own, which gets those that the question declares as `**words`; `without`
    those that it gets in a way of its own."""
    model = model_of(asked)

    def with_options(command: Command) -> Command:
        own = [it for it in inspect.signature(command).parameters.values() if it.kind is not it.VAR_KEYWORD]
        spelled = {name: it for name, it in model.spellings().items() if it[1].typed and name not in without}
        parameters = [_parameter(model, name, *it) for name, it in spelled.items()]
        parameters += [it.replace(kind=it.KEYWORD_ONLY) for it in own]
        command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        command.__annotations__ = {it.name: it.annotation for it in parameters}
        command.__doc__ = asked.description
        return command

    return with_options


def parameters_of(model: type[Parameters], words: dict[str, Any]) -> Parameters:
    """What people wrote, checked; objects that they name in several ways are named in one."""
    if issubclass(model, ObjectParameters):
        named, key = one_of(words["kind"], words["name"], words["namespace"])
        words |= words_of(named, key)
    elif issubclass(model, PodParameters):
        named = words["name"].removeprefix("attempt/") if model.bare_name else words["name"]
        words["name"] = bare_name(kind_of("pod"), named)
        key = key_of(kind_of("pod"), words["name"], words["namespace"])
        is_bare = words["namespace"] is None and "/" not in words["name"] and words.get("as_of") is None
        if not (model.bare_name and is_bare):
            words["namespace"], _, words["name"] = key.rpartition("/")
    elif issubclass(model, (VolumeParameters, NodeParameters)):
        words["name"] = bare_name(kind_of("pv" if issubclass(model, VolumeParameters) else "node"), words["name"])
    if isinstance(words.get("binding"), str):
        words["binding"] = bare_name(kind_of("binding"), words["binding"])
    if words.get("node") is not None:
        words["node"] = bare_name(kind_of("node"), words["node"])
    with refusals():
        return model(**with_absolute_times(model, words))


def _parameter(model: type[Parameters], name: str, info: FieldInfo, spelling: Spelling) -> inspect.Parameter:
    if name == "kind" and issubclass(model, ObjectParameters):
        return _keyword(name, KindArgument, inspect.Parameter.empty)
    texts: dict[str, Any] = {"metavar": spelling.metavar, "help": info.description}
    for bound in info.metadata:
        texts |= {"min": bound.ge} if isinstance(bound, Ge) else {}
        texts |= {"max": bound.le} if isinstance(bound, Le) else {}
    if (offer := _completion(model, name)) is not None:
        texts["autocompletion"] = offer
    told = typer.Option(*spelling.flags, **texts) if spelling.flags else typer.Argument(**texts)
    annotation: Any = list[str] if spelling.files else info.annotation
    default = inspect.Parameter.empty if info.is_required() else info.default
    if info.default_factory is not None:
        # Of a list: given never, once or several times.
        annotation, default = annotation | None, None
    if spelling.optional and info.is_required():
        annotation, default = annotation | None, None
    return _keyword(name, Annotated[annotation, told], default)


def _completion(model: type[Parameters], name: str) -> Callable[..., list[str]] | None:
    if name in ("namespace", "node"):
        return completion.complete_namespace if name == "namespace" else completion.complete_node
    if name != "name":
        return None
    of_model = {
        ObjectParameters: completion.complete_name,
        PodParameters: completion.complete_pod,
        VolumeParameters: completion.complete_volume,
        NodeParameters: completion.complete_node,
    }
    return next((it for base, it in of_model.items() if issubclass(model, base)), None)


def _keyword(name: str, annotation: Any, default: Any) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=annotation, default=default)
