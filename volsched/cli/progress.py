"""Progress of long work: how much is done, of how much, and how long it will take, on stderr.

A bar on a terminal; elsewhere, with -v, a line every two seconds, which a log or a pipe can keep.
"""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain
from typing import Protocol

from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn, TimeRemainingColumn
from rich.text import Text

from volsched.cli.console import stderr
from volsched.cli.log_options import is_verbose

EVERY_SECONDS = 2.0


class ProgressUpdate(Protocol):
    def __call__(self, done: int, of: int | None = None, /) -> None: ...


def is_shown() -> bool:
    """Whether progress is shown at all."""
    return stderr.is_terminal or is_verbose()


@contextmanager
def progress_bar(label: str, total: int | None) -> Iterator[ProgressUpdate]:
    """Yields a function that takes how much is done. `total` None: unknown until the function is given it, too."""
    if stderr.is_terminal:
        columns = (TextColumn("{task.description}"), BarColumn(bar_width=20), _Counts(), TimeRemainingColumn())
        with Progress(*columns, console=stderr, transient=True) as progress:
            task = progress.add_task(label, total=total)
            yield lambda done, of=None: progress.update(task, completed=done, total=of or total)
        return
    lines = _Lines(label, total)
    yield lines.update if is_verbose() else lambda _, __=None: None
    lines.end()


def lines_and_total(lines: Iterator[str], name: str) -> tuple[Iterator[str], int | None]:
    """The lines, and the number under this name in the first of them; None if there is none."""
    first = next(lines, None)
    if first is None:
        return iter(()), None
    try:
        number = json.loads(first)[name]
    except (ValueError, KeyError, TypeError):
        number = None
    return chain([first], lines), number if isinstance(number, int) else None


class _Counts(ProgressColumn):
    def render(self, task: Task) -> Text:
        return Text(_counts(int(task.completed), None if task.total is None else int(task.total)))


class _Lines:
    def __init__(self, label: str, total: int | None) -> None:
        self._label, self._total = label, total
        self._began = self._printed_at = time.monotonic()
        self._first: int | None = None
        self._printed = 0

    def update(self, done: int, of: int | None = None) -> None:
        now = time.monotonic()
        self._total = of or self._total
        if self._first is None:
            # Positions need not begin at 0: the beginning of the log may be archived.
            self._first = done
        if now - self._printed_at >= EVERY_SECONDS:
            self._printed_at, self._printed = now, self._printed + 1
            stderr.print(f"{self._label}: {_counts(done, self._total)}{self._remaining(done, now)}")

    def end(self) -> None:
        if self._printed:
            stderr.print(f"{self._label}: done after {time.monotonic() - self._began:.1f} s")

    def _remaining(self, done: int, now: float) -> str:
        covered = done - (self._first or 0)
        if self._total is None or covered <= 0:
            return ""
        return f", about {(now - self._began) * max(self._total - done, 0) / covered:.0f} s left"


def _counts(done: int, total: int | None) -> str:
    return f"{done:,}" if total is None else f"{done:,} of {total:,}"
