"""The composition root: the whole system in one process, stepped, on the cluster and in the roles it is given.

One thread goes round; each part does a batch, so many pods share a commit. Tests and simulations step it with
their own clock, the runner with the machine's.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from enum import StrEnum

from volsched.binding.executor import LEASE, QUEUES, WRITES, Executor
from volsched.binding.recovery import recover
from volsched.binding.rules.saga import BIND_POD
from volsched.binding.sweep import Sweep
from volsched.cluster.local import LocalCluster
from volsched.cluster.mirror import Mirror
from volsched.cluster.port import Cluster
from volsched.kube.uids import uid_of
from volsched.log.commands import Command, Done
from volsched.log.database import Database
from volsched.log.effects import due_queues, next_due
from volsched.log.transaction import execute
from volsched.node_agent.agent import NodeAgent
from volsched.provisioning.protocol import Provisioner
from volsched.pv_controller.controller import Controller
from volsched.runtime.clock import SECOND, Clock, rfc3339
from volsched.runtime.participant import Part
from volsched.runtime.world import World
from volsched.scheduling.cluster_view import Picture
from volsched.scheduling.index import Index
from volsched.scheduling.queue.queue import Queue
from volsched.scheduling.queue.shares import ALL, Share
from volsched.scheduling.rules.configuration import DEFAULT, Configuration
from volsched.scheduling.scheduler import Scheduler
from volsched.workloads.controllers import Upkeep, upkeep_parts
from volsched.workloads.expiry import DEFAULT_KEEP, Keep

SWEEP_EVERY = 1 * SECOND
RECOVER_AGAIN = 1 * SECOND
BATCH = 400
"""Effects in one commit. Nobody else waits for them here, so it may be more than a worker takes at once."""


TAKE_OVER_BATCHES = 10
"""Of each queue, at the start: as many as a busy system has in flight. What is more is for whoever is there."""


class ProcessRole(StrEnum):
    """What a process does of all there is to do, beside carrying effects out."""

    SCHEDULER = "scheduler"
    CONTROLLER = "controller"
    """The PV controller and all other parts: small controllers, node agent, provisioners."""


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
    mirror: Mirror | None = None
    """Observes the cluster, where its objects do not live in our own log."""
    parts: Sequence[Part] = ()
    """What else takes part: node agents, provisioners, workload controllers."""
    bell: Bell | None = None
    """With one, effects are carried out by the workers it wakes, and this process only decides."""
    takes_over: bool = False
    """At its start it carries out what was in flight itself, also with a bell: only for objects of our own log."""
    roles: Collection[ProcessRole] = frozenset(ProcessRole)
    _sweep_at: int = 0
    _recover_at: int | None = 0
    """None: it is done."""

    def step(self, now: int) -> int:
        """Let every part do a batch of its work; 0 where nothing could be done now."""
        progress = 0
        if self._recover_at is not None and now >= self._recover_at:
            led = recover(self.database, owner=self.executor.owner, now=now).led
            # Whoever leads may have died of it: then it is for us after all.
            self._recover_at = None if led else now + RECOVER_AGAIN
            progress += self._take_over(now) if self.takes_over else 0
        progress += self._observe(now) + self.catch_up(now)
        # Pods before claims: what is planned in this round is written and completed in it, and the controller need
        # not look at a claim before there is something to be done about it.
        if ProcessRole.SCHEDULER in self.roles:
            progress += self.scheduler.step(now)
        progress += self._carry_out(WRITES, now)
        progress += self.catch_up(now)
        if ProcessRole.CONTROLLER in self.roles:
            progress += self.controller.step(now)
            progress += sum(part.step(now) for part in self.parts)
        progress += self._carry_out((BIND_POD,), now)
        progress += self._sweep(now)
        if self.bell is not None and progress:
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
        scheduling: tuple[Part, ...] = (self.scheduler,) if ProcessRole.SCHEDULER in self.roles else ()
        controlling: tuple[Part, ...] = (
            (self.controller, *self.parts) if ProcessRole.CONTROLLER in self.roles else ()
        )
        return scheduling + controlling

    def _take_over(self, now: int) -> int:
        """The next step of bindings that were in flight when processes died, before anything else.

        With our own hands also where there are workers: these may have died too, and still be starting.
        """
        progress = 0
        for queue in QUEUES:
            for _ in range(TAKE_OVER_BATCHES):
                if not due_queues(self.database, (queue,), now=now):
                    break
                progress += self.executor.step(queue, now).done
        return progress

    def _observe(self, now: int) -> int:
        if self.mirror is None:
            return 0
        progress = self.mirror.step(now)
        return progress.observed + progress.relisted

    def _carry_out(self, queues: Sequence[str], now: int) -> int:
        if self.bell is not None:
            return 0
        progress = 0
        # Asked first, and for all at once: most of the time nothing is due, and to claim takes the write lock.
        due = due_queues(self.database, queues, now=now)
        for queue in queues:
            # What was done in one may be followed by something in the next.
            if queue in due or (progress and due_queues(self.database, (queue,), now=now)):
                progress += self.executor.step(queue, now).done
        return progress

    def _sweep(self, now: int) -> int:
        if self.bell is not None or now < self._sweep_at:
            return 0
        self._sweep_at = now + SWEEP_EVERY
        return self.sweep.step(now)

    def catch_up(self, now: int) -> int:
        """Read on in the log, and let every part know what has changed."""
        begins = self.world.position < 0
        changed = self.world.catch_up()
        touched = changed
        if ProcessRole.SCHEDULER in self.roles:
            touched = self.picture.update(changed)
            if begins:
                self.picture.recall(now)
            self.picture.expire(now)
        for part in self._all():
            part.update(touched if part is self.scheduler else changed, now)
        return len(changed)


def embedded(
    database: Database,
    *,
    owner: str,
    clock: Clock,
    new_id: Callable[[], str],
    cluster: Cluster | None = None,
    new_uid: Callable[[], str] | None = None,
    bell: Bell | None = None,
    takes_over: bool = False,
    provisioners: Sequence[Provisioner] = (),
    node_agent: bool = False,
    other_agents: bool = False,
    without: Collection[Upkeep] = (),
    configuration: Configuration = DEFAULT,
    share: Share = ALL,
    roles: Collection[ProcessRole] = frozenset(ProcessRole),
    keep: Keep = DEFAULT_KEEP,
    lease: int = LEASE,
) -> System:
    """Everything that works on a cluster, in one process; given a bell, without hands of its own.

    Without a `cluster`, objects live in the database's own log. Any other one is mirrored into it, and has
    controllers of its own, which are left out of the `roles`. `lease`: how long whoever claims an effect holds it.
    `without` names the small controllers that are left out; `share` says which of several schedulers this is.
    `other_agents`: the nodes have agents of their own, which run pods and end them in place of ours.
    Without `new_uid`, objects that are made get uids that follow from ids.
    """
    uid = new_uid or (lambda: uid_of(new_id()))
    if cluster is None:
        disabled = Upkeep.ZONAL_UPGRADE in without
        cluster = local_cluster(database, clock=clock, new_uid=uid, disable_zonal_upgrade=disabled)
    is_foreign = not cluster.capabilities.is_own_log
    if is_foreign and ProcessRole.CONTROLLER in roles:
        raise ValueError("a foreign cluster has controllers of its own; leave Role.CONTROLLER out of the roles")
    world = World(database)
    hold = configuration.capacity_hold_seconds * SECOND
    picture = Picture(world, Index(profile=configuration.profile, share=share), hold)
    parts: list[Part] = upkeep_parts(
        database,
        world,
        owner=owner,
        new_uid=uid,
        agents=node_agent or other_agents,
        without=without,
        keep=keep,
    )
    if node_agent:
        parts.append(NodeAgent(database, world, f"node-agent/{owner}", uid))
    return System(
        database=database,
        world=world,
        picture=picture,
        scheduler=Scheduler(
            database,
            picture,
            f"scheduler/{owner}",
            new_id,
            bind_timeout_seconds=configuration.bind_timeout_seconds,
            queue=Queue(share, configuration.waits),
        ),
        controller=Controller(database, world, f"controller/{owner}", provisioners=provisioners, new_uid=uid),
        executor=Executor(database, cluster, f"worker/{owner}", lease=lease, batch=BATCH),
        sweep=Sweep(database, f"sweep/{owner}"),
        mirror=Mirror(database, cluster) if is_foreign else None,
        parts=parts,
        bell=bell,
        takes_over=takes_over,
        roles=roles,
    )


def local_cluster(
    database: Database, *, clock: Clock, new_uid: Callable[[], str], disable_zonal_upgrade: bool = False
) -> LocalCluster:
    """The cluster whose objects live in the database's own log."""

    def append(command: Command) -> Done:
        (outcome,) = execute(database, [command], now=clock())
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    return LocalCluster(
        database,
        append,
        new_uid=new_uid,
        now_text=lambda: rfc3339(clock()),
        disable_zonal_upgrade=disable_zonal_upgrade,
    )
