"""Tokens: `volsched.ID.SECRET`. The secret is 256 random bits, shown once and kept as a hash.

The hash is a plain SHA-256. Slow hashes protect secrets that people make up, because those can be guessed; nobody
guesses 256 random bits, however fast each try is, and a slow hash would be paid for at every request.
"""

import hashlib
import hmac
import logging
import re
import secrets
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field

from volsched.api.access.callers import Caller, Grant, Role
from volsched.log.database import Database
from volsched.log.tokens import StoredToken, differences, recorded_token, token_of_id
from volsched.runtime.clock import SECOND, Clock

_log = logging.getLogger("volsched.api")
PREFIX = "volsched"
"""By which scanners for leaked secrets find them."""
REMEMBERED = 2 * SECOND
"""For how long a token is believed without asking the database: a revoked one may be used for as long."""
MOST_REMEMBERED = 10_000
_TOKEN = re.compile(rf"{PREFIX}\.([0-9a-f]{{16}})\.([A-Za-z0-9_-]{{43}})")


class UnauthorizedError(Exception):
    """Nobody we know; the message is for whoever asked, and tells a stranger nothing."""


@dataclass(frozen=True, slots=True)
class NewToken:
    id: str
    text: str
    """What its owner gets; nobody can get it again."""
    hash: bytes


def new_token() -> NewToken:
    id_, secret = secrets.token_hex(8), secrets.token_urlsafe(32)
    return NewToken(id_, f"{PREFIX}.{id_}.{secret}", _hash(secret))


def read_token(text: str) -> tuple[str, str] | None:
    """The id and the secret of what looks like a token."""
    found = _TOKEN.fullmatch(text)
    return None if found is None else (found[1], found[2])


def grants_of(roles: Iterable[str], namespaces: Iterable[str] | None) -> tuple[Grant, ...]:
    """A role that this program does not know grants nothing."""
    within = None if namespaces is None else frozenset(namespaces)
    return tuple(Grant(Role(role), within) for role in roles if role in tuple(Role))


def _hash(secret: str) -> bytes:
    return hashlib.sha256(secret.encode()).digest()


@dataclass(frozen=True, slots=True)
class Found:
    token: StoredToken
    contradiction: str | None
    """In what its row is not what the log says; None: it is."""


Reading = Callable[[Callable[[Database, str], Found | None], Database, str], Awaitable[Found | None]]


@dataclass(slots=True)
class Tokens:
    """Tells whose a token is, and asks the database once in a while.

    A row is believed as far as the log agrees: whoever can write the table alone lets nobody in.
    """

    database: Database
    clock: Clock
    read: Reading
    """Calls something that asks the database, beside the event loop."""
    _remembered: dict[str, tuple[Found, int]] = field(default_factory=dict)

    async def caller(self, text: str) -> Caller:
        parts = read_token(text)
        if parts is None:
            raise UnauthorizedError("Unauthorized")
        id_, secret = parts
        now = self.clock()
        found = await self._found(id_, now)
        if found is None or found.contradiction is not None:
            raise UnauthorizedError("Unauthorized")
        stored = found.token
        # The id is public, and of the secret only hashes are compared, in a time that tells nothing of where they
        # differ.
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

    async def _found(self, id_: str, now: int) -> Found | None:
        known = self._remembered.get(id_)
        if known is not None and 0 <= now - known[1] < REMEMBERED:
            return known[0]
        found = await self.read(_look_up, self.database, id_)
        self._remembered.pop(id_, None)
        if found is not None:
            if found.contradiction is not None:
                _log.error(
                    'token "%s" is refused: its row is not what the log says (%s); run: volsched verify, and if '
                    "the token is still wanted: volsched token revoke, volsched token create",
                    found.token.name,
                    found.contradiction,
                )
            self._remembered[id_] = found, now
            while len(self._remembered) > MOST_REMEMBERED:
                del self._remembered[next(iter(self._remembered))]
        return found


def _look_up(database: Database, id_: str) -> Found | None:
    with database.read() as connection:
        token = token_of_id(connection, id_)
        if token is None:
            return None
        recorded = recorded_token(connection, token.name)
    wrong = [f"{column}: expected {expected}, got {got}" for column, expected, got in differences(token, recorded)]
    return Found(token, "; ".join(wrong) or None)
