"""The soak: pods come and go for as long as one likes, and no process may grow. `make soak` runs it.

Every round makes pods with two claims and a volume for each, waits until all of them are bound, and deletes
everything again, always under new names. What is left after a round is history, which lies in the database; so
what a process holds must not follow the number of rounds. Anonymous memory is judged: resident memory counts pages
of the database's file that the kernel keeps for us, too.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import psutil

from tests.conftest import started_postgres
from tests.stack.processes import ROOT, Redis, worker
from tests.support.clusters import LOCAL, claim, node, pod, volume
from tests.support.patience import wait_until
from tests.support.serving import collection
from volsched.log.store import migrate_store

NODES, BATCH, LEGS, CLIENTS = 4, 100, 2, 16
MOST_GROWTH = 0.05
"""Of its memory, from when a process is warm to the end; and as many megabytes as one more arena takes."""
SLACK_MB = 4.0
WARM_PODS = 4_000
"""By then the rings of the API that watches read from are full, and grow no more: a ring is cut back from 10,240
changes to 8,192, volumes and claims come to that after some 700 and 1,000 pods, pods after 1,700, and their
Kubernetes events, which are few, last."""
BRIEF = {"EVENT_TTL_SECONDS": "20", "COMMAND_TTL_SECONDS": "20", "DONE_TTL_SECONDS": "20"}
"""What else would be kept for days expires within the run, as it does within days elsewhere."""
LOOK_SECONDS = 0.2
"""How often it is asked whether a batch is done; every answer is a list of everything."""
MEGABYTE = 1 << 20


@dataclass
class Soak:
    api: str
    processes: dict[str, int]
    """Name → pid."""
    pods: int = 0
    seen: dict[str, list[tuple[int, float]]] = field(default_factory=dict)
    """Name → pods so far and anonymous memory then, in megabytes."""

    def __post_init__(self) -> None:
        self.http = httpx.Client(base_url=self.api, timeout=60)
        self.clients = ThreadPoolExecutor(CLIENTS)

    def create(self, *manifests: dict[str, Any]) -> None:
        """All at once: a commit is shared by those who wait for it."""
        list(self.clients.map(self._create, manifests))

    def _create(self, manifest: dict[str, Any]) -> None:
        answer = self.http.post(collection(manifest), json=manifest)
        assert answer.status_code == 201, answer.text

    def round(self) -> None:
        """A batch of pods, from made to gone."""
        first = self.pods
        numbers = range(first, first + BATCH)
        names = {number: [f"{number}-{leg}" for leg in range(LEGS)] for number in numbers}
        self.create(
            *(volume(f"pv-{it}", "1Gi", f"node-{number % NODES}") for number in numbers for it in names[number])
        )
        self.create(*(claim(f"c-{it}", "1Gi") for number in numbers for it in names[number]))
        self.create(*(pod(f"p-{number}", *(f"c-{it}" for it in names[number])) for number in numbers))
        # One that fits nowhere: what it is told is kept for a while, too.
        self.create(pod(f"never-{first}", "missing"))
        wait_until(lambda: self._bound() == BATCH, progress=self._bound, look=LOOK_SECONDS)
        every = [it for number in numbers for it in names[number]]
        gone = "?gracePeriodSeconds=0"
        pods = [f"p-{number}" for number in numbers] + [f"never-{first}"]
        self.delete(*(f"/api/v1/namespaces/default/pods/{it}{gone}" for it in pods))
        self.delete(*(f"/api/v1/namespaces/default/persistentvolumeclaims/c-{it}" for it in every))
        self.delete(*(f"/api/v1/persistentvolumes/pv-{it}" for it in every))
        self.pods += BATCH
        wait_until(
            lambda: not self._left("persistentvolumes"),
            progress=lambda: self._left("persistentvolumes"),
            look=LOOK_SECONDS,
        )

    def delete(self, *paths: str) -> None:
        list(self.clients.map(self._delete, paths))

    def _delete(self, path: str) -> None:
        answer = self.http.delete(path)
        assert answer.status_code in (200, 202), answer.text

    def _bound(self) -> int:
        items = self.http.get("/api/v1/namespaces/default/pods").json()["items"]
        return sum(
            bool(it["spec"].get("nodeName")) for it in items if not it["metadata"]["name"].startswith("never")
        )

    def _left(self, plural: str) -> int:
        return len(self.http.get(f"/api/v1/{plural}").json()["items"])

    def look(self, seconds: float) -> None:
        cells = []
        for name, pid in self.processes.items():
            resident, anonymous = memory(pid)
            self.seen.setdefault(name, []).append((self.pods, anonymous))
            cells.append(f"{name} {resident:.0f}/{anonymous:.1f}")
        print(f"{seconds:6.0f} s {self.pods:7} pods   {'   '.join(cells)}", flush=True)

    def judge(self) -> bool:
        """Whether nothing has grown since it was warm; where it never was, in the second half of the run."""
        flat = True
        for name, points in self.seen.items():
            warm = [it for it in points if it[0] >= WARM_PODS]
            enough = len(warm) >= 6
            late = warm if enough else points[len(points) // 2 :]
            before = sum(it for _, it in late[: max(len(late) // 3, 1)]) / max(len(late) // 3, 1)
            after = sum(it for _, it in late[-max(len(late) // 3, 1) :]) / max(len(late) // 3, 1)
            grown = after - before
            fine = grown <= before * MOST_GROWTH + SLACK_MB
            flat = flat and fine
            pods = max(late[-1][0] - late[0][0], 1)
            told = f"{grown:+.1f} MB over {pods} pods ({grown / pods * 10_000:+.1f} MB per 10,000)"
            told += "" if enough else "; NOT WARM: judged by the second half"
            print(f"{name:12} {'flat' if fine else 'GROWS'}   {before:.1f} MB -> {after:.1f} MB, {told}")
        return flat


def memory(pid: int) -> tuple[float, float]:
    """Resident and anonymous memory, in megabytes."""
    found = {}
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]:
        name, _, rest = line.partition(":")
        found[name] = int(rest.split()[0]) * 1024 / MEGABYTE
    return found["Rss"], found["Anonymous"]


@contextmanager
def started(*words: str, environment: dict[str, str], log: Path) -> Iterator["subprocess.Popen[bytes]"]:
    inherited = {key: value for key, value in os.environ.items() if not key.startswith("VOLSCHED_")}
    given = {f"VOLSCHED_{key}": value for key, value in environment.items()}
    with log.open("ab") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", "volsched", *words], cwd=ROOT, env=inherited | given,
            stdin=subprocess.DEVNULL, stdout=out, stderr=out,
        )  # fmt: skip
    try:
        yield process
    finally:
        process.terminate()
        process.wait(timeout=60)


def address(log: Path) -> str:
    wait_until(lambda: "serving on http" in log.read_text())
    return next(word for word in log.read_text().split() if word.startswith("http://"))


@contextmanager
def embedded(directory: Path) -> Iterator[Soak]:
    """One process on SQLite."""
    url = f"sqlite:///{directory / 'store.db'}"
    migrate_store(url)
    log = directory / "up.log"
    with started("up", "--port", "0", environment=BRIEF | {"DATABASE_URL": url}, log=log) as process:
        yield Soak(address(log), {"up": process.pid})


@contextmanager
def stack(directory: Path) -> Iterator[Soak]:
    """All processes, on PostgreSQL and Redis."""
    with ExitStack() as opened:
        server = opened.enter_context(started_postgres(directory / "data"))
        broker = Redis(directory)
        broker.start()
        opened.callback(broker.stop)
        url = server.get_uri()
        migrate_store(url)
        environment = BRIEF | {"DATABASE_URL": url, "REDIS_URL": broker.url}
        pids = {}
        for name, words in {"api": ("--port", "0"), "scheduler": (), "controller": ()}.items():
            log = directory / f"{name}.log"
            pids[name] = opened.enter_context(started("serve", name, *words, environment=environment, log=log)).pid
        working = opened.enter_context(worker(url, broker))
        wait_until(working.ready)
        children = psutil.Process(working.process.pid).children(recursive=True)
        pids |= {f"worker-{number}": it.pid for number, it in enumerate(children)}
        yield Soak(address(directory / "api.log"), pids)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--on", choices=("sqlite", "stack"), default="sqlite")
    parser.add_argument("--every", type=float, default=15.0, help="seconds between two looks")
    parser.add_argument(
        "--rate", type=float, help="pods per second at most; as many as there is time for if not given"
    )
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="volsched-soak-") as directory:
        # The server of a stack runs as another user where we are root.
        Path(directory).chmod(0o755)
        with (embedded if given.on == "sqlite" else stack)(Path(directory)) as soak:
            print("resident/anonymous megabytes of every process", flush=True)
            soak.create(LOCAL, *(node(f"node-{number}") for number in range(NODES)))
            began = looked = time.monotonic()
            while (now := time.monotonic()) - began < given.minutes * 60:
                soak.round()
                if given.rate:
                    # The pace of the load, not a wait for anything.
                    time.sleep(max(began + soak.pods / given.rate - time.monotonic(), 0))
                if now - looked >= given.every:
                    looked = now
                    soak.look(now - began)
            soak.look(time.monotonic() - began)
            return 0 if soak.judge() else 1


if __name__ == "__main__":
    sys.exit(main())
