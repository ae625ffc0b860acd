"""`volsched bench decide`: every row that has a target, and an index that decides wrongly fails it.

What a decision costs is shown in lines of Python that are executed, which are the same on every machine.
"""

import sys
import time
from collections.abc import Callable, Collection
from types import FrameType
from typing import Any

import pytest

from tests.support.objects import claim, local_volume, node, on_zone, pod, storage_class, volume
from volsched.kube.manifest import bind_volume
from volsched.kube.meta import HOSTNAME, ZONE
from volsched.kube.object_values import Object
from volsched.kube.workloads import Pod
from volsched.lab.bench.decide import ROWS, WrongAnswerError, bench_decide
from volsched.scheduling.index import Index
from volsched.scheduling.rules.cycle import Attempt
from volsched.scheduling.rules.failure_memory import NO_DEMERITS, Demerits

NODES = 12
# Those with targets, then what we measure besides.
EXPECTED = {
    *((name, count) for name in ("local", "zonal", "dynamic", "capacity", "bound") for count in (1, 3)),
    *((name, count) for name in ("local, uneven", "local, constrained") for count in (1, 3)),
    ("no claims", 0),
}


def test_every_row_is_measured_and_checked() -> None:
    rows = list(bench_decide(NODES, repeat=3, clock=time.perf_counter, measure_memory=True))
    assert len(rows) == ROWS
    assert {(row.cluster, row.claims) for row in rows} == EXPECTED
    for row in rows:
        assert row.nodes == NODES
        assert 0 <= row.feasible <= NODES
        assert min(row.cold_ms, row.p50_ms, row.p99_ms, row.new_p99_ms, row.per_second, row.walk_ms) > 0
        assert row.p50_ms <= row.p99_ms
        assert (row.volume_bytes is not None) is (row.volumes > NODES)
        assert {"growth", "ratio"} <= set(row.as_json())


class Second(Index):
    """Decides for the second best node."""

    def decide(
        self, pod: Pod, *, avoid: Collection[str] = frozenset(), demerits: Demerits = NO_DEMERITS
    ) -> Attempt:
        best = super().decide(pod, avoid=avoid, demerits=demerits)
        if best.chosen is None:
            return best
        return super().decide(pod, avoid={*avoid, best.chosen.node}, demerits=demerits)


def test_an_index_that_decides_wrongly_fails_the_run() -> None:
    with pytest.raises(WrongAnswerError, match="for pod"):
        list(bench_decide(NODES, repeat=2, clock=time.perf_counter, make=Second))


# --- what a decision costs ------------------------------------------------------------------------------


def lines_of(deed: Callable[[], object]) -> int:
    count = 0

    def trace(_frame: FrameType, event: str, _: Any) -> Any:
        nonlocal count
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        deed()
    finally:
        sys.settrace(before)
    return count


def cost(objects: list[Object]) -> int:
    """Of one decision more for a shape that was decided, and what it got taken, a few times before."""
    index = Index([storage_class(), *objects])
    for turn in range(5):
        claims = [claim(f"c{turn}-{place}", "4Gi") for place in range(3)]
        for held in claims:
            index.put(held)
        wanting = pod(*(held.name for held in claims), name=f"p{turn}")
        spent = lines_of(lambda wanting=wanting: index.decide(wanting))  # type: ignore[misc]
        made = index.decide(wanting)
        assert made.chosen is not None
        for binding in made.chosen.answer.bindings:
            index.put(bind_volume(binding.volume, binding.claim)[0])
    return spent


def local(nodes: int, each: int) -> list[Object]:
    hosts = [f"n{number:04}" for number in range(nodes)]
    disks = [local_volume(f"{host}-{disk:03}", "5Gi", host) for host in hosts for disk in range(each)]
    return [*(node(host) for host in hosts), *disks]


def zonal(nodes: int, each: int) -> list[Object]:
    zones = ("a", "b", "c")
    made = [
        node(f"n{number:04}", labels={HOSTNAME: f"n{number:04}", ZONE: zones[number % 3]})
        for number in range(nodes)
    ]
    disks = [
        volume(f"{zone}-{disk:04}", "5Gi", nodeAffinity=on_zone(zone)) for zone in zones for disk in range(each)
    ]
    return [*made, *disks]


@pytest.mark.parametrize(
    ("small", "large"),
    [(local(20, 10), local(20, 80)), (local(20, 10), local(320, 10)), (zonal(30, 50), zonal(30, 800))],
    ids=["eight times the disks of a node", "sixteen times the nodes", "sixteen times the disks of a zone"],
)
def test_a_decision_for_a_shape_that_is_known_costs_the_same_however_many_volumes_there_are(
    small: list[Object], large: list[Object]
) -> None:
    assert cost(large) <= 1.1 * cost(small)
