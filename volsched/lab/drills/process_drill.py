"""A drill with real processes: a load, a moment, a fault, the wait for everything to settle, and the score."""

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field

from sqlalchemy import select

from volsched.binding.rules.phases import LegPhase
from volsched.lab.drills.process_faults import ProcessFaults, ToolMissingError
from volsched.lab.drills.process_places import database_url, held_service, named, scratch_stack
from volsched.lab.drills.process_scenario import ON_SQLITE, Moment, Play, Step
from volsched.lab.drills.process_work import (
    Pods,
    bound_pods,
    open_bindings,
    partly_bound,
    queued_effects,
    unbound_pods,
)
from volsched.lab.drills.readiness import Readiness
from volsched.lab.drills.report import DrillReport
from volsched.lab.drills.timeline import Bar, DrillTimeline, Positions, TimelineMark, read_bars
from volsched.lab.simulation.invariants_at_rest import integrity
from volsched.lab.simulation.violations import told
from volsched.lab.stack.handle import Stack
from volsched.lab.stack.identity import process_of
from volsched.lab.stack.load import doubled
from volsched.lab.stack.states import Condition, ServiceState
from volsched.log import tables
from volsched.log.database import Database, open_database
from volsched.log.errors import StoreError
from volsched.log.reads.tail import read_head
from volsched.questions.invariants import violations
from volsched.runtime.clock import system_clock
from volsched.runtime.patience import Patience

ASKED = (1, 2, 3, 4, 5, 6, 8, 14)
LOOK_SECONDS = 0.005
MOMENT_SECONDS = 120.0
NOTHING_IN_FLIGHT = (
    "no binding was in flight at the fault, so this shows nothing of recovery; choose another moment"
)
Told = Callable[[str], None]


class DrillError(Exception):
    """The drill could not be played; the message says how far it came."""


@dataclass(frozen=True, slots=True)
class Played:
    report: DrillReport
    timeline: DrillTimeline


def play(play: Play, *, engine: str, seed: int = 1, durable: bool = True, told: Told = lambda _: None) -> Played:
    """Start a stack, break it as the scenario says, and score what came of it."""
    moment = play.moment.settled(seed)
    told(f"starting the processes ({engine})")
    with (
        scratch_stack(engine, scale=play.scale, moment=moment, durable=durable, lease=play.lease) as stack,
        closing(open_database(database_url(stack, engine), name="volsched drill")) as database,
        closing(Pods.prepared(stack.urls["api"], play.work)) as pods,
    ):
        run = _Run(play=play, engine=engine, moment=moment, stack=stack, database=database, pods=pods, told=told)
        run.perform()
        try:
            return run.scored(seed)
        except StoreError as error:
            raise DrillError(f"there is no score, because the store does not answer: {error}") from None


@dataclass(slots=True, kw_only=True)
class _Run:
    play: Play
    engine: str
    moment: Moment
    stack: Stack
    database: Database
    pods: Pods
    told: Told
    positions: Positions = field(default_factory=Positions)
    marks: list[TimelineMark] = field(default_factory=list)
    faults_at: list[tuple[int, float]] = field(default_factory=list)
    """Positions of the log, and when."""
    settled: bool = False
    settled_at: float = 0
    held_back: bool = True
    """The process that came to the fault point is still to be left there."""
    _began: float = field(default_factory=time.monotonic)
    _patience: Patience = field(default_factory=lambda: Patience(MOMENT_SECONDS))
    _most_bound: int = 0
    _faults: ProcessFaults = field(init=False)
    _readiness: Readiness = field(init=False)

    def __post_init__(self) -> None:
        self._readiness = Readiness(self.stack)
        self._faults = ProcessFaults(
            self.stack, self.engine, self.database, self.pods, self._until, time.monotonic
        )

    def perform(self) -> None:
        self._began = time.monotonic()
        self._until(self._reached)
        for step in self.play.faults:
            if step.target and not named(self.engine, step.target):
                self.told(f"{step}: there is none ({self.engine})")
                continue
            self.told(str(step))
            if not self.marks:
                # What is begun and stands still now is what the fault hits.
                self.faults_at.append((self._head(), self._now()))
            elif step.verb in ("kill", "crash", "pause", "stop", "restart", "skew", "delete", "fill", "steal"):
                self._note_head()
            # Only what hits it where it stands finds it held; it could not end in good order.
            self.held_back = step.verb in ("kill", "pause") and not self.marks
            self.marks.append(TimelineMark(at=self._now(), what=str(step)))
            self._note_victims(step)
            self._patience = Patience(max(self.play.patience, MOMENT_SECONDS))
            try:
                self._faults.carry_out(step)
                self._note_killed(step)
            except TimeoutError:
                told = f'"{step}" did not come about, {self._unmoved}\n{self.stack.complaint()}'
                raise DrillError(told.rstrip()) from None
            except ToolMissingError as error:
                raise DrillError(f'"{step}": {error}') from None
            self.held_back = False
        if not self.marks:
            raise DrillError(f"none of its steps can be taken with --engine {self.engine}; choose another")
        self.told("waiting until everything has settled")
        self._patience = Patience(self.play.patience)
        try:
            self._until(self._settled)
        except TimeoutError:
            return
        self.settled, self.settled_at = True, self._now()

    def scored(self, seed: int) -> Played:
        self._look()
        bars = read_bars(self.database, self.positions, self.faults_at, self._readiness.position)
        flying = [it for it in bars if it.in_flight]
        with self.database.read() as connection:
            wrong = told(violations(connection, at_rest=self.settled))
        wrong += told(list(integrity(self.database)))
        lost = max(self.pods.expected - bound_pods(self.database), 0)
        if not self.settled:
            wrong.append(f"3: not everything has settled, {self._unmoved}")
        report = DrillReport(
            drill=self.play.name,
            about=self.play.about,
            faults=Counter(it.what for it in self.marks),
            in_flight=len(flying),
            resumed=sum(it.committed for it in flying),
            rolled_back=sum(it.state == "rolled-back" for it in flying),
            retained=_retained(self.database, flying),
            double_binds=doubled(self.database),
            leaked=sum(it.startswith(("2:", "3: effect")) or "still assumed" in it for it in wrong),
            lost_pods=lost,
            recovery_ms=[round(max(it.ended - it.hit, 0), 1) for it in flying if it.hit is not None and it.ended],
            asked=ASKED,
            violations=wrong,
            inconclusive="" if flying else NOTHING_IN_FLIGHT,
            facts=self._facts(seed, bars),
        )
        return Played(report, DrillTimeline(bars=bars, marks=self.marks, settled=self.settled_at or self._now()))

    def _facts(self, seed: int, bars: Sequence[Bar]) -> Mapping[str, str]:
        engine = "one SQLite file" if self.engine == ON_SQLITE else "PostgreSQL, Redis, Celery"
        ended = Counter(it.state for it in bars)
        seen = self.stack.seen()
        restarts = {it.name: it.restarts for it in seen.instances if it.restarts} if seen else {}
        claims = sum(it.legs for it in bars if it.committed)
        return {
            "engine": f"{self.engine} ({engine})",
            "moment": f"{self.moment}" + (f" (seed {seed})" if self.play.moment.drawn else ""),
            "pods": f"{self.pods.expected:,} bound with {claims:,} claims",
            "bindings in all": f"{ended['committed']:,} committed, {ended['rolled-back']:,} rolled back",
            "requests sent again": f"{self.pods.client.failures:,}",
            "processes started again": ", ".join(f"{name} {it}x" for name, it in restarts.items()) or "none",
            **self._readiness.facts(bars, frozenset(self._faults.stolen)),
            "all settled after the fault": f"{(self.settled_at - self.marks[0].at) / 1000:,.1f} s"
            if self.settled
            else "no",
        }

    # --- waiting ----------------------------------------------------------------------------------------

    def _until(self, condition: Callable[[], bool]) -> None:
        """Keep the load up and the log watched meanwhile."""
        while True:
            self._look()
            if self._holds(condition):
                return
            if self._patience.is_over(self._most_bound):
                if not self.marks:
                    raise DrillError(
                        f'the moment "{self.moment}" did not come, {self._unmoved}: '
                        f"{self._most_bound} of {self.play.work.all} pods are bound"
                    )
                raise TimeoutError
            if not self.pods.step(system_clock()):
                time.sleep(LOOK_SECONDS)

    @property
    def _unmoved(self) -> str:
        return f"and no further pod was bound for {self._patience.seconds:g} s"

    def _holds(self, condition: Callable[[], bool]) -> bool:
        try:
            return condition()
        except StoreError:
            # The store may be what is broken.
            return False

    def _look(self) -> None:
        self._note_head(note=False)
        self._readiness.look(self._now())
        if self.moment.service is not None:
            service = held_service(self.engine, self.moment.service)
            kept = {self._victim()} if self.held_back else set()
            self._faults.wake_others(service, kept)

    def _note_head(self, *, note: bool = True) -> None:
        try:
            head = self._head()
            if head not in self.positions.heads[-1:]:
                self._most_bound = max(self._most_bound, bound_pods(self.database))
        except StoreError:
            return
        self.positions.seen(self._now(), head)
        if note:
            self.faults_at.append((head, self._now()))

    def _note_victims(self, step: Step) -> None:
        if step.verb in ("kill", "crash"):
            with suppress(StoreError):
                names = named(self.engine, step.target)
                self._readiness.note_kill(names, position=self._head(), now=self._now())

    def _note_killed(self, step: Step) -> None:
        if step.verb in ("kill", "crash"):
            with suppress(StoreError):
                self._readiness.note_killed(self._head())

    def _head(self) -> int:
        with self.database.read() as connection:
            return read_head(connection).position

    def _now(self) -> float:
        return round(1000 * (time.monotonic() - self._began), 1)

    # --- conditions -------------------------------------------------------------------------------------

    def _victim(self) -> str:
        """The instance that is left where the moment holds it."""
        assert self.moment.service is not None
        return f"{held_service(self.engine, self.moment.service)}-1"

    def _reached(self) -> bool:
        work = self.play.work
        if self.moment.point is not None:
            return bool(self._faults.asleep(self._victim()))
        if self.moment.bound is not None:
            bound, every = bound_pods(self.database), work.all
            # A moment at which nothing is in flight would show nothing, as long as another one may come.
            return bound >= self.moment.bound * every and (open_bindings(self.database) > 0 or bound >= every)
        if self.moment.partly:
            return self.pods.sent and partly_bound(self.database) >= max(work.stuck // 2, 1)
        return self.pods.sent

    def _settled(self) -> bool:
        """Every pod that was asked for has its node, nothing is under way, and every process is well again."""
        if not self.pods.sent or bound_pods(self.database) < self.pods.expected:
            return False
        if unbound_pods(self.database) or open_bindings(self.database) or queued_effects(self.database):
            return False
        seen = self.stack.seen()
        # Right after a kill the supervisor still takes the dead for healthy.
        return seen is not None and seen.settled and not any(map(_is_dead, seen.instances))


def _is_dead(seen: ServiceState) -> bool:
    return seen.condition is Condition.HEALTHY and (seen.process is None or process_of(seen.process) is None)


def _retained(database: Database, bars: Sequence[Bar]) -> Mapping[str, int]:
    legs, among = tables.binding_legs, database.dialect.among
    asked = select(legs.c.reason).where(
        among(legs.c.binding, [it.binding for it in bars]), legs.c.state == LegPhase.RETAINED
    )
    with database.read() as connection:
        return Counter(reason or "no reason kept" for reason in connection.execute(asked).scalars())
