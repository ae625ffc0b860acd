"""`volsched bench`: what our own work costs on this machine."""

import json
import os
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextvars import ContextVar
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.progress import Progress, track
from rich.table import Table

from volsched.cli.console import Exit, fail, stderr, stdout
from volsched.lab.bench.audit import AuditRow, bench_audit
from volsched.lab.bench.bind import COUNTED, BindLoad, BindRow, bench_bind, workers
from volsched.lab.bench.decide import CLAIM_COUNTS, ROWS, bench_decide
from volsched.lab.bench.http import BenchMissingError, HttpLoadError, bench_http
from volsched.lab.bench.idle import IdleBenchError, bench_idle
from volsched.lab.bench.log import bench_append, bench_plan, bench_replay, bench_restart, bench_work, fill
from volsched.lab.bench.peers import NOT_INSTALLED, Clocks, PeerRow, bench_peers
from volsched.lab.bench.plot import append_history, svg
from volsched.lab.bench.processes import bench_bind_of_processes
from volsched.lab.bench.reads import bench_reads, fill_volumes, with_exponents
from volsched.lab.bench.stories import fill_stories
from volsched.lab.bench.volume_map import bench_frames, bench_map, fill_map
from volsched.log.database import Database
from volsched.log.migrations import scratch_store
from volsched.runtime.clock import rfc3339, system_clock
from volsched.runtime.extras import missing
from volsched.runtime.system import Bell

if TYPE_CHECKING:
    from volsched.lab.bench.foreign_bind import ForeignBindRow

DECIDE_EXAMPLES = """
Examples:

volsched bench decide

volsched bench decide --nodes 5000 --memory -o json
"""
LOG_EXAMPLES = """
Examples:

volsched bench log

volsched bench log --postgres postgresql://postgres@localhost/postgres -o json
"""
MIRROR_EXAMPLES = """
Examples:

volsched bench mirror --pods 100000 --seconds 60 --burst-seconds 60
"""
HISTORY_EXAMPLES = """
Examples:

volsched bench replay --events 1000000 --objects 50000

volsched bench restart --events 1000000 --objects 50000
"""
MAP_EXAMPLES = """
Examples:

volsched bench map --nodes 500 --volumes 5000

volsched bench map --browser http://127.0.0.1:8700 -o json
"""
AUDIT_EXAMPLES = """
Examples:

volsched bench audit --events 1000000

volsched bench audit --postgres postgresql://postgres@localhost/postgres -o json
"""
BIND_EXAMPLES = """
Examples:

volsched bench bind

volsched bench bind --nodes 500 --volumes 5000 --postgres postgresql://postgres@localhost/postgres

volsched bench bind --processes 4

volsched bench bind --stack --workers 1 --workers 4

volsched bench bind --cluster strict
"""
IDLE_EXAMPLES = """
Examples:

volsched bench idle

volsched bench idle --seconds 60 --postgres postgresql://postgres@localhost/postgres
"""
HTTP_EXAMPLES = """
Examples:

volsched bench http

volsched bench http --watchers 500 --writes-a-second 100 -o json
"""
READS_EXAMPLES = """
Examples:

volsched bench reads --nodes 100 --volumes 25000 --volumes 100000

volsched bench --history figures.jsonl reads -o svg > reads.svg
"""
PEERS_EXAMPLES = """
Examples:

pip install eventsourcing huey dbos procrastinate && volsched bench peers
"""
EVENTS_PER_COMMIT = 100


class MeasuredApi(StrEnum):
    strict = "strict"


class BenchOutput(StrEnum):
    table = "table"
    json = "json"
    svg = "svg"


OutputOption = Annotated[BenchOutput, typer.Option("--output", "-o", help="Form of the answer; svg is a chart.")]


app = typer.Typer(help="Measure what our work costs, against a baseline of the same run.", no_args_is_help=True)
Server = Annotated[
    str | None,
    typer.Option(
        "--postgres",
        metavar="URL",
        help="Measure on this PostgreSQL server too, in a database that is made for it and dropped.",
    ),
]

Events = Annotated[int, typer.Option(help="Length of the history.", min=1)]
Objects = Annotated[int, typer.Option(help="Volumes that the history is about.", min=1)]


_called: ContextVar[tuple[str, Path | None]] = ContextVar("called", default=("", None))
"""The benchmark that runs, and the history file."""


@app.callback()
def _group(
    called: typer.Context,
    history: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", dir_okay=False, help="Append the rows to this file too, a line of JSON for each."
        ),
    ] = None,
) -> None:
    """Measure what our work costs, against a baseline of the same run."""
    _called.set((called.invoked_subcommand or "", history))


@app.command(epilog=DECIDE_EXAMPLES)
def decide(
    nodes: Annotated[
        int, typer.Option(help="Nodes of each cluster; local volumes are ten times as many.", min=1)
    ] = 1000,
    repeat: Annotated[
        int, typer.Option(help="Decisions of each row, alike and each of a new shape.", min=1)
    ] = 200,
    memory: Annotated[
        bool, typer.Option("--memory", help="Measure what the index takes per volume; slow.")
    ] = False,
    output: OutputOption = BenchOutput.table,
) -> None:
    """Decisions with the index, in CPU time, next to an un-indexed walk, measured on a few nodes and scaled."""
    # CPU time of this thread: a decision waits for nothing, and on a shared machine the rest is others' work.
    rows = list(
        track(
            bench_decide(nodes, repeat=repeat, clock=time.thread_time, measure_memory=memory),
            "Measuring",
            total=ROWS,
            console=stderr,
            disable=not stderr.is_terminal,
        )
    )
    _print([row.as_json() for row in rows], output)


@app.command(epilog=LOG_EXAMPLES)
def log(
    batches: Annotated[int, typer.Option(help="Commits of each row; the median counts.", min=1)] = 100,
    postgres: Server = None,
    output: OutputOption = BenchOutput.table,
) -> None:
    """Appending, planning and work items; appends next to the bare driver, with the same durability."""
    rows = []
    for server in _servers(postgres):
        with scratch_store(server) as database:
            rows.append(bench_append(database, batches=batches, size=EVENTS_PER_COMMIT, clock=time.perf_counter))
            rows.append(bench_append(database, batches=batches, size=1, clock=time.perf_counter))
            rows.append(bench_plan(database, batches=batches, clock=time.perf_counter))
            rows.append(bench_work(database, items=batches, clock=time.perf_counter))
    _print([row.as_json() for row in rows], output)


@app.command(epilog=MIRROR_EXAMPLES)
def mirror(
    pods: Annotated[
        int, typer.Option(help="Pods; 15 of 100 have a claim, 20 share a node, half as many volumes.", min=100)
    ] = 10_000,
    rate: Annotated[int, typer.Option(help="Changes a second, sustained.", min=100)] = 1_000,
    burst: Annotated[int, typer.Option(help="Changes a second, in a burst.", min=100)] = 5_000,
    seconds: Annotated[int, typer.Option(help="For how long changes are sustained.", min=1)] = 10,
    burst_seconds: Annotated[int, typer.Option(help="For how long the burst lasts; a long one: 60.", min=1)] = 5,
    lives: Annotated[int, typer.Option(help="Pods that come and go, to see the log grow.", min=100)] = 2_000,
    output: OutputOption = BenchOutput.table,
) -> None:
    """Following a cluster: first list, restart, changes and their lag, the log's growth, next to decoding alone.

    Seconds are of our own processor time; the cluster is another process, whose time is shown separately.
    """
    try:
        from volsched.lab.bench.mirror import BenchStuckError, MirrorLoad, bench_mirror
    except ModuleNotFoundError as error:
        fail(Exit.USAGE, missing(error.name, "cluster"))
    load = MirrorLoad(pods=pods, rate=rate, burst=burst, seconds=seconds, burst_seconds=burst_seconds, lives=lives)
    with scratch_store(None) as database:
        try:
            rows = list(bench_mirror(database, load))
        except BenchStuckError as error:
            fail(Exit.TIMED_OUT, str(error))
        _print([row.as_json() for row in rows], output)


@app.command(epilog=HISTORY_EXAMPLES)
def replay(
    events: Events = 100_000,
    objects: Objects = 5_000,
    postgres: Server = None,
    output: OutputOption = BenchOutput.table,
) -> None:
    """Folding the whole log with its chain checked, next to a bare read of the same rows.

    And asking what an object was at a position, for objects and positions all over the history.
    """
    rows = []
    for server in _servers(postgres):
        with scratch_store(server) as database:
            _fill(database, objects=objects, events=events)
            rows.append(bench_replay(database, clock=time.perf_counter))
    _print([row.as_json() for row in rows], output)


@app.command(epilog=HISTORY_EXAMPLES)
def restart(
    events: Events = 100_000,
    objects: Objects = 5_000,
    bindings: Annotated[int, typer.Option(help="Bindings that are open at the end.", min=0)] = 40,
    postgres: Server = None,
    output: OutputOption = BenchOutput.table,
) -> None:
    """Starting from the views after a long history, next to the same objects with hardly any."""
    rows = []
    for server in _servers(postgres):
        with scratch_store(server) as short, scratch_store(server) as long:
            shortest = objects + objects // 10
            _fill(short, objects=objects, events=shortest, bindings=bindings)
            _fill(long, objects=objects, events=events, bindings=bindings)
            histories = (shortest, events)
            rows.append(bench_restart(short, long, histories=histories, repeat=3, clock=time.perf_counter))
    _print([row.as_json() for row in rows], output)


@app.command(epilog=AUDIT_EXAMPLES)
def audit(
    events: Events = 100_000,
    postgres: Server = None,
    output: OutputOption = BenchOutput.table,
) -> None:
    """Every audit question after a long history, next to reading one event by its position."""
    rows: list[AuditRow] = []
    for server in _servers(postgres):
        with scratch_store(server) as database:
            _written(events, fill_stories(database, events=events))
            rows += bench_audit(database, clock=time.perf_counter)
    _print([row.as_json() for row in rows], output)


@app.command(name="map", epilog=MAP_EXAMPLES)
def volume_map(
    nodes: Annotated[int, typer.Option(min=1, help="Of the cluster.")] = 5_000,
    volumes: Annotated[int, typer.Option(min=1, help="On them.")] = 50_000,
    browser: Annotated[
        str, typer.Option(metavar="URL", help="Also the frames of the page that is served there.")
    ] = "",
    output: OutputOption = BenchOutput.table,
) -> None:
    """The console's map of a large cluster, next to reading its volumes."""
    with scratch_store() as database:
        _written(nodes + volumes, fill_map(database, nodes=nodes, volumes=volumes))
        rows = bench_map(database, clock=time.process_time, now=system_clock())
    rows += bench_frames(browser) if browser else []
    _print([row.as_json() for row in rows], output)


@app.command(epilog=BIND_EXAMPLES)
def bind(
    nodes: Annotated[int, typer.Option(help="Nodes of the cluster.", min=1)] = 10,
    volumes: Annotated[int, typer.Option(help="Local volumes, spread over the nodes.", min=1)] = 600,
    pods: Annotated[int, typer.Option(help="Pods that are created together.", min=1)] = 100,
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
        bool, typer.Option("--stack", help="Measure on a whole stack of processes too, made for it and removed.")
    ] = False,
    workers_of_stack: Annotated[
        list[int] | None,
        typer.Option("--workers", min=1, help="With --stack: so many workers; may be given often. 1, 2 and 4."),
    ] = None,
    on_cluster: Annotated[
        MeasuredApi | None,
        typer.Option("--cluster", help="Measure own mode on a strict API server over HTTP, 10 ms a call."),
    ] = None,
    output: OutputOption = BenchOutput.table,
) -> None:
    """From a pod's creation to its node, durable: in bulk and one by one, with 1 and with 3 claims."""
    needed = (pods + singles + COUNTED) * max(CLAIM_COUNTS)
    if volumes < needed:
        told = (
            f"{pods}, {singles} and {COUNTED} pods with up to {max(CLAIM_COUNTS)} claims need --volumes {needed}"
        )
        fail(Exit.USAGE, told)
    if redis is not None and postgres is None:
        fail(Exit.USAGE, "workers need a server that several processes can use; give --postgres URL as well")
    if on_cluster is not None:
        _print([it.as_json() for it in _on_cluster(nodes, volumes, pods, singles)], output)
        return
    rows = []
    for server in _servers(postgres):
        for claims in CLAIM_COUNTS:
            load = BindLoad(nodes=nodes, volumes=volumes, claims=claims, pods=pods, singles=singles)
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
    _print([row.as_json() for row in rows], output)


@app.command(epilog=READS_EXAMPLES)
def reads(
    nodes: Annotated[int, typer.Option(help="Nodes that the volumes are spread over.", min=1)] = 100,
    volumes: Annotated[
        list[int] | None, typer.Option(min=1, help="Volumes; may be given often. 2,000 and 10,000.")
    ] = None,
    postgres: Server = None,
    output: OutputOption = BenchOutput.table,
) -> None:
    """Starting, explaining, listing and verifying, in processor time, and how it grows with the volumes."""
    rows = []
    for server in _servers(postgres):
        measured = []
        for count in sorted(volumes or [2_000, 10_000]):
            with scratch_store(server) as database:
                _written(count, fill_volumes(database, nodes=nodes, volumes=count))
                measured += bench_reads(database, nodes=nodes, volumes=count, cpu=time.process_time)
        rows += with_exponents(measured)
    _print([row.as_json() for row in rows], output)


@app.command(epilog=PEERS_EXAMPLES)
def peers(
    items: Annotated[int, typer.Option(help="Events, and work items, of each row.", min=3)] = 1_000,
    postgres: Server = None,
    output: OutputOption = BenchOutput.table,
) -> None:
    """The store beside libraries that do a part of its work, one item a commit and a hundred."""
    clocks = Clocks(wall=time.perf_counter, cpu=time.process_time)
    rows: list[PeerRow] = []
    for server in _servers(postgres):
        with scratch_store(server) as database, tempfile.TemporaryDirectory(prefix="volsched-") as folder:
            rows += bench_peers(database, Path(folder), items=items, clocks=clocks)
    missing = dict.fromkeys(row.who for row in rows if row.note == NOT_INSTALLED)
    if missing:
        stderr.print(f"not measured, because not installed: {', '.join(missing)}; pip install {' '.join(missing)}")
    _print([row.as_json() for row in rows], output)


@app.command(epilog=IDLE_EXAMPLES)
def idle(
    seconds: Annotated[float, typer.Option(help="How long to measure.", min=1)] = 20,
    postgres: Server = None,
    output: OutputOption = BenchOutput.table,
) -> None:
    """The processor time of `volsched up` with nothing to do, as a part of one core."""
    rows = []
    for server in _servers(postgres):
        with scratch_store(server) as database:
            url = database.engine.url.render_as_string(hide_password=False)
            try:
                rows.append(bench_idle(url, database.engine.dialect.name, seconds=seconds))
            except IdleBenchError as error:
                fail(Exit.FAILURE, str(error))
    _print([row.as_json() for row in rows], output)


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


@app.command(epilog=HTTP_EXAMPLES)
def http(
    requests: Annotated[int, typer.Option(help="Requests of each row; a tenth of it for lists.", min=1)] = 3_000,
    clients: Annotated[int, typer.Option(help="Connections that ask at the same time.", min=1)] = 16,
    watchers: Annotated[int, typer.Option(help="Watches that are open in the last row.", min=1)] = 200,
    writes: Annotated[int, typer.Option(help="Writes that they watch.", min=1)] = 1_000,
    writes_a_second: Annotated[float, typer.Option(help="How fast those come.", min=1)] = 200,
    output: OutputOption = BenchOutput.table,
) -> None:
    """Requests over HTTP beside a bare FastAPI route, and how soon watchers hear of a write."""
    measured = bench_http(
        requests=requests,
        callers=clients,
        watchers=watchers,
        writes=writes,
        writes_a_second=writes_a_second,
        clock=time.perf_counter,
    )
    try:
        rows = list(track(measured, "Measuring", total=4, console=stderr, disable=not stderr.is_terminal))
    except BenchMissingError as error:
        fail(Exit.USAGE, str(error))
    except HttpLoadError as error:
        fail(Exit.FAILURE, str(error))
    _print([row.as_json() for row in rows], output)


def _bell(redis: str, database: Database) -> Bell:
    try:
        from volsched.binding.wakeup import RedisBell
    except ImportError:
        fail(Exit.FAILURE, missing("Celery", "stack"))
    return RedisBell(redis, database, system_clock)


def _servers(postgres: str | None) -> tuple[str | None, ...]:
    return (None, postgres) if postgres else (None,)


def _fill(database: Database, *, objects: int, events: int, bindings: int = 0) -> None:
    _written(events, fill(database, objects=objects, events=events, bindings=bindings))


def _written(events: int, filling: Iterable[int]) -> None:
    with Progress(console=stderr, disable=not stderr.is_terminal, transient=True) as progress:
        task = progress.add_task(f"Writing {events:,} events", total=events)
        for written in filling:
            progress.update(task, completed=written)


def _print(rows: Iterable[dict[str, Any]], output: BenchOutput) -> None:
    rows = list(rows)
    _keep(rows)
    if output is BenchOutput.json:
        stdout.print_json(json.dumps(rows))
        return
    if output is BenchOutput.svg:
        print(svg(f"volsched bench {_called.get()[0]}", rows), end="")
        return
    table = Table(box=None, pad_edge=False)
    for name, value in rows[0].items():
        table.add_column(name.replace("_", " "), justify="left" if isinstance(value, str) else "right")
    for row in rows:
        table.add_row(*map(_shown, row.values()))
    stdout.print(table)


def _keep(rows: list[dict[str, Any]]) -> None:
    """In the history file, where one was named."""
    name, file = _called.get()
    if file is None:
        return
    try:
        append_history(file, name, rows, at=rfc3339(system_clock()), load=os.getloadavg()[0])
    except OSError as error:
        fail(Exit.FAILURE, f"{file} cannot be written: {error.strerror}; name another file with --history")


def _shown(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"
    return str(value)
