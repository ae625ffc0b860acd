"""volsched's own endpoints as an ASGI application: a request is matched, parsed, served in a thread, answered."""

import logging
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from uuid import uuid4

from starlette.requests import ClientDisconnect, Request
from starlette.types import Receive, Scope, Send

from volsched.api.access.callers import Caller, current_caller
from volsched.api.health import HttpMetrics
from volsched.api.kubernetes.bodies import RequestBody
from volsched.api.kubernetes.negotiation import HttpAnswer, wanted_form
from volsched.api.kubernetes.statuses import RETRY_AFTER_SECONDS, UNSERVED, ApiError
from volsched.api.limits import CallerThreads, receive_body
from volsched.api.questions.openapi import discovery_document
from volsched.api.questions.operations import Context, Operation, OperationRequest
from volsched.api.questions.request_reader import error_of, matched, read_body, read_query, segments_of
from volsched.api.questions.routes import OPERATIONS
from volsched.api.questions.side_process import SideProcesses, UnsendableError
from volsched.api.services import Services
from volsched.log.commands import Command, Done
from volsched.scheduling.pod_reservations import LONGEST_KEY, Reserver
from volsched.scheduling.rules.configuration import Configuration

LONG_AT_ONCE, LONG_PER_CALLER, LONG_WAITING = 2, 1, 8
"""Limits of long requests, such as explanations: at once, at once for one caller, in all for one caller."""
NOT_ALLOWED = "the server does not allow this method on the requested resource"
_log = logging.getLogger("volsched.api")


class OwnEndpoints:
    """The ASGI application for `/apis/volsched.io` and everything below."""

    def __init__(self, services: Services, metrics: HttpMetrics, configuration: Configuration) -> None:
        self._services, self._metrics = services, metrics
        reserver = Reserver(services.database, self._append, _new_id, configuration)
        self._context = Context(services=services, configuration=configuration, reserver=reserver)
        self._sides = SideProcesses(services.database, configuration)
        self._long, self._alone = CallerThreads(LONG_AT_ONCE, LONG_PER_CALLER), CallerThreads(1, 1)
        self._waiting: Counter[str | None] = Counter()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        begun = time.perf_counter()
        resource = "none"
        try:
            raw = (scope.get("raw_path") or scope["path"].encode()).decode("ascii", "replace")
            document = discovery_document(raw)
            if document is not None:
                resource = "discovery"
                is_read = request.method in ("GET", "HEAD")
                answer = HttpAnswer(document) if is_read else _error_answer(ApiError(405, NOT_ALLOWED))
            else:
                operation, path = _operation(request.method, raw)
                resource = operation.resource
                answer = await self._serve(request, operation, path)
        except ClientDisconnect:
            return
        except Exception as error:
            answer = self._failed(error, request)
        self._metrics.count(request.method.lower(), resource, answer.code, time.perf_counter() - begun)
        await answer.response()(scope, receive, send)

    async def _serve(self, request: Request, operation: Operation, path: Mapping[str, str]) -> HttpAnswer:
        query = dict(request.query_params)
        _refuse_unsupported(operation, query)
        body = None
        if operation.body is not None:
            limits = self._services.limits
            content = await receive_body(request, most=limits.body_bytes, seconds=limits.body_seconds)
            content_type = request.headers.get("content-type")
            heavy = RequestBody(content, content_type).heavy
            body = await self._services.work(heavy, read_body, operation, content, content_type)
        operation_request = OperationRequest(
            path=path,
            query=read_query(operation.query, query),
            actor=self._services.author().actor,
            now=self._services.clock(),
            body=body,
            wanted=wanted_form(request.headers.get("accept")),
            key=_key(request.headers.get("idempotency-key")),
            namespaces=_namespaces(current_caller()),
            unpacks="gzip" in request.headers.get("accept-encoding", ""),
        )
        answer = await self._in_turn(operation, operation_request)
        if operation.writes:
            self._services.committed()
        return answer

    async def _in_turn(self, operation: Operation, request: OperationRequest) -> HttpAnswer:
        def serve() -> HttpAnswer:
            return operation.serve(self._context, request).serialised(packed=request.unpacks)

        if operation.turn == "reader":
            return await self._services.read(serve)
        caller = self._services.caller()
        if self._waiting[caller] >= LONG_WAITING:
            again = {"retryAfterSeconds": RETRY_AFTER_SECONDS}
            raise ApiError(429, f"{LONG_WAITING} long requests are served or wait already", details=again)

        def served_aside() -> HttpAnswer:
            limits = self._services.limits
            seconds = limits.hypothesis_seconds if operation.turn == "hypothesis" else limits.long_seconds
            try:
                return self._sides.serve(OPERATIONS.index(operation), request, seconds=seconds)
            except UnsendableError:
                return serve()

        self._waiting[caller] += 1
        try:
            if operation.turn == "alone":
                return await self._alone.run(caller, serve)
            return await self._long.run(caller, served_aside)
        finally:
            self._waiting[caller] -= 1
            if not self._waiting[caller]:
                del self._waiting[caller]

    def expect_questions(self) -> None:
        """Called when the console is opened: its first page asks a long question."""
        with suppress(UnsendableError):
            self._sides.warm()

    def close(self) -> None:
        self._sides.close()

    def _append(self, command: Command) -> Done:
        """Commit in the serving thread; the writer has its own."""
        return self._services.writer.submit(command).result()

    def _failed(self, error: Exception, request: Request) -> HttpAnswer:
        api_error = error_of(error)
        if api_error.code == 500:
            _log.error("%s %s failed", request.method, request.url.path, exc_info=error)
        return _error_answer(api_error)


def _namespaces(caller: Caller | None) -> frozenset[str] | None:
    grants = () if caller is None else caller.grants
    if not grants or any(it.namespaces is None for it in grants):
        return None
    return frozenset().union(*(it.namespaces or () for it in grants))


def _new_id() -> str:
    """A new id, in the form of all binding ids."""
    return uuid4().hex[:12]


def _operation(method: str, raw: str) -> tuple[Operation, dict[str, str]]:
    """ApiError 404 for an unknown path, 405 for an unsupported method."""
    segments = segments_of(raw)
    candidates = [] if segments is None else [(it, matched(it, segments)) for it in OPERATIONS]
    matches = [(it, path) for it, path in candidates if path is not None]
    if not matches:
        raise ApiError(404, UNSERVED)
    wanted = "GET" if method == "HEAD" else method
    match = next(((it, path) for it, path in matches if it.method == wanted), None)
    if match is None:
        raise ApiError(405, NOT_ALLOWED)
    return match


def _refuse_unsupported(operation: Operation, query: dict[str, str]) -> None:
    """An unsupported option that would change the answer is refused, not ignored."""
    if query.get("watch", "false") not in ("false", "0"):
        raise ApiError(405, f"{operation.resource} cannot be watched; list them again")
    if query.get("labelSelector", "").strip():
        raise ApiError(400, f"{operation.resource} have no labels; leave labelSelector out")
    if query.get("dryRun"):
        raise ApiError(422, "dryRun: Forbidden: these endpoints have none")
    chosen = query.get("fieldSelector", "").strip()
    if chosen:
        field, _, value = chosen.partition("=")
        if field != "metadata.name" or operation.action != "list" or "," in value or not value.strip("="):
            raise ApiError(400, f'field label not supported: "{chosen[:80]}" for {operation.resource}')
        query["name"] = value.strip("=")


def _key(header: str | None) -> str | None:
    if header is None or header == "":
        return None
    if len(header) > LONGEST_KEY or not header.isprintable():
        raise ApiError(400, f"Idempotency-Key: longer than {LONGEST_KEY} characters, or not printable")
    return header


def _error_answer(error: ApiError) -> HttpAnswer:
    return HttpAnswer(error.status, error.code)
