"""Provisioners that refuse, fail, answer nonsense or nothing: what was made is not lost, and the pod is told."""

from pathlib import Path
from typing import Any

import pytest

from tests.provisioning.host_paths import bound, give_up, on_host, on_sqlite
from tests.support.clusters import node, volume
from tests.support.followed_tally import followed
from tests.support.storage import Cluster, Kit, Scripted, asked, made_by, using
from volsched.cluster.port import CallRefusedError
from volsched.kube.meta import SELECTED_NODE
from volsched.log.database import Database
from volsched.log.integrity.verify import verify
from volsched.provisioning.simulated import Array, Simulated
from volsched.pv_controller.rules import PluginError
from volsched.runtime.clock import SECOND

SCRIPTED = Scripted.plugin.name


def scripted(database: Database, *answers: Any, **fields: Any) -> tuple[Cluster, Scripted]:
    provisioner = Scripted(*answers)
    objects = [made_by(SCRIPTED, **fields), node("n1"), asked(), using()]
    return Cluster(database, objects, provisioners=[provisioner]), provisioner


GOOD = {"spec": {"capacity": {"storage": "5Gi"}, "accessModes": ["ReadWriteOnce"], "hostPath": {"path": "/x"}}}


@on_sqlite
def test_a_refusal_gives_the_node_back_and_backs_off(database: Database) -> None:
    cluster, provisioner = scripted(database, PluginError("not today"), PluginError("not today"), GOOD)
    cluster.until(lambda: "ProvisioningFailed" in cluster.told())
    assert SELECTED_NODE not in cluster.notes()
    assert cluster.told("ProvisioningFailed") == ['Failed to provision volume with StorageClass "made": not today']
    bound(cluster)
    assert len(provisioner.calls) == 3


@on_sqlite
def test_every_refusal_is_counted_though_its_notice_is_not_repeated(database: Database) -> None:
    """What the metric and its alert go by: the same words about a claim are written once in five minutes."""
    cluster, provisioner = scripted(database, *[PluginError("not today")] * 4, GOOD)
    bound(cluster)
    assert len(provisioner.calls) == 5
    assert len(cluster.told("ProvisioningFailed")) == 1
    assert followed(database).failed_provisionings == {"made": 4}


@on_sqlite
def test_a_claim_that_no_pod_waits_for_counts_by_its_notice(database: Database) -> None:
    provisioner = Scripted(PluginError("not today"), PluginError("nor tomorrow"), GOOD)
    objects = [made_by(SCRIPTED, mode="Immediate"), node("n1"), asked()]
    cluster = Cluster(database, objects, provisioners=[provisioner])
    cluster.until(lambda: cluster.volume_of("data") is not None)
    assert followed(database).failed_provisionings == {"made": 2}


@on_sqlite
@pytest.mark.parametrize("answer", [KeyError("oops"), RuntimeError("down")])
def test_an_unexpected_error_keeps_the_node_since_something_may_have_been_made(
    database: Database, answer: Exception
) -> None:
    cluster, _ = scripted(database, answer)
    cluster.wait(10)
    assert SELECTED_NODE in cluster.notes()
    assert type(answer).__name__ in cluster.told("ProvisioningFailed")[0]
    assert [row.open for row in cluster.bindings()] == [True]


@on_sqlite
@pytest.mark.parametrize(
    "answer", [{}, {"spec": None}, "a volume", 7, {"spec": {"capacity": {"storage": "much"}}}]
)
def test_an_answer_that_is_no_volume_is_reported(database: Database, answer: object) -> None:
    cluster, _ = scripted(database, answer)
    cluster.wait(3)
    assert "what is not a volume" in cluster.told("ProvisioningFailed")[0]
    assert cluster.volumes() == {}


@on_sqlite
def test_a_volume_that_cannot_be_saved_is_deleted_again(database: Database) -> None:
    cluster, provisioner = scripted(database, {"spec": {**GOOD["spec"], "csi": {"driver": "not/one"}}})
    cluster.wait(60)
    assert provisioner.calls[:2] == [provisioner.calls[0], f"delete {provisioner.calls[0]}"]
    assert {"ProvisioningFailed", "ProvisioningCleanedUp"} <= set(cluster.told())


@on_sqlite
def test_nothing_is_made_while_nothing_is_answered(database: Database) -> None:
    cluster, provisioner = scripted(database, None)
    for _ in range(30):
        cluster.step(after=10 * SECOND)
    assert "no answer within 60 s" in cluster.told("ProvisioningFailed")[0]
    assert len(set(provisioner.calls)) == 1
    assert SELECTED_NODE in cluster.notes()
    provisioner.answers = [GOOD]
    bound(cluster)


@on_sqlite
def test_mount_options_that_nobody_honours_are_refused_before_anything_is_made(database: Database) -> None:
    cluster, provisioner = scripted(database, GOOD, mountOptions=["ro"])
    cluster.wait(3)
    assert "has mount options [ro]" in cluster.told("ProvisioningFailed")[0]
    assert provisioner.calls == []


@on_sqlite
@pytest.mark.parametrize(
    ("provisioner", "why"),
    [("kubernetes.io/unknown", "no volume plugin matched name: kubernetes.io/unknown")],
)
def test_an_unknown_in_tree_name_is_reported(database: Database, provisioner: str, why: str) -> None:
    cluster = Cluster(database, [made_by(provisioner, mode="Immediate"), asked()], provisioners=[Simulated()])
    cluster.rest()
    assert cluster.told("ProvisioningFailed") == [why]


@on_sqlite
def test_a_class_without_a_provisioner_is_refused(database: Database) -> None:
    with pytest.raises(CallRefusedError, match="provisioner"):
        Cluster(database, [made_by("")])


def test_a_process_of_its_own_provisions_through_the_store(database: Database) -> None:
    kit = Kit(Array(), external=True)
    cluster = bound(kit.cluster(database, kit.made(capacityPerDomain="10Gi"), asked(), using()))
    assert list(cluster.volumes()) == list(kit.array.volume_names())
    give_up(cluster)
    assert (cluster.volumes(), list(kit.array.volume_names())) == ({}, [])
    assert verify(database).ok


@on_sqlite
def test_a_class_that_provisions_nothing_leaves_the_pod_waiting(database: Database) -> None:
    cluster = Cluster(
        database,
        [made_by("kubernetes.io/no-provisioner"), node("n1"), asked(), using()],
        provisioners=[Simulated()],
    )
    cluster.rest()
    assert (cluster.node_of("app"), cluster.volumes()) == (None, {})
    assert "WaitForPodScheduled" in cluster.told()


@on_sqlite
def test_a_volume_that_was_not_made_by_us_is_not_deleted(database: Database, root: Path) -> None:
    """An administrator's hostPath volume with policy Delete: our plugin serves the source, and refuses."""
    theirs = volume("theirs", "5Gi", "n1", "made")
    del theirs["spec"]["local"]
    theirs["spec"] |= {"hostPath": {"path": str(root)}, "persistentVolumeReclaimPolicy": "Delete"}
    cluster = on_host(database, root, theirs)
    cluster.rest()
    cluster.create(asked(), using())
    assert bound(cluster).volume_of("data") == "theirs"
    give_up(cluster)
    assert cluster.volumes()["theirs"]["status"]["phase"] == "Failed"
    assert "nothing outside is touched" in cluster.told("VolumeFailedDelete")[0]
    assert root.is_dir()
