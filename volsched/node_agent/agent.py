"""The node agent's loop: a kubelet without containers, for any number of nodes in one process.

Level-triggered: a pod is looked at when it, its node, its claims, their volumes or their attachments have changed,
or when its time is up. Every step is one command that is refused unless all it was decided on is still so; whoever
was refused looks again. So two agents may serve one node, and an agent may die on any line.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice

from volsched.kube.data_state import DIRTY
from volsched.kube.storage import VolumeAttachment
from volsched.kube.workloads import Node, Pod
from volsched.log.commands import Command, Done, Precondition, Scan
from volsched.log.database import Database
from volsched.log.events.envelope import Event
from volsched.log.events.streams import noun_and_key, stream_of
from volsched.log.transaction import execute
from volsched.node_agent.node_pods import NodeScenes
from volsched.node_agent.rules.attachments import attachment_of, to_detach
from volsched.node_agent.rules.checks import CHECKS, Check
from volsched.node_agent.rules.lifecycle import (
    Admit,
    Attach,
    Finish,
    Idle,
    PodScene,
    Reject,
    Remove,
    ShutDown,
    StartPod,
    Stuck,
    exit_code,
    next_step,
)
from volsched.node_agent.rules.statuses import ADMITTED_BY, admitted, finished, shut_down, started
from volsched.objects import door
from volsched.objects.rules.notices import notice_stream
from volsched.runtime.clock import SECOND, rfc3339
from volsched.runtime.world import World
from volsched.scheduling.rules.node_avoidance import NODE_REJECTED

BATCH = 256
RETRY = 1 * SECOND
COMPONENT = "volsched-node-agent"
WARNING = "Warning"
ATTACHMENT = "VolumeAttachment"


@dataclass(slots=True)
class NodeAgent:
    database: Database
    world: World
    owner: str
    new_uid: Callable[[], str]
    nodes: Callable[[str], bool] | None = None
    """Which nodes it serves, by name; None: all of them."""
    checks: Sequence[Check] = CHECKS
    batch: int = BATCH
    _scenes: NodeScenes = field(init=False)
    _queue: dict[str, None] = field(default_factory=dict)
    """Streams of pods and nodes to be looked at."""
    _later: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._scenes = NodeScenes(self.world, self.nodes or (lambda _: True))

    def update(self, streams: Iterable[str], now: int) -> None:  # noqa: ARG002 - a Part's; what waits has its time
        """Take note of what has changed in the world."""
        for stream in streams:
            self._queue |= dict.fromkeys(self._scenes.look(stream))

    def step(self, now: int) -> int:
        """Look at a batch of pods and nodes, and do what comes next for each; answers how many were looked at."""
        for stream in [stream for stream, due in self._later.items() if due <= now]:
            self._queue[stream] = None
        batch = list(islice(self._queue, self.batch))
        for stream in batch:
            del self._queue[stream]
            self._later.pop(stream, None)
        admitting: dict[str, list[Pod]] = {}
        deeds = [(stream, command) for stream in batch for command in self._look(stream, admitting, now)]
        try:
            outcomes = execute(self.database, [command for _, command in deeds], now=now)
        except Exception:
            # Nobody knows what was committed. The log does, and a second look finds it.
            self._queue |= dict.fromkeys(batch)
            raise
        for (stream, _), outcome in zip(deeds, outcomes, strict=True):
            if not isinstance(outcome, Done):
                # Somebody was faster, and the log will say so; the time is for what the log does not tell.
                self._later[stream] = now + RETRY
        return len(batch)

    def next_due(self) -> int | None:
        """When a pod ends, or something is tried again; None: not before something changes."""
        return 0 if self._queue else min(self._later.values(), default=None)

    def _look(self, stream: str, admitting: dict[str, list[Pod]], now: int) -> Iterator[Command]:
        noun, key = noun_and_key(stream)
        if noun == "node":
            yield from self._detach(key, now)
            return
        pod = self._scenes.pod(key)
        if pod is None:
            return
        beside = admitting.setdefault(pod.node_name, [])
        scene, seen = self._scenes.scene(pod, now=now, admitting=beside)
        step = next_step(scene, checks=self.checks)
        match step:
            case Idle():
                if step.seconds is not None:
                    self._later[stream] = now + step.seconds * SECOND
            case Stuck():
                yield from self._tell(pod, step, now)
            case Reject():
                yield self._reject(pod, step.message, seen, now)
            case Attach():
                yield self._attach(scene, step, seen, now)
            case Remove():
                yield self._remove(pod, seen, now)
            case _:
                scan = None
                if isinstance(step, Admit):
                    beside.append(pod)
                    scan = Scan(self.world.position, _admitting_to(scene.node))
                changes = self._changes(scene, step, now)
                yield door.together(*changes, precondition=Precondition(objects=seen, scan=scan))

    def _changes(self, scene: PodScene, step: Admit | StartPod | Finish | ShutDown, now: int) -> Iterator[Command]:
        """What is written of the pod, and with its admission of the claims that are in use from then on."""
        held, at = self._scenes.manifest(scene.pod), rfc3339(now)
        match step:
            case Admit():
                for claim in step.marks:
                    stream = stream_of("PersistentVolumeClaim", claim)
                    yield door.edit(stream, {"status": {"dataState": DIRTY}}, actor=self.owner)
                patch = admitted(held, node_uid=scene.node.meta.uid if scene.node else "", now=at)
            case StartPod():
                patch = started(held, now=at)
            case Finish():
                patch = finished(held, exit_code=step.exit_code, reason=step.reason, message=step.message, now=at)
            case ShutDown():
                patch = shut_down(held, exit_code=exit_code(scene.pod), now=at)
        yield door.edit(f"pod/{scene.pod.key}", patch, actor=self.owner)

    def _reject(self, pod: Pod, why: str, seen: dict[str, int], now: int) -> Command:
        author = door.controller(self.owner, now)
        write = door.unassign(pod.key, author, uid=pod.meta.uid, reason=why)
        told = door.notice(
            "Pod", pod.key, author, uid=pod.meta.uid, type_=WARNING, reason=NODE_REJECTED, message=why,
            component=COMPONENT,
        )  # fmt: skip
        return door.together(write.command, told, precondition=Precondition(objects=seen))

    def _remove(self, pod: Pod, seen: dict[str, int], now: int) -> Command:
        write = door.delete("Pod", pod.key, door.controller(self.owner, now))
        return replace(write.command, precondition=Precondition(objects=seen))

    def _attach(self, scene: PodScene, step: Attach, seen: dict[str, int], now: int) -> Command:
        assert scene.node is not None
        manifests = (made for volume in step.volumes if (made := attachment_of(volume, scene.node)))
        by_name = {made["metadata"]["name"]: made for made in manifests}
        author = door.controller(self.owner, now)
        # There is no attacher to wait for, so they are attached from the beginning. A volume that one node at a
        # time may have is refused here if another node was faster: its name is taken.
        writes = [
            door.create(ATTACHMENT, made, author, uid=self.new_uid(), status={"attached": True})
            for made in by_name.values()
        ]
        commands = [write.command for write in writes]
        return door.together(*commands, precondition=Precondition(objects=seen))

    def _detach(self, name: str, now: int) -> Iterator[Command]:
        attachments = self._scenes.attachments_to(name)
        if not attachments:
            return
        node = self._scenes.node(name)
        for held in to_detach(attachments, node, self._scenes.volumes_in_use(name)):
            yield self._detaching(held, name, node, now)

    def _detaching(self, held: VolumeAttachment, name: str, node: Node | None, now: int) -> Command:
        stream = stream_of(ATTACHMENT, held.meta.name)

        def outdated(event: Event) -> str | None:
            arrives = event.stream.startswith("pod/") and name in event.data
            return f'{event.stream} came to node "{name}"' if arrives else None

        seen = {
            stream: int(held.meta.resource_version),
            f"node/{name}": 0 if node is None else int(node.meta.resource_version),
        }
        write = door.delete(ATTACHMENT, held.meta.name, door.controller(self.owner, now))
        precondition = Precondition(objects=seen, scan=Scan(self.world.position, outdated))
        return replace(write.command, precondition=precondition)

    def _tell(self, pod: Pod, stuck: Stuck, now: int) -> Iterator[Command]:
        if notice_stream("Pod", pod.key, pod.meta.uid, stuck.reason, stuck.message) not in self.world.states:
            yield door.notice(
                "Pod", pod.key, door.controller(self.owner, now), uid=pod.meta.uid, type_=WARNING,
                reason=stuck.reason, message=stuck.message, component=COMPONENT, once=True,
            )  # fmt: skip


def _admitting_to(node: Node | None) -> Callable[[Event], str | None]:
    """Pods that another agent has let in meanwhile: there may be no room beside them."""
    mark = f'"{ADMITTED_BY}":"{node.meta.uid if node else ""}"'

    def outdated(event: Event) -> str | None:
        admitted = event.stream.startswith("pod/") and mark in event.data
        return f"{event.stream} was admitted" if admitted else None

    return outdated
