"""Zonal upgrade: when a volume is made, and over those that are there already."""

from typing import Any

import pytest

from tests.support.clusters import LOCAL, Manifest, Stepped, claim, node, pod, volume
from volsched.cluster.port import whole
from volsched.kube.meta import LEGACY_REGION, LEGACY_ZONE, REGION, ZONE
from volsched.log.database import Database
from volsched.log.integrity.verify import verify
from volsched.runtime.clock import SECOND
from volsched.workloads.controllers import Upkeep, zonal_report
from volsched.workloads.rules.repairs import ZonalReport

OFF = (Upkeep.ZONAL_UPGRADE,)
A = {ZONE: "a"}


def zonal(name: str, labels: dict[str, str], **spec: Any) -> Manifest:
    made = volume(name, "5Gi", "anywhere")
    made["metadata"]["labels"] = labels
    made["spec"] = {key: value for key, value in made["spec"].items() if key not in ("nodeAffinity", "local")}
    made["spec"] |= {"csi": {"driver": "disks.example.com", "volumeHandle": name}, **spec}
    return made


def terms(stepped: Stepped, name: str) -> list[list[tuple[str, list[str]]]] | None:
    affinity = (stepped.cluster.get("PersistentVolume", name) or {})["spec"].get("nodeAffinity")
    if affinity is None:
        return None
    found = affinity["required"]["nodeSelectorTerms"]
    return [[(part["key"], part["values"]) for part in term["matchExpressions"]] for term in found]


def told(stepped: Stepped) -> list[tuple[str, str, str, int]]:
    ours = [
        it for it in whole(stepped.cluster.list("Event")).objects if it["source"]["component"] == "zonal-upgrade"
    ]
    return sorted((it["involvedObject"]["name"], it["type"], it["reason"], it["count"]) for it in ours)


def before_the_upgrade(database: Database, *objects: Manifest) -> None:
    """A store written by a program that does not convert."""
    Stepped(database, objects, without=OFF).settle()


@pytest.mark.parametrize(
    ("labels", "expected", "reasons"),
    [
        (
            {LEGACY_ZONE: "us-a", LEGACY_REGION: "us"},
            [[(LEGACY_ZONE, ["us-a"]), (LEGACY_REGION, ["us"])]],
            ["ZonalUpgraded"],
        ),
        (
            {LEGACY_ZONE: "us-a__us-b", LEGACY_REGION: "us"},
            [[(LEGACY_ZONE, ["us-a", "us-b"]), (LEGACY_REGION, ["us"])]],
            ["ZonalUpgraded"],
        ),
        ({REGION: "us"}, [[(REGION, ["us"])]], ["ZonalUpgraded"]),
        (
            {LEGACY_ZONE: "a", ZONE: "b"},
            [[(LEGACY_ZONE, ["a"]), (ZONE, ["b"])]],
            ["ConflictingZoneLabels", "ZonalUpgraded"],
        ),
        ({"app": "db"}, None, []),
    ],
    ids=["zone and region", "two zones", "region only", "conflict", "no such label"],
)
@pytest.mark.parametrize("entry", ["admission", "controller"])
def test_labels_become_the_affinity_at_both_entries(
    sqlite: Database, entry: str, labels: dict[str, str], expected: Any, reasons: list[str]
) -> None:
    if entry == "controller":
        before_the_upgrade(sqlite, zonal("pv", labels))
    stepped = Stepped(sqlite, [zonal("pv", labels)] if entry == "admission" else [], owner="after")
    if entry == "admission":
        # Before any step: nobody ever sees the volume without it.
        assert terms(stepped, "pv") == expected
    stepped.now += 60 * SECOND
    stepped.settle()
    assert terms(stepped, "pv") == expected
    assert sorted(reason for _, _, reason, _ in told(stepped)) == reasons
    assert (stepped.cluster.get("PersistentVolume", "pv") or {})["metadata"]["labels"] == labels
    assert verify(sqlite).ok


def test_an_invalid_label_is_reported_and_tried_again_when_corrected(stepped_with: Stepped) -> None:
    stepped = stepped_with
    stepped.create(zonal("pv", {ZONE: "a____b"}))
    stepped.settle()
    assert terms(stepped, "pv") is None
    assert told(stepped) == [("pv", "Warning", "InvalidZoneLabel", 1)]
    found = stepped.cluster.get("PersistentVolume", "pv") or {}
    stepped.cluster.update(
        "PersistentVolume", {**found, "metadata": {**found["metadata"], "labels": {ZONE: "a__b"}}}
    )
    stepped.settle()
    assert terms(stepped, "pv") == [[(ZONE, ["a", "b"])]]


def test_an_affinity_of_its_own_is_left_alone_and_said_once(stepped_with: Stepped) -> None:
    own = volume("pv", "5Gi", "node-0")
    own["metadata"]["labels"] = {ZONE: "a__b"}
    stepped_with.create(own)
    stepped_with.settle()
    assert terms(stepped_with, "pv") == [[("kubernetes.io/hostname", ["node-0"])]]
    again = Stepped(stepped_with.database, owner="again")
    again.now = stepped_with.now + 60 * SECOND
    again.settle()
    assert told(again) == [("pv", "Normal", "ZonalUpgradeSkipped", 1)]


def test_the_full_pass_is_reported_and_a_second_one_does_nothing(sqlite: Database) -> None:
    own = volume("own", "5Gi", "node-0")
    own["metadata"]["labels"] = A
    before_the_upgrade(
        sqlite, node("node-0", **A), node("bare-0"), node("bare-1"),
        zonal("good", A), zonal("odd", {LEGACY_ZONE: "a", ZONE: "b"}), zonal("bad", {ZONE: ""}), zonal("none", {}),
        own,
    )  # fmt: skip
    stepped = Stepped(sqlite, owner="after")
    stepped.now += 60 * SECOND
    stepped.settle()
    report = zonal_report(stepped.system.parts)
    assert report == ZonalReport(converted=2, conflicting=1, skipped=1, invalid=1, unlabelled_nodes=2)
    again = Stepped(sqlite, owner="again")
    again.now = stepped.now + 60 * SECOND
    again.settle()
    assert zonal_report(again.system.parts).empty
    assert [it for *_, it in told(again)] == [1] * 5


def test_how_the_nodes_are_labelled_decides_the_keys(stepped_with: Stepped) -> None:
    stepped_with.create(node("ga", **A), zonal("pv", {LEGACY_ZONE: "a"}))
    assert terms(stepped_with, "pv") == [[(ZONE, ["a"])]]


def test_a_bound_volume_is_converted_too(sqlite: Database) -> None:
    before_the_upgrade(sqlite, LOCAL, node("n", **A), zonal("pv", A), claim("data", "1Gi"), pod("db", "data"))
    stepped = Stepped(sqlite, owner="after")
    stepped.now += 600 * SECOND
    assert stepped.volume_of("data") == "pv"
    stepped.settle()
    assert terms(stepped, "pv") == [[(ZONE, ["a"])]]


def test_a_volume_being_deleted_is_skipped(sqlite: Database) -> None:
    before_the_upgrade(sqlite, LOCAL, node("n", **A), zonal("pv", A), claim("data", "1Gi"), pod("db", "data"))
    stepped = Stepped(sqlite, owner="after")
    # Bound, so that it stays: the finalizer goes when its claim does.
    stepped.cluster.delete("PersistentVolume", "pv")
    stepped.now += 600 * SECOND
    stepped.settle()
    assert terms(stepped, "pv") is None
    assert told(stepped) == []


def test_a_volume_is_never_matched_where_its_labels_forbid(database: Database) -> None:
    """Made beside the port, as a provisioner may do; converted in the same step in which it becomes Available."""
    stepped = Stepped(database, [LOCAL, node("n-b", **{ZONE: "b"}), claim("data", "1Gi"), pod("db", "data")])
    stepped.settle()
    beside = Stepped(database, [zonal("pv", A)], owner="beside", without=OFF)
    assert terms(beside, "pv") is None
    stepped.settle()
    assert stepped.node_of("db") is None
    stepped.create(node("n-a", **A))
    stepped.until(lambda: stepped.node_of("db") == "n-a")


def test_switched_off_both_entries_do_nothing(sqlite: Database) -> None:
    stepped = Stepped(sqlite, [zonal("pv", A)], without=OFF)
    stepped.settle()
    assert terms(stepped, "pv") is None
    assert told(stepped) == []


@pytest.fixture
def stepped_with(sqlite: Database) -> Stepped:
    return Stepped(sqlite, [LOCAL])
