"""What every cluster behind the port must do, whoever numbers its objects."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from tests.support.patience import wait_until
from tests.support.port_manifests import claim, node, pod, volume
from volsched.cluster.port import (
    CallRefusedError,
    Cluster,
    Cursors,
    Manifest,
    Permission,
    PortChange,
    Refusal,
    whole,
)
from volsched.kube.kinds import key_of
from volsched.kube.meta import GATE
from volsched.kube.patches import merged
from volsched.scheduling.rules.failure_memory import REJECTED_NODES

CLAIM, VOLUME, POD, NODE = "PersistentVolumeClaim", "PersistentVolume", "Pod", "Node"


def version(manifest: Manifest) -> int:
    return int(manifest["metadata"]["resourceVersion"])


def needs(capability: bool) -> None:
    if not capability:
        pytest.skip("this cluster cannot do it")


def labelled(manifest: Manifest, **labels: str) -> dict[str, Any]:
    return merged(manifest, {"metadata": {"labels": labels}})


def refusal(call: Any, *args: Any, **kw: Any) -> Refusal:
    with pytest.raises(CallRefusedError) as caught:
        call(*args, **kw)
    return caught.value.refusal


def cursors(cluster: Cluster, *kinds: str) -> dict[str, str]:
    return {kind: whole(cluster.list(kind)).cursor for kind in kinds}


def follow(
    cluster: Cluster, after: Cursors, until: Callable[[list[PortChange]], object], *, limit: int = 1_000
) -> list[PortChange]:
    """What a watch tells from the cursors on, until the condition holds: it may come late."""
    told: list[PortChange] = []
    known = dict(after)

    def has_come() -> object:
        watched = cluster.watch(known, limit=limit)
        told.extend(watched.changes)
        known.update(watched.cursors)
        return until(told)

    wait_until(has_come, progress=lambda: len(told))
    return told


def names(*keys: str) -> Callable[[list[PortChange]], bool]:
    """All of these have been told about."""
    return lambda told: {change.key for change in told} >= set(keys)


def test_what_was_created_is_read_back_with_a_uid_a_time_and_a_version(cluster: Cluster) -> None:
    made = cluster.create(CLAIM, claim())
    assert cluster.get(CLAIM, "db/data") == made
    assert made["metadata"]["uid"]
    assert made["metadata"]["creationTimestamp"]
    assert version(made) > 0
    assert made["spec"]["volumeMode"] == "Filesystem"


def test_what_is_not_there_is_read_as_nothing(cluster: Cluster) -> None:
    assert cluster.get(NODE, "n1") is None
    assert whole(cluster.list(NODE)).objects == ()


def test_a_name_that_is_taken_is_refused(cluster: Cluster) -> None:
    made = cluster.create(NODE, node())
    assert refusal(cluster.create, NODE, node(zone="b")) is Refusal.EXISTS
    assert cluster.get(NODE, "n1") == made


def test_a_list_holds_every_object_of_its_kind_and_no_other(cluster: Cluster) -> None:
    for name in ("n2", "n1"):
        cluster.create(NODE, node(name))
    cluster.create(VOLUME, volume())
    assert sorted(it["metadata"]["name"] for it in whole(cluster.list(NODE)).objects) == ["n1", "n2"]


def test_every_write_gives_a_larger_version(cluster: Cluster) -> None:
    made = cluster.create(VOLUME, volume())
    changed = cluster.update(VOLUME, labelled(made, a="b"))
    judged = cluster.update(VOLUME, merged(changed, {"status": {"phase": "Available"}}), status=True)
    assert version(made) < version(changed) < version(judged)


def test_an_update_that_changes_nothing_keeps_the_version(cluster: Cluster) -> None:
    made = cluster.create(VOLUME, volume())
    assert cluster.update(VOLUME, made) == made


def test_an_update_of_a_stale_version_changes_nothing(cluster: Cluster) -> None:
    made = cluster.create(VOLUME, volume())
    changed = cluster.update(VOLUME, labelled(made, a="b"))
    assert refusal(cluster.update, VOLUME, labelled(made, a="c")) is Refusal.CONFLICT
    assert refusal(cluster.update, VOLUME, labelled(made, a="c"), status=True) is Refusal.CONFLICT
    assert cluster.get(VOLUME, "pv") == changed


def test_an_update_of_what_is_not_there_is_refused(cluster: Cluster) -> None:
    gone = merged(node(), {"metadata": {"resourceVersion": "1"}})
    assert refusal(cluster.update, NODE, gone) is Refusal.NOT_FOUND
    assert refusal(cluster.delete, NODE, "n1") is Refusal.NOT_FOUND


def test_an_object_that_breaks_a_rule_is_refused(cluster: Cluster) -> None:
    made = cluster.create(CLAIM, claim())
    without_modes = merged(claim("other"), {"spec": {"accessModes": []}})
    assert refusal(cluster.create, CLAIM, without_modes) is Refusal.INVALID
    other_modes = merged(made, {"spec": {"accessModes": ["ReadOnlyMany"]}})
    assert refusal(cluster.update, CLAIM, other_modes) is Refusal.INVALID
    assert cluster.get(CLAIM, "db/data") == made


def test_an_update_leaves_the_status_and_a_status_update_leaves_the_rest(cluster: Cluster) -> None:
    made = cluster.create(CLAIM, claim())
    both = merged(labelled(made, a="b"), {"status": {"phase": "Bound"}})
    main = cluster.update(CLAIM, both)
    assert (main["metadata"]["labels"], main["status"]) == ({"a": "b"}, {"phase": "Pending"})
    both = merged(main, {"spec": {"storageClassName": "other"}, "status": {"phase": "Bound"}})
    judged = cluster.update(CLAIM, both, status=True)
    assert (judged["spec"], judged["status"]) == (main["spec"], {"phase": "Bound"})


def test_without_finalizers_a_deleted_object_is_gone(cluster: Cluster) -> None:
    cluster.create(NODE, node())
    cluster.delete(NODE, "n1")
    assert cluster.get(NODE, "n1") is None


def test_only_the_object_and_the_version_that_were_meant_are_deleted(cluster: Cluster) -> None:
    made = cluster.create(NODE, node())
    assert refusal(cluster.delete, NODE, "n1", uid="another") is Refusal.CONFLICT
    assert refusal(cluster.delete, NODE, "n1", version=str(version(made) + 1)) is Refusal.CONFLICT
    cluster.delete(NODE, "n1", uid=made["metadata"]["uid"], version=str(version(made)))
    assert cluster.get(NODE, "n1") is None


def test_finalizers_hold_a_deleted_object_until_the_last_is_gone(cluster: Cluster) -> None:
    cluster.create(CLAIM, claim())
    cluster.delete(CLAIM, "db/data")
    held = cluster.get(CLAIM, "db/data")
    assert held is not None
    assert held["metadata"]["deletionTimestamp"]
    freed = merged(held, {"metadata": {"finalizers": None}})
    assert cluster.update(CLAIM, freed)["metadata"]["uid"] == held["metadata"]["uid"]
    assert cluster.get(CLAIM, "db/data") is None


def test_a_name_that_is_used_again_has_a_new_uid_and_a_larger_version(cluster: Cluster) -> None:
    first = cluster.create(NODE, node())
    cluster.delete(NODE, "n1")
    second = cluster.create(NODE, node())
    assert first["metadata"]["uid"] != second["metadata"]["uid"]
    assert version(first) < version(second)


def test_a_claim_gives_its_volume_up_only_while_it_is_rolled_back(cluster: Cluster) -> None:
    needs(cluster.capabilities.can_unbind)
    cluster.create(CLAIM, claim())
    bound = cluster.update(CLAIM, merged(cluster.get(CLAIM, "db/data") or {}, {"spec": {"volumeName": "pv"}}))
    let_go = {"spec": {"volumeName": None}}
    assert refusal(cluster.update, CLAIM, merged(bound, let_go)) is Refusal.INVALID
    marked = cluster.update(
        CLAIM, merged(bound, {"metadata": {"annotations": {"pv.kubernetes.io/rollback": "x"}}})
    )
    assert "volumeName" not in cluster.update(CLAIM, merged(marked, let_go))["spec"]


def test_pages_of_a_list_end_with_the_cursor(cluster: Cluster) -> None:
    for name in ("n1", "n2", "n3"):
        cluster.create(NODE, node(name))
    *first, last = cluster.list(NODE)
    assert [page.cursor for page in first] == [None] * len(first)
    assert last.cursor is not None


def test_a_watch_from_a_list_tells_everything_that_came_after_it_and_nothing_before(cluster: Cluster) -> None:
    cluster.create(NODE, node("before"))
    after = cursors(cluster, NODE)
    made = cluster.create(NODE, node("after"))
    assert follow(cluster, after, names("after")) == [
        PortChange(NODE, "after", made, made["metadata"]["resourceVersion"])
    ]


@pytest.mark.parametrize("limit", [1, 2, 1_000])
def test_a_watch_brings_whoever_follows_it_to_what_the_cluster_has(cluster: Cluster, limit: int) -> None:
    after = cursors(cluster, NODE, POD)
    for name in ("n1", "n2", "n3"):
        cluster.create(NODE, node(name))
    cluster.delete(NODE, "n2")
    changed = cluster.update(NODE, labelled(cluster.get(NODE, "n3") or {}, zone="b"))
    cluster.create(POD, pod())

    def followed(told: list[PortChange]) -> dict[tuple[str, str], Manifest | None]:
        return {(change.kind, change.key): change.manifest for change in told}

    expected = {
        (NODE, "n1"): cluster.get(NODE, "n1"),
        (NODE, "n2"): None,
        (NODE, "n3"): changed,
        (POD, "db/app"): cluster.get(POD, "db/app"),
    }
    follow(cluster, after, lambda told: followed(told) == expected, limit=limit)


def test_kinds_that_were_not_asked_for_are_not_told(cluster: Cluster) -> None:
    after = cursors(cluster, NODE)
    cluster.create(VOLUME, volume())
    cluster.create(NODE, node())
    told = follow(cluster, after, names("n1"))
    assert {change.kind for change in told} == {NODE}
    assert set(cluster.watch(after).cursors) == {NODE}


def test_a_watch_goes_back_to_the_cursors_that_it_is_given(cluster: Cluster) -> None:
    after = cursors(cluster, NODE, VOLUME)
    made = cluster.create(NODE, node())
    first = follow(cluster, after, names("n1"))
    again = follow(cluster, after, names("n1"))
    assert first == again == [PortChange(NODE, "n1", made, made["metadata"]["resourceVersion"])]


def test_a_watch_numbers_a_deletion_after_every_version_the_object_had(cluster: Cluster) -> None:
    made = cluster.create(NODE, node())
    after = cursors(cluster, NODE)
    cluster.delete(NODE, "n1")
    (change,) = follow(cluster, after, names("n1"))
    assert change.manifest is None
    assert int(change.version) > version(made)
    assert version(cluster.create(NODE, node())) > int(change.version)


def test_a_watch_with_nothing_new_tells_nothing(cluster: Cluster) -> None:
    cluster.create(NODE, node())
    after = cursors(cluster, NODE)
    watched = cluster.watch(after)
    assert watched.changes == ()
    assert int(watched.cursors[NODE]) >= int(after[NODE])


def test_a_patch_changes_what_it_names_and_nothing_else(cluster: Cluster) -> None:
    made = cluster.create(VOLUME, labelled(volume(), a="b", c="d"))
    patch = {"metadata": {"labels": {"a": None, "e": "f"}}, "spec": {"claimRef": {"namespace": "db", "name": "x"}}}
    patched = cluster.patch(VOLUME, "pv", patch, version=str(version(made)))
    assert patched == cluster.get(VOLUME, "pv")
    assert patched["metadata"]["labels"] == {"c": "d", "e": "f"}
    assert (patched["spec"]["claimRef"]["name"], patched["spec"]["csi"]) == ("x", made["spec"]["csi"])
    cleared = cluster.patch(VOLUME, "pv", {"spec": {"claimRef": None}}, version=str(version(patched)))
    assert "claimRef" not in cleared["spec"]


def test_a_patch_is_refused_at_any_other_version_even_if_it_would_change_nothing(cluster: Cluster) -> None:
    made = cluster.create(VOLUME, volume())
    changed = cluster.update(VOLUME, labelled(made, a="b"))
    for other in (version(made), version(changed) + 1):
        for patch in ({"metadata": {"labels": {"a": "c"}}}, {"metadata": {"labels": {"a": "b"}}}):
            assert refusal(cluster.patch, VOLUME, "pv", patch, version=str(other)) is Refusal.CONFLICT
    assert cluster.get(VOLUME, "pv") == changed
    assert (
        cluster.patch(VOLUME, "pv", {"metadata": {"labels": {"a": "b"}}}, version=str(version(changed))) == changed
    )


def test_a_patch_of_what_is_not_there_is_refused(cluster: Cluster) -> None:
    assert refusal(cluster.patch, VOLUME, "pv", {"metadata": {}}, version="1") is Refusal.NOT_FOUND


def test_a_status_patch_leaves_the_rest(cluster: Cluster) -> None:
    made = cluster.create(VOLUME, volume())
    patch = {"metadata": {"labels": {"a": "b"}}, "status": {"reason": "tried"}}
    patched = cluster.patch(VOLUME, "pv", patch, version=str(version(made)), status=True)
    assert patched["status"]["reason"] == "tried"
    assert "labels" not in patched["metadata"]


def test_an_update_without_a_version_is_refused(cluster: Cluster) -> None:
    made = cluster.create(VOLUME, volume())
    assert refusal(cluster.update, VOLUME, labelled(volume(), a="b")) is Refusal.INVALID
    assert cluster.get(VOLUME, "pv") == made


def test_a_pod_is_bound_once_and_only_the_pod_that_was_meant(cluster: Cluster) -> None:
    made = cluster.create(POD, pod())
    uid, seen = made["metadata"]["uid"], str(version(made))
    bind = partial(cluster.bind_pod, "db/app", node="n1")
    assert refusal(bind, uid="another", version=seen) is Refusal.CONFLICT
    assert refusal(bind, uid=uid, version=str(version(made) + 1)) is Refusal.CONFLICT
    assert refusal(cluster.bind_pod, "db/other", uid=uid, version=seen, node="n1") is Refusal.NOT_FOUND
    bind(uid=uid, version=seen, annotations={"volsched.io/note": "x"})
    bound = cluster.get(POD, "db/app") or {}
    assert bound["spec"]["nodeName"] == "n1"
    assert bound["metadata"]["annotations"]["volsched.io/note"] == "x"
    assert version(bound) > version(made)
    assert refusal(bind, uid=uid, version=str(version(bound))) is Refusal.CONFLICT
    assert cluster.get(POD, "db/app") == bound


def test_a_cluster_says_which_it_is_and_what_we_may_do(cluster: Cluster) -> None:
    wanted = (Permission("list", NODE), Permission("create", POD, "binding"))
    identity = cluster.describe(wanted)
    assert identity.reachable
    assert identity.trouble is None
    assert identity.may == dict.fromkeys(wanted, True)
    assert identity == replace(cluster.describe(wanted), url=identity.url)


def test_a_pod_is_taken_off_the_node_that_rejected_it_which_is_remembered(cluster: Cluster) -> None:
    needs(cluster.capabilities.can_unassign)
    made = cluster.create(POD, pod())
    uid = made["metadata"]["uid"]
    assert refusal(cluster.unassign_pod, "db/app", uid=uid, reason="full") is Refusal.CONFLICT
    cluster.bind_pod("db/app", uid=uid, version=str(version(made)), node="n1")
    freed = cluster.unassign_pod("db/app", uid=uid, reason="full")
    assert "nodeName" not in freed["spec"]
    assert freed["metadata"]["annotations"][REJECTED_NODES] == "n1"
    (condition,) = freed["status"]["conditions"]
    assert (condition["status"], condition["reason"], condition["message"]) == ("False", "NodeRejected", "full")


def test_a_pod_that_has_started_stays_where_it_is(cluster: Cluster) -> None:
    needs(cluster.capabilities.can_unassign)
    made = cluster.create(POD, pod())
    uid = made["metadata"]["uid"]
    cluster.bind_pod("db/app", uid=uid, version=str(version(made)), node="n1")
    bound = cluster.get("Pod", "db/app") or {}
    started = {"status": {"containerStatuses": [{"name": "main", "state": {"running": {}}}]}}
    running = cluster.update(POD, merged(bound, started), status=True)
    assert refusal(cluster.unassign_pod, "db/app", uid=uid, reason="full") is Refusal.CONFLICT
    assert cluster.get(POD, "db/app") == running


def test_what_is_handed_out_may_be_changed_without_changing_the_cluster(cluster: Cluster) -> None:
    cluster.create(NODE, node())
    handed_out: Any = cluster.get(NODE, "n1")
    handed_out["metadata"]["labels"]["zone"] = "b"
    assert "zone" not in (cluster.get(NODE, "n1") or {})["metadata"]["labels"]


# What a binding does besides ---------------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "key", "made"), [(VOLUME, "pv-1", volume("pv-1")), (POD, "db/app", pod())])
def test_a_fence_refuses_every_write_on_the_version_before_it(
    cluster: Cluster, kind: str, key: str, made: dict[str, Any]
) -> None:
    before = cluster.create(kind, made)
    fenced = cluster.fence(kind, key, version=str(version(before)), mark="one")
    assert version(fenced) > version(before)
    late = partial(cluster.patch, kind, key, {"metadata": {"labels": {"late": "yes"}}})
    assert refusal(late, version=str(version(before))) is Refusal.CONFLICT
    assert refusal(cluster.fence, kind, key, version=str(version(before)), mark="two") is Refusal.CONFLICT
    assert refusal(cluster.fence, kind, "db/none" if "/" in key else "none", version="1", mark="x") in (
        Refusal.NOT_FOUND,
    )


def test_our_gate_is_removed_from_the_pod_that_was_read_and_no_other_gate_is(cluster: Cluster) -> None:
    other = {"name": "example.com/quota"}
    made = cluster.create(POD, merged(pod(), {"spec": {"schedulingGates": [other, {"name": GATE}]}}))
    key = key_of(POD, made)
    changed = cluster.update(POD, labelled(made, a="b"))
    assert refusal(cluster.open_gate, key, made) is Refusal.CONFLICT
    opened = cluster.open_gate(key, changed)
    assert opened["spec"]["schedulingGates"] == [other]
    assert refusal(cluster.open_gate, key, opened) is Refusal.CONFLICT


def test_a_condition_is_set_by_its_type_on_the_pod_that_was_meant(cluster: Cluster) -> None:
    made = cluster.create(POD, pod())
    unschedulable = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "no node"}
    cluster.set_condition("db/app", {"type": "Ready", "status": "False"}, uid=made["metadata"]["uid"])
    cluster.set_condition("db/app", unschedulable, uid=made["metadata"]["uid"])
    conditions = {it["type"]: it for it in (cluster.get(POD, "db/app") or {})["status"]["conditions"]}
    assert conditions.keys() == {"Ready", "PodScheduled"}
    assert unschedulable.items() <= conditions["PodScheduled"].items()
    assert refusal(cluster.set_condition, "db/app", unschedulable, uid="another") is Refusal.INVALID
