"""The store beside libraries that do a part of its work, in one run: one item a commit, and a hundred.

Those that are not installed are named as such: none of them is needed for anything else. Each row states the
durability of its commits, as the measured connection reports it.
"""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import asdict, dataclass
from functools import partial
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import Any
from uuid import uuid4

from volsched.lab.bench.http import BenchMissingError, bench_http
from volsched.lab.bench.log import append_events, encoded_rows, insert_bare, must, patch_event
from volsched.lab.bench.peer_libraries import BATCHES, EVENTS, PEERS, QUEUE, WORK, Ask, Commit
from volsched.log.commands import Command, EffectDone, Precondition
from volsched.log.database import Database
from volsched.log.effects import claim
from volsched.log.events.fold import NOTHING, Decision, NewEffect
from volsched.log.transaction import execute

READS = "objects read over HTTP"
SECOND = 1_000_000
LEASE = 60 * SECOND
NOT_INSTALLED = "not installed"
LEVELS = ("off", "normal", "full", "extra")
"""The names of SQLite's numbers of `synchronous`."""
CALLERS = 16
"""Connections that request objects at the same time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerRow:
    engine: str
    work: str
    who: str
    batch: int
    """Items in a commit, or in an answer."""
    per_second: float | None
    cpu_us: float | None
    """Processor time of an item in this process, or in the server, in microseconds."""
    durability: str = ""
    """The durability of commits, as the measured connection reports it."""
    note: str = ""

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Clocks:
    wall: Callable[[], float]
    cpu: Callable[[], float]


Prepare = Callable[[], object]


def bench_peers(database: Database, folder: Path, *, items: int, clocks: Clocks) -> Iterator[PeerRow]:
    """`folder` is for the peers' own files; about `items` of each kind in each row."""
    engine = database.engine.dialect.name
    ours = partial(_first_value, database)
    for batch in BATCHES:
        rounds = max(items // batch, 3)
        events = partial(_row, engine, EVENTS, batch=batch, rounds=rounds, clocks=clocks)
        work = partial(_row, engine, WORK, batch=batch, rounds=rounds, clocks=clocks)
        durability = durability_of(engine, ours)
        yield events("volsched", _appending(database, batch, clocks), durability=durability)
        rows = partial(encoded_rows, database, batch)
        yield events("bare driver", partial(insert_bare, database), prepared=rows, durability=durability)
        _queue_work(database, batch, rounds)
        yield work("volsched", _working(database, batch), durability=durability)
        for peer in PEERS:
            if engine not in peer.engines or batch not in peer.batches:
                continue
            row = events if peer.work == EVENTS else work
            if find_spec(peer.who) is None:
                yield row(peer.who, None)
                continue
            where = database.engine.url
            if engine == "sqlite":
                where = where.set(database=str(_file_with_wal(folder / f"{peer.who}-{batch}.db")))
            with peer.begin(where, batch, rounds * batch) as session:
                # Before it is measured: to ask is a statement, which belongs to no commit.
                durability = durability_of(engine, session.ask or ours)
                yield row(peer.who, session.commit, durability=durability, note=peer.note)
    if engine == "sqlite":
        yield from bench_routes(engine, items=items, clock=clocks.wall)


def bench_routes(engine: str, *, items: int, clock: Callable[[], float]) -> Iterator[PeerRow]:
    """Measure reads of one object, and of a hundred, beside a route that only answers."""
    row = partial(PeerRow, engine=engine, work=READS)
    asked = bench_http(requests=items, callers=CALLERS, watchers=1, writes=1, writes_a_second=1, clock=clock)
    try:
        with closing(asked) as measured:
            # Only the first rows of that benchmark are used; the rest is not run.
            answers = list(zip(BATCHES, islice(measured, len(BATCHES)), strict=True))
    except BenchMissingError:
        for batch in BATCHES:
            yield row(who="bare route", batch=batch, per_second=None, cpu_us=None, note=NOT_INSTALLED)
        return
    for batch, answer in answers:
        cpu_us = None if answer.cpu_ms is None else answer.cpu_ms * 1_000 / batch
        yield row(who="volsched", batch=batch, per_second=answer.per_second * batch, cpu_us=cpu_us)
        bare = None if answer.baseline_per_second is None else answer.baseline_per_second * batch
        yield row(who="bare route", batch=batch, per_second=bare, cpu_us=None)


def durability_of(engine: str, ask: Ask) -> str:
    if engine == "sqlite":
        level = ask("PRAGMA synchronous")
        return f"{ask('PRAGMA journal_mode')}, synchronous={LEVELS[level] if isinstance(level, int) else level}"
    return f"fsync={ask('SHOW fsync')}, synchronous_commit={ask('SHOW synchronous_commit')}"


def _first_value(database: Database, statement: str) -> object:
    with database.write_beside_log() as connection:
        return connection.exec_driver_sql(statement).scalar()


def _file_with_wal(file: Path) -> Path:
    """A file in WAL mode, like ours. The mode is a property of the file; other connections inherit it."""
    with closing(sqlite3.connect(file)) as raw:
        raw.execute("PRAGMA journal_mode = WAL")
    return file


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
    durability: str = "",
    note: str = "",
) -> PeerRow:
    """`prepared` creates the input of each commit, and is not measured."""
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
    return row(per_second=batch / wall, cpu_us=cpu / batch * 1e6, durability=durability, note=note)


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
