"""What a decision costs, as a ratio to a baseline measured in the same run, so that machines can be compared.

The baseline asks, for every node and volume of the same cluster, the two cheapest questions in plain Python: is
the volume large enough, and does one label match. A walk over all pairs cannot cost less.
"""

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

from volsched.core.cycle import attempt
from volsched.core.profile import VOLSCHED
from volsched.core.snapshot import Snapshot, snapshot_of
from volsched.model.kinds import KINDS, Object
from volsched.model.meta import BIND_COMPLETED, HOSTNAME, ZONE
from volsched.model.quantity import parse_quantity
from volsched.model.workloads import Pod

ZONES = ("a", "b", "c")
CLAIM_COUNTS = (1, 3)


@dataclass(frozen=True, slots=True)
class Row:
    cluster: str
    nodes: int
    volumes: int
    claims: int
    decision_ms: float
    baseline_ms: float
    feasible_nodes: int

    @property
    def ratio(self) -> float:
        return self.decision_ms / self.baseline_ms

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "ratio": self.ratio}


def bench_decide(nodes: int, *, repeat: int, clock: Callable[[], float]) -> Iterator[Row]:
    """One row per kind of cluster and number of claims; the best of `repeat` runs counts."""
    for name, build in CLUSTERS.items():
        for claims in CLAIM_COUNTS:
            snapshot, pod = build(nodes, claims)
            made = attempt(snapshot, pod, profile=VOLSCHED)
            yield Row(
                cluster=name,
                nodes=nodes,
                volumes=len(snapshot.stored_volumes),
                claims=claims,
                decision_ms=_best_ms(partial(attempt, snapshot, pod, profile=VOLSCHED), repeat, clock),
                baseline_ms=_best_ms(partial(_walk_pairs, snapshot), repeat, clock),
                feasible_nodes=sum(verdict.status.passed for verdict in made.verdicts),
            )


def _best_ms(run: Callable[[], object], repeat: int, clock: Callable[[], float]) -> float:
    times = []
    for _ in range(repeat):
        start = clock()
        run()
        times.append(clock() - start)
    return min(times) * 1000


def _walk_pairs(snapshot: Snapshot) -> int:
    wanted = parse_quantity("1Gi")
    volumes = list(snapshot.stored_volumes.values())
    found = 0
    for node in snapshot.nodes.values():
        label = node.labels.get(HOSTNAME)
        for volume in volumes:
            if volume.size >= wanted and volume.meta.labels.get(HOSTNAME) == label:
                found += 1
    return found


def _node(index: int) -> Object:
    labels = {HOSTNAME: f"node-{index:05}", ZONE: ZONES[index % len(ZONES)]}
    return KINDS["Node"].read({"metadata": {"name": f"node-{index:05}", "labels": labels}})


def _class(name: str, provisioner: str, *, zones: tuple[str, ...] = ()) -> Object:
    manifest: dict[str, Any] = {
        "metadata": {"name": name},
        "provisioner": provisioner,
        "volumeBindingMode": "WaitForFirstConsumer",
    }
    if zones:
        manifest["allowedTopologies"] = [{"matchLabelExpressions": [{"key": ZONE, "values": list(zones)}]}]
    return KINDS["StorageClass"].read(manifest)


def _volume(name: str, *, size_gi: int, key: str, value: str, phase: str = "Available") -> Object:
    term = {"matchExpressions": [{"key": key, "operator": "In", "values": [value]}]}
    spec = {
        "capacity": {"storage": f"{size_gi}Gi"},
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": "bench",
        "local": {"path": f"/mnt/{name}"},
        "nodeAffinity": {"required": {"nodeSelectorTerms": [term]}},
    }
    metadata = {"name": name, "labels": {key: value}}
    return KINDS["PersistentVolume"].read({"metadata": metadata, "spec": spec, "status": {"phase": phase}})


def _claims(count: int, *, bound: bool = False) -> list[Object]:
    claims = []
    for index in range(count):
        metadata: dict[str, Any] = {"name": f"claim-{index}", "namespace": "bench", "uid": f"uid-{index}"}
        spec: dict[str, Any] = {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": "bench",
            "resources": {"requests": {"storage": f"{5 + index}Gi"}},
        }
        if bound:
            metadata["annotations"] = {BIND_COMPLETED: "yes"}
            spec["volumeName"] = f"volume-{index:05}"
        claims.append(KINDS["PersistentVolumeClaim"].read({"metadata": metadata, "spec": spec}))
    return claims


def _pod(count: int) -> Pod:
    volumes = [
        {"name": f"v{index}", "persistentVolumeClaim": {"claimName": f"claim-{index}"}} for index in range(count)
    ]
    metadata = {"name": "pod", "namespace": "bench", "uid": "uid-pod"}
    pod = KINDS["Pod"].read({"metadata": metadata, "spec": {"volumes": volumes}})
    assert isinstance(pod, Pod)
    return pod


def _local(nodes: int, claims: int) -> tuple[Snapshot, Pod]:
    """Ten local volumes on each node."""
    volumes = [
        _volume(f"volume-{index:05}", size_gi=1 + index % 10, key=HOSTNAME, value=f"node-{index // 10:05}")
        for index in range(nodes * 10)
    ]
    objects = [_class("bench", "kubernetes.io/no-provisioner"), *map(_node, range(nodes)), *volumes]
    return snapshot_of([*objects, *_claims(claims)]), _pod(claims)


def _zonal(nodes: int, claims: int) -> tuple[Snapshot, Pod]:
    """As many volumes, each reachable from one of three zones."""
    volumes = [
        _volume(f"volume-{index:05}", size_gi=1 + index % 10, key=ZONE, value=ZONES[index % 3])
        for index in range(nodes * 10)
    ]
    objects = [_class("bench", "kubernetes.io/no-provisioner"), *map(_node, range(nodes)), *volumes]
    return snapshot_of([*objects, *_claims(claims)]), _pod(claims)


def _dynamic(nodes: int, claims: int) -> tuple[Snapshot, Pod]:
    """Provisioning in two of three zones, next to one volume that is too small."""
    small = _volume("volume-00000", size_gi=1, key=ZONE, value="a")
    objects = [_class("bench", "csi.example.com", zones=("a", "b")), *map(_node, range(nodes)), small]
    return snapshot_of([*objects, *_claims(claims)]), _pod(claims)


def _bound(nodes: int, claims: int) -> tuple[Snapshot, Pod]:
    """Claims bound in one zone."""
    volumes = [
        _volume(f"volume-{index:05}", size_gi=10, key=ZONE, value="a", phase="Bound") for index in range(claims)
    ]
    objects = [_class("bench", "kubernetes.io/no-provisioner"), *map(_node, range(nodes)), *volumes]
    return snapshot_of([*objects, *_claims(claims, bound=True)]), _pod(claims)


CLUSTERS: dict[str, Callable[[int, int], tuple[Snapshot, Pod]]] = {
    "local": _local,
    "zonal": _zonal,
    "dynamic": _dynamic,
    "bound": _bound,
}
