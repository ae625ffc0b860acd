"""Kubernetes events about objects: one object per thing that is said, counted where it is said again."""

import hashlib
from typing import Any

from volsched.kube.kinds import KINDS
from volsched.kube.manifest import metadata
from volsched.log.events.envelope import NewEvent
from volsched.log.events.fold import ObjectState, State

DEFAULT_NAMESPACE = "default"
SCHEDULER = "volsched-scheduler"
"""The component that speaks of where pods go."""


def notice_stream(kind: str, key: str, uid: str, reason: str, message: str) -> str:
    """Where the notice is kept: the same thing said of the same object goes to the same place."""
    namespace, _, name = key.rpartition("/")
    said = hashlib.sha256(f"{kind}\x1f{key}\x1f{uid}\x1f{reason}\x1f{message}".encode()).hexdigest()[:16]
    return f"notice/{namespace or DEFAULT_NAMESPACE}/{name}.{said}"


def notice_event(
    state: State | None,
    stream: str,
    *,
    kind: str,
    key: str,
    uid: str,
    type_: str,
    reason: str,
    message: str,
    component: str,
    now: str,
    binding: str | None = None,
) -> NewEvent:
    """`state` is that of the notice's stream; `now` is an RFC 3339 time."""
    held = state.manifest if isinstance(state, ObjectState) else None
    if held is not None:
        patch: dict[str, Any] = {"count": int(held.get("count", 1)) + 1, "lastTimestamp": now, "message": message}
        return NewEvent(stream=stream, type="NoticeChanged", data={"patch": patch}, binding=binding)
    _, namespace, name = stream.split("/", 2)
    about = {
        "apiVersion": KINDS[kind].api_version,
        "kind": kind,
        "namespace": key.rpartition("/")[0],
        "name": key.rpartition("/")[2],
        "uid": uid,
    }
    manifest = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": name, "namespace": namespace, "uid": name, "creationTimestamp": now},
        "involvedObject": {field: value for field, value in about.items() if value},
        "type": type_,
        "reason": reason,
        "message": message,
        "source": {"component": component},
        "count": 1,
        "firstTimestamp": now,
        "lastTimestamp": now,
    }
    return NewEvent(stream=stream, type="NoticeCreated", data={"patch": manifest}, binding=binding)


def last_told(state: State | None) -> tuple[int, str]:
    """How often a notice was given, and when last; (0, "") if never."""
    held = state.manifest if isinstance(state, ObjectState) else None
    if held is None:
        return 0, ""
    return int(held.get("count", 1)), str(held.get("lastTimestamp") or metadata(held).get("creationTimestamp", ""))
