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
    """`directory` is below a `passable_path`. `controller`: words that its command gets besides."""
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
