"""From a pod's creation to its node with several processes, measured from outside.

Pods are created directly in the store, as in a single process, so that both measure deciding and binding. A pod
counts as bound when its binding is committed.

As a program it is one such process: the whole system, which schedules its share of the pods.
"""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from uuid import uuid4

from sqlalchemy import func, select

from volsched.lab.bench.bind import BindLoad, BindRow, Clock, append_rate, measure_binding, new_ids, too_few
from volsched.log import tables
from volsched.log.database import Database, open_database
from volsched.log.garbage_pause import collect_seldom
from volsched.log.migrations import scratch_store
from volsched.log.reads.tail import read_head
from volsched.runtime.clock import Patience, system_clock
from volsched.runtime.runner import looping, waking
from volsched.runtime.settings import read_settings
from volsched.runtime.system import embedded
from volsched.scheduling.queue.entry import Share, read_share

PATIENCE_SECONDS = 300.0
"""Seconds in which at least one more pod must be bound."""
POLL_SECONDS = 0.002
"""Finer than SQLite's notification of commits: single pods take some twenty milliseconds."""
READY = "ready"
Process = subprocess.Popen[str]
Check = Callable[[], None]
"""Raises when the working processes are gone."""


def bench_bind_of_processes(database: Database, count: int, load: BindLoad, *, clock: Clock) -> BindRow:
    """Measure so many processes on an empty store; each is the whole system, and they share the scheduling."""
    # Not on the same store: this measurement must not leave a history there.
    with scratch_store() as aside:
        base = append_rate(aside, clock)
    url = database.engine.url.render_as_string(hide_password=False)
    with _processes(url, count) as started:

        def check() -> None:
            died = [it for it in started if it.poll() is not None]
            if died:
                raise RuntimeError(f"a process ended with {died[0].returncode} while it was measured")

        row = bench_bind_beside(database, load, workers=f"{count} processes", base=base, clock=clock, check=check)
        waits = [it.communicate("\n")[0] for it in started]
    row.processes = count
    row.longest_wait_ms = max(map(float, waits)) * 1_000
    return row


def bench_bind_beside(
    database: Database,
    load: BindLoad,
    *,
    workers: str,
    base: float,
    clock: Clock,
    check: Check = lambda: None,
    cpu: Clock | None = None,
) -> BindRow:
    """Measures how running processes bind pods created here; `base` is the rate of the log alone."""
    return measure_binding(
        database,
        load,
        workers=workers,
        base=base,
        clock=clock,
        ids=new_ids(),
        bind=lambda wanted: _until_bound(database, wanted, check),
        position=lambda: _position(database),
        cpu=cpu,
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
    statement = select(func.count()).select_from(bindings).where(bindings.c.state == "committed")
    with database.read() as connection:
        return int(connection.execute(statement).scalar() or 0)


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
        for process in started:
            if process.stdout is None or process.stdout.readline().strip() != READY:
                raise RuntimeError("a process that was to be measured did not start")
        yield started
    finally:
        for process in started:
            process.kill()
            process.communicate()


def _main(url: str, share: Share) -> None:
    """Work until a line arrives on stdin; then print the longest wait for a write turn, in seconds."""
    database = open_database(url)
    system = embedded(
        database,
        owner=f"bench-{share.number}",
        clock=system_clock,
        new_id=lambda: uuid4().hex,
        share=share,
        stepwise=read_settings().stepwise_binding,
    )

    def failed(_error: Exception) -> None:
        # The error was logged. The measuring process sees that we are gone.
        os._exit(1)

    collect_seldom()
    with (
        looping(
            system.step, clock=system_clock, name="volsched-system", failed=failed, rest=system.rests_until
        ) as loop,
        waking(database, loop.wake),
    ):
        print(READY, flush=True)
        sys.stdin.readline()
    system.close()
    database.close()
    print(database.waits.longest, flush=True)


if __name__ == "__main__":
    _main(sys.argv[1], read_share(sys.argv[2]))
