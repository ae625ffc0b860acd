"""The supervisor's published and requested state, the identity of processes, and the services' logs."""

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

import psutil
from pydantic import TypeAdapter, ValidationError

from volsched.lab.stack.services import replace_file
from volsched.runtime.clock import rfc3339

# The identity of a process. A pid alone proves nothing: it is reused after its process has ended.
#
# A process is ours if pid *and* start time are those that we recorded, or if it carries our mark: the stack's
# directory in its environment (PostgreSQL overwrites its own, and is identified by its data directory). A
# process that is not provably ours never gets a signal.

MARK = "VOLSCHED_STACK_DIRECTORY"
SAME_START = 0.05
"""Seconds by which a start time may differ from itself: it is counted in hundredths from a boot time."""


@dataclass(frozen=True, slots=True)
class Identity:
    pid: int
    started: float
    """Seconds since 1970."""


def identify(pid: int) -> Identity | None:
    """None if it has ended already."""
    try:
        return Identity(pid, psutil.Process(pid).create_time())
    except psutil.NoSuchProcess:
        return None


def process_of(identity: Identity) -> psutil.Process | None:
    """The process itself, alive and the recorded one; None if that cannot be proven."""
    try:
        process = psutil.Process(identity.pid)
        same = abs(process.create_time() - identity.started) < SAME_START
        return process if same and process.status() != psutil.STATUS_ZOMBIE else None
    except (psutil.NoSuchProcess, psutil.AccessDenied):
        return None


def send(identity: Identity, number: signal.Signals, *, group: bool = False) -> bool:
    """Send a signal; False if the process is gone. With `group`, to its whole session at once."""
    if process_of(identity) is None:
        return False
    with suppress(ProcessLookupError):
        if group:
            os.killpg(identity.pid, number)
        else:
            os.kill(identity.pid, number)
        return True
    return False


def marked(directory: Path) -> Iterator[Identity]:
    """Leaders of sessions that carry the mark of the stack in this directory, whatever their parent is by now."""
    wanted, data = str(directory), str(directory / "postgres")
    for process in psutil.process_iter():
        with suppress(psutil.NoSuchProcess, psutil.AccessDenied, ProcessLookupError, PermissionError):
            if os.getsid(process.pid) != process.pid or process.status() == psutil.STATUS_ZOMBIE:
                continue
            serves = process.name() == "postgres" and data in process.cmdline()
            if serves or process.environ().get(MARK) == wanted:
                yield Identity(process.pid, process.create_time())


def resident_bytes(identity: Identity) -> int | None:
    """Memory of the process and its descendants; shared pages count in each."""
    process = process_of(identity)
    if process is None:
        return None
    total = 0
    with suppress(psutil.NoSuchProcess, psutil.AccessDenied):
        total = process.memory_info().rss
        for child in process.children(recursive=True):
            with suppress(psutil.NoSuchProcess, psutil.AccessDenied):
                total += child.memory_info().rss
    return total


def processor_seconds(identity: Identity) -> float:
    """Processor time of the process and its descendants, also those they have waited for; 0 when it is gone."""
    process = process_of(identity)
    if process is None:
        return 0
    total = 0.0
    with suppress(psutil.NoSuchProcess, psutil.AccessDenied):
        for each in (process, *process.children(recursive=True)):
            with suppress(psutil.NoSuchProcess, psutil.AccessDenied):
                total += sum(each.cpu_times()[:4])
    return total


# Files and not a socket: they can be read after a crash, by any process.


class Condition(StrEnum):
    WAITING = "waiting"
    """It waits for others to be healthy first."""
    STARTING = "starting"
    """It runs, and has not been healthy yet."""
    HEALTHY = "healthy"
    UNHEALTHY = "unhealthy"
    BACKING_OFF = "backing off"
    """It has ended, and is restarted after a while."""
    STOPPING = "stopping"
    STOPPED = "stopped"
    DONE = "done"
    """It had one task, and completed it."""


SETTLED = (Condition.HEALTHY, Condition.DONE)
"""Others need not wait for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceState:
    """One instance of a service, as the supervisor sees it."""

    name: str
    service: str
    condition: Condition
    process: Identity | None = None
    restarts: int = 0
    exit_code: int | None = None
    """Exit code of its last ended process; negative: the signal that ended it."""
    health: str = ""
    """The last failure message of the health check."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    supervisor: Identity
    instances: tuple[ServiceState, ...] = ()

    def of(self, service: str) -> list[ServiceState]:
        return [it for it in self.instances if it.service == service]

    @property
    def settled(self) -> bool:
        """Whether everything that should run is healthy."""
        left = [it for it in self.instances if it.condition is not Condition.STOPPED]
        return bool(left) and all(it.condition in SETTLED for it in left)


@dataclass(frozen=True, slots=True)
class WantedState:
    """The number of instances of a service, if different from its definition."""

    scale: dict[str, int] = field(default_factory=dict)


_PUBLISHED, _WANTED = TypeAdapter(Published), TypeAdapter(WantedState)


def publish(directory: Path, published: Published) -> None:
    replace_file(directory / "state.json", _PUBLISHED.dump_json(published, indent=2))


def read_published(directory: Path) -> Published | None:
    """None if there never was a supervisor, or if its file was lost in a power failure."""
    try:
        return _PUBLISHED.validate_json((directory / "state.json").read_bytes())
    except (FileNotFoundError, ValidationError):
        return None


def want(directory: Path, wanted: WantedState) -> None:
    replace_file(directory / "wanted.json", _WANTED.dump_json(wanted, indent=2))


def read_wanted(directory: Path) -> WantedState:
    try:
        return _WANTED.validate_json((directory / "wanted.json").read_bytes())
    except FileNotFoundError:
        return WantedState()


# Logs of the services: each writes to its own file, and all lines are merged as they appear.
#
# A file and not a pipe: when a supervisor dies, its services must survive their next output.

MERGED = "merged.log"
MOST_BYTES = 16 * 1024 * 1024
"""At that size a service's file is truncated, and the merged one rotated: two of those are kept."""
LONGEST_LINE = 64 * 1024
LOOK_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class Line:
    at: str
    instance: str
    text: str


@dataclass(slots=True)
class Merger:
    """Follows the files of a directory; a `step(now)` appends new complete lines to the merged file."""

    directory: Path
    on_line: Callable[[Line], None] = lambda _: None
    _read: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        # The previous supervisor merged what existed before.
        self._read = {it.name: it.stat().st_size for it in self._files()}

    def step(self, now: int) -> int:
        at, lines = rfc3339(now), list[Line]()
        for file in self._files():
            lines += [Line(at, file.stem, text) for text in self._new_lines(file)]
        if lines:
            merged = self.directory / MERGED
            if merged.exists() and merged.stat().st_size > MOST_BYTES:
                merged.replace(merged.with_suffix(".1"))
            with merged.open("a", encoding="utf-8") as out:
                out.writelines(f"{it.at}\t{it.instance}\t{it.text}\n" for it in lines)
        for line in lines:
            self.on_line(line)
        return len(lines)

    def _files(self) -> list[Path]:
        # Lines found in one poll are ordered by when their files were last written.
        found = (it for it in self.directory.glob("*.log") if it.name != MERGED)
        return sorted(found, key=lambda it: (it.stat().st_mtime_ns, it.name))

    def _new_lines(self, file: Path) -> list[str]:
        start, size = self._read.get(file.name, 0), file.stat().st_size
        if size <= start:
            return []
        with file.open("rb") as opened:
            opened.seek(start)
            chunk = opened.read(MOST_BYTES)
        end = chunk.rfind(b"\n") + 1
        if end == 0 and len(chunk) < LONGEST_LINE:
            return []
        whole = chunk[: end or len(chunk)]
        self._read[file.name] = start + len(whole)
        if self._read[file.name] == size > MOST_BYTES:
            # Its writer appends, so it continues at the beginning.
            os.truncate(file, 0)
            self._read[file.name] = 0
        return whole.decode(errors="replace").splitlines()


def read_lines(directory: Path) -> Iterator[Line]:
    """All merged lines that are still kept, the oldest first."""
    merged = directory / MERGED
    for file in (merged.with_suffix(".1"), merged):
        if file.exists():
            with file.open(encoding="utf-8", errors="replace") as opened:
                yield from filter(None, map(parse_line, opened))


def parse_line(text: str) -> Line | None:
    """None if it is not complete yet."""
    parts = text.removesuffix("\n").split("\t", 2)
    return Line(*parts) if len(parts) == 3 and text.endswith("\n") else None


def following(directory: Path) -> Iterator[Line]:
    """Lines as they are merged from now on, forever; also after a rotation."""
    merged, unfinished = directory / MERGED, ""
    merged.touch()
    opened = merged.open(encoding="utf-8", errors="replace")
    opened.seek(0, os.SEEK_END)
    try:
        while True:
            unfinished += opened.readline()
            line = parse_line(unfinished)
            if line is not None:
                unfinished = ""
                yield line
            elif merged.exists() and merged.stat().st_ino != os.fstat(opened.fileno()).st_ino:
                opened.close()
                opened, unfinished = merged.open(encoding="utf-8", errors="replace"), ""
            else:
                time.sleep(LOOK_SECONDS)
    finally:
        opened.close()
