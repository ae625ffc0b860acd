"""The stage of the demo: its objects, a store, the processes on it, and what can be observed."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from volsched.kube.manifest_reader import load_manifests
from volsched.kube.meta import ZONE
from volsched.kube.storage import NO_PROVISIONER
from volsched.lab import manifests
from volsched.log.database import Database
from volsched.log.events.fold import BindingState
from volsched.log.reads.as_of import view_at_head
from volsched.log.reads.tail import read_head
from volsched.log.reads.views import Now
from volsched.objects.submission import Submitter, Verb
from volsched.provisioning.simulated import SIMULATED, Simulated
from volsched.questions.get.documents import as_manifest
from volsched.runtime.clock import SECOND, system_clock
from volsched.runtime.fault_points import DRILL_FLAG, FAULT
from volsched.runtime.runner import run_until_idle
from volsched.runtime.system import System, embedded

# The objects of the demo: a small cluster with local disks and zonal storage, and pods that want some of it.

Manifest = dict[str, Any]
SHOP = "shop"
LATENCY_SECONDS = "0.2"
"""The provisioner's latency for a volume."""


def demo_class(name: str, provisioner: str = NO_PROVISIONER, **parameters: str) -> Manifest:
    return manifests.storage_class(name, provisioner, parameters=parameters)


def disk(name: str, size: str, host: str, class_name: str = "local", **labels: str) -> Manifest:
    return manifests.local_volume(name, size, host, class_name, directory="/mnt", labels=labels)


def pod(name: str, claims: dict[str, tuple[str, str]], **wanted: dict[str, str]) -> list[Manifest]:
    """A pod after its claims, each of a size and a class; `wanted` are labels that a claim's volume must have."""
    manifests_of_claims = [
        manifests.claim(
            f"{claim}-{name}",
            size,
            class_name,
            namespace=SHOP,
            **({"selector": {"matchLabels": wanted[claim]}} if claim in wanted else {}),
        )
        for claim, (size, class_name) in claims.items()
    ]
    return [
        *manifests_of_claims,
        manifests.pod(name, {claim: f"{claim}-{name}" for claim in claims}, namespace=SHOP),
    ]


CLUSTER = [
    demo_class("local"),
    demo_class("zonal", SIMULATED, capacityPerDomain="500Gi", latencySeconds=LATENCY_SECONDS),
    manifests.node("node-a1", **{ZONE: "a"}),
    manifests.node("node-a2", **{ZONE: "a"}),
    manifests.node("node-b1", **{ZONE: "b"}),
    disk("ssd-a1", "50Gi", "node-a1", tier="ssd"),
    disk("hdd-a1", "200Gi", "node-a1", tier="hdd"),
    disk("ssd-a2-0", "30Gi", "node-a2", tier="ssd"),
    disk("ssd-a2-1", "30Gi", "node-a2", tier="ssd"),
    disk("ssd-b1", "50Gi", "node-b1", tier="ssd"),
    disk("hdd-b1", "60Gi", "node-b1", tier="hdd"),
]
DATABASE = pod(
    "db-0",
    {"journal": ("20Gi", "local"), "data": ("150Gi", "local"), "backup": ("300Gi", "zonal")},
    journal={"tier": "ssd"},
)
CONTENDER = pod("analytics-0", {"model": ("150Gi", "local"), "scratch": ("300Gi", "zonal")})
"""The database has the only disk of that size by then, and most of the room in zone a."""
LEDGER = pod("ledger-0", {"log": ("25Gi", "local"), "book": ("25Gi", "local")})
RACK = [
    demo_class("rack"),
    manifests.node("node-0", **{ZONE: "c"}),
    manifests.node("node-1", **{ZONE: "c"}),
    disk("n1-small", "3Gi", "node-1", "rack"),
    disk("n1-large", "7Gi", "node-1", "rack"),
    disk("n0-small", "4Gi", "node-0", "rack"),
    disk("n0-large", "8Gi", "node-0", "rack"),
]
"""Node 1 fits closest, so it is chosen first."""
QUEUE = pod("queue-0", {"small": ("2Gi", "rack"), "large": ("6Gi", "rack")})


# A scene yields lines and tables, and checks its own outcome: its text comes from the store.

SHORT_ID = 12
PATIENCE_SECONDS = 120.0
"""Limit of one scene, far more than it needs; then the demo fails."""


class SceneError(Exception):
    """A scene did not reach its outcome."""


@dataclass(frozen=True, slots=True)
class Rows:
    """A table."""

    headers: Sequence[str]
    rows: Sequence[Sequence[str]]


StageLine = str | Rows


@dataclass(frozen=True, slots=True)
class DemoScene:
    title: str
    play: Callable[["Stage"], Iterator[StageLine]]


@dataclass(frozen=True, slots=True)
class Stage:
    url: str
    database: Database

    def apply(self, manifests: Sequence[Manifest], *, actor: str = "demo", reason: str | None = None) -> None:
        """Apply manifests as `volsched apply` does."""
        text = "\n".join(map(json.dumps, manifests)).encode()
        giver = Submitter(database=self.database, clock=system_clock, actor=actor, reason=reason)
        for _, outcome in giver.submit(load_manifests(text, source="demo"), Verb.APPLY):
            if isinstance(outcome, Exception):
                raise SceneError(f"an object was refused: {outcome}")

    @contextmanager
    def system(self) -> Iterator[System]:
        """All components that work on the store, as in a process that has just started.

        User settings are ignored: the story must not depend on them.
        """
        system = embedded(
            self.database,
            owner=new_id(),
            clock=system_clock,
            new_id=new_id,
            provisioners=(Simulated(),),
        )
        try:
            yield system
        finally:
            system.close()

    def settle(self, system: System) -> float:
        """Let it work until no work is left; returns the seconds."""
        begun = system_clock()
        check(
            run_until_idle(system, clock=system_clock, timeout=PATIENCE_SECONDS),
            f"something still moves after {PATIENCE_SECONDS:g} s",
        )
        return (system_clock() - begun) / SECOND

    def run(self) -> float:
        with self.system() as system:
            return self.settle(system)

    def run_worker(self, *, fault: str) -> int:
        """A worker in its own process, with a fault armed; returns its exit code, negative for a signal."""
        command = [sys.executable, "-m", "volsched.lab.demo.worker", self.url]
        environment = {**os.environ, DRILL_FLAG: "1", FAULT: fault}
        try:
            return subprocess.run(command, env=environment, timeout=PATIENCE_SECONDS, check=False).returncode
        except subprocess.TimeoutExpired:
            raise SceneError(f"the worker was still alive after {PATIENCE_SECONDS:g} s") from None

    # --- what is there ------------------------------------------------------------------------------------

    @property
    def position(self) -> int:
        with self.database.read() as connection:
            return read_head(connection).position

    def objects(self, noun: str) -> Iterable[Manifest]:
        with self._present() as view:
            return [as_manifest(noun, key, state) for key, state in view.every(noun)]

    def get(self, noun: str, key: str) -> Manifest:
        with self._present() as view:
            manifest = view.one(noun, key)
        if manifest is None:
            raise SceneError(f'there is no {noun} "{key}"')
        return as_manifest(noun, key, manifest)

    def node_of(self, pod: str) -> str | None:
        node: str | None = self.get("pod", pod)["spec"].get("nodeName")
        return node

    def bindings_of(self, pod: str) -> list[tuple[str, BindingState]]:
        """The bindings of a pod, the oldest first."""
        with self._present() as view:
            return view.bindings_of("pod", pod)

    def last_binding(self, pod: str, *, of: int = 1) -> tuple[str, BindingState]:
        """The pod's newest binding; `of` is the expected number of bindings so far."""
        bindings = self.bindings_of(pod)
        check(len(bindings) == of, f"pod {pod} has had {len(bindings)} bindings, not {of}")
        return bindings[-1]

    @contextmanager
    def _present(self) -> Iterator[Now]:
        with self.database.read() as connection:
            yield view_at_head(connection)


def check(holds: bool, otherwise: str) -> None:
    """The scene continues only if the condition holds."""
    if not holds:
        raise SceneError(otherwise)


def new_id() -> str:
    return uuid4().hex[:SHORT_ID]
