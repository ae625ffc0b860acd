"""A pod's status in the words of a kubelet: what is written when it is admitted, starts, ends or is shut down.

Each answers a merge patch of the pod's manifest; lists are replaced whole, so what else stands in them is kept.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from volsched.kube.manifest import Manifest, metadata, spec, status

ADMITTED_BY = "admittedBy"
"""In the status, where no update by people reaches it: the uid of the node that admitted the pod."""
RUNNING, SUCCEEDED, FAILED = "Running", "Succeeded", "Failed"
Patch = dict[str, Any]


def admitted_by(pod: Manifest) -> str | None:
    found = status(pod).get(ADMITTED_BY)
    return found if isinstance(found, str) else None


def started_at(pod: Manifest) -> str | None:
    """When its containers started, if they run."""
    if status(pod).get("phase") != RUNNING:
        return None
    running = [_state(container).get("running") for container in _containers(pod)]
    times = [str(it.get("startedAt", "")) for it in running if isinstance(it, dict)]
    if len(times) < len(running):
        return None
    return max(times, default=str(status(pod).get("startTime", "")))


def has_started(pod: Manifest) -> bool:
    """A container of it has run at some time."""
    return any({"running", "terminated"} & _state(it).keys() or it.get("lastState") for it in _containers(pod))


def is_shut_down(pod: Manifest) -> bool:
    """It is being deleted, nothing of it runs any more, and no time is left that it could take."""
    ended = status(pod).get("phase") in (SUCCEEDED, FAILED)
    return ended and metadata(pod).get("deletionGracePeriodSeconds") == 0 and "deletionTimestamp" in metadata(pod)


def admitted(pod: Manifest, *, node_uid: str, now: str) -> Patch:
    """Taken over as it runs, if it runs and no other node had admitted it; otherwise about to be started."""
    if admitted_by(pod) in (None, node_uid) and started_at(pod) is not None:
        return {"status": {ADMITTED_BY: node_uid}}
    waiting = {"waiting": {"reason": "ContainerCreating"}}
    known = {str(it.get("name")): it for it in _containers(pod)}
    containers = []
    for container in _declared(pod):
        entry = known.get(container["name"], {})
        fresh = {**container, "ready": False, "started": False, "restartCount": 0, "state": waiting}
        if {"running", "terminated"} & _state(entry).keys():
            # It ran on a node of this name that is no more; how it ended there nobody knows.
            lost = {"terminated": {"exitCode": 137, "reason": "ContainerStatusUnknown", "finishedAt": now}}
            fresh |= {"lastState": lost, "restartCount": int(entry.get("restartCount", 0)) + 1}
        containers.append(fresh)
    said = {"PodScheduled": "True", "Initialized": "True", "ContainersReady": "False", "Ready": "False"}
    return {
        "status": {
            ADMITTED_BY: node_uid,
            "startTime": status(pod).get("startTime", now),
            "conditions": _conditions(pod, said, now, reason="ContainersNotReady"),
            "containerStatuses": containers,
        }
    }


def started(pod: Manifest, *, now: str) -> Patch:
    known = {str(it.get("name")): it for it in _containers(pod)}
    containers = [
        {**container, "restartCount": 0, **known.get(container["name"], {}),
         "ready": True, "started": True, "state": {"running": {"startedAt": now}}}
        for container in _declared(pod)
    ]  # fmt: skip
    said = dict.fromkeys(("PodScheduled", "Initialized", "ContainersReady", "Ready"), "True")
    conditions = _conditions(pod, said, now)
    return {"status": {"phase": RUNNING, "conditions": conditions, "containerStatuses": containers}}


def finished(pod: Manifest, *, exit_code: int, now: str, reason: str = "", message: str = "") -> Patch:
    phase = FAILED if exit_code else SUCCEEDED
    why = {"reason": reason, "message": message}
    return {
        "status": {
            "phase": phase,
            **{field: value for field, value in why.items() if value},
            "conditions": _conditions(pod, _NOT_READY, now, reason="PodFailed" if exit_code else "PodCompleted"),
            "containerStatuses": [_ended(it, exit_code, now) for it in _containers(pod)],
        }
    }


def shut_down(pod: Manifest, *, exit_code: int, now: str) -> Patch:
    """The pod is to go: what runs ends now, and one that never ran has failed."""
    grace: Patch = {"metadata": {"deletionGracePeriodSeconds": 0}}
    if status(pod).get("phase") in (SUCCEEDED, FAILED):
        return grace
    never = not has_started(pod)
    return {**grace, **finished(pod, exit_code=exit_code or 1 if never else exit_code, now=now)}


_NOT_READY = {"ContainersReady": "False", "Ready": "False"}


def _ended(container: Manifest, exit_code: int, now: str) -> Manifest:
    running = _state(container).get("running")
    if not isinstance(running, dict):
        return container
    ended = {
        "exitCode": exit_code,
        "reason": "Error" if exit_code else "Completed",
        "startedAt": running.get("startedAt", now),
        "finishedAt": now,
    }
    return {**container, "ready": False, "started": False, "state": {"terminated": ended}}


def _conditions(pod: Manifest, said: Mapping[str, str], now: str, *, reason: str = "") -> list[Manifest]:
    """Those that are said, and the others as they are; the time is that of the last change."""
    known = {str(it.get("type")): it for it in status(pod).get("conditions", ()) if isinstance(it, dict)}
    for type_, value in said.items():
        before = known.get(type_, {})
        entry = {"type": type_, "status": value, "lastTransitionTime": before.get("lastTransitionTime", now)}
        if before.get("status") != value:
            entry["lastTransitionTime"] = now
        if value == "False" and reason:
            entry["reason"] = reason
        known[type_] = entry
    return list(known.values())


def _declared(pod: Manifest) -> list[dict[str, str]]:
    given = spec(pod).get("containers", ())
    return [
        # Nothing is pulled, but clients take a status without an imageID for none.
        {"name": str(it.get("name", "")), "image": str(it.get("image", "")), "imageID": ""}
        for it in given
        if isinstance(it, dict)
    ]


def _containers(pod: Manifest) -> Iterable[Manifest]:
    found = status(pod).get("containerStatuses")
    return [it for it in found if isinstance(it, dict)] if isinstance(found, list) else []


def _state(container: Manifest) -> Manifest:
    found = container.get("state")
    return found if isinstance(found, dict) else {}
