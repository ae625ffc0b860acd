"""Claims that are half bound by anybody, and who uses them: read off objects of an observed cluster."""

from collections.abc import Iterator
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from tests.support.given_cluster import GivenCluster, settle
from tests.support.store_samples import NOW
from volsched.cli.status_output import screen
from volsched.cluster.observer import ClusterObserver
from volsched.kube.meta import BIND_COMPLETED, BOUND_BY_CONTROLLER, SELECTED_NODE
from volsched.log.database import Database
from volsched.log.migrations import scratch_store
from volsched.log.observed_cluster import gaps
from volsched.log.retention.backup import back_up, restore
from volsched.questions.audit.answers import time_text
from volsched.questions.audit.drift import drift
from volsched.questions.audit.orphans import orphans
from volsched.questions.audit.parameters import Orphans
from volsched.questions.claims.data_state import claim_data
from volsched.questions.claims.half_bound import in_flight
from volsched.questions.claims.handlers import PROVEN, handovers, uses
from volsched.questions.claims.parameters import ClaimDataParameters, HalfBoundParameters
from volsched.questions.context import QuestionContext
from volsched.questions.parameters import ObjectParameters, WindowParameters
from volsched.questions.status.handlers import status
from volsched.questions.status.parameters import StatusParameters
from volsched.runtime.clock import SECOND, rfc3339


def claim(name: str, volume: str = "", **marks: str) -> dict[str, Any]:
    names = {"namespace": "shop", "name": name, "uid": f"uid-{name}", "creationTimestamp": rfc3339(NOW)}
    annotations = {key.replace("__", "/"): value for key, value in marks.items()}
    return {"metadata": names | {"annotations": annotations}, "spec": {"volumeName": volume} if volume else {}}


def volume(name: str, claimed: str = "", uid: str | None = None) -> dict[str, Any]:
    reference = {"namespace": "shop", "name": claimed} | ({} if uid is None else {"uid": uid})
    marks = {BOUND_BY_CONTROLLER: "yes"}
    return {"metadata": {"name": name, "annotations": marks}, "spec": {"claimRef": reference} if claimed else {}}


def pod(name: str, claimed: str) -> dict[str, Any]:
    volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": claimed}}]
    return {"metadata": {"namespace": "shop", "name": name}, "spec": {"nodeName": "n1", "volumes": volumes}}


@pytest.fixture
def database() -> Iterator[Database]:
    with scratch_store(in_memory=True) as made:
        yield made


def told(database: Database, now: int, older: str = "0s") -> dict[str, tuple[str, str | None]]:
    answer = in_flight(QuestionContext(store=database, now=now), HalfBoundParameters(older_than=older))
    return {it["claim"]: (it["state"], it["since"]) for it in answer.items}


def test_each_half_of_a_binding_is_reported_with_its_age(database: Database) -> None:
    cluster = GivenCluster()
    cluster.put("PersistentVolumeClaim", claim("done", "v1", **{BIND_COMPLETED.replace("/", "__"): "yes"}))
    cluster.put("PersistentVolume", volume("v1", "done", "uid-done"))
    cluster.put("PersistentVolumeClaim", claim("kept"))
    cluster.put("PersistentVolumeClaim", claim("waits"))
    cluster.put("PersistentVolumeClaim", claim("named"))
    cluster.put("PersistentVolume", volume("v2"))
    cluster.put("PersistentVolume", volume("v3", "kept", "uid-of-an-earlier-one"))
    observer = ClusterObserver(database, cluster)
    settle(observer)
    assert told(database, NOW) == {}
    cluster.put("PersistentVolume", volume("v2", "kept", "uid-kept"))
    cluster.put("PersistentVolumeClaim", claim("waits", **{SELECTED_NODE.replace("/", "__"): "n1"}))
    cluster.put("PersistentVolumeClaim", claim("named", "v9"))
    settle(observer, NOW + 60 * SECOND)
    found = told(database, NOW + 200 * SECOND)
    assert {key: state for key, (state, _) in found.items()} == {
        "shop/kept": "prebound",
        "shop/waits": "provisioning",
        "shop/named": "half-bound",
    }
    assert {since for _, since in found.values()} == {time_text(NOW + 60 * SECOND)}
    assert told(database, NOW + 200 * SECOND, older="2m").keys() == found.keys()
    assert told(database, NOW + 100 * SECOND, older="2m") == {}


def test_that_nobody_ever_used_a_claim_is_proven_only_without_a_gap(database: Database) -> None:
    cluster = GivenCluster()
    cluster.put("Node", {"metadata": {"name": "n1"}})
    observer = ClusterObserver(database, cluster)
    settle(observer)
    cluster.put("PersistentVolumeClaim", claim("data"))
    cluster.put("PersistentVolumeClaim", claim("other"))
    settle(observer, NOW + SECOND)

    def asked(name: str) -> dict[str, Any]:
        wanted = ObjectParameters(kind="pvc", name=name, namespace="shop")
        return uses(QuestionContext(store=database, now=NOW), wanted)

    assert asked("data")["neverUsed"] == PROVEN
    cluster.put("Pod", pod("db", "data"))
    settle(observer, NOW + 2 * SECOND)
    assert asked("data")["pods"] == [{"pod": "shop/db", "node": "n1", "phase": None}]
    cluster.drop("Pod", "shop/db")
    settle(observer, NOW + 3 * SECOND)
    assert asked("data")["neverUsed"].startswith("no: pod shop/db used it")
    assert asked("other")["neverUsed"] == PROVEN
    cluster.expired = {"Pod"}
    settle(observer, NOW + 4 * SECOND)
    assert asked("other")["neverUsed"].startswith("not known: pods were not observed until")


def test_data_is_never_used_used_or_unknown_and_says_why(database: Database) -> None:
    cluster = GivenCluster()
    observer = ClusterObserver(database, cluster)
    cluster.put(
        "PersistentVolumeClaim",
        {**claim("old"), "metadata": claim("old")["metadata"] | {"creationTimestamp": rfc3339(NOW - 60 * SECOND)}},
    )
    cluster.put("Pod", {**pod("early", "late"), "spec": {**pod("early", "late")["spec"], "nodeName": None}})
    settle(observer)
    new = ("mounted", "named", "attached", "late")
    for name in new:
        cluster.put("PersistentVolumeClaim", claim(name, f"pv-{name}"))
    settle(observer, NOW + SECOND)

    def told() -> dict[str, tuple[str, str]]:
        answer = claim_data(QuestionContext(store=database, now=NOW), ClaimDataParameters(claims_in="shop"))
        return {it["claim"].removeprefix("shop/"): (it["data"], it["why"]) for it in answer.items}

    assert {name for name, (data, _) in told().items() if data == "never-used"} == {*new}
    assert told()["old"][0] == "unknown"
    cluster.put("Pod", pod("db", "mounted"))
    waits = pod("waits", "named")
    cluster.put("Pod", {**waits, "spec": {"volumes": waits["spec"]["volumes"]}})
    cluster.put(
        "VolumeAttachment",
        {
            "metadata": {"name": "va"},
            "spec": {"nodeName": "n1", "source": {"persistentVolumeName": "pv-attached"}},
        },
    )
    # This one was there before its claim.
    cluster.put("Pod", pod("early", "late"))
    settle(observer, NOW + 2 * SECOND)
    assert told() == {
        "old": ("unknown", f"it existed before it was observed, since {time_text(NOW)}"),
        "mounted": ("used", "pod shop/db used it on node n1"),
        "named": ("never-used", "no pod with it ever had a node, and its volume was never attached"),
        "attached": ("used", "its volume was attached by va"),
        "late": ("used", "pod shop/early used it on node n1"),
    }
    cluster.expired = {"Pod"}
    settle(observer, NOW + 3 * SECOND)
    assert told()["mounted"][0] == "used"
    data, why = told()["named"]
    assert data == "unknown"
    assert why.startswith("pods were not observed until")


def data_state(database: Database, now: int) -> tuple[str, str]:
    (state,) = claim_data(QuestionContext(store=database, now=now), ClaimDataParameters()).items
    return state["data"], state["why"]


def test_what_was_never_used_is_not_told_by_a_store_that_nobody_keeps_up(database: Database) -> None:
    """A follower that was killed has written no gap: the next one does."""
    cluster = GivenCluster()
    observer = ClusterObserver(database, cluster)
    settle(observer)
    cluster.put("PersistentVolumeClaim", claim("data"))
    settle(observer, NOW + SECOND)

    assert data_state(database, NOW + SECOND)[0] == "never-used"
    assert data_state(database, NOW + 600 * SECOND) == (
        "unknown",
        f"pods were not observed since {time_text(NOW + SECOND)}; is the follower running?",
    )
    # Heard of in time, though a while later: it was there all the while.
    settle(observer, NOW + 600 * SECOND)
    assert data_state(database, NOW + 600 * SECOND)[0] == "never-used"


def test_what_was_never_used_is_not_told_of_a_claim_that_was_heard_of_later_than_pods(database: Database) -> None:
    """A volume was bound to it, perhaps for a pod that the watch of pods has yet to tell."""
    cluster, silent = GivenCluster(), {"Pod": 0.0}
    observer = ClusterObserver(database, cluster, silence=lambda: silent)
    settle(observer)
    cluster.put("PersistentVolumeClaim", claim("data"))
    settle(observer, NOW + SECOND)
    silent["Pod"] = 10.0
    cluster.put("PersistentVolumeClaim", claim("data", "v1"))
    settle(observer, NOW + 10 * SECOND)

    assert data_state(database, NOW + 10 * SECOND) == (
        "unknown",
        f"pods were not observed since {time_text(NOW)}, and it has changed since; retry",
    )
    silent["Pod"] = 1.0
    settle(observer, NOW + 20 * SECOND)
    assert data_state(database, NOW + 20 * SECOND)[0] == "never-used"


def test_a_volume_that_is_given_on_with_unknown_contents_is_reported(database: Database) -> None:
    cluster = GivenCluster()
    cluster.put("PersistentVolumeClaim", claim("first", "v1", **{BIND_COMPLETED.replace("/", "__"): "yes"}))
    cluster.put("PersistentVolume", volume("v1", "first", "uid-first"))
    cluster.put("PersistentVolume", volume("v2"))
    observer = ClusterObserver(database, cluster)
    settle(observer)
    context = QuestionContext(store=database, now=NOW + 60 * SECOND)
    assert handovers(context, WindowParameters()).items == []
    cluster.put("PersistentVolume", {**volume("v1"), "status": {"phase": "Available"}})
    settle(observer, NOW + SECOND)
    (offered,) = handovers(context, WindowParameters()).items
    assert (offered["volume"], offered["held"], offered["given"]) == ("v1", "shop/first", None)
    cluster.put("PersistentVolume", volume("v1", "second", "uid-second"))
    settle(observer, NOW + 2 * SECOND)
    (given,) = handovers(context, WindowParameters()).items
    assert (given["volume"], given["held"], given["given"]) == ("v1", "shop/first", "shop/second")


def test_what_may_not_be_what_the_cluster_had_is_reported_the_latest_first(database: Database) -> None:
    cluster = GivenCluster()
    cluster.put("Node", {"metadata": {"name": "n1"}})
    observer = ClusterObserver(database, cluster, list_versions=cluster.versions)
    settle(observer)

    def told(now: int, **asked: Any) -> list[tuple[str, str, str]]:
        items = drift(QuestionContext(store=database, now=now), WindowParameters(**asked)).items
        return [(it["what"], it["kind"], it["detail"]) for it in items]

    assert told(NOW) == []
    silent = told(NOW + 600 * SECOND)
    assert {what for what, _, _ in silent} == {"silent"}
    assert {kind for _, kind, _ in silent} == set(observer.mirror.kinds)
    # A change that no watch ever tells; it is found by the hourly proof, and by its second look.
    cluster.put("Node", {"metadata": {"name": "n2"}})
    cluster.told = []
    now = NOW
    for _ in range(40):
        now += 100 * SECOND
        settle(observer, now)
    assert told(now) == [
        ("gap", "Node", f"not observed since {time_text(gap_since(database))}"),
        ("drift", "Node", "missing: n2"),
    ]
    cluster.restore({}, 0)
    for second in range(8):
        settle(observer, now + second * SECOND)
    restored = next(it for it in told(now) if it[0] == "restored")
    assert restored[2].endswith("became 0: the cluster was restored from a backup")
    assert len(told(now, limit=2)) == 2


def test_what_was_left_behind_in_a_cluster_is_for_its_own_tools(database: Database) -> None:
    """`volsched release` would write into the observer's store."""
    cluster = GivenCluster()
    cluster.put("PersistentVolume", {**volume("v1", "gone", "uid-gone"), "status": {"phase": "Released"}})
    cluster.put("PersistentVolumeClaim", claim("waits", **{SELECTED_NODE.replace("/", "__"): "n-gone"}))
    settle(ClusterObserver(database, cluster))
    items = orphans(QuestionContext(store=database, now=NOW), Orphans()).items
    told = {it["kind"]: it["remedy"] for it in items}
    assert "remove its claimRef (kubectl edit pv)" in told["released"]
    assert SELECTED_NODE in told["node-gone"]
    assert not [it for it in told.values() if "volsched" in it]


def test_a_recording_is_of_a_cluster_that_nobody_follows(database: Database, tmp_path: Path) -> None:
    cluster = GivenCluster()
    observer = ClusterObserver(database, cluster)
    observer.attach(cluster.describe(), NOW)
    observer.mirror.step(NOW)
    back_up(database, out=tmp_path / "case.jsonl", now=NOW)
    with scratch_store(in_memory=True) as elsewhere, (tmp_path / "case.jsonl").open() as lines:
        restore(elsewhere, lines)
        (told,) = drift(QuestionContext(store=elsewhere, now=NOW), WindowParameters()).items
    assert (told["what"], told["kind"]) == ("silent", None)
    assert told["detail"] == "no process follows the cluster in this store"


def test_the_glance_says_which_cluster_it_is_and_when_it_was_heard_of(database: Database) -> None:
    def shown(now: int) -> str:
        document = status(QuestionContext(store=database, now=now), StatusParameters())
        out = StringIO()
        Console(file=out, width=120).print(screen(document, now=now))
        return out.getvalue()

    assert "cluster" not in shown(NOW)
    observer = ClusterObserver(database, GivenCluster())
    observer.attach(observer.cluster.describe(), NOW)
    assert "cluster given: no process follows it in this store; see: volsched audit drift" in shown(NOW)
    settle(observer)
    told = shown(NOW + 90 * SECOND)
    assert "cluster given: last contact 1 min 30 s ago" in told
    assert "is anything running" not in told


def gap_since(database: Database) -> int | None:
    with database.read() as connection:
        return gaps(connection)[0].since
