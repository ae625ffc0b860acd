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
    from volsched.questions.audit.answers import Answer
    from volsched.questions.context import QuestionContext
    from volsched.questions.parameters import Parameters

API_VERSION = "volsched.io/v1"
NAMESPACED = "/namespaces/{namespace}"
MOMENT = "volsched-moment"
"""The header in which a server says of which time its answer is, in microseconds since 1970."""
NO_PARAMETERS = "volsched.questions.parameters:Parameters"

AnswerForm = Literal["page", "item", "document", "objects", "object"]
"""`page`: a List of items, with a token for the next page. `item`: one flat object. `document`: a deep one.
`objects`: things that have columns, which the API gives as a Table as well; `object`: one of them."""
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
    action: Literal["", "list", "get"] = ""
    """As Kubernetes names it, where the resource is one that kubectl can get."""

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
    """The row of the access table (`api/access/authorization.py`) that says who may ask."""
    parameters: str = NO_PARAMETERS
    """The model of its parameters. `Page` gives it pages, `Window` a part of the history as well."""
    schema: str = "List"
    """The name of the answer's schema in the OpenAPI document."""
    columns: tuple[str, ...] = ()
    """The fields of the items that a table shows; JSON has all of them."""
    columns_of_kind: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Others, for objects of a kind (as a noun of streams)."""
    empty: str = "nothing found"
    """The message for an empty page; `{name}` is a parameter, `{subject}` the object asked about."""
    turn: Turn = "reader"
    of_views: bool = False
    """Of the present the views alone tell, and so a file's own driver will do: SQLAlchemy is not loaded for it."""
    verb: bool = True
    """There is a command of its name; else the API and the library alone answer it."""

    @property
    def description(self) -> str:
        """What `--help` says of it."""
        return f"{self.help}\n\n{self.text}" if self.text else self.help

    def columns_for(self, parameters: "Parameters") -> tuple[str, ...]:
        return self.columns_of_kind.get(parameters.noun, self.columns)


@dataclass(frozen=True, slots=True)
class DatedDocument:
    """A document, and the time that ages in it are counted to, which is not part of it."""

    document: dict[str, Any]
    moment: int


ROOMS = (
    "volsched.questions.get.declarations",
    "volsched.questions.audit.declarations",
    "volsched.questions.history.declarations",
    "volsched.questions.explain.declarations",
    "volsched.questions.simulate.declarations",
    "volsched.questions.status.declarations",
    "volsched.questions.claims.declarations",
    "volsched.questions.map.declarations",
)
"""The modules that declare questions, each in its tuple QUESTIONS."""


@cache
def every_question() -> tuple[Question, ...]:
    return tuple(it for room in ROOMS for it in import_module(room).QUESTIONS)


def question(name: str) -> Question:
    """LookupError where there is none of that name."""
    for room in ROOMS:
        # Those before it in the list are loaded with it, and no others: a command asks one question.
        for it in import_module(room).QUESTIONS:
            if it.name == name:
                found: Question = it
                return found
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
    return document_of(asked, answered(asked, context, parameters))


def document_of(asked: Question, answer: Any) -> dict[str, Any]:
    match asked.answer:
        case "page":
            return _page(answer)
        case "objects":
            answer = answer.document()
        case "object":
            answer = answer.rows[0].manifest()
    document: dict[str, Any] = answer.document if isinstance(answer, DatedDocument) else answer
    return document


def answered(asked: Question, context: "QuestionContext", parameters: "Parameters") -> Any:
    """What the handler makes of it: of a page an Answer, of objects an ObjectsAnswer, else the document."""
    return loaded(asked.handler)(context, parameters)


def _page(answer: "Answer") -> dict[str, Any]:
    metadata: dict[str, Any] = {} if answer.after is None else {"continue": answer.after}
    metadata |= {"cut": True} if answer.cut else {}
    head = {"apiVersion": API_VERSION, "kind": "List"} | ({"metadata": metadata} if metadata else {})
    return head | {"items": answer.items}
