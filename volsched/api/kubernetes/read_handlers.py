"""Requests that read: get and list, and how objects are read and shown for them. Watches: `watch_handlers`."""

from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import orjson
from sqlalchemy import Connection

from volsched.api.kubernetes import negotiation
from volsched.api.kubernetes.negotiation import PLAIN, AnswerFormat, AnswerRequest, HttpAnswer
from volsched.api.kubernetes.queries import (
    ListOptions,
    Match,
    Query,
    least_version,
    list_options,
    token,
)
from volsched.api.kubernetes.resources import RequestTarget, Resource, ResourceStorage
from volsched.api.kubernetes.statuses import ApiError, not_found, too_large_version
from volsched.api.object_cache import KindCache
from volsched.api.services import Services
from volsched.log.database import Database
from volsched.log.events.fold import BindingState, ObjectState, State, versioned
from volsched.log.events.streams import BINDING
from volsched.log.leases import client_lease, client_leases
from volsched.log.reads.as_of import view_at
from volsched.log.reads.lookups import page, page_as_of
from volsched.log.reads.tail import read_head
from volsched.questions.get.columns import columns_of
from volsched.questions.get.documents import Column, Item

# Reading objects for a request: one of them, or a page of a collection.
#
# Called in threads, because it reads the database.

CHUNK = 500
"""Objects that are read at a time where a selector filters some of them out."""
KeyedState = tuple[str, ObjectState]


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
        state = _state_of(database, connection, head, target)
        if not isinstance(state, ObjectState):
            raise not_found(target)
        return next(_with_bindings(connection, head, [(target.key, state)], now))


def _state_of(database: Database, connection: Connection, head: int, target: RequestTarget) -> State | None:
    match target.resource.stored_in:
        case ResourceStorage.LOG:
            return view_at(connection, head).one(target.resource.noun, target.key)
        case ResourceStorage.BESIDE:
            return client_lease(database, target.key)
        case ResourceStorage.NOT:
            return None


def read_page(database: Database, target: RequestTarget, options: ListOptions, *, now: int) -> Page:
    """A page as of the version of the first page; ArchivedError where that is too old."""
    with database.read() as connection:
        head = read_head(connection).position
        if options.position is not None and options.position > head:
            raise too_large_version(options.position, head)
        if target.resource.stored_in is not ResourceStorage.LOG:
            return Page(head, _leases(database, target, options, now))
        exact = options.match is Match.EXACT and options.position is not None and options.position < head
        position = options.position if exact and options.position is not None else head
        states = list(_selected_states(connection, target, options, position if exact else None))
        more = options.limit is not None and len(states) > options.limit
        shown = states[: options.limit] if more else states
        return Page(position, tuple(_with_bindings(connection, position, shown, now)), more)


def _leases(database: Database, target: RequestTarget, options: ListOptions, now: int) -> tuple[Item, ...]:
    """All objects outside the log, on one page: there are only as many leases as clients."""
    leases = (
        client_leases(database, target.namespace) if target.resource.stored_in is ResourceStorage.BESIDE else []
    )
    return tuple(Item(key, state, now) for key, state in leases if options.selection.matches(state.manifest or {}))


def _selected_states(
    connection: Connection, target: RequestTarget, options: ListOptions, position: int | None
) -> Iterator[KeyedState]:
    """The selected objects, one more than a page holds where there are so many."""
    noun, namespace, after, left = target.resource.noun, target.namespace, options.after, options.limit
    size = None if left is None else max(left + 1, CHUNK) if not options.selection.everything else left + 1
    count = 0
    while True:
        if position is None:
            batch = page(connection, noun, namespace=namespace, after=after, limit=size)
        else:
            batch = page_as_of(connection, noun, position=position, namespace=namespace, after=after, limit=size)
        for key, state in batch:
            if options.selection.matches(state.manifest or {}):
                count += 1
                yield key, state
                if left is not None and count > left:
                    return
        if size is None or len(batch) < size:
            return
        after = batch[-1][0]


def _with_bindings(
    connection: Connection, position: int, states: Iterable[KeyedState], now: int
) -> Iterator[Item]:
    """The objects, each with the open binding that has assumed it."""
    view = view_at(connection, position)
    bindings: dict[str, BindingState | None] = {}
    for key, state in states:
        binding = None
        if state.assumed is not None:
            id_ = state.assumed.binding
            if id_ not in bindings:
                stored = view.one(BINDING, id_)
                bindings[id_] = stored if isinstance(stored, BindingState) and stored.open else None
            binding = bindings[id_]
        yield Item(key, state, now, binding)


MOST_IN_THE_LOOP = 501
"""Objects that the event loop lists itself: a page of kubectl, and the one that says that there are more.

Most of them are encoded already. A longer list would block other requests.
"""


async def get_object(services: Services, target: RequestTarget, query: Query, wanted: AnswerRequest) -> HttpAnswer:
    least, now, include = least_version(query), services.clock(), include_of(query)
    cached = await _cached_kind(services, target, query, least)
    state = None if cached is None else cached.states.get(target.key)
    if cached is not None and state is None:
        raise not_found(target)
    if state is not None and _depends_on_version_alone(state, wanted):
        item = Item(target.key, state, now)
    else:
        item, cached = await services.read(read_one, services.database, target, least=least, now=now), None
    rendering = Rendering(target.resource, wanted, include, cached)
    assert isinstance(item.state, ObjectState)
    version = str(item.state.rv)
    if wanted.form is AnswerFormat.TABLE:
        rows = [rendering.rendered(item)]
        return HttpAnswer(negotiation.table(target.resource, rows, {"resourceVersion": version}, wanted))
    etag = {"etag": f'"{version}"'} if wanted == PLAIN and target.resource.stored_in is ResourceStorage.LOG else {}
    return HttpAnswer(rendering.rendered(item), headers=etag)


async def list_objects(
    services: Services, target: RequestTarget, query: Query, wanted: AnswerRequest
) -> HttpAnswer:
    options, include = list_options(query, target.resource), include_of(query)
    least = None if options.match is Match.EXACT else options.position
    cached = await _cached_kind(services, target, query, least)
    if cached is not None:
        position = _position_of_list(options, cached, services.fan.position)
        if position is not None:
            everything = options.selection.everything
            most = None if options.limit is None or not everything else options.limit + 1
            states = cached.objects(namespace=target.namespace, after=options.after, most=most)
            # A long list is built in a thread, without the cache, which only the event loop uses.
            short = len(states) <= MOST_IN_THE_LOOP
            rendering = Rendering(target.resource, wanted, include, cached if short else None)
            call = partial(_cached_list, rendering, options, position, states, services.clock())
            answer = call() if short else await services.read(call)
            if answer is not None:
                return answer
    page = await services.read(read_page, services.database, target, options, now=services.clock())
    return await services.read(
        lambda: HttpAnswer(Rendering(target.resource, wanted, include).list_document(page)).serialised()
    )


async def _cached_kind(
    services: Services, target: RequestTarget, query: Query, least: int | None
) -> KindCache | None:
    """The objects of the kind in memory, as new as the request demands; None: the database has to be read.

    Without a version, a client gets everything that was written before its request, by any process. With a version
    it gets nothing older; 0 accepts any version.
    """
    if services.freshness is None or target.resource.stored_in is not ResourceStorage.LOG:
        return None
    if services.read_only and target.resource.noun == "pod":
        # The present state of an observed cluster's pods is not in the log.
        return None
    known = services.fan.position
    if query.get("resourceVersion") != "0" and (least is None or known < least):
        if not await services.freshness.confirm():
            return None
        if least is not None and services.fan.position < least:
            return None
    return services.fan.objects.kind(target.resource.noun)


def _depends_on_version_alone(state: ObjectState, wanted: AnswerRequest) -> bool:
    """False for a table row of an assumed object: it also shows the binding, which is not part of the object."""
    return wanted.form is not AnswerFormat.TABLE or state.assumed is None


def _position_of_list(options: ListOptions, cached: KindCache, known: int) -> int | None:
    """The version of a list from memory; None: memory no longer holds the requested version."""
    if options.match is not Match.EXACT or options.position is None:
        return known
    return options.position if cached.changed <= options.position <= known else None


def _cached_list(
    rendering: "Rendering", options: ListOptions, position: int, states: list[KeyedState], now: int
) -> HttpAnswer | None:
    """None: the list shows bindings, which are not in memory."""
    everything = options.selection.everything
    if not everything:
        states = [it for it in states if options.selection.matches(it[1].manifest or {})]
    more = options.limit is not None and len(states) > options.limit
    chosen = states[: options.limit] if more else states
    if rendering.cached is not None and rendering.wanted == PLAIN and everything and chosen:
        return _with_etag(rendering.shared_list_document(position, chosen, more), position)
    if not all(_depends_on_version_alone(state, rendering.wanted) for _, state in chosen):
        return None
    page = Page(position, tuple(Item(key, state, now) for key, state in chosen), more)
    answer = rendering.list_document(page)
    return _with_etag(answer, position) if rendering.wanted == PLAIN else HttpAnswer(answer).serialised()


def _with_etag(answer: dict[str, Any], position: int) -> HttpAnswer:
    return HttpAnswer(orjson.dumps(answer), headers={"etag": f'"{position}"'})


@dataclass(frozen=True, slots=True)
class Rendering:
    """How objects are shown in an answer. With a cache, encodings made for one request are kept for the next."""

    resource: Resource
    wanted: AnswerRequest
    include: str
    cached: KindCache | None = None

    def list_document(self, page: Page) -> dict[str, Any]:
        metadata: dict[str, Any] = {"resourceVersion": str(page.position)}
        if page.more:
            metadata["continue"] = token(page.position, page.items[-1].key)
        items = map(self.rendered, page.items)
        match self.wanted.form:
            case AnswerFormat.TABLE:
                return negotiation.table(self.resource, items, metadata, self.wanted)
            case AnswerFormat.METADATA_LIST | AnswerFormat.METADATA:
                return negotiation.partial_list(items, metadata, self.wanted)
            case _:
                return negotiation.object_list(self.resource, list(items), metadata)

    def shared_list_document(self, position: int, states: list[KeyedState], more: bool) -> dict[str, Any]:
        """A list of whole objects that leaves out none between its first and its last. It is the same for all
        callers until an object of the kind changes."""
        assert self.cached is not None
        first, last = states[0][0], states[-1][0]
        metadata = {"resourceVersion": str(position)} | ({"continue": token(position, last)} if more else {})
        items = self.cached.cached_list(
            (self.resource.has_own_form, first, last),
            lambda: orjson.Fragment(
                orjson.dumps([self._full_object(Item(key, state, 0)) for key, state in states])
            ),
        )
        return negotiation.object_list(self.resource, items, metadata)

    def rendered(self, item: Item) -> Any:
        match self.wanted.form:
            case AnswerFormat.TABLE:
                return negotiation.row(
                    self._cells(item), self.include, lambda: self._full_object(item), lambda: self._metadata(item)
                )
            case AnswerFormat.METADATA_LIST | AnswerFormat.METADATA:
                return self._metadata(item)
            case _:
                return self._full_object(item)

    def _full_object(self, item: Item) -> Any:
        return self._cached_encoding(item, "whole", lambda: _manifest(self.resource, item))

    def _metadata(self, item: Item) -> Any:
        form = ("metadata", self.wanted.version)
        return self._cached_encoding(
            item, form, lambda: negotiation.partial(_manifest(self.resource, item), self.wanted)
        )

    def _cached_encoding(self, item: Item, form: Hashable, make: Callable[[], Any]) -> Any:
        if self.cached is None:
            return make()
        assert isinstance(item.state, ObjectState)
        key = form, self.resource.has_own_form
        return self.cached.encoding(item.key, item.state, key, lambda: orjson.Fragment(orjson.dumps(make())))

    def _cells(self, item: Item) -> list[str]:
        if self.cached is None:
            return negotiation.cells_of(self.resource, item)
        assert isinstance(item.state, ObjectState)
        kept = self.cached.encoding(
            item.key, item.state, "cells", lambda: negotiation.cells_of(self.resource, item)
        )
        cells = list(kept)
        for index, column in _aging_columns(self.resource.noun):
            cells[index] = column.value(item)
        return cells


@cache
def _aging_columns(noun: str) -> list[tuple[int, Column]]:
    """The columns of a kind that change with time."""
    return [(index, column) for index, column in enumerate(columns_of(noun, wide=True)) if column.ages]


def _manifest(resource: Resource, item: Item) -> dict[str, Any]:
    assert isinstance(item.state, ObjectState)
    type_ = {"apiVersion": resource.kind.api_version, "kind": resource.kind.name}
    return resource.as_shown({**type_, **versioned(item.state)})


def include_of(query: Query) -> str:
    include = query.get("includeObject") or "Metadata"
    if include not in negotiation.INCLUDES:
        raise ApiError(
            400, f'includeObject: Unsupported value: "{include[:80]}"; use {", ".join(negotiation.INCLUDES)}'
        )
    return include
