"""Work for workers: legs that are planned in bulk, and the counts that say what became of them."""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from pydantic_core import from_json
from sqlalchemy import func, select

from tests.support.clusters import LOCAL, Manifest, claim, node, pod, volume
from volsched.binding.rules.plan import Plan, PlannedLeg, plan
from volsched.log import tables
from volsched.log.commands import Command, Done
from volsched.log.database import Database
from volsched.log.events.envelope import NewEvent
from volsched.log.events.fold import Decision, ObjectState, States, version
from volsched.log.reads.tail import read_head
from volsched.log.transaction import execute
from volsched.objects import door
from volsched.runtime.clock import SECOND, system_clock
from volsched.runtime.writer import MAX_BATCH

HOUR = 3_600 * SECOND
NODE = "node-0"


def create(database: Database, objects: Iterable[Manifest]) -> None:
    """Many objects at once; their uids are their names."""
    must(database, [_creating(manifest) for manifest in objects])


def must(database: Database, commands: list[Command]) -> None:
    """In commits of the writer's size: PostgreSQL ends a transaction that is idle for too long."""
    for start in range(0, len(commands), MAX_BATCH):
        for outcome in execute(database, commands[start : start + MAX_BATCH], now=system_clock()):
            if not isinstance(outcome, Done):
                raise outcome


def plan_legs(database: Database, *, pods: int, each: int, start: int = 0) -> None:
    """Bindings with so many legs each, as a scheduler would plan them; nothing is carried out yet."""
    if start == 0:
        create(database, [LOCAL, node(NODE)])
    numbers = range(start, start + pods)
    objects: list[Manifest] = []
    for number in numbers:
        names = [f"{number}-{leg}" for leg in range(each)]
        objects += [volume(f"pv-{name}", "1Gi", NODE) for name in names]
        objects += [claim(f"c-{name}", "1Gi") for name in names]
        objects.append(pod(f"p-{number}", *(f"c-{name}" for name in names)))
    create(database, objects)
    must(database, [_planning(number, each) for number in numbers])


def delete_pods(database: Database, pods: Iterable[int]) -> None:
    """At once and for good, as if each had been deleted by force."""

    def deleting(stream: str) -> Command:
        decided = Decision(events=(NewEvent(stream=stream, type="PodDeleted"),))
        return Command(actor="test", streams=(stream,), decide=lambda _: decided)

    must(database, [deleting(f"pod/default/p-{number}") for number in pods])


def head(database: Database) -> int:
    with database.read() as connection:
        return read_head(connection).position


def queued(database: Database, *, state: str | None = None) -> int:
    asked = select(func.count()).select_from(tables.effects)
    if state is not None:
        asked = asked.where(tables.effects.c.state == state)
    return _number(database, asked)


def done(database: Database) -> int:
    return _number(database, select(func.count()).select_from(tables.effects_done))


def leg_moves(database: Database, state: str) -> Counter[tuple[str, int]]:
    """How often each leg came into this state, by the log."""
    events = tables.events
    asked = select(events.c.stream, events.c.data).where(events.c.type == "LegMoved")
    with database.read() as connection:
        moves = [(row.stream, from_json(row.data)) for row in connection.execute(asked)]
    return Counter((stream, data["leg"]) for stream, data in moves if data["state"] == state)


def phases(database: Database) -> Counter[str]:
    with database.read() as connection:
        return Counter(connection.execute(select(tables.bindings.c.state)).scalars())


def bound_pods(database: Database) -> int:
    pods = tables.pods
    return _number(database, select(func.count()).select_from(pods).where(pods.c.node.is_not(None)))


def manifests(database: Database, table: Any) -> list[Mapping[str, Any]]:
    with database.read() as connection:
        return [from_json(found) for found in connection.execute(select(table.c.manifest)).scalars()]


def _number(database: Database, asked: Any) -> int:
    with database.read() as connection:
        return int(connection.execute(asked).scalar() or 0)


def _creating(manifest: Manifest) -> Command:
    author, uid = door.controller("test", system_clock()), f"uid-{manifest['metadata']['name']}"
    return door.create(manifest["kind"], manifest, author, uid=uid).command


def _planning(number: int, each: int) -> Command:
    binding, deadline = f"b-{number}", system_clock() + HOUR
    volumes = [f"volume/pv-{number}-{leg}" for leg in range(each)]
    claims = [f"claim/default/c-{number}-{leg}" for leg in range(each)]

    def decide(states: States) -> Decision:
        legs = tuple(
            PlannedLeg(
                claim=f"default/c-{number}-{leg}",
                claim_uid=f"uid-c-{number}-{leg}",
                volume=f"pv-{number}-{leg}",
                rv=_version(states, f"volume/pv-{number}-{leg}"),
            )
            for leg in range(each)
        )
        wanted = Plan(
            binding=binding, pod=f"default/p-{number}", pod_uid=f"uid-p-{number}", node=NODE, legs=legs,
            decided_at=0, deadline=deadline,
        )  # fmt: skip
        return plan(wanted, states)

    streams = (f"binding/{binding}", f"pod/default/p-{number}", f"node/{NODE}", *volumes, *claims)
    return Command(actor="test", streams=streams, decide=decide)


def _version(states: States, stream: str) -> str:
    state = states[stream]
    assert isinstance(state, ObjectState)
    return version(state)
