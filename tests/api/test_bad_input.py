"""Requests that are wrong, each with the answer that a Kubernetes client expects; never a stack trace."""

import gzip
import json
import logging
import socket
from contextlib import suppress
from typing import Any

import pytest

from tests.support.clusters import claim, node, pod
from tests.support.patience import HANG_SECONDS
from tests.support.serving import Served

NODES = "/api/v1/nodes"
PODS = "/api/v1/namespaces/default/pods"
CLAIMS = "/api/v1/namespaces/default/persistentvolumeclaims"
JSON = "application/json"
MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
JSON_PATCH = "application/json-patch+json"
N1 = json.dumps(node("n1"))
DEEP = b'{"a":' * 5_000 + b"1" + b"}" * 5_000
HUGE = b'{"metadata":{"name":"n1","annotations":{"a":"' + b"x" * (3 * 2**20) + b'"}}}'

# method, path, content type, body, code, reason, part of the message
TABLE: list[tuple[str, str, str | None, bytes | str, int, str, str]] = [
    # bodies that cannot be read
    ("POST", NODES, JSON, "{", 400, "BadRequest", "unexpected end of JSON input"),
    ("POST", NODES, JSON, "", 400, "BadRequest", "unexpected end of JSON input (<empty>)"),
    ("POST", NODES, JSON, "[]", 400, "BadRequest", "into Go value of type struct"),
    ("POST", NODES, JSON, "null", 400, "BadRequest", "into Go value of type struct"),
    ("POST", NODES, JSON, '"n1"', 400, "BadRequest", "into Go value of type struct"),
    ("POST", NODES, JSON, N1 + N1, 400, "BadRequest", "2 JSON values"),
    ("POST", NODES, JSON, '{"a":1,"a":2}', 400, "BadRequest", "appears twice"),
    ("POST", NODES, JSON, b'{"metadata":{"name":"\xff"}}', 400, "BadRequest", "UTF-8"),
    ("POST", NODES, JSON, '{"metadata":{"name":"a\\u0000"}}', 400, "BadRequest", "NUL"),
    ("POST", NODES, JSON, '{"metadata":{"name":"n"},"x":1e999}', 400, "BadRequest", "finite"),
    ("POST", NODES, JSON, '{"metadata":{"name":"n"},"x":' + "9" * 40 + "}", 400, "BadRequest", "64 bits"),
    ("POST", NODES, JSON, DEEP, 400, "BadRequest", "deep"),
    ("POST", NODES, JSON, "kind: Node", 400, "BadRequest", "the object provided is unrecognized"),
    ("POST", NODES, "application/yaml", "a: &a [*a]", 400, "BadRequest", ""),
    ("POST", NODES, JSON, HUGE, 413, "RequestEntityTooLarge", "limit is 3145728"),
    # forms that are not taken
    ("POST", NODES, "text/plain", N1, 415, "UnsupportedMediaType", "application/json"),
    ("POST", NODES, "application/vnd.kubernetes.protobuf", b"k8s\0", 415, "UnsupportedMediaType", "json"),
    ("PATCH", f"{NODES}/n0", JSON, "{}", 415, "UnsupportedMediaType", "415: Unsupported Media Type"),
    ("PATCH", f"{NODES}/n0", None, "{}", 415, "UnsupportedMediaType", "415: Unsupported Media Type"),
    ("PATCH", f"{NODES}/n0", "application/apply-patch+yaml", N1, 422, "Invalid", "fieldManager: Required value"),
    ("PATCH", f"{NODES}/n0", "application/apply-patch+cbor", N1, 415, "UnsupportedMediaType", "415"),
    # objects that are not what their path says
    ("POST", NODES, JSON, json.dumps(pod("p")), 400, "BadRequest",
     'Pod in version "v1" cannot be handled as a Node'),
    ("POST", NODES, JSON, '{"kind":"Node","apiVersion":"v2"}', 400, "BadRequest", "is registered for version"),
    ("POST", PODS, JSON, json.dumps(pod("p")).replace("default", "other"), 400, "BadRequest", "namespace"),
    ("PUT", f"{NODES}/n0", JSON, N1, 400, "BadRequest", "does not match the name on the URL"),
    ("POST", NODES, JSON, '{"metadata":[]}', 400, "BadRequest", "metadata"),
    ("POST", NODES, JSON, '{"metadata":{"name":7}}', 400, "BadRequest",
     "number into Go struct field ObjectMeta.metadata.name of type string"),
    ("POST", NODES, JSON, '{"metadata":{"name":{}}}', 400, "BadRequest",
     "object into Go struct field ObjectMeta.metadata.name"),
    ("POST", NODES, JSON, '{"metadata":{"name":["n"]}}', 400, "BadRequest",
     "array into Go struct field ObjectMeta.metadata.name"),
    ("POST", CLAIMS, JSON, '{"metadata":{"name":"c"},"spec":"x"}', 400, "BadRequest",
     "string into Go struct field PersistentVolumeClaim.spec"),
    ("POST", PODS, JSON, '{"metadata":{"name":"p"},"spec":{"containers":{}}}', 400, "BadRequest",
     "of type []v1.Container"),
    ("POST", "/api/v1/persistentvolumes", JSON, '{"metadata":{"labels":0,"name":"v"}}', 400, "BadRequest",
     "metadata.labels"),
    ("PATCH", f"{NODES}/n0/status", MERGE, '{"status":{"conditions":0}}', 422, "Invalid",
     "NodeStatus.status.conditions"),
    ("PATCH", f"{NODES}/n0/status", MERGE, '{"status":{"addresses":["x"]}}', 422, "Invalid",
     "NodeStatus.status.addresses"),
    ("POST", NODES, JSON, "{}", 422, "Invalid", "name or generateName is required"),
    ("POST", NODES, JSON, '{"metadata":{"name":"n1","resourceVersion":"1"}}', 500, None,
     "resourceVersion should not be set on objects to be created"),
    # objects that the rules refuse
    ("POST", NODES, JSON, '{"metadata":{"name":"Not A Name"}}', 422, "Invalid", "metadata.name"),
    ("POST", NODES, JSON, '{"metadata":{"name":"../../etc"}}', 422, "Invalid", "metadata.name"),
    ("POST", NODES, JSON, '{"metadata":{"name":"' + "n" * 300 + '"}}', 422, "Invalid", "253"),
    ("POST", NODES, JSON, '{"metadata":{"name":"n","labels":{"a":"b c"}}}', 422, "Invalid", "labels"),
    ("POST", CLAIMS, JSON, '{"metadata":{"name":"c"},"spec":{"accessModes":[null]}}', 422, "Invalid",
     "accessModes"),
    ("POST", f"{NODES}?fieldValidation=Strict", JSON, '{"metadata":{"name":"n"},"spek":{}}', 400, "BadRequest",
     'unknown field "spek"'),
    ("POST", f"{NODES}?fieldValidation=Loud", JSON, N1, 422, "Invalid", "fieldValidation"),
    ("POST", f"{NODES}?dryRun=Some", JSON, N1, 422, "Invalid", "dryRun"),
    ("POST", NODES, JSON, json.dumps(node("n0")), 409, "AlreadyExists", 'nodes "n0" already exists'),
    ("PUT", f"{NODES}/n0", JSON, json.dumps(node("n0") | {"metadata": {"name": "n0", "resourceVersion": "77"}}),
     409, "Conflict", "the object has been modified"),
    ("PUT", f"{NODES}/n1", JSON, N1, 404, "NotFound", 'nodes "n1" not found'),
    # patches
    ("PATCH", f"{NODES}/n0", MERGE, "[]", 400, "BadRequest", "cannot unmarshal array into Go value of type map"),
    ("PATCH", f"{NODES}/n0", MERGE, '{"metadata":{"name":"n9"}}', 400, "BadRequest", "name on the URL"),
    ("PATCH", f"{NODES}/n0", MERGE, '{"metadata":{"resourceVersion":"9"}}', 409, "Conflict", "modified"),
    ("PATCH", f"{NODES}/n0", MERGE, '{"metadata":{"uid":"9"}}', 422, "Invalid", "metadata.uid: Invalid value"),
    ("PATCH", f"{NODES}/n1", MERGE, "{}", 404, "NotFound", 'nodes "n1" not found'),
    ("PATCH", f"{NODES}/n0", STRATEGIC, '{"spec":{"$patch":"burn"}}', 500, None, "$patch"),
    ("PATCH", f"{NODES}/n0", JSON_PATCH, "{}", 400, "BadRequest", "[]handlers.jsonPatchOp"),
    ("PATCH", f"{NODES}/n0", JSON_PATCH, '[{"op":"burn","path":"/x"}]', 422, "Invalid", "rejected our request"),
    ("PATCH", f"{NODES}/n0", JSON_PATCH, '[{"op":"remove","path":"/x/y"}]', 422, "Invalid",
     "rejected our request"),
    ("PATCH", f"{NODES}/n0", JSON_PATCH, '[{"op":"test","path":"/kind","value":"P"}]', 422, "Invalid",
     "rejected our request"),
    ("PATCH", f"{NODES}/n0", JSON_PATCH, '[{"op":"replace","path":"","value":7}]', 422, "Invalid",
     "not an object"),
    # deletions
    ("DELETE", f"{NODES}/n1", None, "", 404, "NotFound", 'nodes "n1" not found'),
    ("DELETE", f"{NODES}/n0", JSON, '{"kind":"Node"}', 400, "BadRequest", "no kind"),
    ("DELETE", f"{NODES}/n0", JSON, '{"preconditions":{"uid":7}}', 400, "BadRequest", "strings"),
    ("DELETE", f"{NODES}/n0?gracePeriodSeconds=soon", None, "", 400, "BadRequest", "strconv.ParseInt"),
    ("DELETE", f"{NODES}/n0", JSON, '{"gracePeriodSeconds":"soon"}', 400, "BadRequest", "gracePeriodSeconds"),
    ("DELETE", f"{NODES}/n0", JSON, '{"gracePeriodSeconds":true}', 400, "BadRequest", "gracePeriodSeconds"),
    ("DELETE", f"{NODES}?gracePeriodSeconds=1.5", None, "", 400, "BadRequest", "strconv.ParseInt"),
    # bindings
    ("POST", f"{PODS}/p/binding", JSON, "{}", 400, "BadRequest", "name in URL does not match"),
    ("POST", f"{PODS}/p/binding", JSON, '{"metadata":{"name":"p"},"target":{"kind":"Pod","name":"x"}}', 500, None,
     'target.kind: Unsupported value: "Pod"'),
    ("POST", f"{PODS}/p/binding", JSON, '{"metadata":{"name":"p"},"target":{"name":"n0"}}', 404, "NotFound",
     'pods "p" not found'),
    # questions
    ("GET", f"{NODES}?limit=%D9%A3", None, "", 400, "BadRequest", "strconv.ParseInt"),
    ("GET", f"{NODES}?continue=%00", None, "", 400, "BadRequest", "continue"),
    ("GET", f"{NODES}?continue=bm90aGluZw", None, "", 400, "BadRequest", "continue"),
    ("GET", f"{NODES}?labelSelector=a%20b", None, "", 400, "BadRequest", "unable to parse requirement"),
    ("GET", f"{NODES}?fieldSelector=spec.nodeName=x", None, "", 400, "BadRequest", "not supported"),
    ("GET", f"{NODES}?fieldSelector=metadata.name", None, "", 400, "BadRequest", "can't understand"),
    ("GET", f"{NODES}?resourceVersion=abc", None, "", 400, "BadRequest", "resourceVersion"),
    ("GET", f"{NODES}?resourceVersion=99999999999999999999", None, "", 400, "BadRequest", "resourceVersion"),
    ("GET", f"{NODES}?resourceVersion=99", None, "", 504, "Timeout", "Too large resource version"),
    ("GET", f"{NODES}/n0?resourceVersion=99", None, "", 504, "Timeout", "Too large resource version"),
    ("GET", f"{NODES}?resourceVersionMatch=Exact", None, "", 422, "Invalid", "resourceVersion"),
    ("GET", f"{NODES}?watch=true&sendInitialEvents=true", None, "", 422, "Invalid", "NotOlderThan"),
    ("GET", f"{NODES}?includeObject=Some", None, "", 400, "BadRequest", "includeObject"),
    # methods and paths
    ("POST", "/api/v1/pods", JSON, json.dumps(pod("p")), 405, "MethodNotAllowed", "method"),
    ("PUT", NODES, JSON, N1, 405, "MethodNotAllowed", "method"),
    ("OPTIONS", NODES, None, "", 405, "MethodNotAllowed", "method"),
    ("POST", "/api/v1", JSON, "{}", 405, "MethodNotAllowed", "method"),
    ("DELETE", "/version", None, "", 405, "MethodNotAllowed", "method"),
    ("GET", "/api/v2/nodes", None, "", 404, "NotFound", "could not find the requested resource"),
    ("GET", "/api/v1/knodes", None, "", 404, "NotFound", "could not find the requested resource"),
    ("GET", "/apis/nowhere.io", None, "", 404, "NotFound", "could not find the requested resource"),
    ("GET", "/apiz", None, "", 404, "NotFound", "could not find the requested resource"),
    ("GET", "/api/v1/pods/p", None, "", 404, "NotFound", "could not find the requested resource"),
    ("GET", "/api/v1/namespaces/default/nodes", None, "", 404, "NotFound", "requested resource"),
    ("GET", f"{NODES}/n0/status/more", None, "", 404, "NotFound", "requested resource"),
    ("GET", f"{NODES}/n0/binding", None, "", 404, "NotFound", "requested resource"),
]  # fmt: skip


def _sent(api: Served, method: str, path: str, content_type: str | None, body: bytes | str) -> Any:
    headers = {} if content_type is None else {"content-type": content_type}
    return api.http.request(method, path, headers=headers, content=body)


def test_every_wrong_request_is_answered_with_what_is_wrong(api: Served) -> None:
    """One server for the whole table: nothing in it may change anything, so the rows cannot disturb each other."""
    api.create(node("n0"))
    wrong = []
    for method, path, content_type, body, code, reason, message in TABLE:
        answer = _sent(api, method, path, content_type, body)
        told = answer.json()
        seen = (answer.status_code, told.get("reason"), told.get("code"), told.get("kind"), told.get("status"))
        if seen != (code, reason, code, "Status", "Failure") or message not in told["message"]:
            wrong.append((method, path, body[:60], (code, reason, message), seen, told.get("message")))
        assert "Traceback" not in answer.text
    assert not wrong
    assert api.http.get(NODES).json()["metadata"]["resourceVersion"] == "1"


@pytest.mark.parametrize(
    "path",
    [
        "/api/v1/nodes/../nodes",
        "/api/v1/nodes/%2e%2e/nodes",
        "/api/v1//nodes",
        "/api/v1/namespaces/default%2Fpods/pods/x",
        "/api/v1/namespaces/default/pods/a%2Fb",
        "/api/v1/namespaces//pods",
        "/api/v1/nodes/%00",
        "/api/v1/nodes/%ff",
        "/api/v1/nodes/n0%0a",
        "/api/v1/nodes/n0%25",
        "/api/v1/nodes/..%5c..",
        "/%61pi/v1/nodes/../../../etc/passwd",
    ],
)
def test_paths_that_play_tricks_lead_nowhere(shared: Served, path: str) -> None:
    """Sent as they are: a client library would tidy them up first."""
    host, port = shared.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=HANG_SECONDS) as connection:
        connection.sendall(f"GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
        answer = b""
        while part := connection.recv(65536):
            answer += part
    assert answer.split()[1] == b"404", answer


def test_a_body_without_a_length_is_cut_off_too(shared: Served) -> None:
    host, port = shared.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=HANG_SECONDS) as connection:
        start = f"POST {NODES} HTTP/1.1\r\nHost: {host}\r\nTransfer-Encoding: chunked\r\n\r\n"
        connection.sendall(start.encode())
        chunk = b"10000\r\n" + b"x" * 65_536 + b"\r\n"
        with suppress(ConnectionError):
            # Fifty are more than are taken; the server may close before it has read them all.
            for _ in range(50):
                connection.sendall(chunk)
        answer = b""
        with suppress(ConnectionError):
            while part := connection.recv(65_536):
                answer += part
    assert answer.split()[1] == b"413"


@pytest.mark.parametrize(
    ("headers", "code"),
    [
        ({"accept": "application/vnd.kubernetes.protobuf"}, 406),
        ({"accept": "application/vnd.kubernetes.protobuf, application/json"}, 200),
        ({"accept": "text/html, */*;q=0.1"}, 200),
        ({"accept": "application/json;as=Table;g=meta.k8s.io;v=v9"}, 406),
        ({"host": "evil.example.com"}, 403),
        ({"host": "localhost:1"}, 200),
        ({"host": "[::1]:8700"}, 200),
        ({"origin": "http://evil.example.com"}, 403),
        ({"origin": "null"}, 403),
        ({"origin": "http://localhost:3000"}, 200),
        ({"sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors"}, 403),
        ({"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}, 200),
        ({"sec-fetch-site": "none", "sec-fetch-mode": "navigate"}, 200),
    ],
)
def test_headers_decide_who_is_answered_and_how(shared: Served, headers: dict[str, str], code: int) -> None:
    answer = shared.http.get(NODES, headers=headers)
    assert answer.status_code == code
    assert answer.json()["kind"] == ("NodeList" if code == 200 else "Status")


def test_unknown_fields_are_warned_of_and_kept(api: Served) -> None:
    wanted = claim("c", "1Gi")
    wanted["spec"]["colour"] = "blue"
    answer = api.http.post(CLAIMS, json=wanted)
    assert answer.headers["warning"] == '299 - "unknown field \\"spec.colour\\""'
    assert answer.json()["spec"]["colour"] == "blue"
    ignored = api.http.post(f"{CLAIMS}?fieldValidation=Ignore", json=wanted | {"metadata": {"name": "d"}})
    assert "warning" not in ignored.headers
    # What is there already is no reason to refuse another change.
    labelled = api.http.patch(
        f"{CLAIMS}/c?fieldValidation=Strict",
        headers={"content-type": MERGE},
        content='{"metadata":{"labels":{"a":"b"}}}',
    )
    assert labelled.status_code == 200


def test_a_compressed_body_is_not_guessed_at(shared: Served) -> None:
    headers = {"content-type": JSON, "content-encoding": "gzip"}
    answer = shared.http.post(NODES, headers=headers, content=gzip.compress(N1.encode()))
    assert (answer.status_code, answer.json()["reason"]) == (415, "UnsupportedMediaType")
    assert "Content-Encoding" in answer.json()["message"]


def test_what_needs_a_kubelet_is_refused_in_words_and_logs_no_advice(
    api: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As kubectl exec asks: for a WebSocket, on which uvicorn would advise to install one."""
    warned: list[str] = []
    monkeypatch.setattr(logging.getLogger("uvicorn.error"), "warning", warned.append)
    upgrade = {"connection": "Upgrade", "upgrade": "websocket", "sec-websocket-version": "13"}
    answer = api.http.get("/api/v1/namespaces/default/pods/db/exec?command=ls", headers=upgrade)
    told = answer.json()
    assert (answer.status_code, told["kind"], told["reason"]) == (404, "Status", "NotFound")
    assert "pods/exec is not served" in told["message"]
    assert "pods/log is not served" in api.http.get("/api/v1/namespaces/default/pods/db/log").text
    assert not warned
