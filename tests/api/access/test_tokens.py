"""Tokens over a real TLS connection: who is let in, who is not any more, and what nobody may learn of them."""

import hashlib
import logging
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from kubernetes import client
from sqlalchemy import inspect, text

from tests.api.access.secured import Secured, issue_token, secured
from tests.support.clusters import node, pod
from tests.support.serving import collection
from volsched.api.access.callers import Role, new_token, read_token
from volsched.api.access.tls import Authority
from volsched.api.limits import Limits
from volsched.log.database import Database
from volsched.log.tokens import revoke
from volsched.runtime.clock import system_clock

NOBODY = "volsched.0123456789abcdef." + "A" * 43


def get(api: Secured, authorization: str) -> httpx.Response:
    return api.client(authorization=authorization).get("/api/v1/pods")


def test_a_token_is_who_writes(api: Secured) -> None:
    http = api.with_token(issue_token(api.database, "ci", Role.OPERATOR))
    assert http.post(collection(node("n1")), json=node("n1")).status_code == 201
    assert http.get("/api/v1/nodes/n1").status_code == 200
    with api.database.read() as connection:
        found = connection.execute(text("SELECT actor FROM events WHERE type = 'NodeCreated'")).scalar()
    assert found == "token/ci"


def test_a_token_that_was_revoked_lets_nobody_in(api: Secured) -> None:
    token = issue_token(api.database, "ci", Role.VIEWER)
    revoke(api.database, "ci", actor="cli/token/test", now=system_clock())
    told = get(api, f"Bearer {token}")
    assert (told.status_code, told.json()["message"]) == (401, 'Unauthorized: token "ci" was revoked')


def test_a_token_that_has_expired_lets_nobody_in(api: Secured) -> None:
    token = issue_token(api.database, "ci", Role.VIEWER, expires_at=system_clock() - 1)
    told = get(api, f"Bearer {token}")
    assert told.status_code == 401
    assert told.json()["message"] == 'Unauthorized: token "ci" has expired; ask for a new one'


TAMPERED = {
    "revoked": "UPDATE tokens SET revoked_at = NULL, roles = '[\"admin\"]' WHERE name = 'revoked'",
    "viewer": "UPDATE tokens SET roles = '[\"admin\"]' WHERE name = 'viewer'",
    "invented": "UPDATE tokens SET name = 'nobody' WHERE name = 'invented'",
}


def test_a_token_whose_row_is_not_what_the_log_says_lets_nobody_in(
    api: Secured, caplog: pytest.LogCaptureFixture
) -> None:
    tokens = {name: issue_token(api.database, name, Role.VIEWER) for name in (*TAMPERED, "right")}
    revoke(api.database, "revoked", actor="cli/token/test", now=system_clock())
    with api.database.migrating() as connection:
        for statement in TAMPERED.values():
            connection.execute(text(statement))
    for name in TAMPERED:
        told = get(api, f"Bearer {tokens[name]}")
        assert (told.status_code, told.json()["message"]) == (401, "Unauthorized"), name
    assert get(api, f"Bearer {tokens['right']}").status_code == 200
    assert 'token "viewer" is refused: its row differs from the log (roles: expected' in caplog.text
    assert 'token "nobody" is refused' in caplog.text
    metrics = api.with_certificate("ada", Role.ADMIN).get("/metrics").text
    assert "volsched_tokens_contradicted 3.0" in metrics


def test_a_token_whose_hash_was_replaced_lets_neither_its_owner_in_nor_the_forger(api: Secured) -> None:
    token, forged = issue_token(api.database, "ci", Role.VIEWER), new_token()
    id_, secret = token.split(".")[1], forged.text.rpartition(".")[2]
    with api.database.migrating() as connection:
        connection.execute(text("UPDATE tokens SET hash = :hash"), {"hash": forged.hash})
    assert get(api, f"Bearer volsched.{id_}.{secret}").status_code == 401
    assert get(api, f"Bearer {token}").status_code == 401


def test_what_is_no_token_learns_nothing(shared: Secured) -> None:
    token = issue_token(shared.database, "whole", Role.VIEWER)
    prefix, id_, secret = token.split(".")
    other = "B" if secret[0] != "B" else "C"
    for authorization in (
        f"Bearer {prefix}.{id_}.{other}{secret[1:]}",
        f"Bearer {token[:-1]}",
        f"Bearer {token}x",
        f"Bearer {id_}.{secret}",
        f"Bearer {NOBODY}",
        f"Bearer {prefix}.{id_}.",
        f"Basic {token}",
        token,
        "Bearer",
        "",
        f"Bearer {token}, Bearer {token}",
        "Bearer " + "A" * 60_000,
    ):
        told = get(shared, authorization)
        assert (told.status_code, told.json()["message"]) == (401, "Unauthorized"), authorization[:80]
    assert get(shared, f"Bearer {token}").status_code == 200


def test_two_tokens_in_one_request_are_none(shared: Secured) -> None:
    token = issue_token(shared.database, "twice", Role.VIEWER)
    twice = [("authorization", f"Bearer {token}"), ("authorization", f"Bearer {token}")]
    assert shared.client().get("/api/v1/pods", headers=twice).status_code == 401


def test_a_bad_token_is_not_made_good_by_a_certificate(shared: Secured) -> None:
    http = shared.with_certificate("ada", Role.ADMIN)
    assert http.get("/api/v1/pods").status_code == 200
    assert http.get("/api/v1/pods", headers={"authorization": f"Bearer {NOBODY}"}).status_code == 401


def test_a_token_in_an_address_is_refused_whoever_sends_it(shared: Secured) -> None:
    token = issue_token(shared.database, "leaked", Role.VIEWER)
    for http in (shared.client(), shared.with_token(token)):
        for name in ("token", "access_token", "Token"):
            told = http.get("/api/v1/pods", params={name: token})
            assert (told.status_code, token in told.text) == (400, False)


@pytest.fixture
def watching(api: Secured) -> Iterator[tuple[Secured, Iterator[str]]]:
    """A watch that has begun."""
    http = api.with_token(issue_token(api.database, "watcher", Role.OPERATOR))
    shop = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}}
    assert http.post(collection(shop), json=shop).status_code == 201
    with http.stream("GET", "/api/v1/namespaces/shop/pods?watch=true") as answer:
        assert answer.status_code == 200
        lines = answer.iter_lines()
        made = {**pod("p"), "metadata": {"name": "p", "namespace": "shop"}}
        assert http.post(collection(made), json=made).status_code == 201
        assert '"ADDED"' in next(lines)
        yield api, lines


def test_a_watch_ends_soon_after_its_token_was_revoked(watching: tuple[Secured, Iterator[str]]) -> None:
    api, lines = watching
    revoke(api.database, "watcher", actor="cli/token/test", now=system_clock())
    # It ends as a watch does whose time is up: in good order.
    assert list(lines) == []


def test_the_official_client_comes_in_with_a_token(api: Secured) -> None:
    token = issue_token(api.database, "ci", Role.VIEWER)
    (api.directory / "authority.pem").write_bytes(api.authority.pem)
    configuration = client.Configuration(host=api.url)
    configuration.ssl_ca_cert = str(api.directory / "authority.pem")
    configuration.api_key["authorization"] = f"Bearer {token}"
    with client.ApiClient(configuration) as connection:
        core = client.CoreV1Api(connection)
        assert core.list_pod_for_all_namespaces().items == []
        with pytest.raises(client.ApiException) as refused:
            core.delete_node("n1")
        assert (refused.value.status, refused.value.reason) == (403, "Forbidden")


def test_a_secret_is_nowhere(api: Secured, caplog: pytest.LogCaptureFixture) -> None:
    """Not in the log, which is exported, nor in metrics, answers or what the server says; its hash is kept."""
    token = issue_token(api.database, "ci", Role.VIEWER, Role.AUDITOR)
    secret = token.split(".")[2]
    caplog.set_level(logging.DEBUG)
    http = api.with_token(token)
    answers = [
        http.get(path).text
        for path in ("/api/v1/pods", "/api/v1/nothing", "/metrics", "/apis/volsched.io/v1/history/pods/shop/db")
    ]
    answers.append(http.get("/api/v1/pods", headers={"content-type": "x"}, params={"limit": "x"}).text)
    answers.append(http.post("/api/v1/nodes", json={}).text)
    assert not any(secret in answer for answer in answers)
    assert secret not in caplog.text
    hashed = hashlib.sha256(secret.encode()).digest()
    with api.database.read() as connection:
        for table in inspect(api.database.engine).get_table_names():
            for row in connection.execute(text(f"SELECT * FROM {table}")):
                assert secret not in str(row)
                assert table == "tokens" or (hashed.hex() not in str(row) and str(hashed) not in str(row))


def test_tokens_are_random_and_their_hashes_too() -> None:
    made = [new_token() for _ in range(100)]
    assert len({it.text for it in made}) == len({it.hash for it in made}) == 100
    for it in made:
        read = read_token(it.text)
        assert read is not None
        assert (read[0], hashlib.sha256(read[1].encode()).digest()) == (it.id, it.hash)


def test_tokens_are_not_tried_without_end(sqlite: Database, authority: Authority, tmp_path: Path) -> None:
    with secured(sqlite, authority, tmp_path, limits=Limits(requests_per_second=0.1)) as api:
        wrong = api.with_token(new_token().text)
        assert [wrong.get("/version").status_code for _ in range(3)] == [401, 429, 429]
        # Whoever has proven to be somebody does not pay for others at the same address.
        assert api.with_certificate("ada").get("/version").status_code == 200
