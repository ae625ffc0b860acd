"""Data about an observed cluster that is not in its objects' streams.

In the log: the cluster's identity, gaps in its history, restorations, and drift between our objects and its own.
Beside the log, because they would be most of its events and their past is never read: pods without claims, the
readiness of the others, and the cursor of each kind. The first list after a restart writes them again.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import orjson
from sqlalchemy import Connection, delete, select

from volsched.log import tables
from volsched.log.commands import Command
from volsched.log.database import Database
from volsched.log.errors import MirroredStoreError, WrongModeError
from volsched.log.events.envelope import NewEvent
from volsched.log.events.fold import Decision, States
from volsched.log.events.streams import NOUN_OF_KIND, OBSERVED_CLUSTER
from volsched.log.reads.tail import read_stream
from volsched.log.rows import VIEWS
from volsched.runtime.clock import SECOND

_pods, _cursors = tables.observed_pods, tables.mirror_cursors
PROJECTION = "(projection)"
"""A row among the cursors that holds the fingerprint of the projection."""
ATTACHED, GAP, RESTORED, DRIFT = "ClusterAttached", "MirrorGap", "ClusterRestored", "MirrorDrift"
MOST_SILENT = 180 * SECOND
"""The longest silence about a kind: bookmarks arrive at least every two minutes, even without changes."""


@dataclass(frozen=True, slots=True)
class KnownCursor:
    cursor: int
    heard_at: int
    """When the cluster last reported on this kind, in microseconds; may lag by a few seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """A period in which single changes to objects of a kind are unknown; the state at its end is known."""

    kind: str
    since: int | None
    """None: the start is unknown."""
    until: int
    reason: str


def note(type_: str, data: Mapping[str, Any], *, actor: str) -> Command:
    def decide(_: States) -> Decision:
        return Decision(events=(NewEvent(stream=OBSERVED_CLUSTER, type=type_, data=data),))

    return Command(actor=actor, streams=(OBSERVED_CLUSTER,), decide=decide)


def attached_cluster(connection: Connection) -> Mapping[str, Any] | None:
    """The cluster that the store mirrors: `uid`, `version`, `url` and `mode`; None if it mirrors none."""
    for event in reversed(read_stream(connection, OBSERVED_CLUSTER)):
        if event.type == ATTACHED:
            data: Mapping[str, Any] = orjson.loads(event.data)
            return data
    return None


def require_mode(recorded: str | None, mode: str) -> None:
    """A store decides in one mode, because another mode would carry out the open plans differently.

    Gate mode, for example, treats a pod without a gate as done, while own mode still has to place it.
    """
    if recorded not in (None, mode):
        raise WrongModeError(
            f"the store decides in mode {recorded}, and its open bindings can be ended in that mode only: "
            f"continue in mode {recorded}, or use another store for mode {mode} (--db, or VOLSCHED_DATABASE_URL)"
        )


def require_own_objects(database: Database) -> None:
    """Refuses a mirror: an object written here would be in no cluster, and all later answers would be wrong."""
    with database.read() as connection:
        attached = attached_cluster(connection)
    if attached is not None:
        raise MirroredStoreError(
            f"the store mirrors cluster {attached['uid']} ({attached['url']}): change its objects there, with "
            "kubectl. volsched attach or serve scheduler --cluster decide for it, and its workers need "
            "VOLSCHED_ATTACHED_MODE; for objects of your own, name another store with --db"
        )


def first_attached(connection: Connection) -> str | None:
    """The hash of the event that made this store a mirror; it distinguishes stores of one cluster."""
    for it in read_stream(connection, OBSERVED_CLUSTER, limit=1):
        return it.hash.hex()
    return None


def gaps(connection: Connection) -> list[Gap]:
    """The gaps in log order."""
    found = ((it.at, orjson.loads(it.data)) for it in read_stream(connection, OBSERVED_CLUSTER) if it.type == GAP)
    return [Gap(kind=data["kind"], since=data.get("since"), until=at, reason=data["reason"]) for at, data in found]


def drifted_kinds(connection: Connection) -> list[str]:
    """The kind of every recorded drift between our objects and the cluster's."""
    return [orjson.loads(it.data)["kind"] for it in read_stream(connection, OBSERVED_CLUSTER) if it.type == DRIFT]


def known_cursors(connection: Connection) -> dict[str, KnownCursor]:
    rows = connection.execute(select(_cursors).where(_cursors.c.kind != PROJECTION))
    return {row.kind: KnownCursor(row.cursor, row.heard_at) for row in rows}


def stored_projection(connection: Connection) -> int | None:
    """The fingerprint of the projection that all objects of the store were stored with; None if unknown."""
    return connection.execute(select(_cursors.c.cursor).where(_cursors.c.kind == PROJECTION)).scalar()


def note_projection(database: Database, fingerprint: int, now: int) -> None:
    with database.write_beside_log() as connection:
        database.dialect.upsert(connection, _cursors, [(PROJECTION, fingerprint, now)])


def note_cursors(database: Database, cursors: Mapping[str, tuple[int, int]]) -> None:
    """Kind → cursor, and the time of the last report."""
    with database.write_beside_log() as connection:
        rows = [(kind, *known) for kind, known in cursors.items()]
        database.dialect.upsert(connection, _cursors, rows)


def write_observed_pods(
    database: Database, present: Mapping[str, Mapping[str, Any]], gone: Iterable[str] = ()
) -> None:
    with database.write_beside_log() as connection:
        if missing := list(gone):
            connection.execute(delete(_pods).where(_pods.c.key.in_(missing)))
        if present:
            rows = [(key, orjson.dumps(manifest).decode()) for key, manifest in present.items()]
            database.dialect.upsert(connection, _pods, rows)


def observed_versions(connection: Connection, kind: str) -> dict[str, tuple[str, str]]:
    """Key → uid and version of every object of the kind, as they were last recorded."""
    table, _ = VIEWS[NOUN_OF_KIND[kind]]
    rows = connection.execute(select(table.c.key, table.c.uid, table.c.origin_rv))
    versions = {row.key: (row.uid, row.origin_rv) for row in rows if row.origin_rv is not None}
    if kind == "Pod":
        for row in connection.execute(select(_pods)):
            names = orjson.loads(row.manifest)["metadata"]
            versions[row.key] = (str(names.get("uid", "")), str(names.get("resourceVersion", "")))
    return versions


def observed_pods(connection: Connection) -> Iterator[Mapping[str, Any]]:
    """The present row of every pod of an observed cluster."""
    return (dict(row) for row in connection.execute(select(_pods)).mappings())


def observed_pod_keys(connection: Connection) -> list[str]:
    return list(connection.execute(select(_pods.c.key)).scalars())
