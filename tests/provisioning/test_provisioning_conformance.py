"""The same stories with a provisioner of our own and with one in another process: both keep the same contract."""

from pathlib import Path
from typing import Any

import pytest

from tests.support.storage import CLAIM, VOLUME, Cluster, Kit, asked, using
from volsched.kube.meta import SELECTED_NODE
from volsched.log.database import Database
from volsched.log.integrity.verify import verify
from volsched.log.reads.tail import read_head
from volsched.log.retention.archive import archive
from volsched.provisioning.protocol import CreateVolume
from volsched.provisioning.rules import Created, DriverRefusal
from volsched.provisioning.simulated import Array
from volsched.runtime.clock import SECOND

pytestmark = pytest.mark.parametrize("url", ["sqlite"], indirect=True)


@pytest.fixture(params=["internal", "external"])
def kit(request: pytest.FixtureRequest) -> Kit:
    return Kit(Array(), external=request.param == "external")


def failing(kit: Kit, *mishaps: str) -> None:
    """The first calls for every volume go wrong like this, and then none."""
    kit.array.mishap = lambda _, before: mishaps[before] if before < len(mishaps) else ""


def placed(cluster: Cluster, name: str = "app") -> Any:
    cluster.until(lambda: cluster.node_of(name) is not None, steps=1_500)
    assert verify(cluster.database).ok
    return cluster.node_of(name)


def nothing_is_left(cluster: Cluster, kit: Kit) -> None:
    cluster.rest()
    assert cluster.volumes() == {}
    assert list(kit.array.volume_names()) == []


def test_a_volume_is_made_where_the_pod_will_run_and_goes_with_its_claim(database: Database, kit: Kit) -> None:
    cluster = kit.cluster(database, kit.made(), asked(), using())
    assert placed(cluster) == f"n-{cluster.zones()[0]}"
    assert cluster.volume()["spec"]["capacity"] == {"storage": "5Gi"}
    assert "ProvisioningSucceeded" in cluster.told()
    cluster.delete("Pod", "app")
    cluster.delete(CLAIM, "data")
    nothing_is_left(cluster, kit)


@pytest.mark.parametrize("mode", ["WaitForFirstConsumer", "Immediate"])
@pytest.mark.parametrize("wanted", ["gold", ""])
def test_the_claims_attributes_class_is_passed_on(database: Database, kit: Kit, mode: str, wanted: str) -> None:
    claim = asked(volumeAttributesClassName=wanted)
    cluster = kit.cluster(database, kit.made(mode=mode), claim, using())
    placed(cluster)
    assert cluster.volume()["spec"].get("volumeAttributesClassName", "") == wanted
    assert cluster.claim()["status"].get("currentVolumeAttributesClassName", "") == wanted


def test_an_immediate_claim_needs_no_pod_and_replicas_are_spread(database: Database, kit: Kit) -> None:
    claims = [asked(f"data-web-{index}") for index in range(3)]
    cluster = kit.cluster(database, kit.made(mode="Immediate"), *claims, zones="abc")
    cluster.rest()
    assert [cluster.zones(f"data-web-{index}") for index in range(3)] == [["a"], ["b"], ["c"]]


def test_several_domains_hold_the_pods_and_only_allowed_ones(database: Database, kit: Kit) -> None:
    allowed = [{"matchLabelExpressions": [{"key": "topology.kubernetes.io/zone", "values": ["a", "c"]}]}]
    cluster = kit.cluster(
        database, kit.made(replicas="2", allowedTopologies=allowed), asked(), using(), zones="abc"
    )
    on = placed(cluster)
    assert set(cluster.zones()) == {"a", "c"}
    assert on == f"n-{cluster.zones()[0]}"


def test_a_combination_that_cannot_be_served_is_refused(database: Database, kit: Kit) -> None:
    cluster = kit.cluster(database, kit.made(replicas="2"), asked(), using(), zones="a")
    cluster.wait(5)
    assert "replicas: 2 need as many domains" in cluster.told("ProvisioningFailed")[0]
    assert list(kit.array.volume_names()) == []


def test_room_is_published_and_a_full_domain_is_left_alone(database: Database, kit: Kit) -> None:
    names = ("one", "two", "three")
    claims, pods = [asked(it, "6Gi") for it in names], [using(f"pod-{it}", it) for it in names]
    cluster = kit.cluster(database, kit.made(capacityPerDomain="10Gi"))
    cluster.rest()
    cluster.create(*claims, *pods)
    cluster.rest()
    assert sorted(cluster.zones(it)[0] for it in names if cluster.volume_of(it)) == ["a", "b"]
    assert "ProvisioningFailed" not in cluster.told()
    (last,) = (it for it in names if cluster.volume_of(it) is None)
    for name in names:
        if name != last:
            cluster.delete("Pod", f"pod-{name}")
            cluster.delete(CLAIM, name)
    placed(cluster, f"pod-{last}")


def test_the_choice_of_a_node_is_given_back_when_there_is_no_room(database: Database, kit: Kit) -> None:
    failing(kit, "exhausted")
    cluster = kit.cluster(database, kit.made(), asked(), using())
    cluster.until(lambda: "ProvisioningFailed" in cluster.told())
    assert "no room for 5Gi" in cluster.told("ProvisioningFailed")[0]
    placed(cluster)
    assert [row.state for row in cluster.bindings()] == ["rolled-back", "committed"]


def test_an_answer_that_never_comes_is_awaited_on_the_same_node(database: Database, kit: Kit) -> None:
    failing(kit, "hang")
    cluster = kit.cluster(database, kit.made(), asked(), using())
    for _ in range(20):
        cluster.step(after=10 * SECOND)
    assert SELECTED_NODE in cluster.notes()
    assert (len(kit.array.volume_names()), cluster.volumes()) == (1, {})
    assert "ProvisioningFailed" in cluster.told()
    (name,) = kit.array.volume_names()
    kit.array.finish(name)
    assert placed(cluster) is not None
    assert list(cluster.volumes()) == list(kit.array.volume_names()) == [name]


def test_one_that_raises_may_have_made_it_and_is_asked_again(database: Database, kit: Kit) -> None:
    failing(kit, "raise", "raise")
    cluster = kit.cluster(database, kit.made(), asked(), using())
    cluster.until(lambda: "ProvisioningFailed" in cluster.told())
    assert SELECTED_NODE in cluster.notes()
    placed(cluster)
    assert [row.state for row in cluster.bindings()] == ["committed"]


def test_a_volume_that_is_too_small_is_deleted_and_made_again(database: Database, kit: Kit) -> None:
    failing(kit, "too-small")
    cluster = kit.cluster(database, kit.made(), asked(), using())
    placed(cluster)
    assert cluster.volume()["spec"]["capacity"] == {"storage": "5Gi"}
    assert len(kit.array.volume_names()) == 1
    assert any("were asked for" in it for it in cluster.told("ProvisioningFailed"))


def test_a_volume_in_the_wrong_domain_takes_its_pod_there(database: Database, kit: Kit) -> None:
    kit.array.mishap = lambda _, __: "wrong-domain"
    cluster = kit.cluster(database, kit.made(policy="Retain"), asked(), using())
    on = placed(cluster)
    assert on == f"n-{cluster.zones()[0]}"
    states = [(row.state, row.node == on) for row in cluster.bindings()]
    assert states == [("rolled-back", False), ("committed", True)]


def test_an_answer_after_the_time_is_up_is_taken_up_by_the_next_plan(database: Database, kit: Kit) -> None:
    cluster = kit.cluster(database, kit.made(latencySeconds="20"), asked(), using(seconds=5))
    cluster.wait(10)
    first = cluster.bindings()[0]
    assert (first.state, [leg.state for leg in cluster.legs(first.id)]) == ("rolled-back", ["retained"])
    assert SELECTED_NODE in cluster.notes()
    assert placed(cluster) == first.node
    assert list(cluster.volumes()) == list(kit.array.volume_names())


def test_a_claim_that_goes_while_its_volume_is_made_leaves_nothing(database: Database, kit: Kit) -> None:
    cluster = kit.cluster(database, kit.made(latencySeconds="20"), asked(), using())
    cluster.until(lambda: len(kit.array.volume_names()) == 1)
    cluster.delete("Pod", "app")
    cluster.delete(CLAIM, "data")
    cluster.wait(5)
    assert len(kit.array.volume_names()) == 1
    cluster.wait(20)
    nothing_is_left(cluster, kit)


def left_behind(database: Database, kit: Kit) -> Cluster:
    """The driver hangs over a volume, and its claim has been gone for minutes."""
    failing(kit, "hang")
    cluster = kit.cluster(database, kit.made(), asked(), using())
    cluster.until(lambda: len(kit.array.volume_names()) == 1)
    cluster.delete("Pod", "app")
    cluster.delete(CLAIM, "data")
    pass_time(cluster, 20)
    assert (cluster.claim(), len(kit.array.volume_names())) == (None, 1)
    return cluster


def finish_late(cluster: Cluster, kit: Kit) -> None:
    kit.array.finish(next(iter(kit.array.volume_names())))
    pass_time(cluster, 80)


def pass_time(cluster: Cluster, steps: int) -> None:
    for _ in range(steps):
        cluster.step(after=10 * SECOND)


def test_a_volume_that_is_made_long_after_its_claim_is_gone_is_deleted(database: Database, kit: Kit) -> None:
    cluster = left_behind(database, kit)
    finish_late(cluster, kit)
    nothing_is_left(cluster, kit)


def test_a_volume_is_saved_when_the_log_does_not_know_its_claim_any_more(
    database: Database, kit: Kit, tmp_path: Path
) -> None:
    """The claim went, and its history was archived, while the driver took its time."""
    cluster = left_behind(database, kit)
    # What was written last stays in the log for two minutes.
    pass_time(cluster, 40)
    with database.read() as connection:
        last = read_head(connection).position
    archive(database, until=last - 1, out=tmp_path / "old.jsonl", now=cluster.now)
    finish_late(cluster, kit)
    nothing_is_left(cluster, kit)


class Counting(Array):
    """An array that remembers how it was asked."""

    def __init__(self) -> None:
        super().__init__(mishap=lambda _, __: "hang")
        self.asked: list[CreateVolume] = []

    def create(self, request: CreateVolume, now: int) -> Created | DriverRefusal:
        self.asked.append(request)
        return super().create(request, now)


def test_a_driver_that_may_be_at_work_is_asked_the_same_even_when_the_claim_is_gone(database: Database) -> None:
    array = Counting()
    kit = Kit(array, external=True)
    cluster = kit.cluster(database, kit.made(), asked(), using())
    cluster.until(lambda: len(array.asked) == 1)
    cluster.delete("Pod", "app")
    cluster.delete(CLAIM, "data")
    cluster.cluster.delete("Node", "n-a")
    cluster.cluster.delete("Node", "n-b")
    cluster.wait(20)
    assert cluster.claim() is None
    assert len(array.asked) > 3
    assert set(map(repr, array.asked)) == {repr(array.asked[0])}


def test_a_class_that_retains_keeps_volume_and_storage(database: Database, kit: Kit) -> None:
    cluster = kit.cluster(database, kit.made(policy="Retain"), asked(), using())
    placed(cluster)
    cluster.delete("Pod", "app")
    cluster.delete(CLAIM, "data")
    cluster.rest()
    assert [it["status"]["phase"] for it in cluster.volumes().values()] == ["Released"]
    assert len(kit.array.volume_names()) == 1


def test_a_selector_is_not_supported(database: Database, kit: Kit) -> None:
    claim = asked(selector={"matchLabels": {"disk": "ssd"}})
    cluster = kit.cluster(database, kit.made(mode="Immediate"), claim)
    cluster.wait(3)
    assert "claim Selector is not supported" in cluster.told("ProvisioningFailed")[0]


def test_an_unknown_parameter_is_named_and_retried_when_the_class_is_another(database: Database, kit: Kit) -> None:
    cluster = kit.cluster(database, kit.made(mode="Immediate", replica="2"), asked())
    cluster.wait(3)
    assert "parameters.replica is unknown; there are topologyKeys" in cluster.told("ProvisioningFailed")[0]
    cluster.cluster.delete("StorageClass", "made")
    cluster.create(kit.made(mode="Immediate"))
    cluster.until(lambda: cluster.volume_of("data") is not None, steps=300)


def test_the_surplus_volume_of_a_claim_is_deleted(database: Database, kit: Kit) -> None:
    """A provisioner that answers twice, under another name."""
    cluster = kit.cluster(database, kit.made(), asked(), using())
    placed(cluster)
    (volume,) = cluster.volumes().values()
    twin = {**volume, "metadata": {**volume["metadata"], "name": "twin"}}
    cluster.create({**twin, "spec": {**twin["spec"], "csi": {**twin["spec"]["csi"], "volumeHandle": "twin"}}})
    cluster.rest()
    assert list(cluster.volumes()) == [volume["metadata"]["name"]]
    assert cluster.volume()["status"]["phase"] == "Bound"


@pytest.mark.parametrize("place", [1, 2, 4, 11, 12, 13, 20])
def test_a_process_that_dies_leaves_nothing_that_nobody_owns(database: Database, kit: Kit, place: int) -> None:
    """Everybody dies after so many steps, the claim is deleted meanwhile; the storage alone survives."""
    cluster = kit.cluster(database, kit.made(latencySeconds="1"), asked(), using())
    for _ in range(place):
        cluster.step(after=SECOND // 10)
    again = kit.cluster(database, owner="second")
    again.now = cluster.now + 20 * SECOND
    again.delete("Pod", "app")
    again.delete(CLAIM, "data")
    nothing_is_left(again, kit)


def test_protection_a_volume_in_use_is_not_deleted(database: Database, kit: Kit) -> None:
    cluster = kit.cluster(database, kit.made(), asked(), using())
    placed(cluster)
    cluster.delete(CLAIM, "data")
    cluster.cluster.delete(VOLUME, cluster.volume_of("data") or "")
    cluster.rest()
    assert cluster.volume()["status"]["phase"] == "Bound"
    assert len(kit.array.volume_names()) == 1
    cluster.delete("Pod", "app")
    nothing_is_left(cluster, kit)
