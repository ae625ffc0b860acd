"""Between the API and its clients: windows per kind, cursors that expire as on a real server, faults on demand.

Our own API is more lenient than a real one: it finds old versions in the log and reports a cursor from the future.
A client tested only against it would meet neither. Faults are armed by `POST /strict/faults`; `GET /strict/calls`
answers which permissions each client has used.
"""

import asyncio
from contextlib import suppress
from dataclasses import replace
from urllib.parse import parse_qs, parse_qsl, urlencode

import orjson
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from volsched.api.kubernetes.negotiation import HttpAnswer
from volsched.api.kubernetes.queries import is_watch
from volsched.api.kubernetes.resources import RequestTarget, parse_path
from volsched.api.kubernetes.statuses import ApiError, expired, invalid_options, too_large_version
from volsched.api.strict.calls import ApiCall, call_of
from volsched.api.strict.faults import (
    GET,
    LIST,
    WATCH,
    WRITE,
    ArmedFault,
    ArmedFaults,
    FaultRequestError,
    RequestShape,
    ServerFault,
    fault_order,
    read_fault,
)
from volsched.api.watch_cache import Fan
from volsched.api.watch_response import send_refusal
from volsched.kube.validation.field_errors import forbidden

FAULTS_PATH = "/strict/faults"
CALLS_PATH = "/strict/calls"
CLAIMS = "persistentvolumeclaims"
WINDOW = 100
"""Changes of each kind that a watch can go back to."""
BEHIND = 10
"""Versions that the replica of a stale list is behind."""
LOOK_SECONDS = 0.1
NOT_ENABLED = "sendInitialEvents is forbidden for watch unless the WatchList feature gate is enabled"
PAGE_EXPIRED = (
    "The provided continue parameter is too old to display a consistent list result. You can start a new list "
    "without the continue parameter, or use the continue token in this response to retrieve the remainder."
)


class StrictServer:
    """An ASGI middleware, outside all others: a real server throttles before it authenticates."""

    def __init__(self, app: ASGIApp, fan: Fan, faults: ArmedFaults | None = None) -> None:
        self._app, self._fan = app, fan
        self.faults = faults or ArmedFaults()
        self._calls: set[ApiCall] = set()
        self._late_writes: set[asyncio.Task[None]] = set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        if scope["path"] == FAULTS_PATH:
            await (await self._arm(scope, receive))(scope, receive, send)
            return
        if scope["path"] == CALLS_PATH:
            await JSONResponse([call.as_json() for call in sorted(self._calls)])(scope, receive, send)
            return
        query = {name: values[-1] for name, values in parse_qs(scope["query_string"].decode()).items()}
        if call := call_of(scope["method"], scope["path"], query, client=_client(scope)):
            self._calls.add(call)
        place = parse_path(scope["path"])
        if not isinstance(place, RequestTarget):
            await self._app(scope, receive, send)
            return
        request = replace(_shape_of(scope["method"], place, query), client=_client(scope))
        if request.verb == WRITE and request.plural == CLAIMS:
            receive = _receive_of(without_data_state(await _body(receive)))
        fault = self.faults.take(request)
        if fault is not None:
            await self._with_fault(fault, scope, receive, send)
        elif (
            request.verb == WATCH
            and not request.streamed
            and await self._refuses_cursor(place, query, receive, send)
        ):
            return
        elif request.verb == WATCH:
            with suppress(_CutError):
                await self._app(scope, receive, self._breakable(send, request))
        else:
            await self._app(scope, receive, send)

    def _breakable(self, send: Send, request: RequestShape) -> Send:
        """A `send` that cuts the next line of an open watch where a cut is armed."""
        cut = _cut_send(send)

        async def sending(message: Message) -> None:
            taken = message.get("body") and self.faults.take(request, only=ServerFault.CUT)
            await (cut if taken else send)(message)

        return sending

    async def _arm(self, scope: Scope, receive: Receive) -> Response:
        if scope["method"] == "GET":
            return JSONResponse([fault_order(armed) for armed in self.faults.armed])
        if scope["method"] != "POST":
            return PlainTextResponse("POST a fault here, or GET those that have not happened yet\n", 405)
        body = await _body(receive)
        try:
            fault = read_fault(orjson.loads(body))
        except (FaultRequestError, orjson.JSONDecodeError) as error:
            return PlainTextResponse(f"{error}\n", 422)
        self.faults.armed.append(fault)
        return PlainTextResponse("armed\n", 201)

    async def _refuses_cursor(
        self, place: RequestTarget, query: dict[str, str], receive: Receive, send: Send
    ) -> bool:
        """A cursor that a real server would not serve, though the log still could."""
        version = query.get("resourceVersion", "")
        ring = self._fan.rings.get(place.resource.noun)
        if ring is None or not version.isdecimal() or int(version) == 0:
            return False
        if int(version) < ring.floor:
            await send_refusal(expired(f"too old resource version: {version} ({ring.floor})"), send)
            return True
        if int(version) > self._fan.position and not await self._is_reached(int(version)):
            await self._silence(receive, send, seconds=float(query.get("timeoutSeconds") or 3600))
            return True
        return False

    async def _is_reached(self, version: int) -> bool:
        """Our own watch cache is a moment behind the log: a recent write is not from the future."""
        for _ in range(10):
            if self._fan.position >= version:
                return True
            await asyncio.sleep(LOOK_SECONDS)
        return False

    async def _with_fault(self, armed: ArmedFault, scope: Scope, receive: Receive, send: Send) -> None:
        match armed.fault:
            case ServerFault.TOO_MANY:
                wait = {"Retry-After": str(max(round(armed.seconds), 1))}
                answer: Response = PlainTextResponse(
                    "Too many requests, please try again later.\n", 429, headers=wait
                )
                await answer(scope, receive, send)
            case ServerFault.LAGGING:
                await _answer(too_large_version(self._fan.position + 1, self._fan.position), scope, receive, send)
            case ServerFault.STALE:
                query = {**dict(parse_qsl(scope["query_string"].decode())), **self._version_behind()}
                await self._app({**scope, "query_string": urlencode(query).encode()}, receive, send)
            case ServerFault.NOT_STREAMED:
                error = invalid_options("ListOptions", forbidden("sendInitialEvents", NOT_ENABLED))
                await _answer(error, scope, receive, send)
            case ServerFault.EXPIRED_PAGE:
                status = {**ApiError(410, PAGE_EXPIRED).status, "metadata": {"continue": "inconsistent"}}
                await HttpAnswer(status, 410).response()(scope, receive, send)
            case ServerFault.SILENT:
                await self._silence(receive, send)
            case ServerFault.CUT:
                with suppress(_CutError):
                    await self._app(scope, receive, _cut_send(send))
            case ServerFault.SLOW:
                await self._app(scope, receive, _delayed_send(send, armed.seconds))
            case ServerFault.LOST:
                await self._app(scope, receive, _discard)
                await _break_off(send)
            case ServerFault.LATE:
                body = await _body(receive)
                task = asyncio.create_task(self._carry_out_later(scope, body, armed.seconds))
                self._late_writes.add(task)
                task.add_done_callback(self._late_writes.discard)
                await _break_off(send)

    def _version_behind(self) -> dict[str, str]:
        version = max(self._fan.position - BEHIND, 1)
        return {"resourceVersion": str(version), "resourceVersionMatch": "Exact"}

    async def _silence(self, receive: Receive, send: Send, *, seconds: float = 3600) -> None:
        """Headers, and no byte after them until the client disconnects."""
        await send(
            {"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"application/json")]}
        )
        await send({"type": "http.response.body", "body": b"", "more_body": True})
        leaving = asyncio.create_task(_wait_for_disconnect(receive))
        loop = asyncio.get_running_loop()
        until = loop.time() + seconds
        while not leaving.done() and not self._fan.stopping and loop.time() < until:
            await asyncio.wait({leaving}, timeout=LOOK_SECONDS)
        leaving.cancel()
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _carry_out_later(self, scope: Scope, body: bytes, seconds: float) -> None:
        await asyncio.sleep(seconds)
        await self._app(scope, _receive_of(body), _discard)


def without_data_state(body: bytes) -> bytes:
    """A real server does not know the field and drops it, so a client that relies on it fails here too."""
    try:
        manifest = orjson.loads(body)
    except orjson.JSONDecodeError:
        return body
    status = manifest.get("status") if isinstance(manifest, dict) else None
    if not isinstance(status, dict) or "dataState" not in status:
        return body
    kept = {name: value for name, value in status.items() if name != "dataState"}
    return orjson.dumps({**manifest, "status": kept})


def _receive_of(body: bytes) -> Receive:
    """A `receive` that returns a body which was read already."""
    messages: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive() -> Message:
        return messages.pop() if messages else {"type": "http.disconnect"}

    return receive


def _client(scope: Scope) -> str:
    return next((value.decode("latin-1") for name, value in scope["headers"] if name == b"user-agent"), "")


class _CutError(Exception):
    """The connection was cut by a fault."""


def _shape_of(method: str, place: RequestTarget, query: dict[str, str]) -> RequestShape:
    plural = place.resource.plural
    if method not in ("GET", "HEAD"):
        return RequestShape(WRITE, plural)
    if place.name is not None:
        return RequestShape(GET, plural)
    if is_watch(query):
        return RequestShape(WATCH, plural, streamed="sendInitialEvents" in query)
    return RequestShape(LIST, plural, is_further_page=bool(query.get("continue")))


async def _answer(error: ApiError, scope: Scope, receive: Receive, send: Send) -> None:
    await HttpAnswer(error.status, error.code).response()(scope, receive, send)


def _cut_send(send: Send) -> Send:
    async def cut(message: Message) -> None:
        body = message.get("body", b"")
        if message["type"] == "http.response.body" and body:
            await send({**message, "body": body[: len(body) // 2], "more_body": True})
            raise _CutError
        await send(message)

    return cut


def _delayed_send(send: Send, seconds: float) -> Send:
    async def late(message: Message) -> None:
        if message.get("body"):
            await asyncio.sleep(seconds)
        await send(message)

    return late


async def _break_off(send: Send) -> None:
    """Announces a body that is never sent: the server closes the connection."""
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"1000")]})
    await send({"type": "http.response.body", "body": b"{", "more_body": True})


async def _discard(_: Message) -> None:
    """No client is left to answer."""


async def _body(receive: Receive) -> bytes:
    body = bytearray()
    while True:
        message = await receive()
        body += message.get("body", b"")
        if message["type"] == "http.disconnect" or not message.get("more_body"):
            return bytes(body)


async def _wait_for_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
