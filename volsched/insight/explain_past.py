"""What was decided about a pod, as it is kept: facts of the past, with their time and position."""

from typing import Any

from pydantic_core import from_json
from sqlalchemy import Connection, Row, select

from volsched.core.attempts import PLANNED
from volsched.engine.clock import rfc3339
from volsched.model.workloads import Pod
from volsched.store import tables


def past_of(connection: Connection, pod: Pod) -> dict[str, Any] | None:
    """The pod's last attempt, and where that found a node, what became of it; None where there was none."""
    attempts = tables.attempts
    asked = select(attempts).where(attempts.c.pod == pod.key, attempts.c.pod_uid == pod.meta.uid)
    row = connection.execute(asked.order_by(attempts.c.last_at.desc(), attempts.c.id.desc()).limit(1)).first()
    if row is None:
        return None
    detail = from_json(row.detail)
    told: dict[str, Any] = {
        "attempt": row.id,
        "outcome": row.outcome,
        "at": rfc3339(row.last_at),
        "since": rfc3339(row.first_at),
        "times": row.count,
        "decidedAt": row.decided_at,
        "decider": row.decider,
        "message": detail.get("message", ""),
        "reasons": detail.get("reasons", []),
    }
    if row.outcome == PLANNED:
        told |= {
            "node": row.node,
            "score": detail.get("score"),
            "scores": detail.get("scores", {}),
            "runnersUp": detail.get("runnersUp", []),
            "binding": _binding(connection, row.id),
        }
    return told


def _binding(connection: Connection, id_: str) -> dict[str, Any] | None:
    """A plan and its attempt have one id."""
    bindings, legs = tables.bindings, tables.binding_legs
    row: Row[Any] | None = connection.execute(select(bindings).where(bindings.c.id == id_)).first()
    if row is None:
        return None
    found = connection.execute(select(legs).where(legs.c.binding == id_).order_by(legs.c.leg))
    return {
        "state": row.state,
        "reason": row.reason,
        "legs": [{"claim": leg.claim, "volume": leg.volume, "state": leg.state} for leg in found],
    }
