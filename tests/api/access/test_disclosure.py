"""Who may see one namespace is told nothing of what is in another; and one caller has a share of the watches, and
of what waits to be read."""

import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from tests.api.access.secured import Secured, issue_token, secured
from tests.support.clusters import node, pod
from tests.support.patience import HANG_SECONDS, wait_until
from volsched.api.access.callers import Role
from volsched.api.access.tls import Authority
from volsched.api.limits import Limits
from volsched.log.database import Database

OURS = "/apis/volsched.io/v1"
NODES = "/api/v1/nodes"


def given(admin: httpx.Client) -> None:
    """One node, and on it a pod of somebody else that leaves no room for ours."""
    small = {**node("n1"), "status": {"allocatable": {"cpu": "2", "memory": "4Gi", "pods": "10"}}}
    assert admin.post(NODES, json=small).status_code == 201
    assert admin.put(f"{NODES}/n1/status", json=small).status_code == 200
    for namespace, name, cpu in (("secret", "payroll-7", "2"), ("shop", "db-0", "1")):
        made = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}
        assert admin.post("/api/v1/namespaces", json=made).status_code == 201
        wanted = pod(name)
        wanted["metadata"]["namespace"] = namespace
        wanted["spec"]["containers"] = [{"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}]
        wanted["spec"]["nodeName"] = "n1" if namespace == "secret" else ""
        created = admin.post(f"/api/v1/namespaces/{namespace}/pods", json=wanted)
        assert created.status_code == 201, created.text


def test_remedies_are_cut_to_what_the_caller_may_see(api: Secured) -> None:
    admin = api.with_certificate("root", Role.ADMIN)
    given(admin)
    path = f"{OURS}/namespaces/shop/explain/db-0"
    whole = admin.get(path)
    assert "secret/payroll-7" in whole.text
    viewer = api.with_certificate("clerk", Role.VIEWER, namespaces=["shop"])
    cut = viewer.get(path)
    assert cut.status_code == 200, cut.text
    assert "payroll" not in cut.text
    assert "secret" not in cut.text
    told, all_of_it = cut.json(), whole.json()
    assert len(told["remedies"]) + told["remediesWithheld"] == len(all_of_it["remedies"])
    assert "remediesWithheld" not in all_of_it
    assert told["refused"] == all_of_it["refused"]


def test_nor_is_a_name_suggested_that_the_caller_may_not_see(api: Secured) -> None:
    admin = api.with_certificate("root", Role.ADMIN)
    given(admin)
    viewer = api.with_certificate("clerk", Role.VIEWER, namespaces=["shop"])
    missing = viewer.get(f"{OURS}/namespaces/shop/explain/payroll-7")
    assert missing.status_code == 404
    assert "secret/" not in missing.text
    assert "shop/db-0" in missing.text


def test_one_caller_has_a_share_of_the_watches_and_others_have_theirs(
    sqlite: Database, authority: Authority, tmp_path: Path
) -> None:
    with secured(sqlite, authority, tmp_path, limits=Limits(watches=3, watches_per_caller=1)) as api:
        one, other = (api.with_certificate(name, Role.VIEWER) for name in ("one", "other"))
        with one.stream("GET", f"{NODES}?watch=true") as first:
            assert first.status_code == 200
            refused = one.get(f"{NODES}?watch=true")
            assert (refused.status_code, "cert/one" in refused.text) == (429, True)
            assert "retry-after" in refused.headers
            with other.stream("GET", f"{NODES}?watch=true") as second:
                assert second.status_code == 200


def test_a_caller_that_leaves_too_much_unread_is_cut_off(
    sqlite: Database, authority: Authority, tmp_path: Path
) -> None:
    with secured(sqlite, authority, tmp_path, limits=Limits(waiting_bytes=5_000)) as api:
        admin = api.with_certificate("root", Role.ADMIN)
        for number in range(20):
            large = node(f"n{number}")
            large["metadata"]["annotations"] = {"example.com/x": "x" * 1_000}
            assert admin.post(NODES, json=large).status_code == 201
        with admin.stream("GET", f"{NODES}?watch=true") as first:
            # What it would begin with is more than may wait: it ends, and nothing of it stays.
            assert first.read() == b""
        assert admin.get(f"{NODES}?watch=true&timeoutSeconds=1&resourceVersion=22").status_code == 200


def fill(admin: httpx.Client, megabytes: int) -> None:
    """More than the kernel keeps for a connection, by far."""
    for number in range(megabytes):
        made = admin.post(NODES, json={**node(f"n{number}"), "spec": {"x": "x" * 2**20}})
        assert made.status_code == 201, made.text


@contextmanager
def unread(api: Secured, token: str, path: str) -> Iterator[ssl.SSLSocket]:
    """The beginning of an answer, of which nothing more is read."""
    host, port = api.url.removeprefix("https://").split(":")
    with socket.socket() as plain:
        plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        plain.settimeout(HANG_SECONDS)
        plain.connect((host, int(port)))
        with api.trusting().wrap_socket(plain, server_hostname=host) as connection:
            request = f"GET {path} HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {token}\r\n\r\n"
            connection.sendall(request.encode())
            assert connection.recv(12) == b"HTTP/1.1 200"
            yield connection


@pytest.mark.parametrize("path", [f"{NODES}?watch=true", NODES])
def test_what_a_connection_keeps_for_its_client_is_unread_too(
    sqlite: Database, authority: Authority, tmp_path: Path, path: str
) -> None:
    with secured(sqlite, authority, tmp_path, limits=Limits(waiting_bytes=20 * 2**20)) as api:
        fill(api.with_certificate("root", Role.ADMIN), 16)
        token = issue_token(sqlite, "one", Role.VIEWER)
        other = api.with_certificate("other", Role.VIEWER)
        with unread(api, token, path):
            second = api.with_token(token).get(path)
            if path == NODES:
                assert (second.status_code, "answers that wait to be read" in second.text) == (429, True)
            else:
                assert (second.status_code, second.content) == (200, b"")
            assert len(other.get(NODES).content) > 16 * 2**20


def test_a_client_that_does_not_read_is_cut_off(sqlite: Database, authority: Authority, tmp_path: Path) -> None:
    with secured(sqlite, authority, tmp_path, limits=Limits(read_seconds=0.5)) as api:
        fill(api.with_certificate("root", Role.ADMIN), 8)
        token = issue_token(sqlite, "one", Role.VIEWER)
        connections = api.server.server_state.connections
        before = set(connections)
        with unread(api, token, NODES):
            wait_until(lambda: not connections - before)
