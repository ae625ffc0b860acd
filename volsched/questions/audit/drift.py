"""Differences, certain or possible, between an observed cluster and its record: the latest first."""

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

import orjson
from sqlalchemy import Connection

from volsched.log.events.envelope import Event
from volsched.log.events.streams import OBSERVED_CLUSTER
from volsched.log.observed_cluster import DRIFT, GAP, MOST_SILENT, RESTORED, attached_cluster, known_cursors
from volsched.log.reads.event_audit import stream_backwards
from volsched.questions.audit.answers import Answer, Item, number_in, time_text
from volsched.questions.audit.decisions import NEWEST
from volsched.questions.context import QuestionContext
from volsched.questions.parameters import WindowParameters

SILENT = "silent"
WHAT = {GAP: "gap", RESTORED: "restored", DRIFT: "drift"}


def drift(context: QuestionContext, parameters: WindowParameters) -> Answer:
    """Kinds without observations now come first, on the first page; then recorded gaps, drift and restorations."""
    with context.window(parameters) as (connection, within):
        is_of_now = parameters.after is None and parameters.until is None and parameters.as_of is None
        items = list(_silent(connection, context.now)) if is_of_now else []
        start = NEWEST if parameters.after is None else number_in(parameters.after) - 1
        events = (it for it in stream_backwards(connection, OBSERVED_CLUSTER, version=start) if it.type in WHAT)
        in_window = (it for it in events if within.first <= it.position <= within.last)
        page = list(islice(in_window, parameters.limit + 1))
    shown = page[: parameters.limit]
    items += [_item(it) for it in shown]
    return Answer(items=items, after=str(shown[-1].version) if len(page) > len(shown) else None)


def _silent(connection: Connection, now: int) -> Iterator[Item]:
    item = {"position": None, "at": time_text(now), "what": SILENT, "kind": None}
    cursors = known_cursors(connection)
    if not cursors and attached_cluster(connection) is not None:
        # A recording: the cluster was listed once.
        yield item | {"detail": "no process follows the cluster in this store", "reason": None}
    for kind, cursor in cursors.items():
        if now - cursor.heard_at > MOST_SILENT:
            detail = f"not observed since {time_text(cursor.heard_at)}"
            yield item | {"kind": kind, "detail": detail, "reason": "is the follower running?"}


def _item(event: Event) -> Item:
    data: Mapping[str, Any] = orjson.loads(event.data)
    return {
        "position": event.position,
        "at": time_text(event.at),
        "what": WHAT[event.type],
        "kind": data["kind"],
        "detail": _detail(event.type, data),
        "reason": data.get("reason"),
    }


def _detail(type_: str, data: Mapping[str, Any]) -> str:
    if type_ == GAP:
        return f"not observed since {time_text(data.get('since')) or 'an unknown time'}"
    if type_ == RESTORED:
        return f"version {data['before']} became {data['after']}: the cluster was restored from a backup"
    differences = {name: data[name] for name in ("missing", "left_over", "stale") if data[name]}
    return "; ".join(f"{name.replace('_', ' ')}: {', '.join(keys)}" for name, keys in differences.items())
