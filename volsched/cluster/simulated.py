"""The simulated cluster: a foreign API server (`foreign_api`) behind a connection with faulty calls and watches.

The fate of a call is drawn from a generator that is passed in, or set by a test for exactly one call: the same
seed repeats a run. The objects themselves are in `api`, where tests write as another writer,
without faults.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from random import Random
from typing import TypeVar

from volsched.cluster.foreign_api import ForeignApi
from volsched.cluster.port import (
    NOTHING_KNOWN,
    CallRefusedError,
    Capabilities,
    ClusterError,
    ClusterIdentity,
    Cursors,
    ExpiredError,
    KnownVersions,
    ListPage,
    Manifest,
    Permission,
    PortChange,
    Refusal,
    UnansweredError,
    Watched,
)
from volsched.kube.kinds import key_of

Answer = TypeVar("Answer")


class Fate(StrEnum):
    """The outcome of a call."""

    ANSWERED = "answered"
    LOST = "lost"
    """Executed, but the answer is lost."""
    FAILED = "failed"
    """The call never arrives."""
    SLOW = "slow"
    """The caller timed out, but the call is in flight and will be executed later."""
    LIMITED = "limited"
    """Refused by an overloaded server (429) with a retry time; certainly not executed."""
    CONFLICT = "conflict"
    """Refused as if another writer had just changed the object."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterFaults:
    """The faults of the connection. Probabilities are per call."""

    lost: float = 0
    failed: float = 0
    slow: float = 0
    conflict: float = 0
    slow_for: int | None = 3
    """A slow call is executed before the call that comes this many calls later; None: when a test calls `land`."""
    lag: int = 0
    """The number of watches by which a change is late."""
    repeated: float = 0
    """The probability that a watch repeats changes that it has reported before."""
    coalesced: float = 0
    """The probability that a watch shows only the last of several changes of an object."""
    expired: float = 0
    silent: float = 0
    """The probability that a watch reports nothing of one kind, as with a dead connection."""
    torn: float = 0
    """The probability that a list breaks off before its last page."""


NO_FAULTS = ClusterFaults()
RETRY_SECONDS = 1.0


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
    """The objects; a write there is a write by another client."""
    random: Random
    faults: ClusterFaults = NO_FAULTS
    before: Callable[[Call], Fate | None] | None = None
    """Called before each call, so that a test may write in between and set the fate of the call."""
    after: Callable[[Call], None] | None = None
    """Called after a call is executed and before it is answered."""
    calls: list[Call] = field(default_factory=list)
    """Every call that was made, whatever its fate."""
    _under_way: list[_UnderWay] = field(default_factory=list)
    _heads: list[int] = field(default_factory=list)
    """The API's version at each watch; a late watch shows the state at one of these."""

    @property
    def capabilities(self) -> Capabilities:
        return self.api.capabilities

    def get(self, kind: str, key: str) -> Manifest | None:
        return self._call(Call("get", kind, key), lambda: self.api.get(kind, key))

    def describe(self, permissions: Sequence[Permission] = ()) -> ClusterIdentity:
        return self.api.describe(permissions)

    def list(self, kind: str, known: KnownVersions = NOTHING_KNOWN) -> Iterator[ListPage]:
        """A list is one call: its fate is drawn once, however many pages it has."""
        pages = self._call(Call("list", kind, ""), lambda: tuple(self.api.list(kind, known)))
        if self.faults.torn and self._happens(self.faults.torn):
            yield from (ListPage(page.objects) for page in pages[: max(len(pages) - 1, 1)])
            raise UnansweredError(f"list {kind}: the stream ended before the list was complete; list again")
        yield from pages

    def watch(self, cursors: Cursors, *, limit: int = 1_000) -> Watched:
        return self._call(Call("watch", "", ""), lambda: self._watch(cursors, limit))

    def create(self, kind: str, manifest: Manifest) -> Manifest:
        call = Call("create", kind, key_of(kind, manifest))
        return self._call(call, lambda: self.api.create(kind, manifest))

    def update(self, kind: str, manifest: Manifest, *, status: bool = False) -> Manifest:
        call = Call("update status" if status else "update", kind, key_of(kind, manifest))
        return self._call(call, lambda: self.api.update(kind, manifest, status=status))

    def patch(self, kind: str, key: str, patch: Manifest, *, version: str, status: bool = False) -> Manifest:
        call = Call("patch status" if status else "patch", kind, key)
        return self._call(call, lambda: self.api.patch(kind, key, patch, version=version, status=status))

    def delete(self, kind: str, key: str, *, uid: str | None = None, version: str | None = None) -> None:
        self._call(Call("delete", kind, key), lambda: self.api.delete(kind, key, uid=uid, version=version))

    def fence(self, kind: str, key: str, *, version: str, mark: str) -> Manifest:
        return self._call(Call("fence", kind, key), lambda: self.api.fence(kind, key, version=version, mark=mark))

    def open_gate(self, key: str, pod: Manifest, *, annotations: Mapping[str, str] | None = None) -> Manifest:
        return self._call(
            Call("open gate", "Pod", key), lambda: self.api.open_gate(key, pod, annotations=annotations)
        )

    def set_condition(self, key: str, condition: Manifest, *, uid: str) -> None:
        self._call(Call("set condition", "Pod", key), lambda: self.api.set_condition(key, condition, uid=uid))

    def create_event(self, event: Manifest) -> None:
        self._call(Call("create event", "Event", ""), lambda: self.api.create_event(event))

    def bind_pod(
        self, key: str, *, uid: str, version: str, node: str, annotations: Mapping[str, str] | None = None
    ) -> None:
        self._call(
            Call("bind", "Pod", key),
            lambda: self.api.bind_pod(key, uid=uid, version=version, node=node, annotations=annotations),
        )

    def unassign_pod(self, key: str, *, uid: str, reason: str) -> Manifest:
        return self._call(Call("unassign", "Pod", key), lambda: self.api.unassign_pod(key, uid=uid, reason=reason))

    def land(self) -> int:
        """Execute every call that is still in flight; returns their number."""
        landing, self._under_way = self._under_way, []
        for slow in landing:
            _land(slow)
        return len(landing)

    def _call(self, call: Call, carry_out: Callable[[], Answer]) -> Answer:
        self._let_land()
        self.calls.append(call)
        chosen = self.before(call) if self.before is not None else None
        fate = chosen if chosen is not None else self._draw(call)
        if fate is Fate.CONFLICT:
            raise CallRefusedError(
                Refusal.CONFLICT, f'{call.kind} "{call.key}" was changed just now; read it again'
            )
        if fate is Fate.LIMITED:
            raise UnansweredError("Too many requests, please try again later.", retry_after=RETRY_SECONDS)
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
        """One draw per call, so that a higher probability does not change the draws of other calls."""
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

    def _watch(self, cursors: Cursors, limit: int) -> Watched:
        if self._happens(self.faults.expired):
            kind = self.random.choice(sorted(cursors))
            raise ExpiredError(kind, f"{kind}: the cursor {cursors[kind]} is too old; list again")
        self._heads = [*self._heads, int(self.api.head)][-1 - self.faults.lag :]
        until = self._heads[0] if len(self._heads) > self.faults.lag else 0
        watched = self.api.watch(cursors, limit=limit)
        shown = tuple(change for change in watched.changes if int(change.version) <= until)
        reached = _limited_cursors(cursors, watched, until)
        if self.faults.silent and self._happens(self.faults.silent):
            kind = self.random.choice(sorted(cursors))
            shown = tuple(change for change in shown if change.kind != kind)
            reached = {**reached, kind: cursors[kind]}
        if self._happens(self.faults.coalesced):
            shown = _last_of_each(shown)
        if self._happens(self.faults.repeated):
            latest = max(int(cursor) for cursor in cursors.values())
            again = self.api.changes_between(self.random.randint(0, latest), latest)
            # A change after the cursor is not a repetition, and would be reported too early.
            repeated = (change for change in again if int(change.version) <= int(cursors.get(change.kind, "0")))
            shown = (*repeated, *shown)
        return Watched(shown, reached)

    def _happens(self, chance: float) -> bool:
        return self.random.random() < chance


def _land(slow: _UnderWay) -> None:
    try:
        slow.carry_out()
    except ClusterError:
        # The caller has timed out: the error is dropped.
        return


def _last_of_each(changes: tuple[PortChange, ...]) -> tuple[PortChange, ...]:
    last = {(change.kind, change.key): change for change in changes}
    return tuple(change for change in changes if last[change.kind, change.key] is change)


def _limited_cursors(cursors: Cursors, watched: Watched, until: int) -> Cursors:
    """The cursors after these changes: none goes beyond the shown changes, and none goes back."""
    return {
        kind: str(max(int(cursor), min(int(watched.cursors[kind]), until))) for kind, cursor in cursors.items()
    }
