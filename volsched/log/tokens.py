"""Tokens at rest: a row beside the log, and an event in it, written in one transaction.

The row holds the hash, and the log, which is exported, archived and copied, never does. A token is therefore not
part of what an export restores: in another store nobody is let in by tokens of this one.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import orjson
from sqlalchemy import Connection, Row, delete, func, insert, or_, select, update

from volsched.log import tables
from volsched.log.batch import Batch, begin_batch, load, lock_head, stage
from volsched.log.batch_writes import write
from volsched.log.database import Database
from volsched.log.errors import StoreError
from volsched.log.events.envelope import NewEvent
from volsched.log.events.streams import TOKEN

_tokens = tables.tokens


class TokenTakenError(StoreError):
    """A token of that name can still be used."""


class NoTokenError(StoreError):
    """There is no token of that name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredToken:
    name: str
    id: str
    hash: bytes
    roles: tuple[str, ...]
    namespaces: tuple[str, ...] | None
    """None: everywhere."""
    issued_at: int
    issued_by: str
    expires_at: int | None = None
    revoked_at: int | None = None

    def usable(self, now: int) -> bool:
        return self.revoked_at is None and (self.expires_at is None or now < self.expires_at)


def issue(database: Database, token: StoredToken, *, reason: str | None = None) -> None:
    """Keep a new token; raises TokenTakenError while one of its name can be used."""
    with database.write() as connection:
        batch = _begin(database, connection, token.name, token.issued_by, now=token.issued_at)
        found = _find(connection, token.name)
        if found is not None and found.usable(token.issued_at):
            raise TokenTakenError(
                f'token "{token.name}" exists already; choose another name, or first: '
                f"volsched token revoke {token.name}"
            )
        data = {
            "id": token.id,
            "roles": list(token.roles),
            "namespaces": None if token.namespaces is None else list(token.namespaces),
            "expires": token.expires_at,
            "reason": reason,
        }
        _say(database, connection, batch, token.issued_by, token.name, "TokenIssued", data)
        connection.execute(delete(_tokens).where(_tokens.c.name == token.name))
        connection.execute(insert(_tokens).values(_row(token)))


def revoke(database: Database, name: str, *, actor: str, now: int, reason: str | None = None) -> bool:
    """End a token; False if it was revoked before. Raises NoTokenError."""
    with database.write() as connection:
        batch = _begin(database, connection, name, actor, now=now)
        found = _find(connection, name)
        if found is None:
            raise NoTokenError(f'there is no token "{name}"; see volsched token list')
        if found.revoked_at is not None:
            return False
        _say(database, connection, batch, actor, name, "TokenRevoked", {"id": found.id, "reason": reason})
        connection.execute(update(_tokens).where(_tokens.c.name == name).values(revoked_at=now))
    return True


def all_tokens(connection: Connection) -> list[StoredToken]:
    return [_stored(row) for row in connection.execute(select(_tokens).order_by(_tokens.c.name))]


def token_of_id(connection: Connection, id_: str) -> StoredToken | None:
    row = connection.execute(select(_tokens).where(_tokens.c.id == id_)).first()
    return None if row is None else _stored(row)


def usable_tokens(connection: Connection, *, now: int) -> int:
    """How many there are that would be let in."""
    lasts = or_(_tokens.c.expires_at.is_(None), _tokens.c.expires_at > now)
    asked = select(func.count()).select_from(_tokens).where(_tokens.c.revoked_at.is_(None), lasts)
    return int(connection.execute(asked).scalar_one())


def _begin(database: Database, connection: Connection, name: str, actor: str, *, now: int) -> Batch:
    head = lock_head(database, connection)
    batch = begin_batch(database, connection, head, now=now, actor=actor)
    load(database, connection, batch, [f"{TOKEN}/{name}"])
    return batch


def _say(
    database: Database,
    connection: Connection,
    batch: Batch,
    actor: str,
    name: str,
    type_: str,
    data: Mapping[str, object],
) -> None:
    told = {key: value for key, value in data.items() if value is not None}
    events, states = stage(batch, actor, [NewEvent(stream=f"{TOKEN}/{name}", type=type_, data=told)], None)
    batch.take(events, states, ())
    write(database, connection, batch)


def _find(connection: Connection, name: str) -> StoredToken | None:
    row = connection.execute(select(_tokens).where(_tokens.c.name == name)).first()
    return None if row is None else _stored(row)


def _row(token: StoredToken) -> dict[str, object]:
    return {
        "name": token.name,
        "id": token.id,
        "hash": token.hash,
        "roles": _list(token.roles),
        "namespaces": None if token.namespaces is None else _list(token.namespaces),
        "issued_at": token.issued_at,
        "issued_by": token.issued_by,
        "expires_at": token.expires_at,
        "revoked_at": token.revoked_at,
    }


def _list(values: Collection[str]) -> str:
    return orjson.dumps(list(values)).decode()


def _stored(row: Row[tuple[object, ...]]) -> StoredToken:
    return StoredToken(
        name=row.name,
        id=row.id,
        hash=bytes(row.hash),
        roles=tuple(orjson.loads(row.roles)),
        namespaces=None if row.namespaces is None else tuple(orjson.loads(row.namespaces)),
        issued_at=row.issued_at,
        issued_by=row.issued_by,
        expires_at=row.expires_at,
        revoked_at=row.revoked_at,
    )
