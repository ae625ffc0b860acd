"""How `history` and `diff` are asked of a store."""

from volsched.log.events.kind_names import kind_called
from volsched.log.events.streams import BINDING
from volsched.log.reads.event_audit import window
from volsched.questions.audit.answers import Answer
from volsched.questions.context import QuestionContext
from volsched.questions.history import history
from volsched.questions.history.moments import MomentError, position_of
from volsched.questions.history.parameters import Diff, Timeline
from volsched.questions.history.world_diff import world_diff


def timeline(context: QuestionContext, asked: Timeline) -> Answer:
    with context.window(asked) as (connection, within):
        if asked.noun == BINDING:
            return history.of_binding(connection, asked.name, within, **asked.rest)
        with context.known(connection, asked.named, asked.key):
            return history.history(connection, f"{asked.noun}/{asked.key}", within, **asked.rest)


def diff(context: QuestionContext, asked: Diff) -> Answer:
    named = None if asked.kind is None else kind_called(asked.kind)
    if named is not None and not named.is_object:
        raise MomentError(f"{named.plural} are no objects; ask for them under audit")
    with context.database.read() as connection:
        first = position_of(connection, asked.begin, now=context.now)
        last = position_of(connection, asked.end, now=context.now)
        if first > last:
            raise MomentError(f"--from {asked.begin} is later than --to {asked.end}; change them over")
        within = window(connection, first=first + 1, last=last)
        noun = None if named is None else named.noun
        page = world_diff(connection, within, noun=noun, after=asked.after, limit=asked.limit)
        while not page.items and page.after is not None:
            # A page looks at a few thousand events; where none of them made a difference, it is empty.
            page = world_diff(connection, within, noun=noun, after=page.after, limit=asked.limit)
        return page
