"""Every question that can be asked of a store, each declared once: name, parameters, answer, columns, routes.

The command line, the HTTP API and the library are built from these declarations, so that a question has one
implementation and one set of words. A declaration is plain data: the model of its parameters and the function that
answers it are named by "module:name" and loaded when the question is asked, because `volsched --help` reads the
declarations as well. docs/how-to/add-a-question.md says how to add one.
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
`objects`: things that have columns, which the API gives as a Table as well; `object`: one of them."""
Turn = Literal["reader", "alone", "long", "hypothesis"]
"""How a server runs it. `reader`: together with other reads. `alone`: one at a time. `long`: in a process of its
own, few at a time, for minutes. `hypothesis`: like `long`, but for seconds: its time depends on what is asked."""
Within = Literal["cluster", "namespace", "either"]
"""The namespaces it is about. `cluster`: all, and callers need access to every one. `namespace`: the one in the
path, to which the caller needs access. `either`: the route has both paths."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """Where the API answers a question."""

    path: str
    """Below `/apis/volsched.io/v1`; `{name}` stands for a parameter."""
    within: Within = "cluster"
    method: Literal["GET", "POST"] = "GET"
    help: str = ""
    """The summary in the OpenAPI document, where it is not the question's own."""
    names: Mapping[str, str] = field(default_factory=dict)
    """Name in the path → name of the parameter, where the two differ."""
    query: tuple[str, ...] | None = None
    """The parameters that the query takes; None: all that a query can take."""
    body: str = ""
    """The model of the body as "module:name"; its fields are parameters."""
    needs_body: bool = False
    action: Literal["", "list", "get"] = ""
    """Kubernetes' name for it, where kubectl can get the resource."""

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
    """What `--help` says after that line."""
    examples: str
    answer: AnswerForm
    handler: str
    """`function(context, parameters)`, which reads the answer from a store."""
    routes: tuple[Route, ...]
    access: str
    """The row of the access table (`api/access/authorization.py`) that says who may ask."""
    parameters: str = NO_PARAMETERS
    """The model of its parameters: PageParameters give it pages, WindowParameters a part of the history too."""
    schema: str = "List"
    """The name of the answer's schema in the OpenAPI document."""
    columns: tuple[str, ...] = ()
    """The fields of the items that a table shows; JSON has all of them."""
    columns_of_kind: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """The columns for objects of one kind (the noun of its streams), where they differ."""
    empty: str = "nothing found"
    """The message for an empty page; `{name}` is a parameter, `{subject}` the object asked about."""
    turn: Turn = "reader"
    of_views: bool = False
    """The views alone answer it about the present: a file's own driver reads them, without SQLAlchemy."""
    of_events: bool = False
    """A page of what the log's events say of a window: the answer says where earlier ones are archived."""
    verb: bool = True
    """Whether a command has its name; else only the API and the library answer it."""

    @property
    def description(self) -> str:
        """What `--help` says of it."""
        return f"{self.help}\n\n{self.text}" if self.text else self.help

    def columns_for(self, parameters: "Parameters") -> tuple[str, ...]:
        return self.columns_of_kind.get(parameters.noun, self.columns)


@dataclass(frozen=True, slots=True)
class DatedDocument:
    """A document, and beside it the time that ages in it are counted to."""

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
        # Only the modules up to its own are loaded: a command asks one question.
        for declared in import_module(room).QUESTIONS:
            if declared.name == name:
                match: Question = declared
                return match
    raise LookupError(f'there is no question "{name}"; there are: {", ".join(it.name for it in every_question())}')


@cache
def loaded(reference: str) -> Any:
    """What "module:name" refers to."""
    module, _, name = reference.partition(":")
    return getattr(import_module(module), name)


def model_of(question: Question) -> "type[Parameters]":
    model: type[Parameters] = loaded(question.parameters)
    return model


def ask(question: Question, context: "QuestionContext", parameters: "Parameters") -> dict[str, Any]:
    """The answer as a JSON document; what `-o json` prints, the API sends and the library returns."""
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
    """What the handler returns: for a page an Answer, for objects an ObjectsAnswer, else the document."""
    answer = loaded(question.handler)(context, parameters)
    return replace(answer, archived=context.archived_part(parameters)) if question.of_events else answer


def page_document(answer: "Answer") -> dict[str, Any]:
    metadata: dict[str, Any] = {} if answer.after is None else {"continue": answer.after}
    metadata |= {"cut": True} if answer.cut else {}
    metadata |= {"archived": answer.archived} if answer.archived else {}
    head = {"apiVersion": API_VERSION, "kind": "List"} | ({"metadata": metadata} if metadata else {})
    return head | {"items": answer.items}
