"""Named places where a drill may kill, break or pause this process: before and after every commit and call.

Disarmed, a place costs one comparison. Arming needs the drill flag as well as the name of the place, so that a
leftover variable in an environment file cannot kill a production process.
"""

import os
import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass

DRILL_FLAG = "VOLSCHED_DRILL"
FAULT = "VOLSCHED_FAULT"
POINTS: Mapping[str, str] = {
    "commit.drafted": "a batch is decided, and the log's head is not locked",
    "commit.before": "everything is written, and nothing is committed",
    "commit.after": "committed, and the caller does not know it yet",
    "executor.claimed": "effects are leased, and nothing is done for them",
    "executor.calling": "just before a call to the cluster",
    "executor.called": "the call was answered, and nothing is recorded",
    "executor.recorded": "outcomes are in the log",
    "scheduler.decided": "a node is chosen, and no plan is in the log",
    "scheduler.planned": "plans are in the log, and no worker was woken",
    "controller.decided": "the PV controller knows what to write, and has not written",
    "controller.written": "what the PV controller decided is in the log",
    "recovery.begun": "recovery has its lease",
    "recovery.done": "recovery has ended and released its lease",
    "sweep.found": "the sweep knows which bindings are late or can go on, and has not written",
}
"""Every place, and the state of the process there; arming another one is refused."""


class FaultError(BaseException):
    """Raised at a place that a drill breaks. Not an Exception: no handler may treat it as failed work."""


class ArmingError(ValueError):
    """The fault cannot be armed this way."""


_armed: Callable[[str], None] | None = None


def reach(point: str) -> None:
    """Report that the process has reached a place; calls the armed hook."""
    if _armed is not None:
        _armed(point)


def arm(hook: Callable[[str], None] | None, *, drill: bool) -> None:
    """Make every place call the hook; None disarms them. `drill` confirms the intent."""
    global _armed
    if hook is not None and not drill:
        raise ArmingError(f"fault points are armed in drills only; set {DRILL_FLAG}=1 if this is one")
    _armed = hook


@dataclass(slots=True)
class Fault:
    """Act at the n-th time that a place is reached."""

    point: str
    action: Callable[[], None]
    times: int = 1

    def __call__(self, point: str) -> None:
        if point == self.point:
            self.times -= 1
            if self.times == 0:
                self.action()


def arm_from(environ: Mapping[str, str]) -> None:
    """Arm the environment's faults: VOLSCHED_FAULT=PLACE[*N]:kill|raise|stop[,…], with VOLSCHED_DRILL=1."""
    wanted = environ.get(FAULT)
    if wanted is None:
        return
    faults = [_fault(it) for it in wanted.split(",")]

    def hook(point: str) -> None:
        for fault in faults:
            fault(point)

    arm(hook, drill=environ.get(DRILL_FLAG) == "1")


def _fault(wanted: str) -> Fault:
    place, _, action = wanted.partition(":")
    point, _, times = place.partition("*")
    if point not in POINTS:
        raise ArmingError(f"{FAULT}: there is no place {point}; there are {', '.join(sorted(POINTS))}")
    if action not in _ACTIONS or not (times or "1").isdecimal():
        raise ArmingError(f"{FAULT}={wanted}: write PLACE[*N]:kill, PLACE[*N]:raise or PLACE[*N]:stop")
    return Fault(point, _ACTIONS[action], int(times or 1))


def _kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _raise() -> None:
    raise FaultError("a drill broke the process here")


def _stop() -> None:
    """Sleep until SIGCONT: the worker becomes a zombie that wakes after its lease has expired."""
    os.kill(os.getpid(), signal.SIGSTOP)


_ACTIONS: Mapping[str, Callable[[], None]] = {"kill": _kill, "raise": _raise, "stop": _stop}
