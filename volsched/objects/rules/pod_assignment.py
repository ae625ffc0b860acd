"""A pod's node: assigned once, and unassigned while nothing of the pod has started there.

Both are calls of their own, as in a real API server, because an update may not change a pod's node.
"""

from collections.abc import Iterable, Mapping

from volsched.kube.manifest import Manifest, annotations, metadata, spec, status
from volsched.kube.patches import merged
from volsched.log.commands import ConflictError
from volsched.log.events.envelope import NewEvent
from volsched.log.events.fold import ObjectState, State
from volsched.log.events.streams import stream_of
from volsched.node_agent.rules.lifecycle import has_started
from volsched.objects.rules.object_events import NotFoundError, changed_event
from volsched.scheduling.rules.attempts import placing_patch
from volsched.scheduling.rules.failure_memory import NODE_REJECTED, REJECTED_NODES

MOST_REJECTED = 16


class UnboundError(ConflictError):
    """The pod cannot be assigned; the message is Kubernetes' own."""


def bind_pod(
    state: State | None, key: str, *, uid: str, node: str, now: str, notes: Mapping[str, str] | None = None
) -> NewEvent:
    """Assign the pod; `notes` are annotations from the binder."""
    pod = _existing_pod(state, key, uid)
    name = metadata(pod).get("name")
    if metadata(pod).get("deletionTimestamp"):
        raise UnboundError(f"pod {name} is being deleted, cannot be assigned to a host")
    if spec(pod).get("nodeName"):
        raise UnboundError(f'pod {name} is already assigned to node "{spec(pod)["nodeName"]}"')
    if spec(pod).get("schedulingGates"):
        raise UnboundError(f"pod {name} has non-empty .spec.schedulingGates")
    patch = placing_patch(pod, node, now)
    return _changed(key, merged(patch, {"metadata": {"annotations": dict(notes)}}) if notes else patch)


def unassign_pod(state: State | None, key: str, *, uid: str, reason: str, now: str) -> NewEvent:
    pod = _existing_pod(state, key, uid)
    node = spec(pod).get("nodeName")
    if not node:
        raise ConflictError(f'Pod "{key}" is not assigned to a node')
    if has_started(pod):
        raise ConflictError(
            f'Pod "{key}" has started on node "{node}" and cannot be unassigned; delete it instead'
        )
    known = [name for name in str(annotations(pod).get(REJECTED_NODES, "")).split(",") if name and name != node]
    condition = {
        "type": "PodScheduled",
        "status": "False",
        "reason": NODE_REJECTED,
        "message": reason,
        "lastTransitionTime": now,
    }
    others = [entry for entry in status(pod).get("conditions", ()) if entry.get("type") != "PodScheduled"]
    patch = {
        "metadata": {"annotations": {REJECTED_NODES: ",".join(_newest([*known, node]))}},
        "spec": {"nodeName": None},
        "status": {"conditions": [*others, condition]},
    }
    return _changed(key, patch)


def _existing_pod(state: State | None, key: str, uid: str) -> Manifest:
    pod = state.manifest if isinstance(state, ObjectState) else None
    if pod is None or metadata(pod).get("uid") != uid:
        raise NotFoundError(f'Pod "{key}" with uid {uid} not found')
    return pod


def _changed(key: str, patch: Manifest) -> NewEvent:
    return changed_event(stream_of("Pod", key), patch)


def _newest(nodes: Iterable[str]) -> list[str]:
    return list(nodes)[-MOST_REJECTED:]
