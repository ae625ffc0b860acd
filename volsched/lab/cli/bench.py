"""`volsched bench`: measures the cost of our own work on this machine."""

import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import product
from pathlib import Path
from typing import Annotated

import typer

from volsched.cli.console import Exit, fail, stderr
from volsched.lab.bench.audit import AUDIT_AXIS, AuditRow, bench_audit
from volsched.lab.bench.decide import ROWS, bench_decide
from volsched.lab.bench.figure_history import with_exponents
from volsched.lab.bench.http import HTTP_ROWS, BenchMissingError, HttpLoadError, bench_http
from volsched.lab.bench.idle import SETTLE_SECONDS, IdleBenchError, IdleRow, bench_idle
from volsched.lab.bench.log import (
    REPLAY_AXES,
    ReplayRow,
    bench_append,
    bench_plan,
    bench_replay,
    bench_restart,
    bench_work,
    fill,
)
from volsched.lab.bench.peers import NOT_INSTALLED, Clocks, PeerRow, bench_peers
from volsched.lab.bench.reads import READ_AXES, ReadRow, bench_reads, fill_volumes
from volsched.lab.bench.stories import fill_stories
from volsched.lab.bench.volume_map import bench_frames, bench_map, fill_map
from volsched.lab.cli.bench_bind import BIND_EXAMPLES, bind
from volsched.lab.cli.bench_rows import (
    BenchOutput,
    MeasuredRow,
    OutputOption,
    Row,
    Server,
    fill_with_progress,
    measured,
    note_benchmark,
    print_rows,
    processor_seconds,
    servers,
    with_progress,
)
from volsched.log.database import Database
from volsched.log.migrations import scratch_store
from volsched.runtime.clock import system_clock
from volsched.runtime.extras import missing

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

volsched bench audit --events 100000 --events 1000000

volsched bench audit --postgres postgresql://postgres@localhost/postgres -o json
"""
IDLE_EXAMPLES = """
Examples:

volsched bench idle

volsched bench idle --seconds 60 --postgres postgresql://postgres@localhost/postgres

volsched bench idle --volumes 100000 --settle 60 --seconds 60
"""
HTTP_EXAMPLES = """
Examples:

volsched bench http

volsched bench http --watchers 500 --writes-a-second 100 -o json
"""
READS_EXAMPLES = """
Examples:

volsched bench reads --nodes 100 --volumes 25000 --volumes 100000

volsched bench reads --nodes 1000 --volumes 50000 --in-use 60

volsched bench reads --nodes 100 --nodes 1000 --volumes 10000 --volumes 100000 -o json

volsched bench --history figures.jsonl reads -o svg > reads.svg
"""
PEERS_EXAMPLES = """
Examples:

pip install eventsourcing huey dbos procrastinate && volsched bench peers
"""
EVENTS_PER_COMMIT = 100
IDLE_VOLUMES_A_NODE = 100


app = typer.Typer(help="Measure speed and memory, against a baseline of the same run.", no_args_is_help=True)
LENGTH = 100_000
Events = Annotated[
    list[int] | None, typer.Option(help=f"Length of the history; may be repeated. {LENGTH:,}.", min=1)
]
Objects = Annotated[int, typer.Option(help="Volumes in the history.", min=1)]


@app.callback()
def _group(
    called: typer.Context,
    history: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            dir_okay=False,
            help="Append the rows to this file too, a line of JSON each; names those far from earlier runs'.",
        ),
    ] = None,
) -> None:
    """Measure speed and memory, against a baseline of the same run."""
    note_benchmark(called.invoked_subcommand or "", history)


@app.command(epilog=DECIDE_EXAMPLES)
def decide(
    nodes: Annotated[
        int, typer.Option(help="Nodes of each cluster; local volumes are ten times as many.", min=1)
    ] = 1000,
    repeat: Annotated[
        int, typer.Option(help="Decisions of each row: of equal pods, and of as many different ones.", min=1)
    ] = 200,
    memory: Annotated[bool, typer.Option("--memory", help="Measure the index's memory per volume; slow.")] = False,
    output: OutputOption = BenchOutput.table,
) -> None:
    """Decisions with the index, in CPU time, next to an un-indexed walk, measured on a few nodes and scaled."""
    # CPU time of this thread: a decision waits for nothing, and wall time includes other processes.
    rows = bench_decide(nodes, repeat=repeat, clock=time.thread_time, measure_memory=memory)
    print_rows(with_progress(rows, ROWS), output)


@app.command(epilog=LOG_EXAMPLES)
def log(
    batches: Annotated[int, typer.Option(help="Commits of each row; the median counts.", min=1)] = 100,
    postgres: Server = None,
    output: OutputOption = BenchOutput.table,
) -> None:
    """Appending, planning and work items; appends next to the bare driver, with the same durability."""

    def measure(database: Database) -> Iterator[MeasuredRow]:
        yield bench_append(database, batches=batches, size=EVENTS_PER_COMMIT, clock=time.perf_counter)
        yield bench_append(database, batches=batches, size=1, clock=time.perf_counter)
        yield bench_plan(database, batches=batches, clock=time.perf_counter)
        yield bench_work(database, items=batches, clock=time.perf_counter)

    print_rows(measured(postgres, measure), output)


@app.command(epilog=MIRROR_EXAMPLES)
def mirror(
    pods: Annotated[
        int, typer.Option(help="Pods; 15 of 100 have a claim, 20 share a node, half as many volumes.", min=100)
    ] = 10_000,
    rate: Annotated[int, typer.Option(help="Changes a second, sustained.", min=100)] = 1_000,
    burst: Annotated[int, typer.Option(help="Changes a second, in a burst.", min=100)] = 5_000,
    seconds: Annotated[int, typer.Option(help="Seconds of sustained changes.", min=1)] = 10,
    burst_seconds: Annotated[int, typer.Option(help="Seconds of the burst; 60 for a long one.", min=1)] = 5,
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
        print_rows(rows, output)


@app.command(epilog=HISTORY_EXAMPLES)
def replay(
    events: Events = None,
    objects: Objects = 5_000,
    postgres: Server = None,
    output: OutputOption = BenchOutput.table,
) -> None:
    """Folding the whole log with its chain checked, next to a bare read of the same rows.

    And reading objects as of positions, all over the history. With several lengths, also how both grow.
    """

    def measure(length: int, database: Database) -> Iterator[ReplayRow]:
        _fill(database, objects=objects, events=length)
        yield bench_replay(database, clock=time.perf_counter)

    print_rows(with_exponents(_of_each_length(events, postgres, measure), *REPLAY_AXES), output)


@app.command(epilog=HISTORY_EXAMPLES)
def restart(
    events: Events = None,
    objects: Objects = 5_000,
    bindings: Annotated[int, typer.Option(help="Bindings that are open at the end.", min=0)] = 40,
    postgres: Server = None,
    output: OutputOption = BenchOutput.table,
) -> None:
    """Starting from the views after a long history, next to the same objects with hardly any."""
    rows = []
    for server, length in product(servers(postgres), sorted(events or [LENGTH])):
        with scratch_store(server) as short, scratch_store(server) as long:
            shortest = objects + objects // 10
            _fill(short, objects=objects, events=shortest, bindings=bindings)
            _fill(long, objects=objects, events=length, bindings=bindings)
            histories = (shortest, length)
            rows.append(bench_restart(short, long, histories=histories, repeat=3, clock=time.perf_counter))
    print_rows(rows, output)


@app.command(epilog=AUDIT_EXAMPLES)
def audit(
    events: Events = None,
    postgres: Server = None,
    output: OutputOption = BenchOutput.table,
) -> None:
    """Every audit question after a long history, next to reading one event by its position.

    With several lengths, also how each answer's time grows.
    """

    def measure(length: int, database: Database) -> Iterator[AuditRow]:
        fill_with_progress(length, fill_stories(database, events=length))
        yield from bench_audit(database, clock=time.perf_counter)

    print_rows(with_exponents(_of_each_length(events, postgres, measure), AUDIT_AXIS), output)


@app.command(name="map", epilog=MAP_EXAMPLES)
def volume_map(
    nodes: Annotated[int, typer.Option(min=1, help="Nodes of the cluster.")] = 5_000,
    volumes: Annotated[int, typer.Option(min=1, help="Volumes on them.")] = 50_000,
    browser: Annotated[
        str, typer.Option(metavar="URL", help="Also measure frames of the page served there.")
    ] = "",
    output: OutputOption = BenchOutput.table,
) -> None:
    """The console's map of a large cluster, next to reading its volumes."""
    with scratch_store() as database:
        fill_with_progress(nodes + volumes, fill_map(database, nodes=nodes, volumes=volumes))
        rows = bench_map(database, clock=time.process_time, now=system_clock())
    rows += bench_frames(browser) if browser else []
    print_rows(rows, output)


app.command(epilog=BIND_EXAMPLES)(bind)


@app.command(epilog=READS_EXAMPLES)
def reads(
    nodes: Annotated[
        list[int] | None, typer.Option(help="Nodes that the volumes are spread over; may be repeated. 100.", min=1)
    ] = None,
    volumes: Annotated[
        list[int] | None, typer.Option(min=1, help="Volumes; may be repeated. 2,000 and 10,000.")
    ] = None,
    in_use: Annotated[
        int,
        typer.Option(
            metavar="PERCENT", min=0, max=100, help="Percentage of bound volumes, with claims of running pods."
        ),
    ] = 0,
    postgres: Server = None,
    output: OutputOption = BenchOutput.table,
) -> None:
    """Starting, explaining, listing, verifying and resyncing, in processor time.

    Also its growth: with nodes (as many volumes), volumes (as many on each node), volumes on each node (as many
    nodes). Every number of nodes is measured with every number of volumes.
    """
    rows: list[ReadRow] = []
    for server in servers(postgres):
        for hosts, count in product(sorted(nodes or [100]), sorted(volumes or [2_000, 10_000])):
            with scratch_store(server) as database:
                bound = count * in_use // 100
                filling = fill_volumes(database, nodes=hosts, volumes=count, in_use=bound)
                fill_with_progress(count + 2 * bound, filling)
                rows += bench_reads(database, nodes=hosts, volumes=count, in_use=bound, cpu=processor_seconds)
    print_rows(with_exponents(rows, *READ_AXES), output)


@app.command(epilog=PEERS_EXAMPLES)
def peers(
    items: Annotated[int, typer.Option(help="Events, and work items, of each row.", min=3)] = 1_000,
    postgres: Server = None,
    output: OutputOption = BenchOutput.table,
) -> None:
    """The store beside libraries that do a part of its work, one item a commit and a hundred.

    All with the same durability, which each row states; and reads over HTTP beside a bare route.
    """
    clocks = Clocks(wall=time.perf_counter, cpu=time.process_time)

    def measure(database: Database) -> Iterator[PeerRow]:
        with tempfile.TemporaryDirectory(prefix="volsched-") as folder:
            yield from bench_peers(database, Path(folder), items=items, clocks=clocks)

    try:
        rows = measured(postgres, measure)
    except HttpLoadError as error:
        fail(Exit.FAILURE, str(error))
    missing = dict.fromkeys(row.who for row in rows if row.note == NOT_INSTALLED)
    if missing:
        stderr.print(f"not measured, because not installed: {', '.join(missing)}; pip install {' '.join(missing)}")
    print_rows(rows, output)


@app.command(epilog=IDLE_EXAMPLES)
def idle(
    seconds: Annotated[float, typer.Option(help="How long to measure.", min=1)] = 20,
    volumes: Annotated[
        list[int] | None, typer.Option(help="Free volumes in the store; may be repeated. None.", min=1)
    ] = None,
    settle: Annotated[
        float, typer.Option(help="How long to wait first; a store with many volumes is synced once.", min=0)
    ] = SETTLE_SECONDS,
    postgres: Server = None,
    output: OutputOption = BenchOutput.table,
) -> None:
    """The processor time of `volsched up` with nothing to do, as a part of one core.

    With volumes, this includes the periodic resync, every 15 s; measure longer than that.
    """

    def measure(count: int, database: Database) -> Iterator[IdleRow]:
        if count:
            nodes = max(count // IDLE_VOLUMES_A_NODE, 1)
            fill_with_progress(count, fill_volumes(database, nodes=nodes, volumes=count))
        url = database.engine.url.render_as_string(hide_password=False)
        try:
            yield bench_idle(url, database.engine.dialect.name, seconds=seconds, volumes=count, settle=settle)
        except IdleBenchError as error:
            fail(Exit.FAILURE, str(error))

    print_rows([row for count in volumes or [0] for row in measured(postgres, partial(measure, count))], output)


@app.command(epilog=HTTP_EXAMPLES)
def http(
    requests: Annotated[int, typer.Option(help="Requests of each row; a tenth of it for lists.", min=1)] = 3_000,
    clients: Annotated[int, typer.Option(help="Connections that ask at the same time.", min=1)] = 16,
    watchers: Annotated[int, typer.Option(help="Watches that are open in the last row.", min=1)] = 200,
    writes: Annotated[int, typer.Option(help="Writes that they watch.", min=1)] = 1_000,
    writes_a_second: Annotated[float, typer.Option(help="Rate of these writes.", min=1)] = 200,
    output: OutputOption = BenchOutput.table,
) -> None:
    """Requests over HTTP beside a bare FastAPI route, and the delay until watchers receive a write."""
    rows = bench_http(
        requests=requests,
        callers=clients,
        watchers=watchers,
        writes=writes,
        writes_a_second=writes_a_second,
        clock=time.perf_counter,
    )
    try:
        measured_rows = with_progress(rows, HTTP_ROWS)
    except BenchMissingError as error:
        fail(Exit.USAGE, str(error))
    except HttpLoadError as error:
        fail(Exit.FAILURE, str(error))
    print_rows(measured_rows, output)


def _of_each_length(
    lengths: list[int] | None, postgres: str | None, measure: Callable[[int, Database], Iterable[Row]]
) -> list[Row]:
    """Each history in a store of its own."""
    lengths = sorted(lengths or [LENGTH])
    return [row for length in lengths for row in measured(postgres, partial(measure, length))]


def _fill(database: Database, *, objects: int, events: int, bindings: int = 0) -> None:
    fill_with_progress(events, fill(database, objects=objects, events=events, bindings=bindings))
