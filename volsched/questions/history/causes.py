"""What led to an event and what it led to, as a tree."""

from collections.abc import Iterator

from sqlalchemy import Connection

from volsched.log.events.envelope import Event
from volsched.log.reads.event_audit import EVERYTHING, binding_page, consequences, events_at
from volsched.questions.audit.answers import Answer, Item, UnknownError
from volsched.questions.history.event_text import subject_of
from volsched.questions.history.history import entry


def causation(connection: Connection, position: int, *, limit: int) -> Answer:
    """The chain of causes from the first one on, the event itself, and all that followed from it.

    Items stand in the order of a tree, each with its depth; with more than `limit` the deepest are left out.
    """
    asked = events_at(connection, {position}).get(position)
    if asked is None:
        raise UnknownError(f"there is no event at position {position}; volsched history shows those there are")
    above = _causes(connection, asked, limit)
    below = _consequences(connection, asked, limit + 1)
    count = sum(map(len, below.values()))
    items = [_item(it, depth, role="cause") for depth, it in enumerate(above)]
    items += _tree(asked, below, len(above), role="event")
    return Answer(items=items[: len(above) + 1 + limit], cut=count > limit)


def of_binding(connection: Connection, binding: str, *, limit: int) -> Answer:
    """Everything that was done for a binding, each event below the one it followed from."""
    found = binding_page(connection, binding, EVERYTHING, limit=limit + 1)
    events = found[:limit]
    if not events:
        raise UnknownError(f'there is no binding "{binding}"; see volsched audit node NODE, or in-flight')
    known = {it.position for it in events}
    below: dict[int, list[Event]] = {}
    for it in events:
        if it.cause in known:
            below.setdefault(it.cause or 0, []).append(it)
    roots = (it for it in events if it.cause not in known)
    items = [item for it in roots for item in _tree(it, below, 0, role="event")]
    return Answer(items=items, cut=len(found) > limit)


def _causes(connection: Connection, event: Event, limit: int) -> list[Event]:
    """From the first cause to the last before the event; what is archived is the end of the chain."""
    found: list[Event] = []
    while event.cause is not None and len(found) < limit:
        cause = events_at(connection, {event.cause}).get(event.cause)
        if cause is None:
            break
        found.append(cause)
        event = cause
    return found[::-1]


def _consequences(connection: Connection, event: Event, limit: int) -> dict[int, list[Event]]:
    """Position → the events that it directly led to, generation by generation."""
    found: dict[int, list[Event]] = {}
    generation, count = [event.position], 0
    while generation and count < limit:
        children = consequences(connection, generation, limit=limit - count)
        for it in children:
            found.setdefault(it.cause or 0, []).append(it)
        generation, count = [it.position for it in children], count + len(children)
    return found


def _tree(event: Event, below: dict[int, list[Event]], depth: int, *, role: str) -> Iterator[Item]:
    yield _item(event, depth, role=role)
    for it in below.get(event.position, ()):
        yield from _tree(it, below, depth + 1, role="consequence")


def _item(event: Event, depth: int, *, role: str) -> Item:
    told = entry(event)
    return {"depth": depth, "role": role, "tree": f"{'· ' * depth}{subject_of(event)}: {told['what']}", **told}
