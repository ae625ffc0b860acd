"""Several schedulers on one store: whoever is second decides again, and nothing is ever booked twice."""

from collections import Counter
from typing import Any

import pytest
from sqlalchemy import select

from tests.support.clusters import LOCAL, Stepped, claim, node, pod, volume
from tests.support.two_schedulers import capacity_cluster, follow
from volsched.cluster.port import whole
from volsched.log import tables
from volsched.log.database import Database
from volsched.log.integrity.verify import verify
from volsched.runtime import fault_points

pytestmark = pytest.mark.usefixtures("disarmed")


def interleaved(first: Stepped, second: Stepped) -> None:
    """The second scheduler decides and plans after the first has decided, and before it plans."""
    once = iter([True])

    def hook(point: str) -> None:
        if point == "scheduler.decided" and next(once, False):
            follow(second)

    fault_points.arm(hook, drill=True)
    follow(first)


def test_contended_volumes_are_given_out_once_and_all_of_them(database: Database) -> None:
    volumes = [volume(f"disk-{i}", "5Gi", f"node-{i % 3}") for i in range(9)]
    first = Stepped(database, [LOCAL, *(node(f"node-{i}") for i in range(3)), *volumes], owner="one")
    second = Stepped(database, owner="two")
    first.settle()
    second.now = first.now
    for i in range(12):
        first.create(claim(f"data-{i}", "4Gi"), pod(f"pod-{i}", f"data-{i}"))
    for _ in range(60):
        first.now = second.now = first.now + 200_000
        interleaved(first, second)
        fault_points.arm(None, drill=False)
        first.step()
        second.step()
    placed = [it["spec"].get("nodeName") for it in whole(first.cluster.list("Pod")).objects]
    taken = Counter(
        it["spec"].get("volumeName") for it in whole(first.cluster.list("PersistentVolumeClaim")).objects
    )
    assert sum(1 for it in placed if it) == 9
    assert max(count for name, count in taken.items() if name) == 1
    assert {row.state for row in first.bindings()} <= {"committed", "rolled-back"}
    assert verify(database).ok


def test_the_same_capacity_is_not_promised_twice(database: Database) -> None:
    first = Stepped(database, capacity_cluster(), owner="one")
    second = Stepped(database, owner="two")
    # Each sees one of the pods only, so they touch nothing in common but the pool.
    first.system.scheduler.batch = second.system.scheduler.batch = 1
    changed = second.system.world.catch_up()
    second.system.picture.update(changed)
    second.system.scheduler.update([stream for stream in changed if stream != "pod/default/a"], second.now)
    interleaved(first, second)
    legs = tables.binding_legs
    with database.read() as connection:
        promised = [row.bytes for row in connection.execute(select(legs).where(legs.c.open))]
    assert promised == [6 << 30]
    follow(first)
    assert set(first.system.scheduler.waiting()) <= {"default/a", "default/b"}
    assert len(first.bindings()) == 1


def neighbour(name: str, host: str, *, repels: bool) -> dict[str, Any]:
    """A pod for one node, which may keep its like out of its zone."""
    made = pod(name)
    made["metadata"]["labels"] = {"app": "db"}
    made["spec"]["nodeSelector"] = {"kubernetes.io/hostname": host}
    if repels:
        term = {"labelSelector": {"matchLabels": {"app": "db"}}, "topologyKey": "zone"}
        required = {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
        made["spec"]["affinity"] = {"podAntiAffinity": required}
    return made


@pytest.mark.parametrize(("first_repels", "second_repels"), [(True, True), (True, False), (False, True)])
def test_two_nodes_of_one_zone_do_not_get_pods_that_repel_each_other(
    sqlite: Database, first_repels: bool, second_repels: bool
) -> None:
    """They touch no object in common, and not even the same node."""
    objects = [node("node-0", zone="a"), node("node-1", zone="a")]
    objects += [neighbour("a", "node-0", repels=first_repels), neighbour("b", "node-1", repels=second_repels)]
    first = Stepped(sqlite, objects, owner="one")
    second = Stepped(sqlite, owner="two")
    for stepped, other in ((first, "pod/default/b"), (second, "pod/default/a")):
        changed = stepped.system.world.catch_up()
        stepped.system.picture.update(changed)
        stepped.system.scheduler.update([stream for stream in changed if stream != other], stepped.now)
    interleaved(first, second)
    assert [(row.pod, row.node) for row in first.bindings()] == [("default/b", "node-1")]
