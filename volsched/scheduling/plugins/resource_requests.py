"""What a pod requests of a node, summed as the reference does it.

Containers run side by side, init containers one after the other, and restartable ones beside all that start after
them. In whole units: thousandths of a core, bytes, pieces.
"""

from collections.abc import Iterable, Mapping

from volsched.kube.quantity import NANO
from volsched.kube.workloads import Amounts, Container, Pod

CPU = "cpu"
MEMORY = "memory"
EPHEMERAL_STORAGE = "ephemeral-storage"
PODS = "pods"
NATIVE = (CPU, MEMORY, EPHEMERAL_STORAGE)
SCORED = (CPU, MEMORY)
UNSAID = {CPU: 100 * NANO // 1000, MEMORY: 200 * 2**20 * NANO}
"""What a container that does not say is taken to use when nodes are scored, so that many of them count at all."""
_PREFIXES = ("hugepages-", "attachable-volumes-")

Units = Mapping[str, int]


def pod_requests(pod: Pod) -> dict[str, int]:
    """What must be free on a node; of resources that a node counts, and none of which nothing is requested."""
    return {name: units for name, units in _summed(pod, {}).items() if units and _counts(name)}


def scored_requests(pod: Pod) -> tuple[int, ...]:
    """What the pod is taken to use when nodes are scored, of `SCORED`."""
    summed = _summed(pod, UNSAID)
    return tuple(summed.get(name, 0) for name in SCORED)


def units_of(amounts: Amounts) -> dict[str, int]:
    return {name: _units(name, amount.nano) for name, amount in amounts.items()}


def _summed(pod: Pod, unsaid: Units) -> dict[str, int]:
    total: dict[str, int] = {}
    for container in pod.containers:
        _add(total, _requests(container, unsaid))
    beside: dict[str, int] = {}
    starting: dict[str, int] = {}
    for container in pod.init_containers:
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
    _add(total, {name: amount.nano for name, amount in pod.overhead.items()})
    return {name: _units(name, nano) for name, nano in total.items()}


def _requests(container: Container, unsaid: Units) -> dict[str, int]:
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
