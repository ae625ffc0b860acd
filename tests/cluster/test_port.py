"""What every cluster behind the port must do, whoever numbers its objects."""

from typing import Any

import pytest

from tests.support.port_manifests import claim, node, pod, volume
from volsched.cluster.port import CallRefusedError, Cluster, Manifest, Refusal, Watched
from volsched.kube.merge_patch import merged
from volsched.scheduling.rules.node_avoidance import REJECTED_NODES

CLAIM, VOLUME, POD, NODE = "PersistentVolumeClaim", "PersistentVolume", "Pod", "Node"


def version(manifest: Manifest) -> int:
    return int(manifest["metadata"]["resourceVersion"])


def labelled(manifest: Manifest, **labels: str) -> dict[str, Any]:
    return merged(manifest, {"metadata": {"labels": labels}})


def refusal(call: Any, *args: Any, **kw: Any) -> Refusal:
    with pytest.raises(CallRefusedError) as caught:
        call(*args, **kw)
    return caught.value.refusal


def everything_since(
    cluster: Cluster, cursor: str, *, limit: int = 1_000
) -> list[tuple[str, str, Manifest | None]]:
    """What a watch tells until it has nothing more to tell."""
    told: list[tuple[str, str, Manifest | None]] = []
    while True:
        watched: Watched = cluster.watch(cursor=cursor, limit=limit)
        told += [(change.kind, change.key, change.manifest) for change in watched.changes]
        if watched.cursor == cursor:
            return told
        cursor = watched.cursor


def test_what_was_created_is_read_back_with_a_uid_a_time_and_a_version(cluster: Cluster) -> None:
    made = cluster.create(CLAIM, claim())
    assert cluster.get(CLAIM, "db/data") == made
    assert made["metadata"]["uid"]
    assert made["metadata"]["creationTimestamp"]
    assert version(made) > 0
    assert made["spec"]["volumeMode"] == "Filesystem"


def test_what_is_not_there_is_read_as_nothing(cluster: Cluster) -> None:
    assert cluster.get(NODE, "n1") is None
    assert cluster.list(NODE).objects == ()


def test_a_name_that_is_taken_is_refused(cluster: Cluster) -> None:
    made = cluster.create(NODE, node())
    assert refusal(cluster.create, NODE, node(zone="b")) is Refusal.EXISTS
    assert cluster.get(NODE, "n1") == made


def test_a_list_holds_every_object_of_its_kind_and_no_other(cluster: Cluster) -> None:
    for name in ("n2", "n1"):
        cluster.create(NODE, node(name))
    cluster.create(VOLUME, volume())
    assert [it["metadata"]["name"] for it in cluster.list(NODE).objects] == ["n1", "n2"]


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
    assert refusal(cluster.update, NODE, node()) is Refusal.NOT_FOUND
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
    both = merged(labelled(main, a="c"), {"status": {"phase": "Bound"}})
    judged = cluster.update(CLAIM, both, status=True)
    assert (judged["metadata"]["labels"], judged["status"]) == ({"a": "b"}, {"phase": "Bound"})


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
    cluster.create(CLAIM, claim())
    bound = cluster.update(CLAIM, merged(cluster.get(CLAIM, "db/data") or {}, {"spec": {"volumeName": "pv"}}))
    let_go = {"spec": {"volumeName": None}}
    assert refusal(cluster.update, CLAIM, merged(bound, let_go)) is Refusal.INVALID
    marked = cluster.update(
        CLAIM, merged(bound, {"metadata": {"annotations": {"pv.kubernetes.io/rollback": "x"}}})
    )
    assert "volumeName" not in cluster.update(CLAIM, merged(marked, let_go))["spec"]


def test_a_watch_from_a_list_tells_everything_that_came_after_it_and_nothing_before(cluster: Cluster) -> None:
    cluster.create(NODE, node("before"))
    listed = cluster.list(NODE)
    made = cluster.create(NODE, node("after"))
    assert everything_since(cluster, listed.cursor) == [(NODE, "after", made)]


@pytest.mark.parametrize("limit", [1, 2, 1_000])
def test_a_watch_brings_whoever_follows_it_to_what_the_cluster_has(cluster: Cluster, limit: int) -> None:
    cursor = cluster.list(NODE).cursor
    for name in ("n1", "n2", "n3"):
        cluster.create(NODE, node(name))
    cluster.delete(NODE, "n2")
    cluster.update(NODE, labelled(cluster.get(NODE, "n3") or {}, zone="b"))
    cluster.create(POD, pod())
    followed = {(kind, key): manifest for kind, key, manifest in everything_since(cluster, cursor, limit=limit)}
    assert followed == {
        (NODE, "n1"): cluster.get(NODE, "n1"),
        (NODE, "n2"): None,
        (NODE, "n3"): cluster.get(NODE, "n3"),
        (POD, "db/app"): cluster.get(POD, "db/app"),
    }


def test_a_watch_numbers_a_deletion_after_every_version_the_object_had(cluster: Cluster) -> None:
    made = cluster.create(NODE, node())
    cursor = cluster.list(NODE).cursor
    cluster.delete(NODE, "n1")
    (change,) = cluster.watch(cursor=cursor).changes
    assert change.manifest is None
    assert int(change.version) > version(made)
    assert version(cluster.create(NODE, node())) > int(change.version)


def test_a_watch_with_nothing_new_stays_where_it_is(cluster: Cluster) -> None:
    cluster.create(NODE, node())
    cursor = cluster.list(NODE).cursor
    assert cluster.watch(cursor=cursor) == Watched((), cursor)


def test_a_pod_is_bound_once_and_only_the_pod_that_was_meant(cluster: Cluster) -> None:
    made = cluster.create(POD, pod())
    uid = made["metadata"]["uid"]
    assert refusal(cluster.bind_pod, "db/app", uid="another", node="n1") is Refusal.NOT_FOUND
    bound = cluster.bind_pod("db/app", uid=uid, node="n1")
    assert bound["spec"]["nodeName"] == "n1"
    assert version(bound) > version(made)
    assert refusal(cluster.bind_pod, "db/app", uid=uid, node="n2") is Refusal.CONFLICT
    assert cluster.get(POD, "db/app") == bound


def test_a_pod_is_taken_off_the_node_that_rejected_it_which_is_remembered(cluster: Cluster) -> None:
    uid = cluster.create(POD, pod())["metadata"]["uid"]
    assert refusal(cluster.unassign_pod, "db/app", uid=uid, reason="full") is Refusal.CONFLICT
    cluster.bind_pod("db/app", uid=uid, node="n1")
    freed = cluster.unassign_pod("db/app", uid=uid, reason="full")
    assert "nodeName" not in freed["spec"]
    assert freed["metadata"]["annotations"][REJECTED_NODES] == "n1"
    (condition,) = freed["status"]["conditions"]
    assert (condition["status"], condition["reason"], condition["message"]) == ("False", "NodeRejected", "full")


def test_a_pod_that_has_started_stays_where_it_is(cluster: Cluster) -> None:
    uid = cluster.create(POD, pod())["metadata"]["uid"]
    bound = cluster.bind_pod("db/app", uid=uid, node="n1")
    started = {"status": {"containerStatuses": [{"name": "main", "state": {"running": {}}}]}}
    running = cluster.update(POD, merged(bound, started), status=True)
    assert refusal(cluster.unassign_pod, "db/app", uid=uid, reason="full") is Refusal.CONFLICT
    assert cluster.get(POD, "db/app") == running


def test_what_is_handed_out_may_be_changed_without_changing_the_cluster(cluster: Cluster) -> None:
    cluster.create(NODE, node())
    handed_out: Any = cluster.get(NODE, "n1")
    handed_out["metadata"]["labels"]["zone"] = "b"
    assert "zone" not in (cluster.get(NODE, "n1") or {})["metadata"]["labels"]
