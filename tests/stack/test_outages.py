"""PostgreSQL restarts, Redis restarts, lines are cut or go silent: every process lives on and ends its work."""

import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
from sqlalchemy import make_url, text

from tests.stack.processes import ROOT, Redis, worker
from tests.stack.proxy import Line, to_file, to_port
from tests.stack.work import bound_pods, leg_moves, phases, queued
from tests.support.clusters import LOCAL, claim, node, pod, volume
from tests.support.patience import wait_until
from tests.support.serving import collection
from volsched.log.database import Database, open_database
from volsched.log.dialects.postgres import MOST_CONNECTIONS
from volsched.log.effects import list_effects
from volsched.log.integrity.verify import verify
from volsched.log.migrations import migrate
from volsched.questions.invariants import violations

EACH = 8
"""Pods that are made around every outage."""


@dataclass
class Stack:
    database: Database
    """Not through the line: the test's own."""
    postgres: Any
    redis: Redis
    lines: dict[str, Line]
    processes: dict[str, "subprocess.Popen[bytes]"]
    api: str
    pods: int = 0

    def more(self) -> None:
        """Pods with two claims each, over the API; whoever does not answer is asked again."""
        for number in range(self.pods, self.pods + EACH):
            names = [f"{number}-{leg}" for leg in range(2)]
            self.post(*(volume(f"pv-{name}", "1Gi", f"node-{number % 2}") for name in names))
            self.post(*(claim(f"c-{name}", "1Gi") for name in names))
            self.post(pod(f"p-{number}", *(f"c-{name}" for name in names)))
        self.pods += EACH

    def post(self, *manifests: dict[str, Any]) -> None:
        for manifest in manifests:
            wait_until(lambda it=manifest: self._posted(it), told=lambda it=manifest: it["metadata"]["name"])  # type: ignore[misc]

    def _posted(self, manifest: dict[str, Any]) -> bool:
        try:
            answer = httpx.post(f"{self.api}{collection(manifest)}", json=manifest, timeout=10)
        except httpx.TransportError:
            return False
        # A conflict is the answer to one that was committed before its own answer was lost.
        assert answer.status_code in (201, 409, 429, 500, 503, 504), answer.text
        return answer.status_code in (201, 409)

    def settled(self) -> None:
        wait_until(
            lambda: bound_pods(self.database) == self.pods and queued(self.database) == 0,
            progress=lambda: (bound_pods(self.database), phases(self.database)),
            told=lambda: (
                bound_pods(self.database),
                self.pods,
                phases(self.database),
                list_effects(self.database),
            ),
        )

    def restart_postgres(self) -> None:
        """As a crash: connections are cut in the middle of whatever they were doing."""
        pid = self.postgres.get_pid()
        os.kill(pid, signal.SIGQUIT)
        wait_until(lambda: not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)
        self.postgres.ensure_postgres_running()
        self.database.engine.dispose()


@contextmanager
def started(name: str, *words: str, environment: dict[str, str], log: Path) -> Iterator["subprocess.Popen[bytes]"]:
    with log.open("ab") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", "volsched", "serve", name, *words],
            cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, stdout=out, stderr=out,
        )  # fmt: skip
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(timeout=15)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@pytest.fixture
def stack(own_postgres: Any, broker: Redis, tmp_path: Path) -> Iterator[Stack]:
    """All processes of a stack; every line between them and their servers is ours to cut."""
    direct = own_postgres.get_uri()
    database = open_database(direct)
    migrate(database)
    url = make_url(direct)
    place = str(url.query.get("host") or url.host)
    with ExitStack() as opened:
        lines = {
            "postgres": Line(to_file(f"{place}/.s.PGSQL.{url.port or 5432}")),
            "redis": Line(to_port(broker.port)),
        }
        for line in lines.values():
            opened.callback(line.close)
        through = f"postgresql://{url.username}@127.0.0.1:{lines['postgres'].port}/{url.database}"
        redis_url = f"redis://127.0.0.1:{lines['redis'].port}/0"
        inherited = {key: value for key, value in os.environ.items() if not key.startswith("VOLSCHED_")}
        environment = inherited | {"VOLSCHED_DATABASE_URL": through, "VOLSCHED_REDIS_URL": redis_url}
        log = tmp_path / "api.log"
        processes = {
            name: opened.enter_context(
                started(name, *words, environment=environment, log=tmp_path / f"{name}.log")
            )
            for name, words in {"api": ("--port", "0"), "scheduler": (), "controller": ()}.items()
        }
        working = opened.enter_context(worker(through, broker, REDIS_URL=redis_url))
        wait_until(lambda: "serving on http" in log.read_text() and working.ready())
        api = next(word for word in log.read_text().split() if word.startswith("http://"))
        made = Stack(database, own_postgres, broker, lines, processes | {"worker": working.process}, api)
        made.post(LOCAL, node("node-0"), node("node-1"))
        yield made
    database.close()


def test_every_process_survives_and_every_pod_is_bound_once(stack: Stack) -> None:
    pids = {name: it.pid for name, it in stack.processes.items()}
    stack.more()
    stack.restart_postgres()
    stack.more()
    stack.lines["postgres"].cut()
    stack.more()
    stack.redis.stop()
    stack.more()
    stack.redis.start()
    stack.lines["redis"].cut()
    stack.lines["postgres"].cut()
    stack.more()
    carried = stack.lines["postgres"].carried
    with stack.lines["postgres"].silent(), stack.lines["redis"].silent():
        # Somebody tries to connect again, or waits for an answer; then the line is cut under all of them.
        os.sched_yield()
    stack.more()
    stack.settled()
    assert stack.lines["postgres"].carried > carried
    assert {name: it.poll() for name, it in stack.processes.items()} == dict.fromkeys(pids)
    assert phases(stack.database)["committed"] == stack.pods
    assert set(leg_moves(stack.database, "bound").values()) == {1}
    with stack.database.read() as connection:
        assert violations(connection, at_rest=True) == []
        names = connection.execute(text("SELECT application_name FROM pg_stat_activity")).scalars()
        seen = Counter(name for name in names if name.startswith("volsched "))
    assert {"volsched api", "volsched scheduler", "volsched controller", "volsched worker"} <= {*seen}
    # One that hears of commits beside the pool.
    assert max(seen.values()) <= MOST_CONNECTIONS + 1
    assert verify(stack.database).ok
