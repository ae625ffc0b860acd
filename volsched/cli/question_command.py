"""A question of the registry as a command: its arguments and options are those that its parameters declare.

Typer reads a command from the signature of a function, so that one is made for each question.
"""

import inspect
from collections.abc import Callable
from typing import Annotated, Any

import typer
from annotated_types import Ge, Le
from pydantic.fields import FieldInfo

from volsched.cli.audit_output import AnswerForm, FormOption, answer_of, print_answer, print_item
from volsched.cli.kind_names import KindArgument, key_of, kind_of, one_of
from volsched.cli.question_client import client_of, refusals
from volsched.cli.store_option import Db
from volsched.questions.parameters import ObjectParameters, Parameters, PodParameters, Spelling
from volsched.questions.registry import Question, loaded, model_of

PRINTERS = {"audit why": "volsched.cli.why_output:print_why"}
"""Questions whose answer people are shown in another way than as a table or a list of fields."""


def add_question(app: typer.Typer, asked: Question, name: str) -> None:
    model = model_of(asked)
    needs_words = any(
        info.is_required() or (spelling.place == "path" and not spelling.flags)
        for info, spelling in model.spellings().values()
    )
    app.command(name, epilog=asked.examples, no_args_is_help=needs_words)(command_of(asked))


def command_of(asked: Question) -> Callable[..., None]:
    model = model_of(asked)

    def command(output: AnswerForm, db: str | None, **words: Any) -> None:
        parameters = parameters_of(model, words)
        document = client_of(db).ask(asked, parameters)
        if asked.name in PRINTERS:
            loaded(PRINTERS[asked.name])(document, output)
        elif asked.answer == "page":
            fields = parameters.model_dump() | {"subject": parameters.subject}
            empty = asked.empty.format(**fields)
            print_answer(answer_of(document), asked.columns_for(parameters), output, nothing=empty)
        else:
            print_item(document, output)

    parameters = [_parameter(model, name, *it) for name, it in model.spellings().items()]
    parameters += [
        _keyword("output", FormOption, AnswerForm.table),
        _keyword("db", Db, None),
    ]
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {it.name: it.annotation for it in parameters}
    command.__doc__ = help_of(asked)
    return command


def help_of(asked: Question) -> str:
    return f"{asked.help}\n\n{asked.text}" if asked.text else asked.help


def parameters_of(model: type[Parameters], words: dict[str, Any]) -> Parameters:
    """What people wrote, checked; objects that they name in several ways are named in one."""
    if issubclass(model, ObjectParameters):
        named, key = one_of(words["kind"], words["name"], words["namespace"])
        namespace, _, name = key.rpartition("/") if named.is_object and named.namespaced else ("", "", key)
        words |= {"kind": named.plural, "name": name, "namespace": namespace or None}
    elif issubclass(model, PodParameters):
        key = key_of(kind_of("pod"), words["name"], words["namespace"])
        is_bare = words["namespace"] is None and "/" not in words["name"] and words.get("as_of") is None
        if not (model.bare_name and is_bare):
            words["namespace"], _, words["name"] = key.rpartition("/")
    with refusals():
        return model(**words)


def _parameter(model: type[Parameters], name: str, info: FieldInfo, spelling: Spelling) -> inspect.Parameter:
    if name == "kind" and issubclass(model, ObjectParameters):
        return _keyword(name, KindArgument, inspect.Parameter.empty)
    texts: dict[str, Any] = {"metavar": spelling.metavar, "help": info.description}
    for bound in info.metadata:
        texts |= {"min": bound.ge} if isinstance(bound, Ge) else {}
        texts |= {"max": bound.le} if isinstance(bound, Le) else {}
    told = typer.Option(*spelling.flags, **texts) if spelling.flags else typer.Argument(**texts)
    annotation: Any = info.annotation
    default = inspect.Parameter.empty if info.is_required() else info.default
    if spelling.optional and info.is_required():
        annotation, default = annotation | None, None
    return _keyword(name, Annotated[annotation, told], default)


def _keyword(name: str, annotation: Any, default: Any) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=annotation, default=default)
