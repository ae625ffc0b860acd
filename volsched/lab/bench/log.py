"""The cost of the store and its history, against the bare driver with the same durability in the same run."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from sqlalchemy import Connection, update

from volsched.binding.rules.plan import Plan, PlannedLeg, plan
from volsched.lab.bench.figure_history import SizeAxis, exponent
from volsched.log import tables
from volsched.log.batch import lock_head, place
from volsched.log.commands import Command, Done, EffectDone, Precondition
from volsched.log.database import Database
from volsched.log.effects import claim
from volsched.log.events.envelope import Event, NewEvent
from volsched.log.events.fold import BindingState, Decision, NewEffect, ObjectState, States, version
from volsched.log.integrity.replay import fold_log
from volsched.log.reads.startup import load_world
from volsched.log.reads.tail import state_as_of
from volsched.log.sqlite_file import used_bytes
from volsched.log.transaction import execute
from volsched.objects.rules.object_events import created_event

# The baseline inserts pre-encoded rows into the same table, nothing else: no JSON, no hash, no head row, no
# views. The difference is the price of an event log.

Clock = Callable[[], float]
MICROSECONDS = 1_000_000
PLANS_PER_COMMIT = 32
NODE = "node-1"
WORK = "work"


@dataclass(frozen=True, slots=True)
class StoreRow:
    what: str
    engine: str
    per_second: float
    baseline_per_second: float | None
    """The bare driver's rate for the same rows; None if there is nothing to compare with."""

    @property
    def ratio(self) -> float | None:
        return None if self.baseline_per_second is None else self.per_second / self.baseline_per_second

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "ratio": self.ratio}


def bench_append(database: Database, *, batches: int, size: int, clock: Clock) -> StoreRow:
    """Events placed, hashed and committed in batches, beside the bare driver's insert of such rows."""
    ours, bare = [], []
    for batch in range(batches):
        events = [patch_event(f"{size}-{batch * size + index}") for index in range(size)]
        started = clock()
        append_events(database, events, started)
        ours.append(clock() - started)
        rows = encoded_rows(database, size)
        started = clock()
        insert_bare(database, rows)
        bare.append(clock() - started)
    name = database.engine.dialect.name
    return StoreRow(
        f"append, {size} {'event' if size == 1 else 'events'} a commit",
        name,
        size / _median(ours),
        size / _median(bare),
    )


def bench_work(database: Database, *, items: int, clock: Clock) -> StoreRow:
    """Durable work items: each is claimed in one transaction, and its outcome recorded in another."""
    queued = tuple(NewEffect(key=f"item-{it}", lane=f"lane-{it}", queue=WORK, kind=WORK) for it in range(items))
    adding = Command(actor="bench", streams=(), decide=lambda _: Decision(effects=queued))
    must(execute(database, [adding], now=_micros(clock())))
    times = []
    for _ in range(items):
        started = clock()
        now = _micros(started)
        (taken,) = claim(database, queue=WORK, owner="bench", limit=1, now=now, lease_for=MICROSECONDS)
        done = Precondition(effect=EffectDone(key=taken.key, fence=taken.fence, outcome="done"))
        must(
            execute(database, [Command(actor="bench", streams=(), decide=_always(()), precondition=done)], now=now)
        )
        times.append(clock() - started)
    return StoreRow(
        "claim + record, one work item a commit", database.engine.dialect.name, 1 / _median(times), None
    )


def bench_plan(database: Database, *, batches: int, clock: Clock) -> StoreRow:
    """Decisions of one leg: plan and assumption as events, views and the effect, 32 to a commit."""
    times = []
    for batch in range(batches):
        names = [f"plan-{batch}-{index}" for index in range(PLANS_PER_COMMIT)]
        objects = [*create_surroundings(names), *(create_volume(name) for name in names)]
        must(execute(database, objects, now=_micros(clock())))
        started = clock()
        must(execute(database, [plan_volume(name) for name in names], now=_micros(started)))
        times.append(clock() - started)
    what = f"plan + assume + views + effect, {PLANS_PER_COMMIT} a commit"
    return StoreRow(what, database.engine.dialect.name, PLANS_PER_COMMIT / _median(times), None)


def append_events(database: Database, new: Sequence[NewEvent], at: float) -> None:
    """The log's own part of a transaction: the cost of every event, without its views."""
    with database.write() as connection:
        head = lock_head(database, connection)
        now = max(head.at, _micros(at))
        events: list[Event] = []
        previous = head.hash
        for position, event in enumerate(new, start=head.position + 1):
            events.append(place(event, "bench", now, position, 1, previous))
            previous = events[-1].hash
        with database.dialect.together(connection, len(events)):
            database.dialect.insert(connection, tables.events, events)
            database.dialect.move_head(connection, events[-1].position, previous, now)


def encoded_rows(database: Database, size: int) -> list[tuple[Any, ...]]:
    """Rows as the bare driver gets them, at positions that the log continues from."""
    with database.write() as connection:
        head = lock_head(database, connection)
        first = head.position + 1
        connection.execute(update(tables.log_head).values(position=head.position + size))
    event = place(patch_event("0"), "bench", head.at, 1, 1, head.hash)
    return [
        event._replace(position=position, stream=f"volume/bare-{position}")
        for position in range(first, first + size)
    ]


def insert_bare(database: Database, rows: Sequence[tuple[Any, ...]]) -> None:
    with database.write_beside_log() as connection:
        database.dialect.insert(connection, tables.events, rows)


def patch_event(index: str) -> NewEvent:
    patch = {
        "spec": {"claimRef": {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": "bench",
                              "name": f"claim-{index}", "uid": f"uid-{index}", "resourceVersion": "17"}},
        "metadata": {"annotations": {"pv.kubernetes.io/bound-by-controller": "yes"}},
    }  # fmt: skip
    return NewEvent(stream=f"volume/append-{index}", type="VolumeChanged", data={"patch": patch})


def create_volume(name: str) -> Command:
    manifest = {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name, "uid": f"uid-{name}", "labels": {"tier": "ssd"}},
        "spec": {
            "capacity": {"storage": "10Gi"},
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": "bench",
            "local": {"path": "/mnt/disk"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [
                {"key": "kubernetes.io/hostname", "operator": "In", "values": ["node-1"]}]}]}},
        },
        "status": {"phase": "Available"},
    }  # fmt: skip
    event = created_event(f"volume/{name}", manifest)
    return Command(actor="bench", streams=(event.stream,), decide=lambda _: Decision(events=(event,)))


def create_surroundings(names: Sequence[str]) -> list[Command]:
    """The node, pods and claims of plans with these names."""
    objects = [{"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE, "uid": NODE}}]
    for name in names:
        here = {"name": name, "namespace": "bench", "uid": f"uid-{name}"}
        objects.append({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": here})
        objects.append({"apiVersion": "v1", "kind": "Pod", "metadata": here})
    return [_creating(manifest) for manifest in objects]


def _creating(manifest: dict[str, Any]) -> Command:
    noun = {"Node": "node", "PersistentVolumeClaim": "claim", "Pod": "pod"}[manifest["kind"]]
    names = manifest["metadata"]
    key = f"{names['namespace']}/{names['name']}" if "namespace" in names else names["name"]
    event = created_event(f"{noun}/{key}", manifest)
    return Command(actor="bench", streams=(event.stream,), decide=lambda _: Decision(events=(event,)))


def plan_volume(name: str) -> Command:
    """A plan of one leg, as the scheduler writes it."""
    streams = (f"binding/{name}", f"pod/bench/{name}", f"node/{NODE}", f"claim/bench/{name}", f"volume/{name}")

    def decide(states: States) -> Decision:
        state = states[f"volume/{name}"]
        assert isinstance(state, ObjectState)
        leg = PlannedLeg(claim=f"bench/{name}", claim_uid=f"uid-{name}", volume=name, rv=version(state))
        request = Plan(
            binding=name, pod=f"bench/{name}", pod_uid=f"uid-{name}", node=NODE, legs=(leg,), decided_at=state.rv,
            deadline=2**62,
        )  # fmt: skip
        return plan(request, states)

    return Command(actor="bench", streams=streams, decide=decide)


def bytes_in_use(database: Database) -> int:
    """Bytes in use by an SQLite store: whole pages, with those in the write-ahead log, without free ones."""
    with database.read() as connection:
        return used_bytes(connection.connection.driver_connection)


def must(outcomes: Sequence[object]) -> None:
    for outcome in outcomes:
        if not isinstance(outcome, Done):
            raise RuntimeError(f"a measured command failed: {outcome}")


def _micros(seconds: float) -> int:
    return int(seconds * MICROSECONDS)


def _median(times: Sequence[float]) -> float:
    return sorted(times)[len(times) // 2]


# The cost of history: folding all of it again, reading an object as of a position, and starting with it.
#
# Replay is compared with a bare read of the same rows; a restart with one on a store that has the same objects
# and a fraction of the history, because it must not grow with the log. As-of reads cover objects and positions
# all over the history.

PHASES = ("Available", "Bound", "Released")
COMMANDS_PER_COMMIT = 200
PATCHES_PER_COMMAND = 25
QUESTIONS = 500


@dataclass(frozen=True, slots=True)
class ReplayRow:
    engine: str
    events: int
    objects: int
    events_per_second: float
    bare_read_per_second: float
    as_of_ms: float
    """The median for one object as of one position."""
    as_of_p99_ms: float
    over_events: float | None = None
    """How the time to fold everything grows with the history; 1 is in proportion."""
    as_of_over_events: float | None = None
    """How the median of one object as of one position grows."""

    @property
    def ratio(self) -> float:
        return self.events_per_second / self.bare_read_per_second

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "ratio": self.ratio}


def _replay_axis(column: str, figure: Callable[[ReplayRow], float]) -> SizeAxis[ReplayRow]:
    return SizeAxis(
        column=column,
        size=lambda row: row.events,
        alike=lambda row: (row.engine, row.objects),
        figure=figure,
    )


REPLAY_AXES = (
    _replay_axis("over_events", lambda row: row.events / row.events_per_second),
    _replay_axis("as_of_over_events", lambda row: row.as_of_ms),
)


@dataclass(frozen=True, slots=True)
class RestartRow:
    engine: str
    objects: int
    open_bindings: int
    short_history: int
    long_history: int
    short_ms: float
    long_ms: float

    @property
    def ratio(self) -> float:
        return self.long_ms / self.short_ms

    @property
    def over_events(self) -> float | None:
        """How the time grows from the short history to the long one; 0: it does not."""
        return exponent((self.short_history, self.short_ms), (self.long_history, self.long_ms))

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "ratio": self.ratio, "over_events": self.over_events}


def fill(database: Database, *, objects: int, events: int, bindings: int = 0) -> Iterator[int]:
    """A history of so many events over so many volumes; yields the events written so far, commit by commit.

    At its end some volumes are in open bindings, whose events are added.
    """
    names = [f"volume-{index:06}" for index in range(objects)]
    written = 0
    for start in range(0, objects, COMMANDS_PER_COMMIT):
        commands = [create_volume(name) for name in names[start : start + COMMANDS_PER_COMMIT]]
        must(execute(database, commands, now=written))
        written += len(commands)
        yield written
    turn = 0
    while written < events:
        commands = []
        for _ in range(COMMANDS_PER_COMMIT):
            count = min(PATCHES_PER_COMMAND, events - written)
            if count > 0:
                commands.append(_patches(names[turn % objects], turn, count))
                written += count
                turn += 1
        must(execute(database, commands, now=written))
        yield written
    must(execute(database, create_surroundings(names[:bindings]), now=written))
    must(execute(database, [plan_volume(name) for name in names[:bindings]], now=written))


def bench_replay(database: Database, *, clock: Clock) -> ReplayRow:
    """All events folded into states, chain and density checked."""
    with database.read() as connection:
        started = clock()
        count = sum(len(rows) for rows in database.dialect.scan(connection, tables.events, order="position"))
        bare = clock() - started
        started = clock()
        folded = fold_log(connection)
        ours = clock() - started
        times = sorted(_as_of_times(connection, sorted(folded.states), count, clock))
    middle, slowest = times[len(times) // 2], times[len(times) * 99 // 100]
    engine = database.engine.dialect.name
    return ReplayRow(engine, count, len(folded.states), count / ours, count / bare, middle * 1000, slowest * 1000)


def _as_of_times(connection: Connection, streams: Sequence[str], last: int, clock: Clock) -> Iterator[float]:
    for index in range(QUESTIONS):
        stream = streams[index * len(streams) // QUESTIONS]
        # Late and early positions alternate, covering every part of the streams alike.
        position = 1 + (index * 7919) % last
        started = clock()
        state_as_of(connection, stream, position=position)
        yield clock() - started


def bench_restart(
    short: Database, long: Database, *, histories: tuple[int, int], repeat: int, clock: Clock
) -> RestartRow:
    """All objects and open bindings loaded from the views, the head checked; the best of a few runs."""
    times = []
    for database in (short, long):
        runs = []
        for _ in range(repeat):
            started = clock()
            with database.read() as connection:
                states = load_world(connection).states
            runs.append(clock() - started)
        times.append(min(runs) * 1000)
    bindings = sum(isinstance(state, BindingState) for state in states.values())
    return RestartRow(short.engine.dialect.name, len(states) - bindings, bindings, *histories, *times)


def _patches(name: str, turn: int, count: int) -> Command:
    events = tuple(
        NewEvent(
            stream=f"volume/{name}",
            type="VolumeChanged",
            data={"patch": {"status": {"phase": PHASES[(turn + step) % len(PHASES)], "message": f"turn {turn}"}}},
        )
        for step in range(count)
    )
    return Command(actor="bench", streams=(f"volume/{name}",), decide=_always(events))


def _always(events: Sequence[NewEvent]) -> Callable[[object], Decision]:
    return lambda _: Decision(events=tuple(events))
