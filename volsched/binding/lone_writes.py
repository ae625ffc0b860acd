"""Writes to a foreign cluster that belong to no binding: each reads the object, and writes what it has read.

A gate is removed from a pod whose claims we do not bind, and a node that is gone from a claim that waits for it.
"""

from collections.abc import Callable, Mapping
from typing import Any

from volsched.binding.rules.effect_writes import selections
from volsched.binding.rules.safe_release import SafeRow, dynamic_row
from volsched.cluster.port import CallRefusedError, Cluster, Refusal
from volsched.kube.manifest import annotations, has_gate, metadata, uid
from volsched.kube.meta import BINDING_STAMP, GAVE_UP, SELECTED_NODE

FINAL = (Refusal.INVALID, Refusal.FORBIDDEN)
"""Refusals that a retry does not change: the effect is kept with its error, for an operator."""
TRIES = 8


class EndlessActError(Exception):
    """An act kept writing without an outcome."""


def remove_gate(cluster: Cluster, key: str, data: Mapping[str, Any]) -> None:
    def attempt() -> None:
        pod = cluster.get("Pod", key)
        if pod is None or uid(pod) != data["uid"] or not has_gate(pod):
            return
        cluster.open_gate(key, pod, annotations={GAVE_UP: data["reason"]})

    _until_written(attempt, f"pod {key} changes faster than its gate can be removed")


def remove_gone_node(cluster: Cluster, key: str, data: Mapping[str, Any]) -> None:
    """Row D2'' of the safe table, judged on what the cluster has now."""

    def attempt() -> None:
        claim = cluster.get("PersistentVolumeClaim", key)
        gone = cluster.get("Node", data["node"]) is None
        made = cluster.get("PersistentVolume", f"pvc-{data['uid']}") is not None
        row = dynamic_row(data["stamp"], data["uid"], claim, is_stranded=gone and not made)
        if claim is not None and row is SafeRow.NODE_GONE and annotations(claim)[SELECTED_NODE] == data["node"]:
            dropped = {"metadata": {"annotations": dict.fromkeys((*selections(claim), BINDING_STAMP))}}
            at = metadata(claim)["resourceVersion"]
            cluster.patch("PersistentVolumeClaim", key, dropped, version=at)

    _until_written(attempt, f"claim {key} changes faster than its node can be removed")


def _until_written(attempt: Callable[[], None], endless: str) -> None:
    """Retried where another writer has just written the object."""
    for _ in range(TRIES):
        try:
            attempt()
        except CallRefusedError as refused:
            if refused.refusal in FINAL:
                raise
        else:
            return
    raise EndlessActError(endless)
