"""Libraries that do a part of the store's work, each through its own public classes and with our durability.

On SQLite each gets a file with a write-ahead log and syncs every commit (synchronous=full), as we do; some leave
one or the other to a default. On a database server, neither they nor we set anything.
"""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from sqlalchemy import URL, Engine
from sqlalchemy import event as engine_event

EVENTS, WORK = "events appended", "work items claimed and recorded"
BATCHES = (1, 100)
QUEUE = "bench"
STATE = b'{"patch":{"metadata":{"annotations":{"pv.kubernetes.io/bound-by-controller":"yes"}}}}'
"""About as long as the data of our events."""
FULL = "PRAGMA synchronous = FULL"

Commit = Callable[..., object]
"""Called with the prepared items, if there are any."""
Ask = Callable[[str], object]
"""Executes a statement on a peer's own connection; gives the first value, if there is one."""
WHOLE = "a workflow of one step, which is recorded too; on SQLite it sets no write-ahead log itself"
ONCE = "an item that is taken is deleted: what a crash interrupts is not done again"


@dataclass(frozen=True, slots=True)
class PeerSession:
    commit: Commit
    ask: Ask | None = None
    """None: on a server, whose settings are the same for all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """A library that does a part of the work; `begin` gets the place of its data."""

    who: str
    work: str
    engines: tuple[str, ...]
    batches: tuple[int, ...]
    begin: Callable[[URL, int, int], AbstractContextManager[PeerSession]]
    """(where, batch, items)"""
    note: str = ""


def _eventsourcing(where: URL, batch: int, _items: int) -> AbstractContextManager[PeerSession]:
    from eventsourcing.persistence import ApplicationRecorder, StoredEvent

    recorder: ApplicationRecorder
    ask: Ask | None = None
    if where.get_backend_name() == "sqlite":
        from eventsourcing.sqlite import SQLiteApplicationRecorder, SQLiteDatastore

        store = SQLiteDatastore(where.database)
        recorder = SQLiteApplicationRecorder(store)

        def ask(statement: str) -> object:
            with store.get_connection(commit=True) as connection:
                cursor = connection.cursor()
                cursor.execute(statement)
                row = cursor.fetchone()
                return row[0] if row else None

        # It takes whatever its SQLite was compiled with. One thread gets the same connection again.
        ask(FULL)
    else:
        from eventsourcing.postgres import PostgresApplicationRecorder, PostgresDatastore

        host, port = where.host or where.query.get("host", ""), where.port or 5432
        address = (where.database, host, port, where.username, where.password or "")
        recorder = PostgresApplicationRecorder(PostgresDatastore(*address))
    recorder.create_table()

    def commit() -> object:
        events = [StoredEvent(uuid4(), 1, "volsched:VolumeChanged", STATE) for _ in range(batch)]
        return recorder.insert_events(events)

    return nullcontext(PeerSession(commit, ask))


def _huey(where: URL, _batch: int, items: int) -> AbstractContextManager[PeerSession]:
    """Dequeue and store a result."""
    from huey.storage import PostgresStorage, SqliteStorage

    is_file = where.get_backend_name() == "sqlite"
    if is_file:
        storage = SqliteStorage(name="bench", filename=where.database, fsync=True)
    else:
        dsn = where.set(drivername="postgresql").render_as_string(hide_password=False)
        storage = PostgresStorage(name="bench", dsn=dsn, blocking=False)
    for _ in range(items):
        storage.enqueue(STATE)

    def ask(statement: str) -> object:
        return storage.sql(statement, results=True)[0][0]

    return nullcontext(
        PeerSession(lambda: storage.put_data(uuid4().hex, storage.dequeue()), ask if is_file else None)
    )


@contextmanager
def _procrastinate(where: URL, _batch: int, items: int) -> Iterator[PeerSession]:
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
            yield PeerSession(lambda: runner.run(work(worker)))
        finally:
            runner.run(app.close_async())


@contextmanager
def _dbos(where: URL, _batch: int, _items: int) -> Iterator[PeerSession]:
    from dbos import DBOS

    address = where.set(drivername=where.get_backend_name()).render_as_string(hide_password=False)
    with _synced_engines(where) as ask:
        DBOS(config={"name": "volsched-bench", "system_database_url": address, "log_level": "ERROR"})
        step = DBOS.step()(lambda: STATE.decode())
        workflow = DBOS.workflow()(lambda: step())
        DBOS.launch()
        try:
            yield PeerSession(workflow, ask)
        finally:
            DBOS.destroy(destroy_registry=True)


@contextmanager
def _synced_engines(where: URL) -> Iterator[Ask | None]:
    """Sets synchronous=full on every new connection to an SQLite file: a library may keep its engine to itself."""
    if where.get_backend_name() != "sqlite":
        yield None
        return
    answers: dict[str, object] = {}

    def connected(raw: Any, _record: object) -> None:
        raw.execute(FULL)
        for statement in ("PRAGMA journal_mode", "PRAGMA synchronous"):
            answers[statement] = raw.execute(statement).fetchone()[0]

    engine_event.listen(Engine, "connect", connected)
    try:
        yield answers.get
    finally:
        engine_event.remove(Engine, "connect", connected)


PEERS = (
    Peer(
        who="eventsourcing", work=EVENTS, engines=("sqlite", "postgresql"), batches=BATCHES, begin=_eventsourcing
    ),
    Peer(who="huey", work=WORK, engines=("sqlite", "postgresql"), batches=(1,), begin=_huey, note=ONCE),
    Peer(who="procrastinate", work=WORK, engines=("postgresql",), batches=(1,), begin=_procrastinate),
    Peer(who="dbos", work=WORK, engines=("sqlite", "postgresql"), batches=(1,), begin=_dbos, note=WHOLE),
)
"""Those with one batch size have no batches."""
