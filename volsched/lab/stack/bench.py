"""From a pod's creation to its node on a whole stack: the processes of an operator, on this machine.

What the API adds is measured by `bench http`.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from volsched.lab.bench.bind import BindRow, append_rate
from volsched.lab.bench.processes import bench_bind_beside
from volsched.lab.bench.world import Clock
from volsched.lab.stack.handle import READY_SECONDS, Stack
from volsched.lab.stack.local import free_port, prepare
from volsched.log.database import open_database


@contextmanager
def scratch_stack(directory: Path, *, workers: int, ready_seconds: float = READY_SECONDS) -> Iterator[Stack]:
    """A stack that is there as long as it is used, with so many workers."""
    prepare(directory, api_port=free_port(), scale={"worker": workers})
    stack = Stack(directory)
    stack.launch()
    try:
        stack.wait_ready(seconds=ready_seconds)
        yield stack
    finally:
        stack.down()


def bench_bind_on_stack(
    stack: Stack, *, workers: int, nodes: int, volumes: int, claims: int, pods: int, singles: int, clock: Clock
) -> BindRow:
    """On a stack with an empty store; workers are told for the row only."""
    database = open_database(stack.database_url)
    try:
        return bench_bind_beside(
            database,
            workers=f"stack, {workers} worker{'s' if workers > 1 else ''}",
            nodes=nodes,
            volumes=volumes,
            claims=claims,
            pods=pods,
            singles=singles,
            base=append_rate(database, clock),
            clock=clock,
        )
    finally:
        database.close()
