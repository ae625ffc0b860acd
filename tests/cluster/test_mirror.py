"""Our views become what the foreign cluster has, whatever is written there and however badly it is told."""

import shutil
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.extent import extended, extent
from tests.support.foreign import change, follow, in_cluster, in_views, simulated, types_of
from tests.support.port_manifests import claim, node, pod, volume
from tests.support.store_samples import NOW
from volsched.cluster.foreign_api import ForeignApi
from volsched.cluster.mirror import Mirror, MirrorProgress
from volsched.cluster.port import (
    NOTHING_KNOWN,
    ClusterError,
    Cursors,
    KnownVersions,
    ListPage,
    Manifest,
    PortChange,
    Watched,
)
from volsched.cluster.simulated import Call, ClusterFaults, Fate, SimulatedCluster
from volsched.kube.patches import merged
from volsched.log.database import Database, open_database
from volsched.log.events.streams import KIND_OF_NOUN, noun_and_key
from volsched.log.integrity.verify import verify
from volsched.log.migrations import migrate
from volsched.log.reads.tail import fold_event, tail
from volsched.objects.observations import Fact, record_fact

NAMES = ("a", "b", "c")
MAKERS: dict[str, Callable[[str], dict[str, Any]]] = {
    "Node": node,
    "PersistentVolume": volume,
    "PersistentVolumeClaim": claim,
    "Pod": pod,
}


def write_at_random(api: ForeignApi, random: Random) -> None:
    """One write by somebody else; one that is refused is none."""
    kind, name = random.choice(sorted(MAKERS)), random.choice(NAMES)
    key = name if kind in ("Node", "PersistentVolume") else f"db/{name}"
    found = api.get(kind, key)
    try:
        match random.choice(("create", "label", "status", "delete", "finalize", "forget")):
            case "create":
                api.create(kind, MAKERS[kind](name))
            case "label" if found is not None:
                change(api, kind, key, {"metadata": {"labels": {"n": random.choice(("1", "2", None))}}})
            case "status" if found is not None:
                change(api, kind, key, {"status": {"message": str(random.random()), "reason": None}}, status=True)
            case "delete":
                api.delete(kind, key)
            case "finalize" if found is not None:
                change(api, kind, key, {"metadata": {"finalizers": None}})
            case "forget":
                if random.random() < 0.2:
                    api.forget_history()
    except ClusterError:
        return


def stored_versions(database: Database) -> Iterator[tuple[str, list[int]]]:
    """For every object the cluster's versions, in the order in which our log tells them."""
    states: dict[str, Any] = {}
    told: dict[str, list[int]] = {}
    with database.read() as connection:
        for it in tail(connection, after=0, limit=100_000):
            if noun_and_key(it.stream)[0] not in KIND_OF_NOUN:
                continue
            state = fold_event(states.get(it.stream), it.position, it.version, it.type, it.schema, it.at, it.data)
            states[it.stream] = state
            if getattr(state, "manifest", None) is not None:
                told.setdefault(it.stream, []).append(int(state.manifest["metadata"]["resourceVersion"]))
    yield from told.items()


def live_through(database: Database, seed: int, faults: ClusterFaults, writes: int) -> None:
    random = Random(seed)
    cluster = simulated(seed=seed)
    cluster.faults = faults
    mirror = Mirror(database, cluster, batch=random.choice((1, 3, 200)))
    for turn in range(writes):
        write_at_random(cluster.api, random)
        if random.random() < 0.5:
            mirror.step(NOW + turn)
        if random.random() < 0.05:
            mirror = Mirror(database, cluster)
    follow(mirror, cluster, now=NOW + writes, at_most=writes + 50)
    assert in_views(database) == in_cluster(cluster.api)
    for stream, versions in stored_versions(database):
        assert versions == sorted(set(versions)), f"{stream} was told something old, or twice"
    assert verify(database).ok


BAD_LINE = ClusterFaults(failed=0.1, lag=2, repeated=0.3, coalesced=0.3, expired=0.1)


@pytest.mark.parametrize("seed", range(3))
def test_views_equal_the_cluster_after_any_writes_over_a_bad_line(database: Database, seed: int) -> None:
    live_through(database, seed, BAD_LINE, writes=60)


@pytest.fixture(scope="module")
def stores() -> Iterator[Callable[[], Database]]:
    """A new, empty store for every example: copying a migrated file is much faster than migrating."""
    with TemporaryDirectory() as directory:
        template = Path(directory) / "template.db"
        database = open_database(f"sqlite:///{template}")
        migrate(database)
        database.close()

        numbers = count(1)

        def new() -> Database:
            path = template.with_name(f"{next(numbers)}.db")
            shutil.copy(template, path)
            return open_database(f"sqlite:///{path}")

        yield new


CHANCES = st.sampled_from([0, 0.2, 0.6])


@extended
@settings(max_examples=extent(25, 60), deadline=None)
@given(
    seed=st.integers(0, 2**32),
    writes=st.integers(1, 40),
    faults=st.builds(
        ClusterFaults,
        failed=st.sampled_from([0, 0.2]),
        lag=st.integers(0, 4),
        repeated=CHANCES,
        coalesced=CHANCES,
        expired=st.sampled_from([0, 0.2]),
    ),
)
def test_views_equal_the_cluster_whatever_the_faults(
    stores: Callable[[], Database], seed: int, writes: int, faults: ClusterFaults
) -> None:
    database = stores()
    live_through(database, seed, faults, writes)
    database.close()


@pytest.fixture
def cluster() -> SimulatedCluster:
    return simulated()


@pytest.fixture
def mirror(database: Database, cluster: SimulatedCluster) -> Mirror:
    return Mirror(database, cluster)


def test_a_start_lists_what_is_there_and_a_restart_writes_nothing_that_is_known(
    database: Database, cluster: SimulatedCluster, mirror: Mirror
) -> None:
    cluster.api.create("Node", node())
    cluster.api.create("PersistentVolume", volume())
    assert mirror.step(NOW) == MirrorProgress(observed=2, relisted=True)
    assert mirror.step(NOW) == MirrorProgress()
    assert Mirror(database, cluster).step(NOW) == MirrorProgress(observed=0, relisted=True)
    assert types_of(database, "node/n1") == ["NodeCreated"]


def test_every_change_is_one_event_that_says_what_changed(
    database: Database, cluster: SimulatedCluster, mirror: Mirror
) -> None:
    cluster.api.create("Node", node())
    mirror.step(NOW)
    change(cluster.api, "Node", "n1", {"metadata": {"labels": {"zone": "b"}}})
    assert mirror.step(NOW) == MirrorProgress(observed=1)
    with database.read() as connection:
        changed = tail(connection, after=1, limit=10)
    assert [it.data for it in changed] == ['{"patch":{"metadata":{"labels":{"zone":"b"},"resourceVersion":"2"}}}']
    assert changed[0].actor == "mirror"


def test_a_name_that_was_used_again_unseen_is_a_deletion_and_a_creation(
    database: Database, cluster: SimulatedCluster, mirror: Mirror
) -> None:
    cluster.api.create("Node", node())
    mirror.step(NOW)
    cluster.faults = ClusterFaults(coalesced=1)
    cluster.api.delete("Node", "n1")
    cluster.api.create("Node", node())
    mirror.step(NOW)
    assert types_of(database, "node/n1") == ["NodeCreated", "NodeDeleted", "NodeCreated"]
    assert in_views(database) == in_cluster(cluster.api)


def test_a_deletion_that_no_watch_told_is_found_by_listing(
    database: Database, cluster: SimulatedCluster, mirror: Mirror
) -> None:
    cluster.api.create("Node", node("n1"))
    cluster.api.create("Node", node("n2"))
    mirror.step(NOW)
    cluster.api.delete("Node", "n1")
    cluster.api.forget_history()
    follow(mirror, cluster, now=NOW)
    assert list(in_views(database)) == ["Node  n2"]


def test_an_object_that_is_gone_does_not_come_back_by_being_told_again(
    database: Database, cluster: SimulatedCluster, mirror: Mirror
) -> None:
    mirror.step(NOW)
    cluster.api.create("Node", node())
    mirror.step(NOW)
    cluster.api.delete("Node", "n1")
    mirror.step(NOW)
    cluster.faults = ClusterFaults(repeated=1)
    for _ in range(20):
        mirror.step(NOW)
    assert types_of(database, "node/n1") == ["NodeCreated", "NodeDeleted"]


def test_a_deletion_that_is_reported_again_does_not_delete_the_next_object_of_that_name(
    database: Database, cluster: SimulatedCluster, mirror: Mirror
) -> None:
    mirror.step(NOW)
    cluster.api.create("Node", node())
    cluster.api.delete("Node", "n1")
    cluster.api.create("Node", node())
    mirror.step(NOW)
    cluster.faults = ClusterFaults(repeated=1)
    for _ in range(20):
        mirror.step(NOW)
    assert types_of(database, "node/n1") == ["NodeCreated", "NodeDeleted", "NodeCreated"]


def test_what_was_deleted_while_others_were_being_listed_does_not_come_back(
    database: Database, cluster: SimulatedCluster, mirror: Mirror
) -> None:
    def delete_late(call: Any) -> None:
        if call.verb == "list" and call.kind == "PersistentVolume":
            cluster.api.create("PersistentVolume", volume())
            change(cluster.api, "PersistentVolume", "pv", {"metadata": {"finalizers": None}})
            cluster.api.delete("PersistentVolume", "pv")

    cluster.before = delete_late
    mirror.step(NOW)
    mirror.step(NOW)
    assert types_of(database, "volume/pv") == []


def test_only_the_kind_that_expired_is_listed_again(
    database: Database, cluster: SimulatedCluster, mirror: Mirror
) -> None:
    mirror.step(NOW)
    cluster.api.create("Node", node())
    cluster.api.create("PersistentVolume", volume())
    cluster.api.forget_history("Node")
    cluster.calls.clear()
    follow(mirror, cluster, now=NOW)
    assert [call.kind for call in cluster.calls if call.verb == "list"] == ["Node"]
    assert in_views(database) == in_cluster(cluster.api)


def test_a_list_that_breaks_off_deletes_nothing_and_the_other_kinds_stay_known(
    database: Database, cluster: SimulatedCluster, mirror: Mirror
) -> None:
    cluster.api.create("Node", node())
    cluster.api.create("Pod", pod())
    mirror.step(NOW)
    restarted = Mirror(database, cluster)
    cluster.before = lambda call: Fate.FAILED if call == Call("list", "Pod", "") else None
    assert restarted.step(NOW).unanswered is not None
    assert in_views(database) == in_cluster(cluster.api)
    cluster.before = None
    cluster.calls.clear()
    restarted.step(NOW)
    assert "Node" not in [call.kind for call in cluster.calls if call.verb == "list"]


class NodesElsewhere:
    """The cluster, with its nodes in another store whose versions are far ahead of all others."""

    AHEAD = 1_000_000

    def __init__(self, cluster: SimulatedCluster) -> None:
        self.cluster, self.capabilities = cluster, cluster.capabilities

    def list(self, kind: str, known: KnownVersions = NOTHING_KNOWN) -> Iterator[ListPage]:  # noqa: ARG002
        for page in self.cluster.list(kind):
            objects = tuple(self._shifted(kind, manifest, self.AHEAD) for manifest in page.objects)
            yield ListPage(objects, None if page.cursor is None else self._version(kind, page.cursor, self.AHEAD))

    def watch(self, cursors: Cursors, *, limit: int = 1_000) -> Watched:
        known = {kind: self._version(kind, cursor, -self.AHEAD) for kind, cursor in cursors.items()}
        watched = self.cluster.watch(known, limit=limit)
        changes = tuple(
            PortChange(
                it.kind,
                it.key,
                None if it.manifest is None else self._shifted(it.kind, it.manifest, self.AHEAD),
                self._version(it.kind, it.version, self.AHEAD),
            )
            for it in watched.changes
        )
        ahead = {kind: self._version(kind, cursor, self.AHEAD) for kind, cursor in watched.cursors.items()}
        return Watched(changes, ahead)

    def _version(self, kind: str, version: str, by: int) -> str:
        return str(int(version) + by) if kind == "Node" else version

    def _shifted(self, kind: str, manifest: Manifest, by: int) -> Manifest:
        version = self._version(kind, manifest["metadata"]["resourceVersion"], by)
        return merged(manifest, {"metadata": {"resourceVersion": version}})


@pytest.mark.parametrize("seed", range(3))
def test_kinds_that_are_numbered_by_different_stores_are_followed_each_by_its_own_versions(
    database: Database, seed: int
) -> None:
    random, cluster = Random(seed), simulated(seed=seed)
    cluster.faults = BAD_LINE
    mirror = Mirror(database, NodesElsewhere(cluster), batch=3)  # type: ignore[arg-type]
    for turn in range(60):
        write_at_random(cluster.api, random)
        mirror.step(NOW + turn)
    follow(mirror, cluster, now=NOW + 60, at_most=110)
    there = in_cluster(cluster.api)
    assert in_views(database).keys() == there.keys()
    for name, manifest in in_views(database).items():
        ahead = NodesElsewhere.AHEAD if name.startswith("Node ") else 0
        version = int(there[name]["metadata"]["resourceVersion"]) + ahead
        assert manifest == merged(there[name], {"metadata": {"resourceVersion": str(version)}})


def test_a_silent_cluster_is_asked_again_from_the_same_place(
    database: Database, cluster: SimulatedCluster, mirror: Mirror
) -> None:
    mirror.step(NOW)
    cluster.api.create("Node", node())
    cluster.before = lambda _: Fate.LOST
    assert not mirror.step(NOW)
    assert mirror.step(NOW).unanswered is not None
    cluster.before = None
    assert mirror.step(NOW) == MirrorProgress(observed=1)
    assert in_views(database) == in_cluster(cluster.api)


def test_an_object_that_cannot_be_stored_is_named_and_the_others_go_on(
    database: Database, cluster: SimulatedCluster, mirror: Mirror
) -> None:
    too_large = {**node("large"), "spec": {"unknown": 2**70}}
    cluster.api.create("Node", too_large)
    cluster.api.create("Node", node("n1"))
    progress = mirror.step(NOW)
    assert (progress.observed, list(progress.refused)) == (1, ["node/large"])
    assert list(in_views(database)) == ["Node  n1"]


def test_fields_that_are_null_are_fields_that_are_not_there() -> None:
    told = pod()
    told["spec"] |= {"hostname": None, "containers": [{"name": "main", "image": None}]}
    (event,) = record_fact(Fact("Pod", "db/app", told, 7), actor="mirror").decide({}).events
    assert event.data["patch"]["spec"] == {"containers": [{"name": "main"}], "volumes": []}


def test_two_mirrors_of_one_cluster_write_every_change_once(database: Database, cluster: SimulatedCluster) -> None:
    first, second = Mirror(database, cluster), Mirror(database, cluster)
    for turn in range(4):
        cluster.api.create("Node", node(f"n{turn}"))
        first.step(NOW)
        second.step(NOW)
    cluster.api.delete("Node", "n0")
    second.step(NOW)
    first.step(NOW)
    assert types_of(database, "node/n0") == ["NodeCreated", "NodeDeleted"]
    assert types_of(database, "node/n3") == ["NodeCreated"]
