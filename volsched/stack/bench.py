"""From a pod's creation to its node on a whole stack: the processes of an operator, on this machine.

Pods are created in the store straight away, as in the embedded measurement, so that both say what deciding and
binding take; what the API adds is measured by `bench http`. A pod counts as bound when its binding is committed.
"""

import itertools
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy import func, select

from volsched.insight.bench_bind import APPEND_BATCHES, APPEND_SIZE, BindRow
from volsched.insight.bench_store import bench_append
from volsched.insight.bench_world import Clock, cluster, create, pods_with_claims
from volsched.stack.handle import Stack
from volsched.stack.local import free_port, prepare
from volsched.store import tables
from volsched.store.database import Database, open_database
from volsched.store.log import read_head

POLL_SECONDS = 0.002
PATIENCE_SECONDS = 300.0


@contextmanager
def scratch_stack(directory: Path, *, workers: int) -> Iterator[Stack]:
    """A stack that is there as long as it is used, with so many workers."""
    prepare(directory, api_port=free_port(), scale={"worker": workers})
    stack = Stack(directory)
    stack.launch()
    try:
        stack.wait_ready()
        yield stack
    finally:
        stack.down()


def bench_bind_on_stack(
    stack: Stack, *, workers: int, nodes: int, volumes: int, claims: int, pods: int, singles: int, clock: Clock
) -> BindRow:
    """On a stack with an empty store; workers are told for the row only."""
    database = open_database(stack.database_url)
    try:
        base = bench_append(database, batches=APPEND_BATCHES, size=APPEND_SIZE, clock=clock).per_second
        ids = (f"id-{number}" for number in itertools.count(1))
        create(database, cluster(nodes, volumes), ids, clock)
        first, started = _position(database), clock()
        create(database, pods_with_claims("bulk", pods, claims), ids, clock)
        _until_bound(database, pods)
        seconds, per_pod = clock() - started, (_position(database) - first) / pods
        times = []
        for number in range(singles):
            started = clock()
            create(database, pods_with_claims(f"single-{number}", 1, claims), ids, clock)
            _until_bound(database, pods + number + 1)
            times.append((clock() - started) * 1_000)
    finally:
        database.close()
    times.sort()
    return BindRow(
        engine="postgresql",
        workers=f"stack, {workers} worker{'s' if workers > 1 else ''}",
        nodes=nodes,
        volumes=volumes,
        claims=claims,
        pods=pods,
        pods_per_second=pods / seconds,
        single_ms_p50=times[len(times) // 2],
        single_ms_p99=times[-1 - len(times) // 100],
        events_per_pod=per_pod,
        baseline_events_per_second=base,
    )


def _until_bound(database: Database, pods: int) -> None:
    end = time.monotonic() + PATIENCE_SECONDS
    while (done := _committed(database)) < pods:
        if time.monotonic() > end:
            raise RuntimeError(
                f"{done} of {pods} pods were bound; a measurement of anything else is worth nothing"
            )
        time.sleep(POLL_SECONDS)


def _committed(database: Database) -> int:
    bindings = tables.bindings
    asked = select(func.count()).select_from(bindings).where(bindings.c.state == "committed")
    with database.read() as connection:
        return int(connection.execute(asked).scalar() or 0)


def _position(database: Database) -> int:
    with database.read() as connection:
        return read_head(connection).position
