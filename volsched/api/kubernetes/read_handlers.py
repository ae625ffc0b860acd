"""Requests that read: get, list and watch, and how objects are read for them."""

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import orjson
from sqlalchemy import Connection

from volsched.api.kubernetes import negotiation
from volsched.api.kubernetes.negotiation import PLAIN, AnswerFormat, AnswerRequest, HttpAnswer
from volsched.api.kubernetes.queries import (
    Listing,
    Match,
    Query,
    WatchRequest,
    least_version,
    listing,
    token,
    watching,
)
from volsched.api.kubernetes.resources import Kept, RequestTarget, Resource
from volsched.api.kubernetes.statuses import ApiError, expired, not_found, too_large_version
from volsched.api.limits import Taken
from volsched.api.object_cache import KindCache
from volsched.api.services import Services
from volsched.api.watch_cache import ADDED, BOOKMARK, Scope, WatchEvent, changes_of, event_line
from volsched.api.watch_response import DEFAULT_SECONDS, MOST_SECONDS, Watch
from volsched.log.database import Database
from volsched.log.events.fold import BindingState, ObjectState, State, versioned
from volsched.log.events.streams import BINDING
from volsched.log.leases import client_lease, client_leases
from volsched.log.reads.as_of import look_at
from volsched.log.reads.lookups import events_of_kind, page, page_as_of
from volsched.log.reads.tail import read_head, state_as_of
from volsched.questions.get.columns import columns_of
from volsched.questions.get.documents import Column, Item

# Reading objects for a request: one of them, a page of a collection, or the changes since a version.
#
# Called in threads, because it reads the database.

CHUNK = 500
"""Objects that are read at a time where a selector filters some of them out."""
Found = tuple[str, ObjectState]


@dataclass(frozen=True, slots=True)
class Page:
    position: int
    items: tuple[Item, ...]
    more: bool = False
    """There is at least one object after the last of these."""


def read_one(database: Database, target: RequestTarget, *, least: int | None, now: int) -> Item:
    """The object; ApiError 404 where there is none, 504 where the requested version is in the future."""
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
            return look_at(connection, head).one(target.resource.noun, target.key)
        case Kept.BESIDE:
            return client_lease(database, target.key)
        case Kept.NOT:
            return None


def read_page(database: Database, target: RequestTarget, asked: Listing, *, now: int) -> Page:
    """As of the version of the first page; ArchivedError where that is too old."""
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
    """All objects outside the log: there are as many leases as clients, so pages are not worth it."""
    found = client_leases(database, target.namespace) if target.resource.kept is Kept.BESIDE else []
    return tuple(Item(key, state, now) for key, state in found if asked.selection.matches(state.manifest or {}))


def read_changes(database: Database, noun: str, *, after: int, until: int) -> list[WatchEvent]:
    """The changes of the objects of a kind between two positions; ArchivedError where that is too old."""
    with database.read() as connection:
        events = list(events_of_kind(connection, noun, after=after, until=until))
        before = {it.stream: state_as_of(connection, it.stream, position=after) for it in events}
    return list(changes_of(events, {stream: state for stream, state in before.items() if state is not None}))


def _matching(
    connection: Connection, target: RequestTarget, asked: Listing, position: int | None
) -> Iterator[Found]:
    """The selected objects, one more than a page holds where there are so many."""
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
    look = look_at(connection, position)
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


CATCH_UP_TRIES = 3
MOST_IN_THE_LOOP = 501
"""Objects that the event loop lists itself: a page of kubectl, and the one that says that there are more.

Mostly they are encoded already. A longer list would hold up other requests.
"""
INITIAL_EVENTS_END = "k8s.io/initial-events-end"


async def get_object(services: Services, target: RequestTarget, query: Query, wanted: AnswerRequest) -> HttpAnswer:
    least, now, include = least_version(query), services.clock(), _include(query)
    cached = await _cached(services, target, query, least)
    state = None if cached is None else cached.states.get(target.key)
    if cached is not None and state is None:
        raise not_found(target)
    if state is not None and _is_decided_by_version(state, wanted):
        item = Item(target.key, state, now)
    else:
        item, cached = await services.read(read_one, services.database, target, least=least, now=now), None
    rendering = Rendering(target.resource, wanted, include, cached)
    assert isinstance(item.state, ObjectState)
    version = str(item.state.rv)
    if wanted.form is AnswerFormat.TABLE:
        rows = [rendering.shown(item)]
        return HttpAnswer(negotiation.table(target.resource, rows, {"resourceVersion": version}, wanted))
    etag = {"etag": f'"{version}"'} if wanted == PLAIN and target.resource.kept is Kept.LOG else {}
    return HttpAnswer(rendering.shown(item), headers=etag)


async def list_objects(
    services: Services, target: RequestTarget, query: Query, wanted: AnswerRequest
) -> HttpAnswer:
    asked, include = listing(query, target.resource), _include(query)
    least = None if asked.match is Match.EXACT else asked.position
    cached = await _cached(services, target, query, least)
    if cached is not None:
        position = _listed_position(asked, cached, services.fan.position)
        if position is not None:
            everything = asked.selection.everything
            most = None if asked.limit is None or not everything else asked.limit + 1
            found = cached.objects(namespace=target.namespace, after=asked.after, most=most)
            # A long list is made in a thread, without the cache, which is the event loop's.
            short = len(found) <= MOST_IN_THE_LOOP
            rendering = Rendering(target.resource, wanted, include, cached if short else None)
            call = partial(_cached_list, rendering, asked, position, found, services.clock())
            answer = call() if short else await services.read(call)
            if answer is not None:
                return answer
    page = await services.read(read_page, services.database, target, asked, now=services.clock())
    return await services.read(
        lambda: HttpAnswer(Rendering(target.resource, wanted, include).listed(page)).spelled()
    )


async def _cached(services: Services, target: RequestTarget, query: Query, least: int | None) -> KindCache | None:
    """The objects of the kind in memory, as new as the request demands; None: the database has to be read.

    Without a version a client wants what was written before it asked, through whatever process. With one it wants
    nothing older, and 0 is any.
    """
    if services.freshness is None or target.resource.kept is not Kept.LOG:
        return None
    if services.read_only and target.resource.noun == "pod":
        # How pods of an observed cluster are is not in the log.
        return None
    known = services.fan.position
    if query.get("resourceVersion") != "0" and (least is None or known < least):
        if not await services.freshness.confirm():
            return None
        if least is not None and services.fan.position < least:
            return None
    return services.fan.objects.kind(target.resource.noun)


def _is_decided_by_version(state: ObjectState, wanted: AnswerRequest) -> bool:
    """A row shows the binding that has assumed the object, too, which is no part of the object."""
    return wanted.form is not AnswerFormat.TABLE or state.assumed is None


def _listed_position(asked: Listing, cached: KindCache, known: int) -> int | None:
    """The version of a list from memory; None: it is not as of the requested one any more."""
    if asked.match is not Match.EXACT or asked.position is None:
        return known
    return asked.position if cached.changed <= asked.position <= known else None


def _cached_list(
    rendering: "Rendering", asked: Listing, position: int, found: list[Found], now: int
) -> HttpAnswer | None:
    """None: what it shows is not in memory."""
    everything = asked.selection.everything
    if not everything:
        found = [it for it in found if asked.selection.matches(it[1].manifest or {})]
    more = asked.limit is not None and len(found) > asked.limit
    chosen = found[: asked.limit] if more else found
    if rendering.cached is not None and rendering.wanted == PLAIN and everything and chosen:
        return _tagged(rendering.repeated(position, chosen, more), position)
    if not all(_is_decided_by_version(state, rendering.wanted) for _, state in chosen):
        return None
    page = Page(position, tuple(Item(key, state, now) for key, state in chosen), more)
    answer = rendering.listed(page)
    return _tagged(answer, position) if rendering.wanted == PLAIN else HttpAnswer(answer).spelled()


def _tagged(answer: dict[str, Any], position: int) -> HttpAnswer:
    return HttpAnswer(orjson.dumps(answer), headers={"etag": f'"{position}"'})


@dataclass(frozen=True, slots=True)
class Rendering:
    """How objects are shown to a request. With a cache, what was made for one request is kept for the next."""

    resource: Resource
    wanted: AnswerRequest
    include: str
    cached: KindCache | None = None

    def listed(self, found: Page) -> dict[str, Any]:
        metadata: dict[str, Any] = {"resourceVersion": str(found.position)}
        if found.more:
            metadata["continue"] = token(found.position, found.items[-1].key)
        items = map(self.shown, found.items)
        match self.wanted.form:
            case AnswerFormat.TABLE:
                return negotiation.table(self.resource, items, metadata, self.wanted)
            case AnswerFormat.METADATA_LIST | AnswerFormat.METADATA:
                return negotiation.partial_list(items, metadata, self.wanted)
            case _:
                return negotiation.object_list(self.resource, list(items), metadata)

    def repeated(self, position: int, found: list[Found], more: bool) -> dict[str, Any]:
        """The list of whole objects, all that there are between its first and its last: until one of the kind
        changes, it is the same for everybody."""
        assert self.cached is not None
        first, last = found[0][0], found[-1][0]
        metadata = {"resourceVersion": str(position)} | ({"continue": token(position, last)} if more else {})
        items = self.cached.kept_list(
            (self.resource.has_own_form, first, last),
            lambda: orjson.Fragment(orjson.dumps([self._whole(Item(key, state, 0)) for key, state in found])),
        )
        return negotiation.object_list(self.resource, items, metadata)

    def shown(self, item: Item) -> Any:
        match self.wanted.form:
            case AnswerFormat.TABLE:
                return negotiation.row(
                    self._cells(item), self.include, lambda: self._whole(item), lambda: self._metadata(item)
                )
            case AnswerFormat.METADATA_LIST | AnswerFormat.METADATA:
                return self._metadata(item)
            case _:
                return self._whole(item)

    def _whole(self, item: Item) -> Any:
        return self._encoded(item, "whole", lambda: _manifest(self.resource, item))

    def _metadata(self, item: Item) -> Any:
        form = ("metadata", self.wanted.version)
        return self._encoded(item, form, lambda: negotiation.partial(_manifest(self.resource, item), self.wanted))

    def _encoded(self, item: Item, form: Hashable, make: Callable[[], Any]) -> Any:
        if self.cached is None:
            return make()
        assert isinstance(item.state, ObjectState)
        key = form, self.resource.has_own_form
        return self.cached.kept(item.key, item.state, key, lambda: orjson.Fragment(orjson.dumps(make())))

    def _cells(self, item: Item) -> list[str]:
        if self.cached is None:
            return negotiation.cells_of(self.resource, item)
        assert isinstance(item.state, ObjectState)
        kept = self.cached.kept(item.key, item.state, "cells", lambda: negotiation.cells_of(self.resource, item))
        cells = list(kept)
        for index, column in _aging(self.resource.noun):
            cells[index] = column.value(item)
        return cells


@cache
def _aging(noun: str) -> list[tuple[int, Column]]:
    """The columns of a kind that change with time."""
    return [(index, column) for index, column in enumerate(columns_of(noun, wide=True)) if column.ages]


def _manifest(resource: Resource, item: Item) -> dict[str, Any]:
    assert isinstance(item.state, ObjectState)
    type_ = {"apiVersion": resource.kind.api_version, "kind": resource.kind.name}
    return resource.as_shown({**type_, **versioned(item.state)})


async def watch_objects(services: Services, target: RequestTarget, query: Query, wanted: AnswerRequest) -> Watch:
    """A watch that is ready to start; ApiError 410 where its version is gone, or never existed."""
    asked = watching(query, target.resource)
    taken = services.shares.enter(services.caller())
    try:
        return await _watch(services, target, query, wanted, asked, taken)
    except BaseException:
        taken.end()
        raise


async def _watch(
    services: Services,
    target: RequestTarget,
    query: Query,
    wanted: AnswerRequest,
    asked: WatchRequest,
    taken: Taken,
) -> Watch:
    shown = _spelling(target.resource, wanted, _include(query), services.clock)
    scope = Scope(target.namespace, asked.selection)
    first: list[bytes] = []
    if asked.position is None or asked.send_initial:
        position = await _send_initial(services, target, asked, shown, first)
    else:
        position = await _send_missed(services, target, asked.position, scope, shown, first)

    def told(change: WatchEvent) -> bytes:
        type_ = scope.type_for(change)
        return b"" if type_ is None else shown(type_, change)

    return Watch(
        fan=services.fan,
        taken=taken,
        noun=target.resource.noun,
        position=position,
        shown=told,
        like=("all of", target.namespace)
        if wanted == PLAIN and asked.selection.everything and not target.resource.has_own_form
        else None,
        first=b"".join(first),
        seconds=min(asked.timeout_seconds or DEFAULT_SECONDS, MOST_SECONDS),
        bookmark=(lambda at: _bookmark(target.resource, at)) if asked.bookmarks else None,
    )


Spelling = Callable[[str, WatchEvent], bytes]


async def _send_initial(
    services: Services, target: RequestTarget, asked: WatchRequest, shown: Spelling, first: list[bytes]
) -> int:
    """The present objects as ADDED events; returns their position."""
    everything = Listing(selection=asked.selection, position=asked.position)
    found = await services.read(read_page, services.database, target, everything, now=services.clock())
    # As with lists: thousands of objects take a while.
    first += await services.read(_all_added, target.resource, found, shown)
    if asked.send_initial and asked.bookmarks:
        end = _bookmark(target.resource, found.position)
        end["metadata"]["annotations"] = {INITIAL_EVENTS_END: "true"}
        first.append(event_line(BOOKMARK, end))
    return found.position


def _all_added(resource: Resource, found: Page, shown: Spelling) -> list[bytes]:
    return [shown(ADDED, _as_change(resource, item)) for item in found.items]


def _spelled(missed: list[WatchEvent], scope: Scope, shown: Spelling) -> list[bytes]:
    told = ((scope.type_for(change), change) for change in missed)
    return [shown(type_, change) for type_, change in told if type_ is not None]


def _as_change(resource: Resource, item: Item) -> WatchEvent:
    state: Any = item.state
    return WatchEvent(state.rv, resource.noun, item.key, None, state)


async def _send_missed(
    services: Services, target: RequestTarget, position: int, scope: Scope, shown: Spelling, first: list[bytes]
) -> int:
    """The changes after the client's version; returns the position reached."""
    head = await services.read(_head, services)
    if position > head:
        raise expired(
            f"resourceVersion {position} is from the future: the log ends at {head}. It is that of another "
            "store, or this one was restored from a backup; list again"
        )
    ring, fan = services.fan.rings[target.resource.noun], services.fan
    for _ in range(CATCH_UP_TRIES):
        if position >= ring.floor:
            return position
        # Changes made while we read come after it, and are found in the ring.
        until = fan.position
        missed = await services.read(
            read_changes, services.database, target.resource.noun, after=position, until=until
        )
        first += await services.read(_spelled, missed, scope, shown)
        position = max(position, until)
    raise expired(f"resourceVersion {position} is too old; list again")


def _head(services: Services) -> int:
    with services.database.read() as connection:
        return read_head(connection).position


def _bookmark(resource: Resource, position: int) -> dict[str, Any]:
    return {
        "kind": resource.kind.name,
        "apiVersion": resource.kind.api_version,
        "metadata": {"resourceVersion": str(position), "creationTimestamp": None},
    }


def _spelling(resource: Resource, wanted: AnswerRequest, include: str, clock: Callable[[], int]) -> Spelling:
    """This watcher's serialisation of changes. Whole objects are serialised once for all of them."""
    if wanted == PLAIN:
        if resource.has_own_form:
            return lambda type_, change: event_line(type_, resource.as_shown(change.shown(type_)[1]))
        return lambda type_, change: change.line(type_)
    if wanted.form is not AnswerFormat.TABLE:
        return lambda type_, change: event_line(type_, negotiation.partial(change.shown(type_)[1], wanted))
    begun = False

    def as_table(type_: str, change: WatchEvent) -> bytes:
        nonlocal begun
        state, manifest = change.shown(type_)
        shown = resource.as_shown(manifest)
        cells = negotiation.cells_of(resource, Item(change.key, state, clock()))
        row = negotiation.row(cells, include, lambda: shown, lambda: negotiation.partial(shown, wanted))
        version: Mapping[str, Any] = {"resourceVersion": str(change.position)}
        table = negotiation.table(resource, [row], version, wanted, head=not begun)
        begun = True
        return event_line(type_, table)

    return as_table


def _include(query: Query) -> str:
    given = query.get("includeObject") or "Metadata"
    if given not in negotiation.INCLUDES:
        raise ApiError(
            400, f'includeObject: Unsupported value: "{given[:80]}"; use {", ".join(negotiation.INCLUDES)}'
        )
    return given
