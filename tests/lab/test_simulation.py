"""The whole system stepped from seeds: nothing is violated, every run can be repeated, no guard can be spared."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.extent import FULL, extent
from volsched.binding.rules.phases import Guards
from volsched.lab.drills.scenario import SCENARIOS
from volsched.lab.simulation.invariants import shape
from volsched.lab.simulation.processes import Slate
from volsched.lab.simulation.schedule import Schedule, read_choice, read_schedule
from volsched.lab.simulation.seeds import FAULTS, cut_down, generate, report_of, run_seeds
from volsched.lab.simulation.simulation import play

REGRESSIONS = sorted((Path(__file__).parent / "regressions").glob("*.yaml"))
SEEDS = int(os.environ.get("VOLSCHED_SIM_SEEDS", extent(24, 40)))
MOST = 300
"""Seeds within which the absence of a guard is found."""
Counted = Callable[[str, object], None]


@pytest.fixture(scope="module")
def slate() -> Iterator[Slate]:
    made = Slate()
    yield made
    made.close()


def test_nothing_is_violated_whatever_goes_wrong(record_property: Counted) -> None:
    tally = run_seeds(1, SEEDS, jobs=1)
    assert tally.failed == {}
    report = report_of(tally)
    assert report.passed
    assert (tally.runs, report.resumed > 0, report.rolled_back > 0) == (SEEDS, True, True)
    for kind in FAULTS:
        record_property(f"simulated runs: {kind}", tally.counts[kind])
    rare = [kind for kind in FAULTS if kind.startswith("calls")]
    assert sum(tally.counts[kind] for kind in rare) > 0
    assert [kind for kind in FAULTS if kind not in rare and not tally.counts[kind]] == []


@pytest.mark.parametrize("file", REGRESSIONS, ids=lambda it: it.stem)
def test_what_was_found_once_is_not_found_again(slate: Slate, file: Path) -> None:
    assert play(slate, read_schedule(file)).violations == []


@pytest.mark.parametrize("seed", [4, 11])
def test_a_schedule_gives_the_same_log_again(slate: Slate, seed: int) -> None:
    first, second = (play(slate, generate(seed)) for _ in range(2))
    assert (first.head, first.notes, first.counts) == (second.head, second.notes, second.counts)
    assert first.counts["events"] > 20


def test_a_schedule_without_its_objects_does_nothing_and_breaks_nothing(slate: Slate) -> None:
    for where in ("local", "foreign"):
        made = next(it for seed in range(30) if (it := generate(seed)).where == where)
        bare = made.of(it for it in made.choices if it.verb != "create")
        assert play(slate, bare).violations == []


@pytest.mark.parametrize(
    ("guard", "scenario", "begin"),
    [
        ("lanes", "sim-crowd", 61),
        ("precondition", "sim-crowd", 6),
        ("dirty", "sim-slow", 34),
        ("stamp", "sim-crowd", 32),
        ("memory", "sim-refusals", 25),
        ("in_flight", "sim-attached", 3),
    ],
)
def test_without_a_guard_the_simulation_finds_it_out(
    slate: Slate, guard: str, scenario: str, begin: int, record_property: Counted
) -> None:
    """A test run begins shortly before the seed that found it last; `make drills` begins with the first."""
    first = 1 if FULL else begin - 1
    off, temper = Guards(**{guard: False}), SCENARIOS[scenario].temper
    for seed in range(first, first + MOST):
        schedule = generate(seed, temper=temper)
        if play(slate, schedule, guards=off).violations:
            record_property(f"seed of {scenario}, from {first} on, by which {guard} is missed", seed)
            assert play(slate, schedule).violations == []
            return
    raise AssertionError(f"{MOST} seeds of {scenario} do not miss the guard {guard}")


def test_a_failing_schedule_is_cut_down_to_what_it_takes() -> None:
    """With the check of versions off, a volume that somebody took between plan and write is taken from them."""
    needed = [
        "create class name=local", "create node name=n1", "create volume name=d1 node=n1",
        "create claim name=a", "create pod name=p claims=a", "step pv-controller", "step mirror-1",
        "step scheduler-1", "someone take pick=0", "step worker-1",
    ]  # fmt: skip
    idle = ["wait ms=10", "lose", "land", "step sweep", "skew worker-2 ms=5"]
    lines = [line for pair in zip(needed, idle * 2, strict=True) for line in pair]
    schedule = Schedule("foreign", tuple(map(read_choice, lines)))
    verdict, failure = cut_down(schedule, guards=Guards(precondition=False))
    assert {shape(it) for it in verdict.violations} == {"1: … was given to … while it was uid-theirs's"}
    assert failure is not None
    assert failure.choices == len(lines)
    assert [str(it) for it in failure.schedule.choices if it.verb == "someone"] == ["someone take pick=0"]
    assert len(failure.schedule.choices) <= len(needed)
    assert cut_down(schedule)[1] is None
