"""Questions of the registry as commands, and the client that answers them: a store or a server."""

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


# A command asks a store that it opens itself, or a server. The answer is the same.


class Client(Protocol):
    """An object that does not exist raises UnknownError; any other refusal ends the command."""

    def document(self, declaration: Question, parameters: "Parameters") -> DatedDocument:
        """The answer as JSON, and the time that it describes."""

    def permitted(self, declaration: Question, parameters: "Parameters") -> DatedDocument | None:
        """The document; None if this user may not ask for it."""
        ...

    def objects(self, declaration: Question, parameters: "Parameters") -> "ObjectsAnswer":
        """The answer to a question about objects that have columns."""


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

    `profile`: how a store is decided on; a server has its own. `archives`: files with the oldest events. `bar`:
    the label of the progress bar of long work.
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


def answer_to(client: Client, name: str, /, **parameters: Any) -> dict[str, Any]:
    """The answer as JSON."""
    return client.document(question(name), parameters_for(name, **parameters)).document


def parameters_for(name: str, /, **parameters: Any) -> "Parameters":
    model = model_of(question(name))
    return model(**with_absolute_times(model, parameters))


def objects_of(client: Client, name: str, *, most: int, **parameters: Any) -> Iterator[dict[str, Any]]:
    """Items of a question that is answered in pages, at most so many."""
    page, after = 1_000, parameters.pop("after", None)
    while most > 0:
        answer = answer_to(client, name, limit=min(most, page), after=after, **parameters)
        yield from answer["items"]
        most, after = most - len(answer["items"]), answer["metadata"].get("continue")
        if after is None:
            return


@contextmanager
def refusals() -> Iterator[None]:
    """An object that does not exist ends the command with 3, an invalid question with 2."""
    try:
        yield
    except (UnknownError, UnknownKindError) as error:
        fail(Exit.NOT_FOUND, str(error))
    except (TokenError, MomentError, QuestionError) as error:
        fail(Exit.USAGE, str(error))
    except ValidationError as error:
        fail(Exit.USAGE, *(f"{'.'.join(map(str, it['loc']))}: {it['msg']}" for it in error.errors()))


# Typer reads a command from the signature of a function, so each question gets a function.

PRINTERS = {
    "audit why": "volsched.cli.audit_output:print_why",
    "status": "volsched.cli.status_output:print_status",
}
"""Questions whose answer is not printed as a table or a list of fields."""


Command = Callable[..., None]


def add_question(app: typer.Typer, declaration: Question, name: str) -> None:
    model = model_of(declaration)
    needs_words = any(
        info.is_required() or (spelling.place == "path" and not spelling.flags)
        for info, spelling in model.spellings().values()
    )
    cls = NamedCommand if issubclass(model, (PodParameters, VolumeParameters, NodeParameters)) else TyperCommand
    app.command(name, cls=cls, epilog=declaration.examples, no_args_is_help=needs_words)(command_of(declaration))


class NamedCommand(TyperCommand):
    """`audit why pod shop/db`: the kind may be named even if the question takes only one."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if len(args) > 1 and not args[1].startswith("-") and _is_kind(args[0]):
            args = [" ".join(args[:2]), *args[2:]]
        return super().parse_args(ctx, args)


def _is_kind(word: str) -> bool:
    try:
        return kind_called(word) is not None
    except UnknownKindError:
        return False


def command_of(declaration: Question) -> Command:
    model = model_of(declaration)

    def command(output: FormOption = AnswerForm.table, db: Db = None, **words: Any) -> None:
        parameters = parameters_of(model, words)
        with client_of(db) as client:
            document = client.document(declaration, parameters).document
        if declaration.name in PRINTERS:
            loaded(PRINTERS[declaration.name])(document, output)
        elif declaration.answer == "page":
            fields = parameters.model_dump() | {"subject": parameters.subject}
            empty = declaration.empty.format(**fields)
            print_answer(answer_of(document), declaration.columns_for(parameters), output, nothing=empty)
        else:
            print_item(document, output)

    return declared(declaration)(command)


def declared(declaration: Question, *, without: tuple[str, ...] = ()) -> Callable[[Command], Command]:
    """Decorates a function that has options of its own, and gets those of the question as `**words`. `without`:
    parameters of the question for which it has options of its own."""
    model = model_of(declaration)

    def with_options(command: Command) -> Command:
        own = [it for it in inspect.signature(command).parameters.values() if it.kind is not it.VAR_KEYWORD]
        spelled = {name: it for name, it in model.spellings().items() if it[1].typed and name not in without}
        parameters = [_parameter(model, name, *it) for name, it in spelled.items()]
        parameters += [it.replace(kind=it.KEYWORD_ONLY) for it in own]
        command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        command.__annotations__ = {it.name: it.annotation for it in parameters}
        command.__doc__ = declaration.description
        return command

    return with_options


def parameters_of(model: type[Parameters], words: dict[str, Any]) -> Parameters:
    """The words of the command line as valid parameters; objects may be named in several ways."""
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
    option = typer.Option(*spelling.flags, **texts) if spelling.flags else typer.Argument(**texts)
    annotation: Any = list[str] if spelling.files else info.annotation
    default = inspect.Parameter.empty if info.is_required() else info.default
    if info.default_factory is not None:
        # A list: given never, once or several times.
        annotation, default = annotation | None, None
    if spelling.optional and info.is_required():
        annotation, default = annotation | None, None
    return _keyword(name, Annotated[annotation, option], default)


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
