"""The stack end to end: this process decides and reconciles, real workers carry it out."""

import itertools

import pytest

from tests.stack.processes import Redis, worker
from tests.stack.work import bound_pods, create, leg_moves, phases, queued
from tests.support.clusters import LOCAL, claim, node, pod, volume
from tests.support.patience import wait_until
from volsched.binding.wakeup import RedisBell
from volsched.log.database import Database
from volsched.log.integrity.verify import verify
from volsched.runtime.clock import system_clock
from volsched.runtime.system import embedded

pytestmark = pytest.mark.parametrize("url", ["postgres"], indirect=True)
HOSTS = 4


def cluster(pods: int) -> list[dict[str, object]]:
    """Half of the pods with one claim and half with three.

    Ties may leave two volumes on a node where a pod would need three: so many are there besides.
    """
    objects = [LOCAL, *(node(f"node-{number}") for number in range(HOSTS))]
    objects += [volume(f"spare-{host}-{leg}", "1Gi", f"node-{host}") for host in range(HOSTS) for leg in range(2)]
    for number in range(pods):
        names = [f"{number}-{leg}" for leg in range(1 + 2 * (number % 2))]
        objects += [volume(f"pv-{name}", "1Gi", f"node-{number // 2 % HOSTS}") for name in names]
        objects += [claim(f"c-{name}", "1Gi") for name in names]
        objects.append(pod(f"p-{number}", *(f"c-{name}" for name in names)))
    return objects


def test_200_pods_with_one_and_three_claims_end_bound(database: Database, url: str, broker: Redis) -> None:
    bell = RedisBell(broker.url, database, system_clock)
    ids = itertools.count()
    system = embedded(database, owner="test", clock=system_clock, new_id=lambda: f"b-{next(ids)}", bell=bell)
    create(database, cluster(200))

    def all_bound() -> bool:
        system.step(system_clock())
        return bound_pods(database) == 200

    with worker(url, broker) as one:
        wait_until(one.ready)
        wait_until(all_bound, progress=lambda: bound_pods(database), told=lambda: phases(database))
        wait_until(lambda: queued(database) == 0)
    assert phases(database)["committed"] == 200
    assert set(leg_moves(database, "bound").values()) == {1}
    assert verify(database).ok
    bell.close()
