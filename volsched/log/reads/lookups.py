"""Small reads: by key, where pods are, objects by pages, and the numbers for monitoring."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import orjson
from pydantic_core import from_json
from sqlalchemy import Column, ColumnElement, Connection, Select, case, func, select, text

from volsched.log import tables
from volsched.log.base import archived, read_base
from volsched.log.effects import EffectState
from volsched.log.errors import ArchivedError
from volsched.log.events.envelope import Event
from volsched.log.events.fold import ObjectState
from volsched.log.events.streams import noun_and_key
from volsched.log.reads.tail import read_head, state_as_of
from volsched.log.row_states import object_state
from volsched.log.rows import VIEWS

_pods, _attachments, _commands = tables.pods, tables.attachments, tables.commands


def node_of_pod(connection: Connection, key: str) -> str | None:
    return connection.execute(select(_pods.c.node).where(_pods.c.key == key)).scalar()


def pods_on(connection: Connection, node: str, *, namespace: str) -> list[dict[str, Any]]:
    """The manifests of the pods that are bound to the node."""
    query = select(_pods.c.manifest).where(
        _pods.c.node == node, _pods.c.key.startswith(f"{namespace}/", autoescape=True)
    )
    return [orjson.loads(text) for text in connection.execute(query).scalars()]


def attachments_of(connection: Connection, volume: str) -> list[str]:
    """The keys of the volume's VolumeAttachments."""
    return list(connection.execute(select(_attachments.c.key).where(_attachments.c.volume == volume)).scalars())


def result_of(connection: Connection, idempotency_key: str) -> Mapping[str, Any] | None:
    """The result of the command with this key, if it is still stored."""
    text = connection.execute(select(_commands.c.result).where(_commands.c.key == idempotency_key)).scalar()
    return None if text is None else from_json(text)


def is_there(connection: Connection, noun: str, key: str) -> bool:
    """Whether there is an object of that kind and key now."""
    table, _ = VIEWS[noun]
    return connection.execute(select(table.c.key).where(table.c.key == key)).first() is not None


def count_of(connection: Connection, noun: str) -> int:
    table, _ = VIEWS[noun]
    return int(connection.execute(select(func.count()).select_from(table)).scalar_one())


def placed_of_pods(connection: Connection) -> tuple[int, int]:
    """The number of pods that have a node, and of all pods."""
    row = connection.execute(select(func.count(_pods.c.node), func.count()).select_from(_pods)).one()
    return int(row[0]), int(row[1])


def keys_of(connection: Connection, noun: str) -> list[str]:
    """The keys of all objects of a kind, in order."""
    table, _ = VIEWS[noun]
    return list(connection.execute(select(table.c.key).order_by(table.c.key)).scalars())


# Where the pods of a store are: their rows, the volumes of their claims, open bindings, and last attempts.

_claims, _bindings, _attempts = tables.claims, tables.bindings, tables.attempts


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
    """State → the number of its bindings."""
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


# The state of the store in a few numbers, polled by a monitoring system every few seconds.


@dataclass(frozen=True, slots=True, kw_only=True)
class InFlight:
    """Open bindings of one state, and when the oldest of them was planned."""

    state: str
    count: int
    oldest: int


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueGauge:
    """Effects of one queue and state, and when the first of them was or will be due."""

    queue: str
    state: str
    count: int
    first_due: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Gauges:
    position: int
    in_flight: tuple[InFlight, ...]
    effects: tuple[QueueGauge, ...]
    attempts: dict[str, int]
    """Outcome → the number of attempts."""
    at: int
    """When the last event was written, by its writer's clock."""
    leases: tuple[str, ...]
    """The names of all leases."""
    reserved_bytes: int
    """Bytes of capacity objects that open bindings reserve."""

    @property
    def parked(self) -> int:
        return sum(it.count for it in self.effects if it.state == EffectState.PARKED)


def read_gauges(connection: Connection) -> Gauges:
    bindings, effects, attempts, leases = tables.bindings, tables.effects, tables.attempts, tables.leases
    open_ = (
        select(bindings.c.state, func.count(), func.min(bindings.c.planned_at))
        .where(text("bindings.open"))
        .group_by(bindings.c.state)
    )
    # A new effect has no due time: it is due since the event that it was queued with.
    at_once = effects.c.due == 0
    queued = select(
        effects.c.queue,
        effects.c.state,
        func.count(),
        func.min(case((at_once, None), else_=effects.c.due)),
        func.min(case((at_once, effects.c.position))),
    ).group_by(effects.c.queue, effects.c.state)
    legs = tables.binding_legs
    # Only open bindings, by an index: the table keeps the legs of all bindings that ever existed.
    reserved = select(func.coalesce(func.sum(legs.c.bytes), 0)).where(
        legs.c.binding.in_(select(bindings.c.id).where(text("bindings.open"))), legs.c.capacity.is_not(None)
    )
    outcomes = select(attempts.c.outcome, func.sum(attempts.c.count)).group_by(attempts.c.outcome)
    head = read_head(connection)
    queues = connection.execute(queued).all()
    times = _times_of(connection, {position for *_, position in queues if position is not None})
    return Gauges(
        position=head.position,
        in_flight=tuple(
            InFlight(state=state, count=count, oldest=oldest) for state, count, oldest in connection.execute(open_)
        ),
        effects=tuple(
            QueueGauge(queue=queue, state=state, count=count, first_due=_first_due(due, position, times, head.at))
            for queue, state, count, due, position in queues
        ),
        attempts={outcome: int(count) for outcome, count in connection.execute(outcomes)},
        at=head.at,
        reserved_bytes=int(connection.execute(reserved).scalar_one()),
        leases=tuple(connection.execute(select(leases.c.name)).scalars()),
    )


def _times_of(connection: Connection, positions: set[int]) -> dict[int, int]:
    """Position → the time of its event; archived positions are missing."""
    events = tables.events
    rows = connection.execute(
        select(events.c.position, events.c.at).where(events.c.position.in_(sorted(positions)))
    )
    return {row.position: row.at for row in rows}


def _first_due(due: int | None, position: int | None, times: Mapping[int, int], head_at: int) -> int:
    queued_at = None if position is None else times.get(position, head_at)
    return min(it for it in (due, queued_at) if it is not None)


# Objects of one kind, a page at a time: now, or at the recent position at which the first page was read.
#
# The cost of a recent position depends on the events since, never on the whole history: the views are right for
# every object not touched since, and the others are folded one by one.

MOST_BEHIND = 20_000
"""Events after which a position is too old to be listed page by page, or watched from."""
AFTER_SLASH = chr(ord("/") + 1)
KeyedObjects = list[tuple[str, ObjectState]]
_events = tables.events


def namespace_names(connection: Connection) -> list[str]:
    return list(connection.execute(select(tables.namespaces.c.key)).scalars())


def page(
    connection: Connection, noun: str, *, namespace: str | None = None, after: str = "", limit: int | None = None
) -> KeyedObjects:
    """The objects after a key, in key order, bytewise on every engine."""
    table, _ = VIEWS[noun]
    key = _bytewise(connection, table.c.key)
    query = select(table).where(key > after).order_by(key).limit(limit)
    if namespace is not None:
        query = query.where(key > f"{namespace}/", key < f"{namespace}{AFTER_SLASH}")
    return [(row["key"], object_state(dict(row))) for row in connection.execute(query).mappings()]


def page_as_of(
    connection: Connection,
    noun: str,
    *,
    position: int,
    namespace: str | None = None,
    after: str = "",
    limit: int | None = None,
) -> KeyedObjects:
    """`page` as of a position; ArchivedError where that is too old."""
    check_recent(connection, position)
    touched = _touched(connection, noun, position)
    if namespace is not None:
        touched = {key for key in touched if key.startswith(f"{namespace}/")}
    touched = {key for key in touched if key > after}
    # Enough other rows for a whole page, wherever these keys fall.
    enough = None if limit is None else limit + len(touched)
    living = [
        it for it in page(connection, noun, namespace=namespace, after=after, limit=enough) if it[0] not in touched
    ]
    for key in touched:
        state = state_as_of(connection, f"{noun}/{key}", position=position)
        if isinstance(state, ObjectState) and state.manifest is not None:
            living.append((key, state))
    living.sort(key=lambda it: it[0])
    return living[:limit]


def events_of_kind(connection: Connection, noun: str, *, after: int, until: int) -> Iterator[Event]:
    """The events of the objects of a kind, in order; ArchivedError where `after` is too old."""
    check_recent(connection, after)
    query = _of_noun(select(_events), noun).where(_events.c.position > after, _events.c.position <= until)
    return (Event._make(row) for row in connection.execute(query.order_by(_events.c.position)))


def check_recent(connection: Connection, position: int) -> None:
    base, head = read_base(connection), read_head(connection)
    if position < base.position:
        raise archived(connection, f"position {position}", base)
    if head.position - position > MOST_BEHIND:
        raise ArchivedError(
            f"position {position} is {head.position - position} events ago, more than the limit of "
            f"{MOST_BEHIND}; list again"
        )


def _touched(connection: Connection, noun: str, position: int) -> set[str]:
    query = _of_noun(select(_events.c.stream), noun).where(_events.c.position > position).distinct()
    return {noun_and_key(stream)[1] for stream in connection.execute(query).scalars()}


def _of_noun(query: Select[Any], noun: str) -> Select[Any]:
    return query.where(_events.c.stream.startswith(f"{noun}/"))


def _bytewise(connection: Connection, column: Column[str]) -> ColumnElement[str]:
    """PostgreSQL would order by the database's collation, and a page must end where the next begins."""
    return column.collate("C") if connection.dialect.name == "postgresql" else column
