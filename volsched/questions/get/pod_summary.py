"""What became of every pod: its node, its volumes, and where it has none, the reason of its last attempt."""

from collections.abc import Mapping
from typing import Any

from pydantic_core import from_json
from sqlalchemy import Connection, func, select

from volsched.kube.workloads import Pod
from volsched.log import tables
from volsched.log.rows import object_state
from volsched.scheduling.cluster_view import read_object
from volsched.scheduling.rules.pod_claims import claim_uses


def summary(connection: Connection) -> dict[str, Any]:
    claims = {
        row.key: row.volume for row in connection.execute(select(tables.claims.c.key, tables.claims.c.volume))
    }
    open_ = {
        row.pod: row.state
        for row in connection.execute(
            select(tables.bindings.c.pod, tables.bindings.c.state).where(tables.bindings.c.open)
        )
    }
    pods = []
    for row in connection.execute(select(tables.pods).order_by(tables.pods.c.key)).mappings():
        state = object_state(dict(row))
        pod = read_object("pod", state.manifest or {}, state.rv)
        assert isinstance(pod, Pod)
        given = {use.name: claims.get(use.key) for use in claim_uses(pod)}
        pods.append(
            {
                "pod": pod.key,
                "node": pod.node_name or None,
                "claims": given,
                "state": _state(connection, pod, open_.get(pod.key), given),
            }
        )
    counts = select(tables.bindings.c.state, func.count()).group_by(tables.bindings.c.state)
    return {"pods": pods, "bindings": {row[0]: row[1] for row in connection.execute(counts)}}


def _state(connection: Connection, pod: Pod, binding: str | None, claims: Mapping[str, str | None]) -> str:
    if pod.node_name and all(claims.values()):
        return "bound"
    if pod.node_name and binding is None:
        # Somebody else gave it the node; no scheduler will look at its claims.
        return f"without its volumes; see: volsched explain pod {pod.key}"
    if binding is not None:
        return binding
    attempts = tables.attempts
    last = connection.execute(
        select(attempts.c.detail)
        .where(attempts.c.pod == pod.key, attempts.c.pod_uid == pod.meta.uid)
        .order_by(attempts.c.last_at.desc(), attempts.c.id.desc())
        .limit(1)
    ).scalar()
    return "waiting" if last is None else f"pending: {from_json(last)['message']}"
