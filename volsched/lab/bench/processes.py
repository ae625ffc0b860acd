"""From a pod's creation to its node where several processes do the work, watched from beside them.

Pods are created in the store straight away, as with everything in one process, so that both say what deciding and
binding take. A pod counts as bound when its binding is committed.

As a program it is one such process: the whole system, of whose pods it schedules its share.
"""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from uuid import uuid4

from sqlalchemy import func, select

from volsched.lab.bench.bind import POLL_SECONDS, BindRow, append_rate, measure_binding, new_ids, too_few
from volsched.lab.bench.world import Clock
from volsched.log import tables
from volsched.log.database import Database, open_database
from volsched.log.garbage_pause import collect_seldom
from volsched.log.reads.tail import read_head
from volsched.log.scratch_store import scratch_store
from volsched.runtime.clock import system_clock
from volsched.runtime.patience import Patience
from volsched.runtime.runner import looping, waking
from volsched.runtime.system import embedded
from volsched.scheduling.queue.shares import Share, read_share

PATIENCE_SECONDS = 300.0
"""In which at least one more pod must have been bound."""
READY = "ready"
Process = subprocess.Popen[str]
Check = Callable[[], None]
"""Raises when those who do the work are no longer there."""


def bench_bind_of_processes(
    database: Database, count: int, *, nodes: int, volumes: int, claims: int, pods: int, singles: int, clock: Clock
) -> BindRow:
    """So many processes on an empty store; each is the whole system, and they share the scheduling."""
    # Not on the same store: what is measured there is no history that others could read.
    with scratch_store() as aside:
        base = append_rate(aside, clock)
    url = database.engine.url.render_as_string(hide_password=False)
    with _processes(url, count) as started:

        def check() -> None:
            died = [it for it in started if it.poll() is not None]
            if died:
                raise RuntimeError(f"a process ended with {died[0].returncode} while it was measured")

        row = bench_bind_beside(
            database,
            workers=f"{count} processes",
            nodes=nodes,
            volumes=volumes,
            claims=claims,
            pods=pods,
            singles=singles,
            base=base,
            clock=clock,
            check=check,
        )
        told = [it.communicate("\n")[0] for it in started]
    row.processes = count
    row.longest_wait_ms = max(map(float, told)) * 1_000
    return row


def bench_bind_beside(
    database: Database,
    *,
    workers: str,
    nodes: int,
    volumes: int,
    claims: int,
    pods: int,
    singles: int,
    base: float,
    clock: Clock,
    check: Check = lambda: None,
) -> BindRow:
    """What processes that run already make of pods that are created here; `base` is what the log alone takes."""
    return measure_binding(
        database,
        workers=workers,
        nodes=nodes,
        volumes=volumes,
        claims=claims,
        pods=pods,
        singles=singles,
        base=base,
        clock=clock,
        ids=new_ids(),
        bind=lambda wanted: _until_bound(database, wanted, check),
        position=lambda: _position(database),
    )


def _until_bound(database: Database, pods: int, check: Check) -> None:
    patience = Patience(PATIENCE_SECONDS)
    while (bound := _committed(database)) < pods:
        if patience.is_over(bound):
            raise too_few(bound, pods)
        check()
        time.sleep(POLL_SECONDS)


def _committed(database: Database) -> int:
    bindings = tables.bindings
    asked = select(func.count()).select_from(bindings).where(bindings.c.state == "committed")
    with database.read() as connection:
        return int(connection.execute(asked).scalar() or 0)


def _position(database: Database) -> int:
    with database.read() as connection:
        return read_head(connection).position


@contextmanager
def _processes(url: str, count: int) -> Iterator[Sequence[Process]]:
    command = [sys.executable, "-m", __name__, url]
    started = [
        subprocess.Popen([*command, f"{number}/{count}"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for number in range(1, count + 1)
    ]
    try:
        for it in started:
            if it.stdout is None or it.stdout.readline().strip() != READY:
                raise RuntimeError("a process that was to be measured did not start")
        yield started
    finally:
        for it in started:
            it.kill()
            it.communicate()


def _main(url: str, share: Share) -> None:
    """Work until told something; then say how long a turn to write was waited for at most, in seconds."""
    database = open_database(url)
    system = embedded(
        database, owner=f"bench-{share.number}", clock=system_clock, new_id=lambda: uuid4().hex, share=share
    )

    def failed(_error: Exception) -> None:
        # It was logged. Whoever measures sees that we are gone.
        os._exit(1)

    collect_seldom()
    with (
        looping(system.step, clock=system_clock, name="volsched-system", failed=failed) as loop,
        waking(database, loop),
    ):
        print(READY, flush=True)
        sys.stdin.readline()
    system.close()
    database.close()
    print(database.waits.longest, flush=True)


if __name__ == "__main__":
    _main(sys.argv[1], read_share(sys.argv[2]))
