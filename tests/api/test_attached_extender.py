"""The extender of a process that follows a real cluster: its pods by uid, binds in own mode, advice in any."""

import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.api.kube_scheduler import Config, ExtenderError, Scheduler, name_of, validate
from tests.conftest import unsynced
from tests.support.attached_cluster import Attached, attached
from tests.support.clusters import LOCAL, claim, node, pod, volume
from tests.support.patience import HANG_SECONDS
from tests.support.serving import Served, served
from volsched.log.database import Database, open_database
from volsched.scheduling.rules.reasons import NO_VOLUME_TO_BIND
from volsched.scheduling.scheduler import ATTACHED

ROOT = Path(__file__).parents[2]
KNOWN_FIELDS = {
    "urlPrefix", "filterVerb", "preemptVerb", "prioritizeVerb", "weight", "bindVerb", "enableHTTPS", "tlsConfig",
    "httpTimeout", "nodeCacheCapable", "managedResources", "ignorable",
}  # fmt: skip
"""Of an extender; kube-scheduler ends where there is another."""

Manifest = dict[str, Any]


def theirs(name: str, *claims: str) -> Manifest:
    """A pod of kube-scheduler."""
    made = pod(name, *claims)
    return {**made, "spec": {**made["spec"], "schedulerName": "with-volsched"}}


@pytest.fixture
def own(tmp_path: Path, migrated_file: Path, sqlite: Database) -> Iterator[Attached]:
    """n1 has one disk for each of two claims, n2 has only the small one."""
    cluster = open_database(f"sqlite:///{shutil.copyfile(migrated_file, tmp_path / 'theirs.db')}")
    unsynced(cluster)
    with served(cluster, strict=True) as running, attached(running, sqlite) as it:
        it.create(LOCAL, node("n1"), node("n2"), claim("data", "1Gi"), claim("logs", "5Gi"))
        it.create(volume("small-1", "2Gi", "n1"), volume("large-1", "10Gi", "n1"), volume("small-2", "2Gi", "n2"))

        def is_known() -> bool:
            known = it.system.picture.index.snapshot
            volumes = [known.volume(name) for name in ("small-1", "large-1", "small-2")]
            return all(held is not None and held.phase == "Available" for held in volumes)

        it.until(is_known)
        yield it
    cluster.close()


def config(api: Served, *, ignorable: bool = False, **verbs: str) -> Config:
    return Config(
        url_prefix=f"{api.url}/extender",
        filter_verb="filter",
        prioritize_verb="prioritize",
        weight=1,
        node_cache_capable=True,
        ignorable=ignorable,
        http_timeout=HANG_SECONDS,
        **verbs,
    )


def nodes(own: Attached) -> list[Manifest]:
    return list(own.running.http.get("/api/v1/nodes").json()["items"])


def test_bind_binds_the_claims_and_the_pod_of_the_real_cluster(own: Attached, sqlite: Database) -> None:
    with served(sqlite, follows=True) as api, ThreadPoolExecutor() as threads:
        (wanting,) = own.running.create(theirs("db", "data", "logs"))
        # kube-scheduler has seen a version that we have not: whoever is meant is said by the uid.
        shown = {**wanting, "metadata": {**wanting["metadata"], "resourceVersion": "999999"}}
        scheduler = Scheduler([config(api, bind_verb="bind")])
        own.until(lambda: "default/db" in own.system.picture.index.snapshot.pods)
        found = scheduler.filter(shown, nodes(own))
        assert [*map(name_of, found.nodes)] == ["n1"]
        assert found.unresolvable == {"n2": NO_VOLUME_TO_BIND}
        bound = threads.submit(scheduler.bind, shown, "n1")

        def is_done() -> bool:
            own.controller.bind()
            return bound.done()

        own.until(is_done)
        assert bound.result() is True
        assert own.node_of("db") == "n1"
        assert (own.given_to("small-1"), own.given_to("large-1")) == ("data", "logs")
        # kube-scheduler nominates nobody where VolumeBinding is off, so we do, and take it back.
        assert own.sent[0] == 'patch Pod "default/db"'
        assert "nominatedNodeName" not in own.pod("db")["status"]


def test_bind_waits_for_a_pod_that_is_not_heard_of_yet_and_refuses_another_one(
    own: Attached, sqlite: Database
) -> None:
    with served(sqlite, follows=True) as api, ThreadPoolExecutor() as threads:
        scheduler = Scheduler([config(api, bind_verb="bind")])
        (wanting,) = own.running.create(theirs("db", "data"))
        bound = threads.submit(scheduler.bind, wanting, "n2")

        def is_done() -> bool:
            own.controller.bind()
            return bound.done()

        own.until(is_done)
        assert bound.result() is True
        assert own.node_of("db") == "n2"
        other = {**wanting, "metadata": {**wanting["metadata"], "uid": "another"}}
        with pytest.raises(ExtenderError, match="it is another pod"):
            scheduler.bind(other, "n2")


def test_a_failed_bind_is_an_error_and_leaves_nothing_behind(own: Attached, sqlite: Database) -> None:
    """kube-scheduler puts the pod back and asks again; without `ignorable` the default binder does not go on."""
    with served(sqlite, follows=True) as api, ThreadPoolExecutor() as threads:
        (wanting,) = own.running.create(theirs("db", "data", "logs"))
        own.until(lambda: "default/db" in own.system.picture.index.snapshot.pods)
        scheduler = Scheduler([config(api, bind_verb="bind")])
        scheduler.filter(wanting, nodes(own))
        thief = {"kind": "PersistentVolumeClaim", "namespace": "elsewhere", "name": "thief", "uid": "t"}
        taken = own.volume("large-1")
        body = {**taken, "spec": {**taken["spec"], "claimRef": thief}}
        assert own.running.http.put("/api/v1/persistentvolumes/large-1", json=body).status_code == 200
        bound = threads.submit(scheduler.bind, wanting, "n1")
        own.until(lambda: bound.done() and own.has_settled())
        with pytest.raises(ExtenderError):
            bound.result()
        assert (own.node_of("db"), own.given_to("small-1"), own.given_to("large-1")) == (None, None, "thief")


def test_an_adviser_answers_filter_and_binds_nothing(own: Attached, sqlite: Database) -> None:
    with served(sqlite, follows=True, binds=False) as api:
        (wanting,) = own.running.create(theirs("db", "data", "logs"))
        own.until(lambda: "default/db" in own.system.picture.index.snapshot.pods)
        scheduler = Scheduler([config(api, ignorable=True)])
        found = scheduler.filter(wanting, nodes(own))
        assert [*map(name_of, found.nodes)] == ["n1"]
        # No bindVerb: the default binder goes on.
        assert scheduler.bind(wanting, "n1") is False
        with pytest.raises(ExtenderError, match=r"binds nothing.*attach --mode own"):
            Scheduler([config(api, bind_verb="bind")]).bind(wanting, "n1")
        # What is reserved for one pod is not offered to another.
        path = "/apis/volsched.io/v1/namespaces/default/reservations"
        made = api.http.post(path, json={"spec": {"pod": "db"}})
        assert made.status_code == 201, made.text
        (_, other) = own.running.create(claim("more", "1Gi"), theirs("web", "more"))
        own.until(lambda: "default/web" in own.system.picture.index.snapshot.pods)
        assert [*map(name_of, scheduler.filter(other, nodes(own)).nodes)] == ["n2"]
        assert [*map(name_of, scheduler.filter(wanting, nodes(own)).nodes)] == ["n1"]
        name = made.json()["metadata"]["name"]
        confirmed = api.http.post(f"{path}/{name}/confirm")
        assert (confirmed.status_code, "changes nothing" in confirmed.text) == (405, True)
        assert api.http.delete(f"{path}/{name}").status_code == 200
        assert {*map(name_of, scheduler.filter(other, nodes(own)).nodes)} == {"n1", "n2"}
        assert own.sent == []


def test_a_pod_is_placed_by_the_default_binder_where_an_ignorable_adviser_is_down(own: Attached) -> None:
    """Section `ignorable` of the documents: advice that does not come keeps nobody from working."""
    (wanting,) = own.running.create(theirs("db", "data"))
    gone = Config(
        url_prefix="http://127.0.0.1:9/extender", filter_verb="filter", ignorable=True, node_cache_capable=True
    )
    assert len(Scheduler([gone]).filter(wanting, nodes(own)).nodes) == 2
    with pytest.raises(ExtenderError):
        Scheduler([Config(url_prefix=gone.url_prefix, filter_verb="filter", bind_verb="bind")]).filter(
            wanting, nodes(own)
        )


def test_nothing_is_answered_before_the_cluster_was_listed(sqlite: Database) -> None:
    """Else every node would be refused as unknown, and no eviction would be tried."""
    with served(sqlite, follows=True) as api:
        answer = api.http.post("/extender/filter", json={"Pod": theirs("db"), "NodeNames": ["n1"]})
        assert (answer.status_code, "listed for the first time" in answer.text) == (503, True)
        assert api.http.get("/extender/healthz").status_code == 503


def test_an_observer_takes_no_reservation(sqlite: Database) -> None:
    with served(sqlite, follows=True, binds=False, reserves=False) as api:
        answer = api.http.post("/apis/volsched.io/v1/namespaces/default/reservations", json={"spec": {"pod": "p"}})
        assert (answer.status_code, "observes a cluster" in answer.text) == (405, True)


# The documented profiles of kube-scheduler ---------------------------------------------------------------------

PROFILES = {it.stem: it for it in (ROOT / "deploy" / "kube-scheduler").glob("*.yaml")}


@pytest.mark.parametrize("name", ["advise", "bind"])
def test_a_documented_profile_is_one_that_kube_scheduler_starts_with(name: str) -> None:
    given = yaml.safe_load(PROFILES[name].read_text())
    assert (given["apiVersion"], given["kind"]) == ("kubescheduler.config.k8s.io/v1", "KubeSchedulerConfiguration")
    (extender,) = given["extenders"]
    assert extender.keys() <= KNOWN_FIELDS
    used = Config(
        url_prefix=extender["urlPrefix"],
        filter_verb=extender["filterVerb"],
        prioritize_verb=extender["prioritizeVerb"],
        bind_verb=extender.get("bindVerb", ""),
        weight=extender["weight"],
        ignorable=extender["ignorable"],
    )
    assert validate([used]) == []
    # Whoever binds volumes is one alone, and nobody goes on without it.
    (profile,) = given["profiles"]
    disabled = [it["name"] for it in profile.get("plugins", {}).get("multiPoint", {}).get("disabled", ())]
    binds = bool(used.bind_verb)
    assert (binds, "VolumeBinding" in disabled, used.ignorable) == (name == "bind", binds, not binds)
    assert profile["schedulerName"] not in ATTACHED
    assert PROFILES[name].read_text() in (ROOT / "docs" / "extender.md").read_text()
