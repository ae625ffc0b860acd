"""The handlers for present and past objects: all of a kind, or one."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from volsched.log.events.fold import ObjectState, State
from volsched.log.events.streams import kind_called
from volsched.log.reads.views import StoreView
from volsched.questions.context import QuestionContext
from volsched.questions.get.columns import columns_of
from volsched.questions.get.documents import namespace_of
from volsched.questions.get.near_names import full_id, log_beginning, not_found
from volsched.questions.get.object_rows import ObjectsAnswer, state_rows
from volsched.questions.get.parameters import KindParameters, OneParameters
from volsched.questions.refusals import UnknownError


def objects_of_kind(context: QuestionContext, parameters: KindParameters) -> ObjectsAnswer:
    named = kind_called(parameters.kind)
    with view_as_of(context, parameters.as_of) as (view, now):
        states = [
            (key, state)
            for key, state in view.every(named.noun)
            if parameters.namespace is None or namespace_of(key, state) == parameters.namespace
        ]
        answer = _answer(named.noun, states, view, now)
        return answer if view.position else replace(answer, begins=log_beginning(view))


def single_object(context: QuestionContext, parameters: OneParameters) -> ObjectsAnswer:
    with view_as_of(context, parameters.as_of) as (view, now):
        key = full_id(view, parameters.named, parameters.key)
        return _answer(parameters.noun, [(key, state_of(context, parameters, view))], view, now)


@contextmanager
def view_as_of(context: QuestionContext, as_of: str | None) -> Iterator[tuple[StoreView, int]]:
    """One consistent view of the store, and the time that ages are counted to."""
    if as_of is None:
        with context.now_in_store() as view:
            yield view, context.now
        return
    database = context.database
    # Only the past is read from the log, with SQLAlchemy.
    from volsched.questions.history.moments import view_in

    with database.read() as connection:
        yield view_in(connection, as_of, now=context.now)


def state_of(context: QuestionContext, parameters: OneParameters, view: StoreView) -> State:
    state = view.one(parameters.noun, full_id(view, parameters.named, parameters.key))
    if state is None or (isinstance(state, ObjectState) and state.manifest is None):
        within = None if context.namespaces is None else parameters.namespace
        raise UnknownError(not_found(view, parameters.named, parameters.key, within=within))
    return state


def _answer(noun: str, states: list[tuple[str, State]], view: StoreView, now: int) -> ObjectsAnswer:
    rows = state_rows(noun, states, now=now, view=view)
    return ObjectsAnswer(columns=columns_of(noun, wide=True), rows=rows, position=view.position)
