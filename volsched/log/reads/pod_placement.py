"""Where the pods of a store are: their rows, the volumes of their claims, open bindings, and last attempts."""

from collections.abc import Iterator

from sqlalchemy import Connection, func, select

from volsched.log import tables
from volsched.log.events.fold import ObjectState
from volsched.log.rows import object_state

_claims, _bindings, _attempts, _pods = tables.claims, tables.bindings, tables.attempts, tables.pods


def pods_by_key(connection: Connection) -> Iterator[ObjectState]:
    for row in connection.execute(select(_pods).order_by(_pods.c.key)).mappings():
        yield object_state(dict(row))


def volumes_of_claims(connection: Connection) -> dict[str, str | None]:
    """Claim → its volume; None where it has none."""
    return {row.key: row.volume for row in connection.execute(select(_claims.c.key, _claims.c.volume))}


def open_bindings_by_pod(connection: Connection) -> dict[str, str]:
    """Pod → the state of its open binding."""
    found = connection.execute(select(_bindings.c.pod, _bindings.c.state).where(_bindings.c.open))
    return {row.pod: row.state for row in found}


def bindings_by_state(connection: Connection) -> dict[str, int]:
    """State → how many bindings are in it."""
    counts = select(_bindings.c.state, func.count()).group_by(_bindings.c.state)
    return {row[0]: row[1] for row in connection.execute(counts)}


def last_attempt_detail(connection: Connection, pod: str, *, uid: str) -> str | bytes | None:
    """The detail of the last attempt to place a pod, as JSON; None where there was none."""
    latest = (
        select(_attempts.c.detail)
        .where(_attempts.c.pod == pod, _attempts.c.pod_uid == uid)
        .order_by(_attempts.c.last_at.desc(), _attempts.c.id.desc())
        .limit(1)
    )
    detail: str | bytes | None = connection.execute(latest).scalar()
    return detail
