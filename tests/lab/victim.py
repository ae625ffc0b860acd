"""A process that is killed at a fault point, and the work it is killed at.

It runs the whole system on the store until the fault that it was armed with ends it. Time is stepped: it starts
where the log ends, and where nothing can be done now it moves on to what is due next.
"""

import itertools
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from tests.stack.work import create
from tests.support.clusters import LOCAL, claim, node, pod, volume
from volsched.cluster.port import Cluster
from volsched.kube.meta import BIND_TIMEOUT_SECONDS
from volsched.lab.manifests import storage_class
from volsched.log.database import Database, open_database
from volsched.log.reads.tail import read_head
from volsched.runtime.clock import MILLISECOND, SECOND
from volsched.runtime.fault_points import FAULT, arm_from
from volsched.runtime.system import System, embedded

START = 1_800_000_000_000_000
MOST_STEPS = 4_000
PODS = 3
CLAIMS = 3
MADE = storage_class("made", "nobody.example.com")
"""Of a provisioner that never answers."""


class Calls:
    """The store's own objects, behind a port that hides it from the executor: it calls, and then records."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.capabilities = replace(cluster.capabilities, is_own_log=False)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cluster, name)


class Run:
    """One life of the system on a store."""

    def __init__(self, database: Database, name: str, *, calls: bool = False, stepwise: bool = True) -> None:
        self.database = database
        with database.read() as connection:
            self.now = max(START, read_head(connection).at)
        ids = itertools.count(1)
        self.system: System = embedded(
            database,
            owner=name,
            clock=lambda: self.now,
            new_id=lambda: f"{name}-{next(ids):04}",
            stepwise=stepwise,
        )
        # Small batches: many commits, and so many places to be killed at.
        self.system.scheduler.batch = 1
        executor = replace(self.system.executor, batch=2)
        self.system.executor = replace(executor, cluster=Calls(executor.cluster)) if calls else executor

    def until(self, finished: Callable[[], bool]) -> bool:
        """False if it has not come to it after very many steps."""
        for _ in range(MOST_STEPS):
            if self.system.step(self.now):
                self.now += MILLISECOND
                continue
            if finished():
                return True
            due = self.system.next_due()
            self.now = max(self.now + SECOND // 10, min(due or self.now, self.now + SECOND))
        return False


def create_classes(database: Database) -> None:
    create(database, [LOCAL, MADE])


def create_pods(database: Database, name: str) -> None:
    """Pods that fit, and one of which a claim is never provisioned, so that its binding is undone."""
    objects = [node(f"{name}-node-{number}") for number in range(2)]
    for number in range(PODS):
        claims = [f"{name}-{number}-{leg}" for leg in range(CLAIMS)]
        objects += [volume(f"pv-{it}", "5Gi", f"{name}-node-{number % 2}") for it in claims]
        objects += [*(claim(it, "4Gi") for it in claims), pod(f"{name}-{number}", *claims)]
    doomed = [f"{name}-doomed-{leg}" for leg in range(CLAIMS)]
    objects += [volume(f"pv-{it}", "9Gi", f"{name}-node-0") for it in doomed[1:]]
    objects += [claim(doomed[0], "8Gi", "made"), *(claim(it, "8Gi") for it in doomed[1:])]
    objects.append(pod(f"{name}-doomed", *doomed, annotations={BIND_TIMEOUT_SECONDS: "1"}))
    create(database, objects)


def be_killed(url: str, name: str, fault: Mapping[str, str], calls: bool, stepwise: bool) -> None:
    """The life of the process: `fault` ends it, told as an environment tells it."""
    arm_from(fault)
    database = open_database(url)
    # Alone on its store, it would decide under the lock.
    database.others.drafts = "commit.drafted" in fault[FAULT] or None
    Run(database, name, calls=calls, stepwise=stepwise).until(lambda: False)
