"""`volsched bench http`: that it runs, and that it finds out when a watcher was told something else."""

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from typer.testing import CliRunner

from tests.support.patience import HANG_SECONDS
from volsched.cli.app import app
from volsched.lab.bench.http import HttpLoadError, fan_out, hurry, request

SMALL = ("--requests", "20", "--clients", "2", "--watchers", "5", "--writes", "20", "--writes-a-second", "500")


def test_every_row_is_measured_beside_a_bare_route() -> None:
    done = CliRunner().invoke(app, ["bench", "http", *SMALL, "-o", "json"])
    assert done.exit_code == 0, done.stderr
    rows = {row["what"]: row for row in json.loads(done.stdout)}
    assert list(rows) == ["get", "list of 100", "create", "create, 5 watch"]
    assert all(row["per_second"] > 0 and row["cpu_ms"] >= 0 for row in rows.values())
    assert all(rows[what]["ratio"] > 0 for what in ("get", "list of 100", "create"))
    watched = rows["create, 5 watch"]
    assert 0 < watched["p50_ms"] <= watched["p99_ms"]


def test_what_is_missing_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("volsched.lab.bench.http.find_spec", lambda name: None if name == "fastapi" else name)
    done = CliRunner().invoke(app, ["bench", "http"])
    assert done.exit_code == 2
    assert "pip install" in done.stderr


@contextmanager
def scripted(*answers: bytes) -> Iterator[int]:
    """A server that gives the first connection the first answer, and so on, whatever it is asked."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            kept = []
            for text in answers:
                connection, _ = listening.accept()
                connection.recv(65_536)
                connection.sendall(text)
                kept.append(connection)
            ended.wait(HANG_SECONDS)
            for connection in kept:
                connection.close()

        ended = threading.Event()
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        try:
            yield int(listening.getsockname()[1])
        finally:
            ended.set()
            thread.join(HANG_SECONDS)


def watch(*versions: int) -> bytes:
    lines = "".join(f'{{"object":{{"metadata":{{"resourceVersion":"{it}"}}}}}}\n' for it in versions).encode()
    return b"HTTP/1.1 200 OK\r\n\r\n" + b"%x\r\n%s\r\n" % (len(lines), lines)


WRITTEN = b'HTTP/1.1 201 Created\r\nContent-Length: 23\r\n\r\n{"resourceVersion":"7"}'


@pytest.mark.parametrize(
    ("first", "second", "told"),
    [
        (watch(7), watch(7), None),
        (watch(8), watch(8), "did not receive every write"),
        (watch(7, 7), watch(7, 7), "did not receive every write"),
        (watch(7), watch(6), "received different changes"),
        (b"HTTP/1.1 429 Too Many\r\n\r\n", b"", "a watch was answered"),
    ],
)
def test_a_watcher_that_receives_something_else_is_detected(first: bytes, second: bytes, told: str | None) -> None:
    def run() -> None:
        with scripted(first, second, WRITTEN) as port:
            fan_out(
                port, request("GET", "/"), [request("POST", "/", b"{}")],
                watchers=2, callers=1, a_second=1_000, clock=lambda: 1.0, cost=lambda: 0.0,
            )  # fmt: skip

    if told is None:
        run()
    else:
        with pytest.raises(HttpLoadError, match=told):
            run()


def test_a_request_that_is_refused_is_no_measurement() -> None:
    answer = b"HTTP/1.1 429 Too Many Requests\r\nContent-Length: 0\r\n\r\n"
    with scripted(answer) as port, pytest.raises(HttpLoadError, match="429"):
        hurry(port, [request("GET", "/")], callers=1, clock=lambda: 1.0)
