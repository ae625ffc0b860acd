"""Many simulated runs: schedules from seeds, on all cores, and failures shrunk to the needed choices (ddmin)."""

import multiprocessing
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass, field
from itertools import cycle
from random import Random
from typing import TypeVar

from volsched.binding.rules.phases import ALL_GUARDS, Guards
from volsched.lab.drills.report import DrillReport, count_double_binds, count_leaks
from volsched.lab.faults import CHANCES
from volsched.lab.simulation.invariants import shape, texts
from volsched.lab.simulation.process_lives import CRASH, SLEEP
from volsched.lab.simulation.processes import OURS, THEIRS, Slate
from volsched.lab.simulation.schedule import PLACES, Schedule, ScheduleChoice, Where
from volsched.lab.simulation.simulation import RunVerdict, play
from volsched.log.garbage_pause import collector_resting

# From a seed to a schedule: which cluster, which actions, and which faults.
#
# Every seed has its own temper: in one run processes crash all the time without interference, in another
# workers sleep past their leases, in a third the storage fails. Equal runs would all find the same.

STEPS = {
    "local": {"scheduler-1": 6, "scheduler-2": 4, "controller-1": 6, "controller-2": 4, "worker-1": 12,
              "worker-2": 12, "sweep": 3, "provisioner": 3},
    "foreign": {"scheduler-1": 5, "scheduler-2": 4, "mirror-1": 6, "mirror-2": 2, "worker-1": 16, "worker-2": 14,
                "sweep": 3, "pv-controller": 6, "pv-provisioner": 3},
}  # fmt: skip
"""Relative frequency of steps out of turn; a worker without a wake-up costs nothing."""
COURSES = {
    "local": ("scheduler-1", "worker-1", "worker-2", "worker-1", "controller-1", "worker-2", "provisioner",
              "controller-1", "worker-1", "worker-2"),
    "foreign": ("mirror-1", "scheduler-1", "worker-1", "worker-2", "worker-1", "pv-provisioner", "pv-controller",
                "mirror-1", "worker-2", "worker-1", "worker-2"),
}  # fmt: skip
"""The order in which one's work creates work for the next: without it, long runs idle."""
IN_TURN = 0.7
TROUBLES = ("bell", "cut", "skew", "storage")
"""Faults of the surroundings, which replace a step."""
MOSTLY_LATE = 0.6
"""The share of late changes among watch faults."""
JUMPS = (-40_000, -1_000, 1_000, 40_000, 700_000, 7_200_000, -7_200_000, 31_536_000_000, -31_536_000_000)
"""Jumps of a clock, in milliseconds: up to a year."""
MOST_PLACES = 8
"""A process crashes or sleeps at one of the next so many places."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Temper:
    """The probability of each fault of `lab.faults`, if not the default; the length of a run, and its place."""

    chances: Mapping[str, float] = field(default_factory=dict)
    length: int = 48
    where: tuple[Where, ...] = PLACES

    def chance(self, fault: str) -> float:
        return self.chances.get(fault, CHANCES[fault].usual)


STEPWISE = 0.5
"""How often bindings on our own log are carried out step by step."""
DRAFTS = 0.5
"""How often everything is decided before the head is locked."""
TEMPERS = (
    Temper(),
    Temper(chances={"crash": 0.25, "others": 0.05}),
    Temper(chances={"crash": 0.02, "sleep": 0.2, "others": 0.06, "wait": 0.2}),
    Temper(chances={"others": 0.3, "crash": 0.03}),
    Temper(chances={"call": 0.4, "watch": 0.5, "others": 0.1}),
    Temper(chances={"bell": 0.2, "cut": 0.08, "skew": 0.1}),
    Temper(chances={"storage": 0.12, "crash": 0.12}),
    Temper(chances={"slow": 0.9, "others": 0.25}),
)


def generate(seed: int, *, temper: Temper | None = None) -> Schedule:
    """The schedule of a seed; always the same, as long as this module is unchanged."""
    rng = Random(f"volsched/{seed}")
    own = temper or rng.choice(TEMPERS)
    where = rng.choice(own.where)
    choices = [
        *_cluster(rng, where, own.chance("attached")),
        *_misfit(seed, where, own),
        *_course(rng, where, own),
    ]
    # Drawn separately: the rest is the same both ways.
    stepwise = where == "foreign" or Random(f"volsched/{seed}/stepwise").random() < STEPWISE
    drafts = Random(f"volsched/{seed}/drafts").random() < DRAFTS
    return Schedule(where, tuple(choices), seed, stepwise, drafts)


def _misfit(seed: int, where: Where, temper: Temper) -> Iterator[ScheduleChoice]:
    """A misfit, and a pod that it may hold up. Drawn separately: the rest of the cluster is the same without it.

    Ties are broken by name, so its own name sorts before, among or after the others.
    """
    rng = Random(f"volsched/{seed}/misfit")
    if where == "local" and rng.random() < temper.chance("misfit"):
        yield ScheduleChoice("create", "misfit", {"name": rng.choice(("n0", "n1-misfit", "n2-misfit", "n4"))})
        yield ScheduleChoice("create", "claim", {"name": "c9a", "size": "1", "class": "inside"})
        name, seconds = f"p9{rng.randrange(100)}", str(rng.choice((3, 20, 600)))
        yield ScheduleChoice("create", "pod", {"name": name, "claims": "c9a", "seconds": seconds})


def _cluster(rng: Random, where: Where, attached: float) -> Iterator[ScheduleChoice]:
    limit = {"limit": "1"} if attached and rng.random() < attached else {}
    disk = {"disk": "1"} if limit else {}
    if where == "foreign" and rng.random() < 0.3:
        yield ScheduleChoice("plain")
    nodes = [f"n{number}" for number in range(1, rng.randint(2, 3) + 1)]
    classes = (
        ("local", "local", "local", "inside", "outside") if where == "local" else ("local", "local", "outside")
    )
    for name in dict.fromkeys(classes):
        slow = {"seconds": str(rng.choice((0, 2, 8)))} if name != "local" and where == "local" else {}
        room = {"room": "6"} if name == "inside" and rng.random() < 0.5 else {}
        yield ScheduleChoice("create", "class", {"name": name, **slow, **room})
    for place, name in enumerate(nodes):
        yield ScheduleChoice("create", "node", {"name": name, "zone": f"z{place % 2 + 1}", **limit})
    for number in range(1, rng.randint(2, 5) + 1):
        node, size = rng.choice(nodes), str(rng.randint(2, 6))
        yield ScheduleChoice("create", "volume", {"name": f"d{number}", "size": size, "node": node, **disk})
    for number in range(1, rng.randint(2, 3) + 1):
        claims = [f"c{number}{letter}" for letter in "abc"[: rng.choice((1, 1, 2, 2, 3))]]
        for name in claims:
            size = str(rng.randint(1, 4))
            yield ScheduleChoice("create", "claim", {"name": name, "size": size, "class": rng.choice(classes)})
        seconds = str(rng.choice((3, 20, 600)))
        yield ScheduleChoice(
            "create", "pod", {"name": f"p{number}", "claims": ",".join(claims), "seconds": seconds}
        )


def _course(rng: Random, where: Where, temper: Temper) -> Iterator[ScheduleChoice]:
    names, weights = list(STEPS[where]), list(STEPS[where].values())
    turns = cycle(COURSES[where])
    for _ in range(temper.length):
        drawn = rng.random()
        if drawn < temper.chance("others"):
            yield ScheduleChoice(
                "someone", rng.choice(CHANCES["others"].variants), {"pick": str(rng.randrange(12))}
            )
        elif drawn < temper.chance("others") + temper.chance("wait"):
            yield ScheduleChoice("wait", "", {"ms": str(rng.choice((50, 500, 1_500, 5_000, 31_000, 70_000)))})
        elif rng.random() < sum(temper.chance(it) for it in TROUBLES):
            yield _trouble(rng, where, temper)
        else:
            who = next(turns) if rng.random() < IN_TURN else rng.choices(names, weights)[0]
            if "provisioner" not in who or rng.random() >= temper.chance("slow"):
                yield _step(rng, where, who, temper)


def _trouble(rng: Random, where: Where, temper: Temper) -> ScheduleChoice:
    who = rng.choice(OURS[where])
    match rng.choices(TROUBLES, [temper.chance(it) for it in TROUBLES])[0]:
        case "bell":
            return ScheduleChoice(rng.choice(CHANCES["bell"].variants), "", {"pick": str(rng.randrange(4))})
        case "cut":
            return ScheduleChoice("cut", who, {"for": str(rng.randint(3, 12))})
        case "skew":
            crash = {"crash": str(_place(rng))} if rng.random() < 0.4 else {}
            return ScheduleChoice("skew", who, {"ms": str(rng.choice(JUMPS)), **crash})
        case _ if where == "local":
            return ScheduleChoice("storage", rng.choice(CHANCES["storage"].variants))
        case _:
            return ScheduleChoice("land")


def _step(rng: Random, where: Where, who: str, temper: Temper) -> ScheduleChoice:
    if who in THEIRS[where]:
        half = rng.choice(("", "", "first", "second"))
        return ScheduleChoice("step", who, {"half": half} if half else {})
    options = _fate(rng, where, who, temper)
    if who.startswith("worker"):
        options |= {"pick": str(rng.randrange(4))} if rng.random() < 0.5 else {}
        options |= {"batch": "1"} if rng.random() < 0.4 else {}
    if who.startswith("mirror") and rng.random() < temper.chance("watch"):
        late, *others = CHANCES["watch"].variants
        options |= {late if rng.random() < MOSTLY_LATE else rng.choice(others): "1"}
        options["pick"] = str(rng.randrange(9))
    return ScheduleChoice("step", who, options)


def _fate(rng: Random, where: Where, who: str, temper: Temper) -> dict[str, str]:
    drawn = rng.random()
    if drawn < temper.chance("crash"):
        return {CRASH: str(_place(rng))}
    if drawn < temper.chance("crash") + temper.chance("sleep"):
        return {SLEEP: str(_place(rng)), "for": str(rng.randint(2, 14))}
    if where == "foreign" and who.startswith("worker") and rng.random() < temper.chance("call"):
        return {rng.choice(CHANCES["call"].variants): str(rng.randint(1, 3))}
    return {}


def _place(rng: Random) -> int:
    """The number of a place, preferably an early one: most steps reach two or three."""
    return min(rng.randint(1, MOST_PLACES), rng.randint(1, MOST_PLACES))


# Shrinking a failing list: leave parts out, ever smaller ones, as long as the rest still fails (ddmin).

Item = TypeVar("Item")


def shrunk(items: Sequence[Item], fails: Callable[[Sequence[Item]], bool], *, most: int = 400) -> tuple[Item, ...]:
    """A part of the items that still fails, and of which (within `most` tries) no single one can be left out."""
    kept, size, tries = tuple(items), max(len(items) // 2, 1), 0
    while kept and tries < most:
        start, smaller = 0, False
        while start < len(kept) and tries < most:
            tries += 1
            left = kept[:start] + kept[start + size :]
            if fails(left):
                kept, smaller = left, True
            else:
                start += size
        if size == 1 and not smaller:
            break
        # After a successful round of single ones, another: items that those needed may be superfluous now.
        size = max(size // 2, 1)
    return kept


CHUNK = 20
"""Seeds per task of a core: enough that the overhead is small, few enough that progress is visible."""
ASKED = (1, 2, 3, 4, 5, 6, 7, 8, 9, 14)
FAULTS = ("crashes", "sleeps", "partitions", "wake-ups lost", "wake-ups doubled", "calls lost", "calls failed",
          "calls slow", "calls conflict", "clock jumps", "storage mishaps", "writes by others")  # fmt: skip


@dataclass(frozen=True, slots=True)
class SeedFailure:
    schedule: Schedule
    """The shrunk schedule."""
    violations: list[str]
    notes: list[str]
    """A note on what each of its choices did."""
    choices: int
    """The original number of choices."""


@dataclass(slots=True)
class Tally:
    runs: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    failed: dict[int, list[str]] = field(default_factory=dict)
    """Seed → its violations."""
    seconds: float = 0
    jobs: int = 1
    core_seconds: float = 0
    """CPU time of the runs, which is less than the wall time if others use the cores too."""

    @property
    def per_minute(self) -> float:
        return 60 * self.runs / self.seconds if self.seconds else 0

    @property
    def per_core_minute(self) -> float:
        return 60 * self.runs / self.core_seconds if self.core_seconds else 0

    def add(self, other: "Tally") -> None:
        self.runs += other.runs
        self.counts += other.counts
        self.failed |= other.failed
        self.core_seconds += other.core_seconds


def run_seeds(
    first: int,
    last: int,
    *,
    jobs: int | None = None,
    temper: Temper | None = None,
    guards: Guards = ALL_GUARDS,
    stop_at_failure: bool = False,
    progress: Callable[[Tally], None] | None = None,
) -> Tally:
    """Play every seed from `first` to `last`, in `jobs` processes (all cores by default)."""
    jobs = max(1, min(jobs or os.cpu_count() or 1, (last - first) // CHUNK + 1))
    tally, began = Tally(jobs=jobs), time.monotonic()
    chunks = [(start, min(start + CHUNK - 1, last)) for start in range(first, last + 1, CHUNK)]
    for part in _parts(chunks, jobs, temper, guards):
        tally.add(part)
        tally.seconds = time.monotonic() - began
        if progress is not None:
            progress(tally)
        if stop_at_failure and tally.failed:
            break
    return tally


def _parts(chunks: Sequence[tuple[int, int]], jobs: int, temper: Temper | None, guards: Guards) -> Iterator[Tally]:
    if jobs == 1:
        slate = Slate()
        try:
            for first, last in chunks:
                yield _some(slate, first, last, temper, guards)
        finally:
            slate.close()
        return
    # Spawned, not forked: a fork would share the parent's connections.
    with ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn"), _end_with_parent) as pool:
        left = list(reversed(chunks))
        running: set[Future[Tally]] = set()
        try:
            while left or running:
                while left and len(running) < 2 * jobs:
                    running.add(pool.submit(_chunk, *left.pop(), temper, guards))
                done, running = wait(running, return_when=FIRST_COMPLETED)
                for future in done:
                    yield future.result()
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def _end_with_parent() -> None:
    """Ends a process of the pool with its parent, even if that is killed."""
    parent = multiprocessing.parent_process()
    assert parent is not None

    def follow() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=follow, name="volsched-parent", daemon=True).start()


def _chunk(first: int, last: int, temper: Temper | None, guards: Guards) -> Tally:
    """Plays a chunk in a process of the pool, which keeps its store for the next one."""
    global _slate
    if _slate is None:
        _slate = Slate()
    return _some(_slate, first, last, temper, guards)


_slate: Slate | None = None


def _some(slate: Slate, first: int, last: int, temper: Temper | None, guards: Guards) -> Tally:
    tally, began = Tally(), time.process_time()
    for seed in range(first, last + 1):
        with collector_resting():
            verdict = play(slate, generate(seed, temper=temper), guards=guards)
        tally.runs += 1
        tally.counts += verdict.counts
        if verdict.violations:
            tally.failed[seed] = texts(verdict.violations)
    tally.core_seconds = time.process_time() - began
    return tally


def cut_down(schedule: Schedule, *, guards: Guards = ALL_GUARDS) -> tuple[RunVerdict, SeedFailure | None]:
    """Play a schedule; if it fails, find the choices that are necessary for that."""
    slate = Slate()
    try:
        verdict = play(slate, schedule, guards=guards)
        if not verdict.violations:
            return verdict, None
        kinds = {shape(it) for it in verdict.violations}

        def fails(choices: Sequence[object]) -> bool:
            played = play(slate, schedule.of(choices), guards=guards)  # type: ignore[arg-type]  # they are Choices
            return not kinds.isdisjoint(shape(it) for it in played.violations)

        small = schedule.of(shrunk(schedule.choices, fails))
        again = play(slate, small, guards=guards)
        return verdict, SeedFailure(small, texts(again.violations), again.notes, len(schedule.choices))
    finally:
        slate.close()


def report_of(tally: Tally, *, name: str = "sim", about: str = "") -> DrillReport:
    counts = tally.counts
    violations = [it for found in tally.failed.values() for it in found]
    committed, rolled_back = counts["bindings committed"], counts["bindings rolled-back"]
    return DrillReport(
        drill=name,
        about=about,
        faults={kind: counts[kind] for kind in FAULTS},
        in_flight=committed + rolled_back,
        resumed=committed,
        rolled_back=rolled_back,
        double_binds=count_double_binds(violations),
        leaked=count_leaks(violations),
        lost_pods=sum("nobody tries any more" in it for it in violations),
        checked_invariants=ASKED,
        violations=violations,
        facts={
            "runs": f"{tally.runs:,}",
            "events written": f"{counts['events']:,}",
            "runs per minute": f"{tally.per_minute:,.0f} in {tally.jobs} process(es)",
            "runs per minute of a core": f"{tally.per_core_minute:,.0f}",
        },
    )
