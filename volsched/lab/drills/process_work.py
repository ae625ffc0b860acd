"""The stack that a process drill runs on, and its load."""

import http.client
import json
import signal
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from math import ceil
from pathlib import Path
from typing import Any

from sqlalchemy import func, select

from volsched.binding.rules.phases import LegPhase
from volsched.kube.meta import BIND_TIMEOUT_SECONDS
from volsched.lab.bench.bind import cluster, pods_with_claims
from volsched.lab.drills.process_scenario import Moment, Work
from volsched.lab.drills.timeline import Bar
from volsched.lab.faults import ON_SQLITE
from volsched.lab.stack.handle import Stack
from volsched.lab.stack.load import CONNECTIONS, LOOK_SECONDS, PATHS, Load, LoadClient
from volsched.lab.stack.local import HOST, free_port, prepare, services
from volsched.lab.stack.programs import commands_directory
from volsched.lab.stack.services import Definition, StackService, make_anchor_keys, write_definition
from volsched.lab.stack.states import WantedState, want
from volsched.log import tables
from volsched.log.database import Database
from volsched.runtime.fault_points import DRILL_FLAG, FAULT

NEVER: dict[str, Any] = {
    "apiVersion": "storage.k8s.io/v1",
    "kind": "StorageClass",
    "metadata": {"name": "never"},
    "provisioner": "nobody.example.com",
    "volumeBindingMode": "WaitForFirstConsumer",
}
SLOW_SECONDS = 3
SLOW: dict[str, Any] = {
    "apiVersion": "storage.k8s.io/v1",
    "kind": "StorageClass",
    "metadata": {"name": "slow"},
    "provisioner": "volsched.io/simulated",
    "parameters": {"latencySeconds": str(SLOW_SECONDS), "topologyKeys": "kubernetes.io/hostname"},
    "volumeBindingMode": "WaitForFirstConsumer",
}
REQUEST_SECONDS = 10.0
THIEF = {
    "apiVersion": "v1",
    "kind": "PersistentVolumeClaim",
    "namespace": "elsewhere",
    "name": "thief",
    "uid": "7e1f0000-0000-4000-8000-000000000000",
}
"""A claim that does not exist here."""


@dataclass(slots=True)
class Pods:
    client: LoadClient
    work: Work
    load: Load
    _deleted: int = 0
    _slow: int = 0
    """Pods with slow storage created so far."""
    _unsent: list[dict[str, Any]] = field(default_factory=list)
    """Objects of the next pod with slow storage that the API has not accepted yet."""
    _nodes: list[dict[str, Any]] = field(default_factory=list)
    """Nodes to be created later."""

    @classmethod
    def prepared(cls, url: str, work: Work) -> "Pods":
        """Creates the cluster, and pods that will wait; the load itself has not begun."""
        client = LoadClient(url)
        timeout = {} if work.timeout is None else {BIND_TIMEOUT_SECONDS: str(work.timeout)}
        load = Load(client, work.per_second, most=work.pods, name="pod", claims=work.claims, annotations=timeout)
        pods = cls(client, work, load)
        made = list(cluster(work.nodes, work.volumes))
        pods._nodes = [manifest for manifest in made if manifest["kind"] == "Node"]
        pods._create([*(manifest for manifest in made if manifest["kind"] != "Node"), NEVER, SLOW])
        if not work.withheld:
            pods.give_nodes()
        pods._create(list(_stuck(work.stuck)))
        return pods

    @property
    def sent(self) -> bool:
        return self.load.sent >= self.work.pods and self._slow >= self.work.slow

    @property
    def expected(self) -> int:
        """Pods that must have a node in the end."""
        return self.load.sent + self._slow

    def step(self, now: int) -> int:
        """Send the due part of the load; pods with slow storage are spread over it, one before all others."""
        if self._slow < self.work.slow and self.load.sent * self.work.slow >= self._slow * self.work.pods:
            left = self._unsent or list(_with_class(f"slow-{self._slow}", 2, "slow"))
            # Claims first: those that the API did not accept are sent again before the pod.
            claims, pod = [it for it in left if it["kind"] != "Pod"], left[-1]
            self._unsent = [*self.client.create(claims), pod] if claims else self.client.create([pod])
            self._slow += not self._unsent
            return len(left) - len(self._unsent)
        return self.load.step(now)

    def give_nodes(self) -> None:
        self._create(self._nodes)
        self._nodes = []

    def delete_stuck(self) -> bool:
        """Whether all are gone; deletions that the API did not accept are repeated."""
        while self._deleted < self.work.stuck:
            url = f"{self.client.url}{PATHS['Pod']}/stuck-{self._deleted}-0"
            try:
                urllib.request.urlopen(
                    urllib.request.Request(url, method="DELETE"), timeout=REQUEST_SECONDS
                ).close()
            except urllib.error.HTTPError as error:
                if error.code != 404:
                    return False
            except (OSError, http.client.HTTPException):
                return False
            self._deleted += 1
        return True

    def give_away(self, volume: str) -> bool:
        """Give it to a foreign claim; False: the API did not accept it, call again."""
        body = json.dumps({"spec": {"claimRef": THIEF}}).encode()
        url, form = f"{self.client.url}{PATHS['PersistentVolume']}/{volume}", "application/merge-patch+json"
        asked = urllib.request.Request(url, body, {"Content-Type": form}, method="PATCH")
        try:
            urllib.request.urlopen(asked, timeout=REQUEST_SECONDS).close()
        except (OSError, http.client.HTTPException):
            return False
        return True

    def close(self) -> None:
        self.client.close()

    def _create(self, manifests: list[dict[str, Any]]) -> None:
        for first in range(0, len(manifests), CONNECTIONS):
            left = manifests[first : first + CONNECTIONS]
            while left := self.client.create(left):
                time.sleep(LOOK_SECONDS)


def _stuck(count: int) -> Iterator[dict[str, Any]]:
    """Three claims each, of which the last is never provisioned."""
    for number in range(count):
        yield from _with_class(f"stuck-{number}", 3, "never")


def _with_class(name: str, count: int, storage_class: str) -> Iterator[dict[str, Any]]:
    """A pod with so many claims, of which the last has this class; it comes after them."""
    *claims, pod = pods_with_claims(name, 1, count)
    claims[-1]["spec"]["storageClassName"] = storage_class
    yield from (*claims, pod)


def is_slow(pod: str) -> bool:
    """Whether its storage is slow."""
    return pod.partition("/")[2].startswith("slow-")


def bound_pods(database: Database) -> int:
    pods = tables.pods
    return _count(database, select(func.count()).select_from(pods).where(pods.c.node.is_not(None)))


def unbound_pods(database: Database) -> int:
    pods = tables.pods
    return _count(database, select(func.count()).select_from(pods).where(pods.c.node.is_(None)))


def open_bindings(database: Database) -> int:
    return _count(database, select(func.count()).select_from(tables.bindings).where(tables.bindings.c.open))


def queued_effects(database: Database) -> int:
    return _count(database, select(func.count()).select_from(tables.effects))


def unwritten_volumes(database: Database) -> dict[str, str]:
    """Open binding → a volume that it has decided on, and not written yet."""
    legs, bindings = tables.binding_legs, tables.bindings
    query = (
        select(legs.c.binding, legs.c.volume)
        .join(bindings, bindings.c.id == legs.c.binding)
        .where(bindings.c.open, legs.c.state == LegPhase.ASSUMED, legs.c.volume.is_not(None))
        .order_by(legs.c.binding, legs.c.leg.desc())
    )
    with database.read() as connection:
        return {row.binding: row.volume for row in connection.execute(query)}


def partly_bound(database: Database) -> int:
    """Open bindings of which some legs are bound and others are not."""
    legs, bindings = tables.binding_legs, tables.bindings
    done = func.count().filter(legs.c.state == LegPhase.BOUND)
    query = (
        select(legs.c.binding)
        .join(bindings, bindings.c.id == legs.c.binding)
        .where(bindings.c.open)
        .group_by(legs.c.binding)
        .having(done > 0, done < func.count())
    )
    return _count(database, select(func.count()).select_from(query.subquery()))


def _count(database: Database, query: Any) -> int:
    with database.read() as connection:
        return int(connection.execute(query).scalar() or 0)


# The stack of a process drill, in a scratch directory, on PostgreSQL or on SQLite.

READY_SECONDS = 180.0
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Ctrl-C, `timeout`, a closed terminal."""
OURS = ("api", "scheduler", "controller", "worker")
"""The services that run our program; the others are servers."""
WITHOUT_SQLITE = ("postgres", "redis", "worker")


@contextmanager
def scratch_stack(
    engine: str, *, scale: Mapping[str, int], moment: Moment, durable: bool, lease: float
) -> Iterator[Stack]:
    """A running stack, with the moment armed, for as long as it is used."""
    with tempfile.TemporaryDirectory(prefix="volsched-drill-") as directory:
        # If we are root, PostgreSQL runs as another user, who must reach its data.
        Path(directory).chmod(0o711)
        place = Path(directory) / "stack"
        counts = {
            name: count for name, count in scale.items() if engine != ON_SQLITE or name not in WITHOUT_SQLITE
        }
        stack = Stack(place)
        try:
            with _uninterrupted():
                if engine == ON_SQLITE:
                    definition = _prepare_sqlite(place)
                else:
                    definition = prepare(place, api_port=free_port(), durable=durable)
                calm = tuple(_drilled(it, lease) for it in definition.services)
                armed = tuple(_armed(it, engine, moment) for it in calm)
                want(place, WantedState(counts))
                write_definition(place / "stack.json", replace(definition, services=armed))
                stack.launch()
            stack.wait_ready(seconds=READY_SECONDS)
            # Processes started from now on are not armed: a fault happens once.
            write_definition(place / "stack.json", replace(definition, services=calm))
            yield stack
        finally:
            stack.down()


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """Defers Ctrl-C: in a half-started stack it would be unknown which processes to end."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    signals: list[int] = []
    before = {
        it: signal.signal(it, lambda number, _: signals.append(number))
        for it in ENDING
        if signal.getsignal(it) is not signal.SIG_IGN
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        if signals:
            signal.raise_signal(signals[0])


def database_url(stack: Stack, engine: str) -> str:
    return _sqlite_url(stack.directory) if engine == ON_SQLITE else stack.database_url


def named(engine: str, name: str) -> list[str]:
    """The services or instances of this engine that a scenario names; empty if it has none.

    On SQLite schedulers and controllers carry effects out themselves.
    """
    service, _, number = name.partition("-")
    if service == "all":
        return ["api", "scheduler", "controller"] + (
            [] if engine == ON_SQLITE else ["worker", "redis", "postgres"]
        )
    if engine != ON_SQLITE or service not in WITHOUT_SQLITE:
        return [name]
    if service != "worker":
        return []
    return [f"scheduler-{number}"] if number else ["scheduler", "controller"]


def _prepare_sqlite(place: Path) -> Definition:
    """The same processes without servers: each of them is its own worker."""
    for name, mode in (("", 0o711), ("run", 0o711), ("logs", 0o711), ("secrets", 0o700)):
        (place / name).mkdir(mode=mode)
    make_anchor_keys(place / "secrets")
    api_port = free_port()
    of_a_stack = services(place, ports={"postgres": 0, "redis": 0}, api_port=api_port, durable=True)
    store = {"VOLSCHED_DATABASE_URL": _sqlite_url(place)}
    kept = tuple(
        replace(
            it,
            # A file has no roles to grant.
            command=("volsched", "migrate") if it.name == "migrate" else it.command,
            environment={key: value for key, value in it.environment.items() if "_URL_FILE" not in key} | store,
            after=tuple(name for name in it.after if name not in WITHOUT_SQLITE),
        )
        for it in of_a_stack
        if it.name not in WITHOUT_SQLITE
    )
    path = (str(commands_directory()),)
    return Definition(services=kept, path=path, urls={"api": f"http://{HOST}:{api_port}"})


def _sqlite_url(place: Path) -> str:
    return f"sqlite:///{place / 'store.db'}"


def _drilled(service: StackService, lease: float) -> StackService:
    return replace(service, environment={**service.environment, "VOLSCHED_LEASE_SECONDS": f"{lease:g}"})


def _armed(service: StackService, engine: str, moment: Moment) -> StackService:
    """The process stops when it reaches the point, which the drill detects."""
    held = None if moment.service is None else service_of_engine(engine, moment.service)
    if service.name != held:
        return service
    fault = {DRILL_FLAG: "1", FAULT: f"{moment.point}:stop"}
    return replace(service, environment={**service.environment, **fault})


def service_of_engine(engine: str, service: str) -> str:
    return "scheduler" if engine == ON_SQLITE and service == "worker" else service


# Pods that a fault has delayed, with or without a binding in flight: the delay that users notice.
#
# A binding counts only once it is planned. A stalled scheduler plans none, so that a stall of many pods looks like
# the recovery of a few bindings.

DELAYED_MS = 1_000.0
"""A pod is delayed if it waited for its node longer than usual by more than that."""
USUAL_SHARE = 0.9


def pod_delays(bars: Sequence[Bar], fault: float) -> list[float]:
    """By how much each pod without a node at the fault, or created later, waited longer than usual (milliseconds).

    Usual is the wait of nine of ten pods that had their node before the fault; without any, the shortest wait of
    all. Pods whose storage is slow on purpose are left out.
    """
    waits = {it.pod: (it.ended, it.ended - it.created) for it in bars if _counts(it) and it.ended is not None}
    before = sorted(wait for ended, wait in waits.values() if ended <= fault)
    after = [wait for ended, wait in waits.values() if ended > fault]
    if not after:
        return []
    usual = before[ceil(USUAL_SHARE * len(before)) - 1] if before else min(after)
    return sorted(wait - usual for wait in after if wait - usual > DELAYED_MS)


def _counts(bar: Bar) -> bool:
    return bar.committed and not is_slow(bar.pod)
