"""Requests that watch: what is sent first, and how each change is serialised for its watcher.

The watch itself, with its timeouts, is in `watch_response`.
"""

from collections.abc import Callable, Mapping
from typing import Any

from volsched.api.kubernetes import negotiation
from volsched.api.kubernetes.negotiation import PLAIN, AnswerFormat, AnswerRequest
from volsched.api.kubernetes.queries import ListOptions, Query, WatchOptions, watch_options
from volsched.api.kubernetes.read_handlers import Page, include_of, read_page
from volsched.api.kubernetes.resources import RequestTarget, Resource
from volsched.api.kubernetes.statuses import expired
from volsched.api.limits import WatchSlot
from volsched.api.services import Services
from volsched.api.watch_cache import ADDED, BOOKMARK, Scope, WatchEvent, changes_of, event_line
from volsched.api.watch_response import DEFAULT_SECONDS, MOST_SECONDS, Watch
from volsched.log.database import Database
from volsched.log.reads.lookups import events_of_kind
from volsched.log.reads.tail import read_head, state_as_of
from volsched.questions.get.documents import Item

CATCH_UP_TRIES = 3
INITIAL_EVENTS_END = "k8s.io/initial-events-end"


async def watch_objects(services: Services, target: RequestTarget, query: Query, wanted: AnswerRequest) -> Watch:
    """A watch that is ready to start; ApiError 410 where its version is gone, or never existed."""
    options = watch_options(query, target.resource)
    slot = services.shares.enter(services.caller())
    try:
        return await _watch(services, target, query, wanted, options, slot)
    except BaseException:
        slot.end()
        raise


async def _watch(
    services: Services,
    target: RequestTarget,
    query: Query,
    wanted: AnswerRequest,
    options: WatchOptions,
    slot: WatchSlot,
) -> Watch:
    serialise = _serialiser(target.resource, wanted, include_of(query), services.clock)
    scope = Scope(target.namespace, options.selection)
    lines: list[bytes] = []
    if options.position is None or options.send_initial:
        position = await _add_initial(services, target, options, serialise, lines)
    else:
        position = await _add_missed(services, target, options.position, scope, serialise, lines)

    def line_of(change: WatchEvent) -> bytes:
        type_ = scope.type_for(change)
        return b"" if type_ is None else serialise(type_, change)

    return Watch(
        fan=services.fan,
        slot=slot,
        noun=target.resource.noun,
        position=position,
        line_of=line_of,
        line_group=("all of", target.namespace)
        if wanted == PLAIN and options.selection.everything and not target.resource.has_own_form
        else None,
        first=b"".join(lines),
        seconds=min(options.timeout_seconds or DEFAULT_SECONDS, MOST_SECONDS),
        bookmark=(lambda at: _bookmark(target.resource, at)) if options.bookmarks else None,
    )


Serialise = Callable[[str, WatchEvent], bytes]


async def _add_initial(
    services: Services, target: RequestTarget, options: WatchOptions, serialise: Serialise, lines: list[bytes]
) -> int:
    """Adds the present objects as ADDED events; returns their position."""
    everything = ListOptions(selection=options.selection, position=options.position)
    page = await services.read(read_page, services.database, target, everything, now=services.clock())
    # As with lists: thousands of objects take a while.
    lines += await services.read(_added_lines, target.resource, page, serialise)
    if options.send_initial and options.bookmarks:
        end = _bookmark(target.resource, page.position)
        end["metadata"]["annotations"] = {INITIAL_EVENTS_END: "true"}
        lines.append(event_line(BOOKMARK, end))
    return page.position


def _added_lines(resource: Resource, page: Page, serialise: Serialise) -> list[bytes]:
    return [serialise(ADDED, _as_change(resource, item)) for item in page.items]


def _lines_of(changes: list[WatchEvent], scope: Scope, serialise: Serialise) -> list[bytes]:
    typed = ((scope.type_for(change), change) for change in changes)
    return [serialise(type_, change) for type_, change in typed if type_ is not None]


def _as_change(resource: Resource, item: Item) -> WatchEvent:
    state: Any = item.state
    return WatchEvent(state.rv, resource.noun, item.key, None, state)


async def _add_missed(
    services: Services,
    target: RequestTarget,
    position: int,
    scope: Scope,
    serialise: Serialise,
    lines: list[bytes],
) -> int:
    """Adds the changes after the client's version; returns the position reached."""
    head = await services.read(_head, services)
    if position > head:
        raise expired(
            f"resourceVersion {position} is from the future: the log ends at {head}. It belongs to another "
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
        lines += await services.read(_lines_of, missed, scope, serialise)
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


def _serialiser(resource: Resource, wanted: AnswerRequest, include: str, clock: Callable[[], int]) -> Serialise:
    """This watcher's serialisation of changes. Whole objects are serialised once for all of them."""
    if wanted == PLAIN:
        if resource.has_own_form:
            return lambda type_, change: event_line(type_, resource.as_shown(change.object_in(type_)[1]))
        return lambda type_, change: change.line(type_)
    if wanted.form is not AnswerFormat.TABLE:
        return lambda type_, change: event_line(type_, negotiation.partial(change.object_in(type_)[1], wanted))
    begun = False

    def as_table(type_: str, change: WatchEvent) -> bytes:
        nonlocal begun
        state, manifest = change.object_in(type_)
        shown = resource.as_shown(manifest)
        cells = negotiation.cells_of(resource, Item(change.key, state, clock()))
        row = negotiation.row(cells, include, lambda: shown, lambda: negotiation.partial(shown, wanted))
        version: Mapping[str, Any] = {"resourceVersion": str(change.position)}
        table = negotiation.table(resource, [row], version, wanted, head=not begun)
        begun = True
        return event_line(type_, table)

    return as_table


def read_changes(database: Database, noun: str, *, after: int, until: int) -> list[WatchEvent]:
    """The changes of the objects of a kind between two positions; ArchivedError where that is too old."""
    with database.read() as connection:
        events = list(events_of_kind(connection, noun, after=after, until=until))
        before = {it.stream: state_as_of(connection, it.stream, position=after) for it in events}
    return list(changes_of(events, {stream: state for stream, state in before.items() if state is not None}))
