"""Past decisions by node, with outcome and duration; and the reads of the history."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import Any

import orjson
from sqlalchemy import Connection, Row

from volsched.binding.rules.phases import SETTLED, Phase
from volsched.log.events.envelope import Event
from volsched.log.events.fold import BindingState, State, binding_stream
from volsched.log.events.streams import AUDIT_READS
from volsched.log.reads import decision_audit
from volsched.log.reads.decision_audit import Took, times_to_bound
from volsched.log.reads.event_audit import Window, events_at, states_as_of, stream_backwards, streams_together
from volsched.questions.audit.answers import (
    MICROSECONDS,
    Answer,
    Item,
    number_in,
    place_in,
    place_token,
    seconds_between,
    time_text,
)
from volsched.questions.history.event_text import reason_of, subject_of, words_of


def on_node(connection: Connection, node: str, within: Window, *, after: str | None, limit: int) -> Answer:
    """Every plan to bind a pod to a node, and its outcome."""
    rows = decision_audit.planned_on(connection, node, within, after=place_in(after), limit=limit + 1)
    legs = decision_audit.legs_of(connection, [row.id for row in rows[:limit]])
    items = [binding_item(row, legs[row.id]) for row in rows[:limit]]
    return Answer(items=items, after=_next(rows, limit))


def rollbacks(connection: Connection, within: Window, *, after: str | None, limit: int) -> Answer:
    """Bindings that were rolled back, each with the first step that failed."""
    rows = decision_audit.rolled_back(connection, within, after=place_in(after), limit=limit + 1)
    ids = [row.id for row in rows[:limit]]
    legs = decision_audit.legs_of(connection, ids)
    events_of = streams_together(connection, [*map(binding_stream, ids)])
    failures = {it: first_failure(events_of[binding_stream(it)]) for it in ids}
    causes = events_at(
        connection, {it.cause for it in failures.values() if it is not None and it.cause is not None}
    )
    items = [
        binding_item(row, legs[row.id]) | _failure_item(failures[row.id], causes, legs[row.id])
        for row in rows[:limit]
    ]
    return Answer(items=items, after=_next(rows, limit))


def first_failure(events: Sequence[Event]) -> Event | None:
    """The step that failed first: a leg that could not be written, or the event by which the binding failed."""
    for event in events:
        state = _new_state(event)
        if event.type == "LegMoved" and state in SETTLED:
            return event
        if event.type == "BindingMoved" and state == Phase.COMPENSATING:
            return event
    return None


def in_flight(connection: Connection, *, now: int, older_than: int, after: str | None, limit: int) -> Answer:
    """Bindings that are open now, the oldest first."""
    place = place_in(after)
    # Other machines' clocks may differ from ours: times are compared only if an age is requested.
    until = now - older_than if older_than else None
    rows = decision_audit.in_flight(connection, planned_until=until, after=place, limit=limit + 1)
    legs = decision_audit.legs_of(connection, [row.id for row in rows[:limit]])
    items = [binding_item(row, legs[row.id]) | _age(row, now) for row in rows[:limit]]
    return Answer(items=items, after=_next(rows, limit))


def in_flight_at_end(
    connection: Connection, within: Window, *, older_than: int, after: str | None, limit: int
) -> Answer:
    """Bindings that were open at the end of the window, as they were then."""
    at, place = within.until, place_in(after)
    rows = decision_audit.were_in_flight(
        connection, at=at, planned_until=at - older_than, after=place, limit=limit + 1
    )
    then = states_as_of(connection, [binding_stream(row.id) for row in rows[:limit]], position=within.last)
    items = [_as_of(row, then[binding_stream(row.id)]) | _age(row, at) for row in rows[:limit]]
    return Answer(items=[it for it in items if it["open"]], after=_next(rows, limit))


def binding_item(row: Row[Any], legs: Sequence[Mapping[str, Any]]) -> Item:
    return {
        "binding": row.id,
        "pod": row.pod,
        "node": row.node,
        "state": row.state,
        "open": bool(row.open),
        "reason": row.reason,
        "plannedAt": time_text(row.planned_at),
        "endedAt": time_text(row.ended_at),
        "seconds": seconds_between(row.planned_at, row.ended_at),
        "decidedAt": row.decided_at,
        "legs": [
            {name: leg[name] for name in ("claim", "volume", "state", "reason")}
            | {"dynamic": bool(leg["dynamic"])}
            for leg in legs
        ],
    }


def _as_of(row: Row[Any], state: State | None) -> Item:
    """The binding at the position; one that began or ended in that transaction may not be open there."""
    if not isinstance(state, BindingState):
        return {"open": False}
    item = binding_item(row, [leg._asdict() for leg in state.legs])
    return item | {
        "open": state.open,
        "state": state.state,
        "reason": state.reason,
        "endedAt": None,
        "seconds": None,
    }


def _failure_item(failed: Event | None, causes: Mapping[int, Event], legs: Sequence[Mapping[str, Any]]) -> Item:
    if failed is None:
        return {"failedStep": None, "failedWhy": None, "failedAt": None, "failedPosition": None, "causedBy": None}
    cause = causes.get(failed.cause or 0)
    step = words_of(failed)
    if failed.type == "LegMoved":
        leg = legs[_data(failed)["leg"]]
        step = f"{step} ({leg['claim']} → {leg['volume'] or 'a new volume'})"
    return {
        "failedStep": step,
        "failedWhy": reason_of(failed),
        "failedAt": time_text(failed.at),
        "failedPosition": failed.position,
        "causedBy": None if cause is None else f"{subject_of(cause)}: {words_of(cause)} by {cause.actor}",
    }


def _age(row: Row[Any], now: int) -> Item:
    return {"ageSeconds": seconds_between(row.planned_at, now)}


def _next(rows: Sequence[Row[Any]], limit: int) -> str | None:
    return place_token(rows[limit - 1].planned_at, rows[limit - 1].id) if len(rows) > limit else None


def _new_state(event: Event) -> str | None:
    return _data(event).get("state")


def _data(event: Event) -> dict[str, Any]:
    loaded: dict[str, Any] = orjson.loads(event.data)
    return loaded


# Latency: the time from the plan until the pod has its node, per class and zone.

PERCENTILES = (50, 90, 99)
LAST_BINDINGS = 1_000
"""Default number of bindings for percentiles: ten of them are slower than the 99th."""
ALL = "all"
NONE = "-"


def latency(connection: Connection, within: Window, *, limit: int) -> Answer:
    """Percentiles over the legs of the last `limit` committed bindings in the window."""
    return Answer(items=percentiles(times_to_bound(connection, within, limit=limit)))


def percentiles(times: Iterable[Took]) -> list[Item]:
    """One item per class and zone, then one for all together."""
    groups: dict[tuple[str, str], list[int]] = {}
    for it in times:
        groups.setdefault((it.class_name or NONE, it.zone or NONE), []).append(it.microseconds)
    if not groups:
        return []
    items = [_item(*key, sorted(groups[key])) for key in sorted(groups)]
    return [*items, _item(ALL, ALL, sorted(it for group in groups.values() for it in group))]


def _item(class_name: str, zone: str, ordered: list[int]) -> Item:
    """Percentiles by nearest rank: the smallest time that at least so many percent do not exceed."""
    ranks = {f"p{it}": -(-len(ordered) * it // 100) - 1 for it in PERCENTILES}
    return {
        "class": class_name,
        "zone": zone,
        "count": len(ordered),
        **{name: ordered[rank] / MICROSECONDS for name, rank in ranks.items()},
        "max": ordered[-1] / MICROSECONDS,
    }


# Reads of the history over HTTP: the reader and the question.

NEWEST = 2**62


def reads(connection: Connection, within: Window, *, after: str | None, limit: int) -> Answer:
    """The reads, the latest first. Pages continue by version, because all reads are in one stream."""
    start = NEWEST if after is None else number_in(after) - 1
    events = stream_backwards(connection, AUDIT_READS, version=start)
    events_before = (event for event in events if event.position <= within.last)
    shown = [event for event in islice(events_before, limit + 1) if event.position >= within.first]
    items: list[Item] = []
    for event in shown[:limit]:
        data = orjson.loads(event.data)
        items.append(
            {
                "position": event.position,
                "at": time_text(event.at),
                "actor": event.actor,
                "question": data["question"],
                "client": data.get("client"),
            }
        )
    return Answer(items=items, after=str(shown[limit - 1].version) if len(shown) > limit else None)
