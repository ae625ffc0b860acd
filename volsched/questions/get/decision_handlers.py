"""How bindings and attempts are asked for: pages of them in order of time, one, and the steps of a binding."""

from collections.abc import Sequence
from typing import Literal

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
from volsched.questions.get.list_parameters import AttemptList, BindingList, NamedParameters
from volsched.questions.get.object_rows import ObjectsAnswer, state_rows
from volsched.questions.refusals import MissingError

Decision = Literal["binding", "attempt"]


def bindings(context: QuestionContext, asked: BindingList) -> ObjectsAnswer:
    with context.database.read() as connection:
        head = read_head(connection).position
        found = bindings_page(
            connection,
            namespace=asked.namespace,
            after=place_in(asked.after),
            limit=asked.limit + 1,
            pod=asked.pod_key,
            node=asked.node,
            state=asked.state,
            id=asked.name,
        )
    times = [it.planned_at for _, it in found]
    return _page(BINDING, found, times, head, context.now, asked.limit)


def attempts(context: QuestionContext, asked: AttemptList) -> ObjectsAnswer:
    with context.database.read() as connection:
        head = read_head(connection).position
        found = attempts_page(
            connection,
            namespace=asked.namespace,
            after=place_in(asked.after),
            limit=asked.limit + 1,
            pod=asked.pod_key,
            node=asked.node,
            outcome=asked.outcome,
            id=asked.name,
        )
    return _page(ATTEMPT, found, [it.first_at for _, it in found], head, context.now, asked.limit)


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
    noun: str,
    found: Sequence[tuple[str, BindingState]] | Sequence[tuple[str, AttemptState]],
    times: Sequence[int],
    head: int,
    now: int,
    limit: int,
) -> ObjectsAnswer:
    """One more than a page was read: it says whether there is another."""
    after = place_token(times[limit - 1], found[limit - 1][0]) if len(found) > limit else None
    return _answer(noun, found[:limit], head, now, after)


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
