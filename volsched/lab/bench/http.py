"""The cost of a request over HTTP beside a bare FastAPI route, with a client of negligible cost."""

import os
import re
import selectors
import socket
import subprocess
import sys
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import orjson

from volsched.lab.bench.bare_route import ITEMS
from volsched.runtime.extras import install_command

# A client of negligible cost: bare sockets and one loop, so that the server is measured.
#
# A library's client takes more CPU per answer than the server does, and on a small machine the two share it.

Clock = Callable[[], float]
Request = bytes
CHUNK = 1 << 18
STALLED_SECONDS = 30.0


class HttpLoadError(Exception):
    """The server did not answer as expected; the message says how."""


def request(method: str, path: str, body: bytes = b"") -> Request:
    head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\n"
    if body:
        head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n"
    return head.encode() + b"\r\n" + body


@contextmanager
def connected(port: int, count: int) -> Iterator[list[socket.socket]]:
    with ExitStack() as stack:
        sockets = [socket.create_connection(("127.0.0.1", port), timeout=STALLED_SECONDS) for _ in range(count)]
        for connection in sockets:
            stack.enter_context(connection)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        yield sockets


@dataclass(slots=True)
class LoadCaller:
    """A client with one connection and one request at a time."""

    socket: socket.socket
    got: bytes = b""
    sent_at: float = 0.0
    busy: bool = False

    def ask(self, request: Request, now: float) -> None:
        self.sent_at, self.busy, self.got = now, True, b""
        self.socket.sendall(request)

    def read(self) -> bool:
        """True once the answer is complete."""
        part = self.socket.recv(CHUNK)
        if not part:
            raise HttpLoadError("the server has closed the connection")
        self.got += part
        head, ended, rest = self.got.partition(b"\r\n\r\n")
        if not ended:
            return False
        if head[9:10] != b"2":
            raise HttpLoadError(f"the server answered: {self.got[:500].decode(errors='replace')}")
        length = int(head.lower().partition(b"content-length:")[2].split(b"\r\n", 1)[0] or 0)
        self.busy = len(rest) < length
        return not self.busy


def answer(port: int, request: Request) -> bytes:
    """One answer's body."""
    with connected(port, 1) as (one,):
        caller = LoadCaller(one)
        caller.ask(request, 0.0)
        while not caller.read():
            pass
        return caller.got.partition(b"\r\n\r\n")[2]


def hurry(port: int, requests: Iterable[Request], *, callers: int, clock: Clock) -> tuple[int, float]:
    """Send requests as fast as the server answers on so many connections; returns their number and the seconds."""
    waiting, count = iter(requests), 0
    with connected(port, callers) as sockets, selectors.DefaultSelector() as selector:
        begun = clock()
        for connection in sockets:
            caller = LoadCaller(connection)
            request = next(waiting, None)
            if request is not None:
                caller.ask(request, 0.0)
                selector.register(connection, selectors.EVENT_READ, caller)
        while selector.get_map():
            for key, _ in _ready(selector):
                caller = key.data
                if caller.read():
                    count += 1
                    request = next(waiting, None)
                    if request is None:
                        selector.unregister(caller.socket)
                    else:
                        caller.ask(request, 0.0)
        return count, clock() - begun


@dataclass(slots=True)
class Watcher:
    """One watch. Every watcher must get the same lines, so only those of one are read."""

    socket: socket.socket
    begun: bool = False
    rest: bytes = b""
    lines: list[bytes] = field(default_factory=list)
    times: list[float] = field(default_factory=list)

    def read(self, now: float) -> None:
        part = self.socket.recv(CHUNK)
        if not part:
            raise HttpLoadError("the server has ended a watch")
        self.rest += part
        if not self.begun:
            head, ended, after = self.rest.partition(b"\r\n\r\n")
            if not ended:
                return
            if b" 200 " not in head[:20]:
                raise HttpLoadError(f"a watch was answered: {self.rest[:500].decode(errors='replace')}")
            self.begun, self.rest = True, after
        self._take_chunks(now)

    def _take_chunks(self, now: float) -> None:
        while True:
            size, ended, after = self.rest.partition(b"\r\n")
            if not ended:
                return
            length = int(size, 16)
            if len(after) < length + 2:
                return
            self.rest = after[length + 2 :]
            # A chunk holds whole lines: the server sends everything new at a time.
            for line in after[:length].splitlines():
                self.lines.append(line)
                self.times.append(now)


@dataclass(frozen=True, slots=True)
class Fanned:
    """The result of writes that many watched."""

    seconds: float
    cost: float
    """Cost of the server, in the seconds that `cost` counts."""
    writes: int
    latencies: tuple[float, ...]
    """Seconds from sending a write until a watcher received it, for every watcher and write."""


def fan_out(
    port: int,
    watch: Request,
    writes: Iterable[Request],
    *,
    watchers: int,
    callers: int,
    a_second: float,
    clock: Clock,
    cost: Clock,
) -> Fanned:
    """Send the writes at a steady pace to so many watchers; HttpLoadError unless all receive all, in order."""
    waiting, total = list(writes), 0
    with ExitStack() as stack:
        selector = stack.enter_context(selectors.DefaultSelector())
        watching = [Watcher(it) for it in stack.enter_context(connected(port, watchers))]
        calling = [LoadCaller(it) for it in stack.enter_context(connected(port, callers))]
        for entry in watching:
            entry.socket.sendall(watch)
            selector.register(entry.socket, selectors.EVENT_READ, entry)
        for caller in calling:
            selector.register(caller.socket, selectors.EVENT_READ, caller)
        while not all(it.begun for it in watching):
            _step(selector, clock, {}, STALLED_SECONDS)
        begun, spent, sent_at, total = clock(), cost(), dict[bytes, float](), len(waiting)
        waiting.reverse()
        while waiting or any(it.busy for it in calling) or any(len(it.lines) < total for it in watching):
            now = clock()
            due = begun + (total - len(waiting)) / a_second
            free = next((it for it in calling if not it.busy), None)
            if waiting and due <= now and free is not None:
                free.ask(waiting.pop(), now)
                continue
            _step(selector, clock, sent_at, min(max(due - now, 0), 1.0) if waiting and free else STALLED_SECONDS)
        seconds, spent = clock() - begun, cost() - spent
    return Fanned(seconds, spent, total, tuple(_latencies(watching, sent_at)))


def _step(selector: selectors.BaseSelector, clock: Clock, sent_at: dict[bytes, float], seconds: float) -> None:
    ready = _ready(selector, seconds)
    now = clock()
    for key, _ in ready:
        entry = key.data
        if isinstance(entry, Watcher):
            entry.read(now)
        elif entry.read():
            sent_at[_version(entry.got)] = entry.sent_at


def _ready(
    selector: selectors.BaseSelector, seconds: float = STALLED_SECONDS
) -> list[tuple[selectors.SelectorKey, int]]:
    ready = selector.select(seconds)
    if not ready and seconds >= STALLED_SECONDS:
        raise HttpLoadError(f"the server has said nothing for {STALLED_SECONDS:g} s")
    return ready


def _version(text: bytes) -> bytes:
    return text.partition(b'"resourceVersion":"')[2].partition(b'"')[0]


def _latencies(watching: list[Watcher], sent_at: dict[bytes, float]) -> Iterator[float]:
    first = watching[0].lines
    versions = [_version(line) for line in first]
    if list(map(int, versions)) != sorted(map(int, sent_at)):
        raise HttpLoadError("a watcher did not receive every write, once and in order")
    for entry in watching:
        if entry.lines != first:
            raise HttpLoadError("two watchers of the same objects received different changes")
        for version, at in zip(versions, entry.times, strict=True):
            yield at - sent_at[version]


# Both servers are separate processes, and the client's cost is negligible. The routes store nothing and check
# nothing: the rest of our cost is validation, the log's commit and the views.

NODES = "/api/v1/nodes"
MILLISECONDS = 1_000
END_SECONDS = 20
_ADDRESS = re.compile(r"http://127\.0\.0\.1:(\d+)")


class BenchMissingError(Exception):
    """A missing installation for this measurement; the message says how to install it."""


@dataclass(frozen=True, slots=True)
class HttpRow:
    what: str
    per_second: float
    baseline_per_second: float | None
    """The rate of the bare route; None if there is no equivalent."""
    cpu_ms: float | None
    """Processor time of the server per request; None if unknown."""
    p50_ms: float | None = None
    p99_ms: float | None = None
    """Delay from a write until a watcher received it."""

    @property
    def ratio(self) -> float | None:
        return None if self.baseline_per_second is None else self.per_second / self.baseline_per_second

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "ratio": self.ratio}


@dataclass(frozen=True, slots=True)
class Serving:
    port: int
    spent: Clock
    """CPU seconds of the process so far; NaN if unknown."""


HTTP_ROWS = 4


def bench_http(
    *, requests: int, callers: int, watchers: int, writes: int, writes_a_second: float, clock: Clock
) -> Generator[HttpRow, None, None]:
    """get, list and create, each beside the bare route; then writes while many watch."""
    _check_installed()
    with ExitStack() as stack:
        home = Path(stack.enter_context(TemporaryDirectory(prefix="volsched-")))
        ours = stack.enter_context(_ours(home / "store.db"))
        bare = stack.enter_context(_started([sys.executable, "-m", "volsched.lab.bench.bare_route"], os.environ))
        for index in range(ITEMS):
            answer(ours.port, _create(f"kept-{index}"))
        measure = partial(_row, ours, bare, callers=callers, clock=clock)
        yield measure(
            "get", [request("GET", f"{NODES}/kept-0")] * requests, [request("GET", "/object")] * requests
        )
        few = max(requests // 10, 1)
        yield measure(
            f"list of {ITEMS}",
            [request("GET", f"{NODES}?limit={ITEMS}")] * few,
            [request("GET", "/list")] * few,
        )
        yield measure(
            "create",
            [_create(f"made-{index}") for index in range(requests)],
            [_create(f"made-{index}", "/object") for index in range(requests)],
        )
        yield _watched(ours, watchers, writes, writes_a_second, callers, clock)


def _row(
    ours: Serving,
    bare: Serving,
    what: str,
    requests: Sequence[Request],
    bare_requests: Sequence[Request],
    *,
    callers: int,
    clock: Clock,
) -> HttpRow:
    spent = ours.spent()
    count, seconds = hurry(ours.port, requests, callers=callers, clock=clock)
    spent = ours.spent() - spent
    bare_count, bare_seconds = hurry(bare.port, bare_requests, callers=callers, clock=clock)
    return HttpRow(what, count / seconds, bare_count / bare_seconds, _each(spent, count))


def _watched(
    ours: Serving, watchers: int, writes: int, writes_a_second: float, callers: int, clock: Clock
) -> HttpRow:
    listed = orjson.loads(answer(ours.port, request("GET", f"{NODES}?limit=1")))
    since = listed["metadata"]["resourceVersion"]
    spread = fan_out(
        ours.port,
        request("GET", f"{NODES}?watch=true&resourceVersion={since}"),
        [_create(f"watched-{index}") for index in range(writes)],
        watchers=watchers,
        callers=callers,
        a_second=writes_a_second,
        clock=clock,
        cost=ours.spent,
    )
    latencies = sorted(spread.latencies)
    return HttpRow(
        f"create, {watchers} watch",
        spread.writes / spread.seconds,
        None,
        _each(spread.cost, spread.writes),
        latencies[len(latencies) // 2] * MILLISECONDS,
        latencies[len(latencies) * 99 // 100] * MILLISECONDS,
    )


def _each(spent: float, count: int) -> float | None:
    # NaN is not equal to itself.
    return spent / count * MILLISECONDS if spent == spent else None


def _create(name: str, path: str = NODES) -> Request:
    labels = {"kubernetes.io/hostname": name, "topology.kubernetes.io/zone": "a"}
    manifest = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}}
    return request("POST", path, orjson.dumps(manifest))


# --- the servers ----------------------------------------------------------------------------------------


def _check_installed() -> None:
    wanted = {"fastapi": f"{install_command('server')} fastapi", "uvicorn": install_command("server")}
    for name, remedy in wanted.items():
        if find_spec(name) is None:
            raise BenchMissingError(f"{name} is not installed; run: {remedy}")


@contextmanager
def _ours(store: Path) -> Iterator[Serving]:
    volsched = [sys.executable, "-m", "volsched"]
    migration = subprocess.run(
        [*volsched, "migrate", "--db", str(store)], capture_output=True, text=True, check=False
    )
    if migration.returncode:
        raise HttpLoadError(f"no store could be created: {migration.stderr.strip()}")
    # Maximum speed is measured here.
    environment = {**os.environ, "VOLSCHED_REQUESTS_PER_SECOND": "0"}
    command = [*volsched, "serve", "api", "--db", str(store), "--port", "0"]
    with _started(command, environment) as serving:
        yield serving


@contextmanager
def _started(command: Sequence[str], environment: "os._Environ[str] | dict[str, str]") -> Iterator[Serving]:
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment
    ) as process:
        try:
            assert process.stdout is not None
            said = process.stdout.readline()
            address = _ADDRESS.search(said)
            if address is None:
                process.kill()
                raise HttpLoadError(f"a server did not start: {said}{process.stdout.read()}".strip())
            yield Serving(int(address[1]), _cpu_seconds(process.pid))
        finally:
            process.terminate()
            try:
                process.wait(END_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()


def _cpu_seconds(pid: int) -> Callable[[], float]:
    try:
        import psutil
    except ModuleNotFoundError:
        return lambda: float("nan")
    process = psutil.Process(pid)

    def spent() -> float:
        times = process.cpu_times()
        return float(times.user + times.system)

    return spent
