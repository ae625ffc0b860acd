"""Reports to a foreign cluster's users and autoscalers: a pod's condition, and events about pods and claims.

Conditions and events of our own pods are written in the transaction of the decision. A foreign object is written
by an effect, in a queue of its own behind all work that binds anything.
"""

from collections.abc import Mapping
from typing import Any

from volsched.kube.kinds import KINDS, key_of
from volsched.kube.manifest import Manifest, annotations, metadata, spec, uid
from volsched.kube.meta import BINDING_STAMP
from volsched.log.events.fold import NewEffect
from volsched.log.events.streams import stream_of
from volsched.scheduling.rules.attempts import refused_conditions

TELL = "tell"
"""A kind of effect, with the queue of its name."""
UNGATE = "ungate"
"""A kind of effect: remove a pod's gate although its claims are not bound. In the queue of pods' bindings."""
UNSELECT = "unselect"
"""A kind of effect: remove a deleted node from a claim. In the queue of releases."""
CONTROLLER = "volsched.io/scheduler"
MOST_NOTE = 1_024
MOST_INSTANCE = 128
CUT = " ..."


def notice_effect(
    id_: str, *, kind: str, key: str, uid: str, type_: str, reason: str, message: str, condition: str | None = None
) -> NewEffect:
    """A reporting effect. `id_` is unique among notices. `condition`: the reason of PodScheduled=False to set."""
    data = {"kind": kind, "key": key, "uid": uid, "type": type_, "reason": reason, "message": message}
    data |= {} if condition is None else {"condition": condition}
    stream = stream_of(kind, key)
    return NewEffect(
        key=f"{TELL}/{id_}", lane=f"{TELL}/{stream}", queue=TELL, kind=TELL, data={**data, "streams": (stream,)}
    )


def ungate_effect(key: str, uid: str, reason: str) -> NewEffect:
    """The effect that removes a pod's gate, once in the pod's life."""
    stream = stream_of("Pod", key)
    data = {"streams": (stream,), "uid": uid, "reason": reason}
    return NewEffect(key=f"{UNGATE}/{uid}", lane=f"{UNGATE}/{uid}", queue="bind_pod", kind=UNGATE, data=data)


def unselect_effect(claim: Manifest, node: str) -> NewEffect:
    """The effect that removes a deleted node from a claim, once for each version of the claim."""
    names = metadata(claim)
    stream, version = (
        stream_of("PersistentVolumeClaim", key_of("PersistentVolumeClaim", claim)),
        names["resourceVersion"],
    )
    data = {"streams": (stream,), "uid": uid(claim), "node": node, "stamp": annotations(claim)[BINDING_STAMP]}
    return NewEffect(
        key=f"{UNSELECT}/{uid(claim)}/{version}",
        lane=f"{UNSELECT}/{uid(claim)}",
        queue="release",
        kind=UNSELECT,
        data=data,
    )


def condition_of(data: Mapping[str, Any], pod: Manifest, now: str) -> dict[str, Any] | None:
    """The condition to set; None if there is none to report, or the pod has it already."""
    if "condition" not in data or spec(pod).get("schedulingGates"):
        # A gated pod has the condition for gated pods.
        return None
    message = _cut(data["message"])
    conditions = refused_conditions(pod, reason=data["condition"], message=message, now=now)
    return None if conditions is None else conditions[-1]


def event_of(data: Mapping[str, Any], *, name: str, now: str, instance: str) -> dict[str, Any]:
    """An `events.k8s.io/v1` event; `name` is unique, `now` an RFC 3339 time with microseconds."""
    namespace, _, object_name = data["key"].rpartition("/")
    regarding = {
        "apiVersion": KINDS[data["kind"]].api_version,
        "kind": data["kind"],
        "name": object_name,
        "uid": data["uid"],
    }
    return {
        "metadata": {"name": f"{object_name}.{name}", "namespace": namespace or "default"},
        "eventTime": now,
        "reportingController": CONTROLLER,
        "reportingInstance": instance[:MOST_INSTANCE],
        "action": "Scheduling",
        "reason": data["reason"],
        "type": data["type"],
        "note": _cut(data["message"]),
        "regarding": regarding | ({"namespace": namespace} if namespace else {}),
    }


def _cut(message: str) -> str:
    return message if len(message) <= MOST_NOTE else message[: MOST_NOTE - len(CUT)] + CUT
