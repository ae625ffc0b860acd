"""The registry of questions about a store, each declared once: name, parameters, answer, columns, routes.

The command line, the HTTP API and the library are built from these declarations, so that a question has one
implementation and one set of words. A declaration is plain data: the model of its parameters and its handler are
named by "module:name" and loaded when the question is asked, because `volsched --help` reads the declarations
too. docs/how-to/add-a-question.md describes how to add one.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
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
"""The header in which a server gives the time of its answer, in microseconds since 1970."""
NO_PARAMETERS = "volsched.questions.parameters:Parameters"

AnswerForm = Literal["page", "item", "document", "objects", "object"]
"""`page`: a List of items, with a token for the next page. `item`: one flat object. `document`: a deep one.
`objects`: objects with columns, which the API sends as a Table too; `object`: one of them."""
Turn = Literal["reader", "alone", "long", "hypothesis"]
"""How a server runs it. `reader`: together with other reads. `alone`: one at a time. `long`: in a process of its
own, few at a time, for minutes. `hypothesis`: like `long`, but for seconds: its time depends on the parameters."""
Within = Literal["cluster", "namespace", "either"]
"""The namespaces of a question. `cluster`: all, and callers need access to every one. `namespace`: the one in the
path, to which the caller needs access. `either`: the route has both paths."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """A route of the API that answers a question."""

    path: str
    """The path below `/apis/volsched.io/v1`; `{name}` stands for a parameter."""
    within: Within = "cluster"
    method: Literal["GET", "POST"] = "GET"
    help: str = ""
    """The summary in the OpenAPI document, if it is not the question's own."""
    names: Mapping[str, str] = field(default_factory=dict)
    """Name in the path → name of the parameter, if they differ."""
    query: tuple[str, ...] | None = None
    """The parameters in the query; None: all that a query can have."""
    body: str = ""
    """The model of the body as "module:name"; its fields are parameters."""
    needs_body: bool = False
    action: Literal["", "list", "get"] = ""
    """Kubernetes' verb, if kubectl can get the resource."""

    @property
    def paths(self) -> tuple[str, ...]:
        places = {"cluster": ("",), "namespace": (NAMESPACED,), "either": ("", NAMESPACED)}
        return tuple(f"{place}{self.path}" for place in places[self.within])


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    name: str
    """The words of its command, such as `audit rollbacks`."""
    help: str
    """One line: in the list of commands, and as the summary in the OpenAPI document."""
    text: str = ""
    """The text of `--help` after that line."""
    examples: str
    answer: AnswerForm
    handler: str
    """`function(context, parameters)`, which reads the answer from a store."""
    routes: tuple[Route, ...]
    access: str
    """The row of the access table (`api/access/authorization.py`) for the question."""
    parameters: str = NO_PARAMETERS
    """The model of its parameters: PageParameters add pages, WindowParameters a part of the history too."""
    schema: str = "List"
    """The name of the answer's schema in the OpenAPI document."""
    columns: tuple[str, ...] = ()
    """The fields of the items in a table; JSON has all fields."""
    columns_of_kind: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """The columns for objects of one kind (the noun of its streams), if they differ."""
    empty: str = "nothing found"
    """The message for an empty page; `{name}` is a parameter, `{subject}` the question's object."""
    turn: Turn = "reader"
    of_views: bool = False
    """Whether the views alone answer it about the present: a file's own driver reads them, without SQLAlchemy."""
    of_events: bool = False
    """Whether the answer is a page of events of a window: it then names the archives of earlier events."""
    verb: bool = True
    """Whether it is a command too; else only the API and the library answer it."""

    @property
    def description(self) -> str:
        """Its text in `--help`."""
        return f"{self.help}\n\n{self.text}" if self.text else self.help

    def columns_for(self, parameters: "Parameters") -> tuple[str, ...]:
        return self.columns_of_kind.get(parameters.noun, self.columns)


@dataclass(frozen=True, slots=True)
class DatedDocument:
    """A document, and the time that its ages are counted to."""

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
    """The question of that name; raises LookupError."""
    for room in ROOMS:
        # Only the modules up to its own are loaded: a command asks one question.
        for declared in import_module(room).QUESTIONS:
            if declared.name == name:
                match: Question = declared
                return match
    raise LookupError(f'there is no question "{name}"; there are: {", ".join(it.name for it in every_question())}')


@cache
def loaded(reference: str) -> Any:
    """The object that "module:name" names."""
    module, _, name = reference.partition(":")
    return getattr(import_module(module), name)


def model_of(question: Question) -> "type[Parameters]":
    model: type[Parameters] = loaded(question.parameters)
    return model


def ask(question: Question, context: "QuestionContext", parameters: "Parameters") -> dict[str, Any]:
    """The answer as a JSON document, as `-o json` prints it, the API sends it and the library returns it."""
    return document_of(question, handler_answer(question, context, parameters))


def document_of(question: Question, answer: Any) -> dict[str, Any]:
    match question.answer:
        case "page":
            return page_document(answer)
        case "objects":
            answer = answer.document()
        case "object":
            answer = answer.rows[0].manifest()
    document: dict[str, Any] = answer.document if isinstance(answer, DatedDocument) else answer
    return document


def handler_answer(question: Question, context: "QuestionContext", parameters: Any) -> Any:
    """The handler's result: an Answer for a page, an ObjectsAnswer for objects, else the document."""
    answer = loaded(question.handler)(context, parameters)
    return replace(answer, archived=context.archived_part(parameters)) if question.of_events else answer


def page_document(answer: "Answer") -> dict[str, Any]:
    metadata: dict[str, Any] = {} if answer.after is None else {"continue": answer.after}
    metadata |= {"cut": True} if answer.cut else {}
    metadata |= {"archived": answer.archived} if answer.archived else {}
    head = {"apiVersion": API_VERSION, "kind": "List"} | ({"metadata": metadata} if metadata else {})
    return head | {"items": answer.items}
