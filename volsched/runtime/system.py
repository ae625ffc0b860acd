"""The composition root: the whole system in one process, stepped, for a given cluster and given roles.

One thread steps all parts in turn; each does a batch, so many pods share a commit. Tests and simulations step it
with their own clock, the runner with the machine's.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from enum import StrEnum

from volsched.binding.executor import QUEUES, WRITES, Executor, SideBySide
from volsched.binding.recovery import Sweep, recover
from volsched.binding.rules.effects import BIND_POD
from volsched.binding.rules.foreign_notice import TELL
from volsched.cluster.local import LocalCluster
from volsched.cluster.mirror import Mirror
from volsched.cluster.observer import ClusterObserver
from volsched.cluster.port import Cluster
from volsched.kube.meta import ATTACHED_SCHEDULERS, OUR_SCHEDULERS
from volsched.kube.names import uid_of
from volsched.log.commands import Command, Done
from volsched.log.database import Database
from volsched.log.effects import due_queues, next_due
from volsched.log.observed_cluster import require_own_objects
from volsched.log.reads.tail import read_head
from volsched.log.transaction import execute
from volsched.node_agent.agent import NodeAgent
from volsched.provisioning.protocol import Provisioner
from volsched.pv_controller.completion import LegCompletion
from volsched.pv_controller.controller import Controller
from volsched.runtime.clock import SECOND, Clock, rfc3339
from volsched.runtime.settings import EFFECT_LEASE_SECONDS
from volsched.runtime.world import Part, World
from volsched.scheduling.cluster_view import Picture
from volsched.scheduling.gate_patience import GatePatience
from volsched.scheduling.index import Index
from volsched.scheduling.queue.entry import ALL, Share
from volsched.scheduling.queue.queue import Queue
from volsched.scheduling.rules.configuration import DEFAULT, Configuration
from volsched.scheduling.scheduler import Scheduler
from volsched.scheduling.seats import Seat
from volsched.workloads.controllers import Upkeep, upkeep_parts
from volsched.workloads.garbage_collector import DEFAULT_KEEP, Keep
from volsched.workloads.repairs import StaleNodes

SWEEP_EVERY = 1 * SECOND
RECOVER_AGAIN = 1 * SECOND
LONGEST_REST = 1 * SECOND
"""The longest time between two steps: a wake-up may be lost, and another process's death makes no commit."""
STAND_BY = SECOND // 4
"""The longest time between two steps of a controller that does not lead: it tries to take the lease."""
BATCH = 400
"""Effects in one commit: more than a worker claims at once, because no other process waits for them here."""


TAKE_OVER_BATCHES = 10
"""Batches per queue at the start: as many as a busy system has in flight. The workers do the rest."""


class ProcessRole(StrEnum):
    """The roles of a process, besides carrying out effects."""

    SCHEDULER = "scheduler"
    CONTROLLER = "controller"
    """The PV controller and all other parts: small controllers, node agent, provisioners."""


Bell = Callable[[], None]
"""Wakes workers in other processes for committed work. It must not raise: they also poll."""


@dataclass(slots=True)
class System:
    database: Database
    world: World
    picture: Picture
    scheduler: Scheduler
    controller: Controller
    executor: Executor
    sweep: Sweep
    observes: Callable[[int], int] | None = None
    """Observes a foreign cluster, whose objects are not in our own log."""
    knows_cluster: Callable[[], bool] = lambda: True
    """Whether every kind was listed since this process began. Before that there are no decisions and no writes:
    the views may be those of a restored backup."""
    may_act: Callable[[], bool] = lambda: True
    """Whether this installation holds its lock on a foreign cluster; without it, the cluster is only observed."""
    parts: Sequence[Part] = ()
    """The other participants: node agents, provisioners, workload controllers."""
    bell: Bell | None = None
    """If set, the workers that it wakes carry out the effects, and this process only decides."""
    takes_over: bool = False
    """Carry out the work in flight at the start, also with a bell: only for objects of our own log."""
    roles: Collection[ProcessRole] = frozenset(ProcessRole)
    beside_scheduler: Sequence[Part] = ()
    """On a foreign cluster: parts that remove the gates of pods without a node, and deleted nodes from claims."""
    seat: Seat | None = None
    """If set, the scheduler shares the pods with all others that hold a seat."""
    _sweep_at: int = 0
    _recover_at: int | None = 0
    """When to recover; None: done."""

    def step(self, now: int) -> int:
        """Let every part do a batch of its work; 0 if there was no work."""
        progress = self._observe(now)
        if not self.knows_cluster() or not self.may_act():
            return progress
        if self._recover_at is not None and now >= self._recover_at:
            led = recover(self.database, owner=self.executor.owner, now=now).led
            # The leader may die during recovery: then we recover.
            self._recover_at = None if led else now + RECOVER_AGAIN
            progress += self._take_over(now) if self.takes_over else 0
        progress += self.catch_up(now)
        # Pods before claims: plans of this round are written and completed in it, and the controller sees a claim
        # only when it can act on it.
        if ProcessRole.SCHEDULER in self.roles:
            if self.seat is not None and self.seat.step(now):
                self.scheduler.share_as(self.seat.share)
            progress += self.scheduler.step(now)
            progress += sum(part.step(now) for part in self.beside_scheduler)
        progress += self._carry_out(WRITES, now)
        progress += self.catch_up(now)
        if ProcessRole.CONTROLLER in self.roles:
            progress += self.controller.step(now)
            progress += sum(part.step(now) for part in self.parts)
        progress += self._carry_out((BIND_POD, TELL), now)
        progress += self._sweep(now)
        if self.bell is not None and progress:
            self.bell()
        return progress

    def close(self) -> None:
        """Release all leases that other processes would have to wait for."""
        self.controller.close()
        if self.seat is not None:
            self.seat.close()

    def next_due(self) -> int | None:
        """When work becomes due without a wake-up; None: no work waits for a time."""
        waits = [part.next_due() for part in self._all()]
        if self.bell is None:
            waits += [self.sweep.next_due(), next_due(self.database, queues=QUEUES)]
        return min((due for due in waits if due is not None), default=None)

    def rests_until(self, now: int) -> int:
        """When to step again after a step without work, if no commit wakes us before."""
        if self.observes is not None:
            # A foreign cluster's changes make no commits that wake us.
            return now
        is_standby = ProcessRole.CONTROLLER in self.roles and not self.controller.leads
        waits = [now + (STAND_BY if is_standby else LONGEST_REST), *(part.next_due() for part in self._all())]
        if self.bell is None:
            # The sweep finds deadlines.
            waits += [self._sweep_at, next_due(self.database, queues=QUEUES)]
        return min(due for due in waits if due is not None)

    def _all(self) -> tuple[Part, ...]:
        scheduling: tuple[Part, ...] = ()
        if ProcessRole.SCHEDULER in self.roles:
            scheduling = (self.scheduler, *self.beside_scheduler)
        controlling: tuple[Part, ...] = (
            (self.controller, *self.parts) if ProcessRole.CONTROLLER in self.roles else ()
        )
        return scheduling + controlling

    def _take_over(self, now: int) -> int:
        """Continue the bindings that were in flight when processes died, before all other work.

        This process does it even if there are workers: they may have died too, and still be starting.
        """
        progress = 0
        for queue in QUEUES:
            for _ in range(TAKE_OVER_BATCHES):
                if not due_queues(self.database, (queue,), now=now):
                    break
                progress += self.executor.step(queue, now).done
        return progress

    def _observe(self, now: int) -> int:
        return 0 if self.observes is None else self.observes(now)

    def _carry_out(self, queues: Sequence[str], now: int) -> int:
        if self.bell is not None:
            return 0
        progress = 0
        # Checked first, for all queues at once: usually none is due, and claiming takes the write lock.
        due = due_queues(self.database, queues, now=now)
        for place, queue in enumerate(queues, start=1):
            done = self.executor.step(queue, now).done if queue in due else 0
            if done and queues[place:]:
                # Work done in one queue may add work to the next ones.
                due = due_queues(self.database, queues[place:], now=now)
            progress += done
        return progress

    def _sweep(self, now: int) -> int:
        if self.bell is not None or now < self._sweep_at:
            return 0
        self._sweep_at = now + SWEEP_EVERY
        return self.sweep.step(now)

    def catch_up(self, now: int) -> int:
        """Read the log's tail, and pass the changes to every part."""
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


@dataclass(slots=True)
class Adviser:
    """Follows a foreign cluster and ends expired reservations. It makes no decisions or plans by itself and has no
    executor: each answer is decided on request."""

    observer: ClusterObserver
    sweep: Sweep
    _sweep_at: int = 0

    def step(self, now: int) -> int:
        progress = self.observer.step(now)
        if now < self._sweep_at or not self.observer.mirror.is_listed:
            return progress
        self._sweep_at = now + SWEEP_EVERY
        return progress + self.sweep.step(now)

    def rests_until(self, now: int) -> int:
        """At once: the cluster's watches do not wake this loop."""
        return now

    def close(self) -> None:
        """Nothing to release: it holds no lease."""


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
    share: Share | None = ALL,
    roles: Collection[ProcessRole] = frozenset(ProcessRole),
    keep: Keep = DEFAULT_KEEP,
    lease: int = EFFECT_LEASE_SECONDS * SECOND,
    observer: ClusterObserver | None = None,
    names: tuple[str, ...] | None = None,
    gate: str | None = None,
    side_by_side: SideBySide | None = None,
    may_act: Callable[[], bool] = lambda: True,
    stepwise: bool = True,
) -> System:
    """All parts that work on a cluster, in one process; with a bell, workers carry out the effects.

    Without a `cluster`, objects live in the database's own log. Any other cluster is mirrored into it, and has
    controllers of its own, which are left out of the `roles`. `lease`: how long a claimed effect is held.
    `without` names the small controllers that are left out; `share` says which of several schedulers this is;
    None: the schedulers of the store agree on it among themselves.
    `other_agents`: the nodes have agents of their own, which run pods and end them in place of ours. Without
    `new_uid`, new objects get uids derived from ids. `observer`: follows a foreign cluster in place of a mirror
    of its own. `names`: the schedulerNames whose pods are ours; on a foreign cluster `volsched` alone.
    `gate`: claims of pods behind this gate are bound, and no pod is placed.
    `side_by_side`: makes the calls to a foreign cluster several at a time. `may_act`: whether this installation
    holds its lock on a foreign cluster. `stepwise`: each step of a binding is a transaction of its own, also where
    one could do.
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
    picture = Picture(world, Index(profile=configuration.profile, share=share or ALL), hold)
    parts: list[Part] = upkeep_parts(
        database,
        world,
        owner=owner,
        new_uid=uid,
        agents=node_agent or other_agents,
        without=without,
        keep=keep,
    )
    mirror = (Mirror(database, cluster) if observer is None else observer.mirror) if is_foreign else None
    observes: Callable[[int], int] | None = None
    if observer is not None:
        observes = observer.step
    elif mirror is not None:
        observes = lambda now: _observed(mirror, now)  # noqa: E731
    with database.read() as connection:
        began_at = read_head(connection).position
    beside: list[Part] = []
    if gate is not None:
        beside.append(GatePatience(database, picture, gate, f"scheduler/{owner}"))
    if is_foreign:
        patience = configuration.gone_node_seconds
        beside.append(StaleNodes(database, world, f"stale-nodes/{owner}", patience, is_foreign=True))
    if node_agent:
        parts.append(NodeAgent(database, world, f"node-agent/{owner}", uid))
    executor = Executor(
        database,
        cluster,
        f"worker/{owner}",
        lease=lease,
        batch=BATCH,
        began_at=began_at if is_foreign else 0,
        side_by_side=side_by_side,
        may_act=may_act,
        completion=None if stepwise else LegCompletion(f"controller/{owner}"),
    )
    queue = Queue(share or ALL, configuration.waits)
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
            queue=queue,
            names=names or (ATTACHED_SCHEDULERS if is_foreign else OUR_SCHEDULERS),
            gate=gate,
            # With workers, they do it: a decision is committed as soon as it is made.
            continuation=executor.continuation if bell is None else None,
        ),
        beside_scheduler=tuple(beside),
        controller=Controller(
            database,
            world,
            f"controller/{owner}",
            provisioners=provisioners,
            new_uid=uid,
            is_undecided=queue.is_undecided,
        ),
        executor=executor,
        sweep=Sweep(database, f"sweep/{owner}"),
        observes=observes,
        knows_cluster=lambda: mirror is None or mirror.is_listed,
        may_act=may_act,
        parts=parts,
        bell=bell,
        takes_over=takes_over,
        roles=roles,
        seat=Seat(database, f"scheduler/{owner}") if share is None else None,
    )


def _observed(mirror: Mirror, now: int) -> int:
    progress = mirror.step(now)
    return progress.observed + progress.relisted


def local_cluster(
    database: Database, *, clock: Clock, new_uid: Callable[[], str], disable_zonal_upgrade: bool = False
) -> LocalCluster:
    """The cluster whose objects are in the database's own log. Raises MirroredStoreError for a mirror's store."""
    require_own_objects(database)

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
