"""NodeResourcesFit: the pod's requests, summed as the reference does, must be free; more left is better."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from volsched.kube.quantity import NANO
from volsched.kube.workloads import Amounts, Container, Node, Pod
from volsched.scheduling.plugins.plugin import MAX_SCORE, Prepared
from volsched.scheduling.rules.attach_limits import placed_pods
from volsched.scheduling.rules.reasons import TOO_MANY_PODS, insufficient
from volsched.scheduling.rules.snapshot import Snapshot
from volsched.scheduling.rules.status import SUCCESS, Code, Status

# A pod's requests, summed as the reference does.
#
# Containers run in parallel, init containers one after the other, and restartable ones beside all that start
# after them. In whole units: thousandths of a core, bytes, pieces.

CPU = "cpu"
MEMORY = "memory"
EPHEMERAL_STORAGE = "ephemeral-storage"
PODS = "pods"
NATIVE = (CPU, MEMORY, EPHEMERAL_STORAGE)
SCORED = (CPU, MEMORY)
UNSAID = {CPU: 100 * NANO // 1000, MEMORY: 200 * 2**20 * NANO}
"""The assumed use of a container without requests when nodes are scored; otherwise they would count as 0."""
_PREFIXES = ("hugepages-", "attachable-volumes-")

Units = Mapping[str, int]


def pod_requests(pod: Pod) -> dict[str, int]:
    """The requests that must be free on a node: non-zero ones, of resources that a node counts."""
    return {name: units for name, units in _summed(pod, {}).items() if units and _counts(name)}


def scored_requests(pod: Pod) -> tuple[int, ...]:
    """The assumed use of each `SCORED` resource when nodes are scored."""
    summed = _summed(pod, UNSAID)
    return tuple(summed.get(name, 0) for name in SCORED)


def units_of(amounts: Amounts) -> dict[str, int]:
    return {name: _units(name, amount.nano) for name, amount in amounts.items()}


def _summed(pod: Pod, unsaid: Units) -> dict[str, int]:
    total: dict[str, int] = {}
    for container in pod.containers:
        _add(total, _requests(container, unsaid))
    if pod.init_containers:
        _add_init_containers(total, pod.init_containers, unsaid)
    if pod.overhead:
        _add(total, {name: amount.nano for name, amount in pod.overhead.items()})
    return {name: _units(name, nano) for name, nano in total.items()}


def _add_init_containers(total: dict[str, int], containers: Iterable[Container], unsaid: Units) -> None:
    beside: dict[str, int] = {}
    starting: dict[str, int] = {}
    for container in containers:
        requests = _requests(container, unsaid)
        if container.restart_policy == "Always":
            _add(total, requests)
            _add(beside, requests)
            _raise(starting, beside)
        else:
            together = dict(requests)
            _add(together, beside)
            _raise(starting, together)
    _raise(total, starting)


def _requests(container: Container, unsaid: Units) -> Units:
    if not container.requests:
        return unsaid
    return {**unsaid, **{name: amount.nano for name, amount in container.requests.items()}}


def _add(total: dict[str, int], more: Units) -> None:
    for name, nano in more.items():
        total[name] = total.get(name, 0) + nano


def _raise(most: dict[str, int], other: Units) -> None:
    for name, nano in other.items():
        most[name] = max(most.get(name, 0), nano)


def _units(name: str, nano: int) -> int:
    return -(-nano // (NANO // 1000 if name == CPU else NANO))


def _counts(name: str) -> bool:
    return name in NATIVE or "/" in name or name.startswith(_PREFIXES)


def add_units(total: dict[str, int], many: Iterable[Units]) -> None:
    for units in many:
        _add(total, units)


# A node that does not report its resources is not checked, nor is its number of pods without a limit: nodes of
# clusters without a kubelet need not invent figures. A resource that a reporting node omits counts as 0, as in
# the reference.

_NOT_SAYING = "attachable-volumes-"
"""Attach limits say nothing about other resources."""


@dataclass(frozen=True, slots=True)
class RequestedResources:
    requests: Units
    scored: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class FreeResources:
    """A node's allocatable resources and its pods' requests."""

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
    """A cache: the free resources of the nodes that were checked before."""

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
    """The missing resources. An eviction cannot help if the whole node is too small."""
    if not room.is_known:
        return SUCCESS
    reasons: list[str] = []
    if PODS in room.allocatable and room.pods + 1 > room.allocatable[PODS]:
        reasons.append(TOO_MANY_PODS)
    code = Code.UNSCHEDULABLE
    for name in sorted(wanted.requests, key=_native_first):
        units, there = wanted.requests[name], room.allocatable.get(name, 0)
        if units > there - room.used.get(name, 0):
            reasons.append(insufficient(name))
            code = Code.UNRESOLVABLE if units > there else code
    return Status(code, tuple(reasons)) if reasons else SUCCESS


def least_allocated(wanted: RequestedResources, room: FreeResources) -> int:
    """The mean of the remaining shares of the scored resources, in percent."""
    shares = []
    for name, mine, others in zip(SCORED, wanted.scored, room.scored, strict=True):
        there = room.allocatable.get(name, 0)
        if there:
            shares.append(max(there - mine - others, 0) * MAX_SCORE // there)
    return sum(shares) // len(shares) if shares else 0


def _native_first(name: str) -> tuple[int, str]:
    return (NATIVE.index(name), name) if name in NATIVE else (len(NATIVE), name)
