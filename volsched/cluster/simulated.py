"""The simulated cluster: a foreign API behind a bad line, where calls and watches go wrong as they can.

What happens to a call is drawn from a generator that is passed in, or said by a test for exactly one call: a run
is repeated by repeating its seed. The objects themselves are in `foreign`, which is also how tests write as
somebody else, without faults.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from random import Random
from typing import TypeVar

from volsched.cluster.foreign_server import ForeignApi
from volsched.cluster.port import (
    CallRefusedError,
    Capabilities,
    ClusterError,
    ExpiredError,
    Listed,
    Manifest,
    PortChange,
    Refusal,
    UnansweredError,
    Watched,
)
from volsched.kube.kinds import key_of

Answer = TypeVar("Answer")


class Fate(StrEnum):
    """What becomes of a call."""

    ANSWERED = "answered"
    LOST = "lost"
    """Carried out, and nobody is told."""
    FAILED = "failed"
    """Never arrives."""
    SLOW = "slow"
    """Nobody waits for it any more, but it is under way and will be carried out later: a zombie."""
    CONFLICT = "conflict"
    """Refused as if somebody else had just written the object."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterFaults:
    """How bad the line is. Chances are per call, or per change where they are about a watch."""

    lost: float = 0
    failed: float = 0
    slow: float = 0
    conflict: float = 0
    slow_for: int | None = 3
    """A slow call is carried out before the call that comes this much later; None: when a test says so."""
    lag: int = 0
    """A change is shown this many watches late."""
    repeated: float = 0
    """The chance that a watch goes back and shows again what it showed before."""
    coalesced: float = 0
    """The chance that a watch shows only the last of several changes of an object."""
    expired: float = 0


NO_FAULTS = ClusterFaults()


@dataclass(frozen=True, slots=True)
class Call:
    verb: str
    kind: str
    key: str

    @property
    def writes(self) -> bool:
        return self.verb not in ("get", "list", "watch")


@dataclass(slots=True)
class _UnderWay:
    carry_out: Callable[[], object]
    wait: int | None


@dataclass(slots=True)
class SimulatedCluster:
    api: ForeignApi
    """The objects; a write there is a write by somebody else."""
    random: Random
    faults: ClusterFaults = NO_FAULTS
    before: Callable[[Call], Fate | None] | None = None
    """Called before each call: a test may write in between here, and say what becomes of the call."""
    after: Callable[[Call], None] | None = None
    """Called once a call has been carried out and before it is answered."""
    calls: list[Call] = field(default_factory=list)
    """Every call that was made, whatever became of it."""
    _under_way: list[_UnderWay] = field(default_factory=list)
    _heads: list[int] = field(default_factory=list)
    """How far the API was at each watch; what a late watch shows is one of these."""

    @property
    def capabilities(self) -> Capabilities:
        return self.api.capabilities

    def get(self, kind: str, key: str) -> Manifest | None:
        return self._call(Call("get", kind, key), lambda: self.api.get(kind, key))

    def list(self, kind: str) -> Listed:
        return self._call(Call("list", kind, ""), lambda: self.api.list(kind))

    def watch(self, *, cursor: str, limit: int = 1_000) -> Watched:
        return self._call(Call("watch", "", ""), lambda: self._watch(int(cursor), limit))

    def create(self, kind: str, manifest: Manifest) -> Manifest:
        call = Call("create", kind, key_of(kind, manifest))
        return self._call(call, lambda: self.api.create(kind, manifest))

    def update(self, kind: str, manifest: Manifest, *, status: bool = False) -> Manifest:
        call = Call("update status" if status else "update", kind, key_of(kind, manifest))
        return self._call(call, lambda: self.api.update(kind, manifest, status=status))

    def delete(self, kind: str, key: str, *, uid: str | None = None, version: str | None = None) -> None:
        self._call(Call("delete", kind, key), lambda: self.api.delete(kind, key, uid=uid, version=version))

    def bind_pod(self, key: str, *, uid: str, node: str) -> Manifest:
        return self._call(Call("bind", "Pod", key), lambda: self.api.bind_pod(key, uid=uid, node=node))

    def unassign_pod(self, key: str, *, uid: str, reason: str) -> Manifest:
        return self._call(Call("unassign", "Pod", key), lambda: self.api.unassign_pod(key, uid=uid, reason=reason))

    def land(self) -> int:
        """Carry out every call that is still under way; answers how many there were."""
        landing, self._under_way = self._under_way, []
        for slow in landing:
            _land(slow)
        return len(landing)

    def _call(self, call: Call, carry_out: Callable[[], Answer]) -> Answer:
        self._let_land()
        self.calls.append(call)
        told = self.before(call) if self.before is not None else None
        fate = told if told is not None else self._draw(call)
        if fate is Fate.CONFLICT:
            raise CallRefusedError(
                Refusal.CONFLICT, f'{call.kind} "{call.key}" was changed just now; read it again'
            )
        if fate is Fate.SLOW and call.writes:
            self._under_way.append(_UnderWay(carry_out, self.faults.slow_for))
        if fate in (Fate.SLOW, Fate.FAILED):
            raise UnansweredError(f'{call.verb} {call.kind} "{call.key}": no answer within the time-out')
        answer = carry_out()
        if self.after is not None:
            self.after(call)
        if fate is Fate.LOST:
            raise UnansweredError(f'{call.verb} {call.kind} "{call.key}": the connection broke before the answer')
        return answer

    def _draw(self, call: Call) -> Fate:
        """One draw per call, so that a chance that is turned up does not shift what the other calls draw."""
        drawn = self.random.random()
        for fate, chance in (
            (Fate.LOST, self.faults.lost),
            (Fate.FAILED, self.faults.failed),
            (Fate.SLOW, self.faults.slow),
            (Fate.CONFLICT, self.faults.conflict if call.writes else 0),
        ):
            if drawn < chance:
                return fate
            drawn -= chance
        return Fate.ANSWERED

    def _let_land(self) -> None:
        due = [slow for slow in self._under_way if slow.wait == 0]
        self._under_way = [slow for slow in self._under_way if slow.wait != 0]
        for slow in self._under_way:
            slow.wait = None if slow.wait is None else slow.wait - 1
        for slow in due:
            _land(slow)

    def _watch(self, cursor: int, limit: int) -> Watched:
        if self._happens(self.faults.expired):
            raise ExpiredError(f"the cursor {cursor} is too old; list again")
        self._heads = [*self._heads, int(self.api.head)][-1 - self.faults.lag :]
        until = self._heads[0] if len(self._heads) > self.faults.lag else cursor
        shown = self.api.watch(cursor=str(cursor), limit=limit).changes
        shown = tuple(change for change in shown if int(change.version) <= until)
        reached = shown[-1].version if shown else str(cursor)
        if self._happens(self.faults.coalesced):
            shown = _last_of_each(shown)
        if self._happens(self.faults.repeated):
            shown = (*self.api.changes_between(self.random.randint(0, cursor), cursor), *shown)
        return Watched(shown, reached)

    def _happens(self, chance: float) -> bool:
        return self.random.random() < chance


def _land(slow: _UnderWay) -> None:
    try:
        slow.carry_out()
    except ClusterError:
        # Nobody is left to be told.
        return


def _last_of_each(changes: tuple[PortChange, ...]) -> tuple[PortChange, ...]:
    last = {(change.kind, change.key): change for change in changes}
    return tuple(change for change in changes if last[change.kind, change.key] is change)
