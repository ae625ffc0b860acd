"""Counts that are kept up with the log are what counting everything anew would give."""

import pytest

from tests.support.attached_cluster import gated
from tests.support.clusters import LOCAL, START, Stepped, claim, node, pod, volume
from tests.support.followed_tally import followed
from volsched.kube.meta import LEGACY_ZONE, ZONE
from volsched.log.database import Database
from volsched.log.reads.startup import load_world
from volsched.log.transaction import execute
from volsched.pv_controller.sync import releasing
from volsched.questions.status.pending_reasons import shortened
from volsched.questions.status.storage_tally import StorageRow, StorageTally, volume_place

GI = 2**30
SECOND = 1_000_000


def loaded(database: Database) -> StorageTally:
    tally = StorageTally()
    with database.read() as connection:
        tally.begin(load_world(connection).states)
    return tally


def scene(database: Database, zone_label: str = ZONE) -> Stepped:
    # The volumes come before their nodes, whose zones are known only then.
    disks = [volume(f"disk-{i}", "5Gi", f"node-{i % 2}") for i in range(4)]
    nodes = [node("node-0", **{zone_label: "a"}), node("node-1", **{zone_label: "b"})]
    stepped = Stepped(database, [LOCAL, *disks, *nodes])
    stepped.create(claim("data", "4Gi"), pod("db", "data"), claim("huge", "90Gi"), pod("giant", "huge"))
    stepped.settle()
    return stepped


@pytest.mark.parametrize("zone_label", [ZONE, LEGACY_ZONE])
def test_volumes_claims_and_pods_are_counted_by_class_zone_and_phase(sqlite: Database, zone_label: str) -> None:
    """Old clusters label zones with the name of before 1.17."""
    stepped = scene(sqlite, zone_label)
    zone = "a" if stepped.node_of("db") == "node-0" else "b"
    tally = followed(sqlite)
    uses = {(it.zone, it.kind): (it.count, it.bytes) for it in tally.volumes_by_use()}
    other = "b" if zone == "a" else "a"
    assert uses == {(zone, "bound"): (1, 5 * GI), (zone, "free"): (1, 5 * GI), (other, "free"): (2, 10 * GI)}
    assert StorageRow("local", zone, "Bound", 1, 4 * GI) in tally.claims()
    assert tally.pending() == [("node(s) didn't find available persistent volumes to bind", 1)]
    assert tally.bound_after.buckets()[-1] == ("+Inf", 1)
    assert tally.ended_after["committed"].buckets()[-1] == ("+Inf", 1)


def test_what_is_kept_up_is_what_is_counted_anew(sqlite: Database) -> None:
    stepped = scene(sqlite)
    stepped.cluster.delete("Pod", "default/giant")
    stepped.cluster.delete("PersistentVolumeClaim", "default/huge")
    stepped.settle()
    kept, anew = followed(sqlite), loaded(sqlite)
    assert kept.volumes_by_phase() == anew.volumes_by_phase()
    assert kept.volumes_by_use() == anew.volumes_by_use()
    assert kept.claims() == anew.claims()
    assert (kept.pods(), kept.pending()) == (anew.pods(), anew.pending())


def test_pods_behind_our_gate_are_counted_and_those_of_others_are_not(sqlite: Database) -> None:
    theirs = pod("theirs")
    theirs["spec"]["schedulingGates"] = [{"name": "example.com/quota"}]
    Stepped(sqlite, [LOCAL, node("node-0"), gated("ours"), theirs])
    for tally in (followed(sqlite), loaded(sqlite)):
        count, oldest = tally.gated()
        assert (count, oldest is not None and oldest >= START - SECOND) == (1, True)


def test_a_volume_that_a_binding_has_taken_is_reserved(sqlite: Database) -> None:
    stepped = Stepped(sqlite, [LOCAL, node("node-0", **{ZONE: "a"}), volume("disk", "5Gi", "node-0")])
    stepped.settle()
    stepped.create(claim("data", "4Gi"), pod("db", "data"))
    stepped.plan_and_write()
    tally = followed(sqlite)
    assert [it.kind for it in tally.volumes_by_use()] == ["reserved"]
    assert tally.pending() == [("its binding is in flight", 1)]


def test_a_volume_that_was_bound_and_is_released_for_reuse_is_free(sqlite: Database) -> None:
    """The binding's assumption ended with the write that carried it out; nobody takes it off the object."""
    stepped = scene(sqlite)
    disk = str(stepped.volume_of("data"))
    stepped.cluster.delete("Pod", "default/db")
    stepped.cluster.delete("PersistentVolumeClaim", "default/data")
    stepped.settle()
    command = releasing(sqlite, disk, reason="wiped", by="ada", actor="cli/release/ada", now=stepped.now)
    assert command is not None
    execute(sqlite, [command], now=stepped.now)
    for tally in (followed(sqlite), loaded(sqlite)):
        assert {it.kind for it in tally.volumes_by_use()} == {"free"}


def test_provisioners_without_a_limit_add_up_to_a_number_that_json_has(sqlite: Database) -> None:
    endless = {
        "apiVersion": "storage.k8s.io/v1", "kind": "CSIStorageCapacity", "storageClassName": "local",
        "nodeTopology": {"matchLabels": {ZONE: "a"}}, "capacity": str(2**63 - 1),
    }  # fmt: skip
    rooms = [endless | {"metadata": {"name": f"room-{i}", "namespace": "default"}} for i in range(3)]
    Stepped(sqlite, [LOCAL, *rooms])
    assert followed(sqlite).room() == [StorageRow("local", "a", "room", 3, 2**63 - 1)]


def test_pods_that_wait_for_the_same_have_one_reason() -> None:
    few, many = "1 Insufficient cpu, 2 node(s) had volume node affinity conflict", "4 Insufficient cpu"
    assert (
        shortened(f"0/3 nodes are available: {few}.")
        == "Insufficient cpu, node(s) had volume node affinity conflict"
    )
    assert shortened(f"0/4 nodes are available: {many}. preemption: 0/4 nodes are available") == "Insufficient cpu"
    assert shortened('persistentvolumeclaim "data-7" not found') == "persistentvolumeclaim … not found"
    tailed = "0/4 nodes are available: pod has unbound immediate PersistentVolumeClaims. not found"
    assert shortened(tailed) == "pod has unbound immediate PersistentVolumeClaims"


def test_a_volume_is_in_the_zone_that_its_affinity_or_its_label_names() -> None:
    term = {"key": LEGACY_ZONE, "operator": "In", "values": ["a"]}
    required = {"required": {"nodeSelectorTerms": [{"matchExpressions": [term]}]}}
    assert volume_place({"spec": {"nodeAffinity": required}}).zone == "a"
    assert volume_place({"metadata": {"labels": {LEGACY_ZONE: "b"}}, "spec": {}}).zone == "b"
