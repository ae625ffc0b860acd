"""What a StatefulSet needs next, as a table over what there is of it."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import pytest

from volsched.kube.kinds import KINDS
from volsched.kube.workloads import StatefulSet
from volsched.workloads.rules.revisions import revision_hash
from volsched.workloads.rules.statefulsets import SetStep, is_placed, is_running, next_step

Manifest = dict[str, Any]
MOST = 10
NOW = "2026-01-01T00:01:00Z"
READY = {"conditions": [{"type": "Ready", "status": "True"}]}


def a_set(replicas: int = 3, *, going: bool = False, start: int = 0, **spec: Any) -> Manifest:
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": "db", "namespace": "shop", "uid": "set-1"}
        | ({"deletionTimestamp": "t"} if going else {}),
        "spec": {
            "replicas": replicas,
            "ordinals": {"start": start},
            "selector": {"matchLabels": {"app": "db"}},
            "template": {
                "metadata": {"labels": {"app": "db"}, "annotations": {"a": "b"}, "name": "ignored"},
                "spec": {
                    "containers": [{"name": "main", "image": "app"}],
                    "volumes": [{"name": "data", "emptyDir": {}}, {"name": "tmp", "emptyDir": {}}],
                },
            },
            "volumeClaimTemplates": [{"metadata": {"name": "data", "labels": {"x": "y"}}, "spec": {"n": 1}}],
            **spec,
        },
    }


def a_pod(
    ordinal: int | str, *, node: str = "n", owner: str = "set-1", phase: str = "Pending", **meta: Any
) -> Manifest:
    reference = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "db", "uid": owner, "controller": True}
    return {
        "metadata": {"name": f"db-{ordinal}", "namespace": "shop", "ownerReferences": [reference], **meta},
        "spec": {"nodeName": node},
        "status": {"phase": phase},
    }


@dataclass
class World:
    pods: list[Manifest] = field(default_factory=list)
    claims: dict[str, Manifest] = field(default_factory=dict)
    history: list[Manifest] = field(default_factory=list)

    def pod(self, name: str, /) -> Manifest | None:
        return next((it for it in self.pods if it["metadata"]["name"] == name), None)

    def claim(self, name: str, /) -> Manifest | None:
        return self.claims.get(name)

    def revision(self, name: str, /) -> Manifest | None:
        return next((it for it in self.history if it["metadata"]["name"] == name), None)

    def owned(self) -> Iterable[Manifest]:
        return [it for it in self.pods if it["metadata"]["ownerReferences"][0]["uid"] == "set-1"]

    def revisions(self) -> Iterable[Manifest]:
        return [it for it in self.history if it["metadata"]["ownerReferences"][0]["uid"] == "set-1"]


def step(
    manifest: Manifest,
    *pods: Manifest,
    most: int = MOST,
    ready: Any = is_placed,
    history: Iterable[Manifest] = (),
    **claims: Manifest,
) -> SetStep:
    value = KINDS["StatefulSet"].read(manifest)
    assert isinstance(value, StatefulSet)
    named = {name.replace("_", "-"): claim for name, claim in claims.items()}
    return next_step(value, manifest, World(list(pods), named, list(history)), ready=ready, most=most, now=NOW)


def acts(done: SetStep) -> tuple[list[str], list[str]]:
    made = [it.pod["metadata"]["name"] if it.pod else "claims" for it in done.create]
    return made, done.remove


PARALLEL = {"podManagementPolicy": "Parallel"}


@pytest.mark.parametrize(
    ("manifest", "pods", "expected"),
    [
        (a_set(), [], (["db-0"], [])),
        (a_set(), [a_pod(0)], (["db-1"], [])),
        (a_set(), [a_pod(0, node="")], (["claims"], [])),
        (a_set(), [a_pod(0), a_pod(2)], (["db-1"], [])),
        (a_set(), [a_pod(0), a_pod(1), a_pod(2)], ([], [])),
        (a_set(), [a_pod(0, deletionTimestamp="t")], ([], [])),
        (a_set(), [a_pod(0, phase="Failed"), a_pod(1)], ([], ["db-0"])),
        (a_set(), [a_pod(0, phase="Succeeded")], ([], ["db-0"])),
        (a_set(), [a_pod(0, owner="set-0")], ([], [])),
        (a_set(1), [a_pod(0), a_pod(1), a_pod(10)], ([], ["db-10"])),
        (a_set(1), [a_pod(0), a_pod(1), a_pod(10, deletionTimestamp="t")], ([], [])),
        (a_set(1), [a_pod(0, node=""), a_pod(1)], (["claims"], [])),
        (a_set(0), [a_pod(0)], ([], ["db-0"])),
        (a_set(0), [a_pod(0, owner="set-0"), a_pod("x"), a_pod("01")], ([], [])),
        (a_set(2, start=5), [a_pod(5)], (["db-6"], [])),
        (a_set(2, start=5), [a_pod(5), a_pod(6), a_pod(0)], ([], ["db-0"])),
        (a_set(going=True), [], ([], [])),
        (a_set(0, going=True), [a_pod(0)], ([], [])),
        (a_set(**PARALLEL), [], (["db-0", "db-1", "db-2"], [])),
        (a_set(**PARALLEL), [a_pod(1, phase="Failed")], (["db-0", "db-2"], ["db-1"])),
        (a_set(1, **PARALLEL), [a_pod(2), a_pod(1)], (["db-0"], ["db-2", "db-1"])),
        (a_set(99, **PARALLEL), [], ([f"db-{i}" for i in range(MOST)], [])),
        (a_set(0, **PARALLEL), [a_pod(i) for i in range(99)], ([], [f"db-{98 - i}" for i in range(MOST)])),
    ],
    ids=[
        "the first", "the next", "not ready: its claims", "a gap first", "complete", "going", "failed",
        "succeeded", "a stranger in the way", "too many: the highest", "one by one", "not while a lower one waits",
        "to nothing", "not ours, not numbered", "another start", "below the start", "being deleted",
        "being deleted, its pods are collected", "parallel", "parallel, one failed", "parallel, both ways",
        "parallel, a portion", "parallel, a portion of surplus",
    ],
)  # fmt: skip
def test_what_is_done_next(
    manifest: Manifest, pods: list[Manifest], expected: tuple[list[str], list[str]]
) -> None:
    assert acts(step(manifest, *pods)) == expected


def test_a_pod_as_it_is_made() -> None:
    (made,) = step(a_set(1, serviceName="svc")).create
    assert made.pod == {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "db-0",
            "generateName": "db-",
            "namespace": "shop",
            "labels": {
                "app": "db",
                "statefulset.kubernetes.io/pod-name": "db-0",
                "apps.kubernetes.io/pod-index": "0",
                "controller-revision-hash": "db-76d9865976",
            },
            "annotations": {"a": "b"},
            "ownerReferences": [
                {
                    "apiVersion": "apps/v1",
                    "kind": "StatefulSet",
                    "name": "db",
                    "uid": "set-1",
                    "controller": True,
                    "blockOwnerDeletion": True,
                }
            ],
        },
        "spec": {
            "containers": [{"name": "main", "image": "app"}],
            "hostname": "db-0",
            "subdomain": "svc",
            "volumes": [
                {"name": "data", "persistentVolumeClaim": {"claimName": "data-db-0"}},
                {"name": "tmp", "emptyDir": {}},
            ],
        },
    }
    assert made.claims == (
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": "data-db-0", "namespace": "shop", "labels": {"x": "y", "app": "db"}},
            "spec": {"n": 1},
        },
    )


def test_a_claim_that_is_there_is_used_as_it_is() -> None:
    (made,) = step(a_set(1), data_db_0={"metadata": {"name": "data-db-0"}}).create
    assert made.claims == ()


def test_a_claim_that_is_going_holds_its_pod_up() -> None:
    done = step(a_set(2), data_db_0={"metadata": {"deletionTimestamp": "t"}})
    assert acts(done) == ([], [])
    assert done.blocked == ["Create Pod db-0 in StatefulSet db failed error: pvc data-db-0 is being deleted"]
    assert acts(step(a_set(2, **PARALLEL), data_db_0={"metadata": {"deletionTimestamp": "t"}})) == (["db-1"], [])


@pytest.mark.parametrize(
    ("status", "node", "placed", "running"),
    [
        ({"phase": "Pending"}, "", False, False),
        ({"phase": "Pending"}, "n", True, False),
        ({"phase": "Running"}, "n", True, False),
        ({"phase": "Running", "conditions": [{"type": "Ready", "status": "False"}]}, "n", True, False),
        ({"phase": "Pending", **READY}, "n", True, False),
        ({"phase": "Running", **READY}, "n", True, True),
    ],
)
def test_when_a_pod_counts(status: Manifest, node: str, placed: bool, running: bool) -> None:
    pod = {"spec": {"nodeName": node}, "status": status}
    assert (is_placed(pod), is_running(pod)) == (placed, running)


def test_the_status_counts_what_there_is() -> None:
    pods = [a_pod(0), a_pod(1, node=""), a_pod(2, phase="Failed"), a_pod(3, deletionTimestamp="t")]
    told = step(a_set(), *pods).status
    (name,) = {told.pop("currentRevision"), told.pop("updateRevision")}
    assert name.startswith("db-")
    assert told == {
        "observedGeneration": 1,
        "replicas": 4,
        "readyReplicas": 2,
        "availableReplicas": 2,
        "currentReplicas": 3,
        "updatedReplicas": 3,
        "collisionCount": 0,
    }


# --- rolling updates ------------------------------------------------------------------------------------


def with_image(manifest: Manifest, image: str) -> Manifest:
    """The set with another template."""
    spec = manifest["spec"]
    template = {**spec["template"], "spec": {"containers": [{"name": "main", "image": image}]}}
    return {**manifest, "spec": {**spec, "template": template}}


def revisions(*images: str) -> list[Manifest]:
    """As the set has made them, one after the other."""
    made: list[Manifest] = []
    for image in images:
        done = step(with_image(a_set(), image), history=made)
        assert done.new_revision is not None
        made.append(done.new_revision)
    return made


def at(ordinal: int, revision: Manifest, **given: Any) -> Manifest:
    pod = a_pod(ordinal, **given)
    pod["metadata"]["labels"] = {"controller-revision-hash": revision["metadata"]["name"]}
    return pod


OLD, NEW = revisions("app:1", "app:2")


def updated(replicas: int = 3, *, strategy: Any = None, **spec: Any) -> Manifest:
    """A set whose pods are to be of the second image."""
    given = {} if strategy is None else {"updateStrategy": strategy}
    made = with_image(a_set(replicas, **given, **spec), "app:2")
    return {**made, "status": {"currentRevision": OLD["metadata"]["name"], "currentReplicas": replicas}}


def rolling(**given: Any) -> Manifest:
    return {"type": "RollingUpdate", "rollingUpdate": given}


@pytest.mark.parametrize(
    ("manifest", "pods", "expected"),
    [
        (updated(), [at(0, OLD), at(1, OLD), at(2, OLD)], ["db-2"]),
        (updated(), [at(0, OLD), at(1, OLD), at(2, NEW)], ["db-1"]),
        (updated(), [at(0, OLD), at(1, OLD), at(2, NEW, node="")], []),
        (updated(), [at(0, OLD), at(1, OLD), at(2, OLD, deletionTimestamp="t")], []),
        (updated(), [at(0, NEW), at(1, NEW), at(2, NEW)], []),
        (updated(), [a_pod(0), at(1, NEW), at(2, NEW)], ["db-0"]),
        (updated(strategy=rolling(partition=2)), [at(0, OLD), at(1, OLD), at(2, OLD)], ["db-2"]),
        (updated(strategy=rolling(partition=2)), [at(0, OLD), at(1, OLD), at(2, NEW)], []),
        (updated(strategy=rolling(maxUnavailable=2)), [at(0, OLD), at(1, OLD), at(2, OLD)], ["db-2", "db-1"]),
        (updated(strategy=rolling(maxUnavailable="70%")), [at(0, OLD), at(1, OLD), at(2, OLD)], ["db-2", "db-1"]),
        (updated(strategy=rolling(maxUnavailable="1%")), [at(0, OLD), at(1, OLD), at(2, OLD)], ["db-2"]),
        (updated(strategy={"type": "OnDelete"}), [at(0, OLD), at(1, OLD), at(2, OLD)], []),
        (updated(2), [at(0, OLD), at(1, OLD), at(2, OLD)], ["db-2"]),
        (updated(**PARALLEL), [at(0, OLD), at(1, OLD), at(2, OLD)], ["db-2"]),
        (updated(**PARALLEL), [at(0, OLD, node=""), at(1, OLD), at(2, OLD)], ["db-0"]),
        (updated(start=5), [at(5, OLD), at(6, OLD), at(7, OLD)], ["db-7"]),
    ],
    ids=[
        "the highest first", "then the next", "not before it is ready", "not while one is going", "all are",
        "one from before there were revisions", "down to the partition", "not below it", "two at once",
        "as many percent", "never none", "on delete", "surplus first", "parallel",
        "parallel: what is away already", "another start",
    ],
)  # fmt: skip
def test_which_pod_is_replaced(manifest: Manifest, pods: list[Manifest], expected: list[str]) -> None:
    done = step(manifest, *pods, history=[OLD, NEW])
    assert done.remove == expected
    assert done.new_revision is None


@pytest.mark.parametrize(
    ("strategy", "missing", "image"),
    [
        (rolling(partition=2), 1, "app:1"),
        (rolling(partition=2), 2, "app:2"),
        (rolling(partition=0), 0, "app:2"),
        ({"type": "RollingUpdate"}, 1, "app:1"),
        ({"type": "OnDelete"}, 1, "app:2"),
    ],
    ids=["below the partition", "from it on", "without one", "not said how", "on delete"],
)
def test_of_which_template_a_missing_pod_is_made(strategy: Manifest, missing: int, image: str) -> None:
    pods = [at(ordinal, OLD) for ordinal in range(3) if ordinal != missing]
    (made,) = step(updated(strategy=strategy), *pods, history=[OLD, NEW]).create
    assert made.pod is not None
    assert made.pod["spec"]["containers"][0]["image"] == image
    name = {"app:1": OLD, "app:2": NEW}[image]["metadata"]["name"]
    assert made.pod["metadata"]["labels"]["controller-revision-hash"] == name


def test_the_status_says_how_far_an_update_is() -> None:
    told = step(updated(), at(0, OLD), at(1, OLD), at(2, NEW), history=[OLD, NEW]).status
    assert (told["currentReplicas"], told["updatedReplicas"]) == (2, 1)
    assert (told["currentRevision"], told["updateRevision"]) == (OLD["metadata"]["name"], NEW["metadata"]["name"])
    told = step(updated(), at(0, NEW), at(1, NEW), at(2, NEW), history=[OLD, NEW]).status
    assert (told["currentReplicas"], told["updatedReplicas"]) == (3, 3)
    assert told["currentRevision"] == told["updateRevision"] == NEW["metadata"]["name"]


def test_a_template_that_comes_back_is_the_revision_that_it_was() -> None:
    assert [OLD["revision"], NEW["revision"]] == [1, 2]
    done = step(with_image(a_set(), "app:1"), history=[NEW, OLD])
    assert done.new_revision is None
    assert done.renumbered == {**OLD, "revision": 3}


def test_a_name_that_is_taken_is_avoided() -> None:
    stranger = {**OLD, "metadata": {**OLD["metadata"], "ownerReferences": [{"uid": "other"}]}}
    done = step(with_image(a_set(), "app:1"), history=[stranger])
    assert done.new_revision is not None
    assert done.new_revision["metadata"]["name"] != OLD["metadata"]["name"]
    assert done.status["collisionCount"] == 1


def test_revisions_beyond_the_limit_are_forgotten_unless_a_pod_is_of_one() -> None:
    history = revisions("app:1", "app:2", "app:3", "app:4", "app:5")
    latest = with_image(a_set(revisionHistoryLimit=1), "app:5")
    names = [it["metadata"]["name"] for it in history]
    pods = [at(0, history[4]), at(1, history[4]), at(2, history[0])]
    assert step(latest, *pods, history=history).forgotten == names[1:3]


def test_a_revision_is_named_as_kube_controller_manager_names_it() -> None:
    container = {
        "image": "app:1", "imagePullPolicy": "IfNotPresent", "name": "main", "resources": {},
        "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File",
    }  # fmt: skip
    pod = {
        "containers": [container], "dnsPolicy": "ClusterFirst", "restartPolicy": "Always",
        "schedulerName": "default-scheduler", "securityContext": {}, "terminationGracePeriodSeconds": 30,
    }  # fmt: skip
    template = {"metadata": {"labels": {"app": "db"}}, "spec": pod, "$patch": "replace"}
    assert revision_hash({"spec": {"template": template}}, 0) == "79c6b94f94"


def test_a_pod_must_have_been_ready_for_long_enough() -> None:
    def ready(ordinal: int, since: str) -> Manifest:
        pod = at(ordinal, OLD, phase="Running")
        pod["status"]["conditions"] = [{**READY["conditions"][0], "lastTransitionTime": since}]
        return pod

    pods = [ready(0, "2026-01-01T00:00:00Z"), ready(1, "2026-01-01T00:00:45Z")]
    done = step(with_image(a_set(minReadySeconds=30), "app:1"), *pods, history=[OLD], ready=is_running)
    assert acts(done) == ([], [])
    assert (done.status["readyReplicas"], done.status["availableReplicas"]) == (2, 1)
    assert done.again == "2026-01-01T00:01:15Z"
