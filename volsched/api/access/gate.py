"""The gate in front of every route: authentication, rate limit, authorization, and recording of history reads.

Everything else is behind it: no route can forget to check. A long request, such as a watch, is checked again and
ends, as if its client had left, soon after its token was revoked or its certificate expired.
"""

import asyncio
import logging
from contextlib import suppress
from urllib.parse import parse_qsl, unquote

from prometheus_client import CollectorRegistry, Counter
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from volsched.api.access.authorization import (
    AccessVerdict,
    RequestAttributes,
    asked_of,
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
from volsched.api.access.hosts import NOT_FOR_YOU, Hosts, LoopbackHosts, names_us
from volsched.api.connection import certificate_of
from volsched.api.kubernetes.negotiation import HttpAnswer
from volsched.api.kubernetes.statuses import ApiError, store_error
from volsched.api.limits import Rates
from volsched.api.services import Services
from volsched.log.commands import Command
from volsched.log.errors import StoreError
from volsched.log.events.envelope import NewEvent
from volsched.log.events.fold import Decision, States
from volsched.log.events.streams import AUDIT_READS

# History reads are recorded in the history, with caller and question, before they are answered.

LONGEST_QUESTION = 500


def asking(actor: str, question: str, client: str | None) -> Command:
    """Committed by the process's writer, with other waiting commands: a read costs a part of a commit."""
    shown = "".join(char if char.isprintable() else "?" for char in question)
    cut = shown if len(shown) <= LONGEST_QUESTION else f"{shown[: LONGEST_QUESTION - 1]}…"
    data = {"question": cut} | ({} if client is None else {"client": client})

    def decide(_: States) -> Decision:
        return Decision(events=(NewEvent(stream=AUDIT_READS, type="AuditRead", data=data),))

    return Command(actor=actor, streams=(AUDIT_READS,), decide=decide)


_log = logging.getLogger("volsched.api")
ASK_AGAIN_SECONDS = 2.0
LONGEST_AUTHORIZATION = 512
"""A token has 69 characters."""
WITH_BODY = frozenset({"POST", "PUT", "PATCH", "DELETE"})
UNCOUNTED = "/extender/"
"""A scheduler sends all its nodes with every pod; the extender has its own limit."""
YAML_WEIGHT = 16
"""YAML takes this many times as long to parse, and counts accordingly."""
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
    """ASGI middleware. With `hosts`, the server speaks TLS and callers authenticate; without, they are local."""

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
                # Without query and headers: they may hold secrets.
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
        """The caller; None for an open path. Raises the refusal."""
        query = dict(parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True))
        raw: bytes = scope.get("raw_path") or scope["path"].encode()
        asked = asked_of(scope["method"], raw.decode("ascii", "replace"), scope["path"], query)
        if is_open(asked) and self._local is None:
            # The caller only decides how much the answer shows.
            with suppress(UnauthorizedError, StoreError):
                note_caller(await self._caller(scope))
            return None
        if not names_us(scope["headers"], self._hosts):
            raise ApiError(403, OTHER_NAME if self._local is None else NOT_FOR_YOU)
        if not IN_QUERIES.isdisjoint(map(str.lower, query)):
            raise ApiError(400, NOT_IN_QUERIES)
        caller = self._local or await self._proven(scope)
        if not is_open(asked):
            # Before the database is read or written on the caller's behalf.
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
        """Before the answer: a read that cannot be recorded is not answered."""
        search = scope["query_string"].decode("latin-1")
        question = f"{scope['method']} {scope['path']}{'?' if search else ''}{search}"
        client = scope.get("client")
        command = asking(caller.actor, question, client[0] if client else None)
        await asyncio.wrap_future(self._services.writer.submit(command))
        self._services.committed()

    def _counted(self, scope: Scope, receive: Receive, caller: Caller) -> Receive:
        """The size of the body counts against the caller's rate as it arrives."""
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
            # Unknown; nor is there anything new to watch until the database answers again.
            return True
        return True


def _reason(scope: Scope) -> str | None:
    """The reason from the header, percent-encoded because a header holds only ASCII."""
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
