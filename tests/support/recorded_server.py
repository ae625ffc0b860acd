"""A server that answers as a real API server once did: recorded exchanges, over a real connection."""

import gzip
import json
import ssl
import threading
from base64 import b64decode
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

RECORDINGS = Path(__file__).parents[1] / "cluster" / "kubernetes" / "exchanges.jsonl.gz"


@cache
def recordings() -> Mapping[str, Mapping[str, Any]]:
    with gzip.open(RECORDINGS, "rt") as file:
        return {exchange["id"]: exchange for exchange in map(json.loads, file)}


def raw_body(exchange: Mapping[str, Any]) -> bytes:
    body = exchange["response"].get("body", "")
    return body.encode() if isinstance(body, str) else json.dumps(body).encode()


@dataclass
class ReceivedRequest:
    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: Any


@dataclass
class Recorded:
    url: str
    requests: list[ReceivedRequest] = field(default_factory=list)


@contextmanager
def replaying(*answers: str | Mapping[str, Any], tls: ssl.SSLContext | None = None) -> Iterator[Recorded]:
    """The answers in their order, whatever is asked; the last one again and again. An answer is the id of a
    recording or one in the same form."""
    script = [recordings()[answer] if isinstance(answer, str) else answer for answer in answers]
    recorded = Recorded("")
    lock = threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def handle_any(self) -> None:
            split = urlsplit(self.path)
            length = int(self.headers.get("Content-Length") or 0)
            body = self.rfile.read(length)
            with lock:
                recorded.requests.append(
                    ReceivedRequest(
                        self.command,
                        split.path,
                        dict(parse_qsl(split.query, keep_blank_values=True)),
                        {name.lower(): value for name, value in self.headers.items()},
                        json.loads(body) if body else None,
                    )
                )
                exchange = script.pop(0) if len(script) > 1 else script[0]
            if "lines" in exchange["response"]:
                self._stream(exchange["response"])
            else:
                self._answer(exchange)

        do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = handle_any  # noqa: N815 - the names of the library

        def _answer(self, exchange: Mapping[str, Any]) -> None:
            response, content = exchange["response"], raw_body(exchange)
            if "body_gzip_base64" in response:
                content = b64decode(response["body_gzip_base64"])
            self.send_response_only(response["status"])
            for name, value in response.get("headers", {}).items():
                if name != "transfer-encoding":
                    self.send_header(name, value)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def _stream(self, response: Mapping[str, Any]) -> None:
            self.send_response(response["status"])
            self.send_header("Content-Type", "application/json")
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            for line in response["lines"]:
                self._chunk(json.dumps(line["event"]).encode() + b"\n")
            if response["ended"].startswith("connection broken"):
                self.close_connection = True
            else:
                self._chunk(b"")

        def _chunk(self, content: bytes) -> None:
            self.wfile.write(b"%x\r\n%s\r\n" % (len(content), content))
            self.wfile.flush()

        def log_message(self, *_: Any) -> None:
            """Nobody reads it."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    recorded.url = f"{'http' if tls is None else 'https'}://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield recorded
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def list_answer(version: str, names: Sequence[str] = (), *, more: str = "") -> Mapping[str, Any]:
    """A page of volumes, in the form of a recording."""
    items = [{"metadata": {"name": name, "uid": f"uid-{name}", "resourceVersion": "1"}} for name in names]
    metadata = {"resourceVersion": version} | ({"continue": more} if more else {})
    return {"response": {"status": 200, "body": {"kind": "List", "metadata": metadata, "items": items}}}
