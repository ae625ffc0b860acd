"""The handler of `status`: a server answers from running totals, a command counts the objects of the store.

It shows times, not ages, so that an unchanged store always gives the same answer.
"""

from collections.abc import Iterator
from typing import Any

from sqlalchemy import Connection

from volsched.log.events.fold import BindingState, State
from volsched.log.events.streams import BINDING
from volsched.log.integrity.anchors import anchor_notes
from volsched.log.integrity.verification_notes import verification_note
from volsched.log.leases import standings
from volsched.log.observed_cluster import attached_cluster, known_cursors
from volsched.log.reads.lookups import Gauges, read_gauges
from volsched.log.reads.startup import load_objects
from volsched.log.reads.views import StoreView
from volsched.questions.audit.answers import time_text
from volsched.questions.context import QuestionContext
from volsched.questions.history.moments import view_in
from volsched.questions.registry import API_VERSION
from volsched.questions.status.parameters import StatusParameters
from volsched.questions.status.storage_tally import COUNTED, StorageTally


def status(context: QuestionContext, parameters: StatusParameters) -> dict[str, Any]:
    with context.database.read() as connection:
        if parameters.as_of is not None:
            return _as_of(*view_in(connection, parameters.as_of, now=context.now))
        gauges = read_gauges(connection)
        tally = context.tally
        if tally is None:
            tally = StorageTally()
            tally.begin(load_objects(connection, COUNTED))
        integrity, cluster = _integrity(connection), _cluster(connection)
    from_tally = _tally_fields(tally)
    return {
        "apiVersion": API_VERSION,
        "kind": "StoreStatus",
        "position": gauges.position,
        "lastEventAt": time_text(gauges.at),
        **({} if cluster is None else {"cluster": cluster}),
        **from_tally,
        "bindings": [
            {"state": it.state, "count": it.count, "oldestPlannedAt": time_text(it.oldest)}
            for it in sorted(gauges.in_flight, key=lambda it: it.state)
        ],
        "effects": _effects(gauges),
        "roomReservedBytes": gauges.reserved_bytes,
        "leases": [
            {
                "name": it.lease.name,
                "holder": it.lease.holder,
                "held": it.over is None,
                "renewedAt": time_text(it.lease.renewed_at),
            }
            for it in standings(context.database, now=context.now)
        ],
        "integrity": integrity,
    }


def _as_of(view: StoreView, moment: int) -> dict[str, Any]:
    """The state in the past. Queues, leases and verifications are left out: the log does not record them."""
    tally = StorageTally()
    tally.begin(dict(_states(view)))
    times_by_state: dict[str, list[int]] = {}
    for _, it in view.every(BINDING):
        if isinstance(it, BindingState) and it.open:
            times_by_state.setdefault(it.state, []).append(it.planned_at)
    return {
        "apiVersion": API_VERSION,
        "kind": "StoreStatus",
        "position": view.position,
        "lastEventAt": time_text(moment),
        "asOf": time_text(moment),
        **_tally_fields(tally),
        "bindings": [
            {"state": state, "count": len(times), "oldestPlannedAt": time_text(min(times))}
            for state, times in sorted(times_by_state.items())
        ],
        "effects": [],
        "leases": [],
    }


def _states(view: StoreView) -> Iterator[tuple[str, State]]:
    for noun in COUNTED:
        for key, state in view.every(noun):
            yield f"{noun}/{key}", state


def _tally_fields(tally: StorageTally) -> dict[str, Any]:
    return {
        "pods": tally.pods(),
        "pending": [{"reason": reason, "pods": count} for reason, count in tally.pending()],
        "oldestPendingSince": time_text(tally.oldest_pending()),
        "storage": _storage(tally),
        "claims": [
            {"class": it.class_name, "zone": it.zone, "phase": it.kind, "count": it.count, "bytes": it.bytes}
            for it in tally.claims()
        ],
        "conflicts": [{"class": name, "count": count} for name, count in sorted(tally.conflicts.items())],
    }


def _integrity(connection: Connection) -> dict[str, Any]:
    """When the whole log was last verified, and when an external anchor last proved it; null: never."""
    note, anchors = verification_note(connection), anchor_notes(connection)
    return {
        "verified": note and {"position": note.position, "at": time_text(note.at), "ok": note.ok},
        "anchor": anchors
        and {
            "position": anchors.position,
            "at": time_text(anchors.at) if anchors.at else None,
            "failing": anchors.failing,
        },
    }


def _cluster(connection: Connection) -> dict[str, Any] | None:
    """The cluster that the store mirrors, and the oldest time at which a kind was last observed."""
    attached = attached_cluster(connection)
    if attached is None:
        return None
    heard_at = min((it.heard_at for it in known_cursors(connection).values()), default=None)
    return {"uid": attached["uid"], "url": attached["url"], "heardAt": time_text(heard_at)}


def _effects(gauges: Gauges) -> list[dict[str, Any]]:
    ordered = sorted(gauges.effects, key=lambda it: (it.queue, it.state))
    return [
        {"queue": it.queue, "state": it.state, "count": it.count, "firstDueAt": time_text(it.first_due)}
        for it in ordered
    ]


def _storage(tally: StorageTally) -> list[dict[str, Any]]:
    """A row for each class and zone: the number of volumes, their bytes by use, and the capacity for new ones."""
    rows: dict[tuple[str, str], dict[str, Any]] = {}
    for group in (*tally.volumes_by_use(), *tally.room()):
        key = (group.class_name, group.zone)
        row = rows.setdefault(key, {"class": group.class_name, "zone": group.zone, "volumes": 0, "bytes": {}})
        row["volumes"] += 0 if group.kind == "room" else group.count
        row["bytes"][group.kind] = row["bytes"].get(group.kind, 0) + group.bytes
    return [rows[key] for key in sorted(rows)]
