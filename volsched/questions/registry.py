"""Every question that can be asked of a store, each declared once: name, parameters, answer, columns, routes.

The command line, the HTTP API and the library are made of these declarations, so that a question has one
implementation and one set of words. A declaration is plain data: the model of its parameters and the function that
answers it are named by "module:name" and loaded when the question is asked, because `volsched --help` reads the
declarations as well. docs/how-to/add-a-question.md tells how to add one.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from volsched.questions.context import QuestionContext
    from volsched.questions.parameters import Parameters

API_VERSION = "volsched.io/v1"
NAMESPACED = "/namespaces/{namespace}"
NO_PARAMETERS = "volsched.questions.parameters:Parameters"

AnswerForm = Literal["page", "item", "document"]
"""`page`: a List of items, with a token for the next page. `item`: one flat object. `document`: a deep one."""
Turn = Literal["reader", "alone", "long", "hypothesis"]
"""What a server grants it. `reader`: with other reads. `alone`: one at a time. `long`: in a process of its own,
few at a time, for minutes. `hypothesis`: the same, for seconds: its time depends on what is asked."""
Within = Literal["cluster", "namespace", "either"]
"""How it is cut to namespaces. `cluster`: callers must be let into every namespace. `namespace`: it is asked in
one, into which the caller must be let. `either`: there are both paths."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """Where the API answers a question."""

    path: str
    """Below `/apis/volsched.io/v1`; `{name}` stands for a parameter."""
    within: Within = "cluster"
    method: Literal["GET", "POST"] = "GET"
    help: str = ""
    """In the OpenAPI document, where it is not the question's own line."""
    names: Mapping[str, str] = field(default_factory=dict)
    """What stands in the path → the parameter, where the two are not called the same."""
    query: tuple[str, ...] | None = None
    """The parameters of the query; None: all that can be there."""
    body: str = ""
    """The model of the body as "module:name"; its fields are parameters."""
    needs_body: bool = False

    @property
    def paths(self) -> tuple[str, ...]:
        places = {"cluster": ("",), "namespace": (NAMESPACED,), "either": ("", NAMESPACED)}
        return tuple(f"{place}{self.path}" for place in places[self.within])


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    name: str
    """The words that the command line calls it by, as `audit rollbacks`."""
    help: str
    """One line: in the list of commands, and as the summary in the OpenAPI document."""
    text: str = ""
    """What else `--help` says."""
    examples: str
    answer: AnswerForm
    handler: str
    """`function(context, parameters)`: what is answered, and how it is asked of a store."""
    routes: tuple[Route, ...]
    access: str
    """The row of the access table (`api/access/allow_table.py`) that says who may ask."""
    parameters: str = NO_PARAMETERS
    """The model of its parameters. `Page` gives it pages, `Window` a part of the history as well."""
    schema: str = "List"
    """The name of the answer's schema in the OpenAPI document."""
    columns: tuple[str, ...] = ()
    """The fields of the items that a table shows; JSON has all of them."""
    columns_of_kind: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Others, for objects of a kind (as a noun of streams)."""
    empty: str = "nothing found"
    """What people are told of an empty page; `{name}` is a parameter, `{subject}` the object asked about."""
    turn: Turn = "reader"

    def columns_for(self, parameters: "Parameters") -> tuple[str, ...]:
        return self.columns_of_kind.get(parameters.noun, self.columns)


ROOMS = (
    "volsched.questions.audit.declarations",
    "volsched.questions.history.declarations",
    "volsched.questions.explain.declarations",
    "volsched.questions.simulate.declarations",
)
"""The modules that declare questions, each in its tuple QUESTIONS."""


@cache
def every_question() -> tuple[Question, ...]:
    return tuple(it for room in ROOMS for it in import_module(room).QUESTIONS)


def question(name: str) -> Question:
    """LookupError where there is none of that name."""
    for it in every_question():
        if it.name == name:
            return it
    raise LookupError(f'there is no question "{name}"; there are: {", ".join(it.name for it in every_question())}')


@cache
def loaded(reference: str) -> Any:
    """What "module:name" refers to."""
    module, _, name = reference.partition(":")
    return getattr(import_module(module), name)


def model_of(asked: Question) -> "type[Parameters]":
    model: type[Parameters] = loaded(asked.parameters)
    return model


def ask(asked: Question, context: "QuestionContext", parameters: "Parameters") -> dict[str, Any]:
    """The answer as a JSON document; what `-o json` prints, the API sends and the library returns."""
    answer = loaded(asked.handler)(context, parameters)
    if asked.answer != "page":
        document: dict[str, Any] = answer
        return document
    metadata: dict[str, Any] = {} if answer.after is None else {"continue": answer.after}
    metadata |= {"cut": True} if answer.cut else {}
    head = {"apiVersion": API_VERSION, "kind": "List"} | ({"metadata": metadata} if metadata else {})
    return head | {"items": answer.items}
