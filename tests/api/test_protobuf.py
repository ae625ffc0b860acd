"""The messages that Go's clients send in protobuf: read as JSON would be, or refused; never a stack trace."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.api.protobuf_encoder import enveloped as message
from tests.api.protobuf_encoder import field
from tests.support.clusters import node, pod
from tests.support.serving import Served
from volsched.api.kubernetes.protobuf import MAGIC, messages, read_message
from volsched.api.kubernetes.statuses import ApiError

PROTOBUF = {"content-type": "application/vnd.kubernetes.protobuf"}
NAMESPACES = "/api/v1/namespaces"


def test_a_namespace_is_created(api: Served) -> None:
    labels = field(11, field(1, "team") + field(2, "shop")) + field(11, field(1, "tier") + field(2, ""))
    metadata = field(1, "shop") + field(2, "") + field(7, 0) + field(8, b"") + labels
    sent = message("Namespace", field(1, metadata) + field(2, b"") + field(3, field(1, "")))
    answer = api.http.post(NAMESPACES, headers=PROTOBUF, content=sent)
    assert answer.status_code == 201, answer.text
    made = api.http.get(f"{NAMESPACES}/shop").json()
    given = {"team": "shop", "tier": ""}
    assert made["metadata"]["labels"] == {**given, "kubernetes.io/metadata.name": made["metadata"]["name"]}
    assert api.http.post(NAMESPACES, headers=PROTOBUF, content=sent).status_code == 409


def test_a_deletion_keeps_its_conditions(api: Served) -> None:
    (made,) = api.create(pod("p"))
    path = "/api/v1/namespaces/default/pods/p"

    def delete(uid: str) -> int:
        options = field(1, 0) + field(2, field(1, uid)) + field(4, "Background")
        return api.http.request(
            "DELETE", path, headers=PROTOBUF, content=message("DeleteOptions", options)
        ).status_code

    assert delete("another") == 409
    assert delete(made["metadata"]["uid"]) == 200
    assert api.http.get(path).status_code == 404


def test_a_pod_is_bound(api: Served) -> None:
    api.create(node("n1"), pod("p"))
    target = field(1, "Node") + field(3, "n1")
    sent = message("Binding", field(1, field(1, "p")) + field(2, target))
    path = "/api/v1/namespaces/default/pods/p"
    assert api.http.post(f"{path}/binding", headers=PROTOBUF, content=sent).status_code == 201
    assert api.http.get(path).json()["spec"]["nodeName"] == "n1"


@pytest.mark.parametrize(
    ("path", "content", "code", "told"),
    [
        (
            "/api/v1/nodes",
            message("Secret", b""),
            415,
            'kind "Secret" are not read in protobuf; send application/json',
        ),
        (NAMESPACES, message("Namespace", field(90, "new")), 415, "field number 90 of core.Namespace"),
        ("/api/v1/nodes", message("Namespace", field(1, field(1, "n"))), 400, "cannot be handled as a Node"),
        (NAMESPACES, b"", 400, "not a message"),
        (NAMESPACES, b"k8s", 400, "not a message"),
        (NAMESPACES, message("Namespace", b"\x0a\xff"), 400, "not a message"),
        (NAMESPACES, message("Namespace", field(1, 7)), 400, "not a message"),
        (NAMESPACES, message("Namespace", field(1, field(1, b"\xff"))), 400, "not a message"),
        (NAMESPACES, message("Namespace", field(1, field(1, "a\0b"))), 400, "NUL"),
        (NAMESPACES, message("Namespace", field(1, field(1, "Not A Name"))), 422, "metadata.name"),
    ],
)
def test_what_is_not_read_is_reported(shared: Served, path: str, content: bytes, code: int, told: str) -> None:
    answer = shared.http.post(path, headers=PROTOBUF, content=content)
    assert (answer.status_code, told in answer.json()["message"]) == (code, True), answer.text


@given(st.binary(max_size=60), st.sampled_from(sorted(messages())))
def test_nothing_but_an_answer_comes_of_any_bytes(raw: bytes, named: str) -> None:
    version, _, kind = named.rpartition(" ")
    for content in (raw, MAGIC + raw, message(kind, raw, version)):
        with suppress(ApiError):
            assert read_message(content)["kind"] == kind


def test_numbers_below_zero_are_read() -> None:
    found = read_message(message("DeleteOptions", field(1, -1) + field(3, 1) + field(5, "All")))
    assert found == {
        "apiVersion": "v1", "kind": "DeleteOptions",
        "gracePeriodSeconds": -1, "orphanDependents": True, "dryRun": ["All"],
    }  # fmt: skip
