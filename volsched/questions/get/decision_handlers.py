"""The handlers for bindings and attempts: pages in time order, single ones, and the steps of a binding."""

from collections.abc import Callable, Mapping, Sequence
from typing import Generic, NamedTuple, TypeVar

from volsched.log.events.fold import AttemptState, BindingState, State
from volsched.log.events.streams import ATTEMPT, BINDING
from volsched.log.reads.as_of import view_at, view_at_head
from volsched.log.reads.decision_audit import attempts_page, bindings_page
from volsched.log.reads.tail import read_head
from volsched.questions.audit.answers import Answer, place_in, place_token
from volsched.questions.context import QuestionContext
from volsched.questions.get.columns import columns_of
from volsched.questions.get.describe import steps_of
from volsched.questions.get.documents import namespace_of
from volsched.questions.get.list_parameters import AttemptList, BindingList, NamedParameters, ReservationList
from volsched.questions.get.object_rows import ObjectsAnswer, state_rows
from volsched.questions.refusals import MissingError

T = TypeVar("T", BindingState, AttemptState)


class DecisionPage(NamedTuple, Generic[T]):
    """The decisions of one page, and the token of the next page."""

    rows: list[tuple[str, T]]
    head: int
    after: str | None


def bindings(context: QuestionContext, parameters: BindingList) -> ObjectsAnswer:
    page = binding_page(context, parameters, pod=parameters.pod_key, node=parameters.node, state=parameters.state)
    return _answer(BINDING, page.rows, page.head, context.now, page.after)


def attempts(context: QuestionContext, parameters: AttemptList) -> ObjectsAnswer:
    exact = {"pod": parameters.pod_key, "node": parameters.node, "outcome": parameters.outcome}
    page = _page(context, parameters, attempts_page, lambda it: it.first_at, exact)
    return _answer(ATTEMPT, page.rows, page.head, context.now, page.after)


def binding_page(
    context: QuestionContext, parameters: ReservationList, **exact: str | None
) -> DecisionPage[BindingState]:
    """A page of bindings. `exact`: values that columns must have; None allows any."""
    return _page(context, parameters, bindings_page, lambda it: it.planned_at, exact)


def binding(context: QuestionContext, parameters: NamedParameters) -> ObjectsAnswer:
    return _single(context, parameters, BINDING)


def attempt(context: QuestionContext, parameters: NamedParameters) -> ObjectsAnswer:
    return _single(context, parameters, ATTEMPT)


def steps(context: QuestionContext, parameters: NamedParameters) -> Answer:
    _single(context, parameters, BINDING)
    with context.database.read() as connection:
        return Answer(items=steps_of(view_at_head(connection), parameters.name))


def _single(context: QuestionContext, parameters: NamedParameters, noun: str) -> ObjectsAnswer:
    with context.database.read() as connection:
        head = read_head(connection).position
        state = view_at(connection, head).one(noun, parameters.name)
    if state is None or namespace_of(parameters.name, state) != parameters.namespace:
        raise MissingError(f"{noun}s", parameters.name)
    return _answer(noun, [(parameters.name, state)], head, context.now)


def _page(
    context: QuestionContext,
    parameters: ReservationList,
    read: Callable[..., list[tuple[str, T]]],
    time_of: Callable[[T], int],
    exact: Mapping[str, str | None],
) -> DecisionPage[T]:
    """A page of decisions. One more than fits a page is read, to know whether there is a next page."""
    with context.database.read() as connection:
        head = read_head(connection).position
        decisions = read(
            connection,
            namespace=parameters.namespace,
            after=place_in(parameters.after),
            limit=parameters.limit + 1,
            id=parameters.name,
            **exact,
        )
    rows = decisions[: parameters.limit]
    after = place_token(time_of(rows[-1][1]), rows[-1][0]) if len(decisions) > parameters.limit else None
    return DecisionPage(rows, head, after)


def _answer(
    noun: str, decisions: Sequence[tuple[str, State]], head: int, now: int, after: str | None = None
) -> ObjectsAnswer:
    return ObjectsAnswer(
        columns=columns_of(noun, wide=True),
        rows=state_rows(noun, decisions, now=now),
        position=head,
        kind=noun.title(),
        after=after,
    )
