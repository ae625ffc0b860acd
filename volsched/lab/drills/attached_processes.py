"""The processes of a drill on a foreign cluster: a strict API server, attached volsched, the proxy between."""

import asyncio
import os
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from volsched.lab.stack.local import HOST, free_port
from volsched.lab.stack.programs import commands_directory
from volsched.runtime.fault_points import DRILL_FLAG, FAULT

CHUNK = 2**16
LOG_LINES = 5
LEASE_SECONDS = 5
"""A stopped process is not dead: another one gets its work only when its lease runs out."""
KUBECONFIG = """apiVersion: v1
kind: Config
current-context: drill
clusters: [{{name: drill, cluster: {{server: "http://{host}:{port}"}}}}]
contexts: [{{name: drill, context: {{cluster: drill, user: drill}}}}]
users: [{{name: drill, user: {{}}}}]
"""


@dataclass(slots=True)
class DrillProcess:
    """One of our commands, which may be started several times."""

    words: Sequence[str]
    log: Path
    lives: int = 0
    _process: subprocess.Popen[bytes] | None = None

    def start(self, fault: str | None = None) -> None:
        """`fault`: where it is killed or stopped (`executor.calling*2:kill`)."""
        assert self._process is None or self._process.poll() is not None
        environment = {name: it for name, it in os.environ.items() if name not in (FAULT, DRILL_FLAG)}
        if fault is not None:
            environment |= {FAULT: fault, DRILL_FLAG: "1"}
        environment["VOLSCHED_LEASE_SECONDS"] = str(LEASE_SECONDS)
        command = [str(commands_directory() / "volsched"), *self.words]
        with self.log.open("ab") as log:
            # A group of its own: Ctrl-C is for the drill, which ends it.
            self._process = subprocess.Popen(
                command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, env=environment, start_new_session=True
            )
        self.lives += 1

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def was_killed(self) -> bool:
        return self._process is not None and self._process.poll() == -signal.SIGKILL

    @property
    def is_stopped(self) -> bool:
        """Whether a fault point has stopped it."""
        if self._process is None:
            return False
        with suppress(psutil.NoSuchProcess):
            return bool(psutil.Process(self._process.pid).status() == psutil.STATUS_STOPPED)
        return False

    def go_on(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def complaint(self) -> str:
        """The last lines of its log."""
        lines = self.log.read_text(errors="replace").splitlines() if self.log.exists() else []
        return "\n".join(lines[-LOG_LINES:])


@dataclass(slots=True)
class CuttableLine:
    """A TCP proxy between volsched and the API server, which a drill cuts."""

    target: int
    port: int = 0
    _is_cut: bool = False
    _open: set[asyncio.StreamWriter] = field(default_factory=set)
    _loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.new_event_loop)

    def cut(self) -> None:
        self._soon(self._cut)

    def mend(self) -> None:
        self._is_cut = False

    def _cut(self) -> None:
        self._is_cut = True
        for writer in self._open:
            writer.transport.abort()

    def _soon(self, call: Callable[[], object]) -> None:
        self._loop.call_soon_threadsafe(call)

    @contextmanager
    def carrying(self) -> Iterator["CuttableLine"]:
        begun = threading.Event()

        async def run() -> None:
            server = await asyncio.start_server(self._connected, HOST, 0)
            self.port = server.sockets[0].getsockname()[1]
            begun.set()

        def serve() -> None:
            self._loop.run_until_complete(run())
            self._loop.run_forever()

        thread = threading.Thread(target=serve, name="drill-line", daemon=True)
        thread.start()
        begun.wait()
        try:
            yield self
        finally:
            self._soon(self._cut)
            self._soon(self._loop.stop)
            thread.join()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            if self._is_cut:
                raise ConnectionResetError
            there, back = await asyncio.open_connection(HOST, self.target)
        except OSError:
            writer.transport.abort()
            return
        self._open |= {writer, back}
        await asyncio.gather(_carry(reader, back), _carry(there, writer))
        self._open -= {writer, back}


async def _carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(CHUNK):
            writer.write(data)
            await writer.drain()
        writer.close()
    except OSError:
        # A broken connection is broken on the other side too: a graceful close would look complete.
        writer.transport.abort()


@dataclass(slots=True)
class AttachedProcesses:
    directory: Path
    port: int
    """The port of the API server."""
    line: CuttableLine
    server: DrillProcess
    attached: DrillProcess
    _stores: int = 0

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.port}"

    @property
    def store(self) -> str:
        return f"sqlite:///{self.directory / f'attached-{self._stores}.db'}"

    def command(self, *words: str) -> None:
        """Run a command of ours to its end."""
        subprocess.run([str(commands_directory() / "volsched"), *words], check=True, capture_output=True)

    def on_new_store(self) -> DrillProcess:
        """Switch to another store, with a new process for it; returns the previous process, untouched."""
        self._stores += 1
        return self.on_same_store()

    def on_same_store(self) -> DrillProcess:
        """Switch to a new process on the store; returns the previous process, untouched."""
        before = self.attached
        self.attached = self._attachment()
        self.attached.lives = before.lives
        return before

    def _attachment(self) -> DrillProcess:
        words = ["attach", "--mode", "own", "--kubeconfig", str(self.directory / "kubeconfig")]
        words += ["--db", self.store, "--port", str(free_port())]
        return DrillProcess(words, self.directory / f"attached-{self._stores}.log")


@contextmanager
def attached_processes(directory: Path) -> Iterator[AttachedProcesses]:
    """The processes, not started yet; all are ended afterwards."""
    port = free_port()
    words = ["serve", "api", "--strict", "--db", f"sqlite:///{directory / 'cluster.db'}", "--port", str(port)]
    server = DrillProcess(words, directory / "server.log")
    with CuttableLine(port).carrying() as line:
        (directory / "kubeconfig").write_text(KUBECONFIG.format(host=HOST, port=line.port))
        processes = AttachedProcesses(directory, port, line, server, DrillProcess((), directory / "none.log"))
        processes.attached = processes._attachment()
        try:
            yield processes
        finally:
            processes.attached.kill()
            server.kill()
