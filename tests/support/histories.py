"""A short history in which everything happens once: what tests tamper with, carry elsewhere and fold again."""

from typing import Any

from sqlalchemy import Table, insert, select, text

from tests.support.store_samples import NOW, append, change_volume, create_volume, delete_volume, must, plan
from volsched.log import tables
from volsched.log.commands import Command
from volsched.log.database import Database
from volsched.log.events.envelope import GENESIS, Event, NewEvent, link

SECOND = 1_000_000


def fill(database: Database) -> None:
    """Fifteen events: volumes made, changed and deleted, a binding from plan to end, an attempt and its repeat."""
    attempt = {
        "pod": "db/app", "pod_uid": "uid-app", "outcome": "unschedulable", "detail": {"nodes": 3},
        "decided_at": 3, "decider": "test",
    }  # fmt: skip
    must(database, create_volume("a"), create_volume("b"), create_volume("c", "5Gi"), now=NOW)
    must(database, _made("attempt/1", "AttemptMade", attempt), now=NOW + SECOND)
    must(database, _made("attempt/1", "AttemptRepeated", {"decided_at": 4}), now=NOW + 2 * SECOND)
    must(database, plan("b1", "a"), plan("b2", "b", claim="db/other"), now=NOW + 3 * SECOND)
    must(database, change_volume("a", {"spec": {"claimRef": {"namespace": "db", "name": "data"}}}))
    must(database, change_volume("a", {"status": {"phase": "Bound"}}))
    must(
        database,
        _moved("b1", "LegMoved", {"leg": 0, "state": "bound", "open": False}),
        _moved("b1", "BindingMoved", {"state": "committed", "open": False}),
        _made("volume/a", "VolumeFreed", {"binding": "b1"}),
        delete_volume("c"),
        now=NOW + 5 * SECOND,
    )


def _made(stream: str, type_: str, data: dict[str, Any]) -> Command:
    return append(NewEvent(stream=stream, type=type_, data=data))


def _moved(binding: str, type_: str, data: dict[str, Any]) -> Command:
    return append(NewEvent(stream=f"binding/{binding}", type=type_, data=data, binding=binding))


def log(database: Database) -> list[Event]:
    with database.read() as connection:
        rows = connection.execute(select(tables.events).order_by(tables.events.c.position))
        return [Event._make(row) for row in rows]


def views(database: Database, *names: Table) -> dict[str, list[tuple[Any, ...]]]:
    with database.read() as connection:
        return {
            table.name: sorted(tuple(row) for row in connection.execute(select(table)))
            for table in names or (tables.volumes, tables.bindings, tables.binding_legs, tables.attempts)
        }


def sql(database: Database, *statements: str, **values: Any) -> None:
    """What a person with access to the database does to it behind our back."""
    with database.migrating() as connection:
        for statement in statements:
            connection.execute(text(statement), values)


def rewrite(database: Database, events: list[Event]) -> None:
    """Replace the whole log by these, linked and numbered again, head included: a forgery without a seam."""
    previous, rows = GENESIS, []
    for position, it in enumerate(events, start=1):
        envelope = (position, *it[1:-1])
        previous = link(previous, *envelope)
        rows.append(dict(zip(Event._fields, (*envelope, previous), strict=True)))
    with database.migrating() as connection:
        connection.execute(tables.events.delete())
        connection.execute(insert(tables.events), rows)
        head = {"position": len(rows), "hash": previous, "at": rows[-1]["at"]}
        connection.execute(tables.log_head.update().values(head))
