"""Text files that a command reads line by line or writes as a whole; '-' is standard input or output."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from io import TextIOWrapper
from pathlib import Path
from typing import IO

from volsched.cli.console import Exit, fail
from volsched.log.durable_files import ERRORS, PRIVATE, lines_of_file


def lines_of(name: str) -> Iterator[str]:
    """The lines of a file, compressed or not; one that cannot be read is told before anything else is done."""
    if name == "-":
        return iter(TextIOWrapper(sys.stdin.buffer, encoding="utf-8", errors=ERRORS))
    try:
        Path(name).open("rb").close()
    except OSError as error:
        fail(Exit.USAGE, f"{name} cannot be read: {error.strerror}; check the path and its permissions")
    return lines_of_file(Path(name))


def _private(name: str, flags: int) -> int:
    return os.open(name, flags, PRIVATE)


@contextmanager
def written(name: str) -> Iterator[IO[str]]:
    """A file that is complete or not there at all: written aside, then renamed."""
    if name == "-":
        yield sys.stdout
        return
    path, aside = Path(name), Path(f"{name}.part")
    try:
        # A log says who did what, and a store is measured by its anchor: their owner's, until he says else.
        aside.unlink(missing_ok=True)
        with open(aside, "x", encoding="utf-8", newline="", opener=_private) as out:
            yield out
        aside.replace(path)
    except OSError as error:
        fail(Exit.USAGE, f"{name} cannot be written: {error.strerror}; check the directory and its permissions")
    finally:
        aside.unlink(missing_ok=True)
