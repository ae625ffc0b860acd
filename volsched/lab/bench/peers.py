"""The store beside libraries that do a part of its work, in one run: one item a commit, and a hundred.

A peer is measured through its own public classes, with the durability that it has by default. Those that are not
installed are named as such: none of them is needed for anything else.
"""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict, dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from uuid import uuid4

from sqlalchemy import URL

from volsched.lab.bench.log import append_events, encoded_rows, insert_bare, must, patch_event
from volsched.log.commands import Command, EffectDone, Precondition
from volsched.log.database import Database
from volsched.log.effects import claim
from volsched.log.events.fold import NOTHING, Decision, NewEffect
from volsched.log.transaction import execute

EVENTS, WORK = "events appended", "work items claimed and recorded"
BATCHES = (1, 100)
QUEUE = "bench"
SECOND = 1_000_000
LEASE = 60 * SECOND
NOT_INSTALLED = "not installed"
STATE = b'{"patch":{"metadata":{"annotations":{"pv.kubernetes.io/bound-by-controller":"yes"}}}}'
"""About as long as the data of our events."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerRow:
    engine: str
    work: str
    who: str
    batch: int
    """Items in a commit."""
    per_second: float | None
    cpu_us: float | None
    """Processor time of an item in this process, in microseconds."""
    note: str = ""

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Clocks:
    wall: Callable[[], float]
    cpu: Callable[[], float]


Commit = Callable[..., object]
"""Called with what was prepared, if anything was."""
Prepare = Callable[[], object]
WHOLE = "a workflow of one step, which is recorded too"


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """A library that does a part of the work; `begin` is told where its data goes, and gives what commits."""

    who: str
    work: str
    engines: tuple[str, ...]
    batches: tuple[int, ...]
    begin: Callable[[URL, int, int], AbstractContextManager[Commit]]
    """(where, batch, items)"""
    note: str = ""


def bench_peers(database: Database, folder: Path, *, items: int, clocks: Clocks) -> Iterator[PeerRow]:
    """`folder` is for the peers' own files; about `items` of each kind in each row."""
    engine = database.engine.dialect.name
    for batch in BATCHES:
        rounds = max(items // batch, 3)
        events = partial(_row, engine, EVENTS, batch=batch, rounds=rounds, clocks=clocks)
        work = partial(_row, engine, WORK, batch=batch, rounds=rounds, clocks=clocks)
        yield events("volsched", _appending(database, batch, clocks))
        rows = partial(encoded_rows, database, batch)
        yield events("bare driver", partial(insert_bare, database), prepared=rows)
        _queue_work(database, batch, rounds)
        yield work("volsched", _working(database, batch))
        for peer in PEERS:
            if engine not in peer.engines or batch not in peer.batches:
                continue
            row = events if peer.work == EVENTS else work
            if find_spec(peer.who) is None:
                yield row(peer.who, None)
                continue
            where = database.engine.url
            if engine == "sqlite":
                where = where.set(database=str(folder / f"{peer.who}-{batch}.db"))
            with peer.begin(where, batch, rounds * batch) as commit:
                yield row(peer.who, commit, note=peer.note)


def _row(
    engine: str,
    work: str,
    who: str,
    commit: Commit | None,
    *,
    batch: int,
    rounds: int,
    clocks: Clocks,
    prepared: Prepare | None = None,
    note: str = "",
) -> PeerRow:
    """`prepared` makes what each commit is given, and is not measured."""
    row = partial(PeerRow, engine=engine, work=work, who=who, batch=batch)
    if commit is None:
        return row(per_second=None, cpu_us=None, note=NOT_INSTALLED)
    walls, cpus = [], []
    for _ in range(rounds):
        given = () if prepared is None else (prepared(),)
        began, spent = clocks.wall(), clocks.cpu()
        commit(*given)
        walls.append(clocks.wall() - began)
        cpus.append(clocks.cpu() - spent)
    wall, cpu = sorted(walls)[rounds // 2], sum(cpus) / rounds
    return row(per_second=batch / wall, cpu_us=cpu / batch * 1e6, note=note)


def _appending(database: Database, batch: int, clocks: Clocks) -> Commit:
    return lambda: append_events(database, [patch_event(str(index)) for index in _fresh(batch)], clocks.wall())


def _fresh(count: int) -> range:
    """Numbers that no event of this run had: a stream begins once."""
    begin = uuid4().int % 10**15
    return range(begin, begin + count)


def _queue_work(database: Database, batch: int, rounds: int) -> None:
    keys = [uuid4().hex for _ in range(batch * rounds)]
    effects = tuple(NewEffect(key=key, lane=key, queue=QUEUE, kind="bench") for key in keys)
    event = patch_event(str(_fresh(1)[0]))
    queued = Decision(events=(event,), effects=effects)
    command = Command(actor="bench", streams=(event.stream,), decide=lambda _: queued)
    must(execute(database, [command], now=SECOND, react=lambda _, __: NOTHING))


def _working(database: Database, batch: int) -> Commit:
    def commit() -> None:
        taken = claim(database, queue=QUEUE, owner="bench", limit=batch, now=SECOND, lease_for=LEASE)
        done = [EffectDone(key=it.key, fence=it.fence, outcome="done") for it in taken]
        commands = [
            Command(actor="bench", streams=(), decide=lambda _: NOTHING, precondition=Precondition(effect=it))
            for it in done
        ]
        must(execute(database, commands, now=SECOND, react=lambda _, __: NOTHING))

    return commit


def _eventsourcing(where: URL, batch: int, _items: int) -> AbstractContextManager[Commit]:
    from eventsourcing.persistence import ApplicationRecorder, StoredEvent

    recorder: ApplicationRecorder
    if where.get_backend_name() == "sqlite":
        from eventsourcing.sqlite import SQLiteApplicationRecorder, SQLiteDatastore

        recorder = SQLiteApplicationRecorder(SQLiteDatastore(where.database))
    else:
        from eventsourcing.postgres import PostgresApplicationRecorder, PostgresDatastore

        host, port = where.host or where.query.get("host", ""), where.port or 5432
        address = (where.database, host, port, where.username, where.password or "")
        recorder = PostgresApplicationRecorder(PostgresDatastore(*address))
    recorder.create_table()
    return nullcontext(
        lambda: recorder.insert_events(
            [StoredEvent(uuid4(), 1, "volsched:VolumeChanged", STATE) for _ in range(batch)]
        )
    )


def _huey(where: URL, _batch: int, items: int) -> AbstractContextManager[Commit]:
    """Dequeue and store a result."""
    from huey.storage import SqliteStorage

    storage = SqliteStorage(name="bench", filename=where.database, fsync=True)
    for _ in range(items):
        storage.enqueue(STATE)
    return nullcontext(lambda: storage.put_data(uuid4().hex, storage.dequeue()))


@contextmanager
def _procrastinate(where: URL, _batch: int, items: int) -> Iterator[Commit]:
    """A job fetched and finished, as its worker does it; it notifies of neither."""
    from procrastinate import App, PsycopgConnector
    from procrastinate.jobs import Job, Status
    from procrastinate.manager import JobManager

    conninfo = where.set(drivername="postgresql").render_as_string(hide_password=False)
    app = App(connector=PsycopgConnector(conninfo=conninfo))
    manager = JobManager(app.connector)
    jobs = [Job(queue=QUEUE, lock=None, queueing_lock=None, task_name="bench") for _ in range(items)]

    async def begin() -> int:
        await app.open_async()
        await app.schema_manager.apply_schema_async()
        await manager.batch_defer_jobs_async(jobs)
        worker: int = await manager.register_worker()
        return worker

    async def work(worker: int) -> None:
        job = await manager.fetch_job([QUEUE], worker)
        await manager.finish_job(job, Status.SUCCEEDED, delete_job=False)

    with asyncio.Runner() as runner:
        worker = runner.run(begin())
        try:
            yield lambda: runner.run(work(worker))
        finally:
            runner.run(app.close_async())


@contextmanager
def _dbos(where: URL, _batch: int, _items: int) -> Iterator[Commit]:
    from dbos import DBOS

    address = where.set(drivername=where.get_backend_name()).render_as_string(hide_password=False)
    DBOS(config={"name": "volsched-bench", "system_database_url": address, "log_level": "ERROR"})
    step = DBOS.step()(lambda: STATE.decode())
    workflow = DBOS.workflow()(lambda: step())
    DBOS.launch()
    try:
        yield workflow
    finally:
        DBOS.destroy(destroy_registry=True)


PEERS = (
    Peer(
        who="eventsourcing", work=EVENTS, engines=("sqlite", "postgresql"), batches=BATCHES, begin=_eventsourcing
    ),
    Peer(who="huey", work=WORK, engines=("sqlite",), batches=(1,), begin=_huey),
    Peer(who="procrastinate", work=WORK, engines=("postgresql",), batches=(1,), begin=_procrastinate),
    Peer(who="dbos", work=WORK, engines=("sqlite", "postgresql"), batches=(1,), begin=_dbos, note=WHOLE),
)
"""Those with one batch size have no batches."""
