"""Room of a storage array is never promised twice, also while it is published late or by a new process."""

from typing import Any

import pytest

from tests.provisioning.host_paths import bound, give_up, on_sqlite
from tests.support.storage import Cluster, asked, in_zones, made_by, using
from volsched.cluster.port import whole
from volsched.log.database import Database
from volsched.provisioning.simulated import SIMULATED, Array, Simulated
from volsched.runtime.clock import SECOND


class Late(Array):
    """While it is late, it publishes what it did last."""

    late = False
    last: Any = ()

    def capacities(self) -> Any:
        self.last = self.last if self.late else super().capacities()
        return self.last


def capacities(cluster: Cluster) -> list[str]:
    return [it["capacity"] for it in whole(cluster.cluster.list("CSIStorageCapacity")).objects]


@pytest.mark.parametrize("restart", [False, True])
def test_room_is_never_promised_twice_between_a_volume_and_its_publication(
    database: Database, restart: bool
) -> None:
    """The second pod must not be promised what the first one's volume took."""
    array = Late()
    parts = {"provisioners": [Simulated(array)]}
    cluster = Cluster(database, [made_by(SIMULATED, capacityPerDomain="10Gi"), *in_zones("a")], **parts)
    cluster.until(lambda: capacities(cluster) == ["10Gi"])
    array.late = True
    cluster.create(asked("one", "6Gi"), using("first", "one"))
    bound(cluster, "first")
    assert (capacities(cluster), len(array.volume_names())) == (["10Gi"], 1)
    if restart:
        cluster.system.close()
        began = cluster
        cluster = Cluster(database, owner="second", **parts)
        cluster.now = began.now
    cluster.create(asked("two", "6Gi"), using("second", "two"))
    cluster.wait(20)
    assert (capacities(cluster), cluster.node_of("second"), len(array.volume_names())) == (["10Gi"], None, 1)
    assert "ProvisioningFailed" not in cluster.told()
    array.late = False
    cluster.wait(60)
    assert (capacities(cluster), cluster.node_of("second")) == (["4Gi"], None)
    cluster.create(asked("three", "4Gi"), using("third", "three"))
    bound(cluster, "third")


@on_sqlite
def test_a_driver_that_publishes_nothing_new_is_not_waited_for_for_ever(database: Database) -> None:
    array = Late()
    objects = [made_by(SIMULATED, capacityPerDomain="10Gi"), *in_zones("a")]
    cluster = Cluster(database, objects, provisioners=[Simulated(array)])
    cluster.until(lambda: capacities(cluster) == ["10Gi"])
    array.late = True
    cluster.create(asked("one", "6Gi"), using("first", "one"))
    bound(cluster, "first")
    cluster.create(asked("two", "6Gi"), using("second", "two"))
    cluster.wait(30)
    assert "ProvisioningFailed" not in cluster.told()
    for _ in range(30):
        cluster.step(after=10 * SECOND)
    assert "no room for 6Gi" in cluster.told("ProvisioningFailed")[0]


@on_sqlite
def test_what_is_published_goes_when_no_class_counts_its_room(database: Database) -> None:
    cluster = Cluster(
        database,
        [made_by(SIMULATED, capacityPerDomain="10Gi"), made_by(SIMULATED, "free"), *in_zones("ab")],
        provisioners=[Simulated()],
    )
    cluster.rest()
    assert sorted(capacities(cluster)) == ["10Gi", "10Gi", "8191Pi", "8191Pi"]
    cluster.cluster.delete("StorageClass", "made")
    cluster.rest()
    assert (capacities(cluster), whole(cluster.cluster.list("CSIDriver")).objects) == ([], ())


@on_sqlite
def test_a_new_process_knows_what_was_used_before(database: Database) -> None:
    objects = [
        made_by(SIMULATED, capacityPerDomain="10Gi"),
        *in_zones("a"),
        asked("one", "6Gi"),
        using("app", "one"),
    ]
    cluster = bound(Cluster(database, objects, provisioners=[Simulated()]))
    cluster.rest()
    again = Cluster(database, owner="second", provisioners=[Simulated()])
    again.now = cluster.now + 20 * SECOND
    again.rest()
    assert capacities(again) == ["4Gi"]
    give_up(again, "one")
    assert capacities(again) == ["10Gi"]
