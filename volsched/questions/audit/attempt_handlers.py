"""How the audit questions about attempts are asked of a store; apart, because they load rules of the scheduler."""

from volsched.log.events.streams import kind_called
from volsched.questions.audit.answers import Answer, Item
from volsched.questions.audit.parameters import PodWindow, Why
from volsched.questions.context import QuestionContext
from volsched.questions.explain import stored_decisions
from volsched.questions.history.moments import position_of
from volsched.questions.refusals import UnknownError

POD = kind_called("pod")


def attempts_of(context: QuestionContext, asked: PodWindow) -> Answer:
    with context.window(asked) as (connection, within):
        page = stored_decisions.attempts_of(connection, asked.key, within, **asked.rest)
        if not page.items:
            context.refuse_unknown(connection, POD, asked.key)
        return page


def why(context: QuestionContext, asked: Why) -> Item:
    with context.database.read() as connection:
        if asked.namespace is None and asked.as_of is None:
            return stored_decisions.why_named(connection, asked.name, node=asked.node)
        position = position_of(connection, asked.as_of, now=context.now)
        item = stored_decisions.why_pod(connection, asked.key, position=position, node=asked.node)
        if item is None:
            context.refuse_unknown(connection, POD, asked.key)
            raise UnknownError(stored_decisions.NOTHING_TRIED.format(pod=asked.key))
        return item
