"""What goes with its owner: ephemeral claims, garbage, namespaces, and deletions that orphan or wait."""

from typing import Any

import pytest

from tests.support.clusters import LOCAL, Manifest, Stepped, claim, node, pod
from tests.support.stateful_sets import stateful_set
from tests.workloads.played_sets import disks, ephemeral_pod, names, uid
from volsched.cluster.port import whole
from volsched.log.commands import Done
from volsched.log.database import Database
from volsched.log.integrity.verify import verify
from volsched.log.transaction import execute
from volsched.objects import door
from volsched.runtime.clock import SECOND
from volsched.workloads.controllers import Upkeep

# --- ephemeral volumes ----------------------------------------------------------------------------------


def test_an_ephemeral_claim_is_made_used_and_goes_with_its_pod(database: Database) -> None:
    stepped = Stepped(database, [*disks(1, each=2), ephemeral_pod("web", "a", "b")])
    stepped.until(lambda: stepped.node_of("web") == "node-0")
    assert names(stepped, "PersistentVolumeClaim") == ["web-a", "web-b"]
    made = stepped.cluster.get("PersistentVolumeClaim", "default/web-a") or {}
    (owner,) = made["metadata"]["ownerReferences"]
    assert owner == {
        "apiVersion": "v1", "kind": "Pod", "name": "web", "uid": uid(stepped, "Pod", "web"),
        "controller": True, "blockOwnerDeletion": True,
    }  # fmt: skip
    assert made["metadata"]["labels"] == {"made": "yes"}
    stepped.cluster.delete("Pod", "default/web")
    stepped.settle()
    assert names(stepped, "PersistentVolumeClaim") == []
    assert verify(stepped.database).ok


def test_a_deleted_ephemeral_claim_is_made_again(sqlite: Database) -> None:
    stepped = Stepped(sqlite, [LOCAL, node("node-0"), ephemeral_pod("web", "a")])
    stepped.settle()
    old = uid(stepped, "PersistentVolumeClaim", "web-a")
    stepped.cluster.delete("PersistentVolumeClaim", "default/web-a")
    stepped.until(lambda: uid(stepped, "PersistentVolumeClaim", "web-a") not in ("", old))


def test_a_claim_of_that_name_which_the_pod_does_not_own_is_refused(stepped: Stepped) -> None:
    stepped.create(claim("web-a", "1Gi"), ephemeral_pod("web", "a"))
    stepped.settle()
    said = "ephemeral volume a: PVC default/web-a was not created for pod default/web (pod is not owner)"
    assert stepped.messages("FailedBinding") == [said]
    assert stepped.node_of("web") is None
    assert (
        "ownerReferences" not in (stepped.cluster.get("PersistentVolumeClaim", "default/web-a") or {})["metadata"]
    )
    stepped.cluster.delete("PersistentVolumeClaim", "default/web-a")
    stepped.until(lambda: bool(stepped.node_of("web")))


def test_a_pod_made_anew_does_not_inherit_the_claim(stepped: Stepped) -> None:
    stepped.create(ephemeral_pod("web", "a"))
    stepped.until(lambda: bool(stepped.node_of("web")))
    old = uid(stepped, "PersistentVolumeClaim", "web-a")
    stepped.cluster.delete("Pod", "default/web")
    stepped.create(ephemeral_pod("web", "a"))
    stepped.until(lambda: bool(stepped.node_of("web")))
    assert uid(stepped, "PersistentVolumeClaim", "web-a") != old


def test_a_pod_that_is_gone_since_it_was_read_gets_no_claim(stepped: Stepped) -> None:
    stepped.create(ephemeral_pod("web", "a"))
    stepped.system.catch_up(stepped.now)
    stepped.cluster.delete("Pod", "default/web")
    assert [part.step(stepped.now) for part in stepped.system.parts] == [0, 0, 1, 0, 0, 0, 0, 0]
    assert names(stepped, "PersistentVolumeClaim") == []


# --- garbage --------------------------------------------------------------------------------------------


def owned(manifest: Manifest, **reference: Any) -> Manifest:
    given = {"apiVersion": "v1", "kind": "Pod", "name": "gone", "uid": "u", "controller": True, **reference}
    return {**manifest, "metadata": {**manifest["metadata"], "ownerReferences": [given]}}


@pytest.mark.parametrize(
    ("reference", "kept", "said"),
    [
        ({}, False, 0),
        ({"controller": False}, True, 0),
        ({"uid": "never-seen"}, True, 1),
        ({"kind": "ReplicaSet", "apiVersion": "apps/v1"}, True, 0),
        ({"apiVersion": "v2"}, True, 0),
    ],
    ids=["its controller is gone", "no controller", "an owner never seen", "a kind unknown", "a version unknown"],
)
def test_only_what_a_controller_left_is_collected(
    stepped: Stepped, reference: dict[str, Any], kept: bool, said: int
) -> None:
    stepped.create(pod("gone"))
    gone = uid(stepped, "Pod", "gone")
    stepped.create(owned(claim("data", "1Gi"), **{"uid": gone, **reference}))
    stepped.settle()
    assert names(stepped, "PersistentVolumeClaim") == ["data"]
    stepped.cluster.delete("Pod", "default/gone")
    stepped.settle()
    assert (names(stepped, "PersistentVolumeClaim") == ["data"]) is kept
    assert len(stepped.messages("OwnerUnknown")) == said


def test_what_another_owner_still_holds_is_kept(stepped: Stepped) -> None:
    stepped.create(pod("gone"), pod("stays"))
    shared = owned(claim("data", "1Gi"), uid=uid(stepped, "Pod", "gone"))
    shared["metadata"]["ownerReferences"].append(
        {"apiVersion": "v1", "kind": "Pod", "name": "stays", "uid": uid(stepped, "Pod", "stays")}
    )
    stepped.create(shared)
    stepped.cluster.delete("Pod", "default/gone")
    stepped.settle()
    assert names(stepped, "PersistentVolumeClaim") == ["data"]
    stepped.cluster.delete("Pod", "default/stays")
    stepped.settle()
    assert names(stepped, "PersistentVolumeClaim") == []


def test_what_was_given_another_owner_since_it_was_read_is_kept(stepped: Stepped) -> None:
    stepped.create(pod("gone"), pod("heir"))
    stepped.create(owned(claim("data", "1Gi"), uid=uid(stepped, "Pod", "gone")))
    stepped.cluster.delete("Pod", "default/gone")
    stepped.system.catch_up(stepped.now)
    found = stepped.cluster.get("PersistentVolumeClaim", "default/data") or {}
    heir = owned(found, name="heir", uid=uid(stepped, "Pod", "heir"))
    stepped.cluster.update("PersistentVolumeClaim", heir)
    assert [part.step(stepped.now) for part in stepped.system.parts] == [0, 0, 0, 1, 0, 0, 0, 0]
    stepped.settle()
    assert (
        "deletionTimestamp" not in (stepped.cluster.get("PersistentVolumeClaim", "default/data") or {})["metadata"]
    )


def test_an_owner_that_is_back_since_it_was_read_keeps_what_it_owns(stepped: Stepped) -> None:
    """As when a foreign cluster told of its going too early: the uid is the same."""
    stepped.create(pod("gone"))
    old = uid(stepped, "Pod", "gone")
    stepped.create(owned(claim("data", "1Gi"), uid=old))
    stepped.cluster.delete("Pod", "default/gone")
    stepped.system.catch_up(stepped.now)
    back = door.create("Pod", pod("gone"), door.controller("test", stepped.now), uid=old).command
    assert isinstance(execute(stepped.database, [back], now=stepped.now)[0], Done)
    assert [part.step(stepped.now) for part in stepped.system.parts] == [0, 0, 0, 1, 0, 0, 0, 0]
    assert (
        "deletionTimestamp" not in (stepped.cluster.get("PersistentVolumeClaim", "default/data") or {})["metadata"]
    )


def test_garbage_of_before_the_start_is_found(sqlite: Database) -> None:
    before = Stepped(sqlite, [*disks(1), ephemeral_pod("web", "a")])
    before.until(lambda: bool(before.node_of("web")))
    before.cluster.delete("Pod", "default/web")
    after = Stepped(sqlite, owner="after")
    after.now = before.now + 60 * SECOND
    after.settle()
    assert names(after, "PersistentVolumeClaim") == []


def test_each_part_can_be_left_out(sqlite: Database) -> None:
    stepped = Stepped(sqlite, [*disks(1), stateful_set(), ephemeral_pod("web", "a")], without=tuple(Upkeep))
    stepped.settle()
    assert stepped.system.parts == []
    assert names(stepped, "Pod") == ["web"]
    assert names(stepped, "PersistentVolumeClaim") == []


# --- namespaces -----------------------------------------------------------------------------------------


def in_shop(manifest: Manifest) -> Manifest:
    return {**manifest, "metadata": {**manifest["metadata"], "namespace": "shop"}}


def test_a_namespace_goes_when_it_is_empty(database: Database) -> None:
    shop = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}}
    objects = [*disks(3), shop, in_shop(stateful_set()), pod("other")]
    stepped = Stepped(database, objects, node_agent=True)
    stepped.until(lambda: "db-2" in names(stepped, "Pod"))
    held = in_shop(claim("held", "1Gi"))
    stepped.create({**held, "metadata": {**held["metadata"], "finalizers": ["x.io/hold"]}})
    stepped.cluster.delete("Namespace", "shop")
    found = stepped.cluster.get("Namespace", "shop") or {}
    assert found["status"]["phase"] == "Terminating"
    assert found["spec"] == {"finalizers": ["kubernetes"]}
    stepped.until(lambda: names(stepped, "Pod") == ["other"] and names(stepped, "StatefulSet") == [])
    stepped.until(lambda: names(stepped, "PersistentVolumeClaim") == ["held"])
    stepped.settle()
    assert stepped.cluster.get("Namespace", "shop") is not None
    last = dict(stepped.cluster.get("PersistentVolumeClaim", "shop/held") or {})
    stepped.cluster.update("PersistentVolumeClaim", {**last, "metadata": {**last["metadata"], "finalizers": []}})
    stepped.until(lambda: stepped.cluster.get("Namespace", "shop") is None)
    assert [it for it in names(stepped, "ControllerRevision") if it.startswith("db-")] == []
    assert verify(stepped.database).ok


def delete_set(stepped: Stepped, dependents: door.Dependents) -> None:
    author = door.controller("somebody", stepped.now)
    write = door.delete("StatefulSet", "default/db", author, dependents=dependents)
    (outcome,) = execute(stepped.database, [write.command], now=stepped.now)
    assert isinstance(outcome, Done)


def test_a_set_may_go_and_leave_its_pods(stepped: Stepped) -> None:
    stepped.create(stateful_set())
    stepped.until(lambda: all(stepped.node_of(f"db-{i}") for i in range(3)))
    before = [uid(stepped, "Pod", f"db-{i}") for i in range(3)]
    delete_set(stepped, door.Dependents.ORPHAN)
    assert names(stepped, "StatefulSet") == ["db"]
    stepped.until(lambda: names(stepped, "StatefulSet") == [])
    stepped.settle()
    assert [uid(stepped, "Pod", f"db-{i}") for i in range(3)] == before
    assert all("ownerReferences" not in it["metadata"] for it in whole(stepped.cluster.list("Pod")).objects)


def test_a_set_may_go_after_its_pods(sqlite: Database) -> None:
    stepped = Stepped(sqlite, [*disks(3), stateful_set()], node_agent=True)
    stepped.until(lambda: "db-2" in names(stepped, "Pod"))
    delete_set(stepped, door.Dependents.FOREGROUND)
    while names(stepped, "StatefulSet"):
        left = names(stepped, "Pod")
        stepped.step(after=SECOND // 10)
        assert names(stepped, "StatefulSet") or not names(stepped, "Pod"), left
    assert names(stepped, "Pod") == []
