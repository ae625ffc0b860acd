"""How the audit questions are asked of a store: from parameters to the reads that answer them."""

from volsched.log.events.kind_names import kind_called
from volsched.log.leases import standings
from volsched.questions.audit import decisions, latency, reads
from volsched.questions.audit.answers import Answer, Item
from volsched.questions.audit.leases import lease_rows
from volsched.questions.audit.parameters import (
    Cause,
    InFlightParameters,
    Latency,
    NodeWindow,
    ObjectWindow,
    VolumeAt,
    VolumeWindow,
)
from volsched.questions.context import QuestionContext
from volsched.questions.history import causes, history, volume_history
from volsched.questions.history.moments import (
    MomentError,
    duration_of,
    is_position,
    position_of,
    window_of,
)
from volsched.questions.parameters import Parameters, WindowParameters

VOLUME, NODE, POD = (kind_called(it) for it in ("pv", "node", "pod"))
ONE_OF_BOTH = "give the POSITION of an event, or --binding ID, and not both"


def volume(context: QuestionContext, asked: VolumeAt) -> Item:
    with context.database.read() as connection:
        position = position_of(connection, asked.as_of, now=context.now)
        with context.known(connection, VOLUME, asked.name):
            return volume_history.bound_at(connection, asked.name, position=position)


def claims_of(context: QuestionContext, asked: VolumeWindow) -> Answer:
    with context.window(asked) as (connection, within), context.known(connection, VOLUME, asked.name):
        return volume_history.claims_of(connection, asked.name, within, **asked.rest)


def who(context: QuestionContext, asked: ObjectWindow) -> Answer:
    with context.window(asked) as (connection, within), context.known(connection, asked.named, asked.key):
        return history.changes(connection, f"{asked.noun}/{asked.key}", within, **asked.rest)


def cause(context: QuestionContext, asked: Cause) -> Answer:
    if (asked.position is None) == (asked.binding is None):
        raise MomentError(ONE_OF_BOTH)
    if asked.position is not None and not is_position(asked.position):
        raise MomentError(f'"{asked.position[:80]}" is not the position of an event; give a number, such as 1234')
    with context.database.read() as connection:
        if asked.position is not None:
            return causes.causation(connection, int(asked.position), limit=asked.limit)
        return causes.of_binding(connection, asked.binding or "", limit=asked.limit)


def on_node(context: QuestionContext, asked: NodeWindow) -> Answer:
    with context.window(asked) as (connection, within):
        page = decisions.on_node(connection, asked.name, within, **asked.rest)
        if not page.items:
            context.refuse_unknown(connection, NODE, asked.name)
        return page


def rollbacks(context: QuestionContext, asked: WindowParameters) -> Answer:
    with context.window(asked) as (connection, within):
        return decisions.rollbacks(connection, within, **asked.rest)


def in_flight(context: QuestionContext, asked: InFlightParameters) -> Answer:
    age = duration_of(asked.older_than)
    with context.database.read() as connection:
        if asked.as_of is None:
            return decisions.in_flight(connection, now=context.now, older_than=age, **asked.rest)
        within = window_of(connection, since=None, until=None, as_of=asked.as_of, now=context.now)
        return decisions.was_in_flight(connection, within, older_than=age, **asked.rest)


def latencies(context: QuestionContext, asked: Latency) -> Answer:
    with context.database.read() as connection:
        within = window_of(connection, since=asked.since, until=asked.until, now=context.now)
        return latency.latency(connection, within, limit=asked.bindings)


def interventions(context: QuestionContext, asked: WindowParameters) -> Answer:
    with context.window(asked) as (connection, within):
        return history.interventions(connection, within, **asked.rest)


def history_reads(context: QuestionContext, asked: WindowParameters) -> Answer:
    with context.window(asked) as (connection, within):
        return reads.reads(connection, within, **asked.rest)


def leases(context: QuestionContext, _: Parameters) -> Answer:
    return Answer(items=lease_rows(standings(context.database, now=context.now), now=context.now))
