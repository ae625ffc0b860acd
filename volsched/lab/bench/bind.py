"""Benchmark of binding, from a pod's creation to its durable node, in bulk and one at a time; and its cluster."""

import itertools
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, nullcontext
from dataclasses import asdict, dataclass, field
from typing import Any

from volsched.kube.storage import NO_PROVISIONER
from volsched.lab.bench.figure_history import SizeAxis
from volsched.lab.bench.log import bench_append, bytes_in_use, must
from volsched.lab.bench.statement_count import counted
from volsched.log.commands import Command
from volsched.log.commit_listeners import Commit, LeaseChange
from volsched.log.commit_signal import Commits, commits
from volsched.log.database import Database
from volsched.log.garbage_pause import collect_seldom
from volsched.log.transaction import execute
from volsched.objects import door
from volsched.objects.object_write import Author
from volsched.runtime.clock import SECOND
from volsched.runtime.settings import read_settings
from volsched.runtime.system import Bell, System, embedded

# The cluster for binding benchmarks: nodes with local volumes, and pods with claims for them.

Clock = Callable[[], float]
CREATED_TOGETHER = 200
BIRTH = "2026-01-01T00:00:00Z"


def create(database: Database, manifests: Iterator[dict[str, Any]], ids: Iterator[str], clock: Clock) -> None:
    while batch := list(itertools.islice(manifests, CREATED_TOGETHER)):
        must(execute(database, [_creating(it, next(ids)) for it in batch], now=micros(clock())))


def _creating(manifest: dict[str, Any], uid: str) -> Command:
    return door.create(manifest["kind"], manifest, Author("bench", BIRTH), uid=uid).command


def cluster(nodes: int, volumes: int) -> Iterator[dict[str, Any]]:
    yield {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "bench"}}
    yield {
        "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "local"},
        "provisioner": NO_PROVISIONER, "volumeBindingMode": "WaitForFirstConsumer",
    }  # fmt: skip
    for number in range(nodes):
        name = f"node-{number:05}"
        labels = {"kubernetes.io/hostname": name}
        yield {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}}
    for number in range(volumes):
        host = {
            "key": "kubernetes.io/hostname",
            "operator": "In",
            "values": [f"node-{number % nodes:05}"],
        }
        yield {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": f"disk-{number:06}"},
            "spec": {
                "capacity": {"storage": f"{10 + number % 7}Gi"},
                "accessModes": ["ReadWriteOnce"],
                "storageClassName": "local",
                "persistentVolumeReclaimPolicy": "Retain",
                "local": {"path": f"/mnt/{number}"},
                "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [host]}]}},
            },
        }


def pods_with_claims(name: str, pods: int, claims: int) -> Iterator[dict[str, Any]]:
    for number in range(pods):
        names = [f"{name}-{number}-{claim}" for claim in range(claims)]
        for claim in names:
            yield {
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "metadata": {"name": claim, "namespace": "bench"},
                "spec": {
                    "accessModes": ["ReadWriteOnce"],
                    "storageClassName": "local",
                    "resources": {"requests": {"storage": "9Gi"}},
                },
            }
        yield {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": f"{name}-{number}", "namespace": "bench"},
            "spec": {"containers": [{"name": "main", "image": "app"}], "volumes": _mounts(names)},
        }


def _mounts(claims: Sequence[str]) -> list[dict[str, Any]]:
    return [{"name": f"v{i}", "persistentVolumeClaim": {"claimName": name}} for i, name in enumerate(claims)]


def micros(seconds: float) -> int:
    return int(seconds * SECOND)


# The baseline is how fast this store commits events of similar size through the log alone, in the same run; a
# pod with one claim takes some twenty events, so the ratio shows what deciding, binding and reconciling add to
# writing.

APPEND_BATCHES = 20
APPEND_SIZE = 100
COUNTED = 5
"""Single pods whose statements are counted."""
HEARD_SECONDS = 0.1
"""How long to wait for a worker's commit before the clock is read again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BindLoad:
    """Local volumes spread over the nodes; every pod has so many claims, all on one node."""

    nodes: int
    volumes: int
    claims: int
    pods: int
    """Pods in bulk."""
    singles: int
    """Pods one after the other, after the bulk."""


@dataclass(slots=True)
class BindRow:
    engine: str
    workers: str
    """The processes that carried the effects out: the deciding process itself, or Celery."""
    nodes: int
    volumes: int
    claims: int
    pods: int
    pods_per_second: float
    """Rate in bulk, from the first creation to the last binding."""
    single_ms_p50: float
    single_ms_p99: float
    events_per_pod: float
    baseline_events_per_second: float
    processes: int = 1
    longest_wait_ms: float | None = None
    """The longest wait of any process for the file's write lock; None if there is no lock, or it is unknown."""
    single_cpu_ms: float | None = None
    """Processor time of this process for a single pod, its creation included; None where others share the work."""
    single_statements: float | None = None
    single_transactions: float | None = None
    single_write_transactions: float | None = None
    """Write transactions of a single pod, its creation included; SQLite only."""
    lock_ms_p50: float | None = None
    lock_ms_p99: float | None = None
    """From the lock on the log's head to the commit, of all transactions of this process."""
    bytes_per_pod: float | None = None
    """Growth of the pages in use during the bulk, creations included; with more pods, whole pages matter less.
    SQLite only."""
    cores_used: float | None = None
    """Cores used by all processes of a stack and by this one, while the pods of the bulk were bound."""
    over_pods: float | None = None
    """How the time of the bulk grows with its pods; 1 is in proportion."""

    @property
    def bulk_seconds(self) -> float:
        return self.pods / self.pods_per_second

    @property
    def ratio(self) -> float:
        return self.pods_per_second * self.events_per_pod / self.baseline_events_per_second

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "ratio": self.ratio}


OVER_PODS: SizeAxis[BindRow] = SizeAxis(
    column="over_pods",
    size=lambda row: row.pods,
    alike=lambda row: (row.engine, row.workers, row.nodes, row.volumes, row.claims, row.processes),
    figure=lambda row: row.bulk_seconds,
)


@dataclass(slots=True)
class LockTimes:
    """Collects from commits how long each kept other writers waiting."""

    seconds: list[float] = field(default_factory=list)

    def committed(self, commit: Commit) -> None:
        self.seconds.append(commit.seconds)

    def lease_changed(self, change: LeaseChange) -> None:
        """Leases are not written under the head lock."""

    def quantile_ms(self, part: float) -> float:
        return sorted(self.seconds)[int((len(self.seconds) - 1) * part)] * 1_000


def bench_bind(database: Database, load: BindLoad, *, clock: Clock, bell: Bell | None = None) -> BindRow:
    """Measure binding. With a bell, workers carry the effects out; this process only decides and reconciles."""
    base = append_rate(database, clock)
    ids = new_ids()
    system = embedded(
        database,
        owner="bench",
        clock=lambda: micros(clock()),
        new_id=lambda: next(ids),
        bell=bell,
        stepwise=read_settings().stepwise_binding,
    )
    lock_times = LockTimes()
    database.listeners.append(lock_times)
    with nullcontext() if bell is None else closing(commits(database)) as others:
        row = measure_binding(
            database,
            load,
            workers="embedded" if bell is None else "celery",
            base=base,
            clock=clock,
            ids=ids,
            bind=lambda wanted: _bind(system, wanted, clock, others),
            position=lambda: system.world.position,
        )
    if database.engine.dialect.name == "sqlite":
        row.longest_wait_ms = database.waits.longest * 1_000
    row.lock_ms_p50, row.lock_ms_p99 = lock_times.quantile_ms(0.5), lock_times.quantile_ms(0.99)
    if bell is None:
        _count_singles(database, system, load, row, ids=ids, clock=clock)
    return row


def _count_singles(
    database: Database, system: System, load: BindLoad, row: BindRow, *, ids: Iterator[str], clock: Clock
) -> None:
    """Some more pods one by one, not timed: tracing costs time."""
    bound, began = load.pods + load.singles, time.process_time()
    with counted(database) as count:
        for number in range(COUNTED):
            create(database, pods_with_claims(f"counted-{number}", 1, load.claims), ids, clock)
            _bind(system, bound + number + 1, clock, None)
    row.single_cpu_ms = (time.process_time() - began) / COUNTED * 1_000
    if count is not None:
        row.single_statements = count.statements / COUNTED
        row.single_transactions = count.transactions / COUNTED
        row.single_write_transactions = count.writes / COUNTED


def measure_binding(
    database: Database,
    load: BindLoad,
    *,
    workers: str,
    base: float,
    clock: Clock,
    ids: Iterator[str],
    bind: Callable[[int], None],
    position: Callable[[], int],
    cpu: Clock | None = None,
) -> BindRow:
    """The same procedure for any kind of workers: `bind` returns when so many pods have their final node.

    `cpu`: processor time of all processes that take part.
    """
    claims, pods = load.claims, load.pods
    create(database, cluster(load.nodes, load.volumes), ids, clock)
    bind(0)
    collect_seldom()
    is_file = database.engine.dialect.name == "sqlite"
    bytes_before = bytes_in_use(database) if is_file else 0
    spent_before = 0 if cpu is None else cpu()
    first, started = position(), clock()
    create(database, pods_with_claims("bulk", pods, claims), ids, clock)
    bind(pods)
    seconds, per_pod = clock() - started, (position() - first) / pods
    cores_used = None if cpu is None else (cpu() - spent_before) / seconds
    bytes_per_pod = (bytes_in_use(database) - bytes_before) / pods if is_file else None
    times = []
    for number in range(load.singles):
        started = clock()
        create(database, pods_with_claims(f"single-{number}", 1, claims), ids, clock)
        bind(pods + number + 1)
        times.append((clock() - started) * 1_000)
    times.sort()
    return BindRow(
        engine=database.engine.dialect.name,
        workers=workers,
        nodes=load.nodes,
        volumes=load.volumes,
        claims=claims,
        pods=pods,
        pods_per_second=pods / seconds,
        single_ms_p50=times[len(times) // 2],
        single_ms_p99=times[-1 - len(times) // 100],
        events_per_pod=per_pod,
        baseline_events_per_second=base,
        bytes_per_pod=bytes_per_pod,
        cores_used=cores_used,
    )


def append_rate(database: Database, clock: Clock) -> float:
    """Events per second through the log alone."""
    return bench_append(database, batches=APPEND_BATCHES, size=APPEND_SIZE, clock=clock).per_second


def new_ids() -> Iterator[str]:
    return (f"id-{number}" for number in itertools.count(1))


def too_few(bound: int, pods: int) -> RuntimeError:
    return RuntimeError(f"{bound} of {pods} pods were bound; the measurement is invalid unless all are")


def _bind(system: System, pods: int, clock: Clock, others: Commits | None) -> None:
    """Works until so many pods have their final node and no work is left."""
    while True:
        progress = system.step(micros(clock()))
        bound = _bound(system)
        if bound == pods and (progress == 0 or pods > 0):
            return
        if progress == 0 and others is None:
            raise too_few(bound, pods)
        if progress == 0 and others is not None:
            # The workers are busy, in their own processes.
            others.heard(HEARD_SECONDS)


def _bound(system: System) -> int:
    pods = system.picture.index.snapshot.pods.values()
    return sum(1 for pod in pods if pod.node_name and pod.key not in system.picture.planned)


@contextmanager
def workers(database: Database, redis: str) -> Iterator[None]:
    """A Celery worker with two processes on the database, as an operator starts one."""
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
