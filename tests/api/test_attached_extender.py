"""The extender of a process that follows a real cluster: its pods by uid, binds in own mode, advice in any."""

import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.api.kube_scheduler import Config, ExtenderError, Scheduler, name_of, validate
from tests.support.attached_cluster import Attached, attached
from tests.support.clusters import LOCAL, claim, node, pod, volume
from tests.support.patience import HANG_SECONDS
from tests.support.serving import Served, served, strict_cluster
from volsched.kube.meta import ATTACHED_SCHEDULERS
from volsched.log.database import Database
from volsched.scheduling.rules.reasons import NO_VOLUME_TO_BIND

ROOT = Path(__file__).parents[2]
Manifest = dict[str, Any]


def theirs(name: str, *claims: str) -> Manifest:
    """A pod of kube-scheduler."""
    made = pod(name, *claims)
    return {**made, "spec": {**made["spec"], "schedulerName": "with-volsched"}}


@pytest.fixture
def own(sqlite: Database) -> Iterator[Attached]:
    """n1 has one disk for each of two claims, n2 has only the small one."""
    with strict_cluster() as running, attached(running, sqlite) as it:
        it.create(LOCAL, node("n1"), node("n2"), claim("data", "1Gi"), claim("logs", "5Gi"))
        it.create(volume("small-1", "2Gi", "n1"), volume("large-1", "10Gi", "n1"), volume("small-2", "2Gi", "n2"))

        def is_known() -> bool:
            known = it.system.picture.index.snapshot
            volumes = [known.volume(name) for name in ("small-1", "large-1", "small-2")]
            return all(held is not None and held.phase == "Available" for held in volumes)

        it.until(is_known)
        yield it


def config(
    api: Served, *, ignorable: bool = False, caches_nodes: bool = True, seconds: float = HANG_SECONDS, **verbs: str
) -> Config:
    return Config(
        url_prefix=f"{api.url}/extender",
        filter_verb="filter",
        prioritize_verb="prioritize",
        weight=1,
        node_cache_capable=caches_nodes,
        ignorable=ignorable,
        http_timeout=seconds,
        **verbs,
    )


def nodes(own: Attached) -> list[Manifest]:
    return list(own.running.http.get("/api/v1/nodes").json()["items"])


@pytest.mark.parametrize("caches_nodes", [True, False])
def test_bind_binds_the_claims_and_the_pod_of_the_real_cluster(
    own: Attached, sqlite: Database, caches_nodes: bool
) -> None:
    """Whether kube-scheduler sends names of nodes or whole ones (`nodeCacheCapable`)."""
    with served(sqlite, follows=True) as api, ThreadPoolExecutor() as threads:
        (wanting,) = own.running.create(theirs("db", "data", "logs"))
        # kube-scheduler has seen a version that we have not: whoever is meant is said by the uid.
        shown = {**wanting, "metadata": {**wanting["metadata"], "resourceVersion": "999999"}}
        scheduler = Scheduler([config(api, caches_nodes=caches_nodes, bind_verb="bind")])
        own.until(lambda: "default/db" in own.system.picture.index.snapshot.pods)
        found = scheduler.filter(shown, nodes(own))
        assert [*map(name_of, found.nodes)] == ["n1"]
        assert found.unresolvable == {"n2": NO_VOLUME_TO_BIND}
        bound = threads.submit(scheduler.bind, shown, "n1")

        own.until(bound.done, binds=True)
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

        own.until(bound.done, binds=True)
        assert bound.result() is True
        assert own.node_of("db") == "n2"
        other = {**wanting, "metadata": {**wanting["metadata"], "uid": "another"}}
        with pytest.raises(ExtenderError, match="it is another pod"):
            scheduler.bind(other, "n2")
        gone = {**wanting, "metadata": {**wanting["metadata"], "name": "gone"}}
        with pytest.raises(ExtenderError, match=r'"default/gone" not found; bind acts on pods of the cluster'):
            scheduler.bind(gone, "n2")


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


def test_a_bind_that_takes_longer_than_kube_scheduler_waits_goes_on_and_is_found_done(
    own: Attached, sqlite: Database
) -> None:
    """Nobody steps our system while kube-scheduler waits: its time-out passes, and it asks again later."""
    with served(sqlite, follows=True) as api, ThreadPoolExecutor() as threads:
        (wanting,) = own.running.create(theirs("db", "data"))
        own.until(lambda: "default/db" in own.system.picture.index.snapshot.pods)
        with pytest.raises(ExtenderError, match="ReadTimeout"):
            Scheduler([config(api, seconds=0.3, bind_verb="bind")]).bind(wanting, "n2")
        # Where it is ignorable, an error of bind is passed over: the default binder goes on with unbound claims.
        careless = Scheduler([config(api, seconds=0.3, ignorable=True, bind_verb="bind")])
        assert careless.bind(wanting, "n2") is False
        again = threads.submit(Scheduler([config(api, bind_verb="bind")]).bind, wanting, "n2")

        own.until(again.done, binds=True)
        assert (again.result(), own.node_of("db"), own.given_to("small-2")) == (True, "n2", "data")
        assert len(own.legs()) == 1


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


def test_advice_counts_the_room_that_another_scheduler_has_taken_and_nobody_has_published_yet(
    own: Attached, sqlite: Database
) -> None:
    """Seen with a real kube-scheduler: two pods of 12Gi each were placed on one node with 20Gi."""
    own.create(
        {"kind": "CSIDriver", "apiVersion": "storage.k8s.io/v1", "metadata": {"name": "csi.example"},
         "spec": {"storageCapacity": True, "attachRequired": False}},
        {"kind": "StorageClass", "apiVersion": "storage.k8s.io/v1", "metadata": {"name": "csi"},
         "provisioner": "csi.example", "volumeBindingMode": "WaitForFirstConsumer"},
        {"kind": "CSIStorageCapacity", "apiVersion": "storage.k8s.io/v1",
         "metadata": {"name": "n1", "namespace": "default"}, "storageClassName": "csi", "capacity": "20Gi",
         "nodeTopology": {"matchLabels": {"kubernetes.io/hostname": "n1"}}},
        *(claim(name, "6Gi", "csi") for name in ("a", "b", "c", "d")),
    )  # fmt: skip
    with served(sqlite, follows=True, binds=False) as api:
        first, second = own.running.create(theirs("first", "a", "b"), theirs("second", "c", "d"))
        own.until(lambda: "default/second" in own.system.picture.index.snapshot.pods)
        scheduler = Scheduler([config(api, ignorable=True)])

        def places_for(wanting: Manifest) -> list[str]:
            return [*map(name_of, scheduler.filter(wanting, nodes(own)).nodes)]

        def select(name: str, chosen: str | None) -> None:
            body = {"metadata": {"annotations": {"volume.kubernetes.io/selected-node": chosen}}}
            path = f"/api/v1/namespaces/default/persistentvolumeclaims/{name}"
            headers = {"Content-Type": "application/merge-patch+json"}
            assert own.running.http.patch(path, json=body, headers=headers).status_code == 200

        own.until(lambda: places_for(first) == places_for(second) == ["n1"])
        select("a", "n1")
        select("b", "n1")
        own.until(lambda: places_for(second) == [])
        assert places_for(first) == ["n1"]
        # The provisioner gave up and took the node off: the room is free again.
        select("a", None)
        own.until(lambda: places_for(second) == ["n1"])


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


DURATION = r"(\d+(\.\d+)?(h|m|s|ms))+"
EXTENSION_POINTS = (
    *("preEnqueue", "queueSort", "preFilter", "filter", "postFilter", "preScore", "score", "reserve", "permit"),
    *("preBind", "bind", "postBind", "multiPoint"),
)
PLUGIN_SET = {it: [{"name": str, "weight": int}] for it in ("enabled", "disabled")}
KUBE_SCHEDULER_CONFIGURATION: Manifest = {
    "apiVersion": str, "kind": str, "parallelism": int, "percentageOfNodesToScore": int,
    "podInitialBackoffSeconds": int, "podMaxBackoffSeconds": int, "delayCacheUntilActive": bool,
    "enableProfiling": bool, "enableContentionProfiling": bool,
    "clientConnection": {
        "kubeconfig": str, "acceptContentTypes": str, "contentType": str, "qps": float, "burst": int,
    },
    "leaderElection": {
        "leaderElect": bool, "leaseDuration": DURATION, "renewDeadline": DURATION, "retryPeriod": DURATION,
        "resourceLock": str, "resourceName": str, "resourceNamespace": str,
    },
    "profiles": [
        {
            "schedulerName": str, "percentageOfNodesToScore": int,
            "plugins": dict.fromkeys(EXTENSION_POINTS, PLUGIN_SET),
        }
    ],
    "extenders": [
        {
            "urlPrefix": r"https?://\S+", "filterVerb": str, "preemptVerb": str, "prioritizeVerb": str,
            "weight": int, "bindVerb": str, "enableHTTPS": bool, "httpTimeout": DURATION,
            "nodeCacheCapable": bool, "ignorable": bool,
            "managedResources": [{"name": str, "ignoredByScheduler": bool}],
            "tlsConfig": {
                "insecure": bool, "serverName": str,
                **{f"{of}{it}": str for of in ("cert", "key", "ca") for it in ("File", "Data")},
            },
        }
    ],
}  # fmt: skip
"""Field → its type, a pattern, or the fields below. kube-scheduler decodes strictly: it ends where there is
another field, or one that is of another type or there twice."""


def defects(given: Any, known: Any, path: str) -> list[str]:
    if isinstance(known, dict):
        if not isinstance(given, dict):
            return [f"{path}: no mapping"]
        unknown = [f"{path}.{it}: unknown field" for it in given.keys() - known.keys()]
        found = (defects(it, known[name], f"{path}.{name}") for name, it in given.items() if name in known)
        return [*unknown, *(it for many in found for it in many)]
    if isinstance(known, list):
        if not isinstance(given, list):
            return [f"{path}: no list"]
        return [it for number, entry in enumerate(given) for it in defects(entry, known[0], f"{path}[{number}]")]
    if isinstance(known, str):
        return [] if isinstance(given, str) and re.fullmatch(known, given) else [f"{path}: {given!r}"]
    return [] if type(given) is known else [f"{path}: {given!r} is no {known.__name__}"]


class StrictLoader(yaml.SafeLoader):
    """A key that is there twice is a mistake."""

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        made = super().construct_mapping(node, deep=deep)
        assert len(made) == len(node.value), f"a field is there twice: {sorted(map(str, made))}"
        return made


def in_documents() -> list[str]:
    """The configurations that a reader of the page copies."""
    blocks = re.findall(r"```yaml\n(.*?)```", (ROOT / "docs" / "extender.md").read_text(), re.DOTALL)
    return [it for it in blocks if "KubeSchedulerConfiguration" in it]


def test_every_documented_configuration_has_fields_that_kube_scheduler_knows_and_no_other() -> None:
    texts = [*in_documents(), *(it.read_text() for it in PROFILES.values())]
    assert len(texts) == 5
    for text in texts:
        given = yaml.load(text, StrictLoader)
        assert defects(given, KUBE_SCHEDULER_CONFIGURATION, "") == []


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("ignoreable", True, ".extenders[0].ignoreable: unknown field"),
        ("httpTimeout", 5, ".extenders[0].httpTimeout: 5"),
        ("httpTimeout", "5 seconds", ".extenders[0].httpTimeout: '5 seconds'"),
        ("weight", "1", ".extenders[0].weight: '1' is no int"),
        ("tlsConfig", {"ca": "x"}, ".extenders[0].tlsConfig.ca: unknown field"),
    ],
)
def test_a_mistake_in_a_configuration_would_be_found(field: str, value: Any, said: str) -> None:
    given = yaml.safe_load(PROFILES["bind"].read_text())
    given["extenders"][0][field] = value
    assert defects(given, KUBE_SCHEDULER_CONFIGURATION, "") == [said]


@pytest.mark.parametrize("name", ["advise", "bind"])
def test_a_documented_profile_is_one_that_kube_scheduler_starts_with(name: str) -> None:
    given = yaml.safe_load(PROFILES[name].read_text())
    assert (given["apiVersion"], given["kind"]) == ("kubescheduler.config.k8s.io/v1", "KubeSchedulerConfiguration")
    (extender,) = given["extenders"]
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
    assert profile["schedulerName"] not in ATTACHED_SCHEDULERS
    assert PROFILES[name].read_text() in (ROOT / "docs" / "extender.md").read_text()
