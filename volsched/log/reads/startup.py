"""Starting from the views: everything a process needs to continue, without reading the history.

The cost follows the number of objects and open bindings, never the length of the log.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import orjson
from sqlalchemy import BindParameter, ColumnElement, Connection, Select, bindparam, select, text

from volsched.kube.kinds import KINDS
from volsched.kube.storage import StorageClass
from volsched.kube.workloads import Node
from volsched.log import tables
from volsched.log.errors import IntegrityBrokenError
from volsched.log.events.fold import BindingState, ObjectState, State
from volsched.log.events.streams import BINDING
from volsched.log.garbage_pause import collector_resting
from volsched.log.observed_cluster import observed_pods
from volsched.log.row_states import OVERLAY, Row, binding_state, observed_state, state_of_columns
from volsched.log.rows import VIEWS
from volsched.scheduling.rules.failure_memory import KEPT
from volsched.workloads.rules.repairs import labelled_node

STATE_COLUMNS = ("key", "version", "rv", "manifest", *OVERLAY)

ROWS_AT_ONCE = 500
"""Rows fetched from the driver at once: one by one takes twice as long."""

# Built once: building a statement takes longer than executing it on a small store. Typed columns follow from
# the manifest: fetching them too would cost a fifth more.
_OBJECTS = {
    noun: select(*(table.c[name] for name in STATE_COLUMNS if name in table.c))
    for noun, (table, _) in VIEWS.items()
}
_OPEN = select(tables.bindings).where(tables.bindings.c.open)
_OPEN_LEGS = select(tables.binding_legs).where(
    tables.binding_legs.c.binding.in_(select(tables.bindings.c.id).where(tables.bindings.c.open))
)
LONGEST_BINDING = 4 * KEPT
"""A start does not see a binding that took longer to fail: failed bindings are found by their planning time."""
_ended_after: BindParameter[int] = bindparam("ended_after", type_=tables.bindings.c.ended_at.type)
_FAILED = select(tables.bindings).where(
    text("bindings.state = 'rolled-back'"),
    tables.bindings.c.planned_at > _ended_after - LONGEST_BINDING,
    tables.bindings.c.ended_at > _ended_after,
)
_FAILED_LEGS = select(tables.binding_legs).where(
    tables.binding_legs.c.binding.in_(_FAILED.with_only_columns(tables.bindings.c.id))
)
_HEAD = select(tables.log_head)
_LAST = select(tables.events.c.position, tables.events.c.hash).order_by(tables.events.c.position.desc()).limit(1)


@dataclass(frozen=True, slots=True)
class StoredWorld:
    """All objects and open bindings as of one position."""

    position: int
    states: dict[str, State]
    failed: list[tuple[str, BindingState]]
    """Bindings that were rolled back recently."""


def load_world(connection: Connection, *, only: Mapping[str, ColumnElement[bool]] | None = None) -> StoredWorld:
    """All in one consistent view; refuses a head that is not the log's last event. `only`: a filter per noun."""
    position = check_head(connection)
    with collector_resting():
        return StoredWorld(position, _load_states(connection, only or {}), _load_failed(connection))


def _load_failed(connection: Connection) -> list[tuple[str, BindingState]]:
    """Bindings rolled back recently enough to count at the time of the last event; a later caller needs fewer."""
    given = {"ended_after": connection.execute(_HEAD).one().at - KEPT}
    return list(_bindings(connection, _FAILED, _FAILED_LEGS, given))


def _bindings(
    connection: Connection, query: Select[Any], of_legs: Select[Any], given: dict[str, int] | None = None
) -> Iterator[tuple[str, BindingState]]:
    legs: dict[str, list[Row]] = {}
    for leg in _rows(connection, of_legs, given):
        legs.setdefault(leg["binding"], []).append(leg)
    for row in _rows(connection, query, given):
        yield row["id"], binding_state(row, legs.get(row["id"], []))


def _load_states(connection: Connection, only: Mapping[str, ColumnElement[bool]]) -> dict[str, State]:
    states: dict[str, State] = {}
    for noun, query in _OBJECTS.items():
        states |= _object_states(connection, noun, query.where(only[noun]) if noun in only else query)
    for pod in observed_pods(connection):
        logged = states.get(stream := f"pod/{pod['key']}")
        states[stream] = observed_state(pod, logged if isinstance(logged, ObjectState) else None)
    states |= {f"{BINDING}/{id_}": state for id_, state in _bindings(connection, _OPEN, _OPEN_LEGS)}
    return states


def load_objects(connection: Connection, nouns: Iterable[str]) -> dict[str, State]:
    """The objects of these nouns only."""
    with collector_resting():
        states: dict[str, State] = {}
        for noun in nouns:
            states |= _object_states(connection, noun, _OBJECTS[noun])
        return states


def _object_states(connection: Connection, noun: str, query: Select[Any]) -> dict[str, State]:
    rows = connection.execute(query).partitions(ROWS_AT_ONCE)
    return {f"{noun}/{key}": state_of_columns(*columns) for some in rows for key, *columns in some}


def _rows(connection: Connection, query: Select[Any], given: dict[str, int] | None = None) -> Iterator[Row]:
    result = connection.execute(query, given)
    names = list(result.keys())
    return (dict(zip(names, row, strict=True)) for rows in result.partitions(ROWS_AT_ONCE) for row in rows)


def load_nodes(connection: Connection) -> list[Node]:
    """The names and labels of all nodes: node labels define the meaning of a volume's labels."""
    manifests = (orjson.loads(text) for text in connection.execute(select(tables.nodes.c.manifest)).scalars())
    return [labelled_node(manifest) for manifest in manifests]


def load_classes(connection: Connection) -> list[StorageClass]:
    """All storage classes, including the default one."""
    manifests = connection.execute(select(tables.classes.c.manifest)).scalars()
    values = (KINDS["StorageClass"].read(orjson.loads(text)) for text in manifests)
    return [value for value in values if isinstance(value, StorageClass)]


def check_head(connection: Connection) -> int:
    head = connection.execute(_HEAD).one()
    last = connection.execute(_LAST).one_or_none()
    if (head.position, bytes(head.hash)) != (
        (0, bytes(32)) if last is None else (last.position, bytes(last.hash))
    ):
        position = 0 if last is None else last.position
        raise IntegrityBrokenError(
            f"the head says position {head.position} and the log ends at {position} with another hash; "
            "stop all writers and run: volsched verify"
        )
    return int(head.position)
