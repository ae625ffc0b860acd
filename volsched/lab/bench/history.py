"""What history costs: folding it all again, asking what an object was, and starting beside it.

Replay is compared with a bare read of the same rows; a restart with one on a store that has the same objects and a
fraction of the history, because it must not grow with the log. What an object was is asked of objects and
positions all over the history.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from sqlalchemy import Connection

from volsched.lab.bench.log import create_surroundings, create_volume, must, plan_volume
from volsched.log import tables
from volsched.log.commands import Command
from volsched.log.database import Database
from volsched.log.events.decision import Decision
from volsched.log.events.envelope import NewEvent
from volsched.log.events.fold import BindingState
from volsched.log.integrity.replay import fold_log
from volsched.log.reads.startup import load_world
from volsched.log.reads.tail import state_as_of
from volsched.log.transaction import execute

Clock = Callable[[], float]
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
    """What one object was at one position: the median."""
    as_of_p99_ms: float

    @property
    def ratio(self) -> float:
        return self.events_per_second / self.bare_read_per_second

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "ratio": self.ratio}


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

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "ratio": self.ratio}


def fill(database: Database, *, objects: int, events: int, bindings: int = 0) -> Iterator[int]:
    """A history of so many events over so many volumes; answers the events written so far, commit by commit.

    At its end some volumes are in bindings that are open; their events come on top.
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
        asked = sorted(_as_of_times(connection, sorted(folded.states), count, clock))
    middle, slowest = asked[len(asked) // 2], asked[len(asked) * 99 // 100]
    engine = database.engine.dialect.name
    return ReplayRow(engine, count, len(folded.states), count / ours, count / bare, middle * 1000, slowest * 1000)


def _as_of_times(connection: Connection, streams: Sequence[str], last: int, clock: Clock) -> Iterator[float]:
    for index in range(QUESTIONS):
        stream = streams[index * len(streams) // QUESTIONS]
        # Late and early positions by turns, for every part of the streams alike.
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
