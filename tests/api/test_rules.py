"""What can be said about a request without a server: paths, selectors, forms, fields, versions, discovery."""

from importlib.resources import files
from typing import Any

import pytest

from tests.api.field_types import dumped
from volsched.api.access.hosts import is_loopback
from volsched.api.kubernetes import discovery
from volsched.api.kubernetes.negotiation import AnswerFormat, wanted_form
from volsched.api.kubernetes.queries import parse_field_selector, read_token, token
from volsched.api.kubernetes.resources import (
    RESOURCES,
    ApiGroup,
    GroupVersion,
    RequestTarget,
    ResourceStorage,
    Root,
    parse_path,
    resource_at,
)
from volsched.api.kubernetes.statuses import ApiError
from volsched.api.watch_cache import changes_of
from volsched.kube.field_selectors import fields_match
from volsched.kube.kinds import KINDS
from volsched.kube.known_fields import unknown_fields
from volsched.log.events.envelope import Event, canonical


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/api", Root(core=True)),
        ("/apis/", Root(core=False)),
        ("/apis/apps", ApiGroup("apps")),
        ("/api/v1", GroupVersion("", "v1")),
        ("/apis/storage.k8s.io/v1", GroupVersion("storage.k8s.io", "v1")),
        ("/api/v1/nodes", ("nodes", None, None, None)),
        ("/api/v1/nodes/n1/status", ("nodes", None, "n1", "status")),
        ("/api/v1/pods", ("pods", None, None, None)),
        ("/api/v1/namespaces", ("namespaces", None, None, None)),
        ("/api/v1/namespaces/shop", ("namespaces", None, "shop", None)),
        ("/api/v1/namespaces/shop/status", ("namespaces", None, "shop", "status")),
        ("/api/v1/namespaces/shop/pods", ("pods", "shop", None, None)),
        ("/api/v1/namespaces/shop/pods/p/binding", ("pods", "shop", "p", "binding")),
        ("/apis/apps/v1/namespaces/shop/statefulsets/s", ("statefulsets", "shop", "s", None)),
        ("/apis/storage.k8s.io/v1/csidrivers/a%2Fb", ("csidrivers", None, "a/b", None)),
        ("/apis/storage.k8s.io/v1/storageclasses/a%2Fb", None),
        ("/apis/storage.k8s.io/v1/storageclasses/a/b", None),
        ("/api/v1/namespaces/shop/pods/p/exec", None),
        ("/api/v1/watch/pods", None),
        ("/api/v1/statefulsets", None),
        ("", None),
    ],
)
def test_paths(path: str, expected: Any) -> None:
    found = parse_path(path)
    if isinstance(found, RequestTarget):
        assert (found.resource.plural, found.namespace, found.name, found.subresource) == expected
    else:
        assert found == expected


POD = {
    "metadata": {"name": "p", "namespace": "shop"},
    "spec": {"nodeName": "n1"},
    "status": {"phase": "Running"},
}


@pytest.mark.parametrize(
    ("selector", "matches"),
    [
        ("", True),
        ("metadata.name=p", True),
        ("metadata.name==p,metadata.namespace=shop", True),
        ("spec.nodeName=", False),
        ("spec.nodeName!=", True),
        ("spec.nodeName=n1,status.phase!=Running", False),
        ("status.phase!=Succeeded,status.phase!=Failed", True),
        ("spec.schedulerName=", True),
        ("spec.hostNetwork=false", True),
    ],
)
def test_field_selectors(selector: str, matches: bool) -> None:
    pods = resource_at("", "v1", "pods")
    assert pods is not None
    assert fields_match(parse_field_selector(selector, pods), POD) is matches


def test_a_value_of_a_field_selector_may_be_escaped() -> None:
    events = resource_at("", "v1", "events")
    assert events is not None
    (term,) = parse_field_selector(r"reason=a\,b\=c\\", events)
    assert term.value == r"a,b=c\\"[:-1]


@pytest.mark.parametrize(
    ("accept", "form"),
    [
        (None, AnswerFormat.OBJECT),
        ("*/*", AnswerFormat.OBJECT),
        ("application/json;as=Table;v=v1;g=meta.k8s.io,application/json", AnswerFormat.TABLE),
        ("application/json;as=Table;v=v7;g=meta.k8s.io,application/json", AnswerFormat.OBJECT),
        ("application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1", AnswerFormat.METADATA_LIST),
        ("application/vnd.kubernetes.protobuf;as=Table;v=v1;g=meta.k8s.io,application/json", AnswerFormat.OBJECT),
    ],
)
def test_the_first_form_that_we_have_is_given(accept: str | None, form: AnswerFormat) -> None:
    assert wanted_form(accept).form is form


@pytest.mark.parametrize(
    ("kind", "manifest", "unknown"),
    [
        ("Pod", {"spec": {"containers": [{"name": "a", "ports": [{"containerPort": 1, "prot": "x"}]}]}},
         ["spec.containers[0].ports[0].prot"]),
        ("Pod", {"spec": {"containrs": []}, "metadata": {"labels": {"any": "key"}}}, ["spec.containrs"]),
        ("PersistentVolumeClaim", {"status": {"dataState": "Clean", "capacity": {"x": 1}}},
         []),
        ("StorageClass", {"bindingMode": "Immediate", "parameters": {"a": "b"}, "spec": {}}, ["spec"]),
    ],
)  # fmt: skip
def test_unknown_fields_are_named_by_their_place(kind: str, manifest: Any, unknown: list[str]) -> None:
    assert unknown_fields(KINDS[kind], manifest) == unknown


def test_the_known_fields_are_those_of_the_official_client() -> None:
    """After an update: python -m tests.api.field_types > new.json && mv new.json volsched/kube/fields.json"""
    assert files("volsched.kube").joinpath("fields.json").read_bytes() == dumped()


def test_a_token_says_where_a_list_goes_on() -> None:
    assert read_token(token(7, "shop/db-0")) == (7, "shop/db-0")
    for wrong in ("", "x", token(-1, "a"), token(2**63, "a")):
        with pytest.raises(ApiError):
            read_token(wrong)


@pytest.mark.parametrize(
    ("host", "local"),
    [
        ("127.0.0.1", True),
        ("127.9.9.9", True),
        ("::1", True),
        ("localhost", True),
        ("0.0.0.0", False),
        ("::", False),
        ("10.0.0.1", False),
        ("localhost.evil.com", False),
        ("", False),
    ],
)
def test_loopback(host: str, local: bool) -> None:
    assert is_loopback(host) is local


def test_everything_served_is_discovered_and_described() -> None:
    for resource in RESOURCES:
        listed = discovery.resource_list(resource.group, resource.version)
        assert listed is not None
        (entry,) = [it for it in listed["resources"] if it["name"] == resource.plural]
        assert (entry["kind"], entry["namespaced"]) == (resource.kind.name, resource.namespaced)
        if resource.stored_in is ResourceStorage.NOT:
            assert entry["verbs"] == ["get", "list", "watch"]
            continue
        place = f"apis/{resource.group}/v1" if resource.group else "api/v1"
        document = discovery.document(place)
        assert document is not None
        kinds = [it.get("patch", {}).get("x-kubernetes-group-version-kind") for it in document["paths"].values()]
        assert {"group": resource.group, "version": "v1", "kind": resource.kind.name} in kinds


def _event(position: int, stream: str, type_: str, data: Any) -> Event:
    return Event(position, stream, position, type_, 1, 0, "t", None, None, canonical(data), b"")


def test_what_events_mean_to_a_watcher() -> None:
    made = {"patch": {"metadata": {"name": "v"}}}
    log = [
        _event(1, "volume/v", "VolumeCreated", made),
        _event(2, "volume/v", "VolumeAssumed", {"binding": "b", "patch": {}, "rv": 1}),
        _event(3, "binding/b", "BindingMoved", {"state": "x", "open": True}),
        _event(4, "volume/v", "VolumeFreed", {"binding": "b"}),
        _event(5, "volume/v", "VolumeChanged", {"patch": {"spec": {"x": 1}}}),
        _event(6, "volume/v", "VolumeDeleted", {}),
        _event(7, "volume/v", "VolumeCreated", made),
        _event(8, "volume/v", "VolumeFromTheFuture", {}),
    ]
    changes = list(changes_of(log, {}))
    seen = [(it.position, it.before is not None, it.after is not None) for it in changes]
    assert seen == [(1, False, True), (5, True, True), (6, True, False), (7, False, True)]
