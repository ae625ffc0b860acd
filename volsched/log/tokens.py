"""Storage of tokens: a row beside the log, and an event in it, written in one transaction.

The row holds the hash; the log, which is exported, archived and copied, never does. An export therefore does not
restore tokens: another store accepts none of this one's. The log has a token's rights, its expiry and a
fingerprint of its hash, so that a changed or forged row is detected (`differences`).
"""

import hashlib
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import orjson
from sqlalchemy import Connection, Row, bindparam, delete, func, insert, or_, select, update

from volsched.log import tables
from volsched.log.base import newest_snapshot, read_base
from volsched.log.batch import Batch, begin_batch, load, lock_head, stage
from volsched.log.database import Database
from volsched.log.errors import StoreError
from volsched.log.events.envelope import NewEvent
from volsched.log.events.fold import State, TokenState
from volsched.log.events.streams import TOKEN
from volsched.log.reads.tail import fold_event
from volsched.log.transaction import report, write

_tokens, _events = tables.tokens, tables.events
_OF_ID = select(_tokens).where(_tokens.c.id == bindparam("id"))
_EVENTS = select(_events).where(_events.c.stream == bindparam("stream")).order_by(_events.c.version)
"""Built once: they are executed for every caller, and building one takes longer than executing it."""


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
    """Store a new token; raises TokenTakenError while one of its name can be used."""
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
            "fingerprint": fingerprint(token),
            "reason": reason,
        }
        _append_event(database, connection, batch, token.issued_by, token.name, "TokenIssued", data)
        connection.execute(delete(_tokens).where(_tokens.c.name == token.name))
        connection.execute(insert(_tokens).values(_row(token)))
    report(database, batch)


def revoke(database: Database, name: str, *, actor: str, now: int, reason: str | None = None) -> bool:
    """Revoke a token; False if it was revoked before. Raises NoTokenError."""
    with database.write() as connection:
        batch = _begin(database, connection, name, actor, now=now)
        token = _find(connection, name)
        if token is None:
            raise NoTokenError(f'there is no token "{name}"; see volsched token list')
        if token.revoked_at is not None:
            return False
        _append_event(database, connection, batch, actor, name, "TokenRevoked", {"id": token.id, "reason": reason})
        connection.execute(update(_tokens).where(_tokens.c.name == name).values(revoked_at=now))
    report(database, batch)
    return True


def all_tokens(connection: Connection) -> list[StoredToken]:
    return [_stored(row) for row in connection.execute(select(_tokens).order_by(_tokens.c.name))]


def token_of_id(connection: Connection, id_: str) -> StoredToken | None:
    row = connection.execute(_OF_ID, {"id": id_}).first()
    return None if row is None else _stored(row)


def recorded_token(connection: Connection, name: str) -> State | None:
    """The log's record of the last token issued under a name."""
    stream, base = f"{TOKEN}/{name}", read_base(connection).position
    state = newest_snapshot(connection, stream, position=base) if base else None
    for it in connection.execute(_EVENTS, {"stream": stream}):
        state = fold_event(state, it.position, it.version, it.type, it.schema, it.at, it.data)
    return state


def contradicted_tokens(connection: Connection) -> int:
    """The number of rows that differ from the log."""
    return sum(any(differences(it, recorded_token(connection, it.name))) for it in all_tokens(connection))


def fingerprint(token: StoredToken) -> str:
    """A fingerprint of the hash, for the log: it can neither authenticate a caller nor restore the row."""
    return hashlib.sha256(b"volsched token\0" + token.id.encode() + b"\0" + token.hash).hexdigest()


def differences(token: StoredToken, recorded: State | None) -> Iterator[tuple[str, Any, Any]]:
    """Columns that decide access and differ from the log: column, expected, got.

    An earlier program's hash cannot be compared: the log has no fingerprint of it.
    """
    if not isinstance(recorded, TokenState):
        yield "id", None, token.id
        return
    compared = (
        ("id", recorded.id, token.id),
        ("hash", recorded.fingerprint or fingerprint(token), fingerprint(token)),
        ("roles", list(recorded.roles), list(token.roles)),
        ("namespaces", _listed(recorded.namespaces), _listed(token.namespaces)),
        ("expires_at", recorded.expires, token.expires_at),
    )
    yield from (it for it in compared if it[1] != it[2])
    if (recorded.revoked_at is None) != (token.revoked_at is None):
        # The exact time depends on whose clock was read.
        yield "revoked_at", recorded.revoked_at, token.revoked_at


def usable_tokens(connection: Connection, *, now: int) -> int:
    """The number of tokens that would be accepted."""
    lasts = or_(_tokens.c.expires_at.is_(None), _tokens.c.expires_at > now)
    query = select(func.count()).select_from(_tokens).where(_tokens.c.revoked_at.is_(None), lasts)
    return int(connection.execute(query).scalar_one())


def _begin(database: Database, connection: Connection, name: str, actor: str, *, now: int) -> Batch:
    head = lock_head(database, connection)
    batch = begin_batch(database, connection, head, now=now, actor=actor)
    load(database, connection, batch, [f"{TOKEN}/{name}"])
    return batch


def _append_event(
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


def _listed(values: Collection[str] | None) -> list[str] | None:
    return None if values is None else list(values)


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
