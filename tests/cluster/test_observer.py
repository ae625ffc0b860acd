"""An observed cluster in our log: what is known of it, what is not, and whose it is."""

from typing import Any

import orjson
import pytest

from tests.support.given_cluster import GivenCluster, settle
from tests.support.store_samples import NOW
from volsched.cluster.observer import ClusterObserver, WrongClusterError
from volsched.cluster.projection import fingerprint
from volsched.log.database import Database
from volsched.log.errors import ConnectionLostError
from volsched.log.events.fold import ObjectState
from volsched.log.events.streams import NOUN_OF_KIND, OBSERVED_CLUSTER
from volsched.log.integrity.verify import verify
from volsched.log.observed_cluster import drifted_kinds, gaps, known_cursors, note_projection
from volsched.log.reads.as_of import view_at_head
from volsched.log.reads.tail import read_head, read_stream, tail
from volsched.runtime.clock import SECOND
from volsched.runtime.world import World


def node(name: str, **status: Any) -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": {}, "status": {"allocatable": {"cpu": "1"}, **status}}


def pod(name: str, *claims: str, uid: str = "", **spec: Any) -> dict[str, Any]:
    volumes = [{"name": it, "persistentVolumeClaim": {"claimName": it}} for it in claims]
    names = {"namespace": "shop", "name": name} | ({"uid": uid} if uid else {})
    return {"metadata": names, "spec": {"containers": [{"name": "c"}], "volumes": volumes, **spec}, "status": {}}


def settle_often(observer: ClusterObserver) -> None:
    """A list that is behind once may come from a cache: it takes a few."""
    for second in range(8):
        settle(observer, NOW + second * SECOND)


def known(database: Database, kind: str) -> dict[str, Any]:
    with database.read() as connection:
        found = view_at_head(connection).every(NOUN_OF_KIND[kind])
        return {key: it.manifest for key, it in found if isinstance(it, ObjectState)}


def events(database: Database, *types: str) -> list[dict[str, Any]]:
    with database.read() as connection:
        return [orjson.loads(it.data) for it in read_stream(connection, OBSERVED_CLUSTER) if it.type in types]


def head(database: Database) -> int:
    with database.read() as connection:
        return read_head(connection).position


def test_what_differs_in_its_version_alone_is_no_event(database: Database) -> None:
    cluster = GivenCluster()
    cluster.put("Node", node("n1"))
    observer = ClusterObserver(database, cluster)
    settle(observer)
    before = head(database)
    for beat in range(5):
        cluster.put("Node", node("n1", images=[{"names": [f"i{beat}"]}]))
        settle(observer)
    assert head(database) == before
    cluster.put("Node", {**node("n1"), "spec": {"unschedulable": True}})
    settle(observer)
    assert head(database) == before + 1
    assert known(database, "Node")["n1"]["spec"]["unschedulable"] is True


def test_pods_without_claims_are_rows_and_take_part_in_every_answer(database: Database) -> None:
    cluster = GivenCluster()
    cluster.put("Pod", pod("web", nodeName="n1"))
    cluster.put("Pod", pod("db", "data"))
    observer = ClusterObserver(database, cluster)
    settle(observer)
    with database.read() as connection:
        streams = {it.stream for it in tail(connection, after=0, limit=100)}
    assert "pod/shop/db" in streams
    assert "pod/shop/web" not in streams
    assert set(known(database, "Pod")) == {"shop/db", "shop/web"}
    world = World(database)
    world.catch_up()
    assert world.read("pod/shop/web") is not None
    # The same names, the other sort of pod.
    cluster.put("Pod", pod("web", "data", uid="new"))
    cluster.put("Pod", pod("db", uid="new"))
    settle(observer)
    with database.read() as connection:
        last = {it.stream: it.type for it in tail(connection, after=0, limit=100)}
    assert last["pod/shop/web"] == "PodCreated"
    assert last["pod/shop/db"] == "PodDeleted"
    cluster.drop("Pod", "shop/db")
    cluster.drop("Pod", "shop/web")
    settle(observer)
    assert known(database, "Pod") == {}
    assert not verify(database).findings


def test_readiness_is_no_event_and_is_known_as_it_is_now(database: Database) -> None:
    def probed(ready: str, phase: str = "Running") -> dict[str, Any]:
        told = {"phase": phase, "containerStatuses": [{"name": "c", "ready": ready == "True"}]}
        conditions = [{"type": "Ready", "status": ready}]
        return {**pod("db", "data", nodeName="n1"), "status": {**told, "conditions": conditions}}

    cluster = GivenCluster()
    cluster.put("Pod", probed("False"))
    observer = ClusterObserver(database, cluster)
    settle(observer)
    before = head(database)
    for ready in ("True", "False", "True"):
        cluster.put("Pod", probed(ready))
        settle(observer)
        assert known(database, "Pod")["shop/db"]["status"] == probed(ready)["status"]
    assert head(database) == before
    world = World(database)
    world.catch_up()
    held = world.read("pod/shop/db")
    assert held is not None
    assert held[0]["status"] == probed("True")["status"]
    cluster.put("Pod", probed("False", phase="Succeeded"))
    settle(observer)
    assert head(database) == before + 1
    cluster.decoded = 0
    settle(ClusterObserver(database, cluster), NOW + 60 * SECOND)
    assert cluster.decoded == 0, "a restart knows the version of the last probe"
    assert not verify(database).findings


def test_a_list_after_a_restart_or_an_expired_cursor_is_a_gap(database: Database) -> None:
    cluster = GivenCluster()
    cluster.put("Node", node("n1"))
    settle(ClusterObserver(database, cluster))
    assert not events(database, "MirrorGap")
    cluster.drop("Node", "n1")
    cluster.put("Node", node("n2"))
    again = ClusterObserver(database, cluster)
    settle(again, NOW + 60 * SECOND)
    assert set(known(database, "Node")) == {"n2"}
    told = {it["kind"]: it for it in events(database, "MirrorGap")}
    assert set(told) == set(again.mirror.kinds)
    assert told["Node"]["since"] == NOW
    assert told["Node"]["before"] == 1
    cluster.expired = {"Pod"}
    settle(again, NOW + 90 * SECOND)
    with database.read() as connection:
        last = gaps(connection)[-1]
    assert (last.kind, last.reason) == ("Pod", "the cursor of Pod is too old")


def test_a_gap_is_reported_of_every_kind_that_was_listed_also_where_the_next_was_not(database: Database) -> None:
    cluster = GivenCluster()
    settle(ClusterObserver(database, cluster))
    again = ClusterObserver(database, cluster)
    cluster.unanswered = {again.mirror.kinds[0]}
    assert not again.step(NOW + 60 * SECOND), "whoever gets no answer rests before the next try"
    cluster.unanswered = {"StorageClass"}
    settle(again, NOW + 60 * SECOND)
    assert "Pod" in {it["kind"] for it in events(database, "MirrorGap")}
    settle(again, NOW + 90 * SECOND)
    told = events(database, "MirrorGap")
    assert sorted(it["kind"] for it in told) == sorted(again.mirror.kinds)
    assert {it["since"] for it in told} == {NOW}


def test_a_restart_reads_nothing_that_is_still_at_the_version_that_is_known(database: Database) -> None:
    cluster = GivenCluster()
    for name in ("n1", "n2"):
        cluster.put("Node", node(name))
    cluster.put("Pod", pod("web", nodeName="n1"))
    cluster.put("Pod", pod("db", "data"))
    settle(ClusterObserver(database, cluster))
    cluster.put("Node", {**node("n2"), "spec": {"unschedulable": True}})
    cluster.drop("Pod", "shop/web")
    cluster.decoded = 0
    again = ClusterObserver(database, cluster, list_versions=cluster.versions)
    settle(again, NOW + 60 * SECOND)
    assert cluster.decoded == 1
    assert known(database, "Node")["n2"]["spec"] == {"unschedulable": True}
    assert set(known(database, "Pod")) == {"shop/db"}
    assert again.mirror.versions["Node"].keys() == {"n1", "n2"}
    assert again.mirror.versions["Pod"].keys() == {"shop/db"}


def test_a_store_that_was_kept_by_another_projection_is_read_whole_again(database: Database) -> None:
    cluster = GivenCluster()
    cluster.put("Node", node("n1"))
    settle(ClusterObserver(database, cluster))
    note_projection(database, fingerprint() + 1, NOW)
    cluster.decoded = 0
    # The other one kept no taints: the same version has more to tell now.
    tainted = {"taints": [{"key": "a", "effect": "NoSchedule"}]}
    cluster.objects["Node", "n1"] = {**cluster.objects["Node", "n1"], "spec": tainted}
    settle(ClusterObserver(database, cluster), NOW + 60 * SECOND)
    assert cluster.decoded == 1
    assert known(database, "Node")["n1"]["spec"] == tainted
    settle(ClusterObserver(database, cluster), NOW + 120 * SECOND)
    assert cluster.decoded == 1


def test_what_could_not_be_stored_is_not_passed_over_by_the_next_list(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = GivenCluster()
    cluster.put("Node", node("n1"))
    observer = ClusterObserver(database, cluster)
    settle(observer)
    cluster.put("Node", {**node("n1"), "spec": {"unschedulable": True}})

    def lost(*_: Any, **__: Any) -> Any:
        raise ConnectionLostError("gone")

    with monkeypatch.context() as patched:
        patched.setattr("volsched.cluster.mirror.execute", lost)
        observer.step(NOW)
    cluster.expired = {"Node"}
    settle(observer, NOW + SECOND)
    assert known(database, "Node")["n1"]["spec"] == {"unschedulable": True}


def test_a_restored_cluster_is_reported_and_followed_from_its_new_versions(database: Database) -> None:
    cluster = GivenCluster()
    cluster.put("Node", node("n1"))
    backup, version = dict(cluster.objects), cluster.head
    cluster.put("Node", {**node("n1"), "spec": {"unschedulable": True}})
    cluster.put("Node", node("n2"))
    observer = ClusterObserver(database, cluster)
    settle(observer)
    cluster.restore(backup, version)
    settle_often(observer)
    assert len(events(database, "ClusterRestored")) == 1
    assert set(known(database, "Node")) == {"n1"}
    assert known(database, "Node")["n1"]["spec"] == {}
    cluster.put("Node", {**node("n1"), "spec": {"unschedulable": True}})
    settle(observer, NOW + 10 * SECOND)
    assert known(database, "Node")["n1"]["spec"] == {"unschedulable": True}


@pytest.mark.parametrize("is_restarted", [False, True], ids=["while followed", "while nobody followed"])
def test_a_restored_cluster_that_has_gone_on_is_reported_by_objects_that_went_back(
    database: Database, is_restarted: bool
) -> None:
    """Its versions are larger than all that is known; those of objects that nobody wrote since are not."""
    cluster = GivenCluster()
    cluster.put("Node", node("n1"))
    cluster.put("Node", node("n3"))
    backup, version = dict(cluster.objects), cluster.head
    cluster.put("Node", {**node("n1"), "spec": {"unschedulable": True}})
    cluster.put("Node", node("n2"))
    cluster.drop("Node", "n3")
    observer = ClusterObserver(database, cluster)
    settle(observer)
    cluster.restore(backup, version)
    for name in ("a", "b", "c", "d", "e", "f"):
        cluster.put("Namespace", {"metadata": {"name": name}})
    if is_restarted:
        observer = ClusterObserver(database, cluster)
    settle_often(observer)
    (told,) = events(database, "ClusterRestored")
    assert told["kind"] == "Node"
    assert told["before"] > told["after"]
    assert set(known(database, "Node")) == {"n1", "n3"}
    assert known(database, "Node")["n1"]["spec"] == {}
    cluster.put("Node", {**node("n1"), "spec": {"unschedulable": True}})
    settle(observer, NOW + 10 * SECOND)
    assert known(database, "Node")["n1"]["spec"] == {"unschedulable": True}


def test_a_list_that_is_behind_once_is_no_restored_cluster(database: Database) -> None:
    cluster = GivenCluster()
    cluster.put("Node", node("n1"))
    before = dict(cluster.objects)
    cluster.put("Node", {**node("n1"), "spec": {"unschedulable": True}})
    now = dict(cluster.objects)
    observer = ClusterObserver(database, cluster)
    settle(observer)
    cluster.objects, cluster.expired = before, {"Node"}
    observer.step(NOW + SECOND)
    observer.step(NOW + SECOND)
    cluster.objects = now
    settle_often(observer)
    assert not events(database, "ClusterRestored")
    assert known(database, "Node")["n1"]["spec"] == {"unschedulable": True}


def test_another_cluster_is_refused_and_nothing_is_changed(database: Database) -> None:
    cluster = GivenCluster()
    cluster.put("Node", node("n1"))
    settle(ClusterObserver(database, cluster))
    before = head(database)
    other = GivenCluster(uid="cluster-2")
    with pytest.raises(WrongClusterError, match=r"cluster-1.*cluster-2.*--context"):
        ClusterObserver(database, other).step(NOW)
    assert head(database) == before
    # Also where it takes the place of the one that is followed.
    observer = ClusterObserver(database, cluster)
    settle(observer)
    cluster.uid = "cluster-3"
    cluster.restore({}, 0)
    with pytest.raises(WrongClusterError, match="cluster-3"):
        settle_often(observer)
    assert set(known(database, "Node")) == {"n1"}


@pytest.mark.parametrize("version", [0, 1_000_000], ids=["a young one", "one with larger versions"])
def test_nothing_of_a_cluster_that_took_the_place_of_ours_is_recorded(database: Database, version: int) -> None:
    cluster = GivenCluster()
    cluster.put("Node", node("n1"))
    observer = ClusterObserver(database, cluster)
    settle(observer)
    cluster.uid, before = "cluster-2", head(database)
    cluster.restore({}, version)
    cluster.put("Node", node("theirs"))
    cluster.expired = {"Node"}
    with pytest.raises(WrongClusterError, match="cluster-2"):
        settle_often(observer)
    assert set(known(database, "Node")) == {"n1"}
    assert head(database) == before


def test_nothing_is_listed_while_nobody_says_which_cluster_it_is(database: Database) -> None:
    cluster = GivenCluster()
    cluster.put("Node", node("n1"))
    observer = ClusterObserver(database, cluster)
    settle(observer)
    cluster.put("Node", node("n2"))
    cluster.told = []
    cluster.expired, cluster.reachable = {"Node"}, False
    settle_often(observer)
    assert set(known(database, "Node")) == {"n1"}
    cluster.reachable = True
    settle_often(observer)
    assert set(known(database, "Node")) == {"n1", "n2"}


def test_trouble_that_lasts_is_reported_once_and_so_is_its_end(
    sqlite: Database, caplog: pytest.LogCaptureFixture
) -> None:
    cluster, trouble = GivenCluster(), list[str]()
    observer = ClusterObserver(sqlite, cluster, trouble=lambda: trouble[0] if trouble else None)
    settle(observer)
    for second in range(0, 60, 5):
        trouble[:] = ["put a new token into context"] if 10 <= second < 40 or second == 50 else []
        observer.step(NOW + second * SECOND)
    assert [it.getMessage().partition(" (")[0] for it in caplog.records] == [
        "put a new token into context",
        "the cluster answers again",
    ]


def test_a_watch_that_never_opens_is_no_word_of_its_kind(database: Database) -> None:
    """The list was one; nothing since."""
    cluster, silent = GivenCluster(), dict[str, float | None]()
    cluster.put("Node", node("n1"))
    observer = ClusterObserver(database, cluster, silence=lambda: silent)
    silent |= {"Pod": None, "Node": 20.0}
    settle(observer)
    settle(observer, NOW + 600 * SECOND)
    with database.read() as connection:
        heard = known_cursors(connection)
    assert heard["Pod"].heard_at == NOW
    assert heard["Node"].heard_at == NOW + 580 * SECOND
    cluster.expired = {"Pod"}
    settle(observer, NOW + 700 * SECOND)
    assert events(database, "MirrorGap")[-1]["since"] == NOW


def test_what_cannot_be_stored_is_reported_once_and_the_rest_is_kept(
    database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    cluster = GivenCluster()
    cluster.put("Node", node("n1", allocatable={"cpu": 2**70}))
    cluster.put("Node", node("n2"))
    observer = ClusterObserver(database, cluster)
    settle(observer)
    cluster.expired = {"Node"}
    settle(observer, NOW + SECOND)
    assert set(known(database, "Node")) == {"n2"}
    (record,) = caplog.records
    assert record.getMessage().startswith("node/n1 is left out until it changes, because it cannot be stored: ")


def test_the_clusters_own_words_are_kept_where_they_say_why(database: Database) -> None:
    cluster = GivenCluster()
    about = {"kind": "Pod", "namespace": "shop", "name": "db"}
    for name, reason in (("e1", "FailedScheduling"), ("e2", "Pulled")):
        names = {"namespace": "shop", "name": name}
        cluster.put(
            "Event", {"metadata": names, "involvedObject": about, "reason": reason, "message": "0/3", "count": 1}
        )
    settle(ClusterObserver(database, cluster))
    assert set(known(database, "Event")) == {"shop/e1"}


def test_what_was_not_what_the_cluster_had_is_reported_and_listed_again(database: Database) -> None:
    cluster = GivenCluster()
    cluster.put("Node", node("n1"))
    cluster.put("Node", node("n2"))
    observer = ClusterObserver(database, cluster, list_versions=cluster.versions)
    settle(observer)
    # A change that no watch ever tells.
    cluster.put("Node", {**node("n1"), "spec": {"unschedulable": True}})
    cluster.drop("Node", "n2")
    cluster.told = []
    now = NOW + 3_600 * SECOND
    for _ in range(40):
        now += 10 * SECOND
        settle(observer, now)
    drift = events(database, "MirrorDrift")
    assert [(it["kind"], it["stale"], it["left_over"]) for it in drift] == [("Node", ["n1"], ["n2"])]
    with database.read() as connection:
        assert drifted_kinds(connection) == ["Node"]
    assert set(known(database, "Node")) == {"n1"}
    assert known(database, "Node")["n1"]["spec"] == {"unschedulable": True}
