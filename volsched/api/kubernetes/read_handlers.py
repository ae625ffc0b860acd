"""Requests that read: get, list and watch."""

from collections.abc import Callable, Mapping
from typing import Any

from volsched.api.kubernetes import tables
from volsched.api.kubernetes.answers import HttpAnswer
from volsched.api.kubernetes.negotiation import PLAIN, AnswerFormat, AnswerRequest
from volsched.api.kubernetes.object_reads import Page, read_changes, read_one, read_page
from volsched.api.kubernetes.paths import RequestTarget
from volsched.api.kubernetes.queries import Listing, Query, WatchRequest, least_version, listing, token, watching
from volsched.api.kubernetes.resources import Resource
from volsched.api.kubernetes.statuses import ApiError, expired
from volsched.api.limits import Taken
from volsched.api.services import Services
from volsched.api.watch_events import ADDED, BOOKMARK, Scope, WatchEvent, event_line
from volsched.api.watch_response import DEFAULT_SECONDS, MOST_SECONDS, Watch
from volsched.log.events.fold import ObjectState, versioned
from volsched.log.reads.tail import read_head
from volsched.questions.get.cells import Item

CATCH_UP_TRIES = 3
INITIAL_EVENTS_END = "k8s.io/initial-events-end"


async def get_object(services: Services, target: RequestTarget, query: Query, wanted: AnswerRequest) -> HttpAnswer:
    least, now = least_version(query), services.clock()
    item = await services.read(read_one, services.database, target, least=least, now=now)
    manifest = _manifest(target.resource, item)
    match wanted.form:
        case AnswerFormat.TABLE:
            version = {"resourceVersion": manifest["metadata"]["resourceVersion"]}
            row = tables.row(target.resource, item, manifest, _include(query), wanted)
            return HttpAnswer(tables.table(target.resource, [row], version, wanted))
        case AnswerFormat.METADATA:
            return HttpAnswer(tables.partial(manifest, wanted))
        case _:
            return HttpAnswer(manifest)


async def list_objects(
    services: Services, target: RequestTarget, query: Query, wanted: AnswerRequest
) -> HttpAnswer:
    asked = listing(query, target.resource)
    include = _include(query)
    found = await services.read(read_page, services.database, target, asked, now=services.clock())
    return await services.read(lambda: HttpAnswer(_listed(target.resource, found, wanted, include)).spelled())


def _listed(resource: Resource, found: Page, wanted: AnswerRequest, include: str) -> dict[str, Any]:
    metadata: dict[str, Any] = {"resourceVersion": str(found.position)}
    if found.more:
        metadata["continue"] = token(found.position, found.items[-1].key)
    items = [(item, _manifest(resource, item)) for item in found.items]
    match wanted.form:
        case AnswerFormat.TABLE:
            rows = [tables.row(resource, item, manifest, include, wanted) for item, manifest in items]
            return tables.table(resource, rows, metadata, wanted)
        case AnswerFormat.METADATA_LIST | AnswerFormat.METADATA:
            return tables.partial_list((manifest for _, manifest in items), metadata, wanted)
        case _:
            return tables.object_list(resource, (manifest for _, manifest in items), metadata)


def _manifest(resource: Resource, item: Item) -> dict[str, Any]:
    assert isinstance(item.state, ObjectState)
    type_ = {"apiVersion": resource.kind.api_version, "kind": resource.kind.name}
    return resource.as_shown({**type_, **versioned(item.state)})


async def watch_objects(services: Services, target: RequestTarget, query: Query, wanted: AnswerRequest) -> Watch:
    """A watch that is ready to go; ApiError 410 where what it asks for is not to be had any more, or never was."""
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
    """What is there now, as if it had just been added; answers the position of that."""
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
    """What came after the version that the client has; answers up to where."""
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
        # What comes while we read is behind it, and is found in the ring.
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
    """How this watcher wants its changes written. Whole objects are written once for all of them."""
    if wanted == PLAIN:
        if resource.has_own_form:
            return lambda type_, change: event_line(type_, resource.as_shown(change.shown(type_)[1]))
        return lambda type_, change: change.line(type_)
    if wanted.form is not AnswerFormat.TABLE:
        return lambda type_, change: event_line(type_, tables.partial(change.shown(type_)[1], wanted))
    begun = False

    def as_table(type_: str, change: WatchEvent) -> bytes:
        nonlocal begun
        state, manifest = change.shown(type_)
        shown = resource.as_shown(manifest)
        row = tables.row(resource, Item(change.key, state, clock()), shown, include, wanted)
        version: Mapping[str, Any] = {"resourceVersion": str(change.position)}
        table = tables.table(resource, [row], version, wanted, head=not begun)
        begun = True
        return event_line(type_, table)

    return as_table


def _include(query: Query) -> str:
    given = query.get("includeObject") or "Metadata"
    if given not in tables.INCLUDES:
        raise ApiError(400, f'includeObject: Unsupported value: "{given[:80]}"; use {", ".join(tables.INCLUDES)}')
    return given
