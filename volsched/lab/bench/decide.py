"""What a decision costs with the index, and what it would cost without, in the same run.

Every row decides again and again for pods of one shape, and takes what was decided each time, as a scheduler does;
then for pods that each have a shape of their own. Last come pods of the one shape again, in turn with a cluster of
half the size, so that other work on the machine slows both alike: how much dearer the larger one is, is growth.

The baseline is the un-indexed walk, the very same rules without the index: on a few nodes with all volumes of the
cluster, scaled to all nodes. A sample of the answers is checked against it, and a fast wrong answer fails the run.
"""

import gc
import math
import tracemalloc
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from volsched.kube.claim_reference import bind_volume
from volsched.kube.kinds import Object
from volsched.kube.meta import SELECTED_NODE
from volsched.kube.storage import Claim, Volume
from volsched.kube.workloads import Pod
from volsched.lab.bench.clusters import CLUSTERS, BenchCluster, claims_of, counts_of, half_of, pod_of
from volsched.scheduling.index import Index
from volsched.scheduling.rules.cycle import Attempt, attempt
from volsched.scheduling.rules.profile import VOLSCHED

ROWS = sum(len(counts_of(name)) for name in CLUSTERS)
SAMPLED_NODES = 3
CHECKED = 2
# The walk without explanations: what is compared is deciding.
TERSE = replace(VOLSCHED, explains=False)

Clock = Callable[[], float]
Make = Callable[[Iterable[Object]], Index]


class WrongAnswerError(Exception):
    """The index decided otherwise than the rules."""


@dataclass(frozen=True, slots=True)
class BenchRow:
    cluster: str
    nodes: int
    volumes: int
    claims: int
    feasible: int
    """Nodes that would do for one more pod of the shape."""
    cold_ms: float
    """The first decision for the shape."""
    p50_ms: float
    p99_ms: float
    new_p99_ms: float
    """Of pods that each ask for sizes nobody asked for before."""
    per_second: float
    growth: float
    """The exponent with which p50 grows: 0 if it is the same on a cluster of half the size, 1 if it is half."""
    walk_ms: float
    volume_bytes: float | None
    """What the index takes per volume, besides the objects themselves."""

    @property
    def ratio(self) -> float:
        """How often a repeated decision fits into one un-indexed walk."""
        return self.walk_ms / self.p50_ms

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "ratio": self.ratio}


def bench_decide(
    nodes: int, *, repeat: int, clock: Clock, measure_memory: bool = False, make: Make = Index
) -> Iterator[BenchRow]:
    """One row per kind of cluster and number of claims, each over `repeat` decisions of either kind.

    `make`: only tests give an index of their own, to see that a wrong one is found out.
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
    # As a process does once it has loaded: otherwise the collector walks all objects in the middle of decisions.
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
        """How long each of so many decisions took, for pods that are alike and for pods of which no two are."""
        alike = [self.decide(turn, odd=0) for turn in range(repeat)]
        return alike, [self.decide(repeat + turn, odd=1 + turn) for turn in range(repeat)]

    def decide(self, turn: int, *, odd: int) -> float:
        pod, claims = self._wanting(turn, odd=odd)
        for claim in claims:
            self.index.put(claim)
        start = self.clock()
        made = self.index.decide(pod)
        spent = self.clock() - start
        self._take(pod, made)
        return spent * 1000

    def feasible(self) -> int:
        """After `check`, which has left its claims."""
        return self.index.feasible(self._wanting(-1, odd=0)[0])

    def check(self) -> None:
        """The rules, given the chosen node and a few others, must choose the same node and volumes."""
        for turn in range(CHECKED):
            pod, claims = self._wanting(-1 - turn, odd=turn)
            for claim in claims:
                self.index.put(claim)
            made, whole = self.index.decide(pod), self.index.snapshot
            names = sorted(whole.nodes)[:: max(1, len(whole.nodes) // SAMPLED_NODES)]
            # Where nobody will do, as on a very small cluster, the reasons of all are compared.
            only = None if made.chosen is None else {*names, made.chosen.node}
            if _outcome(made) != _outcome(attempt(whole, pod, profile=TERSE, only=only)):
                raise WrongAnswerError(f"for pod {pod.key}: {made.chosen or made.status}")

    def walk_ms(self) -> float:
        """After `check`, which has left its claims."""
        pod, _ = self._wanting(-1, odd=0)
        whole = self.index.snapshot
        few = {name: whole.nodes[name] for name in sorted(whole.nodes)[:SAMPLED_NODES]}
        start = self.clock()
        attempt(replace(whole, nodes=few), pod, profile=TERSE)
        return (self.clock() - start) * 1000 / len(few) * len(whole.nodes)

    def _wanting(self, turn: int, *, odd: int) -> tuple[Pod, list[Claim]]:
        """A pod with claims of its own; with bound claims it is the same ones for every pod."""
        if self.cluster.bound:
            return pod_of("pod", [f"bound-{place}" for place in range(self.count)], **self.cluster.asks), []
        claims = claims_of(f"c{turn}", self.count, odd=odd)
        return pod_of(f"pod-{turn}", [claim.name for claim in claims], **self.cluster.asks), claims

    def _take(self, pod: Pod, made: Attempt) -> None:
        if made.chosen is None:
            return
        if self.cluster.asks:
            self.index.put(replace(pod, node_name=made.chosen.node))
        for binding in made.chosen.answer.bindings:
            self.index.put(bind_volume(binding.volume, binding.claim)[0])
        for provision in made.chosen.answer.provisions:
            claim = provision.claim
            notes = {**claim.meta.annotations, SELECTED_NODE: made.chosen.node}
            self.index.put(replace(claim, meta=replace(claim.meta, annotations=notes)))
            if provision.capacity is not None:
                key = provision.capacity.key
                self.index.reserve(key, self.index.snapshot.reserved.get(key, 0) + claim.size.value())


def _outcome(made: Attempt) -> object:
    chosen = made.chosen
    if chosen is None:
        return made.status
    return chosen.node, chosen.score, chosen.answer.bindings, [it.claim for it in chosen.answer.provisions]


def _percentile(times: Sequence[float], percent: int) -> float:
    return sorted(times)[min(len(times) - 1, len(times) * percent // 100)]


def _bytes_per_volume(cluster: BenchCluster) -> float | None:
    """What the index adds to the objects, which somebody holds anyway."""
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
