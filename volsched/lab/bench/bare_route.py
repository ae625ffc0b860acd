"""The baseline of `volsched bench http`: FastAPI routes that do nothing but answer.

Run as a program; it prints the port on which it listens.
"""

import socket
from typing import Any

ITEMS = 100
OBJECT = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {"name": "bare", "uid": "0", "resourceVersion": "1", "labels": {"kubernetes.io/hostname": "bare"}},
}


def main() -> None:
    import uvicorn
    from fastapi import FastAPI

    app = FastAPI()

    @app.get("/object")
    async def get() -> Any:
        return OBJECT

    @app.get("/list")
    async def list_all() -> Any:
        return {"items": [OBJECT] * ITEMS}

    @app.post("/object", status_code=201)
    async def create(body: dict[str, Any]) -> Any:
        return body

    listening = socket.create_server(("127.0.0.1", 0), backlog=1024)
    print(f"serving on http://127.0.0.1:{listening.getsockname()[1]}", flush=True)
    server = uvicorn.Server(uvicorn.Config(app, log_level="warning", access_log=False))
    server.run(sockets=[listening])


if __name__ == "__main__":
    main()
