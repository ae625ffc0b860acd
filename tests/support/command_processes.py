"""Commands as processes that are started, read and ended."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

ROOT = Path(__file__).parents[2]


@contextmanager
def started(*words: str) -> Iterator[subprocess.Popen[str]]:
    """The command in a process of its own, which is gone afterwards."""
    command = [sys.executable, "-m", "volsched", *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT) as process:
        try:
            yield process
        finally:
            process.kill()


def line(stream: IO[str] | None) -> str:
    assert stream is not None
    return stream.readline().rstrip("\n")
