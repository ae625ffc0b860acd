"""The cost of an idle process: `volsched up` on a store at rest, beside one that only sleeps.

The baseline is a Python process that wakes up twenty times a second and does nothing: the cheapest way to poll.
"""

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

SETTLE_SECONDS = 5.0
"""From the first answer to the start of the measurement: the caches are filled and the lease is taken by then.
With many volumes it takes longer, as a controller that begins to lead syncs all of them once."""
POLLER = "import time\nprint('serving', flush=True)\nwhile True: time.sleep(0.05)"
READY = "serving"
USER_TICKS, SYSTEM_TICKS = 11, 12
"""Places in /proc/PID/stat, counted from behind the process's name."""


class IdleBenchError(Exception):
    """Nothing could be measured; the message says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IdleRow:
    engine: str
    volumes: int
    """Volumes at rest in the store."""
    seconds: float
    percent_of_core: float
    baseline_percent_of_core: float
    """Load of a process that polls twenty times a second and does nothing."""

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def bench_idle(
    url: str, engine: str, *, seconds: float, volumes: int = 0, settle: float = SETTLE_SECONDS
) -> IdleRow:
    """`url` is that of a migrated store with so many volumes and nothing to do."""
    if not Path("/proc/self/stat").exists():
        raise IdleBenchError("the processor time of another process is read from /proc, which is not there")
    served = [sys.executable, "-m", "volsched", "up", "--db", url, "--port", "0"]
    with _started(served) as up, _started([sys.executable, "-u", "-c", POLLER]) as poller:
        time.sleep(settle)
        before, began = (cpu_seconds(up), cpu_seconds(poller)), time.monotonic()
        time.sleep(seconds)
        took = time.monotonic() - began
        used = cpu_seconds(up) - before[0], cpu_seconds(poller) - before[1]
    return IdleRow(
        engine=engine,
        volumes=volumes,
        seconds=took,
        percent_of_core=used[0] / took * 100,
        baseline_percent_of_core=used[1] / took * 100,
    )


@contextmanager
def _started(command: Sequence[str]) -> Iterator[int]:
    """The id of a process that has reported that it is ready."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        try:
            assert process.stdout is not None
            lines = []
            for line in process.stdout:
                lines.append(line)
                if READY in line:
                    break
            else:
                raise IdleBenchError(f"{' '.join(command[1:4])} ended: {''.join(lines).strip()}")
            yield process.pid
        finally:
            process.terminate()


def cpu_seconds(pid: int) -> float:
    """Processor time of another process until now."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[USER_TICKS]) + int(fields[SYSTEM_TICKS])) / os.sysconf("SC_CLK_TCK")
