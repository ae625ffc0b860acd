"""The executor's calls to a foreign cluster, one at a time.

Each write is conditional on the version that was read. A crash may stop the process before or after any call;
the next attempt finds earlier writes. The last two functions belong to no binding: they remove the gate of a pod
whose claims we do not bind, and a deleted node from a claim that waits for it.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from volsched.binding.rules.effects import NOMINATE, ClusterWrite, FenceWrite, GateWrite
from volsched.binding.rules.foreign_notice import condition_of, event_of
from volsched.binding.rules.release_writes import selections
from volsched.binding.rules.safe_release import SafeRow, dynamic_row
from volsched.cluster.port import CallRefusedError, Cluster, ClusterError, Manifest, Refusal
from volsched.kube.manifest import annotations, has_gate, metadata, spec, uid
from volsched.kube.meta import BINDING_STAMP, GAVE_UP, SELECTED_NODE
from volsched.kube.patches import merged
from volsched.log.effects import Claimed
from volsched.log.events.fold import ObjectState, State, version
from volsched.log.events.streams import KIND_OF_NOUN, noun_and_key, stream_of
from volsched.runtime.clock import rfc3339, rfc3339_micro
from volsched.runtime.fault_points import reach

FINAL = (Refusal.INVALID, Refusal.FORBIDDEN)
"""Refusals that a retry does not change: the effect is kept with its error, for an operator."""
TRIES = 8
MOST_NOMINATED = 10_000


class EndlessActError(Exception):
    """An act kept writing without an outcome."""


def call(
    cluster: Cluster,
    effect: Claimed,
    step: ClusterWrite,
    states: dict[str, State],
    *,
    new_mark: Callable[[], str],
    nominated: dict[str, str],
) -> bool:
    """Carry out one write; False if another process wrote first, and all objects were read again."""
    stream = stream_of(step.kind, step.key)
    reach("executor.calling")
    try:
        written = _write(cluster, step, states[stream], new_mark)
    except CallRefusedError as refused:
        if refused.refusal in FINAL:
            raise
        # Another process wrote first, or our own earlier attempt did. The act reads all objects again, because
        # the other write may have completed a claim that the act still considers unbound.
        read_from_cluster(cluster, effect, states)
        is_written = False
    else:
        states[stream] = _unversioned_state(written)._replace(assumed=getattr(states[stream], "assumed", None))
        is_written = True
        if effect.kind == NOMINATE:
            if len(nominated) >= MOST_NOMINATED:
                nominated.clear()
            nominated[uid(written)] = metadata(written)["resourceVersion"]
    reach("executor.called")
    return is_written


def _write(cluster: Cluster, step: ClusterWrite, state: State, new_mark: Callable[[], str]) -> Manifest:
    pod = (state.manifest if isinstance(state, ObjectState) else None) or {}
    if isinstance(step, GateWrite):
        return cluster.open_gate(step.key, pod)
    if isinstance(step, FenceWrite):
        return cluster.fence(step.kind, step.key, version=step.version, mark=new_mark())
    node = spec(step.patch).get("nodeName")
    if node is None:
        return cluster.patch(step.kind, step.key, step.patch, version=step.version, status=step.status)
    cluster.bind_pod(step.key, uid=uid(pod), version=step.version, node=node)
    return merged(pod, step.patch)


def read_from_cluster(cluster: Cluster, effect: Claimed, states: dict[str, State]) -> None:
    """Read the effect's objects from the cluster."""
    for stream in effect.data["streams"]:
        noun, key = noun_and_key(stream)
        manifest = cluster.get(KIND_OF_NOUN[noun].name, key)
        if manifest is None:
            states.pop(stream, None)
        else:
            before = states.get(stream)
            # Only our log has assumptions; everything else is as in the cluster.
            states[stream] = _unversioned_state(manifest)._replace(assumed=getattr(before, "assumed", None))


def _unversioned_state(manifest: Manifest) -> ObjectState:
    """An object just read or written, in the form that acts read."""
    return ObjectState(version=0, manifest=manifest)


def note_nomination(nominated: dict[str, str], states: dict[str, State]) -> None:
    """Set the pod to the version of our own write. A stale version is harmless: it is refused, and read again."""
    for stream, state in states.items():
        if not stream.startswith("pod/") or not isinstance(state, ObjectState) or state.manifest is None:
            continue
        ours = nominated.pop(uid(state.manifest), None)
        if ours is not None and int(ours) > int(version(state)):
            newer = merged(state.manifest, {"metadata": {"resourceVersion": ours}})
            states[stream] = state._replace(manifest=newer)


def write_notice(
    cluster: Cluster, data: Mapping[str, Any], state: State | None, now: int, *, name: str, instance: str
) -> None:
    """Write the condition and the event about a pod or claim. A missing object or refused event is not retried."""
    manifest = state.manifest if isinstance(state, ObjectState) else None
    condition = None if manifest is None else condition_of(data, manifest, rfc3339(now))
    try:
        if condition is not None and uid(manifest or {}) == data["uid"]:
            cluster.set_condition(data["key"], condition, uid=data["uid"])
    except CallRefusedError as refused:
        if refused.refusal is Refusal.FORBIDDEN:
            raise
    with suppress(ClusterError):
        cluster.create_event(event_of(data, name=name, now=rfc3339_micro(now), instance=instance))


def remove_gate(cluster: Cluster, key: str, data: Mapping[str, Any]) -> None:
    def attempt() -> None:
        pod = cluster.get("Pod", key)
        if pod is None or uid(pod) != data["uid"] or not has_gate(pod):
            return
        cluster.open_gate(key, pod, annotations={GAVE_UP: data["reason"]})

    _until_written(attempt, f"pod {key} changes faster than its gate can be removed")


def remove_gone_node(cluster: Cluster, key: str, data: Mapping[str, Any]) -> None:
    """Row D2'' of the safe table, judged on the cluster's present objects."""

    def attempt() -> None:
        claim = cluster.get("PersistentVolumeClaim", key)
        gone = cluster.get("Node", data["node"]) is None
        created = cluster.get("PersistentVolume", f"pvc-{data['uid']}") is not None
        row = dynamic_row(data["stamp"], data["uid"], claim, is_stranded=gone and not created)
        if claim is not None and row is SafeRow.NODE_GONE and annotations(claim)[SELECTED_NODE] == data["node"]:
            dropped = {"metadata": {"annotations": dict.fromkeys((*selections(claim), BINDING_STAMP))}}
            at = metadata(claim)["resourceVersion"]
            cluster.patch("PersistentVolumeClaim", key, dropped, version=at)

    _until_written(attempt, f"claim {key} changes faster than its node can be removed")


def _until_written(attempt: Callable[[], None], endless: str) -> None:
    """Retry while another writer has just written the object."""
    for _ in range(TRIES):
        try:
            attempt()
        except CallRefusedError as refused:
            if refused.refusal in FINAL:
                raise
        else:
            return
    raise EndlessActError(endless)
