"""An API server of an empty cluster that is odd in one way: for what is said to whoever meets such a one."""

import json
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

from volsched.kube.kinds import KINDS
from volsched.log.events.streams import NAMED

READS = frozenset({"get", "list", "watch"})


@dataclass
class OddServer:
    url: str = ""
    uid: str = "cluster-1"
    minor: str = "37"
    head: int = 100
    """The version of every list."""
    may: frozenset[str] = READS
    """Verbs that access reviews allow."""
    unserved: frozenset[str] = frozenset()
    """Kinds."""
    date: str | None = None
    """When it says that it is; None: now."""
    status: int | None = None
    """Of every answer, with this code as its reason."""
    asked: list[str] = field(default_factory=list)

    def body(self, path: str, query: str, sent: Any) -> Any:
        if path == "/version":
            return {"major": "1", "minor": self.minor}
        if path.endswith("/namespaces/kube-system"):
            return {"metadata": {"name": "kube-system", "uid": self.uid}}
        if path.endswith("selfsubjectaccessreviews"):
            return {"status": {"allowed": sent["spec"]["resourceAttributes"]["verb"] in self.may}}
        if "watch=1" in query:
            ends = {"annotations": {"k8s.io/initial-events-end": "true"}, "resourceVersion": str(self.head)}
            return {"type": "BOOKMARK", "object": {"metadata": ends}}
        if path.count("/") <= 3 and path.rpartition("/")[2].startswith("v"):
            return {"resources": self._resources(path)}
        return {"metadata": {"resourceVersion": str(self.head)}, "items": []}

    def _resources(self, path: str) -> list[dict[str, str]]:
        group_version = path.removeprefix("/apis/").removeprefix("/api/")
        plurals = {named.title: named.plural for named in NAMED}
        return [
            {"name": plurals[kind], "kind": kind}
            for kind, known in KINDS.items()
            if known.api_version == group_version and kind not in self.unserved
        ]


@contextmanager
def odd_server(*, tls: ssl.SSLContext | None = None, **odd: Any) -> Iterator[OddServer]:
    server = OddServer(**odd)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: Any) -> None:
            """Nobody reads it."""

        def date_time_string(self, timestamp: float | None = None) -> str:
            return server.date or super().date_time_string(timestamp)

        def do_GET(self) -> None:
            sent = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            place = urlsplit(self.path)
            server.asked.append(f"{self.command} {place.path}")
            body = server.body(place.path, place.query, json.loads(sent or b"null"))
            if server.status is not None:
                body = {"kind": "Status", "status": "Failure", "message": "no", "code": server.status}
            text = json.dumps(body).encode() + b"\n"
            self.send_response(server.status or 200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        do_POST = do_GET  # noqa: N815 - http.server names it

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as listening:
        listening.daemon_threads = True
        if tls is not None:
            listening.socket = tls.wrap_socket(listening.socket, server_side=True)
        server.url = f"{'http' if tls is None else 'https'}://127.0.0.1:{listening.server_address[1]}"
        thread = threading.Thread(target=listening.serve_forever, daemon=True)
        thread.start()
        try:
            yield server
        finally:
            listening.shutdown()
            thread.join()
