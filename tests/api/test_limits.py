"""What one client may take: rate, watches, headers, bodies and idle connections; each told, or cut off."""

import asyncio
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import httpx
import pytest

from tests.support.clusters import node
from tests.support.patience import HANG_SECONDS, wait_until
from tests.support.serving import Served, served
from volsched.api.access.access_reviews import ACCESS
from volsched.api.kubernetes.bodies import MOST_HOLDERS
from volsched.api.kubernetes.statuses import ApiError
from volsched.api.limits import MOST_CLIENTS, YAML_WEIGHT, Buckets, CallerThreads, Limits, Rates
from volsched.log.database import Database

NODES = "/api/v1/nodes"
SHORT = Limits(header_seconds=0.2, keep_alive_seconds=0.2, body_seconds=0.2)


def test_a_bucket_gives_what_time_has_filled_and_no_more() -> None:
    buckets = Buckets(10)
    assert [buckets.take("a", 0.0) for _ in range(20)] == [0.0] * 20
    assert buckets.take("a", 0.0) == pytest.approx(0.1)
    assert buckets.take("b", 0.0) == 0.0
    assert buckets.take("a", 0.05) == pytest.approx(0.05)
    assert buckets.take("a", 0.1) == 0.0
    assert buckets.take("a", 0.1) > 0
    assert [buckets.take("a", 1_000.0) for _ in range(21)].count(0.0) == 20


def test_clients_that_come_once_are_forgotten() -> None:
    buckets = Buckets(1)
    for number in range(MOST_CLIENTS + 5):
        buckets.take(str(number), 0.0)
    assert len(buckets._left) <= MOST_CLIENTS


def test_many_bodies_at_once_are_refused_as_they_arrive() -> None:
    """All were admitted before the first byte of any had been counted."""
    rates = Rates(Limits(body_bytes=100, body_bytes_per_second=1))
    most = 100 * YAML_WEIGHT
    rates.take_bytes("a", most)
    rates.take_bytes("b", most)
    with pytest.raises(ApiError, match="has sent more than 1 bytes a second") as refused:
        rates.take_bytes("a", 100)
    assert refused.value.code == 429


def test_a_caller_waits_for_itself_and_others_do_not() -> None:
    goes_on = threading.Event()

    def compute() -> bool:
        return goes_on.wait(HANG_SECONDS)

    async def play() -> None:
        turns = CallerThreads(at_once=2, per_caller=1, waiting=2)
        mine = [asyncio.create_task(turns.run("a", compute)) for _ in range(3)]
        await asyncio.sleep(0)
        with pytest.raises(ApiError, match='"a" has 3 large requests under way') as refused:
            await turns.run("a", compute)
        assert refused.value.code == 429
        assert await asyncio.wait_for(turns.run("b", lambda: "done"), HANG_SECONDS) == "done"
        assert not any(it.done() for it in mine)
        goes_on.set()
        assert all(await asyncio.gather(*mine))
        assert await turns.run("a", lambda: "again") == "again"

    asyncio.run(play())


def test_a_body_holds_so_many_lists(sqlite: Database) -> None:
    """Small ones fill the memory: each takes two bytes of a body, and a hundred when it is read."""
    text = "[" * 20 + "]" * 20
    body = f'{{"x": [{",".join([text] * (MOST_HOLDERS // 20 + 1))}]}}'
    with served(sqlite) as api:
        refused = api.http.post(NODES, content=body, headers={"content-type": "application/json"})
        assert (refused.status_code, str(MOST_HOLDERS) in refused.text) == (413, True)


def test_too_many_requests_are_answered_with_when_to_come_back(sqlite: Database) -> None:
    with served(sqlite, limits=Limits(requests_per_second=0.1)) as api:
        api.http.get(NODES)
        refused = api.http.get(NODES)
        told = refused.json()
        assert (refused.status_code, told["reason"], told["kind"]) == (429, "TooManyRequests", "Status")
        assert int(refused.headers["retry-after"]) == told["details"]["retryAfterSeconds"] >= 1
        # Whoever watches over us is never too much.
        assert api.http.get("/livez").status_code == 200


def test_watches_are_counted(sqlite: Database) -> None:
    with served(sqlite, limits=Limits(watches=1)) as api, api.http.stream("GET", f"{NODES}?watch=true"):
        refused = httpx.get(f"{api.url}{NODES}?watch=true", timeout=HANG_SECONDS)
        assert (refused.status_code, refused.json()["reason"]) == (429, "TooManyRequests")
        assert "retry-after" in refused.headers


def test_a_smaller_body_may_be_all_that_is_taken(sqlite: Database) -> None:
    with served(sqlite, limits=Limits(body_bytes=50)) as api:
        for path in (NODES, "/apis/volsched.io/v1/explain", ACCESS):
            assert api.http.post(path, json=node("n")).status_code == 413, path


@contextmanager
def connected(api: Served) -> Iterator[socket.socket]:
    host, port = api.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=HANG_SECONDS) as connection:
        yield connection


def all_of(connection: socket.socket) -> bytes:
    """Until the server closes."""
    got = b""
    while part := connection.recv(65_536):
        got += part
    return got


def begun(connection: socket.socket, request: str) -> bytes | None:
    """What comes first as an answer; None where even the request came too late, which is the machine's affair."""
    connection.sendall(f"{request} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    head = connection.recv(65_536)
    return None if head.startswith(b"HTTP/1.1 408 ") else head


@pytest.mark.parametrize("sent", [b"", b"GET /api HTTP/1.1\r\nHost: local", b"\r\n\r\n"])
def test_headers_that_do_not_come_are_not_waited_for(sqlite: Database, sent: bytes) -> None:
    with served(sqlite, limits=replace(SHORT, keep_alive_seconds=60)) as api, connected(api) as connection:
        connection.sendall(sent)
        assert all_of(connection).startswith(b"HTTP/1.1 408 ")


def test_nor_those_of_a_second_request(sqlite: Database) -> None:
    limits = replace(SHORT, keep_alive_seconds=60)

    def second_is_cut_off(api: Served) -> bool:
        with connected(api) as connection:
            if (head := begun(connection, "GET /version")) is None:
                return False
            assert head.startswith(b"HTTP/1.1 200 ")
            connection.sendall(b"GET /version HT")
            assert b"HTTP/1.1 408 " in all_of(connection)
            return True

    with served(sqlite, limits=limits) as api:
        wait_until(lambda: second_is_cut_off(api))


def test_a_body_that_does_not_come_is_answered_and_cut_off(sqlite: Database) -> None:
    with served(sqlite, limits=replace(SHORT, header_seconds=60)) as api, connected(api) as connection:
        connection.sendall(f"POST {NODES} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n{{".encode())
        answer = all_of(connection)
        assert answer.startswith(b"HTTP/1.1 408 ")
        assert b'"kind":"Status"' in answer


def test_headers_without_end_are_not_kept(sqlite: Database) -> None:
    with served(sqlite) as api, connected(api) as connection:
        connection.sendall(b"GET /api HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * 100_000)
        assert all_of(connection).startswith(b"HTTP/1.1 431 ")


def test_an_idle_connection_is_closed(sqlite: Database) -> None:
    limits = replace(SHORT, header_seconds=60, keep_alive_seconds=1)
    with served(sqlite, limits=limits) as api, connected(api) as connection:
        connection.sendall(b"GET /version HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert all_of(connection).startswith(b"HTTP/1.1 200 ")


def test_a_watch_outlives_all_of_them(sqlite: Database) -> None:
    def ends_in_good_order(api: Served) -> bool:
        with connected(api) as connection:
            if (head := begun(connection, f"GET {NODES}?watch=true&timeoutSeconds=1")) is None:
                return False
            assert (head + all_of(connection)).endswith(b"0\r\n\r\n")
            return True

    with served(sqlite, limits=SHORT) as api:
        wait_until(lambda: ends_in_good_order(api))


def test_what_follows_a_body_is_not_taken_without_end(sqlite: Database) -> None:
    """Trailers of a body in chunks: headers in all but their place."""
    head = b"POST /api/v1/nodes HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n{\r\n0\r\n"
    with served(sqlite) as api, connected(api) as connection:
        connection.sendall(head)
        with pytest.raises(OSError, match=r"reset|[Bb]roken"):
            connection.sendall((b"x: " + b"y" * 1000 + b"\r\n") * 30_000)


def test_headers_that_come_in_one_piece_with_their_end_are_too_long_as_well(sqlite: Database) -> None:
    """Whoever counts only what has no end yet lets them through."""
    many = b"".join(b"X-%d: %s\r\n" % (number, b"x" * 1_000) for number in range(100))
    with served(sqlite) as api, connected(api) as connection:
        connection.sendall(b"GET /version HTTP/1.1\r\nHost: localhost\r\n" + many + b"\r\n")
        assert all_of(connection).startswith(b"HTTP/1.1 431 ")


def test_bytes_count_too_and_yaml_counts_more(sqlite: Database) -> None:
    limits = Limits(body_bytes_per_second=500)
    long = node("n")
    long["metadata"]["annotations"] = {"example.com/x": "x" * 2_000}
    with served(sqlite, limits=limits) as api:
        assert api.http.post(NODES, json=long).status_code == 201
        refused = api.http.post(NODES, json=node("other"))
        assert refused.status_code == 429
        assert "bytes a second" in refused.json()["message"]
        assert int(refused.headers["retry-after"]) >= 1
        # Whoever only reads has sent nothing.
        assert api.http.get(NODES).status_code == 200
    with served(sqlite, limits=limits) as api:
        sent = {"content-type": "application/yaml"}
        text = "apiVersion: v1\nkind: Node\nmetadata: {name: y}\n# " + "x" * 100
        assert api.http.post(NODES, content=text, headers=sent).status_code == 201
        assert api.http.post(NODES, json=node("other")).status_code == 429
