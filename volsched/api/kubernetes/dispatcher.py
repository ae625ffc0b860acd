"""The Kubernetes-style API: parses a request, dispatches it, and always answers it."""

import logging
import time
from collections.abc import Awaitable, Callable

from starlette.requests import ClientDisconnect, Request
from starlette.types import Receive, Scope, Send

from volsched.api.health import HttpMetrics
from volsched.api.kubernetes import discovery
from volsched.api.kubernetes.bodies import RequestBody
from volsched.api.kubernetes.client_leases import create_lease, delete_lease, patch_lease, update_lease
from volsched.api.kubernetes.evictions import evict
from volsched.api.kubernetes.negotiation import HttpAnswer, wanted_form
from volsched.api.kubernetes.queries import is_watch
from volsched.api.kubernetes.read_handlers import get_object, list_objects
from volsched.api.kubernetes.resources import (
    BINDING,
    EVICTION,
    SCALE,
    ApiGroup,
    GroupVersion,
    Place,
    RequestTarget,
    Resource,
    ResourceStorage,
    Root,
    parse_path,
)
from volsched.api.kubernetes.statuses import UNSERVED, ApiError, error_of, store_error, unserved
from volsched.api.kubernetes.watch_handlers import watch_objects
from volsched.api.kubernetes.write_handlers import (
    bind,
    create,
    delete,
    delete_collection,
    get_scale,
    patch,
    patch_scale,
    update,
    update_scale,
)
from volsched.api.limits import receive_body
from volsched.api.services import Services
from volsched.api.watch_response import Watch, send_refusal, send_watch
from volsched.objects.rules.admission import NAMESPACE
from volsched.objects.rules.object_events import ObjectError

_log = logging.getLogger("volsched.api")

Serve = Callable[[Services, RequestTarget, dict[str, str], RequestBody], Awaitable[HttpAnswer]]
WRITERS: dict[tuple[str, str], Serve] = {
    ("POST", "collection"): create,
    ("DELETE", "collection"): delete_collection,
    ("PUT", "object"): update,
    ("PATCH", "object"): patch,
    ("DELETE", "object"): delete,
    ("PUT", "status"): update,
    ("PATCH", "status"): patch,
    ("POST", BINDING): bind,
    ("POST", EVICTION): evict,
    ("PUT", SCALE): update_scale,
    ("PATCH", SCALE): patch_scale,
}
LEASE_WRITERS: dict[tuple[str, str], Serve] = {
    ("POST", "collection"): create_lease,
    ("PUT", "object"): update_lease,
    ("PATCH", "object"): patch_lease,
    ("DELETE", "object"): delete_lease,
}
"""(method, target) → handler. Reads are dispatched apart: they may end in a watch."""
VERBS = {
    ("POST", "collection"): "create",
    ("DELETE", "collection"): "deletecollection",
    ("PUT", "object"): "update",
    ("PUT", "status"): "update",
    ("POST", BINDING): "create",
    ("POST", EVICTION): "create",
    ("PUT", SCALE): "update",
}


class Kubernetes:
    """An ASGI application for `/api` and `/apis`."""

    def __init__(self, services: Services, metrics: HttpMetrics) -> None:
        self._services = services
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        begun = time.perf_counter()
        place = parse_path(_raw_path(scope))
        verb, resource = _verb(request, place), _resource_name(place)
        watch: Watch | None = None
        try:
            served = await self._serve(request, place)
            if isinstance(served, Watch):
                watch = served
                answer = HttpAnswer({})
            else:
                answer = _or_not_modified(request, served)
        except ClientDisconnect:
            return
        except Exception as error:
            answer = self._failed(error, place, request)
            if verb == "watch" and answer.code == 410:
                self._metrics.count(verb, resource, answer.code, time.perf_counter() - begun)
                await send_refusal(ApiError(410, answer.body["message"]), send)
                return
        self._metrics.count(verb, resource, answer.code, time.perf_counter() - begun)
        if watch is not None:
            await send_watch(watch, receive, send)
        else:
            await answer.response()(scope, receive, send)

    def _failed(self, error: Exception, place: Place | None, request: Request) -> HttpAnswer:
        deletion = request.method == "DELETE"
        api_error = (
            error_of(error, place, deletion=deletion) if isinstance(place, RequestTarget) else store_error(error)
        )
        if api_error.code == 500 and not isinstance(error, ApiError | ObjectError):
            _log.error("%s %s failed", request.method, request.url.path, exc_info=error)
        return HttpAnswer(api_error.status, api_error.code)

    async def _serve(self, request: Request, place: Place | None) -> HttpAnswer | Watch:
        if place is None:
            raise ApiError(404, unserved(request.url.path))
        if not isinstance(place, RequestTarget):
            return _discovery_answer(request, place)
        query = dict(request.query_params)
        wanted = wanted_form(request.headers.get("accept"))
        about = place.subresource or ("collection" if place.name is None else "object")
        if request.method == "GET" and about == "collection":
            if is_watch(query):
                if "watch" not in place.resource.verbs:
                    raise ApiError(405, f"{place.resource.plural} cannot be watched; get them instead")
                return await watch_objects(self._services, place, query, wanted)
            return await list_objects(self._services, place, query, wanted)
        if request.method in ("GET", "HEAD") and about in ("object", "status"):
            return await get_object(self._services, place, query, wanted)
        if request.method in ("GET", "HEAD") and about == SCALE:
            return await get_scale(self._services, place, query)
        serve = _writers(place.resource).get((request.method, about))
        in_namespace = place.namespace is not None or not place.resource.namespaced
        creates = about == "collection" and request.method == "POST"
        undeletable = serve is delete_collection and place.resource.kind.name == NAMESPACE
        if serve is None or undeletable or (creates and not in_namespace):
            raise ApiError(405, "the server does not allow this method on the requested resource")
        limits = self._services.limits
        body = RequestBody(
            await receive_body(request, most=limits.body_bytes, seconds=limits.body_seconds),
            request.headers.get("content-type"),
            request.headers.get("user-agent", ""),
        )
        return await serve(self._services, place, query, body)


def _or_not_modified(request: Request, answer: HttpAnswer) -> HttpAnswer:
    """304 where the client has this answer already."""
    etag = answer.headers.get("etag")
    if etag is None or etag not in request.headers.get("if-none-match", ""):
        return answer
    return HttpAnswer(b"", 304, headers=answer.headers)


def _writers(resource: Resource) -> dict[tuple[str, str], Serve]:
    match resource.stored_in:
        case ResourceStorage.LOG:
            return WRITERS
        case ResourceStorage.BESIDE:
            return LEASE_WRITERS
        case ResourceStorage.NOT:
            raise ApiError(405, f"{resource.plural} are not kept here: there are none, and none can be created")


def _discovery_answer(request: Request, place: Root | ApiGroup | GroupVersion) -> HttpAnswer:
    if request.method not in ("GET", "HEAD"):
        raise ApiError(405, "the server does not allow this method on the requested resource")
    match place:
        case Root(core=True):
            return HttpAnswer(discovery.core_versions())
        case Root():
            return HttpAnswer(discovery.groups())
        case ApiGroup(name):
            document = discovery.group(name)
        case GroupVersion(group, version):
            document = discovery.resource_list(group, version)
    if document is None:
        raise ApiError(404, UNSERVED)
    return HttpAnswer(document)


def _raw_path(scope: Scope) -> str:
    raw: bytes = scope.get("raw_path") or scope["path"].encode()
    return raw.decode("ascii", "replace")


def _verb(request: Request, place: Place | None) -> str:
    """Kubernetes' verb; of few values, because it labels metrics."""
    if not isinstance(place, RequestTarget):
        return "get" if request.method == "GET" else "other"
    about = place.subresource or ("collection" if place.name is None else "object")
    if request.method == "GET" and about == "collection":
        watch = request.query_params.get("watch")
        return "list" if watch in (None, "false", "0") else "watch"
    known = request.method in ("GET", "HEAD", "PATCH", "DELETE")
    return VERBS.get((request.method, about), request.method.lower() if known else "other")


def _resource_name(place: Place | None) -> str:
    if not isinstance(place, RequestTarget):
        return "none" if place is None else "discovery"
    plural = place.resource.plural
    return f"{plural}/{place.subresource}" if place.subresource else plural
