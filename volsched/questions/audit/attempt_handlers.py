"""The handlers of the audit questions about attempts; separate, because they load rules of the scheduler."""

from volsched.log.events.streams import kind_called
from volsched.questions.audit.answers import Answer, Item
from volsched.questions.audit.parameters import PodWindow, Why
from volsched.questions.context import QuestionContext
from volsched.questions.explain import stored_decisions
from volsched.questions.history.moments import position_of
from volsched.questions.refusals import UnknownError

POD = kind_called("pod")


def attempts_of(context: QuestionContext, parameters: PodWindow) -> Answer:
    with context.window(parameters) as (connection, within):
        page = stored_decisions.attempts_of(connection, parameters.key, within, **parameters.page)
        if not page.items:
            context.refuse_unknown(connection, POD, parameters.key)
        return page


def why(context: QuestionContext, parameters: Why) -> Item:
    with context.database.read() as connection:
        if parameters.namespace is None and parameters.as_of is None:
            return stored_decisions.why_named(connection, parameters.name, node=parameters.node)
        position = position_of(connection, parameters.as_of, now=context.now)
        item = stored_decisions.why_pod(connection, parameters.key, position=position, node=parameters.node)
        if item is None:
            context.refuse_unknown(connection, POD, parameters.key)
            raise UnknownError(stored_decisions.NOTHING_TRIED.format(pod=parameters.key))
        return item
