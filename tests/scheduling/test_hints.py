"""Whom a change wakes: a row for every registered hint, and the like for the plugins besides volumes."""

from dataclasses import dataclass, replace
from typing import Any

import pytest

from tests.support.objects import (
    capacity,
    claim,
    csi_node,
    driver,
    dynamic_class,
    in_zone,
    node,
    pod,
    read,
    ref_to,
    storage_class,
    volume,
)
from volsched.kube.object_values import Object
from volsched.kube.workloads import Node, Pod
from volsched.scheduling.queue.hints import HINTS, helps, hints_for
from volsched.scheduling.queue.object_changes import ObjectChange, aspects_of
from volsched.scheduling.rules.snapshot import Snapshot, snapshot_of

ZONE = "topology.kubernetes.io/zone"
LEGACY_ZONE = "failure-domain.beta.kubernetes.io/zone"
CSI = "csi.example.com"
WAITING = pod("data")
EPHEMERAL = pod(volumes=[{"name": "scratch", "ephemeral": {"volumeClaimTemplate": {}}}])
INLINE = pod(volumes=[{"name": "secrets", "csi": {"driver": CSI}}])
GCE = {"name": "disk", "gcePersistentDisk": {"pdName": "pd-1"}}
NOTHING = Snapshot()
DYNAMIC = snapshot_of([dynamic_class(), claim("data", cls="dyn")])


def spec(name: str = "app", *, labels: dict[str, str] | None = None, on: str = "", **fields: Any) -> Pod:
    meta = {"name": name, "namespace": "db", "uid": f"uid-{name}", "labels": labels or {}}
    return read("Pod", {"metadata": meta, "spec": {**fields, "nodeName": on}})


def asking(**requests: str) -> list[dict[str, Any]]:
    return [{"name": "main", "resources": {"requests": requests}}]


def having(**allocatable: str) -> Node:
    return node(status={"allocatable": allocatable})


def using(**requests: str) -> Pod:
    return spec(on="n1", containers=asking(**requests))


def near(where: str, **labels: str) -> dict[str, Any]:
    term = {"labelSelector": {"matchLabels": labels}, "topologyKey": ZONE}
    return {where: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


def spread(**labels: str) -> list[dict[str, Any]]:
    return [
        {
            "maxSkew": 1,
            "topologyKey": ZONE,
            "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": {"matchLabels": labels},
        }
    ]


def written(value: Any, rv: str = "9") -> Any:
    return replace(value, meta=replace(value.meta, resource_version=rv))


@dataclass(frozen=True)
class Case:
    name: str
    plugin: str
    old: Object | None
    new: Object | None
    wakes: bool
    pod: Pod = WAITING
    world: Snapshot = NOTHING


VB, VZ, NVL, VR = "VolumeBinding", "VolumeZone", "NodeVolumeLimits", "VolumeRestrictions"
NU, TT, NA, NRF = "NodeUnschedulable", "TaintToleration", "NodeAffinity", "NodeResourcesFit"
IPA, PTS = "InterPodAffinity", "PodTopologySpread"
PDS = "attachable-volumes-gce-pd"
CLAIM = claim("data")
VOLUME = volume()
TAINTED = node(spec={"taints": [{"key": "gpu", "effect": "NoSchedule"}]})
SOFT = node(spec={"taints": [{"key": "gpu", "effect": "PreferNoSchedule"}]})
CORDONED = node(spec={"unschedulable": True})
SSD = spec(nodeSelector={"disk": "ssd"})
BIG = spec(containers=asking(cpu="4"))
LONELY = spec(affinity=near("podAffinity", app="web"))
SHY = spec(affinity=near("podAntiAffinity", app="web"))
GREGARIOUS = spec(labels={"app": "web"}, affinity=near("podAffinity", app="web"))
EVEN = spec(topologySpreadConstraints=spread(app="web"))
WEB = spec("web", labels={"app": "web"}, on="n1")
OTHER = spec("other", labels={"app": "mail"}, on="n1")
ELSEWHERE = replace(WEB, meta=replace(WEB.meta, namespace="x"))
PLAIN = replace(WEB, meta=replace(WEB.meta, labels={}))
HOLDER = pod("x", name="other", on="n1")
SCRATCH = claim("app-scratch")
WITH_SSD = node(labels={"disk": "ssd"})
ZONED = in_zone("n1", "a")
TAINTED_ZONED = replace(ZONED, taints=TAINTED.taints)
SILENT = driver(storage_capacity=False)
ATTACHED = read("VolumeAttachment", {"metadata": {"name": "a"}})
LEAVING = replace(WEB, meta=replace(WEB.meta, deletion_timestamp="2026-01-01T00:00:00Z"))
SHY_ON_N1 = replace(SHY, node_name="n1")
PEER = spec(labels={"app": "web"})
TAKEN = volume(claim_ref=ref_to(claim("else")), rv="2")
CASES = [
    # VolumeBinding
    Case("class added", VB, None, storage_class(), True),
    Case("topologies of the class changed", VB, storage_class(), storage_class(topologies=[{ZONE: ["a"]}]), True),
    Case("something else of the class changed", VB, storage_class(), written(storage_class()), False),
    Case("class deleted", VB, storage_class(), None, False),
    Case("its claim added", VB, None, CLAIM, True),
    Case("its claim changed", VB, CLAIM, written(CLAIM), True),
    Case("its template's claim added", VB, None, SCRATCH, True, EPHEMERAL),
    Case("another claim added", VB, None, claim("else"), False),
    Case("claim of that name elsewhere", VB, None, claim("data", namespace="shop"), False),
    Case("its claim deleted", VB, CLAIM, None, False),
    Case("its claim was assumed", VB, CLAIM, claim("data", selected="n1"), False),
    Case("its claim is not assumed any more", VB, claim("data", selected="n1"), CLAIM, True),
    Case("volume added", VB, None, VOLUME, True),
    Case("volume made for its claim", VB, None, volume(claim_ref=ref_to(CLAIM)), True),
    Case("volume made for another claim", VB, None, TAKEN, False),
    Case("volume changed", VB, VOLUME, written(VOLUME), True),
    Case("volume of its claim changed", VB, VOLUME, volume(claim_ref=ref_to(CLAIM), rv="2"), True),
    Case("another's volume changed", VB, VOLUME, volume(claim_ref=ref_to(claim("else")), rv="2"), False),
    Case("another's volume came free", VB, volume(claim_ref=ref_to(claim("else"))), written(VOLUME), True),
    Case("volume deleted", VB, VOLUME, None, False),
    Case("volume was assumed", VB, VOLUME, volume(claim_ref={"name": "x"}), False),
    Case("volume is not assumed any more", VB, volume(claim_ref={"name": "x"}), VOLUME, True),
    Case("node added", VB, None, node(), True),
    Case("labels of a node changed", VB, node(), ZONED, True),
    Case("heartbeat", VB, node(), written(node()), False),
    Case("node deleted", VB, node(), None, False),
    Case("node's drivers added", VB, None, csi_node("n1"), True),
    Case("migrated plugins changed", VB, csi_node("n1"), csi_node("n1", migrated="x"), True),
    Case("node's drivers changed otherwise", VB, csi_node("n1"), csi_node("n1", x=1), False),
    Case("driver without capacity now, inline", VB, driver(), SILENT, True, INLINE),
    Case("driver without capacity now, class", VB, driver(), SILENT, True, WAITING, DYNAMIC),
    Case("driver without capacity now, no use", VB, driver(), SILENT, False),
    Case("driver with capacity now", VB, SILENT, driver(), False, INLINE),
    Case("driver added", VB, None, driver(), False, INLINE),
    Case("driver with capacity deleted", VB, driver(), None, True, INLINE),
    Case("driver without capacity deleted", VB, SILENT, None, False, INLINE),
    Case("volume went from its claim to another", VB, volume(claim_ref=ref_to(CLAIM)), TAKEN, True),
    Case("capacity added", VB, None, capacity(), True),
    Case("capacity grew", VB, capacity(size="1Gi"), capacity(size="2Gi"), True),
    Case("capacity appeared", VB, capacity(size=None), capacity(size="1Gi"), True),
    Case("capacity shrank", VB, capacity(size="2Gi"), capacity(size="1Gi"), False),
    Case("largest volume grew", VB, capacity(maximum="1Gi"), capacity(maximum="2Gi"), True),
    Case("all that there is grew", VB, capacity(maximum="1Gi"), capacity(size="999Gi", maximum="1Gi"), True),
    Case("largest volume shrank", VB, capacity(maximum="2Gi"), capacity(maximum="1Gi"), False),
    Case("capacity deleted", VB, capacity(), None, False),
    Case("a pod left", VB, pod(name="other", on="n1"), None, False),
    # VolumeZone
    Case("delayed class added", VZ, None, storage_class(), True),
    Case("immediate class added", VZ, None, storage_class(mode="Immediate"), False),
    Case("node added", VZ, None, node(), True),
    Case("labels of a node changed", VZ, node(), ZONED, True),
    Case("its claim changed", VZ, CLAIM, written(CLAIM), True),
    Case("its template's claim changed", VZ, SCRATCH, written(SCRATCH), False, EPHEMERAL),
    Case("volume added", VZ, None, VOLUME, True),
    Case("volume made for another claim", VZ, None, TAKEN, False),
    Case("volume's zones changed", VZ, VOLUME, volume(labels={ZONE: "a"}, rv="2"), True),
    Case("an unusable zone label came", VZ, VOLUME, volume(labels={LEGACY_ZONE: "a__"}, rv="2"), False),
    Case("volume changed otherwise", VZ, VOLUME, volume(labels={"x": "y"}, rv="2"), False),
    # NodeVolumeLimits
    Case("node's drivers added", NVL, None, csi_node("n1"), True),
    Case("limit grew", NVL, csi_node("n1", d=1), csi_node("n1", d=2), True),
    Case("limit shrank", NVL, csi_node("n1", d=2), csi_node("n1", d=1), False),
    Case("driver with a limit went", NVL, csi_node("n1", d=1), csi_node("n1"), True),
    Case("node's drivers deleted", NVL, csi_node("n1", d=1), None, True),
    Case("driver came", NVL, csi_node("n1"), csi_node("n1", d=1), True),
    Case("attachable grew", NVL, having(**{PDS: "1"}), having(**{PDS: "2"}), True),
    Case("other allocatable grew", NVL, having(cpu="1"), having(cpu="2"), False),
    Case("pod with a claim left", NVL, HOLDER, None, True),
    Case("pod with a disk left", NVL, pod(name="other", on="n1", volumes=[GCE]), None, True),
    Case("pod without volumes left", NVL, pod(name="other", on="n1"), None, False),
    Case("pod with a claim ended", NVL, HOLDER, replace(HOLDER, phase="Failed"), True),
    Case("pod without a node deleted", NVL, pod("x", name="other"), None, False),
    Case("its claim added", NVL, None, CLAIM, True),
    Case("its claim changed", NVL, CLAIM, written(CLAIM), False),
    Case("attachment deleted", NVL, ATTACHED, None, True),
    Case("attachment deleted, no claims", NVL, ATTACHED, None, False, INLINE),
    Case("attachment added", NVL, None, ATTACHED, False),
    # VolumeRestrictions
    Case("pod sharing its claim left", VR, pod("data", name="other", on="n1"), None, True),
    Case("pod with another claim left", VR, pod("else", name="other", on="n1"), None, False),
    Case("pod with its disk left", VR, pod(name="other", on="n1", volumes=[GCE]), None, True, pod(volumes=[GCE])),
    Case("node added", VR, None, node(), True),
    Case("its claim added", VR, None, CLAIM, True),
    Case("its template's claim added", VR, None, SCRATCH, False, EPHEMERAL),
    # Nodes
    Case("uncordoned", NU, CORDONED, node(), True),
    Case("cordoned", NU, node(), CORDONED, False),
    Case("open node added", NU, None, node(), True),
    Case("cordoned node added", NU, None, CORDONED, False),
    Case("taint taken off", TT, TAINTED, node(), True),
    Case("taint made soft", TT, TAINTED, SOFT, True),
    Case("taint added", TT, node(), TAINTED, False),
    Case("tainted node added", TT, None, TAINTED, False),
    Case("node without taints added", TT, None, node(), True),
    Case("heartbeat", TT, TAINTED, written(TAINTED), False),
    Case("node gets the label", NA, node(), WITH_SSD, True, SSD),
    Case("node had the label", NA, WITH_SSD, node(labels={"disk": "ssd", "x": "y"}), False, SSD),
    Case("node with the label added", NA, None, WITH_SSD, True, SSD),
    Case("node without it added", NA, None, node(), False, SSD),
    Case("a pod left", NRF, OTHER, None, True, BIG),
    Case("a pod came", NRF, None, OTHER, False, BIG),
    Case("a pod asks for less", NRF, using(cpu="2"), using(cpu="1"), True, BIG),
    Case("a pod asks for less of another", NRF, using(memory="2Gi"), using(memory="1Gi"), False, BIG),
    Case("a pod asks for more", NRF, using(cpu="1"), using(cpu="2"), False, BIG),
    Case("node grew", NRF, having(cpu="3"), having(cpu="4"), True, BIG),
    Case("node grew too little", NRF, having(cpu="2"), having(cpu="3"), False, BIG),
    Case("node grew otherwise", NRF, having(cpu="4", memory="1Gi"), having(cpu="4", memory="2Gi"), False, BIG),
    Case("node takes more pods", NRF, having(cpu="4", pods="1"), having(cpu="4", pods="2"), True, BIG),
    Case("large node added", NRF, None, having(cpu="8"), True, BIG),
    Case("small node added", NRF, None, having(cpu="1"), False, BIG),
    # Other pods
    Case("one to be near to came", IPA, None, WEB, True, LONELY),
    Case("one was placed", IPA, replace(WEB, node_name=""), WEB, True, LONELY),
    Case("another came", IPA, None, OTHER, False, LONELY),
    Case("one to be near to left", IPA, WEB, None, False, LONELY),
    Case("the last of its kind left", IPA, WEB, None, True, GREGARIOUS),
    Case("one to keep away from left", IPA, WEB, None, True, SHY),
    Case("one to keep away from came", IPA, None, WEB, False, SHY),
    Case("another left", IPA, OTHER, None, False, SHY),
    Case("one that kept it away left", IPA, replace(SHY, node_name="n1"), None, True, GREGARIOUS),
    Case("nothing of it changed", IPA, WEB, written(WEB), False, LONELY),
    Case("labels became right", IPA, PLAIN, WEB, True, LONELY),
    Case("labels became harmless", IPA, WEB, PLAIN, True, SHY),
    Case("node changed its zone", IPA, ZONED, in_zone("n1", "b"), True, SHY),
    Case("node changed what may be another's topology", IPA, node(), node(labels={"x": "y"}), True, SHY),
    Case("node added", IPA, None, node(), True, SHY),
    Case("node deleted", IPA, node(), None, True, SHY),
    Case("one to keep away from moved", IPA, WEB, replace(WEB, node_name="n2"), True, SHY),
    Case("one that kept it away moved", IPA, SHY_ON_N1, replace(SHY_ON_N1, node_name="n2"), True, PEER),
    Case("one that counts came", PTS, None, WEB, True, EVEN),
    Case("one that counts left", PTS, WEB, None, True, EVEN),
    Case("one that counts moved", PTS, WEB, replace(WEB, node_name="n2"), True, EVEN),
    Case("one that counts is being deleted", PTS, WEB, LEAVING, True, EVEN),
    Case("one that does not count came", PTS, None, OTHER, False, EVEN),
    Case("one elsewhere came", PTS, None, ELSEWHERE, False, EVEN),
    Case("one does not count any more", PTS, WEB, PLAIN, True, EVEN),
    Case("node of a zone added", PTS, None, ZONED, True, EVEN),
    Case("node of a zone deleted", PTS, ZONED, None, True, EVEN),
    Case("node without a zone added", PTS, None, node(), False, EVEN),
    Case("node came into a zone", PTS, node(), ZONED, True, EVEN),
    Case("taints changed", PTS, ZONED, TAINTED_ZONED, False, EVEN),
]  # fmt: skip


def wakes(plugin: str, change: ObjectChange, waiting: Pod, world: Snapshot) -> bool:
    aspects = aspects_of(change)
    return bool(aspects) and helps(hints_for(frozenset({plugin}), aspects), change, waiting, world)


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.plugin}: {case.name}")
def test_a_change_wakes_whom_it_may_help_and_nobody_else(case: Case) -> None:
    assert wakes(case.plugin, ObjectChange(case.old, case.new), case.pod, case.world) is case.wakes


@pytest.mark.parametrize("plugin", sorted(HINTS))
def test_a_heartbeat_wakes_nobody(plugin: str) -> None:
    before = having(cpu="4")
    assert not wakes(plugin, ObjectChange(before, written(before)), WAITING, NOTHING)


@pytest.mark.parametrize(("waiting", "expected"), [(WAITING, True), (INLINE, False)])
def test_room_that_a_binding_gives_back_wakes_pods_with_unbound_claims(waiting: Pod, expected: bool) -> None:
    freed = ObjectChange(capacity(), capacity(), let_go=True)
    assert wakes(VB, freed, waiting, DYNAMIC) is expected


def test_a_limit_that_is_taken_away_counts_as_grown() -> None:
    limited = csi_node("n1", d=1)
    unlimited = replace(limited, drivers=tuple(replace(it, attach_limit=None) for it in limited.drivers))
    assert wakes(NVL, ObjectChange(limited, unlimited), WAITING, NOTHING)
    assert not wakes(NVL, ObjectChange(unlimited, limited), WAITING, NOTHING)


def test_a_driver_that_no_longer_insists_on_being_there_wakes() -> None:
    strict = replace(driver(), prevent_scheduling_if_missing=True)
    assert wakes(NVL, ObjectChange(strict, driver()), WAITING, NOTHING)
    assert not wakes(NVL, ObjectChange(driver(), strict), WAITING, NOTHING)


def test_the_plugins_of_a_set_are_asked_together() -> None:
    both = frozenset({VB, "TaintToleration"})
    assert hints_for(both, aspects_of(ObjectChange(None, VOLUME)))
    assert hints_for(both, aspects_of(ObjectChange(TAINTED, node())))
    assert not hints_for(frozenset({TT}), aspects_of(ObjectChange(None, VOLUME)))
