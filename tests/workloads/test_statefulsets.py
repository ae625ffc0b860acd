"""What a StatefulSet needs next, as a table over what there is of it."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import pytest

from volsched.kube.kinds import KINDS
from volsched.kube.workloads import StatefulSet
from volsched.workloads.rules.statefulsets import SetStep, is_placed, is_running, next_step

Manifest = dict[str, Any]
MOST = 10
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

    def pod(self, name: str, /) -> Manifest | None:
        return next((it for it in self.pods if it["metadata"]["name"] == name), None)

    def claim(self, name: str, /) -> Manifest | None:
        return self.claims.get(name)

    def owned(self) -> Iterable[Manifest]:
        return [it for it in self.pods if it["metadata"]["ownerReferences"][0]["uid"] == "set-1"]


def step(
    manifest: Manifest, *pods: Manifest, most: int = MOST, ready: Any = is_placed, **claims: Manifest
) -> SetStep:
    value = KINDS["StatefulSet"].read(manifest)
    assert isinstance(value, StatefulSet)
    named = {name.replace("_", "-"): claim for name, claim in claims.items()}
    return next_step(value, manifest, World(list(pods), named), ready=ready, most=most)


def acts(done: SetStep) -> tuple[list[str], list[str]]:
    made = [it.pod["metadata"]["name"] if it.pod else "claims" for it in done.make]
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
    (made,) = step(a_set(1, serviceName="svc")).make
    assert made.pod == {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "db-0",
            "namespace": "shop",
            "labels": {
                "app": "db",
                "statefulset.kubernetes.io/pod-name": "db-0",
                "apps.kubernetes.io/pod-index": "0",
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
    (made,) = step(a_set(1), data_db_0={"metadata": {"name": "data-db-0"}}).make
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
    assert step(a_set(), *pods).status == {"replicas": 3, "readyReplicas": 1, "currentReplicas": 3}
