"""What a node does next about one of its pods, looked at as it stands.

Nothing is remembered between two looks: all that was done is in the pod's status, its claims and its attachments.
So whoever looks after a crash, or a second agent at the same time, comes to the same next step, and each step is
written only if everything it was decided on is still so.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from volsched.kube.data_state import CLEAN
from volsched.kube.storage import Volume, VolumeAttachment
from volsched.kube.workloads import Node, Pod
from volsched.node_agent.rules.admission import Admitted, NotYet, admit, to_mark
from volsched.node_agent.rules.attachments import attach_problem, is_attached, volumes_to_attach
from volsched.node_agent.rules.checks import CHECKS, Check
from volsched.node_agent.rules.mount_check import Mount, mount_problem
from volsched.scheduling.rules.attach_limits import TERMINATED

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
    """A pod on its node, with everything that decides what comes next."""

    pod: Pod
    node: Node | None
    mounts: Sequence[Mount] = ()
    attachments: Sequence[VolumeAttachment] = ()
    """Of the pod's volumes, to whatever node."""
    others: Sequence[Pod] = ()
    """The pods that the node has admitted and that have not come to their end."""
    admitted_by: str | None = None
    """The uid of the node that admitted the pod."""
    running_for: int | None = None
    """Since how many seconds its containers run; None: they do not."""
    has_started: bool = False
    """A container has run at some time."""
    shut_down: bool = False
    """It is being deleted and runs nothing any more."""


@dataclass(frozen=True, slots=True)
class Idle:
    """Nothing is to be done, for so many seconds or until something changes."""

    seconds: int | None = None


@dataclass(frozen=True, slots=True)
class Stuck:
    """Nothing can be done, and somebody should know why."""

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
    """Everything is mounted."""


@dataclass(frozen=True, slots=True)
class Finish:
    exit_code: int
    reason: str = ""
    message: str = ""


@dataclass(frozen=True, slots=True)
class ShutDown:
    """The pod is being deleted: its containers end and its volumes are unmounted."""


@dataclass(frozen=True, slots=True)
class Remove:
    """Nothing of the pod runs any more, and nobody else holds it: it can go."""


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
    """Its volumes are mounted on its node, or about to be; with a node that is gone nobody knows, so they are."""
    return pod.phase not in TERMINATED and not shut_down


def node_not_found(name: str) -> str:
    return (
        f'node "{name}" does not exist: nobody runs the pod, and it is left as it is; delete the pod, or create '
        "the node again"
    )


def _is_admitted(scene: PodScene, node: Node) -> bool:
    """By this node, not an earlier one of its name; and all it uses is known to be used."""
    clean = any(mount.claim is not None and mount.claim.data_state == CLEAN for mount in scene.mounts)
    return scene.admitted_by == node.meta.uid and not clean


def _admission(scene: PodScene, node: Node, checks: Sequence[Check]) -> Step:
    if scene.running_for is not None and scene.admitted_by in (None, node.meta.uid):
        # It runs here: since before there was an agent, or with a claim of which somebody says that it is clean.
        # It is not asked to leave, but what it uses is in use.
        return Admit(to_mark(scene.mounts))
    verdict = admit(scene.pod, node, scene.others, scene.mounts, checks=checks)
    if isinstance(verdict, Admitted):
        return Admit(verdict.marks)
    if isinstance(verdict, NotYet):
        return Stuck(FAILED_MOUNT, verdict.message)
    if scene.has_started:
        # It may have written somewhere, so it is not sent elsewhere as if nothing had been.
        return Finish(KILLED, "NodeRejected", verdict.message)
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
    """Until its annotations say that it ends: a cluster can be played without containers."""
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
    """What its containers end with."""
    return _number(pod.meta.annotations.get(EXIT_CODE, "")) or 0


def _number(text: str) -> int | None:
    return int(text) if text.isdecimal() and text.isascii() and len(text) <= MOST_DIGITS else None
