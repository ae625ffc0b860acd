"""The processes of a simulated run: each lives on its own memory, and a crash leaves nothing of it but the store.

They are the real ones, wired as `serve` and the workers wire them, but for time, ids and wake-ups, which the run
gives them.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Protocol

from volsched.binding.executor import QUEUES, Executor
from volsched.binding.recovery import recover
from volsched.binding.rules.phases import Guards
from volsched.binding.rules.saga import advance
from volsched.binding.sweep import Sweep
from volsched.cluster.mirror import Mirror
from volsched.cluster.port import Cluster
from volsched.lab.simulation.objects import OUTSIDE
from volsched.lab.simulation.schedule import ScheduleChoice
from volsched.log.database import Database
from volsched.log.effects import due_queues
from volsched.log.reactions import Reaction
from volsched.provisioning.external import External
from volsched.provisioning.simulated import Simulated
from volsched.provisioning.storage_array import Array
from volsched.runtime.system import ProcessRole, System, embedded, local_cluster
from volsched.runtime.world import World
from volsched.scheduling.rules.configuration import DEFAULT, Configuration

MAX_ATTEMPTS = 50
"""Before an effect is parked: a line that is bad on purpose is no reason to give work up."""


@dataclass(slots=True)
class Bell:
    """Wake-ups between processes: lost, doubled and late as a run likes, for SQL holds the work."""

    waiting: list[str] = field(default_factory=list)

    def ring(self, database: Database, now: int) -> None:
        """For every queue in which something is due, unless a wake-up for it waits already."""
        for queue in due_queues(database, QUEUES, now=now):
            if queue not in self.waiting:
                self.waiting.append(queue)


class ProcessLife(Protocol):
    """A process while it lives."""

    def step(self, now: int, choice: ScheduleChoice) -> int: ...

    def is_idle(self, position: int, now: int) -> bool:
        """It has read the log to here, and nothing is due: a step would only find that."""


@dataclass(slots=True)
class Deciding:
    """A scheduler or a controller: it has no hands, and rings for those who have."""

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
        self.executor.batch = choice.number("batch", 100)
        progress = self.executor.step(queue, now)
        if progress:
            self.bell.ring(self.executor.database, now)
        return progress.done + progress.retried + progress.deposed

    def is_idle(self, position: int, now: int) -> bool:  # noqa: ARG002 - a Life's; it knows of nothing but its bell
        return not self.bell.waiting


@dataclass(slots=True)
class Sweeping:
    """A worker's beat: deadlines, given-up work, recovery once in its life, and wake-ups for whatever is due."""

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
    """What every process of a run is given."""

    database: Callable[[], Database]
    clock: Callable[[], int]
    new_id: Callable[[], str]
    guards: Guards
    bell: Bell = field(default_factory=Bell)
    line: Cluster | None = None
    """To a foreign cluster; None where objects live in our own log."""
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
            guards=self.guards,
            react=self.react,
            max_attempts=MAX_ATTEMPTS,
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
"""Processes by place; those that are numbered 2 are there to be in the others' way."""
THEIRS = {"local": (), "foreign": ("pv-controller", "pv-provisioner")}
"""Of the foreign cluster. They do not crash: what they do half is said in the choice."""
