"""The gate in front of every route: authentication, rate limit, authorization, and recording of history reads.

Everything else is behind it: no route can forget to check. A long request, such as a watch, is checked again and
ends, as if its client had left, soon after its token was revoked or its certificate expired.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from urllib.parse import parse_qsl, unquote

from prometheus_client import CollectorRegistry, Counter
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from volsched.api.access.authorization import (
    AccessVerdict,
    RequestAttributes,
    attributes_of,
    forbidden,
    is_open,
    is_own,
    judge,
    selects_own,
)
from volsched.api.access.callers import (
    Caller,
    Tokens,
    UnauthorizedError,
    caller_of,
    local_caller,
    note_caller,
    note_reason,
)
from volsched.api.access.hosts import LOCAL_ONLY, Hosts, LoopbackHosts, names_us
from volsched.api.connection import certificate_of
from volsched.api.kubernetes.negotiation import HttpAnswer
from volsched.api.kubernetes.statuses import ApiError, store_error
from volsched.api.limits import YAML_WEIGHT, Rates, UnreadAnswers
from volsched.api.services import Services
from volsched.kube.problems import shortened
from volsched.log.commands import Command
from volsched.log.errors import StoreError
from volsched.log.events.envelope import NewEvent
from volsched.log.events.fold import Decision, States
from volsched.log.events.streams import AUDIT_READS

# History reads are recorded in the history, with caller and question, before they are answered.

LONGEST_QUESTION = 500


def audit_read(actor: str, question: str, client: str | None) -> Command:
    """Committed by the process's writer, batched with other waiting commands."""
    printable = "".join(char if char.isprintable() else "?" for char in question)
    data = {"question": shortened(printable, LONGEST_QUESTION)} | ({} if client is None else {"client": client})

    def decide(_: States) -> Decision:
        return Decision(events=(NewEvent(stream=AUDIT_READS, type="AuditRead", data=data),))

    return Command(actor=actor, streams=(AUDIT_READS,), decide=decide)


_log = logging.getLogger("volsched.api")
RECHECK_SECONDS = 2.0
LONGEST_AUTHORIZATION = 512
"""A token has 69 characters."""
WITH_BODY = frozenset({"POST", "PUT", "PATCH", "DELETE"})
UNCOUNTED = "/extender/"
"""A scheduler sends all its nodes with every pod; the extender has its own limit."""
IN_QUERIES = frozenset({"token", "access_token", "bearer_token", "authorization"})
REASON = b"x-volsched-reason"
LONGEST_REASON = 1_000
NO_REASON = (
    f"X-Volsched-Reason: not printable, or longer than {LONGEST_REASON} characters; it is percent-encoded UTF-8"
)
NOT_IN_QUERIES = (
    "a token does not belong in an address, which every proxy on the way may log; "
    "revoke it, and send another as: Authorization: Bearer TOKEN"
)
OTHER_NAME = "the request is for a host that is not in the server's certificate, or comes from another site's page"


class Gate:
    """ASGI middleware. With `hosts`, the server speaks TLS and callers authenticate; without, they are local."""

    def __init__(self, app: ASGIApp, services: Services, hosts: Hosts | None, registry: CollectorRegistry) -> None:
        self._app, self._services = app, services
        self._hosts = hosts or LoopbackHosts()
        self._local = local_caller(services.actor) if hosts is None else None
        self._tokens = Tokens(services.database, services.clock, services.read)
        self._rates = Rates(services.limits)
        self._unread = UnreadAnswers(services.limits.waiting_bytes)
        self._refused = Counter(
            "volsched_http_refused",
            "Requests refused before they were looked at: 401 unknown, 403 not allowed, 429 too many.",
            ("code",),
            registry=registry,
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self._app(scope, receive, send)
            return
        try:
            caller = await self._admit(scope)
        except Exception as error:
            api_error = store_error(error)
            if api_error.code == 500:
                # Without query and headers: they may hold secrets.
                _log.error("%s %s failed at the gate", scope["method"], scope["path"], exc_info=error)
            self._refused.labels(str(api_error.code)).inc()
            await _refusal(api_error)(scope, receive, send)
            return
        if caller is not None and scope["method"] in WITH_BODY and not scope["path"].startswith(UNCOUNTED):
            receive = self._count_bytes(scope, receive, caller)
        if caller is None or caller is self._local:
            await self._app(scope, receive, self._unread.sending(None, send, _refusing(scope, receive, send)))
        else:
            sending = self._unread.sending(caller.actor, send, _refusing(scope, receive, send))
            await self._app(scope, self._until_revoked(scope, receive), sending)

    async def _admit(self, scope: Scope) -> Caller | None:
        """The caller; None for an open path. Raises the refusal."""
        query = dict(parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True))
        raw: bytes = scope.get("raw_path") or scope["path"].encode()
        attributes = attributes_of(scope["method"], raw.decode("ascii", "replace"), scope["path"], query)
        if is_open(attributes) and self._local is None:
            # The caller only decides how much the answer shows.
            with suppress(UnauthorizedError, StoreError):
                note_caller(await self._caller(scope))
            return None
        if not names_us(scope["headers"], self._hosts):
            raise ApiError(403, OTHER_NAME if self._local is None else LOCAL_ONLY)
        if not IN_QUERIES.isdisjoint(map(str.lower, query)):
            raise ApiError(400, NOT_IN_QUERIES)
        caller = self._local or await self._authenticate(scope)
        if not is_open(attributes):
            # Before the database is read or written on the caller's behalf.
            self._rates.take(caller.actor)
            if scope["method"] in WITH_BODY:
                self._rates.check_bytes(caller.actor)
        if not await self._is_allowed(caller, attributes, query):
            raise forbidden(caller, attributes)
        note_caller(caller)
        note_reason(_reason(scope))
        if attributes.row is not None and attributes.row.recorded:
            await self._record(caller, scope)
        return caller

    async def _authenticate(self, scope: Scope) -> Caller:
        """A failed authentication counts against the caller's address: it limits the guessing of tokens."""
        address = f"address/{(scope.get('client') or ('unknown', 0))[0]}"
        if any(name == b"authorization" for name, _ in scope["headers"]):
            # A certificate was verified by the handshake, and costs no database read.
            self._rates.check(address)
        try:
            return await self._caller(scope)
        except UnauthorizedError as error:
            self._rates.take(address)
            raise ApiError(401, str(error)) from None

    async def _caller(self, scope: Scope) -> Caller:
        """A token takes precedence over a certificate: a caller with an invalid token is refused."""
        headers = [value for name, value in scope["headers"] if name == b"authorization"]
        if headers:
            scheme, _, text = headers[0].decode("latin-1").partition(" ")
            if len(headers) > 1 or len(headers[0]) > LONGEST_AUTHORIZATION or scheme.lower() != "bearer":
                raise UnauthorizedError("Unauthorized")
            return await self._tokens.caller(text.strip())
        certificate = certificate_of(scope)
        if certificate is None:
            raise UnauthorizedError("Unauthorized")
        return caller_of(certificate, now=self._services.clock())

    async def _is_allowed(self, caller: Caller, attributes: RequestAttributes, query: dict[str, str]) -> bool:
        verdict = judge(caller, attributes)
        if verdict is not AccessVerdict.IF_OWN:
            return verdict is AccessVerdict.YES
        if attributes.name is None:
            return selects_own(query, caller.name)
        return await self._services.read(is_own, self._services.database, attributes, caller.name)

    async def _record(self, caller: Caller, scope: Scope) -> None:
        """Before the answer: a read that cannot be recorded is not answered."""
        search = scope["query_string"].decode("latin-1")
        question = f"{scope['method']} {scope['path']}{'?' if search else ''}{search}"
        client = scope.get("client")
        command = audit_read(caller.actor, question, client[0] if client else None)
        await asyncio.wrap_future(self._services.writer.submit(command))
        self._services.committed()

    def _count_bytes(self, scope: Scope, receive: Receive, caller: Caller) -> Receive:
        """The size of the body counts against the caller's rate as it arrives."""
        content_type = next((value for name, value in scope["headers"] if name == b"content-type"), b"")
        weight = YAML_WEIGHT if b"yaml" in content_type.lower() else 1

        async def received() -> Message:
            message = await receive()
            if message["type"] == "http.request" and (part := message.get("body")):
                self._rates.take_bytes(caller.actor, len(part) * weight)
            return message

        return received

    def _until_revoked(self, scope: Scope, receive: Receive) -> Receive:
        is_complete = False

        async def received() -> Message:
            nonlocal is_complete
            while is_complete:
                try:
                    async with asyncio.timeout(RECHECK_SECONDS):
                        return await receive()
                except TimeoutError:
                    if not await self._is_still_valid(scope):
                        return {"type": "http.disconnect"}
            message = await receive()
            is_complete = message["type"] == "http.request" and not message.get("more_body", False)
            return message

        return received

    async def _is_still_valid(self, scope: Scope) -> bool:
        try:
            await self._caller(scope)
        except UnauthorizedError:
            return False
        except StoreError:
            # Unknown. Until the database answers again, there is nothing new to watch either.
            return True
        return True


def _reason(scope: Scope) -> str | None:
    """The reason from the header, percent-encoded because a header holds only ASCII."""
    header = next((value for name, value in scope["headers"] if name == REASON), b"")
    try:
        reason = unquote(header.decode("ascii"), errors="strict").strip()
    except UnicodeDecodeError:
        raise ApiError(400, NO_REASON) from None
    if len(reason) > LONGEST_REASON or not reason.isprintable():
        raise ApiError(400, NO_REASON)
    return reason or None


def _refusing(scope: Scope, receive: Receive, send: Send) -> Callable[[ApiError], Awaitable[None]]:
    return lambda error: _refusal(error)(scope, receive, send)


def _refusal(error: ApiError) -> ASGIApp:
    response = HttpAnswer(error.status, error.code).response()
    if error.code == 401:
        response.headers["www-authenticate"] = "Bearer"
    return response
