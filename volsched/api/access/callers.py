"""The caller of a request: by token, or by client certificate."""

import hashlib
import hmac
import logging
import re
import secrets
import ssl
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from volsched.log.database import Database
from volsched.log.tokens import StoredToken, differences, recorded_token, token_of_id
from volsched.runtime.clock import SECOND, Clock

# The gate notes the caller in the context of the request's task, and every write on the way takes its actor from
# there: a route cannot forget to pass it on. Work outside a request has no caller.


class Role(StrEnum):
    VIEWER = "viewer"
    AUDITOR = "auditor"
    OPERATOR = "operator"
    ADMIN = "admin"
    NODE = "node"
    PROVISIONER = "provisioner"
    EXTENDER = "extender"
    SCHEDULER = "scheduler"
    """A scheduler in another process that binds pods and volumes over the API, such as kube-scheduler."""


NAMESPACED = frozenset({Role.VIEWER, Role.AUDITOR, Role.OPERATOR})
"""Roles that may be granted for single namespaces; the others concern the whole cluster."""


@dataclass(frozen=True, slots=True)
class Grant:
    role: Role
    namespaces: frozenset[str] | None = None
    """None: all namespaces, and cluster-scoped objects."""

    def covers(self, namespace: str | None) -> bool:
        return self.namespaces is None or namespace in self.namespaces


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    name: str
    """The user's name; for a node, that of the node."""
    actor: str
    """The actor in the log: `token/NAME`, `cert/NAME`, `api/USER`."""
    grants: tuple[Grant, ...] = ()
    until: int | None = None
    """When it expires, in microseconds since 1970."""


def local_caller(actor: str) -> Caller:
    """A caller without TLS is on this machine, and acts as the user who started the server."""
    return Caller(name=actor.rpartition("/")[2], actor=actor, grants=(Grant(Role.ADMIN),))


_current: ContextVar[Caller | None] = ContextVar("volsched_caller", default=None)
_reason: ContextVar[str | None] = ContextVar("volsched_reason", default=None)


def current_caller() -> Caller | None:
    return _current.get()


def note_caller(caller: Caller) -> None:
    """Set the caller for the rest of this request's task."""
    _current.set(caller)


def current_reason() -> str | None:
    """The caller's reason; kept with what it writes."""
    return _reason.get()


def note_reason(reason: str | None) -> None:
    _reason.set(reason)


# Tokens: `volsched.ID.SECRET`. The secret is 256 random bits, shown once and kept as a hash.
#
# The hash is a plain SHA-256. Slow hashes protect secrets that people make up, because those can be guessed; 256
# random bits cannot be guessed, however fast each try is, and every request would pay for a slow hash.

_log = logging.getLogger("volsched.api")
TOKEN_PREFIX = "volsched"
"""The prefix by which scanners find leaked secrets."""
REMEMBERED = 2 * SECOND
"""How long a token is cached without a database read: a revoked one may be used for as long."""
MOST_REMEMBERED = 10_000
_TOKEN = re.compile(rf"{TOKEN_PREFIX}\.([0-9a-f]{{16}})\.([A-Za-z0-9_-]{{43}})")


class UnauthorizedError(Exception):
    """Unknown caller; the message is for the caller, and reveals nothing to a stranger."""


@dataclass(frozen=True, slots=True)
class NewToken:
    id: str
    text: str
    """Shown to its owner once; it cannot be recovered."""
    hash: bytes


def new_token() -> NewToken:
    id_, secret = secrets.token_hex(8), secrets.token_urlsafe(32)
    return NewToken(id_, f"{TOKEN_PREFIX}.{id_}.{secret}", _hash(secret))


def read_token(text: str) -> tuple[str, str] | None:
    """The id and the secret of a token-shaped text."""
    match = _TOKEN.fullmatch(text)
    return None if match is None else (match[1], match[2])


def grants_of(roles: Iterable[str], namespaces: Iterable[str] | None) -> tuple[Grant, ...]:
    """A role that this program does not know grants nothing."""
    within = None if namespaces is None else frozenset(namespaces)
    return tuple(Grant(Role(role), within) for role in roles if role in tuple(Role))


def _hash(secret: str) -> bytes:
    return hashlib.sha256(secret.encode()).digest()


@dataclass(frozen=True, slots=True)
class CheckedToken:
    token: StoredToken
    contradiction: str | None
    """How its row contradicts the log; None: it does not."""


TokenRead = Callable[
    [Callable[[Database, str], CheckedToken | None], Database, str], Awaitable[CheckedToken | None]
]


@dataclass(slots=True)
class Tokens:
    """Identifies the caller of a token, with a short cache over the database.

    A row is trusted only as far as the log agrees: write access to the table alone lets no caller in.
    """

    database: Database
    clock: Clock
    read: TokenRead
    """Runs a database read beside the event loop."""
    _remembered: dict[str, tuple[CheckedToken, int]] = field(default_factory=dict)

    async def caller(self, text: str) -> Caller:
        parts = read_token(text)
        if parts is None:
            raise UnauthorizedError("Unauthorized")
        id_, secret = parts
        now = self.clock()
        checked = await self._checked_token(id_, now)
        if checked is None or checked.contradiction is not None:
            raise UnauthorizedError("Unauthorized")
        stored = checked.token
        # The id is public; secrets are compared only as hashes, in constant time.
        if not hmac.compare_digest(stored.hash, _hash(secret)):
            raise UnauthorizedError("Unauthorized")
        if stored.revoked_at is not None:
            raise UnauthorizedError(f'Unauthorized: token "{stored.name}" was revoked')
        if not stored.usable(now):
            raise UnauthorizedError(f'Unauthorized: token "{stored.name}" has expired; ask for a new one')
        return Caller(
            name=stored.name,
            actor=f"token/{stored.name}",
            grants=grants_of(stored.roles, stored.namespaces),
            until=stored.expires_at,
        )

    async def _checked_token(self, id_: str, now: int) -> CheckedToken | None:
        cached = self._remembered.get(id_)
        if cached is not None and 0 <= now - cached[1] < REMEMBERED:
            return cached[0]
        checked = await self.read(_stored_token, self.database, id_)
        self._remembered.pop(id_, None)
        if checked is not None:
            if checked.contradiction is not None:
                _log.error(
                    'token "%s" is refused: its row differs from the log (%s); run: volsched verify, and if '
                    "the token is still wanted: volsched token revoke, volsched token create",
                    checked.token.name,
                    checked.contradiction,
                )
            self._remembered[id_] = checked, now
            while len(self._remembered) > MOST_REMEMBERED:
                del self._remembered[next(iter(self._remembered))]
        return checked


def _stored_token(database: Database, id_: str) -> CheckedToken | None:
    with database.read() as connection:
        token = token_of_id(connection, id_)
        if token is None:
            return None
        recorded = recorded_token(connection, token.name)
    wrong = [f"{column}: expected {expected}, got {got}" for column, expected, got in differences(token, recorded)]
    return CheckedToken(token, "; ".join(wrong) or None)


# The caller of a client certificate: CN is the user, each `volsched:ROLE` or `volsched:ROLE:NAMESPACE` of O a
# role.
#
# The handshake has verified it. Checked here is what the handshake cannot know: connections live for hours, and
# the certificate may have expired since.

ORGANIZATION_PREFIX = "volsched:"
LONGEST_NAME = 253
Certificate = Mapping[str, Any]
"""A certificate in the form of `ssl.SSLSocket.getpeercert`."""


def caller_of(certificate: Certificate, *, now: int) -> Caller:
    names = _values(certificate, "commonName")
    if len(names) != 1 or not names[0].isprintable() or not 0 < len(names[0]) <= LONGEST_NAME:
        raise UnauthorizedError("Unauthorized: the certificate names no user, or several, as its CN")
    until = ssl.cert_time_to_seconds(certificate["notAfter"]) * SECOND
    if now >= until:
        raise UnauthorizedError(
            f'Unauthorized: the certificate of "{names[0]}" has expired; have a new one issued'
        )
    grants = (_grant(it) for it in _values(certificate, "organizationName"))
    return Caller(
        name=names[0], actor=f"cert/{names[0]}", grants=tuple(it for it in grants if it is not None), until=until
    )


def organizations(roles: Iterable[Role], namespaces: Iterable[str] | None) -> list[str]:
    """The O entries of a certificate that grants these."""
    if namespaces is None:
        return [f"{ORGANIZATION_PREFIX}{role}" for role in roles]
    return [f"{ORGANIZATION_PREFIX}{role}:{namespace}" for role in roles for namespace in namespaces]


def _grant(organization: str) -> Grant | None:
    if not organization.startswith(ORGANIZATION_PREFIX):
        return None
    role, separator, namespace = organization.removeprefix(ORGANIZATION_PREFIX).partition(":")
    if role not in tuple(Role):
        return None
    if not separator:
        return Grant(Role(role))
    # A grant for one namespace must never become cluster-wide.
    return Grant(Role(role), frozenset({namespace})) if role in NAMESPACED and namespace else None


def _values(certificate: Certificate, attribute: str) -> list[str]:
    return [value for part in certificate.get("subject", ()) for name, value in part if name == attribute]
