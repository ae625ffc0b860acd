"""How the audit questions about attempts are asked of a store; apart, because they load rules of the scheduler."""

from volsched.log.events.kind_names import kind_called
from volsched.questions.audit.answers import Answer, Item, UnknownError
from volsched.questions.audit.parameters import PodWindow, Why
from volsched.questions.context import QuestionContext
from volsched.questions.explain import attempts
from volsched.questions.history.moments import position_of

POD = kind_called("pod")


def attempts_of(context: QuestionContext, asked: PodWindow) -> Answer:
    with context.window(asked) as (connection, within):
        page = attempts.attempts_of(connection, asked.key, within, **asked.rest)
        if not page.items:
            context.refuse_unknown(connection, POD, asked.key)
        return page


def why(context: QuestionContext, asked: Why) -> Item:
    with context.database.read() as connection:
        if asked.namespace is None and asked.as_of is None:
            return attempts.why_named(connection, asked.name, node=asked.node)
        position = position_of(connection, asked.as_of, now=context.now)
        item = attempts.why_pod(connection, asked.key, position=position, node=asked.node)
        if item is None:
            context.refuse_unknown(connection, POD, asked.key)
            raise UnknownError(attempts.NOTHING_TRIED.format(pod=asked.key))
        return item
