"""The history of an object or binding, the causes of an event, and how the store differs between positions."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import orjson
from sqlalchemy import Connection

from volsched.kube.patches import difference
from volsched.log.base import archived, newest_snapshot, read_base
from volsched.log.events.envelope import Event
from volsched.log.events.fold import ObjectState, State
from volsched.log.events.streams import ATTEMPT, BINDING, KIND_OF_NOUN, OBSERVED_CLUSTER, kind_called, noun_and_key
from volsched.log.reads.as_of import view_at_head
from volsched.log.reads.event_audit import (
    EVERYTHING,
    Window,
    binding_page,
    by_hand,
    consequences,
    events_at,
    first_changes,
    objects_now,
    search_events,
    states_as_of,
    stream_page,
    window,
)
from volsched.log.reads.tail import read_head, read_stream
from volsched.questions.audit.answers import Answer, Item, number_in, time_text
from volsched.questions.context import QuestionContext
from volsched.questions.get.near_names import full_id
from volsched.questions.history.event_text import change_words, reason_of, subject_of, words_of
from volsched.questions.history.moments import position_of
from volsched.questions.history.parameters import Diff, EventSearch, Timeline
from volsched.questions.refusals import MomentError, UnknownError


def history(connection: Connection, stream: str, within: Window, *, after: str | None, limit: int) -> Answer:
    """All events of a stream in a window."""
    events = stream_page(connection, stream, within, after=number_in(after), limit=limit + 1)
    if not events and after is None and not stream_page(connection, stream, EVERYTHING, limit=1):
        base = read_base(connection)
        if newest_snapshot(connection, stream, position=base.position) is not None:
            raise archived(connection, f"the history of {stream}", base)
        raise UnknownError(
            f"nothing is known of {stream}; see what there was with: volsched diff --from {base.position}"
        )
    return event_page(connection, events, limit, token="version")


def with_gaps(connection: Connection, answer: Answer, kind: str, within: Window) -> Answer:
    """A page of an object's history, with the gaps in the observation of its kind, if the cluster is observed."""
    if not answer.items:
        return answer
    first = answer.items[0]["position"]
    last = within.last if answer.after is None else answer.items[-1]["position"]
    events = (it for it in read_stream(connection, OBSERVED_CLUSTER) if first < it.position <= last)
    gaps = [entry(it) for it in events if orjson.loads(it.data).get("kind") == kind]
    return replace(answer, items=sorted([*answer.items, *gaps], key=lambda it: int(it["position"])))


def changes(connection: Connection, stream: str, within: Window, *, after: str | None, limit: int) -> Answer:
    """The changes of an object with actors and commands: its history without assumptions."""
    answer = history(connection, stream, within, after=after, limit=limit)
    items = [_with_command(item) for item in answer.items if not item["type"].endswith(("Assumed", "Freed"))]
    return Answer(items=items, after=answer.after)


def binding_history(
    connection: Connection, binding: str, within: Window, *, after: str | None, limit: int
) -> Answer:
    """All events of a binding, over all streams."""
    events = binding_page(connection, binding, within, after=number_in(after), limit=limit + 1)
    if not events and after is None and not binding_page(connection, binding, EVERYTHING, limit=1):
        # An attempt without a node has no binding, only its own events.
        events = [it for it in _attempt_events(connection, binding) if within.first <= it.position <= within.last]
    return event_page(connection, events, limit)


def interventions(connection: Connection, within: Window, *, after: str | None, limit: int) -> Answer:
    """The actions of people on the command line and over HTTP, the latest first."""
    before = None if after is None else number_in(after)
    answer = event_page(connection, by_hand(connection, within, before=before, limit=limit + 1), limit)
    return Answer(items=[_with_command(item) for item in answer.items], after=answer.after)


def events(connection: Connection, within: Window, parameters: EventSearch) -> Answer:
    """The events that match a word, an actor, a kind or a type, the latest first.

    A page examines a limited number of events: it may be short, or even empty, although more follow.
    """
    nouns = () if parameters.kind is None else (kind_called(parameters.kind).noun,)
    matches, examined = search_events(
        connection,
        within,
        before=None if parameters.after is None else number_in(parameters.after),
        nouns=nouns,
        actor=parameters.actor,
        type_=parameters.type,
        words=parameters.text,
        limit=parameters.limit,
    )
    page = event_page(connection, matches, parameters.limit)
    return Answer(items=page.items, after=None if examined is None else str(examined))


def event_page(connection: Connection, events: Sequence[Event], limit: int, *, token: str = "position") -> Answer:
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


HTTP_ACTORS = ("api", "token", "cert")
"""First parts of the actors of clients that write over HTTP, such as kubectl."""


def _with_command(item: Item) -> Item:
    """The actor `cli/VERB/USER` is a person at the command line, `token/NAME` and the like are clients over HTTP;
    all other actors are parts of the system."""
    part, *rest = item["actor"].split("/")
    if part in HTTP_ACTORS and rest:
        return {**item, "who": "/".join(rest), "command": "http"}
    if part != "cli":
        return {**item, "who": part, "command": None}
    return {**item, "who": rest[1] if len(rest) > 1 else None, "command": rest[0] if rest else None}


# The difference between two positions: every object that was created, changed or deleted in between.

QUIET = frozenset({"notice"})
"""Nouns that are left out unless they are requested."""


def world_diff(
    connection: Connection, within: Window, *, noun: str | None = None, after: str | None, limit: int
) -> Answer:
    """The objects that differ between the position before the window and its end, by their first change in it.

    A page examines a limited number of events, and objects that were changed back are left out: it may be short,
    or even empty, although more follow.
    """
    nouns = frozenset({noun}) if noun is not None else KIND_OF_NOUN.keys() - QUIET
    firsts, examined = first_changes(connection, within, nouns=nouns, after=number_in(after), limit=limit)
    streams = [it.stream for it in firsts]
    old = states_as_of(connection, [it.stream for it in firsts if it.version > 1], position=within.first - 1)
    until_now = within.last == read_head(connection).position
    new = (
        objects_now(connection, streams) if until_now else states_as_of(connection, streams, position=within.last)
    )
    changes = (_difference_item(it, _object(old.get(it.stream)), _object(new.get(it.stream))) for it in firsts)
    items = [item for item in changes if item is not None]
    return Answer(items=items, after=str(examined) if examined < within.last else None)


def _difference_item(first: Event, before: ObjectState | None, after: ObjectState | None) -> Item | None:
    old = None if before is None else before.manifest
    new = None if after is None else after.manifest
    patch = difference(old or {}, new or {})
    if (old is None) == (new is None) and _is_empty(patch):
        return None
    noun, key = noun_and_key(first.stream)
    change = "created" if old is None else "deleted" if new is None else "changed"
    return {
        "kind": KIND_OF_NOUN[noun].name,
        "name": key,
        "change": change,
        "what": change_words(before, after, patch),
        "firstPosition": first.position,
        "patch": None if new is None else patch,
    }


def _is_empty(patch: Mapping[str, Any]) -> bool:
    """Whether a patch is no difference: removing the last annotation leaves an empty map behind."""
    return all(isinstance(value, dict) and _is_empty(value) for value in patch.values())


def _object(state: State | None) -> ObjectState | None:
    return state if isinstance(state, ObjectState) else None


# The causes and the consequences of an event, as a tree.


def causation(connection: Connection, position: int, *, limit: int) -> Answer:
    """The chain of causes from the first one on, the event itself, and all its consequences.

    Items are in the order of a tree, each with its depth; of more than `limit`, the deepest are left out.
    """
    event = events_at(connection, {position}).get(position)
    if event is None:
        base = read_base(connection)
        if 0 < position <= base.position:
            raise archived(connection, f"position {position}", base)
        raise UnknownError(f"there is no event at position {position}; volsched history shows the positions")
    above = _causes(connection, event, limit)
    below = _consequences(connection, event, limit + 1)
    count = sum(map(len, below.values()))
    items = [_item(it, depth, role="cause") for depth, it in enumerate(above)]
    items += _tree(event, below, len(above), role="event")
    return Answer(items=items[: len(above) + 1 + limit], cut=count > limit)


def causes_of_binding(connection: Connection, binding: str, *, limit: int) -> Answer:
    """All events of a binding, each below its cause."""
    page = binding_page(connection, binding, EVERYTHING, limit=limit + 1)
    events = page[:limit] or _attempt_events(connection, binding)
    positions = {it.position for it in events}
    below: dict[int, list[Event]] = {}
    for it in events:
        if it.cause in positions:
            below.setdefault(it.cause or 0, []).append(it)
    roots = (it for it in events if it.cause not in positions)
    items = [item for it in roots for item in _tree(it, below, 0, role="event")]
    return Answer(items=items, cut=len(page) > limit)


def _attempt_events(connection: Connection, id_: str) -> list[Event]:
    """The events of an attempt without a binding; a binding has the id of its attempt."""
    events = list(read_stream(connection, f"{ATTEMPT}/{id_}"))
    if not events:
        raise UnknownError(f'there is no binding "{id_}"; see volsched audit node NODE, or in-flight')
    return events


def _causes(connection: Connection, event: Event, limit: int) -> list[Event]:
    """The causes of an event, the first one first; archived events end the chain."""
    causes: list[Event] = []
    while event.cause is not None and len(causes) < limit:
        cause = events_at(connection, {event.cause}).get(event.cause)
        if cause is None:
            break
        causes.append(cause)
        event = cause
    return causes[::-1]


def _consequences(connection: Connection, event: Event, limit: int) -> dict[int, list[Event]]:
    """Position → the events directly caused by the event there, generation by generation."""
    children_of: dict[int, list[Event]] = {}
    generation, count = [event.position], 0
    while generation and count < limit:
        children = consequences(connection, generation, limit=limit - count)
        for it in children:
            children_of.setdefault(it.cause or 0, []).append(it)
        generation, count = [it.position for it in children], count + len(children)
    return children_of


def _tree(event: Event, below: dict[int, list[Event]], depth: int, *, role: str) -> Iterator[Item]:
    yield _item(event, depth, role=role)
    for it in below.get(event.position, ()):
        yield from _tree(it, below, depth + 1, role="consequence")


def _item(event: Event, depth: int, *, role: str) -> Item:
    fields = entry(event)
    return {"depth": depth, "role": role, "tree": f"{'· ' * depth}{subject_of(event)}: {fields['what']}", **fields}


# The handlers of `history` and `diff`.


def timeline(context: QuestionContext, parameters: Timeline) -> Answer:
    with context.window(parameters) as (connection, within):
        if parameters.noun == BINDING:
            return binding_history(
                connection,
                full_id(view_at_head(connection), parameters.named, parameters.name),
                within,
                **parameters.page,
            )
        with context.with_suggestions(connection, parameters.named, parameters.key):
            answer = history(connection, f"{parameters.noun}/{parameters.key}", within, **parameters.page)
        return with_gaps(connection, answer, parameters.named.title, within)


def diff(context: QuestionContext, parameters: Diff) -> Answer:
    named = None if parameters.kind is None else kind_called(parameters.kind)
    if named is not None and not named.is_object:
        raise MomentError(f"{named.plural} are not objects; see: volsched audit --help")
    with context.database.read() as connection:
        first = position_of(connection, parameters.begin, now=context.now)
        last = position_of(connection, parameters.end, now=context.now)
        if first > last:
            raise MomentError(f"--from {parameters.begin} is later than --to {parameters.end}; swap them")
        base = read_base(connection)
        if first < base.position:
            raise archived(connection, f"position {first}", base)
        within = window(connection, first=first + 1, last=last)
        noun = None if named is None else named.noun
        page = world_diff(connection, within, noun=noun, after=parameters.after, limit=parameters.limit)
        while not page.items and page.after is not None:
            # A page examines a few thousand events; if none of them makes a difference, it is empty.
            page = world_diff(connection, within, noun=noun, after=page.after, limit=parameters.limit)
        return page
