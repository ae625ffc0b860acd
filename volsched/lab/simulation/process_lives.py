"""The lives of processes in a simulated run: stepped, crashed, put to sleep, cut off, with wrong clocks."""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from random import Random

from volsched.cluster.simulated import Call, ClusterFaults, Fate, SimulatedCluster
from volsched.lab.faults import CHANCES
from volsched.lab.simulation.processes import ProcessLife, RunSurroundings
from volsched.lab.simulation.schedule import ScheduleChoice
from volsched.runtime import fault_points
from volsched.runtime.clock import SECOND
from volsched.runtime.runner import STEP_BACK

START = 1_800_000_000 * SECOND
DEEPEST = 3
"""The most processes that sleep at once."""
COMMITTED = "commit.after"
NEVER_SLEPT_AT = frozenset({"commit.before"})
"""A process that slept here would hold the store's lock, and all others would wait for it."""
DRAFTED, INTERRUPTED_EVERY = "commit.drafted", 3
"""Others write between a draft and its lock: after every third draft one of them acts."""
CRASH, SLEEP = "crash", "sleep"
CALLS = CHANCES["call"].variants
FATES_OF_READS = (Fate.LOST, Fate.FAILED, Fate.LIMITED)
FATES = (CRASH, SLEEP, *CALLS)
"""Options of a step that choose a fate; only one at a time."""
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
    """A fault at the n-th place, or the n-th call, that a process reaches from now on."""

    kind: str
    left: int
    choices: int = 1
    """The choices for which it sleeps."""

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
    """Commits by any process; while the count stays the same, so does the log."""
    born: dict[str, ProcessLife] = field(default_factory=dict)
    _given: RunSurroundings = field(init=False)
    _births: Counter[str] = field(default_factory=Counter)
    _skews: Counter[str] = field(default_factory=Counter)
    _set_right: set[str] = field(default_factory=set)
    """Processes whose clocks become right when they crash."""
    _cuts: dict[str, int] = field(default_factory=dict)
    """Process → the number of choices after which it is connected again."""
    _cut_now: bool = False
    _fates: dict[str, _Fate] = field(default_factory=dict)
    """The pending fault of a process: it happens in the step that sets it, or in a later one of its life."""
    _drafts: int = 0
    _frames: list[_Frame | None] = field(default_factory=list)
    """Steps under way, nested; None: an actor without faults."""

    def begin(self, given: RunSurroundings) -> None:
        self._given = given

    def clock(self) -> int:
        """The time on the clock of the running process."""
        frame = self._frames[-1] if self._frames else None
        return self.now if frame is None else frame.now

    def step(self, choice: ScheduleChoice, at: int) -> tuple[str, Exception | None]:
        """A note of what the step did, and any error that was not injected. A dead process is started."""
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
            self._note_end(who)
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
        self._note_end(who)
        return "it is gone"

    def skew(self, who: str, by: int, crash: int = 0) -> str:
        """`crash`: at the n-th place that it reaches from now on; after that its clock is right again."""
        self.counts["clock jumps"] += 1
        self._skews[who] += by
        if by < -STEP_BACK and not self._is_busy(who):
            # As processes of `serve` do.
            self.born.pop(who, None)
        if crash:
            self._fates[who] = _Fate(CRASH, crash)
            self._set_right.add(who)
        return "its clock jumps"

    def _note_end(self, who: str) -> None:
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
        """Corrects all clocks, also those that are ahead, and restores all connections."""
        for who, skew in self._skews.items():
            if skew > STEP_BACK:
                self.born.pop(who, None)
        self._skews.clear()
        self._set_right.clear()
        self._cuts.clear()
        self._fates.clear()

    @contextmanager
    def aside(self) -> Iterator[None]:
        """An actor without fault points, whose calls all succeed."""
        self._frames.append(None)
        try:
            yield
        finally:
            self._frames.pop()

    def reached(self, point: str) -> None:
        """A process has reached a place: it may crash here, or sleep while the schedule continues."""
        self.commits += point == COMMITTED
        frame = self._frames[-1] if self._frames else None
        if frame is None:
            return
        fate = self._fates.get(frame.who)
        if fate is None or fate.kind in CALLS or not fate.comes():
            if point == DRAFTED:
                self._interrupt(frame)
            return
        del self._fates[frame.who]
        if fate.kind == CRASH:
            frame.note = f"crashed at {point}"
            raise fault_points.FaultError
        if point in NEVER_SLEPT_AT:
            return
        self._rest(frame, fate.choices, f"slept at {point}")

    def _interrupt(self, frame: "_Frame") -> None:
        self._drafts += 1
        if self._drafts % INTERRUPTED_EVERY == 0:
            self._rest(frame, 1, "was interrupted before the lock")

    def _rest(self, frame: "_Frame", choices: int, note: str) -> None:
        if sum(known is not None for known in self._frames) > DEEPEST:
            return
        frame.note = note
        self.counts["sleeps"] += 1
        with self.aside():
            self.sleep(choices)
        self._set_line(frame.choice)

    def fate(self, call: Call) -> Fate | None:
        """The fate of a call to a foreign cluster."""
        frame = self._frames[-1] if self._frames else None
        if frame is None:
            return Fate.ANSWERED
        if self._cut_now:
            return Fate.FAILED
        fate = self._fates.get(frame.who)
        # A read cannot conflict with others, and is slow only for its reader.
        wanted = fate is not None and fate.kind in CALLS and (call.writes or fate.kind in FATES_OF_READS)
        if fate is None or not wanted or not fate.comes():
            return Fate.ANSWERED
        del self._fates[frame.who]
        self.counts[f"calls {fate.kind}"] += 1
        frame.note = f"{call.verb} {call.kind} {call.key}: {fate.kind}"
        return Fate(fate.kind)

    def _is_busy(self, who: str) -> bool:
        return any(frame is not None and frame.who == who for frame in self._frames)

    def _set_line(self, choice: ScheduleChoice) -> None:
        """The faults of a watch in this step."""
        line, given = self._given.line, choice.options
        if isinstance(line, SimulatedCluster):
            line.random = Random(choice.number("pick"))
            line.faults = ClusterFaults(
                slow_for=None,
                lag=choice.number("lag"),
                repeated=float("again" in given),
                coalesced=float("coalesced" in given),
                expired=float("expired" in given),
                silent=float("silent" in given),
                torn=float("torn" in given),
            )
