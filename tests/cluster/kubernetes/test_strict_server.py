"""The adapter and the mirror against our own API, strict: over HTTP, with everything that goes wrong there."""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import httpx
import pytest

from tests.cluster.conftest import WATCHED, over_http
from tests.support.foreign import in_views, types_of
from tests.support.patience import wait_until
from tests.support.port_manifests import claim, node, pod, volume
from tests.support.serving import Served, served, strict_cluster
from tests.support.store_samples import NOW
from volsched.api.strict.server import FAULTS_PATH, WINDOW
from volsched.cluster.kubernetes.adapter import KubernetesCluster
from volsched.cluster.mirror import Mirror
from volsched.cluster.port import ExpiredError, Manifest, UnansweredError, whole
from volsched.kube.kinds import key_of
from volsched.log.database import Database

NODE, VOLUME = "Node", "PersistentVolume"
SILENT_SECONDS = 0.5


@dataclass
class Strict:
    running: Served
    cluster: KubernetesCluster

    def arm(self, fault: str, **options: Any) -> None:
        answer = self.running.http.post(FAULTS_PATH, json={"fault": fault, **options})
        assert answer.status_code == 201, answer.text


@pytest.fixture
def strict() -> Iterator[Strict]:
    """On a store of its own: what is mirrored goes to another."""
    with strict_cluster() as running, over_http(running.url) as cluster:
        running.namespace("db")
        yield Strict(running, cluster)


@pytest.fixture
def impatient(strict: Strict) -> Iterator[Strict]:
    """Takes a line that was silent for half a second for a dead one, and so has to ask again on a busy machine."""
    with over_http(strict.running.url, silent_seconds=SILENT_SECONDS) as cluster:
        yield Strict(strict.running, cluster)


def cursor(strict: Strict, kind: str = NODE) -> str:
    return whole(strict.cluster.list(kind)).cursor


def follow(strict: Strict, after: str, *keys: str) -> list[str]:
    """What is told of nodes after the cursor, until all these have come."""
    known, told = {NODE: after}, list[str]()

    def has_come() -> bool:
        watched = strict.cluster.watch(known)
        known.update(watched.cursors)
        told.extend(change.key for change in watched.changes)
        return set(told) >= set(keys)

    wait_until(has_come, progress=lambda: len(told))
    return told


def test_a_cursor_behind_the_window_of_its_kind_is_expired_inside_a_200(strict: Strict) -> None:
    after = {NODE: cursor(strict), VOLUME: cursor(strict, VOLUME)}
    for number in range(WINDOW + 60):
        strict.cluster.create(NODE, node(f"n{number}"))
    strict.cluster.create(VOLUME, volume())

    def expired() -> None:
        wait_until(lambda: strict.cluster.watch({NODE: after[NODE]}) and False)

    with pytest.raises(ExpiredError) as caught:
        expired()
    assert caught.value.kind == NODE
    # Other kinds have windows of their own, and go on from where they were.
    wait_until(lambda: [it.key for it in strict.cluster.watch({VOLUME: after[VOLUME]}).changes] == ["pv"])


def test_a_cursor_from_the_future_is_silence(strict: Strict) -> None:
    query = {"watch": "1", "resourceVersion": "1000000", "timeoutSeconds": "1"}
    answer = strict.running.http.get("/api/v1/nodes", params=query)
    assert (answer.status_code, answer.text) == (200, "")


@pytest.mark.parametrize("fault", ["silent-watch", "cut-watch", "slow-watch", "too-many-requests"])
def test_a_watch_that_goes_wrong_tells_everything_once_and_in_order(
    strict: Strict, impatient: Strict, fault: str
) -> None:
    after = cursor(strict)
    strict.arm(fault, resource="nodes", seconds=0.2)
    assert impatient.cluster.watch({NODE: after}).changes == ()
    wait_until(lambda: strict.running.http.get(FAULTS_PATH).json() == [])
    names = [f"n{number}" for number in range(5)]
    for name in names:
        strict.running.create(node(name))
    assert follow(impatient, after, *names) == names


def test_a_cut_also_breaks_a_watch_that_is_open(strict: Strict) -> None:
    after = cursor(strict)
    strict.running.create(node("first"))
    follow(strict, after, "first")
    strict.arm("cut-watch", resource="nodes")
    strict.running.create(node("second"))
    assert follow(strict, after, "first", "second") == ["first", "second"]
    assert strict.running.http.get(FAULTS_PATH).json() == []


def test_lists_fall_back_to_pages_and_expired_pages_are_begun_again(strict: Strict) -> None:
    strict.arm("no-streamed-lists", times=100)
    strict.running.create(node())
    assert [it["metadata"]["name"] for it in whole(strict.cluster.list(NODE)).objects] == ["n1"]
    assert strict.cluster.lists.streams is False
    query = {"limit": "1", "continue": "x"}
    strict.arm("expired-page")
    answer = strict.running.http.get("/api/v1/nodes", params=query)
    assert (answer.status_code, answer.json()["metadata"]) == (410, {"continue": "inconsistent"})


def test_a_replica_that_lags_is_asked_again(strict: Strict) -> None:
    strict.running.create(node())
    strict.arm("lagging-replica")
    assert strict.cluster.get(NODE, "n1") is not None


def test_a_list_of_a_replica_that_is_behind_is_no_restored_cluster(strict: Strict, database: Database) -> None:
    strict.cluster.lists.streams = False
    mirror = Mirror(database, strict.cluster, kinds=(NODE,))
    for number in range(15):
        strict.running.create(node(f"n{number}"))
    mirror.step(NOW)
    strict.cluster.delete(NODE, "n0")

    def is_gone() -> bool:
        mirror.step(NOW)
        return f"{NODE}  n0" not in in_views(database)

    wait_until(is_gone)
    before = in_views(database)
    strict.arm("stale-list", resource="nodes")
    mirror.list_again(NODE, "to see an older one")
    assert "listing again" in (mirror.step(NOW).unanswered or "")
    progress = mirror.step(NOW)
    assert (progress.unanswered, progress.restored) == (None, None)
    assert in_views(database) == before
    assert types_of(database, "node/n0") == ["NodeCreated", "NodeDeleted"]


def test_the_state_of_data_is_no_field_of_a_real_server(strict: Strict) -> None:
    strict.cluster.create("PersistentVolumeClaim", claim())
    made = strict.cluster.get("PersistentVolumeClaim", "db/data")
    assert made is not None
    told = {"status": {"dataState": "Clean", "phase": "Pending"}}
    strict.cluster.patch("PersistentVolumeClaim", "db/data", told, version=version(made), status=True)
    found = strict.cluster.get("PersistentVolumeClaim", "db/data") or {}
    assert found["status"] == {"phase": "Pending"}


def test_a_limit_is_reported_with_its_wait_and_nothing_is_carried_out(strict: Strict) -> None:
    strict.arm("too-many-requests", seconds=7)
    with pytest.raises(UnansweredError) as caught:
        strict.cluster.create(NODE, node())
    assert caught.value.retry_after == 7
    assert strict.cluster.get(NODE, "n1") is None


def test_an_answer_that_is_lost_leaves_its_write(strict: Strict) -> None:
    strict.arm("lost-answer")
    with pytest.raises(UnansweredError):
        strict.cluster.create(NODE, node())
    assert strict.cluster.get(NODE, "n1") is not None


def test_a_late_write_lands_unless_its_version_has_moved(strict: Strict) -> None:
    made = {name: strict.cluster.create(VOLUME, volume(name)) for name in ("left", "fenced")}
    for name, manifest in made.items():
        strict.arm("late-write", seconds=0.5)
        with pytest.raises(UnansweredError):
            strict.cluster.patch(
                VOLUME, name, {"metadata": {"labels": {"late": "yes"}}}, version=version(manifest)
            )
    fence = {"metadata": {"annotations": {"volsched.io/fence": "1"}}}
    strict.cluster.patch(VOLUME, "fenced", fence, version=version(made["fenced"]))
    wait_until(lambda: (strict.cluster.get(VOLUME, "left") or {})["metadata"].get("labels") == {"late": "yes"})
    assert "labels" not in (strict.cluster.get(VOLUME, "fenced") or {})["metadata"]


def version(manifest: Manifest) -> str:
    found: str = manifest["metadata"]["resourceVersion"]
    return found


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"{}", "fault must be one of"),
        (b'{"fault": "cut-watch", "times": 0}', "times must be"),
        (b'{"fault": "cut-watch", "seconds": -1}', "seconds must be"),
        (b"nonsense", ""),
    ],
)
def test_what_is_no_fault_is_refused_by_name(strict: Strict, body: bytes, words: str) -> None:
    answer = strict.running.http.post(FAULTS_PATH, content=body)
    assert answer.status_code == 422
    assert words in answer.text


def test_faults_that_have_not_happened_yet_are_reported(strict: Strict) -> None:
    strict.arm("silent-watch", resource="pods", times=2)
    told = [{"fault": "silent-watch", "resource": "pods", "times": 2, "seconds": 1.0}]
    assert strict.running.http.get(FAULTS_PATH).json() == told


def test_without_strict_nobody_orders_faults(sqlite: Database) -> None:
    with served(sqlite) as running:
        assert running.http.post(FAULTS_PATH, json={"fault": "cut-watch"}).status_code == 404


def test_a_mirror_of_a_strict_server_equals_it_whatever_goes_wrong(
    strict: Strict, impatient: Strict, database: Database
) -> None:
    mirror = Mirror(database, impatient.cluster, kinds=WATCHED)

    def look() -> None:
        with suppress(UnansweredError):
            mirror.step(NOW)

    faults = ("cut-watch", "silent-watch", "too-many-requests", "lagging-replica", "slow-watch")
    for round_, fault in enumerate(faults):
        strict.arm(fault, times=2, seconds=0.1)
        for number in range(40):
            insist(strict.running.http, "POST", "/api/v1/nodes", json=node(f"n{round_}-{number}"))
        insist(strict.running.http, "DELETE", f"/api/v1/nodes/n{round_}-0")
        look()

    def equal() -> bool:
        look()
        return in_views(database) == in_server(strict.running.http)

    assert len(in_server(strict.running.http)) == len(faults) * 39
    wait_until(equal, progress=lambda: len(in_views(database)))


def insist(http: httpx.Client, method: str, path: str, **content: Any) -> Any:
    """Until it is served: a fault may happen to this client too."""
    while (answer := http.request(method, path, **content)).status_code in (429, 504):
        continue
    assert answer.is_success, answer.text
    return answer.json()


def in_server(http: httpx.Client) -> dict[str, Any]:
    items = insist(http, "GET", "/api/v1/nodes")["items"]
    named = {"apiVersion": "v1", "kind": NODE}
    return {f"{NODE}  {key_of(NODE, item)}": {**named, **item} for item in items}


def test_whoever_follows_is_woken_for_a_pod_without_a_node_and_for_a_claim_and_not_for_the_rest(
    strict: Strict,
) -> None:
    """The rest is seen with the next look: a large cluster has hundreds of changes a second."""
    after = {kind: cursor(strict, kind) for kind in WATCHED}
    woken: list[int] = []
    strict.cluster.wake_on_news(lambda: woken.append(1))
    strict.cluster.watch(after)

    def wakes(kind: str, manifest: Manifest) -> int:
        """How often, until the change has come."""
        before = len(woken)
        strict.cluster.create(kind, manifest)
        known, told = after, list[str]()

        def has_come() -> bool:
            watched = strict.cluster.watch(known)
            known.update(watched.cursors)
            told.extend(change.kind for change in watched.changes)
            return kind in told

        wait_until(has_come)
        return len(woken) - before

    placed = pod("placed")
    assert wakes(NODE, node("n1")) == 0
    assert wakes(VOLUME, volume()) == 0
    assert wakes("Pod", {**placed, "spec": {**placed["spec"], "nodeName": "n1"}}) == 0
    # A change is queued a moment before it wakes anybody.
    wakes("Pod", pod("waiting"))
    wait_until(lambda: len(woken) == 1)
    wakes("PersistentVolumeClaim", claim())
    wait_until(lambda: len(woken) == 2)
