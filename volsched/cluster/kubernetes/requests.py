"""The requests that the adapter sends, as values: path, query, body and form, without a connection."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from volsched.cluster.port import PLURALS, Manifest, Permission
from volsched.kube.kinds import KINDS
from volsched.kube.meta import FENCE, GATE

JSON = "application/json"
MERGE_PATCH = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"
STRATEGIC_MERGE_PATCH = "application/strategic-merge-patch+json"
METADATA_LIST = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
"""`v=1` would get 406; with plain JSON as a second choice, whole objects would be sent without an error."""
VERSION_PATH = "/version"
IDENTITY_PATH = "/api/v1/namespaces/kube-system"
"""The namespace whose uid is the cluster's."""
REVIEW_PATH = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
PAGE_OBJECTS = 500
LEASE_VERSION = "coordination.k8s.io/v1"


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiRequest:
    method: str
    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    body: Any = None
    """An object, or the operations of a JSON patch."""
    content_type: str = JSON
    accept: str = JSON
    what: str
    """The request in error messages: `patch PersistentVolume "pv-1"`."""
    kind: str = ""

    @property
    def writes(self) -> bool:
        return self.method != "GET" and self.path != REVIEW_PATH


def group_version_path(kind: str) -> str:
    version = KINDS[kind].api_version
    return f"/apis/{version}" if "/" in version else f"/api/{version}"


def collection_path(kind: str, namespace: str | None = None) -> str:
    within = f"/namespaces/{quote(namespace, safe='')}" if namespace else ""
    return f"{group_version_path(kind)}{within}/{PLURALS[kind]}"


def object_path(kind: str, key: str, subresource: str = "") -> str:
    """The path of an object by `name` or `namespace/name`."""
    namespace, _, name = key.rpartition("/")
    below = f"/{subresource}" if subresource else ""
    return f"{collection_path(kind, namespace or None)}/{quote(name, safe='')}{below}"


def get(kind: str, key: str) -> ApiRequest:
    """Read an object. Without a version parameter the server reads its store, not a cache."""
    return ApiRequest(method="GET", path=object_path(kind, key), what=f'get {kind} "{key}"', kind=kind)


def list_page(kind: str, *, token: str = "", from_cache: bool = False, accept: str = JSON) -> ApiRequest:
    """A page of a consistent list; `from_cache`: the whole list, at the version of the server's cache."""
    query = {"resourceVersion": "0"} if from_cache else {"limit": str(PAGE_OBJECTS)}
    query |= {"continue": token} if token else {}
    return ApiRequest(
        method="GET", path=collection_path(kind), query=query, accept=accept, what=f"list {kind}", kind=kind
    )


def streamed_list(kind: str, *, timeout_seconds: int) -> ApiRequest:
    """A list as a watch stream. Bookmarks must be allowed: one marks the end of the list."""
    query = {
        "watch": "1",
        "sendInitialEvents": "true",
        "resourceVersionMatch": "NotOlderThan",
        "allowWatchBookmarks": "true",
        "resourceVersion": "",
        "timeoutSeconds": str(timeout_seconds),
    }
    return ApiRequest(method="GET", path=collection_path(kind), query=query, what=f"list {kind}", kind=kind)


def watch(kind: str, *, version: str, timeout_seconds: int) -> ApiRequest:
    query = {
        "watch": "1",
        "resourceVersion": version,
        "allowWatchBookmarks": "true",
        "timeoutSeconds": str(timeout_seconds),
    }
    return ApiRequest(method="GET", path=collection_path(kind), query=query, what=f"watch {kind}", kind=kind)


def create(kind: str, key: str, manifest: Manifest) -> ApiRequest:
    body = {"apiVersion": KINDS[kind].api_version, "kind": kind, **manifest}
    namespace, _, _ = key.rpartition("/")
    path = collection_path(kind, namespace or None)
    return ApiRequest(method="POST", path=path, body=body, what=f'create {kind} "{key}"', kind=kind)


def update(kind: str, key: str, manifest: Manifest, *, status: bool) -> ApiRequest:
    body = {"apiVersion": KINDS[kind].api_version, "kind": kind, **manifest}
    path = object_path(kind, key, "status" if status else "")
    return ApiRequest(method="PUT", path=path, body=body, what=f'update {kind} "{key}"', kind=kind)


def patch(kind: str, key: str, change: Manifest, *, version: str, status: bool) -> ApiRequest:
    """A merge patch. The body has the version, because a server would otherwise patch any version.

    A patch of the status sends only the status: a server would write labels and annotations too.
    """
    fields = {"status": change.get("status")} if status else change
    metadata = {} if status else change.get("metadata") or {}
    body = {**fields, "metadata": {**metadata, "resourceVersion": version}}
    return ApiRequest(
        method="PATCH",
        path=object_path(kind, key, "status" if status else ""),
        body=body,
        content_type=MERGE_PATCH,
        what=f'patch {kind} "{key}"',
        kind=kind,
    )


def fence(kind: str, key: str, *, version: str, mark: str) -> ApiRequest:
    """A pod is fenced through its status, which keeps annotations: our role may not patch pods otherwise."""
    body = {"metadata": {"resourceVersion": version, "annotations": {FENCE: mark}}}
    return ApiRequest(
        method="PATCH",
        path=object_path(kind, key, "status" if kind == "Pod" else ""),
        body=body,
        content_type=MERGE_PATCH,
        what=f'fence {kind} "{key}"',
        kind=kind,
    )


def open_gate(key: str, pod: Manifest, *, annotations: Mapping[str, str] | None) -> ApiRequest:
    """A JSON patch that tests the version and the gate's name, so that other gates stay."""
    names = [it.get("name") for it in (pod.get("spec") or {}).get("schedulingGates") or ()]
    place = names.index(GATE) if GATE in names else 0
    steps: list[dict[str, Any]] = [
        {"op": "test", "path": "/metadata/resourceVersion", "value": pod["metadata"]["resourceVersion"]},
        {"op": "test", "path": f"/spec/schedulingGates/{place}/name", "value": GATE},
        {"op": "remove", "path": f"/spec/schedulingGates/{place}"},
    ]
    if annotations:
        all_annotations = {**(pod["metadata"].get("annotations") or {}), **annotations}
        steps.append({"op": "add", "path": "/metadata/annotations", "value": all_annotations})
    return ApiRequest(
        method="PATCH",
        path=object_path("Pod", key),
        body=steps,
        content_type=JSON_PATCH,
        what=f'ungate Pod "{key}"',
        kind="Pod",
    )


def set_condition(key: str, condition: Manifest, *, uid: str) -> ApiRequest:
    """A strategic merge patch, because a merge patch would replace the whole list. Another uid is refused."""
    return ApiRequest(
        method="PATCH",
        path=object_path("Pod", key, "status"),
        body={"metadata": {"uid": uid}, "status": {"conditions": [dict(condition)]}},
        content_type=STRATEGIC_MERGE_PATCH,
        what=f'update the status of Pod "{key}"',
        kind="Pod",
    )


def create_event(event: Manifest) -> ApiRequest:
    namespace = event["metadata"]["namespace"]
    body = {"apiVersion": "events.k8s.io/v1", "kind": "Event", **event}
    path = f"/apis/events.k8s.io/v1/namespaces/{quote(namespace, safe='')}/events"
    return ApiRequest(
        method="POST", path=path, body=body, what=f"create Event {event.get('reason')}", kind="Event"
    )


def get_lease(key: str) -> ApiRequest:
    return ApiRequest(method="GET", path=_lease_path(key), what=f'get Lease "{key}"', kind="Lease")


def create_lease(manifest: Manifest) -> ApiRequest:
    key = f"{manifest['metadata']['namespace']}/{manifest['metadata']['name']}"
    return ApiRequest(
        method="POST",
        path=_lease_path(key).rpartition("/")[0],
        body={"apiVersion": LEASE_VERSION, "kind": "Lease", **manifest},
        what=f'create Lease "{key}"',
        kind="Lease",
    )


def update_lease(manifest: Manifest) -> ApiRequest:
    key = f"{manifest['metadata']['namespace']}/{manifest['metadata']['name']}"
    body = {"apiVersion": LEASE_VERSION, "kind": "Lease", **manifest}
    return ApiRequest(method="PUT", path=_lease_path(key), body=body, what=f'update Lease "{key}"', kind="Lease")


def _lease_path(key: str) -> str:
    namespace, _, name = key.partition("/")
    return f"/apis/{LEASE_VERSION}/namespaces/{quote(namespace, safe='')}/leases/{quote(name, safe='')}"


def delete(kind: str, key: str, *, uid: str | None, version: str | None) -> ApiRequest:
    conditions = {"uid": uid, "resourceVersion": version}
    body: dict[str, Any] = {"apiVersion": "v1", "kind": "DeleteOptions"}
    if preconditions := {name: value for name, value in conditions.items() if value is not None}:
        body["preconditions"] = preconditions
    return ApiRequest(
        method="DELETE", path=object_path(kind, key), body=body, what=f'delete {kind} "{key}"', kind=kind
    )


def bind(key: str, *, uid: str, version: str, node: str, annotations: Mapping[str, str] | None) -> ApiRequest:
    """Bind the pod. uid and version are preconditions; the server merges the annotations into the pod's."""
    namespace, _, name = key.rpartition("/")
    names: dict[str, Any] = {"name": name, "namespace": namespace, "uid": uid, "resourceVersion": version}
    body = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": names | ({"annotations": dict(annotations)} if annotations else {}),
        "target": {"apiVersion": "v1", "kind": "Node", "name": node},
    }
    return ApiRequest(
        method="POST", path=object_path("Pod", key, "binding"), body=body, what=f'bind Pod "{key}"', kind="Pod"
    )


def access_review(permission: Permission) -> ApiRequest:
    resource = PLURALS[permission.kind]
    attributes = {"verb": permission.verb, "group": permission.api_group, "resource": resource}
    for name in ("subresource", "namespace", "name"):
        attributes |= {name: value} if (value := getattr(permission, name)) else {}
    body = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": attributes},
    }
    return ApiRequest(method="POST", path=REVIEW_PATH, body=body, what=f"ask whether we may {permission}")


def discovery(kind: str) -> ApiRequest:
    """The kinds of the kind's group, which show whether it is served."""
    return ApiRequest(method="GET", path=group_version_path(kind), what=f"discover whether {kind} is served")


def plain_get(path: str, what: str) -> ApiRequest:
    return ApiRequest(method="GET", path=path, what=what)
