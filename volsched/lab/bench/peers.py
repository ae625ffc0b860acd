"""The store beside libraries that do a part of its work, on SQLite, in one run: one item a commit, and a hundred.

A peer is measured through its own public classes, with the durability that it has by default. Those that are not
installed are named as such: none of them is needed for anything else.
"""

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from uuid import uuid4

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
    work: str
    who: str
    batch: int
    """Items in a commit."""
    per_second: float | None
    cpu_us: float | None
    """Processor time of an item, in microseconds."""
    note: str = ""

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Clocks:
    wall: Callable[[], float]
    cpu: Callable[[], float]


Commit = Callable[..., object]
"""Called with what was prepared, if anything was."""


def bench_peers(database: Database, folder: Path, *, items: int, clocks: Clocks) -> Iterator[PeerRow]:
    """`folder` is for the peers' own files; about `items` of each kind in each row."""
    for batch in BATCHES:
        rounds = max(items // batch, 3)
        yield _row(EVENTS, "volsched", batch, rounds, _appending(database, batch, clocks), clocks)
        rows = partial(encoded_rows, database, batch)
        yield _row(EVENTS, "bare driver", batch, rounds, partial(insert_bare, database), clocks, rows)
        peer = _eventsourcing(folder, batch)
        yield _row(EVENTS, "eventsourcing", batch, rounds, peer, clocks)
    for batch in BATCHES:
        rounds = max(items // batch, 3)
        _queue_work(database, batch, rounds)
        yield _row(WORK, "volsched", batch, rounds, _working(database, batch), clocks)
    yield _row(WORK, "huey", 1, items, _huey(folder, items), clocks)


def _row(
    work: str,
    who: str,
    batch: int,
    rounds: int,
    commit: Commit | None,
    clocks: Clocks,
    prepared: Callable[[], object] | None = None,
) -> PeerRow:
    """`prepared` makes what each commit is given, and is not measured."""
    if commit is None:
        return PeerRow(work=work, who=who, batch=batch, per_second=None, cpu_us=None, note=NOT_INSTALLED)
    walls, cpus = [], []
    for _ in range(rounds):
        given = () if prepared is None else (prepared(),)
        began, spent = clocks.wall(), clocks.cpu()
        commit(*given)
        walls.append(clocks.wall() - began)
        cpus.append(clocks.cpu() - spent)
    wall, cpu = sorted(walls)[rounds // 2], sum(cpus) / rounds
    return PeerRow(work=work, who=who, batch=batch, per_second=batch / wall, cpu_us=cpu / batch * 1e6)


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


def _eventsourcing(folder: Path, batch: int) -> Commit | None:
    if find_spec("eventsourcing") is None:
        return None
    from eventsourcing.persistence import StoredEvent
    from eventsourcing.sqlite import SQLiteApplicationRecorder, SQLiteDatastore

    recorder = SQLiteApplicationRecorder(SQLiteDatastore(str(folder / f"eventsourcing-{batch}.db")))
    recorder.create_table()
    return lambda: recorder.insert_events(
        [StoredEvent(uuid4(), 1, "volsched:VolumeChanged", STATE) for _ in range(batch)]
    )


def _huey(folder: Path, items: int) -> Commit | None:
    """Dequeue and store a result. It has no batches."""
    if find_spec("huey") is None:
        return None
    from huey.storage import SqliteStorage

    storage = SqliteStorage(name="bench", filename=str(folder / "huey.db"), fsync=True)
    for _ in range(items):
        storage.enqueue(STATE)
    return lambda: storage.put_data(uuid4().hex, storage.dequeue())
