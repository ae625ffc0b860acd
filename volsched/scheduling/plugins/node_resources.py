"""NodeResourcesFit: what the pod requests must be free; nodes with more left are better.

A node that does not say what it has is not judged by it, and neither is the number of its pods where it sets no
limit to that: nodes of clusters without a kubelet need not invent figures. Of whatever else a node that does say
leaves out it has nothing, as in the reference.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from volsched.kube.workloads import Node, Pod
from volsched.scheduling.plugins.plugin import MAX_SCORE, Prepared
from volsched.scheduling.plugins.resource_requests import (
    NATIVE,
    PODS,
    SCORED,
    Units,
    add_units,
    pod_requests,
    scored_requests,
    units_of,
)
from volsched.scheduling.rules.attach_limits import placed_pods
from volsched.scheduling.rules.snapshot import Snapshot
from volsched.scheduling.rules.status import SUCCESS, Code, Status

TOO_MANY_PODS = "Too many pods"
_NOT_SAYING = "attachable-volumes-"
"""Limits of disks are no statement about anything else."""


@dataclass(frozen=True, slots=True)
class RequestedResources:
    requests: Units
    scored: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class FreeResources:
    """What a node has and what its pods take of it."""

    allocatable: Units
    used: Units = field(default_factory=dict)
    scored: tuple[int, ...] = (0,) * len(SCORED)
    pods: int = 0

    @property
    def is_known(self) -> bool:
        return any(not name.startswith(_NOT_SAYING) for name in self.allocatable)


@dataclass(frozen=True, slots=True)
class _Judging(Prepared):
    wanted: RequestedResources
    pods_on: dict[str, list[Pod]]
    rooms: dict[str, FreeResources] = field(default_factory=dict)
    """Of the nodes that were asked about before."""

    def filter(self, node: Node) -> Status:
        return shortage(self.wanted, self._room(node))

    def scores(self, nodes: Sequence[Node]) -> Sequence[int]:
        return [least_allocated(self.wanted, self._room(node)) for node in nodes]

    def _room(self, node: Node) -> FreeResources:
        room = self.rooms.get(node.name)
        if room is None:
            room = self.rooms[node.name] = room_of(node, self.pods_on.get(node.name, ()))
        return room


@dataclass(frozen=True, slots=True)
class NodeResourcesFit:
    name: str = "NodeResourcesFit"

    def prefilter(self, snapshot: Snapshot, pod: Pod) -> tuple[Status, Prepared | None]:
        pods_on: dict[str, list[Pod]] = {}
        for other in placed_pods(snapshot, besides=pod):
            pods_on.setdefault(other.node_name, []).append(other)
        return SUCCESS, _Judging(wanted_by(pod), pods_on)


def wanted_by(pod: Pod) -> RequestedResources:
    return RequestedResources(pod_requests(pod), scored_requests(pod))


def room_of(node: Node, pods: Iterable[Pod]) -> FreeResources:
    wanted = [wanted_by(pod) for pod in pods]
    used: dict[str, int] = {}
    add_units(used, (it.requests for it in wanted))
    scored = tuple(map(sum, zip(*(it.scored for it in wanted), strict=True))) or (0,) * len(SCORED)
    return FreeResources(units_of(node.allocatable), used, scored, len(wanted))


def shortage(wanted: RequestedResources, room: FreeResources) -> Status:
    """All that is missing. An eviction cannot help where the whole node would be too small."""
    if not room.is_known:
        return SUCCESS
    reasons: list[str] = []
    if PODS in room.allocatable and room.pods + 1 > room.allocatable[PODS]:
        reasons.append(TOO_MANY_PODS)
    code = Code.UNSCHEDULABLE
    for name in sorted(wanted.requests, key=_native_first):
        units, there = wanted.requests[name], room.allocatable.get(name, 0)
        if units > there - room.used.get(name, 0):
            reasons.append(f"Insufficient {name}")
            code = Code.UNRESOLVABLE if units > there else code
    return Status(code, tuple(reasons)) if reasons else SUCCESS


def least_allocated(wanted: RequestedResources, room: FreeResources) -> int:
    """The mean of what would be left of each scored resource, in percent."""
    shares = []
    for name, mine, others in zip(SCORED, wanted.scored, room.scored, strict=True):
        there = room.allocatable.get(name, 0)
        if there:
            shares.append(max(there - mine - others, 0) * MAX_SCORE // there)
    return sum(shares) // len(shares) if shares else 0


def _native_first(name: str) -> tuple[int, str]:
    return (NATIVE.index(name), name) if name in NATIVE else (len(NATIVE), name)
