"""The real processes of a stack: a Redis, and Celery workers as an operator starts them."""

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import redis

from tests.support.patience import HANG_SECONDS, wait_until
from volsched.binding.wakeup import wake_up_name
from volsched.lab.stack.programs import find_redis

ROOT = Path(__file__).parents[2]


@dataclass
class Redis:
    """A server on a port of its own that keeps nothing: what it forgets when it stops, it forgets."""

    directory: Path
    port: int = field(default_factory=lambda: _free_port())
    _process: "subprocess.Popen[bytes] | None" = None

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    @property
    def client(self) -> "redis.Redis":
        return redis.Redis(port=self.port)

    def start(self) -> None:
        # A real one: without it there is nothing to prove, and the error says what to install.
        program = find_redis().directory / "redis-server"
        arguments = ["--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self.directory), "--save", ""]
        with (self.directory / "redis.log").open("ab") as log:
            self._process = subprocess.Popen([program, *arguments], stdout=log, stderr=log)
        wait_until(self._answers)

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def _answers(self) -> bool:
        try:
            return bool(self.client.ping())
        except redis.ConnectionError:
            return False


@dataclass
class Worker:
    process: "subprocess.Popen[bytes]"
    log: Path

    @property
    def stopped(self) -> list[int]:
        """Pool processes that a fault point has put to sleep."""
        children = psutil.Process(self.process.pid).children(recursive=True)
        return [child.pid for child in children if child.status() == psutil.STATUS_STOPPED]

    def said(self, words: str) -> int:
        """How often its log has these words."""
        return self.log.read_text(errors="replace").count(words)

    def ended(self, what: str) -> int:
        """How many wake-ups of this kind it has carried out."""
        return len(re.findall(rf"Task {wake_up_name(what)}\[.*\] succeeded", self.log.read_text(errors="replace")))

    def ready(self) -> bool:
        return self.said(" ready.") > 0

    def end(self) -> int:
        """As a supervisor does it: ask, and wait for what is under way."""
        self.process.terminate()
        return self.process.wait(timeout=HANG_SECONDS)

    def kill(self) -> None:
        """The whole worker at once. It leads a session of its own, so this reaches nobody else."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


@contextmanager
def worker(
    url: str, broker: Redis, *, name: str = "one", processes: int = 2, **environment: str
) -> Iterator[Worker]:
    """Pool processes and a beat; everything they are told comes through VOLSCHED_ variables."""
    command = [sys.executable, "-m", "celery", "-A", "workers.app", "worker", "--concurrency", str(processes)]
    with _started(
        [*command, "--hostname", f"{name}@%h", "--loglevel", "INFO"], url, broker, f"worker-{name}", environment
    ) as it:
        yield it


@contextmanager
def scheduler(url: str, broker: Redis, *words: str, name: str = "one", **environment: str) -> Iterator[Worker]:
    """`volsched serve scheduler`, beside the workers of the same stack."""
    command = [sys.executable, "-m", "volsched", "serve", "scheduler", *words]
    with _started(command, url, broker, f"scheduler-{name}", environment) as it:
        yield it


@contextmanager
def _started(
    command: list[str], url: str, broker: Redis, name: str, environment: dict[str, str]
) -> Iterator[Worker]:
    inherited = {key: value for key, value in os.environ.items() if not key.startswith("VOLSCHED_")}
    given = {"DATABASE_URL": url, "REDIS_URL": broker.url, "LEASE_SECONDS": "2", **environment}
    log = broker.directory / f"{name}.log"
    with log.open("ab") as output:
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            env={**inherited, **{f"VOLSCHED_{key}": value for key, value in given.items()}},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    started = Worker(process, log)
    try:
        yield started
    finally:
        if process.poll() is None:
            started.kill()


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port
