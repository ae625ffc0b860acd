"""What the store costs, against the bare driver with the same durability in the same run.

The baseline inserts rows that were encoded beforehand into the same table, nothing else: no JSON, no hash, no head
row, no views. What we add on top of it is the price of an event log.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from sqlalchemy import update

from volsched.binding.rules.plan import Plan, PlannedLeg, plan
from volsched.log import tables
from volsched.log.batch import lock_head, place
from volsched.log.commands import Command, Done
from volsched.log.database import Database
from volsched.log.events.decision import Decision, States
from volsched.log.events.envelope import Event, NewEvent
from volsched.log.events.fold import ObjectState
from volsched.log.events.object_states import version
from volsched.log.transaction import execute

Clock = Callable[[], float]
MICROSECONDS = 1_000_000
PLANS_PER_COMMIT = 32
NODE = "node-1"


@dataclass(frozen=True, slots=True)
class StoreRow:
    what: str
    engine: str
    per_second: float
    baseline_per_second: float | None
    """The bare driver's rate for the same rows; None where there is nothing to compare with."""

    @property
    def ratio(self) -> float | None:
        return None if self.baseline_per_second is None else self.per_second / self.baseline_per_second

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "ratio": self.ratio}


def bench_append(database: Database, *, batches: int, size: int, clock: Clock) -> StoreRow:
    """Events placed, hashed and committed in batches, next to the bare driver's insert of such rows."""
    ours, bare = [], []
    for batch in range(batches):
        events = [_patch_event(batch * size + index) for index in range(size)]
        started = clock()
        _append(database, events, started)
        ours.append(clock() - started)
        rows = _encoded(database, size)
        started = clock()
        _insert_bare(database, rows)
        bare.append(clock() - started)
    name = database.engine.dialect.name
    return StoreRow(f"append, {size} events a commit", name, size / _median(ours), size / _median(bare))


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


def _append(database: Database, new: Sequence[NewEvent], at: float) -> None:
    """The log's own part of a transaction: what every event pays, whatever its views cost."""
    with database.write() as connection:
        head = lock_head(database, connection)
        now = max(head.at, _micros(at))
        events: list[Event] = []
        previous = head.hash
        for position, event in enumerate(new, start=head.position + 1):
            events.append(place(event, "bench", now, position, 1, previous))
            previous = events[-1].hash
        database.dialect.insert(connection, tables.events, events)
        database.dialect.move_head(connection, events[-1].position, previous, now)


def _encoded(database: Database, size: int) -> list[tuple[Any, ...]]:
    """Rows as the bare driver gets them, at positions that the log continues from."""
    with database.write() as connection:
        head = lock_head(database, connection)
        first = head.position + 1
        connection.execute(update(tables.log_head).values(position=head.position + size))
    event = place(_patch_event(0), "bench", head.at, 1, 1, head.hash)
    return [
        event._replace(position=position, stream=f"volume/bare-{position}")
        for position in range(first, first + size)
    ]


def _insert_bare(database: Database, rows: Sequence[tuple[Any, ...]]) -> None:
    with database.engine.connect() as connection:
        connection = connection.execution_options(volsched_write=True)
        with connection.begin():
            database.dialect.begin_beside_log(connection)
            database.dialect.insert(connection, tables.events, rows)


def _patch_event(index: int) -> NewEvent:
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
    event = NewEvent(stream=f"volume/{name}", type="VolumeCreated", data={"patch": manifest})
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
    event = NewEvent(stream=f"{noun}/{key}", type=f"{noun.capitalize()}Created", data={"patch": manifest})
    return Command(actor="bench", streams=(event.stream,), decide=lambda _: Decision(events=(event,)))


def plan_volume(name: str) -> Command:
    """A plan of one leg, as the scheduler makes it."""
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


def must(outcomes: Sequence[object]) -> None:
    for outcome in outcomes:
        if not isinstance(outcome, Done):
            raise RuntimeError(f"a measured command failed: {outcome}")


def _micros(seconds: float) -> int:
    return int(seconds * MICROSECONDS)


def _median(times: Sequence[float]) -> float:
    return sorted(times)[len(times) // 2]
