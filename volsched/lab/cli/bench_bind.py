"""`volsched bench bind`: in one process, in several, with Celery workers, on whole stacks, on an API server."""

import tempfile
import time
from collections.abc import Iterator
from enum import StrEnum
from functools import partial
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from volsched.cli.console import Exit, fail
from volsched.lab.bench.bind import COUNTED, OVER_PODS, BindLoad, BindRow, bench_bind, workers
from volsched.lab.bench.decide import CLAIM_COUNTS
from volsched.lab.bench.figure_history import with_exponents
from volsched.lab.bench.processes import bench_bind_of_processes
from volsched.lab.cli.bench_rows import BenchOutput, OutputOption, Server, print_rows, servers
from volsched.log.database import Database
from volsched.log.migrations import scratch_store
from volsched.runtime.clock import system_clock
from volsched.runtime.extras import missing
from volsched.runtime.system import Bell

if TYPE_CHECKING:
    from volsched.lab.bench.foreign_bind import ForeignBindRow

BIND_EXAMPLES = """
Examples:

volsched bench bind

volsched bench bind --nodes 500 --volumes 5000 --postgres postgresql://postgres@localhost/postgres

volsched bench bind --nodes 100 --volumes 8000 --pods 100 --pods 1000

volsched bench bind --processes 4

volsched bench bind --stack --workers 1 --workers 4

volsched bench bind --cluster strict
"""


class MeasuredApi(StrEnum):
    strict = "strict"


def bind(
    nodes: Annotated[int, typer.Option(help="Nodes of the cluster.", min=1)] = 10,
    volumes: Annotated[int, typer.Option(help="Local volumes, spread over the nodes.", min=1)] = 600,
    pods: Annotated[
        list[int] | None, typer.Option(help="Pods that are created together; may be repeated. 100.", min=1)
    ] = None,
    singles: Annotated[int, typer.Option(help="Pods that are created one by one.", min=1)] = 30,
    processes: Annotated[
        int | None,
        typer.Option(min=2, help="Measure with so many processes on one SQLite file too, beside one alone."),
    ] = None,
    postgres: Server = None,
    redis: Annotated[
        str | None, typer.Option("--redis", metavar="URL", help="Measure with Celery workers too, on PostgreSQL.")
    ] = None,
    stack: Annotated[
        bool, typer.Option("--stack", help="Measure on a whole stack of processes too, created for this run.")
    ] = False,
    workers_of_stack: Annotated[
        list[int] | None,
        typer.Option("--workers", min=1, help="With --stack: number of workers; may be repeated. 1, 2 and 4."),
    ] = None,
    on_cluster: Annotated[
        MeasuredApi | None,
        typer.Option("--cluster", help="Measure own mode on a strict API server over HTTP, 10 ms a call."),
    ] = None,
    output: OutputOption = BenchOutput.table,
) -> None:
    """From a pod's creation to its node, durable: in bulk and one by one, with 1 and with 3 claims.

    With several numbers of pods, also how the time grows; on SQLite, also the bytes that a bound pod leaves.
    """
    bursts = sorted(pods or [100])
    most = bursts[-1]
    needed = (most + singles + COUNTED) * max(CLAIM_COUNTS)
    if volumes < needed:
        fail(
            Exit.USAGE,
            f"{most}, {singles} and {COUNTED} pods with up to {max(CLAIM_COUNTS)} claims need --volumes {needed}",
        )
    if redis is not None and postgres is None:
        fail(Exit.USAGE, "workers need a server that several processes can use; give --postgres URL as well")
    if on_cluster is not None:
        print_rows([row for burst in bursts for row in _on_cluster(nodes, volumes, burst, singles)], output)
        return
    rows: list[BindRow] = []
    for server in servers(postgres):
        for burst, claims in product(bursts, CLAIM_COUNTS):
            load = BindLoad(nodes=nodes, volumes=volumes, claims=claims, pods=burst, singles=singles)
            # Workers take the time from the machine's clock, so this process must too.
            measure = partial(bench_bind, load=load, clock=time.time)
            with scratch_store(server) as database:
                rows.append(measure(database))
            if processes is not None and server is None:
                with scratch_store() as database:
                    rows.append(bench_bind_of_processes(database, processes, load, clock=time.time))
            if redis is not None and server is not None:
                with scratch_store(server) as database, workers(database, redis):
                    rows.append(measure(database, bell=_bell(redis, database)))
            if stack and server is None:
                rows += _on_stacks(workers_of_stack or [1, 2, 4], load)
    print_rows(with_exponents(rows, OVER_PODS), output)


def _on_cluster(nodes: int, volumes: int, pods: int, singles: int) -> "Iterator[ForeignBindRow]":
    try:
        from volsched.lab.bench.foreign_bind import ForeignBenchError, bench_foreign_bind
    except ModuleNotFoundError as error:
        fail(Exit.USAGE, missing(error.name, "cluster,server"))
    for claims in CLAIM_COUNTS:
        load = BindLoad(nodes=nodes, volumes=volumes, claims=claims, pods=pods, singles=singles)
        try:
            yield bench_foreign_bind(load)
        except ForeignBenchError as error:
            fail(Exit.FAILURE, str(error))


def _on_stacks(counts: list[int], load: BindLoad) -> Iterator[BindRow]:
    """A stack of its own for every row: an empty store, and as many workers as the row says."""
    try:
        from volsched.lab.stack.handle import StackError
        from volsched.lab.stack.load import bench_bind_on_stack, scratch_stack
        from volsched.lab.stack.programs import WheelMissingError
    except ModuleNotFoundError as error:
        fail(Exit.USAGE, missing(error.name, "local-stack"))
    for count in counts:
        with tempfile.TemporaryDirectory(prefix="volsched-") as directory:
            Path(directory).chmod(0o711)
            try:
                with scratch_stack(Path(directory) / "stack", workers=count) as running:
                    yield bench_bind_on_stack(running, load, workers=count, clock=time.time)
            except WheelMissingError as error:
                fail(Exit.USAGE, str(error))
            except StackError as error:
                fail(Exit.FAILURE, f"the stack did not start: {error}")


def _bell(redis: str, database: Database) -> Bell:
    try:
        from volsched.binding.wakeup import RedisBell
    except ImportError:
        fail(Exit.FAILURE, missing("Celery", "stack"))
    return RedisBell(redis, database, system_clock)
