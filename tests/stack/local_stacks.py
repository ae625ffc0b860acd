"""A stack of this machine, for one test: not durable, and in a directory that PostgreSQL's user can get at."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from volsched.lab.stack.handle import Stack
from volsched.lab.stack.local import free_port, prepare
from volsched.lab.stack.services import write_definition


@contextmanager
def local_stack(directory: Path, *, controller: Sequence[str] = (), **scale: int) -> Iterator[Stack]:
    """`controller`: words that its command gets besides."""
    passable(directory.parent)
    definition = prepare(directory, api_port=free_port(), scale=scale, durable=False)
    changed = tuple(
        replace(it, command=(*it.command, *controller)) if it.name == "controller" else it
        for it in definition.services
    )
    write_definition(directory / "stack.json", replace(definition, services=changed))
    stack = Stack(directory)
    stack.launch()
    try:
        stack.wait_ready()
        yield stack
    finally:
        stack.down()


def passable(directory: Path) -> None:
    """Where we are root, PostgreSQL runs as somebody else, who must be able to pass through to its data."""
    for it in (directory, *directory.parents):
        if it.stat().st_mode & 0o001 == 0:
            it.chmod(it.stat().st_mode | 0o011)
