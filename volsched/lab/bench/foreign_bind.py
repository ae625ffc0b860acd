"""Own mode on a strict API server over HTTP: pods a second, calls a pod, and one pod at a time.

The server and the PV controller are processes of their own, as a cluster has them; the adapter, the mirror and the
system are those of `volsched attach`, without its API. Every call takes at least `CALL_SECONDS`, as it does where
the server is another machine; how long they took is shown, because on a small machine the server is the limit. Its
store is in memory: the speed of its disk is not ours. The processor time of each process is shown apart.
"""

import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from threading import Event, Lock
from typing import Any

import httpx2

from volsched.cluster.kubernetes.acting_cluster import BURST, PER_SECOND
from volsched.cluster.kubernetes.adapter import KubernetesCluster
from volsched.cluster.kubernetes.backoff import TokenBucket
from volsched.cluster.kubernetes.credentials import CredentialSource
from volsched.cluster.kubernetes.kubeconfig import ClusterAccess
from volsched.cluster.kubernetes.requests import ApiRequest, collection_path
from volsched.cluster.kubernetes.streams import reading
from volsched.cluster.kubernetes.transport import ApiAnswer, Transport
from volsched.cluster.observer import ClusterObserver
from volsched.cluster.permissions import OWN, WATCHED_KINDS
from volsched.cluster.projection import project
from volsched.lab.bench.bind import BindLoad, bench_bind, cluster, new_ids, pods_with_claims
from volsched.lab.bench.idle import cpu_seconds
from volsched.log.database import Database
from volsched.log.migrations import MEMORY, scratch_store
from volsched.runtime.clock import system_clock
from volsched.runtime.runner import calls_side_by_side, looping, waking
from volsched.runtime.system import ProcessRole, embedded

CALL_SECONDS = 0.010
CONNECTIONS = 16
LOOK_SECONDS = 0.002
PATIENCE_SECONDS = 300.0
"""Seconds without a pod being bound, after which the benchmark fails."""
CONTROLLER_ROUNDS = 15
LEFT_OUT = ("node-agent", "provisioners", "stateful-sets", "ephemeral-claims", "disruption-budgets", "expiry")


class ForeignBenchError(Exception):
    """The cluster did not start, or not all pods were bound, which makes the measurement invalid."""


@dataclass(slots=True)
class ForeignBindRow:
    cluster: str
    claims: int
    pods: int
    pods_per_second: float
    """Rate in bulk: all pods exist before we begin."""
    calls_per_pod: float
    """Calls of the bulk; lists and watches are not counted."""
    call_ms_mean: float
    call_ms_p50: float
    cpu_ms_per_pod: float
    """Processor time of our process in bulk: deciding, calling, and following the cluster."""
    server_cpu_ms_per_pod: float
    controller_cpu_ms_per_pod: float
    """Processor time of the cluster's processes in the same period."""
    single_ms_p50: float
    """From the answer to a pod's creation to the answer to its binding."""
    controller_ms_p50: float
    """The part of the single pod's time that the PV controller takes: from a prebind to a bound claim."""
    embedded_pods_per_second: float
    embedded_single_ms_p50: float

    @property
    def beyond_controller_ms(self) -> float:
        return self.single_ms_p50 - self.controller_ms_p50

    def as_json(self) -> dict[str, Any]:
        ratio = self.pods_per_second / self.embedded_pods_per_second
        return {**asdict(self), "beyond_controller_ms": self.beyond_controller_ms, "ratio": ratio}


@dataclass(slots=True)
class CallMeter:
    lock: Lock = field(default_factory=Lock)
    milliseconds: list[float] = field(default_factory=list)
    bound: int = 0

    def note(self, request: ApiRequest, seconds: float) -> None:
        with self.lock:
            self.milliseconds.append(seconds * 1_000)
            self.bound += request.what.startswith("bind ")


class SlowTransport(Transport):
    """Calls of at least `CALL_SECONDS`, measured."""

    meter: CallMeter

    def call(self, request: ApiRequest) -> ApiAnswer:
        if request.what.startswith(("list", "ask")):
            return super().call(request)
        began = time.perf_counter()
        answer = super().call(request)
        time.sleep(max(CALL_SECONDS - (time.perf_counter() - began), 0))
        self.meter.note(request, time.perf_counter() - began)
        return answer


def bench_foreign_bind(load: BindLoad) -> ForeignBindRow:
    with scratch_store() as database:
        inside = bench_bind(database, load, clock=time.time)
    with strict_cluster() as (http, pids), scratch_store() as database:
        for manifest in cluster(load.nodes, load.volumes):
            _create(http, manifest)
        for manifest in pods_with_claims("bulk", load.pods, load.claims):
            _create(http, _ours(manifest))
        _wait(lambda: _phases(http) == {"Available"}, "volumes do not become Available")
        controller = _controller_ms(http)
        meter, go = CallMeter(), Event()
        with _attached(database, str(http.base_url), meter, go):
            began, used = time.perf_counter(), _processor_ms(pids)
            go.set()
            _bound(meter, load.pods)
            seconds = time.perf_counter() - began
            costs = [(now - then) / load.pods for now, then in zip(_processor_ms(pids), used, strict=True)]
            calls, times = len(meter.milliseconds), sorted(meter.milliseconds)
            singles = sorted(_single_ms(http, meter, load, number) for number in range(load.singles))
    return ForeignBindRow(
        cluster="strict",
        claims=load.claims,
        pods=load.pods,
        pods_per_second=load.pods / seconds,
        calls_per_pod=calls / load.pods,
        call_ms_mean=sum(times) / calls,
        call_ms_p50=times[len(times) // 2],
        cpu_ms_per_pod=costs[0],
        server_cpu_ms_per_pod=costs[1],
        controller_cpu_ms_per_pod=costs[2],
        single_ms_p50=singles[len(singles) // 2],
        controller_ms_p50=controller,
        embedded_pods_per_second=inside.pods_per_second,
        embedded_single_ms_p50=inside.single_ms_p50,
    )


@contextmanager
def _attached(database: Database, url: str, meter: CallMeter, go: Event) -> Iterator[None]:
    """Runs the components of `volsched attach --mode own`; it lists everything first, and decides after `go`."""
    access, ids = ClusterAccess(server=url.rstrip("/")), new_ids()
    transport = SlowTransport(
        access,
        CredentialSource(access, time.time),
        user_agent="volsched bench",
        bucket=TokenBucket(PER_SECOND, BURST),
    )
    transport.meter = meter
    adapter = KubernetesCluster(transport, kinds=WATCHED_KINDS, project=project)
    observer = ClusterObserver(database, adapter, mode=OWN)
    observer.mirror.kinds = WATCHED_KINDS
    deaths: list[Exception] = []
    with ExitStack() as stack:
        stack.callback(adapter.close)
        side_by_side = stack.enter_context(calls_side_by_side(CONNECTIONS))
        stack.enter_context(reading(list(adapter.streams.values())))
        system = embedded(
            database,
            owner="bench",
            clock=system_clock,
            new_id=lambda: next(ids),
            cluster=adapter,
            observer=observer,
            roles={ProcessRole.SCHEDULER},
            side_by_side=side_by_side,
            may_act=go.is_set,
        )
        loop = stack.enter_context(
            looping(system.step, clock=system_clock, name="volsched-bench", failed=deaths.append)
        )
        stack.enter_context(waking(database, loop.wake))
        adapter.wake_on_news(loop.wake)
        _wait(lambda: observer.mirror.is_listed or bool(deaths), "the cluster is not listed")
        yield
    if deaths:
        raise ForeignBenchError(str(deaths[0])) from deaths[0]


def _processor_ms(pids: Sequence[int]) -> list[float]:
    """Processor time of this process and of those."""
    return [1_000 * it for it in (time.process_time(), *map(cpu_seconds, pids))]


def _single_ms(http: httpx2.Client, meter: CallMeter, load: BindLoad, number: int) -> float:
    *claims, pod = pods_with_claims(f"single-{number}", 1, load.claims)
    for manifest in claims:
        _create(http, manifest)
    bound = meter.bound
    _create(http, _ours(pod))
    began = time.perf_counter()
    _bound(meter, bound + 1)
    return (time.perf_counter() - began) * 1_000


def _controller_ms(http: httpx2.Client) -> float:
    """The median time of the PV controller for prebinds by hand, while all others are idle."""
    times: list[float] = []
    for number in range(CONTROLLER_ROUNDS):
        claim, _ = pods_with_claims(f"alone-{number}", 1, 1)
        created = _create(http, claim)
        name = next(it["metadata"]["name"] for it in _volumes(http) if not it["spec"].get("claimRef"))
        named = {
            "kind": "PersistentVolumeClaim",
            **{it: created["metadata"][it] for it in ("namespace", "name", "uid")},
        }
        path = f"/api/v1/persistentvolumes/{name}"
        merge = {"content-type": "application/merge-patch+json"}
        began = time.perf_counter()
        http.patch(path, json={"spec": {"claimRef": named}}, headers=merge).raise_for_status()
        own = f"{collection_path('PersistentVolumeClaim', 'bench')}/{named['name']}"
        _wait(partial(_has_volume, http, own), "the PV controller does not bind")
        times.append((time.perf_counter() - began) * 1_000)
    return sorted(times)[len(times) // 2]


def _ours(manifest: dict[str, Any]) -> dict[str, Any]:
    if manifest["kind"] != "Pod":
        return manifest
    return {**manifest, "spec": {**manifest["spec"], "schedulerName": "volsched"}}


def _create(http: httpx2.Client, manifest: dict[str, Any]) -> dict[str, Any]:
    answer = http.post(collection_path(manifest["kind"], manifest["metadata"].get("namespace")), json=manifest)
    if answer.status_code not in (201, 409):
        raise ForeignBenchError(f"the server refused {manifest['kind']}: {answer.text}")
    created: dict[str, Any] = answer.json()
    return created


def _volumes(http: httpx2.Client) -> list[dict[str, Any]]:
    volumes: list[dict[str, Any]] = http.get("/api/v1/persistentvolumes").json()["items"]
    return volumes


def _phases(http: httpx2.Client) -> set[str]:
    return {(it.get("status") or {}).get("phase", "") for it in _volumes(http)}


def _bound(meter: CallMeter, pods: int) -> None:
    _wait(lambda: meter.bound >= pods, f"not all of {pods} pods are bound", progress=lambda: meter.bound)


def _wait(condition: Callable[[], object], trouble: str, *, progress: Callable[[], object] = lambda: None) -> None:
    last_progress, until = progress(), time.monotonic() + PATIENCE_SECONDS
    while not condition():
        if progress() != last_progress:
            last_progress, until = progress(), time.monotonic() + PATIENCE_SECONDS
        if time.monotonic() > until:
            raise ForeignBenchError(f"{trouble}: {last_progress}")
        time.sleep(LOOK_SECONDS)


@contextmanager
def strict_cluster() -> Iterator[tuple[httpx2.Client, Sequence[int]]]:
    """A strict API server and a PV controller on a store of their own, in processes of their own, by id."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("VOLSCHED_")}
    without = [word for part in LEFT_OUT for word in ("--without", part)]
    place = MEMORY if MEMORY.is_dir() else None
    pids: list[int] = []
    with tempfile.TemporaryDirectory(prefix="volsched-", dir=place) as directory, ExitStack() as stack:
        store = ["--db", str(Path(directory) / "cluster.db")]
        for words in (["api", "--strict", "--port", str(port), *store], ["controller", *without, *store]):
            process = subprocess.Popen(
                [sys.executable, "-m", "volsched", "serve", *words],
                env=environment,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            pids.append(process.pid)
            stack.callback(process.wait)
            stack.callback(process.terminate)
            http = stack.enter_context(httpx2.Client(base_url=f"http://127.0.0.1:{port}", timeout=60))
            _wait(partial(_answers, http), "the strict server does not start")
        yield http, pids


def _has_volume(http: httpx2.Client, path: str) -> bool:
    return bool(http.get(path).json()["spec"].get("volumeName"))


def _answers(http: httpx2.Client) -> bool:
    try:
        return http.get("/livez").status_code == 200
    except httpx2.TransportError:
        return False
