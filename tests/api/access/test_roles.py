"""Every route x every role, against a real server: what docs/security.md does not grant is refused."""

from collections.abc import Iterator

import httpx
import pytest

from tests.api.access.routes import KNOWN, Served, documented, served_by
from tests.api.access.secured import Secured, issue_token
from volsched.api.access.authorization import CONSOLE, OPEN
from volsched.api.access.callers import NAMESPACED, Role
from volsched.api.kubernetes.resources import RESOURCES

TABLE = documented()


def send(http: httpx.Client, it: Served) -> int:
    """Bodies are empty: who is let in is told so by a 400 at the latest, and nothing changes."""
    return http.request(it.method, it.path).status_code


def routes(api: Secured) -> Iterator[Served]:
    return (it for it in served_by(api.app) if it.path not in OPEN and not it.path.startswith(CONSOLE))


def test_every_route_is_in_the_document(shared: Secured) -> None:
    assert {it.row for it in routes(shared)} - TABLE.keys() == set()


def test_the_routes_are_all_there(shared: Secured) -> None:
    """That the list above is not empty by mistake."""
    found = list(routes(shared))
    assert len(found) > 10 * len(RESOURCES)
    assert {"/metrics", "pods/binding", "/extender/*", "storage.k8s.io csinodes"} <= {it.row for it in found}


@pytest.mark.parametrize("role", list(Role))
def test_a_role_may_do_what_the_document_says_and_nothing_else(shared: Secured, role: Role) -> None:
    http = shared.with_certificate("somebody", role)
    wrong = []
    for it in routes(shared):
        row = TABLE[it.row]
        granted = row[role] if role is not Role.ADMIN else None
        # Nothing that these requests name belongs to the node that the caller would be.
        may = granted is None or (it.verb in granted.verbs and not granted.own) or it.verb in row[KNOWN].verbs
        code = send(http, it)
        if (code != 403) != may or code == 401 or code >= 500:
            wrong.append((it.method, it.path, code, may))
    assert wrong == []


def test_nobody_gets_in_without_saying_who_it_is(shared: Secured) -> None:
    http = shared.client()
    assert {send(http, it) for it in routes(shared)} == {401}
    assert {http.get(path).status_code for path in OPEN} == {200}
    # The console's files are the same for everybody; whoever reads a page of it signs in there.
    assert http.get(CONSOLE).status_code in (200, 404)
    assert http.post(CONSOLE).status_code == 401


def test_who_has_no_role_sees_what_there_is_and_nothing_of_it(shared: Secured) -> None:
    http = shared.with_certificate("somebody")
    for it in routes(shared):
        assert (send(http, it) != 403) == (it.verb in TABLE[it.row][KNOWN].verbs), it


@pytest.mark.parametrize("role", sorted(NAMESPACED))
def test_a_role_for_a_namespace_ends_at_its_border(shared: Secured, role: Role) -> None:
    token = issue_token(shared.database, f"{role}-of-shop", role, namespaces=["shop", "stall"])
    for http in (shared.with_token(token), shared.with_certificate("x", role, namespaces=["shop", "stall"])):
        for it in routes(shared):
            row = TABLE[it.row]
            if it.verb in row[KNOWN].verbs:
                continue
            path = it.path.replace("/namespaces/other", "/namespaces/shop")
            # A namespace itself may be looked at, and no more, by who is let into it.
            itself = it.row in ("namespaces", "namespaces/status") and it.verb == "get"
            inside = it.verb in row[role].verbs and ("/namespaces/shop/" in it.path or itself)
            assert (http.request(it.method, path).status_code != 403) == inside, it
            elsewhere = path.replace("/namespaces/shop", "/namespaces/elsewhere")
            assert http.request(it.method, elsewhere).status_code == 403, it


def test_refusals_are_in_the_words_of_kubernetes(shared: Secured) -> None:
    http = shared.with_certificate("eve", Role.VIEWER)
    told = http.delete("/api/v1/namespaces/shop/pods/db").json()
    assert told["reason"] == "Forbidden"
    assert told["details"] == {"name": "db", "kind": "pods"}
    assert told["message"] == (
        'pods "db" is forbidden: User "eve" cannot delete resource "pods" in API group "" in the namespace "shop"'
    )
    told = http.post("/apis/storage.k8s.io/v1/storageclasses", json={}).json()
    assert told["message"] == (
        'storageclasses.storage.k8s.io is forbidden: User "eve" cannot create resource "storageclasses" '
        'in API group "storage.k8s.io" at the cluster scope'
    )
    assert http.get("/secret").json()["message"] == 'forbidden: User "eve" cannot get path "/secret"'
    unknown = shared.client().get("/api/v1/pods")
    assert (unknown.status_code, unknown.headers["www-authenticate"]) == (401, "Bearer")
    assert unknown.json()["reason"] == unknown.json()["message"] == "Unauthorized"


@pytest.mark.parametrize(
    "path",
    [
        "/apis/volsched.io/v1%2Fhistory/pod/shop/db",
        "/apis/volsched.io%2fv1/history/pod",
        "/apis%2Fvolsched.io/v1/history/pod",
        "/api/v1/namespaces/shop%2Fpods%2Fdb",
        "/apis/volsched.io/v1/namespaces/shop/%2e%2e/history",
        "//apis/volsched.io/v1/history",
        "/apis/volsched.io/v1/./history",
    ],
)
def test_a_path_cannot_mean_two_things(shared: Secured, path: str) -> None:
    assert shared.with_certificate("eve", Role.VIEWER).get(path).status_code == 403
