"""Text files that a command reads line by line or writes as a whole; '-' is standard input or output."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from io import TextIOWrapper
from pathlib import Path
from typing import IO

from volsched.cli.console import Exit, fail

ERRORS = "backslashreplace"
"""What is not UTF-8 is shown as it is, and whoever parses the line says which line it is."""


@contextmanager
def lines_of(name: str) -> Iterator[Iterator[str]]:
    try:
        if name == "-":
            yield iter(TextIOWrapper(sys.stdin.buffer, encoding="utf-8", errors=ERRORS))
        else:
            with open(name, encoding="utf-8", errors=ERRORS) as lines:
                yield iter(lines)
    except OSError as error:
        fail(Exit.USAGE, f"{name} cannot be read: {error.strerror}; check the path and its permissions")


@contextmanager
def written(name: str) -> Iterator[IO[str]]:
    """A file that is complete or not there at all: written aside, then renamed."""
    if name == "-":
        yield sys.stdout
        return
    path, aside = Path(name), Path(f"{name}.part")
    try:
        with aside.open("w", encoding="utf-8", newline="") as out:
            yield out
        aside.replace(path)
    except OSError as error:
        fail(Exit.USAGE, f"{name} cannot be written: {error.strerror}; check the directory and its permissions")
    finally:
        aside.unlink(missing_ok=True)
