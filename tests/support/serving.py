"""A real server on a free loopback port, in a thread; with a whole system beside it where a test wants one."""

import itertools
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
from kubernetes import client

from tests.support.fresh_stores import fresh_store
from tests.support.patience import HANG_SECONDS
from volsched.api.limits import DEFAULT_LIMITS, Limits
from volsched.api.listener import Server, address, listen, serve
from volsched.api.watch_cache import RING
from volsched.cluster.port import PLURALS
from volsched.log.database import Database
from volsched.runtime.clock import system_clock
from volsched.runtime.runner import looping
from volsched.runtime.system import embedded

MANIFESTS = Path(__file__).parents[2] / "docs" / "examples"


def said_url(process: subprocess.Popen[str], begins: str) -> str:
    """Where a process says on stderr that it serves; its roles may have logged before."""
    assert process.stderr is not None
    said = list[str]()
    for line in process.stderr:
        if line.startswith(f"serving on {begins}"):
            return line.split()[2]
        said.append(line)
    raise AssertionError(f"it ended: {''.join(said)}")


@dataclass
class Served:
    url: str
    database: Database
    http: httpx.Client
    kubernetes: client.ApiClient
    server: Server
    ended: list[Exception | None] = field(default_factory=list)

    @property
    def core(self) -> client.CoreV1Api:
        return client.CoreV1Api(self.kubernetes)

    @property
    def storage(self) -> client.StorageV1Api:
        return client.StorageV1Api(self.kubernetes)

    def create(self, *manifests: dict[str, Any]) -> list[dict[str, Any]]:
        """Straight over HTTP; each must be accepted."""
        made = []
        for namespace in {it["metadata"].get("namespace") for it in manifests} - {None, "default"}:
            self.namespace(namespace)
        for manifest in manifests:
            answer = self.http.post(collection(manifest), json=manifest)
            assert answer.status_code == 201, answer.text
            made.append(answer.json())
        return made

    def namespace(self, name: str) -> None:
        """There, whoever made it."""
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
        assert self.http.post("/api/v1/namespaces", json=body).status_code in (201, 409)


def collection(manifest: dict[str, Any]) -> str:
    version = manifest["apiVersion"]
    namespace = manifest["metadata"].get("namespace")
    within = f"/namespaces/{namespace}" if namespace else ""
    return f"/{'apis' if '/' in version else 'api'}/{version}{within}/{PLURALS[manifest['kind']]}"


@contextmanager
def in_thread(
    database: Database, listening: socket.socket, ended: list[Exception | None], **given: Any
) -> Iterator[list[Server]]:
    """What it yields has the server as soon as that answers. The server must end when told to, without error."""
    started: list[Server] = []

    def run() -> None:
        died = serve(
            database,
            listening,
            clock=system_clock,
            actor="api/test",
            zonal_upgrade=True,
            started=started.append,
            **given,
        )
        ended.append(died)

    thread = threading.Thread(target=run, name="server", daemon=True)
    thread.start()
    try:
        yield started
    finally:
        started[0].should_exit = True
        thread.join(HANG_SECONDS)
        listening.close()
        assert not thread.is_alive(), "the server does not end"
    assert ended == [None]


@contextmanager
def served(
    database: Database,
    *,
    system: bool = False,
    ring_size: int = RING,
    limits: Limits = DEFAULT_LIMITS,
    strict: bool = False,
    port: int = 0,
    follows: bool = False,
    reserves: bool = True,
    binds: bool = True,
) -> Iterator[Served]:
    """`system`: schedule, bind and run pods too. `port`: that of a server that ended, 0: any. `follows`: the store
    is that of a followed cluster."""
    listening = listen("127.0.0.1", port)
    url = address(listening)
    ended: list[Exception | None] = []
    with ExitStack() as stack:
        wake: Callable[[], None] = lambda: None  # noqa: E731
        if system:
            ids = itertools.count(1)
            whole = embedded(
                database,
                owner="test",
                clock=system_clock,
                new_id=lambda: f"test-{next(ids):04}",
                node_agent=True,
            )
            stack.callback(whole.close)
            loop = looping(whole.step, clock=system_clock, name="system", failed=lambda error: ended.append(error))
            wake = stack.enter_context(loop).wake

        server = in_thread(
            database,
            listening,
            ended,
            committed=wake,
            ring_size=ring_size,
            limits=limits,
            strict=strict,
            read_only=follows,
            follows=follows,
            reserves=reserves,
            binds=binds,
        )
        http = stack.enter_context(httpx.Client(base_url=url, timeout=HANG_SECONDS))
        kubernetes = stack.enter_context(client.ApiClient(client.Configuration(host=url)))
        # Behind its clients, so that it ends although they are connected.
        started = stack.enter_context(server)
        # Connections wait in the socket until the server accepts them.
        checks = http.get("/readyz?verbose").text.splitlines()
        # A story that was stepped before, on time of its own, leaves its lease and its clock behind.
        failed = {line.removeprefix("[-]").split()[0] for line in checks if line.startswith("[-]")}
        assert "[+]store ok" in checks
        assert failed <= {"controller", "clock", "cluster"}, checks
        yield Served(url, database, http, kubernetes, started[0], ended)
    assert ended == [None]


@contextmanager
def strict_cluster() -> Iterator[Served]:
    """A cluster as strict as a real one, on a store of its own."""
    with fresh_store() as theirs, served(theirs, strict=True) as running:
        yield running
