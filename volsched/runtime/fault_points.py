"""Named places at which a drill may kill, break or pause this process: every commit and every call has two.

Off, a place costs one comparison. Nothing arms by itself: it takes the drill flag as well as the name of the
place, so that a variable left over in some environment file cannot kill a production process.
"""

import os
import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass

DRILL_FLAG = "VOLSCHED_DRILL"
FAULT = "VOLSCHED_FAULT"
POINTS = frozenset(
    {
        "commit.before",
        "commit.after",
        "executor.claimed",
        "executor.calling",
        "executor.called",
        "executor.recorded",
        "scheduler.decided",
        "scheduler.planned",
        "controller.decided",
        "controller.written",
        "recovery.begun",
        "recovery.done",
        "sweep.found",
    }
)
"""Every place there is; arming another one is refused."""


class FaultError(BaseException):
    """Raised by a place that a drill told to break. Not an Exception: nobody may take it for work that failed."""


class ArmingError(ValueError):
    """The fault cannot be armed as asked."""


_armed: Callable[[str], None] | None = None


def reach(point: str) -> None:
    """The process has come to this place."""
    if _armed is not None:
        _armed(point)


def arm(hook: Callable[[str], None] | None, *, drill: bool) -> None:
    """Have every place call the hook, or none any more. `drill` says that this is no accident."""
    global _armed
    if hook is not None and not drill:
        raise ArmingError(f"fault points are armed in drills only; set {DRILL_FLAG}=1 if this is one")
    _armed = hook


@dataclass(slots=True)
class Fault:
    """Do something at the n-th time that a place is reached."""

    point: str
    action: Callable[[], None]
    times: int = 1

    def __call__(self, point: str) -> None:
        if point == self.point:
            self.times -= 1
            if self.times == 0:
                self.action()


def arm_from(environ: Mapping[str, str]) -> None:
    """Arm what the environment asks for: VOLSCHED_FAULT=PLACE[*N]:kill|raise|stop, with VOLSCHED_DRILL=1."""
    wanted = environ.get(FAULT)
    if wanted is None:
        return
    place, _, action = wanted.partition(":")
    point, _, times = place.partition("*")
    if point not in POINTS:
        raise ArmingError(f"{FAULT}: there is no place {point}; there are {', '.join(sorted(POINTS))}")
    if action not in _ACTIONS or not (times or "1").isdecimal():
        raise ArmingError(f"{FAULT}={wanted}: write PLACE[*N]:kill, PLACE[*N]:raise or PLACE[*N]:stop")
    arm(Fault(point, _ACTIONS[action], int(times or 1)), drill=environ.get(DRILL_FLAG) == "1")


def _kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _raise() -> None:
    raise FaultError("a drill broke the process here")


def _stop() -> None:
    """Sleep until somebody sends SIGCONT: how a worker becomes a zombie that wakes after its lease."""
    os.kill(os.getpid(), signal.SIGSTOP)


_ACTIONS: Mapping[str, Callable[[], None]] = {"kill": _kill, "raise": _raise, "stop": _stop}
