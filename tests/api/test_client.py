"""The official Python client, as anybody would use it, against a real server."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest
from kubernetes import client, watch

from tests.support.clusters import LOCAL, claim, node, pod, volume
from tests.support.patience import HANG_SECONDS
from tests.support.serving import Served, served
from volsched.log.database import Database

Manifest = dict[str, Any]


def test_objects_are_created_read_listed_and_deleted(api: Served) -> None:
    made = api.core.create_node(node("n1", zone="a"))
    api.core.create_node(node("n2", zone="b"))
    assert made.metadata.uid
    assert api.core.read_node("n1").metadata.resource_version == made.metadata.resource_version == "1"
    assert [it.metadata.name for it in api.core.list_node().items] == ["n1", "n2"]
    assert [it.metadata.name for it in api.core.list_node(label_selector="zone in (b)").items] == ["n2"]
    assert [it.metadata.name for it in api.core.list_node(field_selector="metadata.name!=n2").items] == ["n1"]
    api.core.delete_node("n1")
    with pytest.raises(client.ApiException) as gone:
        api.core.read_node("n1")
    assert (gone.value.status, gone.value.reason) == (404, "Not Found")


def test_a_list_has_the_version_of_the_log(api: Served) -> None:
    api.create(node("n1"), LOCAL)
    assert api.core.list_node().metadata.resource_version == "2"
    assert api.storage.list_storage_class().metadata.resource_version == "2"


def test_pages_show_what_was_there_when_the_first_was_read(database: Database) -> None:
    with served(database) as api:
        api.create(*(claim(f"c{n}", "1Gi") for n in range(5)))
        first = api.core.list_namespaced_persistent_volume_claim("default", limit=2)
        api.core.delete_namespaced_persistent_volume_claim("c0", "default")
        api.http.patch(
            "/api/v1/namespaces/default/persistentvolumeclaims/c3",
            headers={"content-type": "application/merge-patch+json"},
            content=b'{"metadata":{"labels":{"new":"yes"}}}',
        )
        api.create(claim("c25", "1Gi"))
        rest = first
        names = [it.metadata.name for it in first.items]
        while rest.metadata._continue:
            rest = api.core.list_namespaced_persistent_volume_claim(
                "default", limit=2, _continue=rest.metadata._continue
            )
            assert rest.metadata.resource_version == first.metadata.resource_version
            assert not any(it.metadata.labels for it in rest.items)
            names += [it.metadata.name for it in rest.items]
        assert names == ["c0", "c1", "c2", "c3", "c4"]


def test_an_outdated_update_is_a_conflict(api: Served) -> None:
    api.create(node("n1"))
    mine, yours = api.core.read_node("n1"), api.core.read_node("n1")
    mine.metadata.labels["who"] = "me"
    api.core.replace_node("n1", mine)
    yours.metadata.labels["who"] = "you"
    with pytest.raises(client.ApiException) as conflict:
        api.core.replace_node("n1", yours)
    assert conflict.value.status == 409
    assert '"reason":"Conflict"' in conflict.value.body
    assert api.core.read_node("n1").metadata.labels["who"] == "me"


def test_patches_from_many_sides_all_arrive(api: Served) -> None:
    """Each is applied to what is there at its turn, so none has to be tried again and none is lost."""
    api.create(node("n1"))

    def label(number: int) -> int:
        labels = {f"l{number}": "x"}
        answer = httpx.patch(
            f"{api.url}/api/v1/nodes/n1",
            headers={"content-type": "application/merge-patch+json"},
            json={"metadata": {"labels": labels}},
        )
        return answer.status_code

    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(label, range(24))) == {200}
    assert {f"l{number}" for number in range(24)} <= set(api.core.read_node("n1").metadata.labels)


def test_a_name_is_taken_once(api: Served) -> None:
    api.create(node("n1"))
    with pytest.raises(client.ApiException) as taken:
        api.core.create_node(node("n1"))
    assert taken.value.status == 409
    assert '"reason":"AlreadyExists"' in taken.value.body


def test_what_a_controller_owns_is_written_through_status_alone(api: Served) -> None:
    api.create(pod("p"))
    main = api.core.patch_namespaced_pod("p", "default", {"status": {"phase": "Running"}})
    assert main.status.phase == "Pending"
    done = api.core.patch_namespaced_pod_status("p", "default", {"status": {"phase": "Running"}})
    assert done.status.phase == "Running"
    # A pod's labels come with its status, as on a real server; its spec does not.
    both = {"metadata": {"labels": {"a": "b"}}, "spec": {"nodeName": "n1"}}
    other = api.core.patch_namespaced_pod_status("p", "default", both)
    assert (other.metadata.labels, other.spec.node_name) == ({"a": "b"}, None)


def test_a_pod_is_bound_once(api: Served) -> None:
    api.create(pod("p"), node("n1"))
    bound = {"metadata": {"name": "p"}, "target": {"kind": "Node", "name": "n1"}}
    path = "/api/v1/namespaces/default/pods/p/binding"
    assert api.http.post(path, json=bound).json()["status"] == "Success"
    assert api.core.read_namespaced_pod("p", "default").spec.node_name == "n1"
    with pytest.raises(client.ApiException) as again:
        api.core.create_namespaced_pod_binding(
            "p",
            "default",
            client.V1Binding(
                metadata=client.V1ObjectMeta(name="p"), target=client.V1ObjectReference(kind="Node", name="n2")
            ),
            _preload_content=False,
        )
    assert again.value.status == 409


def test_another_pod_of_that_name_is_not_bound(api: Served) -> None:
    api.create(pod("p"))
    body = {"metadata": {"name": "p", "uid": "of-another"}, "target": {"kind": "Node", "name": "n1"}}
    assert api.http.post("/api/v1/namespaces/default/pods/p/binding", json=body).status_code == 409


def test_finalizers_keep_an_object_until_the_last_is_gone(api: Served) -> None:
    api.create(claim("c", "1Gi"))
    dying = api.core.delete_namespaced_persistent_volume_claim("c", "default")
    assert dying.metadata.deletion_timestamp is not None
    added = {"metadata": {"finalizers": ["kubernetes.io/pvc-protection", "example.com/more"]}}
    with pytest.raises(client.ApiException) as refused:
        api.core.patch_namespaced_persistent_volume_claim("c", "default", added)
    assert refused.value.status == 422
    api.core.patch_namespaced_persistent_volume_claim(
        "c", "default", [{"op": "remove", "path": "/metadata/finalizers"}]
    )
    assert api.http.get("/api/v1/namespaces/default/persistentvolumeclaims/c").status_code == 404


@pytest.mark.parametrize(
    ("conditions", "status"),
    [
        ({"uid": "another"}, 409),
        ({"resource_version": "99"}, 409),
        ({"resource_version": "1"}, 200),
    ],
)
def test_a_deletion_may_be_conditional(api: Served, conditions: dict[str, str], status: int) -> None:
    api.create(node("n1"))
    options = client.V1DeleteOptions(preconditions=client.V1Preconditions(**conditions))
    try:
        api.core.delete_node("n1", body=options)
        found = 200
    except client.ApiException as error:
        found = error.status
    assert found == status
    assert len(api.core.list_node().items) == (0 if status == 200 else 1)


def test_a_collection_is_deleted_by_selector(api: Served) -> None:
    api.create(node("n1", tier="x"), node("n2", tier="x"), node("n3"))
    api.core.delete_collection_node(label_selector="tier=x")
    assert [it.metadata.name for it in api.core.list_node().items] == ["n3"]


def test_a_dry_run_writes_nothing(api: Served) -> None:
    tried = api.core.create_node(node("n1"), dry_run="All")
    assert tried.metadata.uid
    assert api.core.list_node().metadata.resource_version == "0"
    api.create(node("n1"))
    assert (
        api.core.patch_node("n1", {"metadata": {"labels": {"a": "b"}}}, dry_run="All").metadata.labels["a"] == "b"
    )
    api.core.delete_node("n1", dry_run="All")
    assert "a" not in api.core.read_node("n1").metadata.labels


def test_a_name_can_be_left_to_the_server(api: Served) -> None:
    manifest = pod("ignored")
    del manifest["metadata"]["name"]
    manifest["metadata"]["generateName"] = "job-"
    names = {api.core.create_namespaced_pod("default", manifest).metadata.name for _ in range(3)}
    assert len(names) == 3
    assert all(name.startswith("job-") for name in names)


def test_an_update_that_changes_nothing_has_no_new_version(api: Served) -> None:
    api.create(node("n1"))
    same = api.core.read_node("n1")
    assert api.core.replace_node("n1", same).metadata.resource_version == "1"


def test_a_volume_of_an_unknown_claim_is_refused_and_of_a_known_one_taken(api: Served) -> None:
    (made,) = api.create(claim("c", "1Gi"))
    ref = {"namespace": "default", "name": "c"}
    unknown = volume("v", "1Gi", "n1")
    unknown["spec"]["claimRef"] = {**ref, "uid": "of-another-cluster"}
    refused = api.http.post("/api/v1/persistentvolumes", json=unknown)
    assert refused.status_code == 422
    assert refused.json()["details"]["causes"][0]["field"] == "spec.claimRef.uid"
    known = volume("v", "1Gi", "n1")
    known["spec"]["claimRef"] = {**ref, "uid": made["metadata"]["uid"]}
    api.create(known)


def test_an_informer_misses_nothing(up: Served) -> None:
    """List, then watch from there, as client libraries do: the watch leads to what a list then shows."""
    up.create(node("n1"), LOCAL, volume("v1", "1Gi", "n1"), volume("v2", "2Gi", "n1"))
    listed = up.core.list_persistent_volume_claim_for_all_namespaces()
    known: dict[str | None, Any] = {it.metadata.name: it for it in listed.items}
    up.create(claim("a", "1Gi"), claim("b", "2Gi"), pod("p", "a", "b"))
    following = watch.Watch()
    for event in following.stream(
        up.core.list_persistent_volume_claim_for_all_namespaces,
        resource_version=listed.metadata.resource_version,
        timeout_seconds=HANG_SECONDS,
    ):
        name = event["object"].metadata.name
        assert (event["type"] == "ADDED") == (name not in known)
        if name in known:
            before = known[name].metadata.resource_version
            assert int(event["object"].metadata.resource_version) > int(before)
        known[name] = event["object"]
        if [it.status.phase for it in known.values()] == ["Bound", "Bound"]:
            following.stop()
    assert {it.spec.volume_name for it in known.values()} == {"v1", "v2"}
    for event in watch.Watch().stream(up.core.list_namespaced_pod, "default", timeout_seconds=HANG_SECONDS):
        if event["object"].spec.node_name == "n1" and event["object"].status.phase == "Running":
            break
    else:
        pytest.fail("the pod does not run")


def test_a_pod_has_the_priority_of_its_class(api: Served) -> None:
    priority = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "first"}}
    assert api.http.post("/apis/scheduling.k8s.io/v1/priorityclasses", json={**priority, "value": 7}).is_success
    spec = {"priorityClassName": "first", "containers": [{"name": "c", "image": "i"}]}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": spec}
    assert api.http.post("/api/v1/namespaces/default/pods", json=pod).json()["spec"]["priority"] == 7
