"""The Lease objects of clients that elect a leader among themselves, such as kube-scheduler.

Beside the log, unlike every other object: each is written every two seconds for as long as its holder lives, which
would be most of the log's events, and nothing is ever decided by one (docs/decisions has why). A write names the
version that it replaces, and the database compares it, so two servers of one store cannot both give a lease away.
"""

from collections.abc import Mapping
from typing import Any

import orjson
from sqlalchemy import delete, insert, select, update
from sqlalchemy.exc import IntegrityError

from volsched.log import tables
from volsched.log.database import Database
from volsched.log.events.fold import ObjectState

_leases = tables.client_leases


def client_lease(database: Database, key: str) -> ObjectState | None:
    with database.read() as connection:
        row = connection.execute(select(_leases).where(_leases.c.key == key)).first()
    return None if row is None else _state(row.rv, row.manifest)


def client_leases(database: Database, namespace: str | None) -> list[tuple[str, ObjectState]]:
    """Of one namespace or of all, in the order of keys. There are as many as clients, so all are looked at."""
    with database.read() as connection:
        rows = connection.execute(select(_leases)).all()
    within = "" if namespace is None else f"{namespace}/"
    found = (row for row in rows if row.key.startswith(within))
    return [(row.key, _state(row.rv, row.manifest)) for row in sorted(found, key=lambda row: row.key)]


def make_client_lease(database: Database, key: str, manifest: Mapping[str, Any], *, rv: int) -> bool:
    """False where there is one already."""
    try:
        with database.write() as connection:
            connection.execute(insert(_leases).values(key=key, rv=rv, manifest=orjson.dumps(manifest).decode()))
    except IntegrityError:
        return False
    return True


def replace_client_lease(database: Database, key: str, manifest: Mapping[str, Any], *, seen: int, rv: int) -> bool:
    """False where it is no longer at the version `seen`."""
    text = orjson.dumps(manifest).decode()
    asked = update(_leases).where(_leases.c.key == key, _leases.c.rv == seen).values(rv=rv, manifest=text)
    with database.write() as connection:
        return connection.execute(asked).rowcount == 1


def remove_client_lease(database: Database, key: str, *, seen: int) -> bool:
    with database.write() as connection:
        return connection.execute(delete(_leases).where(_leases.c.key == key, _leases.c.rv == seen)).rowcount == 1


def _state(rv: int, manifest: str) -> ObjectState:
    return ObjectState(1, rv, orjson.loads(manifest))
