"""The end of a simulated run: faults stop, and within bounded rounds everything is at rest and in order."""

from functools import partial
from typing import TYPE_CHECKING

from volsched.lab.simulation.processes import OURS, THEIRS, Deciding
from volsched.lab.simulation.schedule import ScheduleChoice
from volsched.questions.invariants import Violation
from volsched.runtime.clock import SECOND

if TYPE_CHECKING:
    from volsched.lab.simulation.simulation import Simulation

ROUNDS = 150
QUIET = tuple(seconds * SECOND for seconds in (0, 4, 125))
"""At rest is what does not move over these waits: beyond leases, back-offs, damped requests and held room."""
DRAINING = 60
SECOND_ONES = "-2"
"""Processes whose names end so were there to be in the way, and are gone now."""


def calm_down(run: "Simulation") -> list[Violation]:
    """What was not in order when the run had come to rest."""
    lives, watching = run.lives, run.watching
    lives.heal()
    run.mishaps.clear()
    for array in (run.given.inside, run.given.outside):
        for name in array.made():
            array.finish(name)
    if run.place.line is not None:
        run.place.line.land()
    with lives.aside():
        run.place.write(run.place.others.uncordon)
    lives.born = {who: life for who, life in lives.born.items() if not who.endswith(SECOND_ONES)}
    found, still, since = watching.look(lives.commits), 0, lives.now
    for _ in range(ROUNDS):
        if found or run.found:
            return found
        before = watching.lookout.position
        lives.now += QUIET[still]
        _round(run, everybody=still == len(QUIET) - 1)
        found = watching.look(lives.commits) + watching.too_many_plans(since)
        still = 0 if watching.has_moved(before) else still + 1
        if still == len(QUIET):
            due, still = watching.deadline(), 0
            if due is None or due <= lives.now:
                deciding = lives.born.get("scheduler-1")
                run.counts.update(watching.ends())
                system = deciding.system if isinstance(deciding, Deciding) else None
                return found + watching.look_at_rest(system, lives.now)
            lives.now = due
    return [Violation(3, f"something still moves {ROUNDS} rounds after the last fault")]


def _round(run: "Simulation", *, everybody: bool) -> None:
    """Whoever has something to do; in a last round everybody, for some look by themselves."""
    where, lives = run.schedule.where, run.lives
    for who in OURS[where]:
        life = lives.born.get(who)
        idle = not everybody and life is not None and life.is_idle(run.watching.position(lives.commits), lives.now)
        if who.endswith(SECOND_ONES) or idle:
            continue
        run.step(ScheduleChoice("step", who))
        for _ in range(DRAINING):
            if not run.given.bell.waiting or run.found:
                break
            run.step(ScheduleChoice("step", "worker-1"))
    for who in THEIRS[where]:
        with lives.aside():
            run.place.write(partial(run.place.step_theirs, ScheduleChoice("step", who)))
