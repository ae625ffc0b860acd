"""How the glance is taken: a server counts from what it keeps up with the log, a command from the store itself.

Moments are told and not ages, so that the same store gives the same answer whenever it is asked.
"""

from typing import Any

from volsched.log.leases import standings
from volsched.log.reads.lookups import Gauges, read_gauges
from volsched.log.reads.startup import load_objects
from volsched.questions.audit.answers import time_text
from volsched.questions.context import QuestionContext
from volsched.questions.parameters import Parameters
from volsched.questions.registry import API_VERSION
from volsched.questions.status.storage_tally import COUNTED, StorageTally


def status(context: QuestionContext, _: Parameters) -> dict[str, Any]:
    with context.database.read() as connection:
        gauges = read_gauges(connection)
        tally = context.tally
        if tally is None:
            tally = StorageTally()
            tally.begin(load_objects(connection, COUNTED))
    return {
        "apiVersion": API_VERSION,
        "kind": "StoreStatus",
        "position": gauges.position,
        "lastEventAt": time_text(gauges.at),
        "pods": tally.pods(),
        "pending": [{"reason": reason, "pods": count} for reason, count in tally.pending()],
        "oldestPendingSince": time_text(tally.oldest_pending()),
        "bindings": [
            {"state": it.state, "count": it.count, "oldestPlannedAt": time_text(it.oldest)}
            for it in sorted(gauges.in_flight, key=lambda it: it.state)
        ],
        "effects": _effects(gauges),
        "storage": _storage(tally),
        "claims": [
            {"class": it.class_name, "zone": it.zone, "phase": it.kind, "count": it.count, "bytes": it.bytes}
            for it in tally.claims()
        ],
        "conflicts": [{"class": name, "count": count} for name, count in sorted(tally.conflicts.items())],
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
    }


def _effects(gauges: Gauges) -> list[dict[str, Any]]:
    ordered = sorted(gauges.effects, key=lambda it: (it.queue, it.state))
    return [
        {"queue": it.queue, "state": it.state, "count": it.count, "firstDueAt": time_text(it.first_due)}
        for it in ordered
    ]


def _storage(tally: StorageTally) -> list[dict[str, Any]]:
    """A row for each class and zone: how many volumes, their bytes by use, and the room for new ones."""
    rows: dict[tuple[str, str], dict[str, Any]] = {}
    for it in (*tally.volumes_by_use(), *tally.room()):
        key = (it.class_name, it.zone)
        row = rows.setdefault(key, {"class": it.class_name, "zone": it.zone, "volumes": 0, "bytes": {}})
        row["volumes"] += 0 if it.kind == "room" else it.count
        row["bytes"][it.kind] = row["bytes"].get(it.kind, 0) + it.bytes
    return [rows[key] for key in sorted(rows)]
