"""Audit and list queries about decisions: bindings, their legs, attempts, and durations."""

from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

import orjson
from sqlalchemy import ColumnElement, Connection, Row, Select, Table, func, select, text, tuple_

from volsched.binding.rules.phases import Phase
from volsched.kube.manifest import metadata
from volsched.kube.meta import zone_of
from volsched.log import tables
from volsched.log.dialects import dialect_of
from volsched.log.events.fold import AttemptState, BindingState
from volsched.log.reads.event_audit import Window
from volsched.log.row_states import attempt_state, binding_state

# Pages continue after a key, as in `event_audit`.

_bindings, _legs, _attempts = tables.bindings, tables.binding_legs, tables.attempts
# As text, exactly as in the partial indexes: SQLite uses one only if the conditions are identical.
_OPEN, _ROLLED_BACK = text("bindings.open"), text("bindings.state = 'rolled-back'")


class After(NamedTuple):
    """The last binding or attempt of a page; the next page begins after it."""

    at: int
    id: str


class Took(NamedTuple):
    """How long one leg of a committed binding took, from the plan to the pod's node."""

    class_name: str | None
    zone: str | None
    microseconds: int


def rolled_back(
    connection: Connection, within: Window, *, after: After | None = None, limit: int
) -> list[Row[Any]]:
    """Bindings that were undone, last planned first."""
    return _page(connection, select(_bindings).where(_ROLLED_BACK), within, after, limit, newest_first=True)


def undone_bindings(
    connection: Connection, within: Window, *, namespace: str | None = None, limit: int
) -> list[Row[Any]]:
    """Bindings that were undone, the last planned ones, of pods of a namespace or of all."""
    query = select(_bindings).where(_ROLLED_BACK)
    if namespace is not None:
        query = query.where(_bindings.c.pod.startswith(f"{namespace}/", autoescape=True))
    return _page(connection, query, within, None, limit, newest_first=True)


def planned_on(
    connection: Connection, node: str, within: Window, *, after: After | None = None, limit: int
) -> list[Row[Any]]:
    """Bindings to a node, in the order of planning."""
    return _page(connection, select(_bindings).where(_bindings.c.node == node), within, after, limit)


def in_flight(
    connection: Connection, *, planned_until: int | None = None, after: After | None = None, limit: int
) -> list[Row[Any]]:
    """Bindings that are open now and were planned until a time, oldest first.

    There are few, and they are sorted here: with ORDER BY, SQLite would walk all bindings by time, ended ones too.
    """
    rows = connection.execute(select(_bindings).where(_OPEN)).all()
    old = [row for row in rows if planned_until is None or row.planned_at <= planned_until]
    found = sorted(old, key=lambda row: (row.planned_at, row.id))
    return [row for row in found if after is None or (row.planned_at, row.id) > after][:limit]


def were_in_flight(
    connection: Connection, *, at: int, planned_until: int, after: After | None = None, limit: int
) -> list[Row[Any]]:
    """Bindings that were open at a time, whatever their state now; including those that ended at that time."""
    ended_later = _bindings.c.ended_at.is_(None) | (_bindings.c.ended_at >= at)
    query = select(_bindings).where(_bindings.c.planned_at <= planned_until, ended_later)
    return _keyset(connection, query, after, limit)


def binding(connection: Connection, id_: str) -> Row[Any] | None:
    return connection.execute(select(_bindings).where(_bindings.c.id == id_)).one_or_none()


def legs_of(connection: Connection, bindings: Collection[str]) -> dict[str, list[dict[str, Any]]]:
    """The legs of each of these bindings, in order."""
    by_binding: dict[str, list[dict[str, Any]]] = {it: [] for it in bindings}
    rows = dialect_of(connection.engine).fetch(connection, _legs, "binding", bindings) if bindings else []
    for row in sorted(rows, key=lambda it: int(it["leg"])):
        by_binding[row["binding"]].append(row)
    return by_binding


def latest_attempts(connection: Connection, pod: str, *, uid: str | None = None, limit: int) -> list[str]:
    """Ids of the attempts to place a pod, latest first; without a uid, of all pods that had the name."""
    query = select(_attempts.c.id).where(_attempts.c.pod == pod)
    if uid is not None:
        query = query.where(_attempts.c.pod_uid == uid)
    latest = query.order_by(_attempts.c.first_at.desc(), _attempts.c.id.desc()).limit(limit)
    return list(connection.execute(latest).scalars())


def attempt(connection: Connection, id_: str) -> Row[Any] | None:
    return connection.execute(select(_attempts).where(_attempts.c.id == id_)).one_or_none()


def attempts_for(
    connection: Connection, pod: str, within: Window, *, after: After | None = None, limit: int
) -> list[Row[Any]]:
    """The attempts to schedule a pod, latest first."""
    query = select(_attempts).where(
        _attempts.c.pod == pod, _attempts.c.last_at >= within.since, _attempts.c.last_at <= within.until
    )
    key = tuple_(_attempts.c.last_at, _attempts.c.id)
    if after is not None:
        query = query.where(key < tuple_(*after))
    query = query.order_by(_attempts.c.last_at.desc(), _attempts.c.id.desc())
    return list(connection.execute(query.limit(limit)))


def times_to_bound(connection: Connection, within: Window, *, limit: int) -> list[Took]:
    """The durations of legs of the last bindings that were planned in the window and are committed.

    The class is that of the claim, or of its volume once the claim is gone. The zone is that of the node: from its
    column, else from the label used before Kubernetes 1.17, which the column does not have.
    """
    claims, volumes, nodes = tables.claims, tables.volumes, tables.nodes
    recent = (
        select(_bindings.c.id, _bindings.c.node, (_bindings.c.ended_at - _bindings.c.planned_at).label("took"))
        .where(
            _bindings.c.planned_at >= within.since,
            _bindings.c.planned_at <= within.until,
            _bindings.c.state == Phase.COMMITTED,
        )
        .order_by(_bindings.c.planned_at.desc())
        .limit(limit)
        .subquery()
    )
    query = (
        select(func.coalesce(claims.c.class_name, volumes.c.class_name), nodes.c.key, nodes.c.zone, recent.c.took)
        .join(_legs, _legs.c.binding == recent.c.id)
        .join(claims, claims.c.key == _legs.c.claim, isouter=True)
        .join(volumes, volumes.c.key == _legs.c.volume, isouter=True)
        .join(nodes, nodes.c.key == recent.c.node, isouter=True)
    )
    labelled = {
        key: zone_of(metadata(orjson.loads(manifest)).get("labels") or {})
        for key, manifest in connection.execute(
            select(nodes.c.key, nodes.c.manifest).where(
                nodes.c.zone.is_(None), nodes.c.key.in_(select(recent.c.node))
            )
        )
    }
    return [
        Took(class_name, zone or labelled.get(node), took)
        for class_name, node, zone, took in connection.execute(query)
    ]


def _page(
    connection: Connection,
    query: Select[Any],
    within: Window,
    after: After | None,
    limit: int,
    *,
    newest_first: bool = False,
) -> list[Row[Any]]:
    here = query.where(_bindings.c.planned_at >= within.since, _bindings.c.planned_at <= within.until)
    return _keyset(connection, here, after, limit, newest_first=newest_first)


def _keyset(
    connection: Connection, query: Select[Any], after: After | None, limit: int, *, newest_first: bool = False
) -> list[Row[Any]]:
    if after is not None:
        key = tuple_(_bindings.c.planned_at, _bindings.c.id)
        query = query.where(key < tuple_(*after) if newest_first else key > tuple_(*after))
    order = (_bindings.c.planned_at, _bindings.c.id)
    ordered = query.order_by(*(it.desc() for it in order)) if newest_first else query.order_by(*order)
    return list(connection.execute(ordered.limit(limit)))


# Pages of bindings and attempts by subject, in time order; each continues after the last row of the page before.


def bindings_page(
    connection: Connection,
    *,
    namespace: str | None = None,
    after: After | None = None,
    limit: int,
    **exact: str | None,
) -> list[tuple[str, BindingState]]:
    """`exact` maps columns (`id`, `pod`, `node`, `state`) to required values; None matches anything."""
    rows = _table_page(connection, _bindings, "planned_at", namespace, exact, after, limit)
    legs = legs_of(connection, [row["id"] for row in rows])
    return [(row["id"], binding_state(row, legs[row["id"]])) for row in rows]


def attempts_page(
    connection: Connection,
    *,
    namespace: str | None = None,
    after: After | None = None,
    limit: int,
    **exact: str | None,
) -> list[tuple[str, AttemptState]]:
    """`exact` maps columns (`id`, `pod`, `node`, `outcome`) to required values, as in `bindings_page`."""
    rows = _table_page(connection, _attempts, "first_at", namespace, exact, after, limit)
    return [(row["id"], attempt_state(row)) for row in rows]


def _table_page(
    connection: Connection,
    table: Table,
    time: str,
    namespace: str | None,
    exact: dict[str, str | None],
    after: After | None,
    limit: int,
) -> Sequence[dict[str, Any]]:
    conditions: list[ColumnElement[bool]] = [table.c[name] == it for name, it in exact.items() if it is not None]
    if namespace is not None:
        conditions.append(table.c.pod.startswith(f"{namespace}/", autoescape=True))
    if after is not None:
        conditions.append(tuple_(table.c[time], table.c.id) > tuple_(*after))
    query = select(table).where(*conditions).order_by(table.c[time], table.c.id).limit(limit)
    return [dict(row) for row in connection.execute(query).mappings()]
