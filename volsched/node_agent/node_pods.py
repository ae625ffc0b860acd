"""What a node agent sees: its nodes' pods and attachments, by what they use, and each pod with its surroundings.

Pods and attachments are read when they change. Claims and volumes are read when a pod is looked at: there may be
many times more of them than pods that something is to be done about.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from volsched.kube.kinds import Object
from volsched.kube.manifest import Manifest, claim_of
from volsched.kube.storage import Claim, Volume, VolumeAttachment
from volsched.kube.workloads import Node, Pod
from volsched.log.commands import version_of
from volsched.log.events.object_states import manifest_of
from volsched.log.events.streams import noun_and_key
from volsched.node_agent.rules.lifecycle import PodScene, holds_volumes
from volsched.node_agent.rules.mount_check import Mount
from volsched.node_agent.rules.statuses import admitted_by, has_started, is_shut_down, started_at
from volsched.runtime.clock import SECOND, parse_rfc3339
from volsched.runtime.world import World
from volsched.scheduling.cluster_view import read_object
from volsched.scheduling.rules.pod_claims import claim_uses

Keys = dict[str, dict[str, None]]
"""Insertion-ordered sets: what is done first must not depend on hashing."""
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

    def look(self, stream: str) -> list[str]:
        """Take note of a change; the streams of the pods and nodes that are to be looked at because of it."""
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
                return self._look_at_attachment(key)
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
        """The pod with its surroundings, and the version of every object in them."""
        held, node = self.manifest(pod), self.node(pod.node_name)
        mounts = list(self._mounts(pod))
        attachments = [
            self._attachments[name]
            for volume in dict.fromkeys(it.volume.name for it in mounts if it.volume is not None)
            for name in self._attached_of.get(volume, ())
        ]
        since = started_at(held)
        started = None if since is None else parse_rfc3339(since) or now
        scene = PodScene(
            pod=pod,
            node=node,
            mounts=mounts,
            attachments=attachments,
            others=[*self._admitted_on(pod), *(it for it in admitting if it.key != pod.key)],
            admitted_by=admitted_by(held),
            running_for=None if started is None else max(now - started, 0) // SECOND,
            has_started=has_started(held),
            shut_down=is_shut_down(held),
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
        """Those that pods of the node hold: what their claims name, and what is attached and names a claim."""
        pods = [self._pods[key] for key in self._on.get(node, ())]
        holding = [it for it in pods if holds_volumes(it, shut_down=is_shut_down(self.manifest(it)))]
        claims = {use.key for pod in holding for use in claim_uses(pod)}
        found = (self._read(f"claim/{key}", Claim) for key in claims)
        attached = {it.volume_name for it in self.attachments_to(node)}
        return {it.volume_name for it in found if it is not None} | {
            name for name in attached if self._claim_of(name) in claims
        }

    def _mounts(self, pod: Pod) -> Iterator[Mount]:
        for use in dict.fromkeys(claim_uses(pod)):
            claim = self._read(f"claim/{use.key}", Claim)
            named = "" if claim is None else claim.volume_name
            yield Mount(use=use, claim=claim, volume=self._read(f"volume/{named}", Volume) if named else None)

    def _admitted_on(self, pod: Pod) -> Iterator[Pod]:
        for key in self._on.get(pod.node_name, ()):
            other, held = self._pods[key], self.manifest(self._pods[key])
            admitted = admitted_by(held) is not None and holds_volumes(other, shut_down=is_shut_down(held))
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

    def _look_at_attachment(self, name: str) -> list[str]:
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
    held = keys.get(key, {})
    held.pop(member, None)
    if not held:
        keys.pop(key, None)
