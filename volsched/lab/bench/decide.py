"""The cost of a decision with and without the index, on clusters with targets and some others."""

import gc
import math
import tracemalloc
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from volsched.kube.kinds import KINDS
from volsched.kube.manifest import bind_volume
from volsched.kube.meta import BIND_COMPLETED, HOSTNAME, SELECTED_NODE, ZONE
from volsched.kube.object_values import Object
from volsched.kube.storage import NO_PROVISIONER, Claim, Volume
from volsched.kube.workloads import Pod
from volsched.scheduling.index import Index
from volsched.scheduling.rules.cycle import Attempt, attempt
from volsched.scheduling.rules.profile import VOLSCHED

# The clusters on which decisions are measured: those with targets, and some others.
#
# The others: local volumes that hardly two nodes have in common, pods with constraints besides volumes, and
# pods without volumes.

ZONES = ("a", "b", "c")
NAMESPACE = "bench"
CLASS = "bench"
DRIVER = "csi.example.com"
APP = {"app": "bench"}
RUNS = {
    "containers": [{"name": "main", "image": "app", "resources": {"requests": {"cpu": "500m", "memory": "1Gi"}}}]
}
ALONE = {"topologyKey": HOSTNAME, "labelSelector": {"matchLabels": APP}}
EVENLY = {
    "maxSkew": 1,
    "topologyKey": ZONE,
    "whenUnsatisfiable": "DoNotSchedule",
    "labelSelector": {"matchLabels": APP},
}
CHOOSY = {
    **RUNS,
    "nodeSelector": {"disk": "ssd"},
    "affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [ALONE]}},
    "topologySpreadConstraints": [EVENLY],
}
VOLUMES_A_NODE = 10
VOLUMES_A_ZONE = 10_000
MOST_CLAIMS = 3
GIB_OF_CLAIMS = (5, 6, 7)
# Steps through the sizes so that hardly two nodes are alike, without a random number.
STRIDE = 7919


@dataclass(frozen=True, slots=True)
class BenchCluster:
    objects: tuple[Object, ...]
    bound: bool = False
    """Whether its pods use claims that are bound already."""
    asks: Mapping[str, Any] = field(default_factory=dict)
    """Requests of its pods besides volumes. Then each is placed on its node, so that the next one sees it."""


def claims_of(prefix: str, count: int, *, odd: int = 0) -> list[Claim]:
    """Claims that look for volumes; `odd` other than 0 gives sizes that no other number gives."""
    claims = []
    for place in range(count):
        mebibytes = 1024 * GIB_OF_CLAIMS[place] - odd * 3 % 1024
        claims.append(_claim(f"{prefix}-{place}", f"{mebibytes}Mi"))
    return claims


def pod_of(name: str, claims: list[str], **asks: Any) -> Pod:
    volumes = [
        {"name": f"v{place}", "persistentVolumeClaim": {"claimName": it}} for place, it in enumerate(claims)
    ]
    metadata = {"name": name, "namespace": NAMESPACE, "uid": f"uid-{name}", "labels": APP}
    pod = KINDS["Pod"].read({"metadata": metadata, "spec": {"volumes": volumes, **asks}})
    assert isinstance(pod, Pod)
    return pod


def _claim(name: str, size: str, *, volume: str = "") -> Claim:
    metadata: dict[str, Any] = {"name": name, "namespace": NAMESPACE, "uid": f"uid-{name}"}
    spec: dict[str, Any] = {
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": CLASS,
        "resources": {"requests": {"storage": size}},
    }
    if volume:
        metadata["annotations"] = {BIND_COMPLETED: "yes"}
        spec["volumeName"] = volume
    claim = KINDS["PersistentVolumeClaim"].read({"metadata": metadata, "spec": spec})
    assert isinstance(claim, Claim)
    return claim


def _node(index: int) -> Object:
    labels = {HOSTNAME: _name(index), ZONE: ZONES[index % len(ZONES)]}
    return KINDS["Node"].read({"metadata": {"name": _name(index), "labels": labels}})


def _equipped(index: int) -> Object:
    """A node that reports its resources; one in ten is reserved for others, one in four has the wrong disks."""
    labels = {HOSTNAME: _name(index), ZONE: ZONES[index % len(ZONES)], "disk": "ssd" if index % 4 else "hdd"}
    taints = [{"key": "dedicated", "value": "batch", "effect": "NoSchedule"}] if index % 10 == 0 else []
    status = {"allocatable": {"cpu": str(4 + index % 3 * 4), "memory": "32Gi", "pods": "110"}}
    manifest = {"metadata": {"name": _name(index), "labels": labels}, "spec": {"taints": taints}, "status": status}
    return KINDS["Node"].read(manifest)


def _name(index: int) -> str:
    return f"node-{index:05}"


def _class(provisioner: str, *, zones: tuple[str, ...] = ()) -> Object:
    manifest: dict[str, Any] = {
        "metadata": {"name": CLASS},
        "provisioner": provisioner,
        "volumeBindingMode": "WaitForFirstConsumer",
    }
    if zones:
        manifest["allowedTopologies"] = [{"matchLabelExpressions": [{"key": ZONE, "values": list(zones)}]}]
    return KINDS["StorageClass"].read(manifest)


def _volume(index: int, mebibytes: int, *, key: str, value: str, phase: str = "Available") -> Object:
    name = f"volume-{index:06}"
    term = {"matchExpressions": [{"key": key, "operator": "In", "values": [value]}]}
    spec = {
        "capacity": {"storage": f"{mebibytes}Mi"},
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": CLASS,
        "local": {"path": f"/mnt/{name}"},
        "nodeAffinity": {"required": {"nodeSelectorTerms": [term]}},
    }
    return KINDS["PersistentVolume"].read({"metadata": {"name": name}, "spec": spec, "status": {"phase": phase}})


def _local(nodes: int) -> BenchCluster:
    """Ten local volumes on each node, of 1 to 10 Gi."""
    return BenchCluster((_class(NO_PROVISIONER), *map(_node, range(nodes)), *_disks(nodes)))


def _constrained(nodes: int) -> BenchCluster:
    """The same volumes, for pods with a node selector, requests, anti-affinity and spread; some nodes tainted."""
    return BenchCluster((_class(NO_PROVISIONER), *map(_equipped, range(nodes)), *_disks(nodes)), asks=CHOOSY)


def _without_claims(nodes: int) -> BenchCluster:
    return BenchCluster(tuple(map(_equipped, range(nodes))), asks=RUNS)


def _disks(nodes: int) -> list[Object]:
    return [
        _volume(index, 1024 * (1 + index % 10), key=HOSTNAME, value=_name(index // VOLUMES_A_NODE))
        for index in range(nodes * VOLUMES_A_NODE)
    ]


def _uneven(nodes: int) -> BenchCluster:
    """Ten local volumes on each node, of sizes that hardly two nodes have in common."""
    volumes = (
        _volume(index, 1024 + index * STRIDE % 19_000, key=HOSTNAME, value=_name(index // VOLUMES_A_NODE))
        for index in range(nodes * VOLUMES_A_NODE)
    )
    return BenchCluster((_class(NO_PROVISIONER), *map(_node, range(nodes)), *volumes))


def _zonal(nodes: int, a_zone: int = VOLUMES_A_ZONE) -> BenchCluster:
    """Ten thousand volumes in each of three zones, fewer where there are few nodes."""
    count = min(nodes * VOLUMES_A_NODE, a_zone) * len(ZONES)
    volumes = (
        _volume(index, 1024 * (1 + index % 10), key=ZONE, value=ZONES[index % len(ZONES)])
        for index in range(count)
    )
    return BenchCluster((_class(NO_PROVISIONER), *map(_node, range(nodes)), *volumes))


def _dynamic(nodes: int) -> BenchCluster:
    """Provisioning in two of three zones."""
    return BenchCluster((_class(DRIVER, zones=("a", "b")), *map(_node, range(nodes))))


def _capacity(nodes: int) -> BenchCluster:
    """Provisioning by a driver that publishes its remaining capacity on each node."""
    published = (
        KINDS["CSIStorageCapacity"].read(
            {
                "metadata": {"name": f"capacity-{index:05}", "namespace": "csi"},
                "storageClassName": CLASS,
                "nodeTopology": {"matchLabels": {HOSTNAME: _name(index)}},
                "capacity": f"{50_000 + index * STRIDE % 100_000}Mi",
            }
        )
        for index in range(nodes)
    )
    driver = KINDS["CSIDriver"].read({"metadata": {"name": DRIVER}, "spec": {"storageCapacity": True}})
    return BenchCluster((_class(DRIVER), driver, *map(_node, range(nodes)), *published))


def _bound(nodes: int) -> BenchCluster:
    """Claims bound in one zone."""
    volumes = [_volume(place, 10_240, key=ZONE, value=ZONES[-1], phase="Bound") for place in range(MOST_CLAIMS)]
    claims = [_claim(f"bound-{place}", "5Gi", volume=f"volume-{place:06}") for place in range(MOST_CLAIMS)]
    return BenchCluster((_class(NO_PROVISIONER), *map(_node, range(nodes)), *volumes, *claims), bound=True)


CLUSTERS: dict[str, Callable[[int], BenchCluster]] = {
    "local": _local,
    "local, uneven": _uneven,
    "zonal": _zonal,
    "dynamic": _dynamic,
    "capacity": _capacity,
    "bound": _bound,
    "local, constrained": _constrained,
    "no claims": _without_claims,
}
CLAIM_COUNTS = (1, MOST_CLAIMS)


def counts_of(name: str) -> tuple[int, ...]:
    """How many claims the pods of the rows have."""
    return (0,) if name == "no claims" else CLAIM_COUNTS


def half_of(name: str, nodes: int) -> BenchCluster:
    """The cluster with half the nodes and half the volumes."""
    half = max(1, nodes // 2)
    return _zonal(half, VOLUMES_A_ZONE // 2) if name == "zonal" else CLUSTERS[name](half)


# Every row decides repeatedly for pods of one shape, and applies each decision, as a scheduler does; then for
# pods with a new shape each. Last come pods of the one shape again, alternating with a cluster of half the
# size, so that other work on the machine slows both alike: the ratio of the two is the growth.
#
# The baseline is the un-indexed scan, the same rules without the index: on a few nodes with all volumes of the
# cluster, scaled to all nodes. A sample of the answers is checked against it, and a wrong answer fails the run.

ROWS = sum(len(counts_of(name)) for name in CLUSTERS)
SAMPLED_NODES = 3
CHECKED = 2
# The scan without explanations: the comparison is about deciding.
TERSE = replace(VOLSCHED, explains=False)

Clock = Callable[[], float]
Make = Callable[[Iterable[Object]], Index]


class WrongAnswerError(Exception):
    """The index decided differently from the rules."""


@dataclass(frozen=True, slots=True)
class BenchRow:
    cluster: str
    nodes: int
    volumes: int
    claims: int
    feasible: int
    """Nodes that fit one more pod of the shape."""
    cold_ms: float
    """The first decision for the shape."""
    p50_ms: float
    p99_ms: float
    new_p99_ms: float
    """p99 for pods that each request sizes never requested before."""
    per_second: float
    growth: float
    """The exponent with which p50 grows: 0 if it is the same on a cluster of half the size, 1 if it is half."""
    walk_ms: float
    volume_bytes: float | None
    """Memory of the index per volume, without the objects themselves."""

    @property
    def ratio(self) -> float:
        """How often a repeated decision fits into one un-indexed scan."""
        return self.walk_ms / self.p50_ms

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "ratio": self.ratio}


def bench_decide(
    nodes: int, *, repeat: int, clock: Clock, measure_memory: bool = False, make: Make = Index
) -> Iterator[BenchRow]:
    """One row per kind of cluster and number of claims, each over `repeat` decisions of either kind.

    `make`: tests pass an index of their own, to check that a wrong one is detected.
    """
    for name, build in CLUSTERS.items():
        cluster, half = build(nodes), half_of(name, nodes)
        memory = _bytes_per_volume(cluster) if measure_memory else None
        for count in counts_of(name):
            yield _row(name, cluster, half, count, repeat=repeat, clock=clock, memory=memory, make=make)


def _row(
    name: str,
    cluster: BenchCluster,
    half: BenchCluster,
    count: int,
    *,
    repeat: int,
    clock: Clock,
    memory: float | None,
    make: Make,
) -> BenchRow:
    index = make(cluster.objects)
    bench, smaller = _Bench(index, cluster, count, clock), _Bench(make(half.objects), half, count, clock)
    # As in a process that has loaded its objects: otherwise the collector scans all of them during decisions.
    gc.freeze()
    alike, odd = bench.run(repeat)
    smaller.run(repeat)
    turns = range(2 * repeat, 3 * repeat)
    on_whole, on_half = zip(*((bench.decide(it, odd=0), smaller.decide(it, odd=0)) for it in turns), strict=True)
    bench.check()
    walk, feasible = bench.walk_ms(), bench.feasible()
    gc.unfreeze()
    return BenchRow(
        cluster=name,
        nodes=len(index.snapshot.nodes),
        volumes=len(index.snapshot.stored_volumes),
        claims=count,
        feasible=feasible,
        cold_ms=alike[0],
        p50_ms=_percentile(alike, 50),
        p99_ms=_percentile(alike, 99),
        new_p99_ms=_percentile(odd, 99),
        per_second=1000 * len(alike) / sum(alike),
        growth=math.log2(_percentile(on_whole, 50) / _percentile(on_half, 50)),
        walk_ms=walk,
        volume_bytes=memory,
    )


@dataclass(slots=True)
class _Bench:
    index: Index
    cluster: BenchCluster
    count: int
    clock: Clock

    def run(self, repeat: int) -> tuple[list[float], list[float]]:
        """How long each of so many decisions took, for equal pods and for pods that all differ."""
        alike = [self.decide(turn, odd=0) for turn in range(repeat)]
        return alike, [self.decide(repeat + turn, odd=1 + turn) for turn in range(repeat)]

    def decide(self, turn: int, *, odd: int) -> float:
        pod, claims = self._wanting(turn, odd=odd)
        for claim in claims:
            self.index.put(claim)
        start = self.clock()
        attempt = self.index.decide(pod)
        spent = self.clock() - start
        self._take(pod, attempt)
        return spent * 1000

    def feasible(self) -> int:
        """Must be called after `check`, which leaves its claims."""
        return self.index.feasible(self._wanting(-1, odd=0)[0])

    def check(self) -> None:
        """The rules, given the chosen node and a few others, must choose the same node and volumes."""
        for turn in range(CHECKED):
            pod, claims = self._wanting(-1 - turn, odd=turn)
            for claim in claims:
                self.index.put(claim)
            decision, whole = self.index.decide(pod), self.index.snapshot
            names = sorted(whole.nodes)[:: max(1, len(whole.nodes) // SAMPLED_NODES)]
            # If no node fits, as on a very small cluster, the reasons of all nodes are compared.
            only = None if decision.chosen is None else {*names, decision.chosen.node}
            if _outcome(decision) != _outcome(attempt(whole, pod, profile=TERSE, only=only)):
                raise WrongAnswerError(f"for pod {pod.key}: {decision.chosen or decision.status}")

    def walk_ms(self) -> float:
        """Must be called after `check`, which leaves its claims."""
        pod, _ = self._wanting(-1, odd=0)
        whole = self.index.snapshot
        few = {name: whole.nodes[name] for name in sorted(whole.nodes)[:SAMPLED_NODES]}
        start = self.clock()
        attempt(replace(whole, nodes=few), pod, profile=TERSE)
        return (self.clock() - start) * 1000 / len(few) * len(whole.nodes)

    def _wanting(self, turn: int, *, odd: int) -> tuple[Pod, list[Claim]]:
        """A pod with its own claims; bound claims are the same ones for every pod."""
        if self.cluster.bound:
            return pod_of("pod", [f"bound-{place}" for place in range(self.count)], **self.cluster.asks), []
        claims = claims_of(f"c{turn}", self.count, odd=odd)
        return pod_of(f"pod-{turn}", [claim.name for claim in claims], **self.cluster.asks), claims

    def _take(self, pod: Pod, decision: Attempt) -> None:
        if decision.chosen is None:
            return
        if self.cluster.asks:
            self.index.put(replace(pod, node_name=decision.chosen.node))
        for binding in decision.chosen.answer.bindings:
            self.index.put(bind_volume(binding.volume, binding.claim)[0])
        for provision in decision.chosen.answer.provisions:
            claim = provision.claim
            notes = {**claim.meta.annotations, SELECTED_NODE: decision.chosen.node}
            self.index.put(replace(claim, meta=replace(claim.meta, annotations=notes)))
            if provision.capacity is not None:
                key = provision.capacity.key
                self.index.reserve(key, self.index.snapshot.reserved.get(key, 0) + claim.size.value())


def _outcome(attempt: Attempt) -> object:
    chosen = attempt.chosen
    if chosen is None:
        return attempt.status
    return chosen.node, chosen.score, chosen.answer.bindings, [it.claim for it in chosen.answer.provisions]


def _percentile(times: Sequence[float], percent: int) -> float:
    return sorted(times)[min(len(times) - 1, len(times) * percent // 100)]


def _bytes_per_volume(cluster: BenchCluster) -> float | None:
    """Memory that the index adds to that of the objects, which the process holds anyway."""
    volumes = sum(isinstance(value, Volume) for value in cluster.objects)
    if volumes < len(cluster.objects) // 2:
        return None
    without = [value for value in cluster.objects if not isinstance(value, Volume)]
    tracemalloc.start()
    lean = Index(without)
    before = tracemalloc.get_traced_memory()[0]
    full = Index(cluster.objects)
    after = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    del lean, full
    return (after - 2 * before) / volumes
