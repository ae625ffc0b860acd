"""The whole system in one process, stepped: scheduler, executor, controller, sweep over one world.

One thread goes round; each part does a batch, so many pods share a commit. Tests and simulations step it with
their own clock, the runner with the machine's.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from volsched.cluster.local import LocalCluster
from volsched.engine.clock import SECOND, Clock, rfc3339
from volsched.engine.controller import Controller
from volsched.engine.executor import LEASE, QUEUES, Executor
from volsched.engine.parts import Part
from volsched.engine.picture import Picture
from volsched.engine.recovery import recover
from volsched.engine.scheduler import Scheduler
from volsched.engine.sweep import Sweep
from volsched.engine.world import World
from volsched.store.commands import Command, Done
from volsched.store.database import Database
from volsched.store.effects import next_due
from volsched.store.transaction import execute

SWEEP_EVERY = 1 * SECOND
RECOVER_AGAIN = 1 * SECOND
Bell = Callable[[], None]
"""Wakes workers in other processes for what was just committed. It must not fail: they look by themselves too."""


@dataclass(slots=True)
class System:
    database: Database
    world: World
    picture: Picture
    scheduler: Scheduler
    controller: Controller
    executor: Executor
    sweep: Sweep
    parts: Sequence[Part] = ()
    """What else takes part: node agents, provisioners, workload controllers."""
    bell: Bell | None = None
    """With one, effects are carried out by the workers it wakes, and this process only decides."""
    _sweep_at: int = 0
    _recover_at: int | None = 0
    """None: it is done."""

    def step(self, now: int) -> int:
        """Let every part do a batch of its work; 0 where nothing could be done now."""
        if self._recover_at is not None and now >= self._recover_at:
            led = recover(self.database, owner=self.executor.owner, now=now).led
            # Whoever leads may have died of it: then it is for us after all.
            self._recover_at = None if led else now + RECOVER_AGAIN
        progress = self.catch_up(now)
        progress += self.controller.step(now)
        progress += sum(part.step(now) for part in self.parts)
        progress += self.catch_up(now)
        progress += self.scheduler.step(now)
        if self.bell is None:
            progress += self._carry_out(now)
        elif progress:
            self.bell()
        return progress

    def close(self) -> None:
        """Leave nothing behind that others would have to wait for."""
        self.controller.close()

    def next_due(self) -> int | None:
        """When something becomes due that nobody has to be woken for; None: nothing waits for a time."""
        waits = [part.next_due() for part in self._all()]
        if self.bell is None:
            waits += [self.sweep.next_due(), *(next_due(self.database, queue=queue) for queue in QUEUES)]
        return min((due for due in waits if due is not None), default=None)

    def _all(self) -> tuple[Part, ...]:
        return (self.scheduler, self.controller, *self.parts)

    def _carry_out(self, now: int) -> int:
        progress = sum(self.executor.step(queue, now).done for queue in QUEUES)
        if now >= self._sweep_at:
            self._sweep_at = now + SWEEP_EVERY
            progress += self.sweep.step(now)
        return progress

    def catch_up(self, now: int) -> int:
        """Read on in the log, and let every part know what has changed."""
        changed = self.world.catch_up()
        self.picture.update(changed)
        for part in self._all():
            part.update(changed, now)
        return len(changed)


def embedded(
    database: Database, *, owner: str, clock: Clock, new_id: Callable[[], str], bell: Bell | None = None
) -> System:
    """A system on objects that live in the database's own log; given a bell, without hands of its own."""
    world = World(database)
    picture = Picture(world)
    return System(
        database=database,
        world=world,
        picture=picture,
        scheduler=Scheduler(database, picture, f"scheduler/{owner}", new_id),
        controller=Controller(database, world, f"controller/{owner}"),
        executor=local_executor(database, owner=owner, clock=clock, new_id=new_id),
        sweep=Sweep(database, f"sweep/{owner}"),
        bell=bell,
    )


def local_executor(
    database: Database, *, owner: str, clock: Clock, new_id: Callable[[], str], lease: int = LEASE
) -> Executor:
    """The hands of a system whose objects live in the database's own log."""

    def append(command: Command) -> Done:
        (outcome,) = execute(database, [command], now=clock())
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    cluster = LocalCluster(database, append, new_uid=new_id, now_text=lambda: rfc3339(clock()))
    return Executor(database, cluster, f"worker/{owner}", lease=lease)
