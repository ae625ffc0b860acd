"""What history costs: folding it all again, and starting beside it.

Replay is compared with a bare read of the same rows; a restart with one on a store that has the same objects and a
fraction of the history, because it must not grow with the log.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from volsched.events.envelope import NewEvent
from volsched.insight.bench_store import create_volume, must
from volsched.store import tables
from volsched.store.commands import Command, Decision
from volsched.store.database import Database
from volsched.store.loading import load_world
from volsched.store.replay import fold_log
from volsched.store.transaction import execute

Clock = Callable[[], float]
PHASES = ("Available", "Bound", "Released")
COMMANDS_PER_COMMIT = 200
PATCHES_PER_COMMAND = 25


@dataclass(frozen=True, slots=True)
class ReplayRow:
    engine: str
    events: int
    objects: int
    events_per_second: float
    bare_read_per_second: float

    @property
    def ratio(self) -> float:
        return self.events_per_second / self.bare_read_per_second

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "ratio": self.ratio}


@dataclass(frozen=True, slots=True)
class RestartRow:
    engine: str
    objects: int
    short_history: int
    long_history: int
    short_ms: float
    long_ms: float

    @property
    def ratio(self) -> float:
        return self.long_ms / self.short_ms

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "ratio": self.ratio}


def fill(database: Database, *, objects: int, events: int) -> Iterator[int]:
    """A history of so many events over so many volumes; answers the events written so far, commit by commit."""
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


def bench_replay(database: Database, *, clock: Clock) -> ReplayRow:
    """All events folded into states, chain and density checked."""
    with database.read() as connection:
        started = clock()
        count = sum(len(rows) for rows in database.dialect.scan(connection, tables.events, order="position"))
        bare = clock() - started
        started = clock()
        folded = fold_log(connection)
        ours = clock() - started
    return ReplayRow(database.engine.dialect.name, count, len(folded.states), count / ours, count / bare)


def bench_restart(
    short: Database, long: Database, *, histories: tuple[int, int], repeat: int, clock: Clock
) -> RestartRow:
    """All objects and open bindings loaded from the views, the head checked; the best of a few runs."""
    times = []
    objects = 0
    for database in (short, long):
        runs = []
        for _ in range(repeat):
            started = clock()
            with database.read() as connection:
                objects = len(load_world(connection).states)
            runs.append(clock() - started)
        times.append(min(runs) * 1000)
    return RestartRow(short.engine.dialect.name, objects, *histories, *times)


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
