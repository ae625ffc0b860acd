"""The timeline of an object or a binding: who did what, when, why, and what it followed from."""

from collections.abc import Sequence

import orjson
from sqlalchemy import Connection

from volsched.log.events.envelope import Event
from volsched.log.reads.event_audit import EVERYTHING, Window, binding_page, by_hand, events_at, stream_page
from volsched.questions.audit.answers import Answer, Item, UnknownError, number_in, time_text
from volsched.questions.history.event_text import reason_of, subject_of, words_of


def history(connection: Connection, stream: str, within: Window, *, after: str | None, limit: int) -> Answer:
    """All events of a stream in a window."""
    events = stream_page(connection, stream, within, after=number_in(after), limit=limit + 1)
    if not events and after is None and not stream_page(connection, stream, EVERYTHING, limit=1):
        raise UnknownError(f"nothing is known of {stream}; see what there was with: volsched diff --from 0")
    return told(connection, events, limit, token="version")


def changes(connection: Connection, stream: str, within: Window, *, after: str | None, limit: int) -> Answer:
    """Who changed an object: its history, with the command that an actor ran; assumptions change nothing."""
    answer = history(connection, stream, within, after=after, limit=limit)
    items = [_with_command(item) for item in answer.items if not item["type"].endswith(("Assumed", "Freed"))]
    return Answer(items=items, after=answer.after)


def of_binding(connection: Connection, binding: str, within: Window, *, after: str | None, limit: int) -> Answer:
    """Everything that was done for a binding, over all streams."""
    events = binding_page(connection, binding, within, after=number_in(after), limit=limit + 1)
    if not events and after is None:
        raise UnknownError(f'there is no binding "{binding}"; see volsched audit node NODE, or in-flight')
    return told(connection, events, limit)


def interventions(connection: Connection, within: Window, *, after: str | None, limit: int) -> Answer:
    """What people did with the command line, the latest first."""
    before = None if after is None else number_in(after)
    answer = told(connection, by_hand(connection, within, before=before, limit=limit + 1), limit)
    return Answer(items=[_with_command(item) for item in answer.items], after=answer.after)


def told(connection: Connection, events: Sequence[Event], limit: int, *, token: str = "position") -> Answer:
    """At most `limit` of the events, with their causes."""
    shown = events[:limit]
    causes = events_at(connection, {it.cause for it in shown if it.cause is not None})
    items = [entry(it, causes.get(it.cause or 0)) for it in shown]
    return Answer(items=items, after=str(items[-1][token]) if len(events) > limit else None)


def entry(event: Event, cause: Event | None = None) -> Item:
    return {
        "position": event.position,
        "at": time_text(event.at),
        "object": event.stream,
        "version": event.version,
        "type": event.type,
        "actor": event.actor,
        "what": words_of(event),
        "reason": reason_of(event),
        "binding": event.binding,
        "cause": event.cause,
        "causedBy": None if cause is None else f"{subject_of(cause)}: {words_of(cause)}",
        "data": orjson.loads(event.data),
    }


def _with_command(item: Item) -> Item:
    """`cli/VERB/USER` is what a person did with the command line; other actors are parts of the system."""
    part, *rest = item["actor"].split("/")
    if part != "cli":
        return {**item, "who": part, "command": None}
    return {**item, "who": rest[1] if len(rest) > 1 else None, "command": rest[0] if rest else None}
