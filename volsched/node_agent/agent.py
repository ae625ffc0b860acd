"""The node agent's loop, a kubelet without containers for any number of nodes, and its view of their pods."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import TypeVar

from volsched.kube.manifest import DIRTY, Manifest, claim_of
from volsched.kube.object_values import Object
from volsched.kube.storage import Claim, Volume, VolumeAttachment
from volsched.kube.workloads import Node, Pod
from volsched.log.commands import Command, Done, Precondition, Scan, version_of
from volsched.log.database import Database
from volsched.log.events.envelope import Event
from volsched.log.events.fold import manifest_of
from volsched.log.events.streams import noun_and_key, stream_of
from volsched.log.transaction import execute
from volsched.node_agent.rules.admission import CHECKS, Check, Mount, attachment_of, to_detach
from volsched.node_agent.rules.lifecycle import (
    ADMITTED_BY,
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
    admitted,
    admitted_by,
    exit_code,
    finished,
    has_started,
    holds_volumes,
    is_shut_down,
    next_step,
    shut_down,
    started,
    started_at,
)
from volsched.objects import door
from volsched.objects.rules.object_events import notice_stream
from volsched.runtime.clock import SECOND, parse_rfc3339, rfc3339
from volsched.runtime.world import World
from volsched.scheduling.cluster_view import read_object
from volsched.scheduling.rules.failure_memory import NODE_REJECTED
from volsched.scheduling.rules.pod_claims import claim_uses

# A node agent's view: its nodes' pods and attachments, indexed by the objects they use, and each pod with its
# surroundings.
#
# Pods and attachments are read when they change. Claims and volumes are read when a pod is examined: there may
# be many times more of them than pods that need work.

Keys = dict[str, dict[str, None]]
"""Insertion-ordered sets: the order of work must not depend on hashing."""
Value = TypeVar("Value", bound=Object)


@dataclass(slots=True)
class NodeScenes:
    world: World
    serves: Callable[[str], bool]
    """Whether the node of this name is one of ours."""
    _pods: dict[str, Pod] = field(default_factory=dict)
    _on: Keys = field(default_factory=dict)
    _using: Keys = field(default_factory=dict)
    _attachments: dict[str, VolumeAttachment] = field(default_factory=dict)
    _attached_to: Keys = field(default_factory=dict)
    _attached_of: Keys = field(default_factory=dict)

    def update(self, stream: str) -> list[str]:
        """Read a change; returns the streams of the pods and nodes to examine because of it."""
        noun, key = noun_and_key(stream)
        match noun:
            case "pod":
                nodes = [*self._forget_pod(key), *self._note_pod(key)]
                return [stream, *(f"node/{name}" for name in dict.fromkeys(nodes))]
            case "node":
                return [*self._streams(self._on.get(key, ())), *([stream] if self.serves(key) else ())]
            case "claim":
                return self._streams(self._using.get(key, ()))
            case "volume":
                return self._users(key)
            case "attachment":
                return self._update_attachment(key)
            case _:
                return []

    def pod(self, key: str) -> Pod | None:
        """The pod, if it is on one of our nodes."""
        return self._pods.get(key)

    def node(self, name: str) -> Node | None:
        return self._read(f"node/{name}", Node)

    def manifest(self, pod: Pod) -> Manifest:
        return manifest_of(self.world.states, f"pod/{pod.key}") or {}

    def scene(self, pod: Pod, *, now: int, admitting: Sequence[Pod] = ()) -> tuple[PodScene, dict[str, int]]:
        """The pod with its surroundings, and the version of every object read for them."""
        manifest, node = self.manifest(pod), self.node(pod.node_name)
        mounts = list(self._mounts(pod))
        attachments = [
            self._attachments[name]
            for volume in dict.fromkeys(it.volume.name for it in mounts if it.volume is not None)
            for name in self._attached_of.get(volume, ())
        ]
        since = started_at(manifest)
        started = None if since is None else parse_rfc3339(since) or now
        scene = PodScene(
            pod=pod,
            node=node,
            mounts=mounts,
            attachments=attachments,
            others=[*self._admitted_on(pod), *(it for it in admitting if it.key != pod.key)],
            admitted_by=admitted_by(manifest),
            running_for=None if started is None else max(now - started, 0) // SECOND,
            has_started=has_started(manifest),
            shut_down=is_shut_down(manifest),
        )
        streams = [f"pod/{pod.key}", f"node/{pod.node_name}"]
        streams += [f"claim/{it.use.key}" for it in mounts]
        streams += [
            f"volume/{it.claim.volume_name}" for it in mounts if it.claim is not None and it.claim.volume_name
        ]
        streams += [f"attachment/{it.meta.name}" for it in attachments]
        return scene, {stream: version_of(self.world.states.get(stream)) for stream in streams}

    def attachments_to(self, node: str) -> list[VolumeAttachment]:
        return [self._attachments[name] for name in self._attached_to.get(node, ())]

    def volumes_in_use(self, node: str) -> set[str]:
        """Volumes that pods of the node hold: those their claims name, and attached ones that name a claim."""
        pods = [self._pods[key] for key in self._on.get(node, ())]
        holding = [it for it in pods if holds_volumes(it, shut_down=is_shut_down(self.manifest(it)))]
        claims = {use.key for pod in holding for use in claim_uses(pod)}
        used_claims = (self._read(f"claim/{key}", Claim) for key in claims)
        attached = {it.volume_name for it in self.attachments_to(node)}
        return {it.volume_name for it in used_claims if it is not None} | {
            name for name in attached if self._claim_of(name) in claims
        }

    def _mounts(self, pod: Pod) -> Iterator[Mount]:
        for use in dict.fromkeys(claim_uses(pod)):
            claim = self._read(f"claim/{use.key}", Claim)
            named = "" if claim is None else claim.volume_name
            yield Mount(use=use, claim=claim, volume=self._read(f"volume/{named}", Volume) if named else None)

    def _admitted_on(self, pod: Pod) -> Iterator[Pod]:
        for key in self._on.get(pod.node_name, ()):
            other, manifest = self._pods[key], self.manifest(self._pods[key])
            admitted = admitted_by(manifest) is not None and holds_volumes(other, shut_down=is_shut_down(manifest))
            if admitted and key != pod.key:
                yield other

    def _note_pod(self, key: str) -> Iterator[str]:
        pod = self._read(f"pod/{key}", Pod)
        if pod is not None and pod.node_name and self.serves(pod.node_name):
            self._pods[key] = pod
            self._on.setdefault(pod.node_name, {})[key] = None
            for use in claim_uses(pod):
                self._using.setdefault(use.key, {})[key] = None
            yield pod.node_name

    def _forget_pod(self, key: str) -> Iterator[str]:
        pod = self._pods.pop(key, None)
        if pod is not None:
            _drop(self._on, pod.node_name, key)
            for use in claim_uses(pod):
                _drop(self._using, use.key, key)
            yield pod.node_name

    def _update_attachment(self, name: str) -> list[str]:
        before, after = self._attachments.pop(name, None), self._read(f"attachment/{name}", VolumeAttachment)
        if before is not None:
            _drop(self._attached_to, before.node_name, name)
            _drop(self._attached_of, before.volume_name, name)
        if after is not None:
            self._attachments[name] = after
            self._attached_to.setdefault(after.node_name, {})[name] = None
            self._attached_of.setdefault(after.volume_name, {})[name] = None
        known = [it for it in (before, after) if it is not None]
        users = [user for it in known for user in self._users(it.volume_name)]
        return [*users, *(f"node/{it.node_name}" for it in known if self.serves(it.node_name))]

    def _users(self, volume: str) -> list[str]:
        return self._streams(self._using.get(self._claim_of(volume), ()))

    def _claim_of(self, volume: str) -> str:
        reference = claim_of(manifest_of(self.world.states, f"volume/{volume}") or {}) or {}
        return f"{reference.get('namespace')}/{reference.get('name')}"

    def _read(self, stream: str, _type: type[Value]) -> Value | None:
        state = self.world.states.get(stream)
        manifest = manifest_of(self.world.states, stream)
        if manifest is None:
            return None
        value = read_object(noun_and_key(stream)[0], manifest, version_of(state))
        assert isinstance(value, _type)
        return value

    @staticmethod
    def _streams(pods: Sequence[str] | dict[str, None]) -> list[str]:
        return [f"pod/{key}" for key in pods]


def _drop(keys: Keys, key: str, member: str) -> None:
    members = keys.get(key, {})
    members.pop(member, None)
    if not members:
        keys.pop(key, None)


# Level-triggered: a pod is examined when it, its node, its claims, their volumes or their attachments have
# changed, or when it is due. Every step is one command that is refused if anything it was decided on has
# changed; a refused step is decided again. So two agents may serve one node, and an agent may crash at any point.

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
    """Whether the agent serves the node of this name; None: it serves all."""
    checks: Sequence[Check] = CHECKS
    batch: int = BATCH
    _scenes: NodeScenes = field(init=False)
    _queue: dict[str, None] = field(default_factory=dict)
    """Streams of pods and nodes to examine."""
    _later: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._scenes = NodeScenes(self.world, self.nodes or (lambda _: True))

    def update(self, streams: Iterable[str], now: int) -> None:  # noqa: ARG002 - a Part's; what waits has its time
        """Queue the pods and nodes affected by these changes."""
        for stream in streams:
            self._queue |= dict.fromkeys(self._scenes.update(stream))

    def step(self, now: int) -> int:
        """Examine a batch of pods and nodes, and take the next step for each; returns how many were examined."""
        for stream in [stream for stream, due in self._later.items() if due <= now]:
            self._queue[stream] = None
        batch = list(islice(self._queue, self.batch))
        for stream in batch:
            del self._queue[stream]
            self._later.pop(stream, None)
        admitting: dict[str, list[Pod]] = {}
        deeds = [(stream, command) for stream in batch for command in self._examine(stream, admitting, now)]
        try:
            outcomes = execute(self.database, [command for _, command in deeds], now=now)
        except Exception:
            # It is unknown whether the steps were committed; a second examination reads the result from the log.
            self._queue |= dict.fromkeys(batch)
            raise
        for (stream, _), outcome in zip(deeds, outcomes, strict=True):
            if not isinstance(outcome, Done):
                # Another process wrote first, and the log will show it; the delay covers refusals without one.
                self._later[stream] = now + RETRY
        return len(batch)

    def next_due(self) -> int | None:
        """When a pod ends or a retry is due; None: not before something changes."""
        return 0 if self._queue else min(self._later.values(), default=None)

    def _examine(self, stream: str, admitting: dict[str, list[Pod]], now: int) -> Iterator[Command]:
        noun, key = noun_and_key(stream)
        if noun == "node":
            yield from self._detach(key, now)
            return
        pod = self._scenes.pod(key)
        if pod is None:
            return
        beside = admitting.setdefault(pod.node_name, [])
        scene, versions = self._scenes.scene(pod, now=now, admitting=beside)
        step = next_step(scene, checks=self.checks)
        match step:
            case Idle():
                if step.seconds is not None:
                    self._later[stream] = now + step.seconds * SECOND
            case Stuck():
                yield from self._report_stuck(pod, step, now)
            case Reject():
                yield self._reject(pod, step.message, versions, now)
            case Attach():
                yield self._attach(scene, step, versions, now)
            case Remove():
                yield self._remove(pod, versions, now)
            case _:
                scan = None
                if isinstance(step, Admit):
                    beside.append(pod)
                    scan = Scan(self.world.position, _admitting_to(scene.node))
                changes = self._changes(scene, step, now)
                yield door.together(*changes, precondition=Precondition(objects=versions, scan=scan))

    def _changes(self, scene: PodScene, step: Admit | StartPod | Finish | ShutDown, now: int) -> Iterator[Command]:
        """The writes for the pod, and with its admission the marks of the claims that are in use from then on."""
        manifest, at = self._scenes.manifest(scene.pod), rfc3339(now)
        match step:
            case Admit():
                for claim in step.marks:
                    stream = stream_of("PersistentVolumeClaim", claim)
                    yield door.edit(stream, {"status": {"dataState": DIRTY}}, actor=self.owner)
                patch = admitted(manifest, node_uid=scene.node.meta.uid if scene.node else "", now=at)
            case StartPod():
                patch = started(manifest, now=at)
            case Finish():
                patch = finished(
                    manifest, exit_code=step.exit_code, reason=step.reason, message=step.message, now=at
                )
            case ShutDown():
                patch = shut_down(manifest, exit_code=exit_code(scene.pod), now=at)
        yield door.edit(f"pod/{scene.pod.key}", patch, actor=self.owner)

    def _reject(self, pod: Pod, why: str, versions: dict[str, int], now: int) -> Command:
        author = door.controller(self.owner, now)
        write = door.unassign(pod.key, author, uid=pod.meta.uid, reason=why)
        notice = door.notice(
            "Pod", pod.key, author, uid=pod.meta.uid, type_=WARNING, reason=NODE_REJECTED, message=why,
            component=COMPONENT,
        )  # fmt: skip
        return door.together(write.command, notice, precondition=Precondition(objects=versions))

    def _remove(self, pod: Pod, versions: dict[str, int], now: int) -> Command:
        write = door.delete("Pod", pod.key, door.controller(self.owner, now))
        return replace(write.command, precondition=Precondition(objects=versions))

    def _attach(self, scene: PodScene, step: Attach, versions: dict[str, int], now: int) -> Command:
        assert scene.node is not None
        manifests = (attachment for volume in step.volumes if (attachment := attachment_of(volume, scene.node)))
        by_name = {attachment["metadata"]["name"]: attachment for attachment in manifests}
        author = door.controller(self.owner, now)
        # There is no attacher to wait for, so attachments are created as attached. A volume for one node at a time
        # is refused here if another node was first: its attachment name is taken.
        writes = [
            door.create(ATTACHMENT, attachment, author, uid=self.new_uid(), status={"attached": True})
            for attachment in by_name.values()
        ]
        commands = [write.command for write in writes]
        return door.together(*commands, precondition=Precondition(objects=versions))

    def _detach(self, name: str, now: int) -> Iterator[Command]:
        attachments = self._scenes.attachments_to(name)
        if not attachments:
            return
        node = self._scenes.node(name)
        for attachment in to_detach(attachments, node, self._scenes.volumes_in_use(name)):
            yield self._detach_command(attachment, name, node, now)

    def _detach_command(self, attachment: VolumeAttachment, name: str, node: Node | None, now: int) -> Command:
        stream = stream_of(ATTACHMENT, attachment.meta.name)

        def outdated(event: Event) -> str | None:
            arrives = event.stream.startswith("pod/") and name in event.data
            return f'{event.stream} came to node "{name}"' if arrives else None

        versions = {
            stream: int(attachment.meta.resource_version),
            f"node/{name}": 0 if node is None else int(node.meta.resource_version),
        }
        write = door.delete(ATTACHMENT, attachment.meta.name, door.controller(self.owner, now))
        precondition = Precondition(objects=versions, scan=Scan(self.world.position, outdated))
        return replace(write.command, precondition=precondition)

    def _report_stuck(self, pod: Pod, stuck: Stuck, now: int) -> Iterator[Command]:
        if notice_stream("Pod", pod.key, pod.meta.uid, stuck.reason, stuck.message) not in self.world.states:
            yield door.notice(
                "Pod", pod.key, door.controller(self.owner, now), uid=pod.meta.uid, type_=WARNING,
                reason=stuck.reason, message=stuck.message, component=COMPONENT, once=True,
            )  # fmt: skip


def _admitting_to(node: Node | None) -> Callable[[Event], str | None]:
    """Detects pods that another agent admitted meanwhile, which may have used up the node's room."""
    mark = f'"{ADMITTED_BY}":"{node.meta.uid if node else ""}"'

    def outdated(event: Event) -> str | None:
        admitted = event.stream.startswith("pod/") and mark in event.data
        return f"{event.stream} was admitted" if admitted else None

    return outdated
