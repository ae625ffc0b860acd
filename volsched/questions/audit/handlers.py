"""The handlers of the audit questions: from parameters to reads; leases and verifications as data."""

from collections.abc import Iterable
from contextlib import suppress
from typing import Any

from volsched.log.errors import StoreError
from volsched.log.events.streams import BINDING, ID, kind_called
from volsched.log.integrity.anchors import parse_anchor
from volsched.log.integrity.verification_notes import note_verification
from volsched.log.integrity.verify import VerifyReport, verify
from volsched.log.leases import LeaseStanding, standings
from volsched.log.reads.as_of import view_at_head
from volsched.questions.audit import decisions
from volsched.questions.audit.answers import Answer, Item
from volsched.questions.audit.parameters import (
    Cause,
    InFlightParameters,
    Latency,
    NodeWindow,
    ObjectWindow,
    VerifyParameters,
    VolumeAt,
    VolumeWindow,
)
from volsched.questions.context import QuestionContext
from volsched.questions.get.near_names import full_id
from volsched.questions.history import history, volume_history
from volsched.questions.history.moments import duration_of, is_position, position_of, window_of
from volsched.questions.history.parameters import EventSearch
from volsched.questions.parameters import Parameters, WindowParameters
from volsched.questions.refusals import MomentError, QuestionError
from volsched.questions.registry import DatedDocument
from volsched.runtime.clock import SECOND, rfc3339

# The outcome of a verification as data, as printed by `verify -o json` and sent by the API.


def verification_document(report: VerifyReport) -> dict[str, Any]:
    proven = report.proven
    return {
        "ok": report.ok,
        "after": report.after,
        "position": report.head.position,
        "hash": report.head.hash.hex(),
        "streams": report.streams,
        "archives": report.archives,
        "redacted": report.redacted,
        "gaps": report.gaps,
        "anchors": report.anchors,
        "proven": proven and {"position": proven.position, "at": rfc3339(proven.at)},
        "findings": [it.as_json() for it in report.findings],
        "more": report.more,
    }


def verify_store(context: QuestionContext, parameters: VerifyParameters) -> DatedDocument:
    """Verify the store. The answer has the time of the last event, which an anchor contains."""
    try:
        anchors = [parse_anchor(line) for line in (parameters.anchor, *parameters.anchors) if line]
    except StoreError as error:
        raise QuestionError(f"anchor: {error}") from None
    report = verify(context.database, anchors=anchors, archives=context.archives, progress=context.progress)
    with suppress(StoreError):
        # A store that is read-only can still be verified.
        note_verification(context.database, report.head, now=context.now, ok=report.ok)
    return DatedDocument(verification_document(report), report.head.at)


# Leases as the command line and HTTP show them.


def lease_rows(standings: Iterable[LeaseStanding], *, now: int) -> list[dict[str, Any]]:
    return [
        {
            "name": it.lease.name,
            "holder": it.lease.holder,
            "epoch": it.lease.epoch,
            "until": rfc3339(it.lease.until),
            "renewedSecondsAgo": round(it.age(now) / SECOND, 1),
            "held": it.over is None,
            "why": "" if it.over is None else it.over.value,
        }
        for it in standings
    ]


VOLUME, NODE, POD = (kind_called(it) for it in ("pv", "node", "pod"))
ONE_OF_BOTH = "give the POSITION of an event, or --binding ID, and not both"


def volume(context: QuestionContext, parameters: VolumeAt) -> Item:
    with context.database.read() as connection:
        position = position_of(connection, parameters.as_of, now=context.now)
        with context.with_suggestions(connection, VOLUME, parameters.name):
            return volume_history.bound_at(connection, parameters.name, position=position)


def claims_of(context: QuestionContext, parameters: VolumeWindow) -> Answer:
    with (
        context.window(parameters) as (connection, within),
        context.with_suggestions(connection, VOLUME, parameters.name),
    ):
        return volume_history.claims_of(connection, parameters.name, within, **parameters.page)


def who(context: QuestionContext, parameters: ObjectWindow) -> Answer:
    with (
        context.window(parameters) as (connection, within),
        context.with_suggestions(connection, parameters.named, parameters.key),
    ):
        return history.changes(connection, f"{parameters.noun}/{parameters.key}", within, **parameters.page)


def cause(context: QuestionContext, parameters: Cause) -> Answer:
    position, binding = parameters.position, parameters.binding
    if (position is None) == (binding is None):
        raise MomentError(ONE_OF_BOTH)
    if position is not None and (ID.fullmatch(position) or not is_position(position)):
        # The id of a binding or an attempt: some have only digits, but more of them than any position.
        position, binding = None, position
    with context.database.read() as connection:
        if position is not None:
            return history.causation(connection, int(position), limit=parameters.limit)
        id_ = full_id(view_at_head(connection), kind_called(BINDING), binding or "")
        return history.causes_of_binding(connection, id_, limit=parameters.limit)


def on_node(context: QuestionContext, parameters: NodeWindow) -> Answer:
    with context.window(parameters) as (connection, within):
        page = decisions.on_node(connection, parameters.name, within, **parameters.page)
        if not page.items:
            context.refuse_unknown(connection, NODE, parameters.name)
        return page


def rollbacks(context: QuestionContext, parameters: WindowParameters) -> Answer:
    with context.window(parameters) as (connection, within):
        return decisions.rollbacks(connection, within, **parameters.page)


def in_flight(context: QuestionContext, parameters: InFlightParameters) -> Answer:
    age = duration_of(parameters.older_than)
    with context.database.read() as connection:
        if parameters.as_of is None:
            return decisions.in_flight(connection, now=context.now, older_than=age, **parameters.page)
        within = window_of(connection, since=None, until=None, as_of=parameters.as_of, now=context.now)
        return decisions.in_flight_at_end(connection, within, older_than=age, **parameters.page)


def latencies(context: QuestionContext, parameters: Latency) -> Answer:
    with context.database.read() as connection:
        within = window_of(connection, since=parameters.since, until=parameters.until, now=context.now)
        return decisions.latency(connection, within, limit=parameters.bindings)


def interventions(context: QuestionContext, parameters: WindowParameters) -> Answer:
    with context.window(parameters) as (connection, within):
        return history.interventions(connection, within, **parameters.page)


def events(context: QuestionContext, parameters: EventSearch) -> Answer:
    with context.window(parameters) as (connection, within):
        return history.events(connection, within, parameters)


def history_reads(context: QuestionContext, parameters: WindowParameters) -> Answer:
    with context.window(parameters) as (connection, within):
        return decisions.reads(connection, within, **parameters.page)


def leases(context: QuestionContext, _: Parameters) -> Answer:
    return Answer(items=lease_rows(standings(context.database, now=context.now), now=context.now))
