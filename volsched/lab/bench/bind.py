"""From a pod's creation to its node, durable: in bulk, and one pod at a time; here with everything in one process.

The baseline is how fast this store commits events of a like size through the log alone, in the same run; a pod
with one claim takes some twenty events, so the ratio says what deciding, binding and reconciling add to writing
it down.
"""

import itertools
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

from volsched.lab.bench.log import bench_append
from volsched.lab.bench.world import Clock, cluster, create, micros, pods_with_claims
from volsched.log.database import Database
from volsched.log.garbage_pause import collect_seldom
from volsched.runtime.system import Bell, System, embedded

APPEND_BATCHES = 20
APPEND_SIZE = 100
POLL_SECONDS = 0.002


@dataclass(slots=True)
class BindRow:
    engine: str
    workers: str
    """Who carried the effects out: the deciding process itself, or Celery."""
    nodes: int
    volumes: int
    claims: int
    pods: int
    pods_per_second: float
    """In bulk, from the first creation to the last binding."""
    single_ms_p50: float
    single_ms_p99: float
    events_per_pod: float
    baseline_events_per_second: float
    processes: int = 1
    longest_wait_ms: float | None = None
    """For a turn to write to the file, of all processes; None where there are no turns, or nobody told."""

    @property
    def ratio(self) -> float:
        return self.pods_per_second * self.events_per_pod / self.baseline_events_per_second

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "ratio": self.ratio}


def bench_bind(
    database: Database,
    *,
    nodes: int,
    volumes: int,
    claims: int,
    pods: int,
    singles: int,
    clock: Clock,
    bell: Bell | None = None,
) -> BindRow:
    """Local volumes spread over the nodes; every pod has so many claims, all on one node.

    With a bell, workers that run already carry the effects out, and this process only decides and reconciles.
    """
    base = append_rate(database, clock)
    ids = new_ids()
    system = embedded(database, owner="bench", clock=lambda: micros(clock()), new_id=lambda: next(ids), bell=bell)
    row = measure_binding(
        database,
        workers="embedded" if bell is None else "celery",
        nodes=nodes,
        volumes=volumes,
        claims=claims,
        pods=pods,
        singles=singles,
        base=base,
        clock=clock,
        ids=ids,
        bind=lambda wanted: _bind(system, wanted, clock),
        position=lambda: system.world.position,
    )
    if database.engine.dialect.name == "sqlite":
        row.longest_wait_ms = database.waits.longest * 1_000
    return row


def measure_binding(
    database: Database,
    *,
    workers: str,
    nodes: int,
    volumes: int,
    claims: int,
    pods: int,
    singles: int,
    base: float,
    clock: Clock,
    ids: Iterator[str],
    bind: Callable[[int], None],
    position: Callable[[], int],
) -> BindRow:
    """The same story for whoever does the work: `bind` returns when so many pods have their node for good."""
    create(database, cluster(nodes, volumes), ids, clock)
    bind(0)
    collect_seldom()
    first, started = position(), clock()
    create(database, pods_with_claims("bulk", pods, claims), ids, clock)
    bind(pods)
    seconds, per_pod = clock() - started, (position() - first) / pods
    times = []
    for number in range(singles):
        started = clock()
        create(database, pods_with_claims(f"single-{number}", 1, claims), ids, clock)
        bind(pods + number + 1)
        times.append((clock() - started) * 1_000)
    times.sort()
    return BindRow(
        engine=database.engine.dialect.name,
        workers=workers,
        nodes=nodes,
        volumes=volumes,
        claims=claims,
        pods=pods,
        pods_per_second=pods / seconds,
        single_ms_p50=times[len(times) // 2],
        single_ms_p99=times[-1 - len(times) // 100],
        events_per_pod=per_pod,
        baseline_events_per_second=base,
    )


def append_rate(database: Database, clock: Clock) -> float:
    """Events a second through the log alone."""
    return bench_append(database, batches=APPEND_BATCHES, size=APPEND_SIZE, clock=clock).per_second


def new_ids() -> Iterator[str]:
    return (f"id-{number}" for number in itertools.count(1))


def too_few(bound: int, pods: int) -> RuntimeError:
    return RuntimeError(f"{bound} of {pods} pods were bound; a measurement of anything else is worth nothing")


def _bind(system: System, pods: int, clock: Clock) -> None:
    """Until so many pods have their node for good and nothing else can be done."""
    while True:
        progress = system.step(micros(clock()))
        bound = _bound(system)
        if bound == pods and (progress == 0 or pods > 0):
            return
        if progress == 0 and system.bell is None:
            raise too_few(bound, pods)
        if progress == 0:
            # The workers are at it, in processes that cannot wake this one yet.
            time.sleep(POLL_SECONDS)


def _bound(system: System) -> int:
    pods = system.picture.index.snapshot.pods.values()
    return sum(1 for pod in pods if pod.node_name and pod.key not in system.picture.planned)


@contextmanager
def workers(database: Database, redis: str) -> Iterator[None]:
    """A Celery worker of two processes on the database, as an operator starts one."""
    url = database.engine.url.render_as_string(hide_password=False)
    environment = {**os.environ, "VOLSCHED_DATABASE_URL": url, "VOLSCHED_REDIS_URL": redis}
    command = [sys.executable, "-m", "celery", "-A", "workers.app", "worker", "--concurrency", "2", "-l", "ERROR"]
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as worker:
        try:
            yield
        finally:
            worker.terminate()
            worker.wait()
