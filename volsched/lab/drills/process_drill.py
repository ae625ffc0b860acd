"""A drill with real processes: applies load, waits for the moment, injects faults, waits until settled, scores."""

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from math import ceil
from pathlib import Path

from sqlalchemy import select

from volsched.binding.rules.phases import LegPhase
from volsched.lab.drills.process_faults import ProcessFaults, ToolMissingError
from volsched.lab.drills.process_lanes import LaneWatch
from volsched.lab.drills.process_scenario import Moment, Play, Step
from volsched.lab.drills.process_work import (
    Pods,
    bound_pods,
    database_url,
    is_slow,
    named,
    open_bindings,
    partly_bound,
    pod_delays,
    queued_effects,
    scratch_stack,
    service_of_engine,
    unbound_pods,
)
from volsched.lab.drills.report import DrillReport, count_leaks
from volsched.lab.drills.timeline import Bar, DrillTimeline, Positions, TimelineMark, read_bars
from volsched.lab.faults import ON_SQLITE, STEPS
from volsched.lab.simulation.invariants import integrity, texts
from volsched.lab.stack.handle import Stack
from volsched.lab.stack.load import doubled
from volsched.lab.stack.states import Condition, ServiceState, process_of
from volsched.log import tables
from volsched.log.database import Database, open_database
from volsched.log.errors import StoreError
from volsched.log.reads.tail import read_head
from volsched.questions.invariants import violations
from volsched.runtime.clock import Patience, system_clock

# How soon bindings continue after a kill: from the first process that is ready to their next step.
#
# A process is ready when its log says so, not when a periodic health check has found it healthy: that would be
# seconds later, and improve the figure. If another process of its service survives, it is ready at once.

HANDS = ("scheduler", "controller", "worker")
"""The services that take a binding's next step; the API never does."""
READY = b"at work until"
"""The log line of each of them."""


@dataclass(slots=True)
class Readiness:
    stack: Stack
    position: int | None = None
    """The position of the log when all had been killed."""
    killed_at: float = 0
    at: float | None = None
    """When the first process was ready."""
    _logs: dict[Path, int] = field(default_factory=dict)
    """The logs of the killed processes, and their lengths."""

    def note_kill(self, names: Iterable[str], *, position: int, now: float) -> None:
        """Call it before these instances or services are killed."""
        seen, wanted = self.stack.published(), set(names)
        hands = [it for it in seen.instances if it.service in HANDS] if seen else []
        victims = [it for it in hands if wanted & {it.name, it.service}]
        if not victims:
            return
        if self.position is None:
            self.killed_at = now
        if self.at is None:
            self.position = position
        services = {it.service for it in victims}
        if any(it.service in services and it not in victims for it in hands):
            self.at = now
        for it in victims:
            log = self.stack.directory / "logs" / f"{it.name}.log"
            self._logs[log] = log.stat().st_size if log.exists() else 0

    def note_killed(self, position: int) -> None:
        """Call it afterwards, if the store answers: until then they may have taken a step."""
        if self._logs and self.at is None:
            self.position = position

    def observe(self, now: float) -> None:
        if self.at is None and any(_says_ready(log, begin) for log, begin in self._logs.items()):
            self.at = now

    def facts(self, bars: Sequence[Bar], stolen: frozenset[str]) -> Mapping[str, str]:
        """Leaves out bindings that wait for slow storage: they do not move even if everything is healthy."""
        if self.at is None:
            return {}
        moved = [it for it in bars if it.moved is not None and not is_slow(it.pod)]
        after = f"ready {self.at - self.killed_at:,.0f} ms after the kill"
        facts = {
            "next step after a process was ready, p50 / p99": [it for it in moved if it.binding not in stolen],
            "the same where a volume was stolen, p50 / p99": [it for it in moved if it.binding in stolen],
        }
        return {what: f"{self._waits_text(them)}; {after}" for what, them in facts.items() if them}

    def _waits_text(self, bars: Sequence[Bar]) -> str:
        ready = self.at or 0.0
        waits = sorted(max((it.moved or 0.0) - ready, 0.0) for it in bars)
        p50, p99 = (waits[max(ceil(share * len(waits)) - 1, 0)] for share in (0.5, 0.99))
        return f"{p50:,.0f} ms / {p99:,.0f} ms of {len(waits)} bindings"


def _says_ready(log: Path, begin: int) -> bool:
    try:
        with log.open("rb") as file:
            file.seek(begin)
            return READY in file.read()
    except OSError:
        return False


ASKED = (1, 2, 3, 4, 5, 6, 8, 14)
LOOK_SECONDS = 0.005
MOMENT_SECONDS = 120.0
NOTHING_IN_FLIGHT = (
    "no binding was in flight at the fault, so this shows nothing of recovery; choose another moment, or give the "
    "load pods whose storage takes seconds (with.load.slow)"
)
Report = Callable[[str], None]


class DrillError(Exception):
    """The drill could not be played; the message says how far it came."""


@dataclass(frozen=True, slots=True)
class Played:
    report: DrillReport
    timeline: DrillTimeline


def play(
    play: Play, *, engine: str, seed: int = 1, durable: bool = True, report: Report = lambda _: None
) -> Played:
    """Start a stack, break it as the scenario says, and score the result."""
    moment = play.moment.settled(seed)
    report(f"starting the processes ({engine})")
    with (
        scratch_stack(engine, scale=play.scale, moment=moment, durable=durable, lease=play.lease) as stack,
        closing(open_database(database_url(stack, engine), name="volsched drill")) as database,
        closing(Pods.prepared(stack.urls["api"], play.work)) as pods,
    ):
        run = _Run(
            play=play, engine=engine, moment=moment, stack=stack, database=database, pods=pods, report=report
        )
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
    report: Report
    positions: Positions = field(default_factory=Positions)
    marks: list[TimelineMark] = field(default_factory=list)
    faults_at: list[tuple[int, float]] = field(default_factory=list)
    """Positions of the log, and when."""
    settled: bool = False
    settled_at: float = 0
    held_back: bool = True
    """The process that reached the fault point must still stay there."""
    _began: float = field(default_factory=time.monotonic)
    _patience: Patience = field(default_factory=lambda: Patience(MOMENT_SECONDS))
    _most_bound: int = 0
    _faults: ProcessFaults = field(init=False)
    _readiness: Readiness = field(init=False)
    _lanes: LaneWatch = field(init=False)

    def __post_init__(self) -> None:
        self._lanes = LaneWatch(self.stack)
        self._readiness = Readiness(self.stack)
        self._faults = ProcessFaults(
            self.stack, self.engine, self.database, self.pods, self._until, time.monotonic
        )

    def perform(self) -> None:
        self._began = time.monotonic()
        self._until(self._reached)
        for step in self.play.faults:
            if step.target and not named(self.engine, step.target):
                self.report(f"{step}: there is none ({self.engine})")
                continue
            self.report(str(step))
            if not self.marks:
                # The fault hits the bindings that are in flight now.
                self.faults_at.append((self._head(), self._now()))
            elif STEPS[step.verb].disturbs:
                self._note_head()
            # Only a kill or a pause finds the process held; held, it could not end gracefully.
            self.held_back = step.verb in ("kill", "pause") and not self.marks
            self.marks.append(TimelineMark(at=self._now(), what=str(step)))
            self._note_victims(step)
            self._patience = Patience(max(self.play.patience, MOMENT_SECONDS))
            try:
                self._faults.carry_out(step)
                self._note_killed(step)
            except TimeoutError:
                told = f'"{step}" did not take effect, {self._unmoved}\n{self.stack.complaint()}'
                raise DrillError(told.rstrip()) from None
            except ToolMissingError as error:
                raise DrillError(f'"{step}": {error}') from None
            self.held_back = False
        if not self.marks:
            raise DrillError(f"none of its steps exists with --engine {self.engine}; choose another")
        self.report("waiting until everything has settled")
        self._patience = Patience(self.play.patience)
        try:
            self._until(self._settled)
        except TimeoutError:
            return
        self.settled, self.settled_at = True, self._now()

    def scored(self, seed: int) -> Played:
        self._observe()
        bars = read_bars(self.database, self.positions, self.faults_at, self._readiness.position)
        flying = [it for it in bars if it.in_flight]
        with self.database.read() as connection:
            wrong = texts(violations(connection, at_rest=self.settled))
        wrong += texts(list(integrity(self.database)))
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
            leaked=count_leaks(wrong),
            lost_pods=lost,
            recovery_ms=[round(max(it.ended - it.hit, 0), 1) for it in flying if it.hit is not None and it.ended],
            checked_invariants=ASKED,
            violations=wrong,
            delays_ms=[round(it, 1) for it in pod_delays(bars, self.marks[0].at)],
            inconclusive="" if flying else NOTHING_IN_FLIGHT,
            facts=self._facts(seed, bars),
        )
        end = self.settled_at or self._now()
        return Played(
            report, DrillTimeline(bars=bars, marks=self.marks, settled=end, lanes=self._lanes.lanes(end))
        )

    def _facts(self, seed: int, bars: Sequence[Bar]) -> Mapping[str, str]:
        engine = "one SQLite file" if self.engine == ON_SQLITE else "PostgreSQL, Redis, Celery"
        ended = Counter(it.state for it in bars)
        seen = self.stack.published()
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
        """Waits for the condition, while it keeps up the load and watches the log."""
        while True:
            self._observe()
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
            # The store itself may be down.
            return False

    def _observe(self) -> None:
        self._note_head(note=False)
        self._readiness.observe(self._now())
        self._lanes.observe(self._now())
        if self.moment.service is not None:
            service = service_of_engine(self.engine, self.moment.service)
            kept = {self._victim()} if self.held_back else set()
            self._faults.wake_others(service, kept)

    def _note_head(self, *, note: bool = True) -> None:
        try:
            head = self._head()
            if head not in self.positions.heads[-1:]:
                self._most_bound = max(self._most_bound, bound_pods(self.database))
        except StoreError:
            return
        self.positions.add_head(self._now(), head)
        if note:
            self.faults_at.append((head, self._now()))

    def _note_victims(self, step: Step) -> None:
        if STEPS[step.verb].kills:
            with suppress(StoreError):
                names = named(self.engine, step.target)
                self._readiness.note_kill(names, position=self._head(), now=self._now())

    def _note_killed(self, step: Step) -> None:
        if STEPS[step.verb].kills:
            with suppress(StoreError):
                self._readiness.note_killed(self._head())

    def _head(self) -> int:
        with self.database.read() as connection:
            return read_head(connection).position

    def _now(self) -> float:
        return round(1000 * (time.monotonic() - self._began), 1)

    # --- conditions -------------------------------------------------------------------------------------

    def _victim(self) -> str:
        """The instance that stays where the moment holds it."""
        assert self.moment.service is not None
        return f"{service_of_engine(self.engine, self.moment.service)}-1"

    def _reached(self) -> bool:
        work = self.play.work
        if self.moment.point is not None:
            return bool(self._faults.asleep(self._victim()))
        if self.moment.bound is not None:
            bound, every = bound_pods(self.database), work.all
            # Without a binding in flight the moment would show nothing, as long as another one may come.
            return bound >= self.moment.bound * every and (open_bindings(self.database) > 0 or bound >= every)
        if self.moment.partly:
            return self.pods.sent and partly_bound(self.database) >= max(work.stuck // 2, 1)
        return self.pods.sent

    def _settled(self) -> bool:
        """Every requested pod has its node, nothing is under way, and every process is healthy again."""
        if not self.pods.sent or bound_pods(self.database) < self.pods.expected:
            return False
        if unbound_pods(self.database) or open_bindings(self.database) or queued_effects(self.database):
            return False
        seen = self.stack.published()
        # Right after a kill the supervisor still reports the dead as healthy.
        return seen is not None and seen.settled and not any(map(_is_dead, seen.instances))


def _is_dead(service: ServiceState) -> bool:
    return service.condition is Condition.HEALTHY and (
        service.process is None or process_of(service.process) is None
    )


def _retained(database: Database, bars: Sequence[Bar]) -> Mapping[str, int]:
    legs, among = tables.binding_legs, database.dialect.among
    query = select(legs.c.reason).where(
        among(legs.c.binding, [it.binding for it in bars]), legs.c.state == LegPhase.RETAINED
    )
    with database.read() as connection:
        return Counter(reason or "no reason kept" for reason in connection.execute(query).scalars())
