"""Many simulated runs: over all cores, counted, and what fails cut down to the few choices that matter."""

import multiprocessing
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass, field

from volsched.binding.rules.phases import ALL_GUARDS, Guards
from volsched.lab.drills.report import DrillReport
from volsched.lab.simulation.generator import Temper, generate
from volsched.lab.simulation.schedule import Schedule
from volsched.lab.simulation.scratch_store import Slate
from volsched.lab.simulation.shrink import shrunk
from volsched.lab.simulation.simulation import RunVerdict, play
from volsched.lab.simulation.violations import shape, told
from volsched.log.garbage_pause import collector_resting

CHUNK = 20
"""Seeds given to a core at once: enough that the giving costs nothing, few enough that progress is seen."""
ASKED = (1, 2, 3, 4, 5, 6, 7, 8, 9, 14)
FAULTS = ("crashes", "sleeps", "partitions", "wake-ups lost", "wake-ups doubled", "calls lost", "calls failed",
          "calls slow", "calls conflict", "clock jumps", "storage mishaps", "writes by others")  # fmt: skip


@dataclass(frozen=True, slots=True)
class SeedFailure:
    schedule: Schedule
    """As short as it could be made."""
    violations: list[str]
    notes: list[str]
    """What each choice of it did."""
    choices: int
    """How many there were at first."""


@dataclass(slots=True)
class Tally:
    runs: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    failed: dict[int, list[str]] = field(default_factory=dict)
    """Seed → its violations."""
    seconds: float = 0
    jobs: int = 1
    core_seconds: float = 0
    """What the runs took of the cores, which is less than the time where others use them too."""

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
    """Play every seed from `first` to `last`, in as many processes as `jobs` says (all cores by default)."""
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
    """A process of the pool would play on for nobody after the one that asked was killed."""
    parent = multiprocessing.parent_process()
    assert parent is not None

    def follow() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=follow, name="volsched-parent", daemon=True).start()


def _chunk(first: int, last: int, temper: Temper | None, guards: Guards) -> Tally:
    """In a process of the pool, which keeps its slate for the next chunk."""
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
            tally.failed[seed] = told(verdict.violations)
    tally.core_seconds = time.process_time() - began
    return tally


def cut_down(schedule: Schedule, *, guards: Guards = ALL_GUARDS) -> tuple[RunVerdict, SeedFailure | None]:
    """Play a schedule; if it fails, find the choices that it takes for that."""
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
        return verdict, SeedFailure(small, told(again.violations), again.notes, len(schedule.choices))
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
        double_binds=sum(it.startswith("1:") for it in violations),
        leaked=sum(it.startswith(("2:", "3: effect")) or "still assumed" in it for it in violations),
        lost_pods=sum("nobody tries any more" in it for it in violations),
        asked=ASKED,
        violations=violations,
        facts={
            "runs": f"{tally.runs:,}",
            "events written": f"{counts['events']:,}",
            "runs per minute": f"{tally.per_minute:,.0f} in {tally.jobs} process(es)",
            "runs per minute of a core": f"{tally.per_core_minute:,.0f}",
        },
    )
