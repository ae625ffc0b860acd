"""What became of every pod: its node, its volumes, and where it has none, the reason of its last attempt."""

from collections.abc import Mapping
from typing import Any

from pydantic_core import from_json
from sqlalchemy import Connection

from volsched.kube.workloads import Pod
from volsched.log.reads.pod_placement import (
    bindings_by_state,
    last_attempt_detail,
    open_bindings_by_pod,
    pods_by_key,
    volumes_of_claims,
)
from volsched.scheduling.cluster_view import read_object
from volsched.scheduling.rules.pod_claims import claim_uses


def summary(connection: Connection) -> dict[str, Any]:
    claims, open_bindings = volumes_of_claims(connection), open_bindings_by_pod(connection)
    pods = []
    for state in pods_by_key(connection):
        pod = read_object("pod", state.manifest or {}, state.rv)
        assert isinstance(pod, Pod)
        given = {use.name: claims.get(use.key) for use in claim_uses(pod)}
        pods.append(
            {
                "pod": pod.key,
                "node": pod.node_name or None,
                "claims": given,
                "state": _state(connection, pod, open_bindings.get(pod.key), given),
            }
        )
    return {"pods": pods, "bindings": bindings_by_state(connection)}


def _state(connection: Connection, pod: Pod, binding: str | None, claims: Mapping[str, str | None]) -> str:
    if pod.node_name and all(claims.values()):
        return "bound"
    if pod.node_name and binding is None:
        # Somebody else gave it the node; no scheduler will look at its claims.
        return f"without its volumes; see: volsched explain pod {pod.key}"
    if binding is not None:
        return binding
    detail = last_attempt_detail(connection, pod.key, uid=pod.meta.uid)
    return "waiting" if detail is None else f"pending: {from_json(detail)['message']}"
