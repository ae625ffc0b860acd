"""Pages of bindings and attempts by what they are about, in order of time; read on from the last of the page."""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import ColumnElement, Connection, Table, select, tuple_

from volsched.log import tables
from volsched.log.events.fold import AttemptState, BindingState
from volsched.log.reads.decision_audit import After, legs_of
from volsched.log.rows import attempt_state, binding_state

_bindings, _attempts = tables.bindings, tables.attempts


def bindings_page(
    connection: Connection,
    *,
    namespace: str | None = None,
    after: After | None = None,
    limit: int,
    **exact: str | None,
) -> list[tuple[str, BindingState]]:
    """`exact` are columns (`id`, `pod`, `node`, `state`) and what must stand in them; None is anything."""
    rows = _page(connection, _bindings, "planned_at", namespace, exact, after, limit)
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
    """`exact` are columns (`id`, `pod`, `node`, `outcome`)."""
    rows = _page(connection, _attempts, "first_at", namespace, exact, after, limit)
    return [(row["id"], attempt_state(row)) for row in rows]


def _page(
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
    asked = select(table).where(*conditions).order_by(table.c[time], table.c.id).limit(limit)
    return [dict(row) for row in connection.execute(asked).mappings()]
