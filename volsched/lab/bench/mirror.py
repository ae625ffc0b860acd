"""The cost of following a cluster: lists, changes, lag, memory and log, beside decoding the same bytes alone.

The cluster is another process that generates bytes of the server's protocol (`encoded_server`); the adapter, the
observer and the store are those of `volsched observe`, without its API.
"""

import resource
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from itertools import islice
from threading import Event
from time import monotonic, process_time
from typing import Any

import httpx2
import orjson

from volsched.cluster.kubernetes.adapter import KubernetesCluster, attach
from volsched.cluster.kubernetes.backoff import TokenBucket
from volsched.cluster.kubernetes.kubeconfig import ClusterAccess
from volsched.cluster.kubernetes.streams import reading
from volsched.cluster.observer import ClusterObserver
from volsched.cluster.projection import project
from volsched.lab.bench.encoded_server import HEAD, changed_line, counts, kind_of_change, life_lines, listed_lines
from volsched.lab.bench.log import bytes_in_use
from volsched.log.database import Database
from volsched.log.reads.tail import read_head
from volsched.runtime.clock import system_clock

FOLLOWED = ("Node", "PersistentVolume", "PersistentVolumeClaim", "VolumeAttachment", "Pod")
SAMPLE = 2_000
"""Objects of a kind, or changes, that are decoded for the baseline."""
PODS_A_DAY = 10 * 86_400
MOST_CHANGES = 30
"""Changes of one life: the number distinguishes versions."""
UNLIMITED = 1e6
IDLE_SECONDS = 0.02
PATIENCE_SECONDS = 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorLoad:
    pods: int
    rate: int
    """Changes a second, sustained."""
    burst: int
    seconds: int
    """Duration of the sustained changes."""
    burst_seconds: int
    lives: int
    """Pods that come and go while the log's growth is measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorRow:
    what: str
    objects: int
    seconds: float
    decode_seconds: float
    wall_seconds: float
    events: int
    generator_seconds: float
    lag_p99: float | None = None
    gigabytes_a_day: float | None = None

    def as_json(self) -> dict[str, Any]:
        return {
            "what": self.what,
            "objects": self.objects,
            "cpuSeconds": round(self.seconds, 2),
            "perCpuSecond": round(self.objects / max(self.seconds, 1e-9)),
            "timesDecoding": round(self.seconds / max(self.decode_seconds, 1e-9), 1),
            "wallSeconds": round(self.wall_seconds, 1),
            "lagP99Seconds": None if self.lag_p99 is None else round(self.lag_p99, 2),
            "events": self.events,
            "logGBaDay": None if self.gigabytes_a_day is None else round(self.gigabytes_a_day, 2),
            "mostMiB": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
            "generatorCpuSeconds": round(self.generator_seconds, 1),
        }


class BenchStuckError(Exception):
    """The follower does not catch up; the message says how far it came."""


@dataclass
class Follower:
    """One run of an observer: its adapter, its streams, and the steps of its loop."""

    database: Database
    url: str
    cluster: KubernetesCluster = field(init=False)
    observer: ClusterObserver = field(init=False)

    def __post_init__(self) -> None:
        transport = attach(ClusterAccess(server=self.url), bucket=TokenBucket(UNLIMITED, UNLIMITED))
        self.cluster = KubernetesCluster(transport, kinds=FOLLOWED, project=project)
        self.observer = ClusterObserver(self.database, self.cluster)
        self.observer.mirror.kinds = FOLLOWED

    @contextmanager
    def reading(self) -> Iterator["Follower"]:
        with ExitStack() as stack:
            stack.callback(self.cluster.close)
            stack.enter_context(reading(list(self.cluster.streams.values())))
            yield self

    def until(self, is_done: Callable[[], bool]) -> None:
        idle, since, reached = Event(), monotonic(), dict(self.observer.mirror.reached)
        while not is_done():
            if not self.observer.step(system_clock()):
                idle.wait(IDLE_SECONDS)
            if reached != self.observer.mirror.reached:
                since, reached = monotonic(), dict(self.observer.mirror.reached)
            if monotonic() - since > PATIENCE_SECONDS:
                raise BenchStuckError(f"the follower does not catch up: it has reached {reached}")


@dataclass
class Lags:
    """When each change became known, after it was due; by kind."""

    start: float
    rate: int
    first: int
    total: int
    seconds: list[float] = field(default_factory=list)
    _next: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        numbers = range(self.first, self.first + self.total)
        kinds = {kind_of_change(number) for number in islice(numbers, 100)}
        self._next = {kind: next(it for it in numbers if kind_of_change(it) == kind) for kind in kinds}

    def note(self, reached: dict[str, int]) -> bool:
        """Returns whether all changes are known."""
        now, end = monotonic(), self.first + self.total
        for kind in list(self._next):
            number = self._next[kind]
            while number < end and HEAD + 1 + number <= reached.get(kind, 0):
                self.seconds.append(now - (self.start + (number - self.first) / self.rate))
                number = next((it for it in range(number + 1, end) if kind_of_change(it) == kind), end)
            self._next[kind] = number
        return all(number >= end for number in self._next.values())


def bench_mirror(database: Database, load: MirrorLoad) -> Iterator[MirrorRow]:
    with (
        _generator(load.pods) as url,
        httpx2.Client(base_url=url, timeout=PATIENCE_SECONDS, trust_env=False) as http,
    ):
        bench = _Bench(database, load, url, http)
        with Follower(database, url).reading() as first:
            yield bench.listing("first list", first)
        with Follower(database, url).reading() as follower:
            yield bench.listing("restart, nothing changed", follower)
            follower.until(lambda: all(it.last_heard is not None for it in follower.cluster.health().values()))
            yield bench.changes(follower, "sustained", load.rate, load.seconds, first=0)
            yield bench.changes(follower, "burst", load.burst, load.burst_seconds, first=load.rate * load.seconds)
            changed = load.rate * load.seconds + load.burst * load.burst_seconds
            yield bench.lives(follower, first=changed, own_volumes=True)
            yield bench.lives(follower, first=changed + load.lives * MOST_CHANGES, own_volumes=False)


@dataclass
class _Bench:
    database: Database
    load: MirrorLoad
    url: str
    http: httpx2.Client

    def listing(self, what: str, follower: Follower) -> MirrorRow:
        decoded = sum(
            _decoding(islice(listed_lines(kind, self.load.pods), SAMPLE)) * count
            for kind, count in counts(self.load.pods).items()
        )

        def work() -> None:
            observer = follower.observer
            while not observer.mirror.is_listed:
                observer.step(system_clock())

        return self._row(what, sum(counts(self.load.pods).values()), decoded, work)

    def changes(self, follower: Follower, what: str, rate: int, seconds: int, *, first: int) -> MirrorRow:
        total = rate * seconds
        decoded = _decoding(changed_line(first + number, self.load.pods) for number in range(SAMPLE)) * total
        lags: list[float] = []

        def work() -> None:
            parameters = {"rate": rate, "seconds": seconds, "first": first}
            start = self.http.post("/load", params=parameters).json()["start"]
            noted = Lags(start, rate, first, total)
            follower.until(lambda: noted.note(follower.observer.mirror.reached))
            lags.extend(sorted(noted.seconds))

        row = self._row(f"{what}, {rate:,}/s for {seconds} s", total, decoded, work)
        return replace(row, lag_p99=lags[int(len(lags) * 0.99)])

    def lives(self, follower: Follower, *, first: int, own_volumes: bool) -> MirrorRow:
        last: dict[str, int] = {}
        decoded = _decoding(line for _, line in life_lines(SAMPLE // 10, first, own_volumes=own_volumes))
        changes = 0
        for kind, line in life_lines(self.load.lives, first, own_volumes=own_volumes):
            last[kind] = int(line.partition(b'"resourceVersion":"')[2].partition(b'"')[0])
            changes += 1
        before = bytes_in_use(self.database)

        def work() -> None:
            parameters = {"pods": self.load.lives, "first": first, "volumes": int(own_volumes)}
            self.http.post("/lives", params=parameters)
            reached = follower.observer.mirror.reached
            follower.until(lambda: all(reached.get(kind, 0) >= version for kind, version in last.items()))

        volumes = "with volumes of their own" if own_volumes else "that come back to their claims"
        row = self._row(f"the lives of {self.load.lives:,} pods {volumes}", changes, decoded * changes, work)
        grown = (bytes_in_use(self.database) - before) / self.load.lives * PODS_A_DAY / 1e9
        return replace(row, gigabytes_a_day=grown)

    def _row(self, what: str, objects: int, decode_seconds: float, work: Callable[[], None]) -> MirrorRow:
        events, generator = _head(self.database), self._generator_seconds()
        wall, cpu = monotonic(), process_time()
        work()
        cpu, wall = process_time() - cpu, monotonic() - wall
        return MirrorRow(
            what=what,
            objects=objects,
            seconds=cpu,
            decode_seconds=decode_seconds,
            wall_seconds=wall,
            events=_head(self.database) - events,
            generator_seconds=self._generator_seconds() - generator,
        )

    def _generator_seconds(self) -> float:
        return float(self.http.get("/cpu").json()["seconds"])


@contextmanager
def _generator(pods: int) -> Iterator[str]:
    command = [sys.executable, "-m", "volsched.lab.bench.encoded_server", str(pods)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield f"http://127.0.0.1:{int(process.stdout.readline())}"
        finally:
            process.kill()


def _decoding(lines: Iterator[bytes]) -> float:
    """CPU seconds to decode one of them."""
    encoded = list(lines)
    start = process_time()
    for line in encoded:
        orjson.loads(line)
    return (process_time() - start) / max(len(encoded), 1)


def _head(database: Database) -> int:
    with database.read() as connection:
        return read_head(connection).position
