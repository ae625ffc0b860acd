"""Own mode as a stack: `serve scheduler --cluster own` decides, Celery workers write into a strict API server."""

import shutil
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select

from tests.conftest import unsynced
from tests.stack.processes import Redis, scheduler, worker
from tests.support.attached_cluster import NETWORK, kubeconfig_for, ours
from tests.support.clusters import LOCAL, claim, node, volume
from tests.support.extent import extended, extent
from tests.support.patience import HANG_SECONDS, wait_until
from tests.support.serving import Served, served
from volsched.kube.meta import SELECTED_NODE
from volsched.lab.storage_players import ProvisionerPlayer, PvController
from volsched.log import tables
from volsched.log.database import Database, open_database
from volsched.log.integrity.verify import verify

pytestmark = [pytest.mark.parametrize("url", ["postgres"], indirect=True), extended]
PODS = 6


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
def cluster(tmp_path: Path, migrated_file: Path) -> Iterator[PlayedCluster]:
    theirs = open_database(f"sqlite:///{shutil.copyfile(migrated_file, tmp_path / 'theirs.db')}")
    unsynced(theirs)
    with served(theirs, strict=True) as running:
        running.namespace("kube-system")
        running.create(LOCAL, NETWORK, node("n1"), claim("huge", "50Gi"), claim("scratch", "1Gi", "network"))
        for number in range(PODS):
            running.create(volume(f"pv-{number}", "1Gi", "n1"), claim(f"data-{number}", "1Gi"))
        yield PlayedCluster(running, kubeconfig_for(running.url, tmp_path / "kubeconfig"))
    theirs.close()


def recorders(database: Database) -> Counter[str]:
    """Who wrote the events of bindings: scheduler, worker or sweep."""
    asked = select(tables.events.c.actor).where(tables.events.c.stream.like("binding/%"))
    with database.read() as connection:
        return Counter(actor.partition("/")[0] for actor in connection.execute(asked).scalars())


def test_a_scheduler_and_celery_workers_place_the_pods_of_a_cluster(
    database: Database, url: str, broker: Redis, cluster: PlayedCluster
) -> None:
    """The extended version kills a worker that has sent writes and recorded none of them."""
    acts = {"ATTACHED_MODE": "own", "CLUSTER_KUBECONFIG": str(cluster.config)}
    cluster.controller.offer()
    create = cluster.served.create
    with scheduler(url, broker, "--cluster", "own", "--kubeconfig", str(cluster.config)) as decides:
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
        decides.process.terminate()
        assert decides.process.wait(HANG_SECONDS) == 0
    claims = cluster.objects("persistentvolumeclaims")
    assert len({claims[f"data-{it}"]["spec"]["volumeName"] for it in range(PODS)}) == PODS
    (condition,) = cluster.objects("pods")["stuck"]["status"]["conditions"]
    assert (condition["type"], condition["reason"]) == ("PodScheduled", "Unschedulable")
    recorded = recorders(database)
    assert recorded["worker"] > 0
    assert recorded["scheduler"] >= PODS
    assert verify(database).ok
