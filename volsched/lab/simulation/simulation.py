"""One simulated run: the whole system in one thread, played from a schedule, until everything is at rest."""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial

from volsched.binding.rules.phases import ALL_GUARDS, Guards
from volsched.lab.simulation.actors import new_objects
from volsched.lab.simulation.invariants import RunObserver
from volsched.lab.simulation.process_lives import Lives
from volsched.lab.simulation.processes import (
    OURS,
    THEIRS,
    Deciding,
    RunSurroundings,
    SimulatedPlace,
    Slate,
    place_of,
)
from volsched.lab.simulation.schedule import Schedule, ScheduleChoice
from volsched.log.reads.tail import read_head
from volsched.provisioning.protocol import CreateVolume
from volsched.questions.invariants import Violation
from volsched.runtime import fault_points
from volsched.runtime.clock import MILLISECOND, SECOND

# The end of a simulated run: faults stop, and within bounded rounds everything is at rest and consistent.

ROUNDS = 150
QUIET = tuple(seconds * SECOND for seconds in (0, 4, 125))
"""At rest means no change over these waits: beyond leases, back-offs, throttled requests and held capacity."""
DRAINING = 60
SECOND_ONES = "-2"
"""Processes with this suffix existed only to interfere; they are removed at the end."""


def calm_down(run: "Simulation") -> list[Violation]:
    """Brings the run to rest; returns the violations."""
    lives, watching = run.lives, run.watching
    lives.heal()
    run.mishaps.clear()
    for array in (run.surroundings.inside, run.surroundings.outside):
        for name in array.volume_names():
            array.finish(name)
    if run.place.line is not None:
        run.place.line.land()
    with lives.aside():
        run.place.write(run.place.others.uncordon)
    lives.born = {who: life for who, life in lives.born.items() if not who.endswith(SECOND_ONES)}
    violations, still, since = watching.check(lives.commits), 0, lives.now
    for _ in range(ROUNDS):
        if violations or run.violations:
            return violations
        before, abroad = watching.lookout.position, _head_abroad(run)
        with lives.aside():
            run.place.write(run.place.others.give_up_stuck_pods)
        lives.now += QUIET[still]
        _round(run, everybody=still == len(QUIET) - 1)
        violations = watching.check(lives.commits) + watching.too_many_plans(since)
        still = 0 if watching.has_moved(before) or _head_abroad(run) != abroad else still + 1
        if still == len(QUIET):
            due, still = watching.deadline(), 0
            if due is None or due <= lives.now:
                deciding = lives.born.get("scheduler-1")
                run.counts.update(watching.ends())
                system = deciding.system if isinstance(deciding, Deciding) else None
                return violations + watching.check_at_rest(system, lives.now)
            lives.now = due
    return [Violation(3, f"something still moves {ROUNDS} rounds after the last fault")]


def _head_abroad(run: "Simulation") -> str:
    """The version of a foreign cluster: a write there is no event in our log until it is observed."""
    return "" if run.place.line is None else run.place.line.api.head


def _round(run: "Simulation", *, everybody: bool) -> None:
    """Steps every process with work; in a last round all of them, because some poll."""
    where, lives = run.schedule.where, run.lives
    for who in OURS[where]:
        life = lives.born.get(who)
        idle = not everybody and life is not None and life.is_idle(run.watching.position(lives.commits), lives.now)
        if who.endswith(SECOND_ONES) or idle:
            continue
        run.step(ScheduleChoice("step", who))
        for _ in range(DRAINING):
            if not run.surroundings.bell.waiting or run.violations:
                break
            run.step(ScheduleChoice("step", "worker-1"))
    for who in THEIRS[where]:
        with lives.aside():
            run.place.write(partial(run.place.step_theirs, ScheduleChoice("step", who)))


# A process is stepped, crashes at the n-th place that it reaches (every commit and every call has two), or
# sleeps there while the next choices of the schedule are played, and then continues as if nothing had happened:
# so two processes interleave between each other's reads and writes without a thread. After every choice the
# invariants are checked that hold at any moment; when the schedule is over, faults stop, and everything must
# come to rest (`calm_down`).


@dataclass(frozen=True, slots=True)
class RunVerdict:
    violations: list[Violation]
    counts: Counter[str]
    """Injected faults and outcomes, counted."""
    steps: int
    """Choices until the first violation, or all of them."""
    head: str
    """The hash of the log: the same for every play of a schedule."""
    notes: list[str]
    """A note on each choice that was played: what it did."""


@dataclass(slots=True)
class Simulation:
    slate: Slate
    schedule: Schedule
    guards: Guards = ALL_GUARDS
    counts: Counter[str] = field(default_factory=Counter)
    violations: list[Violation] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    at: int = 0
    """The number of choices played."""
    mishaps: list[str] = field(default_factory=list)
    place: SimulatedPlace = field(init=False)
    surroundings: RunSurroundings = field(init=False)
    lives: Lives = field(init=False)
    watching: RunObserver = field(init=False)
    _ids: int = 0

    def __post_init__(self) -> None:
        database = self.slate.wiped()
        self.lives = Lives(self.counts, self._sleep)
        self.place = place_of(self.schedule, database, self.lives.clock, self._new_id, self.lives.fate)
        self.surroundings = RunSurroundings(
            partial(self.slate.another, lambda: self.lives.now, drafts=self.schedule.drafts),
            self.lives.clock,
            self._new_id,
            self.guards,
            line=self.place.line,
            stepwise=self.schedule.stepwise,
        )
        for array in (self.surroundings.inside, self.surroundings.outside):
            array.mishap = self._mishap
        self.lives.begin(self.surroundings)
        self.watching = RunObserver(database, self.place)

    def play(self) -> RunVerdict:
        with _armed(self.lives.reached):
            while not self.violations and self._play_next():
                pass
            steps = self.at
            if not self.violations:
                self.violations += calm_down(self)
        with self.watching.database.read() as connection:
            head = read_head(connection)
        self.counts["events"] = head.position
        return RunVerdict(self.violations, self.counts, steps, head.hash.hex(), self.notes)

    def step(self, choice: ScheduleChoice) -> str:
        """Step a process of ours; an error that was not injected is a violation."""
        note, broken = self.lives.step(choice, self.at)
        if broken is not None:
            self.violations.append(Violation(7, f"{choice.who}: {type(broken).__name__}: {broken}"))
        return note

    def _sleep(self, choices: int) -> None:
        """A process sleeps at some place; the schedule continues for so long."""
        for _ in range(choices):
            if self.violations or not self._play_next():
                return

    def _play_next(self) -> bool:
        if self.at >= len(self.schedule.choices):
            return False
        choice, line = self.schedule.choices[self.at], len(self.notes)
        self.at += 1
        self.notes.append("")
        self.notes[line] = f"{choice}  # {self._play(choice) or 'nothing to do'}"
        self.violations += self.watching.check(self.lives.commits)
        return True

    def _play(self, choice: ScheduleChoice) -> str:
        where = self.schedule.where
        match choice.verb:
            case "create":
                return self._write(lambda: self.place.others.create_all(new_objects(choice)))
            case "step" if choice.who in THEIRS[where]:
                return self._write(lambda: self.place.step_theirs(choice))
            case "step" if choice.who in OURS[where]:
                return self.step(choice)
            case "wait":
                self.lives.now += choice.number("ms", 1_000) * MILLISECOND
                return "time passes"
            case "crash":
                return self.lives.crash(choice.who)
            case "skew":
                return self.lives.skew(choice.who, choice.number("ms") * MILLISECOND, choice.number("crash"))
            case "cut":
                return self.lives.cut(choice.who, self.at + choice.number("for", 3))
            case "lose" | "double":
                return self._mishandle(choice)
            case "someone":
                return self._interfere(choice)
            case "storage":
                self.counts["storage mishaps"] += 1
                self.mishaps.append(choice.who)
                return "the next volume meets it"
            case "land" if self.place.line is not None:
                return "calls that were under way arrive" if self.place.line.land() else ""
        return ""

    def _write(self, write: Callable[[], object]) -> str:
        with self.lives.aside():
            return self.place.write(write)

    def _interfere(self, choice: ScheduleChoice) -> str:
        others = self.place.others
        done = False

        def deed() -> None:
            nonlocal done
            done = choice.who in others.deeds and others.do(choice.who, choice.number("pick"))

        self._write(deed)
        self.counts["writes by others"] += done
        return "done" if done else ""

    def _mishandle(self, choice: ScheduleChoice) -> str:
        waiting = self.surroundings.bell.waiting
        if not waiting:
            return ""
        which = choice.number("pick") % len(waiting)
        if choice.verb == "lose":
            self.counts["wake-ups lost"] += 1
            return f"the wake-up for {waiting.pop(which)} is lost"
        self.counts["wake-ups doubled"] += 1
        waiting.append(waiting[which])
        return f"the wake-up for {waiting[which]} comes twice"

    def _mishap(self, _request: CreateVolume, _before: int) -> str:
        return self.mishaps.pop(0) if self.mishaps else ""

    def _new_id(self) -> str:
        self._ids += 1
        return f"id-{self._ids:05}"


def play(slate: Slate, schedule: Schedule, *, guards: Guards = ALL_GUARDS) -> RunVerdict:
    return Simulation(slate, schedule, guards).play()


@contextmanager
def _armed(hook: Callable[[str], None]) -> Iterator[None]:
    fault_points.arm(hook, drill=True)
    try:
        yield
    finally:
        fault_points.arm(None, drill=False)
