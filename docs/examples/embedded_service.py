"""volsched inside a service of your own: an HTTP server that places what it is given, on a store that it owns.

    python docs/examples/embedded_service.py placements.db 8080

    curl --data-binary @docs/examples/two-disks.yaml localhost:8080     what became of every object
    curl localhost:8080/default/db                                     where the pod is, or why it is nowhere
    curl localhost:8080/default/db/history                             how it came there

The engine lives in one thread, here the server's. The process may be killed on any line: what was answered is in
the store, and the next start goes on from there.
"""

import json
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

from volsched import Engine
from volsched.library import RefusedError
from volsched.model import ManifestError


def place(engine: Engine, manifests: bytes) -> tuple[int, Any]:
    try:
        done = engine.apply(manifests, reason="posted to the placement service")
    except (ManifestError, RefusedError) as error:
        return 422, {"refused": str(error).splitlines()}
    idle = engine.run_until_idle(timeout=30)
    return 200, {"objects": {f"{it.kind}/{it.key}": it.done for it in done}, "settled": idle}


def tell(engine: Engine, path: str) -> tuple[int, Any]:
    pod = path.strip("/").removesuffix("/history")
    found = engine.get("pod", pod)
    if found is None:
        return 404, {"error": f"there is no pod {pod}"}
    if path.endswith("/history"):
        return 200, [f"{it['at']} {it['actor']}: {it['what']}" for it in engine.history(f"pod/{pod}")]
    node = found["spec"].get("nodeName")
    return 200, {"node": node} if node else {"node": None, "why": engine.explain(pod)["message"]}


def server(engine: Engine, port: int) -> HTTPServer:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self._answer(*place(engine, self.rfile.read(int(self.headers["Content-Length"]))))

        def do_GET(self) -> None:
            self._answer(*tell(engine, self.path))

        def _answer(self, code: int, told: Any) -> None:
            self.send_response(code)
            self.send_header("Content-Type", "application/json")
            self.end_headers()
            self.wfile.write(json.dumps(told, indent=2).encode())

    return HTTPServer(("127.0.0.1", port), Handler)


def main(store: str, port: str) -> None:
    with Engine.open(store, migrate=True, actor="placement-service") as engine, server(engine, int(port)) as http:
        print(f"http://127.0.0.1:{http.server_port}", flush=True)
        try:
            http.serve_forever()
        except KeyboardInterrupt:
            return


if __name__ == "__main__":
    main(*sys.argv[1:])
