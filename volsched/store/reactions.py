"""Which open bindings an event can concern: those that hold the volume or claim, bind the pod, use the node."""

from collections.abc import Iterable
from typing import Any

from sqlalchemy import Connection, Select, select, text, union

from volsched.events.envelope import Event
from volsched.store import tables
from volsched.store.database import Database

# As text, word for word as in the partial indexes: SQLite uses one only if the condition is the index's own.
_OWNED, _JOINED, _OPEN = text("open AND owner"), text("open AND NOT owner"), text("open")
_STATIC = text("open AND owner AND NOT dynamic")


def touching_bindings(database: Database, connection: Connection, streams: Iterable[str]) -> set[str]:
    """The ids of open bindings for which a change of one of these streams may matter."""
    keys: dict[str, list[str]] = {}
    for stream in streams:
        noun, _, key = stream.partition("/")
        keys.setdefault(noun, []).append(key)
    among, legs, bindings = database.dialect.among, tables.binding_legs, tables.bindings
    found: list[Select[Any]] = []
    if claims := keys.get("claim"):
        found.append(select(legs.c.binding).where(_OWNED, among(legs.c.claim, claims)))
        found.append(select(legs.c.binding).where(_JOINED, among(legs.c.claim, claims)))
    if volumes := keys.get("volume"):
        found.append(select(legs.c.binding).where(_STATIC, among(legs.c.volume, volumes)))
    if owners := keys.get("binding"):
        found.append(select(legs.c.binding).where(_JOINED, among(legs.c.joins, owners)))
    if pods := keys.get("pod"):
        found.append(select(bindings.c.id).where(_OPEN, among(bindings.c.pod, pods)))
    if nodes := keys.get("node"):
        found.append(select(bindings.c.id).where(_OPEN, among(bindings.c.node, nodes)))
    return {row[0] for row in connection.execute(union(*found))} if found else set()


def events_after(connection: Connection, position: int) -> list[Event]:
    events = tables.events
    rows = connection.execute(select(events).where(events.c.position > position).order_by(events.c.position))
    return [Event._make(row) for row in rows]
