"""The lives of processes in a simulated run: stepped, broken, put to sleep, cut off, their clocks wrong."""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from random import Random

from volsched.cluster.simulated import Call, ClusterFaults, Fate, SimulatedCluster
from volsched.lab.simulation.processes import ProcessLife, RunSurroundings
from volsched.lab.simulation.schedule import ScheduleChoice
from volsched.runtime import fault_points
from volsched.runtime.clock import SECOND
from volsched.runtime.restart import STEP_BACK

START = 1_800_000_000 * SECOND
DEEPEST = 3
"""So many processes sleep at once; another that is told to goes on."""
COMMITTED = "commit.after"
NEVER_SLEPT_AT = frozenset({"commit.before"})
"""Whoever slept here would hold the store's lock, and everybody else would wait for it."""
CRASH, SLEEP = "crash", "sleep"
CALLS = (Fate.LOST.value, Fate.FAILED.value, Fate.SLOW.value, Fate.CONFLICT.value)
FATES = (CRASH, SLEEP, *CALLS)
"""Options of a step; one of them at a time."""
ABROAD = ("worker", "mirror")
"""On a foreign cluster these are cut off from the cluster, and still reach the store."""


@dataclass(slots=True)
class _Frame:
    """A step that is under way."""

    who: str
    choice: ScheduleChoice
    now: int
    note: str = ""


@dataclass(slots=True)
class _Fate:
    """At the n-th place, or with the n-th call, that a process comes to from now on."""

    kind: str
    left: int
    choices: int = 1
    """How long it sleeps."""

    def comes(self) -> bool:
        self.left -= 1
        return self.left == 0


@dataclass(slots=True)
class Lives:
    counts: Counter[str]
    sleep: Callable[[int], None]
    """Plays so many choices of the schedule while a process sleeps."""
    now: int = START
    commits: int = 0
    """By anybody; as long as it stays the same, so does the log."""
    born: dict[str, ProcessLife] = field(default_factory=dict)
    _given: RunSurroundings = field(init=False)
    _births: Counter[str] = field(default_factory=Counter)
    _skews: Counter[str] = field(default_factory=Counter)
    _set_right: set[str] = field(default_factory=set)
    """Processes whose clocks are right again when they have crashed."""
    _cuts: dict[str, int] = field(default_factory=dict)
    """Process → how many choices are taken when it is reached again."""
    _cut_now: bool = False
    _fates: dict[str, _Fate] = field(default_factory=dict)
    """What is to happen to a process, soon: in the step that says so, or in a later one of its life."""
    _frames: list[_Frame | None] = field(default_factory=list)
    """Steps that are under way, one inside the other; None: somebody who cannot break."""

    def begin(self, given: RunSurroundings) -> None:
        self._given = given

    def clock(self) -> int:
        """The time as whoever is at work has it."""
        frame = self._frames[-1] if self._frames else None
        return self.now if frame is None else frame.now

    def step(self, choice: ScheduleChoice, at: int) -> tuple[str, Exception | None]:
        """What happened, and what broke that nobody told to. A process that does not live is started."""
        who, line = choice.who, self._given.line
        if self._is_busy(who):
            return "it sleeps", None
        cut = self._cuts.get(who, 0) >= at
        if cut and not (line is not None and who.startswith(ABROAD)):
            return "it is cut off", None
        if who not in self.born:
            self._births[who] += 1
            self.born[who] = self._given.start(who, self._births[who])
        frame = _Frame(who, choice, self.now + self._skews[who])
        kind = next((kind for kind in FATES if kind in choice.options), None)
        if kind is not None and who not in self._fates:
            self._fates[who] = _Fate(kind, choice.number(kind, 1), choice.number("for", 1))
        self._set_line(choice)
        self._frames.append(frame)
        was, self._cut_now = self._cut_now, cut
        try:
            done = self.born[who].step(frame.now, choice)
        except fault_points.FaultError:
            self._gone(who)
            return frame.note, None
        except Exception as error:
            self.born.pop(who, None)
            return f"it broke: {error!r}", error
        finally:
            self._frames.pop()
            self._cut_now = was
        return "; ".join(filter(None, (frame.note, f"{done} done" if done else ""))), None

    def crash(self, who: str) -> str:
        if self._is_busy(who) or who not in self.born:
            return ""
        self._fates.pop(who, None)
        self._gone(who)
        return "it is gone"

    def skew(self, who: str, by: int, crash: int = 0) -> str:
        """`crash`: at the so manieth place that it comes to from now on; and then its clock is right again."""
        self.counts["clock jumps"] += 1
        self._skews[who] += by
        if by < -STEP_BACK and not self._is_busy(who):
            # As those do that are served (`engine.standing`).
            self.born.pop(who, None)
        if crash:
            self._fates[who] = _Fate(CRASH, crash)
            self._set_right.add(who)
        return "its clock jumps"

    def _gone(self, who: str) -> None:
        self.counts["crashes"] += 1
        del self.born[who]
        if who in self._set_right:
            self._set_right.discard(who)
            del self._skews[who]

    def cut(self, who: str, until: int) -> str:
        self.counts["partitions"] += 1
        self._cuts[who] = until
        return "cut off"

    def heal(self) -> None:
        """Clocks are right again, also those that were ahead, and everybody reaches everybody."""
        for who, skew in self._skews.items():
            if skew > STEP_BACK:
                self.born.pop(who, None)
        self._skews.clear()
        self._set_right.clear()
        self._cuts.clear()
        self._fates.clear()

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Somebody acts who comes to no place, and whose calls all arrive."""
        self._frames.append(None)
        try:
            yield
        finally:
            self._frames.pop()

    def reached(self, point: str) -> None:
        """A process has come to a place: it may crash here, or sleep while the schedule goes on."""
        self.commits += point == COMMITTED
        frame = self._frames[-1] if self._frames else None
        if frame is None:
            return
        fate = self._fates.get(frame.who)
        if fate is None or fate.kind in CALLS or not fate.comes():
            return
        del self._fates[frame.who]
        if fate.kind == CRASH:
            frame.note = f"crashed at {point}"
            raise fault_points.FaultError
        if point in NEVER_SLEPT_AT or sum(it is not None for it in self._frames) > DEEPEST:
            return
        frame.note = f"slept at {point}"
        self.counts["sleeps"] += 1
        with self.aside():
            self.sleep(fate.choices)
        self._set_line(frame.choice)

    def fate(self, call: Call) -> Fate | None:
        """What becomes of a call to a foreign cluster."""
        frame = self._frames[-1] if self._frames else None
        if frame is None:
            return Fate.ANSWERED
        if self._cut_now:
            return Fate.FAILED
        fate = self._fates.get(frame.who)
        # What is read cannot be in anybody's way, and is slow only for whoever reads.
        wanted = fate is not None and fate.kind in CALLS and (call.writes or fate.kind in (Fate.LOST, Fate.FAILED))
        if fate is None or not wanted or not fate.comes():
            return Fate.ANSWERED
        del self._fates[frame.who]
        self.counts[f"calls {fate.kind}"] += 1
        frame.note = f"{call.verb} {call.kind} {call.key}: {fate.kind}"
        return Fate(fate.kind)

    def _is_busy(self, who: str) -> bool:
        return any(frame is not None and frame.who == who for frame in self._frames)

    def _set_line(self, choice: ScheduleChoice) -> None:
        """How a watch goes wrong in this step."""
        line, given = self._given.line, choice.options
        if isinstance(line, SimulatedCluster):
            line.random = Random(choice.number("pick"))
            line.faults = ClusterFaults(
                slow_for=None,
                lag=choice.number("lag"),
                repeated=float("again" in given),
                coalesced=float("coalesced" in given),
                expired=float("expired" in given),
            )
