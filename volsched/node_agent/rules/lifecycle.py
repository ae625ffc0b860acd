"""The next step of a node for one of its pods, and the status it writes in a kubelet's terms."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from volsched.kube.manifest import CLEAN, Manifest, metadata, spec, status
from volsched.kube.storage import Volume, VolumeAttachment
from volsched.kube.workloads import TERMINATED, Node, Pod
from volsched.node_agent.rules.admission import (
    CHECKS,
    Admitted,
    Check,
    Mount,
    NotYet,
    admit,
    attach_problem,
    is_attached,
    mount_problem,
    to_mark,
    volumes_to_attach,
)
from volsched.scheduling.rules.failure_memory import NODE_REJECTED

# No state is kept between two steps: the pod's status, its claims and its attachments record all steps. So an
# agent after a crash, or a second agent at the same time, finds the same next step, and each step is written only
# if everything it was decided on is unchanged.

RUN_SECONDS = "volsched.io/run-seconds"
EXIT_CODE = "volsched.io/exit-code"
MOST_DIGITS = 9
FAILED_MOUNT = "FailedMount"
FAILED_ATTACH = "FailedAttachVolume"
NODE_NOT_FOUND = "NodeNotFound"
BAD_ANNOTATION = "BadAnnotation"
KILLED = 137


@dataclass(frozen=True, slots=True, kw_only=True)
class PodScene:
    """A pod on its node, with everything that decides the next step."""

    pod: Pod
    node: Node | None
    mounts: Sequence[Mount] = ()
    attachments: Sequence[VolumeAttachment] = ()
    """The attachments of the pod's volumes, to any node."""
    others: Sequence[Pod] = ()
    """The pods that the node has admitted and that have not finished."""
    admitted_by: str | None = None
    """The uid of the node that admitted the pod."""
    running_for: int | None = None
    """Seconds that its containers have been running; None: they are not running."""
    has_started: bool = False
    """Whether a container has ever run."""
    shut_down: bool = False
    """Whether the pod is being deleted and its containers have ended."""


@dataclass(frozen=True, slots=True)
class Idle:
    """Nothing to do, for this many seconds or until something changes."""

    seconds: int | None = None


@dataclass(frozen=True, slots=True)
class Stuck:
    """No step is possible, for a reason to report."""

    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Admit:
    """Mark the claims Dirty and the pod admitted, in one write."""

    marks: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Reject:
    """Send the pod back to scheduling."""

    message: str


@dataclass(frozen=True, slots=True)
class Attach:
    volumes: tuple[Volume, ...]


@dataclass(frozen=True, slots=True)
class StartPod:
    """Start the pod: everything is mounted."""


@dataclass(frozen=True, slots=True)
class Finish:
    exit_code: int
    reason: str = ""
    message: str = ""


@dataclass(frozen=True, slots=True)
class ShutDown:
    """End the containers of a pod that is being deleted, and unmount its volumes."""


@dataclass(frozen=True, slots=True)
class Remove:
    """Remove the pod: its containers have ended, and it has no finalizers."""


Step = Idle | Stuck | Admit | Reject | Attach | StartPod | Finish | ShutDown | Remove


def next_step(scene: PodScene, *, checks: Sequence[Check] = CHECKS) -> Step:
    pod, node = scene.pod, scene.node
    if pod.meta.being_deleted:
        return _leave(scene)
    if pod.phase in TERMINATED:
        return Idle()
    if node is None:
        return Stuck(NODE_NOT_FOUND, node_not_found(pod.node_name))
    if not _is_admitted(scene, node):
        return _admission(scene, node, checks)
    if scene.running_for is not None:
        return _run_on(pod, scene.running_for)
    return _bring_up(scene, node)


def _leave(scene: PodScene) -> Step:
    if not scene.shut_down:
        return ShutDown()
    return Idle() if scene.pod.meta.finalizers else Remove()


def holds_volumes(pod: Pod, *, shut_down: bool) -> bool:
    """Whether the pod's volumes are mounted on its node or about to be; also assumed if the node is gone."""
    return pod.phase not in TERMINATED and not shut_down


def node_not_found(name: str) -> str:
    return (
        f'node "{name}" does not exist: the pod does not run and is left unchanged; delete the pod, or recreate '
        "the node"
    )


def _is_admitted(scene: PodScene, node: Node) -> bool:
    """Whether this node, not an earlier one of its name, admitted the pod, and no claim is marked Clean."""
    clean = any(mount.claim is not None and mount.claim.data_state == CLEAN for mount in scene.mounts)
    return scene.admitted_by == node.meta.uid and not clean


def _admission(scene: PodScene, node: Node, checks: Sequence[Check]) -> Step:
    if scene.running_for is not None and scene.admitted_by in (None, node.meta.uid):
        # The pod was started before the agent, or another writer marked a claim Clean. It is not evicted, but its
        # claims are in use.
        return Admit(to_mark(scene.mounts))
    verdict = admit(scene.pod, node, scene.others, scene.mounts, checks=checks)
    if isinstance(verdict, Admitted):
        return Admit(verdict.marks)
    if isinstance(verdict, NotYet):
        return Stuck(FAILED_MOUNT, verdict.message)
    if scene.has_started:
        # The pod may have written data, so it must not be rescheduled as if it had not run.
        return Finish(KILLED, NODE_REJECTED, verdict.message)
    return Reject(verdict.message)


def _bring_up(scene: PodScene, node: Node) -> Step:
    problem = mount_problem(scene.pod, node, scene.mounts)
    if problem is not None:
        return Stuck(FAILED_MOUNT, problem)
    missing = [it for it in volumes_to_attach(scene.mounts) if not is_attached(it, node, _of(it, scene))]
    for volume in missing:
        problem = attach_problem(volume, node, _of(volume, scene))
        if problem is not None:
            return Stuck(FAILED_ATTACH, problem)
    return Attach(tuple(missing)) if missing else StartPod()


def _of(volume: Volume, scene: PodScene) -> list[VolumeAttachment]:
    return [held for held in scene.attachments if held.volume_name == volume.name]


def _run_on(pod: Pod, seconds: int) -> Step:
    """The pod runs until its annotations end it, so that a cluster is simulated without containers."""
    for key in (RUN_SECONDS, EXIT_CODE):
        given = pod.meta.annotations.get(key)
        if given is not None and _number(given) is None:
            said = f'annotation {key}: "{given}" is not a whole number; correct it, until then the pod runs on'
            return Stuck(BAD_ANNOTATION, said)
    code, lasts = exit_code(pod), _number(pod.meta.annotations.get(RUN_SECONDS, ""))
    if lasts is None and EXIT_CODE not in pod.meta.annotations:
        return Idle()
    left = (lasts or 0) - seconds
    return Finish(code) if left <= 0 else Idle(left)


def exit_code(pod: Pod) -> int:
    """The exit code of the pod's containers."""
    return _number(pod.meta.annotations.get(EXIT_CODE, "")) or 0


def _number(text: str) -> int | None:
    return int(text) if text.isdecimal() and text.isascii() and len(text) <= MOST_DIGITS else None


# A pod's status in a kubelet's terms: the patch when it is admitted, starts, ends or is shut down.
#
# Each function returns a merge patch of the pod's manifest; lists are replaced whole, so the patch
# repeats their other entries.

ADMITTED_BY = "admittedBy"
"""Status field, which users cannot update: the uid of the node that admitted the pod."""
RUNNING, SUCCEEDED, FAILED = "Running", "Succeeded", "Failed"
Patch = dict[str, Any]


def admitted_by(pod: Manifest) -> str | None:
    found = status(pod).get(ADMITTED_BY)
    return found if isinstance(found, str) else None


def started_at(pod: Manifest) -> str | None:
    """When the pod's containers started, if they run."""
    if status(pod).get("phase") != RUNNING:
        return None
    running = [_state(container).get("running") for container in _containers(pod)]
    times = [str(it.get("startedAt", "")) for it in running if isinstance(it, dict)]
    if len(times) < len(running):
        return None
    return max(times, default=str(status(pod).get("startTime", "")))


def has_started(pod: Manifest) -> bool:
    """Whether a container of the pod has ever run."""
    return any({"running", "terminated"} & _state(it).keys() or it.get("lastState") for it in _containers(pod))


def is_shut_down(pod: Manifest) -> bool:
    """Whether the pod is being deleted, its containers have ended, and its grace period is over."""
    ended = status(pod).get("phase") in (SUCCEEDED, FAILED)
    return ended and metadata(pod).get("deletionGracePeriodSeconds") == 0 and "deletionTimestamp" in metadata(pod)


def admitted(pod: Manifest, *, node_uid: str, now: str) -> Patch:
    """The status after admission: a running pod that no other node admitted continues, others start."""
    if admitted_by(pod) in (None, node_uid) and started_at(pod) is not None:
        return {"status": {ADMITTED_BY: node_uid}}
    waiting = {"waiting": {"reason": "ContainerCreating"}}
    known = {str(it.get("name")): it for it in _containers(pod)}
    containers = []
    for container in _declared(pod):
        entry = known.get(container["name"], {})
        fresh = {**container, "ready": False, "started": False, "restartCount": 0, "state": waiting}
        if {"running", "terminated"} & _state(entry).keys():
            # The pod ran on a deleted node of this name; how it ended there is unknown.
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
    """The pod is being deleted: running containers end now, and a pod that never ran has failed."""
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


def _conditions(pod: Manifest, given: Mapping[str, str], now: str, *, reason: str = "") -> list[Manifest]:
    """The pod's conditions with the given ones set; the transition time is that of the last change."""
    known = {str(it.get("type")): it for it in status(pod).get("conditions", ()) if isinstance(it, dict)}
    for type_, value in given.items():
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
        # Nothing is pulled, but clients treat a status without an imageID as missing.
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
