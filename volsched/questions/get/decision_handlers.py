"""How bindings and attempts are asked for: pages of them in order of time, one, and the steps of a binding."""

from collections.abc import Callable, Mapping, Sequence
from typing import Generic, NamedTuple, TypeVar

from volsched.log.events.fold import AttemptState, BindingState, State
from volsched.log.events.streams import ATTEMPT, BINDING
from volsched.log.reads.as_of import look_at, look_at_head
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
    """Decisions of one page, which the next one follows."""

    rows: list[tuple[str, T]]
    head: int
    after: str | None


def bindings(context: QuestionContext, asked: BindingList) -> ObjectsAnswer:
    page = binding_page(context, asked, pod=asked.pod_key, node=asked.node, state=asked.state)
    return _answer(BINDING, page.rows, page.head, context.now, page.after)


def attempts(context: QuestionContext, asked: AttemptList) -> ObjectsAnswer:
    exact = {"pod": asked.pod_key, "node": asked.node, "outcome": asked.outcome}
    page = _page(context, asked, attempts_page, lambda it: it.first_at, exact)
    return _answer(ATTEMPT, page.rows, page.head, context.now, page.after)


def binding_page(
    context: QuestionContext, asked: ReservationList, **exact: str | None
) -> DecisionPage[BindingState]:
    """`exact`: values that columns must have; None is any."""
    return _page(context, asked, bindings_page, lambda it: it.planned_at, exact)


def binding(context: QuestionContext, asked: NamedParameters) -> ObjectsAnswer:
    return _one(context, asked, BINDING)


def attempt(context: QuestionContext, asked: NamedParameters) -> ObjectsAnswer:
    return _one(context, asked, ATTEMPT)


def steps(context: QuestionContext, asked: NamedParameters) -> Answer:
    _one(context, asked, BINDING)
    with context.database.read() as connection:
        return Answer(items=steps_of(look_at_head(connection), asked.name))


def _one(context: QuestionContext, asked: NamedParameters, noun: str) -> ObjectsAnswer:
    with context.database.read() as connection:
        head = read_head(connection).position
        state = look_at(connection, head).one(noun, asked.name)
    if state is None or namespace_of(asked.name, state) != asked.namespace:
        raise MissingError(f"{noun}s", asked.name)
    return _answer(noun, [(asked.name, state)], head, context.now)


def _page(
    context: QuestionContext,
    asked: ReservationList,
    read: Callable[..., list[tuple[str, T]]],
    time_of: Callable[[T], int],
    exact: Mapping[str, str | None],
) -> DecisionPage[T]:
    """One more than a page is read: it says whether there is another."""
    with context.database.read() as connection:
        head = read_head(connection).position
        found = read(
            connection,
            namespace=asked.namespace,
            after=place_in(asked.after),
            limit=asked.limit + 1,
            id=asked.name,
            **exact,
        )
    rows = found[: asked.limit]
    after = place_token(time_of(rows[-1][1]), rows[-1][0]) if len(found) > asked.limit else None
    return DecisionPage(rows, head, after)


def _answer(
    noun: str, found: Sequence[tuple[str, State]], head: int, now: int, after: str | None = None
) -> ObjectsAnswer:
    return ObjectsAnswer(
        columns=columns_of(noun, wide=True),
        rows=state_rows(noun, found, now=now),
        position=head,
        kind=noun.title(),
        after=after,
    )
