"""Four scheduler processes on one store, all after the same volumes: none is given out twice, none is left over.

Every volume serves every claim equally well, so that all of them want the same one at any time.
"""

import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sqlalchemy import func, select

from tests.support.clusters import LOCAL, Stepped, claim, node, pod, volume
from tests.support.extent import extended, extent
from tests.support.patience import HANG_SECONDS, wait_until
from volsched.binding.executor import QUEUES
from volsched.cluster.port import whole
from volsched.log import tables
from volsched.log.commands import Done
from volsched.log.database import Database
from volsched.log.integrity.verify import verify
from volsched.log.transaction import execute
from volsched.objects import door
from volsched.runtime.clock import system_clock

SCHEDULERS = 4
NODES = 20
TOGETHER = 500
# PostgreSQL runs beside the five processes on the same two cores: there with fewer, to be done in the same time.
SCALE = {"sqlite": extent(4, 20), "postgresql": extent(3, 6)}
PODS, VOLUMES = 100, 80


@contextmanager
def schedulers(url: str) -> Iterator[list["subprocess.Popen[str]"]]:
    command = [sys.executable, "-m", "tests.support.scheduler_process", url]
    started = [
        subprocess.Popen(
            [*command, str(number), str(SCHEDULERS)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for number in range(SCHEDULERS)
    ]
    try:
        for process in started:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
        yield started
    finally:
        for process in started:
            process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    pipe.close()


def create(database: Database, manifests: list[dict[str, Any]]) -> None:
    now = system_clock()
    commands = [
        door.create(it["kind"], it, door.controller("test", now), uid=f"uid-{i}").command
        for i, it in enumerate(manifests)
    ]
    for start in range(0, len(commands), TOGETHER):
        part = commands[start : start + TOGETHER]
        assert all(isinstance(outcome, Done) for outcome in execute(database, part, now=now))


def told_unschedulable(database: Database) -> int:
    attempts = tables.attempts
    waiting = select(func.count(func.distinct(attempts.c.pod))).where(attempts.c.outcome == "unschedulable")
    with database.read() as connection:
        return int(connection.execute(waiting).scalar_one())


def committed(database: Database) -> int:
    bindings = tables.bindings
    with database.read() as connection:
        return int(connection.execute(select(func.count()).where(bindings.c.state == "committed")).scalar_one())


def carry_out(stepped: Stepped, now: int) -> None:
    """The rest of the system: it does what the schedulers have planned, and plans nothing."""
    system = stepped.system
    system.controller.update(system.world.catch_up(), now)
    system.controller.step(now)
    for queue in QUEUES:
        system.executor.step(queue, now)
    system.sweep.step(now)


def finish(stepped: Stepped, processes: "list[subprocess.Popen[str]]", *, volumes: int, waiting: int) -> None:
    def done() -> tuple[int, int]:
        return committed(stepped.database), told_unschedulable(stepped.database)

    def all_done() -> bool:
        carry_out(stepped, system_clock())
        assert [process.poll() for process in processes] == [None] * SCHEDULERS, "a scheduler has ended"
        return all(there >= wanted for there, wanted in zip(done(), (volumes, waiting), strict=True))

    wait_until(all_done, look=0, progress=done, told=lambda: f"{done()} of {volumes, waiting}")


@extended
def test_four_processes_give_every_volume_to_exactly_one_claim(url: str, database: Database) -> None:
    scale = SCALE[database.engine.dialect.name]
    pods, volumes = scale * PODS, scale * VOLUMES
    nodes = [node(f"node-{i:02}") for i in range(NODES)]
    disks = [volume(f"disk-{i:04}", "5Gi", f"node-{i % NODES:02}") for i in range(volumes)]
    claims = [claim(f"data-{i:04}", "4Gi") for i in range(pods)]
    create(database, [LOCAL, *nodes, *disks, *claims, *(pod(f"db-{i:04}", f"data-{i:04}") for i in range(pods))])
    with schedulers(url) as processes:
        stepped = Stepped(database, owner="hands")
        for process in processes:
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        finish(stepped, processes, volumes=volumes, waiting=pods - volumes)
        told = [process.communicate("stop\n", timeout=HANG_SECONDS)[0].split() for process in processes]
    check(stepped, pods=pods, volumes=volumes)
    planned = [int(it[0]) for it in told]
    assert sum(planned) >= volumes
    # Which of them is faster is nobody's business; but one alone would prove nothing.
    assert sum(map(bool, planned)) > 1, f"one scheduler did it all: {planned}"


def check(stepped: Stepped, *, pods: int, volumes: int) -> None:
    database, cluster = stepped.database, stepped.cluster
    claims = whole(cluster.list("PersistentVolumeClaim")).objects
    given = Counter(it["spec"]["volumeName"] for it in claims if it["spec"].get("volumeName"))
    assert len(given) == volumes, "not all volumes were used"
    assert set(given.values()) == {1}, "a volume was given out twice"
    served = {it["metadata"]["name"]: it["spec"]["volumeName"] for it in claims if it["spec"].get("volumeName")}
    for disk in whole(cluster.list("PersistentVolume")).objects:
        assert served[disk["spec"]["claimRef"]["name"]] == disk["metadata"]["name"]
    placed = [it for it in whole(cluster.list("Pod")).objects if it["spec"].get("nodeName")]
    assert len(placed) == volumes
    assert {f"data{it['metadata']['name'].removeprefix('db')}" for it in placed} == set(served)
    waiting = [it for it in whole(cluster.list("Pod")).objects if not it["spec"].get("nodeName")]
    assert len(waiting) == pods - volumes
    for it in waiting:
        (condition,) = it["status"]["conditions"]
        assert (condition["status"], condition["reason"]) == ("False", "Unschedulable")
    legs, bindings = tables.binding_legs, tables.bindings
    kept = select(legs.c.volume, func.count()).where(legs.c.owner, legs.c.state == "bound").group_by(legs.c.volume)
    with database.read() as connection:
        assert {count for _, count in connection.execute(kept)} == {1}
        assert connection.execute(select(func.count()).where(bindings.c.open)).scalar_one() == 0
    assert verify(database).ok
