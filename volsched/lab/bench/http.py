"""What a request costs over HTTP, beside a bare FastAPI route, and how soon watchers hear of a write.

Both servers are processes of their own, and the client costs next to nothing (`http_load`). The routes store
nothing and check nothing: what ours take beyond them is validation, the log's commit and the views.
"""

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import orjson

from volsched.lab.bench.bare_route import ITEMS
from volsched.lab.bench.http_load import Clock, HttpLoadError, Request, answer, fan_out, hurry, request

NODES = "/api/v1/nodes"
MILLISECONDS = 1_000
END_SECONDS = 20
_ADDRESS = re.compile(r"http://127\.0\.0\.1:(\d+)")


class BenchMissingError(Exception):
    """What has to be installed before this can be measured; the message says how."""


@dataclass(frozen=True, slots=True)
class HttpRow:
    what: str
    per_second: float
    baseline_per_second: float | None
    """Of the bare route; None where there is nothing like it."""
    cpu_ms: float | None
    """Of the server, for each request; None where nobody can say."""
    p50_ms: float | None = None
    p99_ms: float | None = None
    """From a write until a watcher had it."""

    @property
    def ratio(self) -> float | None:
        return None if self.baseline_per_second is None else self.per_second / self.baseline_per_second

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "ratio": self.ratio}


@dataclass(frozen=True, slots=True)
class Serving:
    port: int
    spent: Clock
    """CPU seconds of the process so far; not a number where they cannot be told."""


def bench_http(
    *, requests: int, callers: int, watchers: int, writes: int, writes_a_second: float, clock: Clock
) -> Iterator[HttpRow]:
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
    asked: Sequence[Request],
    asked_bare: Sequence[Request],
    *,
    callers: int,
    clock: Clock,
) -> HttpRow:
    spent = ours.spent()
    count, seconds = hurry(ours.port, asked, callers=callers, clock=clock)
    spent = ours.spent() - spent
    bare_count, bare_seconds = hurry(bare.port, asked_bare, callers=callers, clock=clock)
    return HttpRow(what, count / seconds, bare_count / bare_seconds, _each(spent, count))


def _watched(
    ours: Serving, watchers: int, writes: int, writes_a_second: float, callers: int, clock: Clock
) -> HttpRow:
    listed = orjson.loads(answer(ours.port, request("GET", f"{NODES}?limit=1")))
    since = listed["metadata"]["resourceVersion"]
    found = fan_out(
        ours.port,
        request("GET", f"{NODES}?watch=true&resourceVersion={since}"),
        [_create(f"watched-{index}") for index in range(writes)],
        watchers=watchers,
        callers=callers,
        a_second=writes_a_second,
        clock=clock,
        cost=ours.spent,
    )
    latencies = sorted(found.latencies)
    return HttpRow(
        f"create, {watchers} watch",
        found.writes / found.seconds,
        None,
        _each(found.cost, found.writes),
        latencies[len(latencies) // 2] * MILLISECONDS,
        latencies[len(latencies) * 99 // 100] * MILLISECONDS,
    )


def _each(spent: float, count: int) -> float | None:
    # Not a number is not equal to itself.
    return spent / count * MILLISECONDS if spent == spent else None


def _create(name: str, path: str = NODES) -> Request:
    labels = {"kubernetes.io/hostname": name, "topology.kubernetes.io/zone": "a"}
    manifest = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}}
    return request("POST", path, orjson.dumps(manifest))


# --- the servers ----------------------------------------------------------------------------------------


def _check_installed() -> None:
    wanted = {"fastapi": "pip install 'volsched[server]' fastapi", "uvicorn": "pip install 'volsched[server]'"}
    for name, remedy in wanted.items():
        if find_spec(name) is None:
            raise BenchMissingError(f"{name} is not installed; run: {remedy}")


@contextmanager
def _ours(store: Path) -> Iterator[Serving]:
    volsched = [sys.executable, "-m", "volsched"]
    made = subprocess.run([*volsched, "migrate", "--db", str(store)], capture_output=True, text=True, check=False)
    if made.returncode:
        raise HttpLoadError(f"no store could be made: {made.stderr.strip()}")
    # As fast as it goes is the question here.
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
            found = _ADDRESS.search(said)
            if found is None:
                process.kill()
                raise HttpLoadError(f"a server did not start: {said}{process.stdout.read()}".strip())
            yield Serving(int(found[1]), _cpu_seconds(process.pid))
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
