"""Own mode as a stack: `serve scheduler --cluster own` decides, Celery workers write into a strict API server."""

import signal
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
import pytest
from sqlalchemy import select

from tests.stack.processes import Redis, scheduler, worker
from tests.stack.work import head
from tests.support.attached_cluster import NETWORK, kubeconfig_for, ours, permissions_of, used_permissions
from tests.support.clusters import LOCAL, claim, node, volume
from tests.support.extent import FULL, extended, extent
from tests.support.patience import HANG_SECONDS, wait_until
from tests.support.serving import Served, strict_cluster
from volsched.cluster.permissions import OWN
from volsched.kube.meta import SELECTED_NODE
from volsched.lab.drills.cluster_oracle import at_rest
from volsched.lab.drills.foreign_cluster import ForeignCluster
from volsched.lab.storage_players import ProvisionerPlayer, PvController
from volsched.log import tables
from volsched.log.database import Database
from volsched.log.integrity.verify import verify
from volsched.runtime.fault_points import POINTS

on_postgres = pytest.mark.parametrize("url", ["postgres"], indirect=True)
PODS = 6
WORKER_POINTS = (
    "recovery.begun",
    "recovery.done",
    "executor.claimed",
    "executor.calling",
    "executor.calling*3",
    "executor.called",
    "executor.called*3",
    "executor.recorded",
    "commit.before*3",
    "commit.after*3",
)
SCHEDULER_POINTS = ("scheduler.decided", "scheduler.planned", "commit.before*3", "commit.after*3")
"""With workers it carries nothing out."""
NOT_OF_WORKERS = {
    "commit.drafted",
    "scheduler.decided",
    "scheduler.planned",
    "controller.decided",
    "controller.written",
    "sweep.found",
}
"""Of other processes; and the sweep finds only what nothing else has moved."""


@dataclass
class PlayedCluster:
    """A strict API server; the test plays the controllers that a real cluster has."""

    served: Served
    config: Path
    asked: bool = False
    """The provisioner has made its volume."""
    controller: PvController = field(init=False)

    def __post_init__(self) -> None:
        self.controller = PvController(self.served.http)

    def objects(self, plural: str) -> dict[str, dict[str, Any]]:
        found = self.served.http.get(f"/api/v1/namespaces/default/{plural}").json()["items"]
        return {it["metadata"]["name"]: it for it in found}

    def placed(self) -> int:
        return sum("nodeName" in it["spec"] for it in self.objects("pods").values())

    def play(self) -> int:
        """What is given to claims is bound, what is asked for is made; answers how many pods have a node."""
        marks = self.objects("persistentvolumeclaims")["scratch"]["metadata"].get("annotations") or {}
        if SELECTED_NODE in marks and not self.asked:
            self.controller.order("scratch")
            ProvisionerPlayer(self.served.http).provision("scratch")
            self.asked = True
        self.controller.bind()
        return self.placed()


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[PlayedCluster]:
    with strict_cluster() as running:
        running.namespace("kube-system")
        running.create(LOCAL, NETWORK, node("n1"), claim("huge", "50Gi"), claim("scratch", "1Gi", "network"))
        for number in range(PODS):
            running.create(volume(f"pv-{number}", "1Gi", "n1"), claim(f"data-{number}", "1Gi"))
        yield PlayedCluster(running, kubeconfig_for(running.url, tmp_path / "kubeconfig"))


def recorders(database: Database) -> Counter[str]:
    """Who wrote the events of bindings: scheduler, worker or sweep."""
    asked = select(tables.events.c.actor).where(tables.events.c.stream.like("binding/%"))
    with database.read() as connection:
        return Counter(actor.partition("/")[0] for actor in connection.execute(asked).scalars())


@extended
@on_postgres
def test_two_schedulers_and_celery_workers_place_the_pods_of_a_cluster(
    database: Database, url: str, broker: Redis, cluster: PlayedCluster
) -> None:
    """The extended version kills a worker that has sent writes and recorded none of them.

    Both schedulers follow the cluster and hold its lock; what one of them has planned, the other leaves alone.
    """
    acts = {"ATTACHED_MODE": "own", "CLUSTER_KUBECONFIG": str(cluster.config)}
    cluster.controller.offer()
    create = cluster.served.create
    words = ("--cluster", "own", "--kubeconfig", str(cluster.config))
    with scheduler(url, broker, *words) as decides, scheduler(url, broker, *words) as decides_too:
        create(*(ours(f"db-{it}", f"data-{it}") for it in range(PODS - 1)))
        for number in range(extent(0, 1)):
            with worker(
                url, broker, name=f"victim-{number}", DRILL="1", FAULT="executor.called:stop", **acts
            ) as victim:
                wait_until(lambda: victim.stopped)
                victim.kill()
        with worker(url, broker, name="heir", **acts) as heir:
            create(ours(f"db-{PODS - 1}", f"data-{PODS - 1}", "scratch"), ours("stuck", "huge"))
            wait_until(lambda: cluster.play() == PODS, progress=cluster.placed)
            wait_until(lambda: cluster.objects("pods")["stuck"].get("status", {}).get("conditions"))
            assert heir.end() == 0
        for it in (decides, decides_too):
            it.process.terminate()
            assert it.process.wait(HANG_SECONDS) == 0
    claims = cluster.objects("persistentvolumeclaims")
    assert len({claims[f"data-{it}"]["spec"]["volumeName"] for it in range(PODS)}) == PODS
    (condition,) = cluster.objects("pods")["stuck"]["status"]["conditions"]
    assert (condition["type"], condition["reason"]) == ("PodScheduled", "Unschedulable")
    recorded = recorders(database)
    assert recorded["worker"] > 0
    assert recorded["scheduler"] >= PODS
    assert verify(database).ok


def bring_to_rest(foreign: ForeignCluster) -> None:
    wait_until(
        lambda: not foreign.step().waiting() and not foreign.snapshot().half_bound(),
        progress=lambda: len(foreign.snapshot().waiting()),
    )


def test_the_points_at_which_workers_are_killed_are_all_that_they_come_to() -> None:
    assert POINTS.keys() - {it.partition("*")[0] for it in WORKER_POINTS} == NOT_OF_WORKERS


@extended
@on_postgres
@pytest.mark.skipif(not FULL, reason="a Celery worker is started for every fault point; make drills runs it")
def test_workers_killed_at_every_point_leave_a_cluster_without_harm(
    database: Database,
    url: str,
    broker: Redis,
    tmp_path: Path,
) -> None:
    """Each dies at the point, and another inherits its work. The cluster alone is asked.

    Each has one process: another would go on while the first one waits at its point, and might leave no work to
    inherit.
    """
    with strict_cluster() as running, httpx2.Client(base_url=running.url, timeout=HANG_SECONDS) as http:
        running.namespace("kube-system")
        foreign = ForeignCluster(http, nodes=2)
        foreign.begin()
        config = str(kubeconfig_for(running.url, tmp_path / "kubeconfig"))
        acts = {"ATTACHED_MODE": "own", "CLUSTER_KUBECONFIG": config}
        with scheduler(url, broker, "--cluster", "own", "--kubeconfig", config):
            for number, point in enumerate(WORKER_POINTS):
                # A worker recovers at its first sweep, and that may be late: nothing is finished before it.
                foreign.controls = not point.startswith("recovery.")
                pods = foreign.bring_pods(f"s{number}", [1, 2])
                armed = {"DRILL": "1", "FAULT": f"{point}:stop"}
                with worker(url, broker, name=f"victim-{number}", processes=1, **armed, **acts) as victim:
                    wait_until(lambda: foreign.step() and victim.stopped, progress=lambda: head(database))
                    assert set(pods) & set(foreign.snapshot().waiting()), point
                    victim.kill()
            with worker(url, broker, name="heir", **acts):
                bring_to_rest(foreign)
        assert at_rest(foreign.snapshot(), foreign.history, foreign.events()) == []
        assert used_permissions(running, OWN) <= permissions_of(OWN)
    assert verify(database).ok


@extended
@on_postgres
@pytest.mark.skipif(not FULL, reason="a scheduler is started for every fault point; make drills runs it")
def test_schedulers_killed_at_every_point_leave_a_cluster_without_harm(
    database: Database,
    url: str,
    broker: Redis,
    tmp_path: Path,
) -> None:
    """Workers go on with what each has planned; the PV controller stands still, so that no pod has its node then.

    The cluster alone is asked.
    """
    with strict_cluster() as running, httpx2.Client(base_url=running.url, timeout=HANG_SECONDS) as http:
        running.namespace("kube-system")
        foreign = ForeignCluster(http, nodes=2)
        foreign.begin()
        config = str(kubeconfig_for(running.url, tmp_path / "kubeconfig"))
        words = ("--cluster", "own", "--kubeconfig", config)
        with worker(url, broker, ATTACHED_MODE="own", CLUSTER_KUBECONFIG=config):
            foreign.controls = False
            for number, point in enumerate(SCHEDULER_POINTS):
                pods = foreign.bring_pods(f"s{number}", [1, 2])
                armed = {"DRILL": "1", "FAULT": f"{point}:kill"}
                with scheduler(url, broker, *words, name=f"victim-{number}", **armed) as victim:
                    wait_until(lambda: victim.process.poll() is not None, progress=lambda: head(database))
                    assert victim.process.returncode == -signal.SIGKILL, victim.log.read_text()
                assert set(pods) <= set(foreign.snapshot().waiting()), point
            foreign.controls = True
            with scheduler(url, broker, *words, name="heir"):
                bring_to_rest(foreign)
        assert at_rest(foreign.snapshot(), foreign.history, foreign.events()) == []
        assert used_permissions(running, OWN) <= permissions_of(OWN)
    assert verify(database).ok
