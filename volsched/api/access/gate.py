"""The gate before every route: who is it, is it too often, may they, and is it written down that they asked.

Everything else is behind it: there is no route that could forget to ask. A request that goes on for long, a watch,
is asked again and ends, as if its client had left, soon after its token was revoked or its certificate ran out.
"""

import asyncio
import logging
from contextlib import suppress
from urllib.parse import parse_qsl, unquote

from prometheus_client import CollectorRegistry, Counter
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from volsched.api.access.authorization import AccessVerdict, forbidden, is_open, judge
from volsched.api.access.callers import Caller, local_caller, note_caller, note_reason
from volsched.api.access.certificates import caller_of
from volsched.api.access.connection import certificate_of
from volsched.api.access.hosts import Hosts, LoopbackHosts, names_us
from volsched.api.access.node_scope import is_own, selects_own
from volsched.api.access.read_audit import asking
from volsched.api.access.request_attributes import RequestAttributes, asked_of
from volsched.api.access.tokens import Tokens, UnauthorizedError
from volsched.api.kubernetes.answers import HttpAnswer
from volsched.api.kubernetes.statuses import ApiError, store_error
from volsched.api.limits import Rates
from volsched.api.loopback import NOT_FOR_YOU
from volsched.api.services import Services
from volsched.log.errors import StoreError

_log = logging.getLogger("volsched.api")
ASK_AGAIN_SECONDS = 2.0
LONGEST_AUTHORIZATION = 512
"""A token has 69 characters."""
WITH_BODY = frozenset({"POST", "PUT", "PATCH", "DELETE"})
UNCOUNTED = "/extender/"
"""A scheduler sends all its nodes with every pod; how much of that is taken is said there."""
YAML_WEIGHT = 16
"""What takes so many times as long to read counts so many times."""
IN_QUERIES = frozenset({"token", "access_token", "bearer_token", "authorization"})
REASON = b"x-volsched-reason"
LONGEST_REASON = 1_000
NO_REASON = (
    f"X-Volsched-Reason: not printable, or longer than {LONGEST_REASON} characters; it is percent-encoded UTF-8"
)
NOT_IN_QUERIES = (
    "a token does not belong into an address, which is logged and kept by everybody on the way; "
    "revoke it, and send another as: Authorization: Bearer TOKEN"
)
OTHER_NAME = "the request names a host that is not in the server's certificate, or comes from a page of another"


class Gate:
    """ASGI middleware. With `hosts`, TLS is spoken and callers prove who they are; without, they are local."""

    def __init__(self, app: ASGIApp, services: Services, hosts: Hosts | None, registry: CollectorRegistry) -> None:
        self._app, self._services = app, services
        self._hosts = hosts or LoopbackHosts()
        self._local = local_caller(services.actor) if hosts is None else None
        self._tokens = Tokens(services.database, services.clock, services.read)
        self._rates = Rates(services.limits)
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
            caller = await self._admitted(scope)
        except Exception as error:
            told = store_error(error)
            if told.code == 500:
                # Without its query, and without headers: nothing in it may be a secret.
                _log.error("%s %s failed at the gate", scope["method"], scope["path"], exc_info=error)
            self._refused.labels(str(told.code)).inc()
            await _refusal(told)(scope, receive, send)
            return
        if caller is not None and scope["method"] in WITH_BODY and not scope["path"].startswith(UNCOUNTED):
            receive = self._counted(scope, receive, caller)
        if caller is None or caller is self._local:
            await self._app(scope, receive, send)
        else:
            await self._app(scope, self._while_known(scope, receive), send)

    async def _admitted(self, scope: Scope) -> Caller | None:
        """Whose the request is; None where nobody asks. Raises what it is refused with."""
        query = dict(parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True))
        raw: bytes = scope.get("raw_path") or scope["path"].encode()
        asked = asked_of(scope["method"], raw.decode("ascii", "replace"), scope["path"], query)
        if is_open(asked) and self._local is None:
            # Who it is only matters for what is told.
            with suppress(UnauthorizedError, StoreError):
                note_caller(await self._caller(scope))
            return None
        if not names_us(scope["headers"], self._hosts):
            raise ApiError(403, OTHER_NAME if self._local is None else NOT_FOR_YOU)
        if not IN_QUERIES.isdisjoint(map(str.lower, query)):
            raise ApiError(400, NOT_IN_QUERIES)
        caller = self._local or await self._proven(scope)
        if not is_open(asked):
            # Before anything is asked of the database, or written into it, on their behalf.
            self._rates.take(caller.actor)
            if scope["method"] in WITH_BODY:
                self._rates.check_bytes(caller.actor)
        if not await self._may(caller, asked, query):
            raise forbidden(caller, asked)
        note_caller(caller)
        note_reason(_reason(scope))
        if asked.row is not None and asked.row.recorded:
            await self._record(caller, scope)
        return caller

    async def _proven(self, scope: Scope) -> Caller:
        """Who fails to prove who they are counts by their address: trying tokens is not for nothing."""
        address = f"address/{(scope.get('client') or ('unknown', 0))[0]}"
        if any(name == b"authorization" for name, _ in scope["headers"]):
            # A certificate was proven by the handshake, and costs no look into the database.
            self._rates.check(address)
        try:
            return await self._caller(scope)
        except UnauthorizedError as error:
            self._rates.take(address)
            raise ApiError(401, str(error)) from None

    async def _caller(self, scope: Scope) -> Caller:
        """A token counts before a certificate: who sends one means it, and is not let in without."""
        given = [value for name, value in scope["headers"] if name == b"authorization"]
        if given:
            scheme, _, text = given[0].decode("latin-1").partition(" ")
            if len(given) > 1 or len(given[0]) > LONGEST_AUTHORIZATION or scheme.lower() != "bearer":
                raise UnauthorizedError("Unauthorized")
            return await self._tokens.caller(text.strip())
        certificate = certificate_of(scope)
        if certificate is None:
            raise UnauthorizedError("Unauthorized")
        return caller_of(certificate, now=self._services.clock())

    async def _may(self, caller: Caller, asked: RequestAttributes, query: dict[str, str]) -> bool:
        verdict = judge(caller, asked)
        if verdict is not AccessVerdict.IF_OWN:
            return verdict is AccessVerdict.YES
        if asked.name is None:
            return selects_own(query, caller.name)
        return await self._services.read(is_own, self._services.database, asked, caller.name)

    async def _record(self, caller: Caller, scope: Scope) -> None:
        """Before it is answered: what cannot be recorded is not told either."""
        search = scope["query_string"].decode("latin-1")
        question = f"{scope['method']} {scope['path']}{'?' if search else ''}{search}"
        client = scope.get("client")
        command = asking(caller.actor, question, client[0] if client else None)
        await asyncio.wrap_future(self._services.writer.submit(command))
        self._services.committed()

    def _counted(self, scope: Scope, receive: Receive, caller: Caller) -> Receive:
        """What its body weighs is taken off the caller's rate as it comes."""
        said = next((value for name, value in scope["headers"] if name == b"content-type"), b"")
        times = YAML_WEIGHT if b"yaml" in said.lower() else 1

        async def received() -> Message:
            message = await receive()
            if message["type"] == "http.request" and (part := message.get("body")):
                self._rates.take_bytes(caller.actor, len(part) * times)
            return message

        return received

    def _while_known(self, scope: Scope, receive: Receive) -> Receive:
        whole = False

        async def received() -> Message:
            nonlocal whole
            while whole:
                try:
                    async with asyncio.timeout(ASK_AGAIN_SECONDS):
                        return await receive()
                except TimeoutError:
                    if not await self._still_known(scope):
                        return {"type": "http.disconnect"}
            message = await receive()
            whole = message["type"] == "http.request" and not message.get("more_body", False)
            return message

        return received

    async def _still_known(self, scope: Scope) -> bool:
        try:
            await self._caller(scope)
        except UnauthorizedError:
            return False
        except StoreError:
            # Nobody can say; nor is there anything new to be watched until the database answers again.
            return True
        return True


def _reason(scope: Scope) -> str | None:
    """Why it is done, as the header says; a header holds no more than ASCII, so it is encoded as in an address."""
    given = next((value for name, value in scope["headers"] if name == REASON), b"")
    try:
        told = unquote(given.decode("ascii"), errors="strict").strip()
    except UnicodeDecodeError:
        raise ApiError(400, NO_REASON) from None
    if len(told) > LONGEST_REASON or not told.isprintable():
        raise ApiError(400, NO_REASON)
    return told or None


def _refusal(error: ApiError) -> ASGIApp:
    response = HttpAnswer(error.status, error.code).response()
    if error.code == 401:
        response.headers["www-authenticate"] = "Bearer"
    return response
