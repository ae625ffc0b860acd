"""A load that tolerates restarts: creates pods with claims over the API at a steady rate, and measures binding."""

import http.client
import itertools
import json
import ssl
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from sqlalchemy import func, select

from volsched.lab.bench.bind import BindLoad, BindRow, Clock, append_rate, cluster, pods_with_claims
from volsched.lab.bench.processes import bench_bind_beside
from volsched.lab.stack.handle import READY_SECONDS, Stack, rolling
from volsched.lab.stack.local import free_port, prepare
from volsched.log import tables
from volsched.log.database import Database, open_database
from volsched.questions.invariants import violations
from volsched.runtime.clock import SECOND, Patience

# A `step(now)`, so that the caller can restart or kill things in between. A failed request is repeated until
# the API accepts it; names are fixed beforehand, so that "exists already" means that an earlier attempt
# succeeded.

PATHS = {
    "Namespace": "/api/v1/namespaces",
    "StorageClass": "/apis/storage.k8s.io/v1/storageclasses",
    "Node": "/api/v1/nodes",
    "PersistentVolume": "/api/v1/persistentvolumes",
    "PersistentVolumeClaim": "/api/v1/namespaces/bench/persistentvolumeclaims",
    "Pod": "/api/v1/namespaces/bench/pods",
}
TAKEN = (201, 409)
REFUSED = range(400, 500)
TOO_MANY = 429
TIMEOUT_SECONDS = 10.0
LOOK_SECONDS = 0.002
PATIENCE_SECONDS = 120.0
"""Seconds without another healthy service, or another pod with a node, before it gives up."""
CONNECTIONS = 16
Manifest = dict[str, Any]


class LoadError(Exception):
    """The API refuses what the load sends: there is no load at all."""


@dataclass(slots=True)
class LoadClient:
    """A few connections, each recreated when lost; the API commits together what is sent together."""

    url: str
    trusting: ssl.SSLContext | None = None
    failures: int = 0
    _connections: dict[int, http.client.HTTPConnection] = field(default_factory=dict)

    def create(self, manifests: Sequence[Manifest]) -> list[Manifest]:
        """Returns those that the API did not accept; at most one per connection may be passed."""
        asked = [number for number, manifest in enumerate(manifests) if self._ask(number, manifest)]
        taken = {number for number in asked if self._answered(number, manifests[number])}
        left = [manifest for number, manifest in enumerate(manifests) if number not in taken]
        self.failures += len(left)
        return left

    def close(self) -> None:
        for number in list(self._connections):
            self._connections.pop(number).close()

    def _ask(self, number: int, manifest: Manifest) -> bool:
        try:
            connection = self._connections.setdefault(number, self._connection())
            body, headers = json.dumps(manifest).encode(), {"Content-Type": "application/json"}
            connection.request("POST", PATHS[manifest["kind"]], body=body, headers=headers)
        except (OSError, http.client.HTTPException):
            self._connections.pop(number).close()
            return False
        return True

    def _answered(self, number: int, manifest: Manifest) -> bool:
        try:
            answer = self._connections[number].getresponse()
            body = answer.read()
        except (OSError, http.client.HTTPException):
            self._connections.pop(number).close()
            return False
        if answer.status in REFUSED and answer.status not in (*TAKEN, TOO_MANY):
            raise LoadError(f"{manifest['metadata']['name']}: {answer.status} {body.decode(errors='replace')}")
        return answer.status in TAKEN

    def _connection(self) -> http.client.HTTPConnection:
        """It connects with its first request."""
        parts = urlsplit(self.url)
        host, port = parts.hostname or "", parts.port
        if parts.scheme == "https":
            return http.client.HTTPSConnection(host, port, timeout=TIMEOUT_SECONDS, context=self.trusting)
        return http.client.HTTPConnection(host, port, timeout=TIMEOUT_SECONDS)


@dataclass(slots=True)
class Load:
    """So many pods per second on average: what an outage has delayed is sent afterwards."""

    client: LoadClient
    per_second: float
    most: int
    """Pods in all: no more than there are volumes for."""
    name: str = "load"
    claims: Sequence[int] = (1,)
    """How many claims each pod has, in turn."""
    annotations: Mapping[str, str] = field(default_factory=dict)
    """Annotations of the pods."""
    sent: int = 0
    _began: int | None = None
    _claims: list[Manifest] = field(default_factory=list)
    _pods: list[Manifest] = field(default_factory=list)
    """The pods that are being created; their claims come first."""

    def step(self, now: int) -> int:
        """Create what is due; 0 if nothing is, or the API accepts nothing."""
        if self._began is None:
            self._began = now
        if not self._pods:
            due = min(int((now - self._began) * self.per_second / SECOND), self.most) - self.sent
            for number in range(self.sent, self.sent + min(due, CONNECTIONS)):
                each = self.claims[number % len(self.claims)]
                *claims, pod = pods_with_claims(f"{self.name}-{number}", 1, each)
                pod["metadata"]["annotations"] = dict(self.annotations)
                self._claims += claims
                self._pods.append(pod)
        if self._claims:
            self._claims = self.client.create(self._claims[:CONNECTIONS]) + self._claims[CONNECTIONS:]
        if self._claims or not self._pods:
            return 0
        wanted = len(self._pods)
        self._pods = self.client.create(self._pods)
        self.sent += wanted - len(self._pods)
        return wanted - len(self._pods)


@dataclass(frozen=True, slots=True)
class LoadOutcome:
    pods: int
    seconds: float
    """From the first creation to the last restart; nothing was created after that."""
    restarts: dict[str, float]
    """Service → seconds until all of its instances were healthy again."""
    lost: int
    """Stored pods without a node at the end, and pods that the API accepted but that do not exist."""
    doubled: int
    """Pods with more than one committed binding, and volumes of two claims."""
    broken: tuple[str, ...]
    """Violated invariants."""
    retries: int

    @property
    def pods_per_second(self) -> float:
        return self.pods / self.seconds


def prepare_cluster(client: LoadClient, *, nodes: int, volumes: int) -> None:
    """The nodes and local volumes for a load."""
    manifests = cluster(nodes, volumes)
    while left := list(itertools.islice(manifests, CONNECTIONS)):
        while left := client.create(left):
            time.sleep(LOOK_SECONDS)


def restart_under_load(
    stack: Stack,
    database: Database,
    load: Load,
    names: Iterable[str],
    *,
    clock: Callable[[], int],
    patience: float = PATIENCE_SECONDS,
    least: int = 0,
) -> LoadOutcome:
    """Restart services one by one under load, and count the outcome; at least so many pods."""
    began, took = clock(), dict[str, float]()

    def until(condition: Callable[[], bool]) -> None:
        waiting = Patience(patience)
        while not condition():
            if waiting.is_over(load.sent if load.sent < least else None):
                raise TimeoutError(f"nothing moved for {patience:g} s: {stack.complaint()}")
            if not load.step(clock()):
                time.sleep(LOOK_SECONDS)

    for name in names:
        started = clock()
        for renewed in rolling(stack, [name]):
            until(renewed)
        took[name] = (clock() - started) / SECOND
    until(lambda: load.sent >= least)
    seconds = (clock() - began) / SECOND
    return outcome(database, load, seconds=seconds, restarts=took, patience=patience)


def outcome(
    database: Database,
    load: Load,
    *,
    seconds: float,
    restarts: dict[str, float],
    patience: float = PATIENCE_SECONDS,
) -> LoadOutcome:
    """The outcome of a load that has ended; waits for pods in flight while their number decreases."""
    waiting = Patience(patience)
    while (left := lost_pods(database, load.sent)) and not waiting.is_over(left):
        time.sleep(10 * LOOK_SECONDS)
    return LoadOutcome(
        pods=load.sent,
        seconds=seconds,
        restarts=restarts,
        lost=lost_pods(database, load.sent),
        doubled=doubled(database),
        broken=broken(database),
        retries=load.client.failures,
    )


def lost_pods(database: Database, sent: int) -> int:
    """Not sent minus bound: a pod whose answer got lost is bound too, and would hide a lost one."""
    pods = tables.pods
    asked = select(func.count(), func.count(pods.c.node)).select_from(pods)
    with database.read() as connection:
        there, bound = connection.execute(asked).one()
    return int(there - bound + max(sent - there, 0))


def doubled(database: Database) -> int:
    bindings, legs = tables.bindings, tables.binding_legs
    committed = select(bindings.c.pod).where(bindings.c.state == "committed")
    twice = committed.group_by(bindings.c.pod).having(func.count() > 1)
    given = (
        select(legs.c.volume)
        .join(bindings, bindings.c.id == legs.c.binding)
        .where(bindings.c.state == "committed", legs.c.volume.is_not(None))
        .group_by(legs.c.volume)
        .having(func.count() > 1)
    )
    with database.read() as connection:
        return sum(len(connection.execute(asked).all()) for asked in (twice, given))


def broken(database: Database) -> tuple[str, ...]:
    with database.read() as connection:
        return tuple(map(str, violations(connection, at_rest=False)))


# From a pod's creation to its node on a whole stack: the processes of an operator, on this machine.
#
# `bench http` measures what the API adds.


@contextmanager
def scratch_stack(directory: Path, *, workers: int, ready_seconds: float = READY_SECONDS) -> Iterator[Stack]:
    """A stack that exists as long as it is used, with so many workers."""
    prepare(directory, api_port=free_port(), scale={"worker": workers})
    stack = Stack(directory)
    stack.launch()
    try:
        stack.wait_ready(seconds=ready_seconds)
        yield stack
    finally:
        stack.down()


def bench_bind_on_stack(stack: Stack, load: BindLoad, *, workers: int, clock: Clock) -> BindRow:
    """Measures on a stack with an empty store; `workers` is only shown in the row."""
    database = open_database(stack.database_url)
    try:
        return bench_bind_beside(
            database,
            load,
            workers=f"stack, {workers} worker{'s' if workers > 1 else ''}",
            base=append_rate(database, clock),
            clock=clock,
            cpu=lambda: stack.processor_seconds() + time.process_time(),
        )
    finally:
        database.close()
