"""The processes of a simulated run, where their objects live, and a store that is reset quickly."""

import os
import shutil
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from multiprocessing.util import Finalize
from pathlib import Path
from random import Random
from typing import Any, Protocol

from sqlalchemy import event

from volsched.binding.executor import QUEUES, Executor
from volsched.binding.recovery import Sweep, recover
from volsched.binding.rules.phases import Guards
from volsched.binding.rules.saga import advance
from volsched.cluster.foreign_api import ABLE, ForeignApi
from volsched.cluster.mirror import Mirror
from volsched.cluster.port import KUBERNETES, Cluster, ClusterError
from volsched.cluster.simulated import Call, ClusterFaults, Fate, SimulatedCluster
from volsched.lab.simulation.actors import OUTSIDE, ForeignController, ForeignProvisioner, Others
from volsched.lab.simulation.schedule import Schedule, ScheduleChoice
from volsched.log.database import Database, OtherWriters, open_database
from volsched.log.effects import due_queues
from volsched.log.migrations import migrate
from volsched.log.reactions import Reaction
from volsched.log.sessions import Observer, monotonic_clock
from volsched.provisioning.external import External
from volsched.provisioning.simulated import Array, Simulated
from volsched.pv_controller.completion import LegCompletion
from volsched.runtime.clock import SECOND, Clock, rfc3339
from volsched.runtime.settings import EFFECT_LEASE_SECONDS
from volsched.runtime.system import ProcessRole, System, embedded, local_cluster
from volsched.runtime.world import World
from volsched.scheduling.rules.configuration import DEFAULT, Configuration

# They are the real components, wired as in `serve` and the workers, except for time, ids and wake-ups, which
# the run provides.

MAX_ATTEMPTS = 50
"""Before an effect is parked: injected call failures are no reason to park work."""


@dataclass(slots=True)
class Bell:
    """Wake-ups between processes: lost, doubled and late as the schedule says, because SQL holds the work."""

    waiting: list[str] = field(default_factory=list)

    def ring(self, database: Database, now: int) -> None:
        """Rings for every queue with due work, unless a wake-up for it is pending."""
        for queue in due_queues(database, QUEUES, now=now):
            if queue not in self.waiting:
                self.waiting.append(queue)


class ProcessLife(Protocol):
    """A process while it lives."""

    def step(self, now: int, choice: ScheduleChoice) -> int: ...

    def is_idle(self, position: int, now: int) -> bool:
        """Whether it has read the log up to the position, and nothing is due: a step would do nothing."""


@dataclass(slots=True)
class Deciding:
    """A scheduler or a controller: it carries no effects out, and wakes the workers."""

    system: System

    def step(self, now: int, choice: ScheduleChoice) -> int:  # noqa: ARG002 - a Life's; it always does all it can
        return self.system.step(now)

    def is_idle(self, position: int, now: int) -> bool:
        return self.system.world.position == position and _later(self.system.next_due(), now)


@dataclass(slots=True)
class Working:
    executor: Executor
    bell: Bell

    def step(self, now: int, choice: ScheduleChoice) -> int:
        if not self.bell.waiting:
            return 0
        queue = self.bell.waiting.pop(choice.number("pick") % len(self.bell.waiting))
        progress = replace(self.executor, batch=choice.number("batch", 100)).step(queue, now)
        if progress:
            self.bell.ring(self.executor.database, now)
        return progress.done + progress.retried + progress.deposed

    def is_idle(self, position: int, now: int) -> bool:  # noqa: ARG002 - a Life's; it knows of nothing but its bell
        return not self.bell.waiting


@dataclass(slots=True)
class Sweeping:
    """A worker's beat: deadlines, parked work, recovery once in its life, and wake-ups for due work."""

    sweep: Sweep
    bell: Bell
    recovered: bool = False

    def step(self, now: int, choice: ScheduleChoice) -> int:  # noqa: ARG002 - a Life's
        if not self.recovered:
            self.recovered = recover(self.sweep.database, owner=self.sweep.owner, now=now).led
        progress = self.sweep.step(now)
        self.bell.ring(self.sweep.database, now)
        return progress

    def is_idle(self, position: int, now: int) -> bool:  # noqa: ARG002 - a Life's; it looks by itself
        return True


@dataclass(slots=True)
class Provisioning:
    external: External

    def step(self, now: int, choice: ScheduleChoice) -> int:  # noqa: ARG002 - a Life's
        self.external.update(self.external.world.catch_up(), now)
        return self.external.step(now)

    def is_idle(self, position: int, now: int) -> bool:
        return self.external.world.position == position and _later(self.external.next_due(), now)


@dataclass(slots=True)
class Mirroring:
    mirror: Mirror

    def step(self, now: int, choice: ScheduleChoice) -> int:  # noqa: ARG002 - a Life's; the line knows its options
        progress = self.mirror.step(now)
        return progress.observed + progress.relisted

    def is_idle(self, position: int, now: int) -> bool:  # noqa: ARG002 - a Life's; only a watch can tell
        return False


def _later(due: int | None, now: int) -> bool:
    return due is None or due > now


@dataclass(slots=True)
class RunSurroundings:
    """The surroundings that every process of a run gets."""

    database: Callable[[], Database]
    clock: Callable[[], int]
    new_id: Callable[[], str]
    guards: Guards
    bell: Bell = field(default_factory=Bell)
    line: Cluster | None = None
    """The connection to a foreign cluster; None if objects live in our own log."""
    stepwise: bool = True
    inside: Array = field(default_factory=Array)
    outside: Array = field(default_factory=Array)
    """Storage, which survives all processes."""

    @property
    def react(self) -> Reaction:
        return partial(advance, guards=self.guards)

    @property
    def _configuration(self) -> Configuration:
        profile = replace(
            DEFAULT.profile, counts_in_flight=self.guards.in_flight, remembers_failures=self.guards.memory
        )
        return DEFAULT if profile == DEFAULT.profile else replace(DEFAULT, profile=profile)

    def start(self, name: str, life: int) -> ProcessLife:
        """A new process of this name; `life` counts how often there was one before."""
        return _MAKERS[name.partition("-")[0]](self, f"{name}.{life}")

    def _deciding(self, owner: str, role: ProcessRole) -> Deciding:
        database = self.database()
        system = embedded(
            database,
            owner=owner,
            clock=self.clock,
            new_id=self.new_id,
            bell=lambda: self.bell.ring(database, self.clock()),
            provisioners=[Simulated(self.inside)],
            node_agent=role is ProcessRole.CONTROLLER,
            roles={role},
            configuration=self._configuration,
        )
        return Deciding(system)

    def _working(self, owner: str) -> Working:
        database = self.database()
        executor = Executor(
            database,
            self.line or local_cluster(database, clock=self.clock, new_uid=self.new_id),
            f"worker/{owner}",
            lease=EFFECT_LEASE_SECONDS * SECOND,
            guards=self.guards,
            react=self.react,
            max_attempts=MAX_ATTEMPTS,
            completion=None if self.stepwise else LegCompletion(f"controller/{owner}"),
        )
        return Working(executor, self.bell)

    def _sweeping(self, owner: str) -> Sweeping:
        return Sweeping(Sweep(self.database(), owner, react=self.react), self.bell)

    def _provisioning(self, _owner: str) -> Provisioning:
        database = self.database()
        return Provisioning(External(database, World(database), OUTSIDE, self.outside, self.new_id))

    def _mirroring(self, _owner: str) -> Mirroring:
        assert self.line is not None
        return Mirroring(Mirror(self.database(), self.line, react=self.react))


_MAKERS: Mapping[str, Callable[[RunSurroundings, str], ProcessLife]] = {
    "scheduler": lambda given, owner: given._deciding(owner, ProcessRole.SCHEDULER),
    "controller": lambda given, owner: given._deciding(owner, ProcessRole.CONTROLLER),
    "worker": lambda given, owner: given._working(owner),
    "sweep": lambda given, owner: given._sweeping(owner),
    "provisioner": lambda given, owner: given._provisioning(owner),
    "mirror": lambda given, owner: given._mirroring(owner),
}
OURS = {
    "local": (
        "scheduler-1", "controller-1", "worker-1", "sweep", "provisioner", "scheduler-2", "controller-2",
        "worker-2",
    ),
    "foreign": ("mirror-1", "scheduler-1", "worker-1", "sweep", "scheduler-2", "worker-2", "mirror-2"),
}  # fmt: skip
"""Processes by place; those numbered 2 exist to interfere with the others."""
THEIRS = {"local": (), "foreign": ("pv-controller", "pv-provisioner")}
"""Processes of the foreign cluster. They do not crash: a choice says which half of a step they do."""


# Where the objects of a simulated run live: in our own log, or in a foreign cluster that others write too.

PLAIN = "plain"
"""A choice that limits the foreign cluster to the abilities of a present Kubernetes."""


@dataclass(slots=True)
class SimulatedPlace:
    others: Others
    api: ForeignApi | None = None
    line: SimulatedCluster | None = None
    theirs: set[int] = field(default_factory=set)
    """The versions of a foreign cluster that others wrote."""
    _controller: ForeignController | None = None
    _provisioner: ForeignProvisioner | None = None

    @property
    def version(self) -> int:
        return 0 if self.api is None else int(self.api.head)

    def write(self, write: Callable[[], object]) -> str:
        """Carries out a write by others; a refusal is only noted."""
        before = self.version
        try:
            write()
        except ClusterError as error:
            return f"refused: {error}"
        finally:
            self.theirs.update(range(before + 1, self.version + 1))
        return "done"

    def step_theirs(self, choice: ScheduleChoice) -> None:
        """A step of one of a foreign cluster's own controllers, or half of it."""
        half = choice.options.get("half")
        if self._controller is not None and choice.who == "pv-controller":
            self._controller.step(begins=half != "second", finishes=half != "first")
        elif self._provisioner is not None:
            self._provisioner.step(finishes=half != "first")


def place_of(
    schedule: Schedule,
    database: Database,
    clock: Clock,
    new_id: Callable[[], str],
    fate: Callable[[Call], Fate | None],
) -> SimulatedPlace:
    if schedule.where == "local":
        return SimulatedPlace(Others(local_cluster(database, clock=clock, new_uid=new_id)))
    able = all(choice.verb != PLAIN for choice in schedule.choices)
    api = ForeignApi(now_text=lambda: rfc3339(clock()), capabilities=ABLE if able else KUBERNETES)
    line = SimulatedCluster(api, Random(0), ClusterFaults(slow_for=None), before=fate)
    return SimulatedPlace(Others(api), api, line, set(), ForeignController(api), ForeignProvisioner(api))


# A store for simulated runs that is reset quickly: a run should cost its own steps, not the creation of tables.
#
# The tables are created once; every run begins with a copy of that file. The engine stays, and with it every
# statement that SQLAlchemy has compiled. Nothing waits for a disk: a simulated crash loses memory, never the
# file.

IN_MEMORY = Path("/dev/shm")


class Slate:
    def __init__(self) -> None:
        usable = IN_MEMORY.is_dir() and os.access(IN_MEMORY, os.W_OK)
        self._directory = Path(tempfile.mkdtemp(prefix="volsched-drill-", dir=IN_MEMORY if usable else None))
        # Also at the end of a pool's process, which skips atexit handlers.
        self._remove = Finalize(self, shutil.rmtree, (self._directory, True), exitpriority=1)
        self._file = self._directory / "store.db"
        self._opened = open_database(f"sqlite:///{self._file}")
        event.listen(self._opened.engine, "connect", _unsynced)
        migrate(self._opened)
        self._opened.close()
        self._empty = self._file.read_bytes()

    def wiped(self) -> Database:
        """An empty, migrated store; the previous one is gone."""
        self._opened.close()
        for beside in ("-wal", "-shm"):
            Path(f"{self._file}{beside}").unlink(missing_ok=True)
        self._file.write_bytes(self._empty)
        return self.another()

    def another(self, clock: Callable[[], int] = monotonic_clock, *, drafts: bool = False) -> Database:
        """The same store as another process sees it: with its own cache.

        `clock` is its monotonic one. It has no session: a simulated crash does not end a process.
        """
        observer, others = Observer(clock=clock), OtherWriters(drafts=drafts or None)
        return Database(self._opened.engine, self._opened.dialect, observer=observer, others=others)

    def close(self) -> None:
        self._opened.close()
        self._remove()


def _unsynced(raw: Any, _record: object) -> None:
    raw.execute("PRAGMA synchronous = OFF")
