"""Reading objects for a request: one of them, a page of a collection, or what became of them since a version.

Called in threads, because it asks the database.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from sqlalchemy import Connection

from volsched.api.kubernetes.paths import RequestTarget
from volsched.api.kubernetes.queries import Listing, Match
from volsched.api.kubernetes.resources import Kept
from volsched.api.kubernetes.statuses import not_found, too_large_version
from volsched.api.watch_events import WatchEvent, changes_of
from volsched.log.client_leases import client_lease, client_leases
from volsched.log.database import Database
from volsched.log.events.fold import BindingState, ObjectState, State
from volsched.log.events.streams import BINDING
from volsched.log.reads.as_of import Now
from volsched.log.reads.object_pages import events_of_kind, page, page_as_of
from volsched.log.reads.tail import read_head, state_as_of
from volsched.questions.get.cells import Item

CHUNK = 500
"""Objects that are read at a time where a selector leaves some of them out."""
Found = tuple[str, ObjectState]


@dataclass(frozen=True, slots=True)
class Page:
    position: int
    items: tuple[Item, ...]
    more: bool = False
    """There is at least one object behind the last of these."""


def read_one(database: Database, target: RequestTarget, *, least: int | None, now: int) -> Item:
    """The object; ApiError 404 where there is none, 504 where its version is one that nobody has given out."""
    with database.read() as connection:
        head = read_head(connection).position
        if least is not None and least > head:
            raise too_large_version(least, head)
        state = _one(database, connection, head, target)
        if not isinstance(state, ObjectState):
            raise not_found(target)
        return next(_items(connection, head, [(target.key, state)], now))


def _one(database: Database, connection: Connection, head: int, target: RequestTarget) -> State | None:
    match target.resource.kept:
        case Kept.LOG:
            return Now(connection, head).one(target.resource.noun, target.key)
        case Kept.BESIDE:
            return client_lease(database, target.key)
        case Kept.NOT:
            return None


def read_page(database: Database, target: RequestTarget, asked: Listing, *, now: int) -> Page:
    """As of the version of the first page; ArchivedError where that is too long ago."""
    with database.read() as connection:
        head = read_head(connection).position
        if asked.position is not None and asked.position > head:
            raise too_large_version(asked.position, head)
        if target.resource.kept is not Kept.LOG:
            return Page(head, _beside(database, target, asked, now))
        exact = asked.match is Match.EXACT and asked.position is not None and asked.position < head
        position = asked.position if exact and asked.position is not None else head
        found = list(_matching(connection, target, asked, position if exact else None))
        more = asked.limit is not None and len(found) > asked.limit
        shown = found[: asked.limit] if more else found
        return Page(position, tuple(_items(connection, position, shown, now)), more)


def _beside(database: Database, target: RequestTarget, asked: Listing, now: int) -> tuple[Item, ...]:
    """All of what is not in the log: there are as many leases as clients, so pages are not worth it."""
    found = client_leases(database, target.namespace) if target.resource.kept is Kept.BESIDE else []
    return tuple(Item(key, state, now) for key, state in found if asked.selection.matches(state.manifest or {}))


def read_changes(database: Database, noun: str, *, after: int, until: int) -> list[WatchEvent]:
    """What became of the objects of a kind between two positions; ArchivedError where that is too long ago."""
    with database.read() as connection:
        events = list(events_of_kind(connection, noun, after=after, until=until))
        before = {it.stream: state_as_of(connection, it.stream, position=after) for it in events}
    return list(changes_of(events, {stream: state for stream, state in before.items() if state is not None}))


def _matching(
    connection: Connection, target: RequestTarget, asked: Listing, position: int | None
) -> Iterator[Found]:
    """The objects that are selected, one more than a page holds where there are so many."""
    noun, namespace, after, left = target.resource.noun, target.namespace, asked.after, asked.limit
    size = None if left is None else max(left + 1, CHUNK) if not asked.selection.everything else left + 1
    count = 0
    while True:
        if position is None:
            found = page(connection, noun, namespace=namespace, after=after, limit=size)
        else:
            found = page_as_of(connection, noun, position=position, namespace=namespace, after=after, limit=size)
        for key, state in found:
            if asked.selection.matches(state.manifest or {}):
                count += 1
                yield key, state
                if left is not None and count > left:
                    return
        if size is None or len(found) < size:
            return
        after = found[-1][0]


def _items(connection: Connection, position: int, found: Iterable[Found], now: int) -> Iterator[Item]:
    """With the open bindings whose assumptions lie over the objects."""
    look = Now(connection, position)
    known: dict[str, BindingState | None] = {}
    for key, state in found:
        binding = None
        if state.assumed is not None:
            id_ = state.assumed.binding
            if id_ not in known:
                held = look.one(BINDING, id_)
                known[id_] = held if isinstance(held, BindingState) and held.open else None
            binding = known[id_]
        yield Item(key, state, now, binding)
