"""The simulated cluster: a foreign API server in memory, behind a line where calls and watches go wrong."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from enum import StrEnum
from random import Random
from typing import Any, TypeVar

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
    existing,
    refused,
    with_condition,
    without_gate,
    without_version,
)
from volsched.kube.kinds import KINDS, key_of
from volsched.kube.manifest import metadata
from volsched.kube.meta import FENCE
from volsched.kube.patches import merged
from volsched.log.commands import RejectedError
from volsched.log.events.envelope import NewEvent
from volsched.log.events.fold import ObjectState, State, evolve
from volsched.log.events.streams import NOUN_OF_KIND
from volsched.objects.rules.lifecycle import create_object, delete_object, update_object
from volsched.objects.rules.pod_assignment import bind_pod, unassign_pod

# A foreign API server in memory, without faults: the truth behind the simulated cluster.
#
# It has versions and uids of its own and knows nothing of our log. Tests write here as somebody else would:
# the PV controller, a provisioner, an administrator, a second scheduler. The rules are those of our own store
# (`objects.rules.lifecycle`), so the two clusters that we play differ only in where objects live and who
# numbers them.

ABLE = Capabilities(can_unbind=True, has_data_state=True, can_unassign=True)


@dataclass(slots=True)
class ForeignApi:
    now_text: Callable[[], str]
    """The time now, as RFC 3339."""
    capabilities: Capabilities = ABLE
    uid: str = "kube-system-1"
    """Whose objects these are: a cluster that was replaced has another."""
    page_size: int = 500
    forbidden: set[Permission] = field(default_factory=set)
    """What an administrator has not allowed us."""
    told: list[Manifest] = field(default_factory=list)
    """The events that were created."""
    _version: int = 0
    _objects: dict[tuple[str, str], ObjectState] = field(default_factory=dict)
    _history: list[PortChange] = field(default_factory=list)
    _forgotten: dict[str, int] = field(default_factory=dict)
    """Kind → the last version that watches of it cannot go back behind any more."""

    def get(self, kind: str, key: str) -> Manifest | None:
        return _shown(self._objects.get((kind, key)))

    def describe(self, permissions: Sequence[Permission] = ()) -> ClusterIdentity:
        may = {permission: permission not in self.forbidden for permission in permissions}
        return ClusterIdentity(uid=self.uid, version="1.37", url="simulated", may=may)

    def list(self, kind: str, known: KnownVersions = NOTHING_KNOWN) -> Iterator[ListPage]:
        self._permit("list", kind)
        states = sorted((key, state) for (of, key), state in self._objects.items() if of == kind)
        shown = {key: manifest for key, state in states if (manifest := _shown(state)) is not None}
        unchanged = tuple(
            key
            for key, it in shown.items()
            if known.get(key) == (it["metadata"]["uid"], it["metadata"]["resourceVersion"])
        )
        objects = [manifest for key, manifest in shown.items() if key not in set(unchanged)]
        # All pages are of one moment, so what is written between two of them is for the watch.
        cursor, size = self.head, self.page_size
        for start in range(0, max(len(objects), 1), size):
            is_last = start + size >= len(objects)
            page = tuple(objects[start : start + size])
            yield ListPage(page, cursor, unchanged=unchanged) if is_last else ListPage(page)

    def watch(self, cursors: Cursors, *, limit: int = 1_000) -> Watched:
        known = {kind: int(cursor) for kind, cursor in cursors.items()}
        for kind, version in known.items():
            self._permit("watch", kind)
            if version < self._forgotten.get(kind, 0):
                oldest = self._forgotten[kind]
                raise ExpiredError(
                    kind, f"{kind}: the cursor {version} is too old, the oldest is {oldest}; list again"
                )
        news = [change for change in self._history if int(change.version) > known.get(change.kind, self._version)]
        # This server numbers all kinds by one counter, and tells changes in its order.
        reached = int(news[limit - 1].version) if len(news) > limit else self._version
        reached = reached if news else 0
        changes = tuple(_copied(change) for change in news[:limit])
        return Watched(changes, {kind: str(max(version, reached)) for kind, version in known.items()})

    def create(self, kind: str, manifest: Manifest) -> Manifest:
        # Taken from the counter, so that a uid says when its object was made and no name ever has one twice.
        uid = f"uid-{self._version + 1}"
        return self._write(
            kind,
            key_of(kind, manifest),
            lambda state: create_object(state, KINDS[kind], manifest, uid=uid, now=self.now_text()),
        )

    def update(self, kind: str, manifest: Manifest, *, status: bool = False) -> Manifest:
        if not (manifest.get("metadata") or {}).get("resourceVersion"):
            raise without_version(kind, key_of(kind, manifest))
        self._permit("update", kind, "status" if status else "")
        return self._replace(kind, manifest, status)

    def patch(self, kind: str, key: str, patch: Manifest, *, version: str, status: bool = False) -> Manifest:
        self._permit("patch", kind, "status" if status else "")
        held = existing(self, kind, key)
        named = {"metadata": {"resourceVersion": version}}
        return self._replace(kind, merged(merged(held, patch), named), status)

    def _replace(self, kind: str, manifest: Manifest, status: bool) -> Manifest:
        sent = dict(manifest)
        if status and not self.capabilities.has_data_state and isinstance(sent.get("status"), dict):
            # As a server does with a field that it does not know.
            sent["status"] = {name: value for name, value in sent["status"].items() if name != "dataState"}
        return self._write(
            kind,
            key_of(kind, manifest),
            lambda state: update_object(
                state, KINDS[kind], sent, status=status, by_volume_controller=self.capabilities.can_unbind
            ),
        )

    def delete(self, kind: str, key: str, *, uid: str | None = None, version: str | None = None) -> None:
        self._write(
            kind,
            key,
            lambda state: delete_object(state, KINDS[kind], key, now=self.now_text(), uid=uid, rv=version),
        )

    def fence(self, kind: str, key: str, *, version: str, mark: str) -> Manifest:
        self._permit("patch", kind, "status" if kind == "Pod" else "")
        held = existing(self, kind, key)
        change = {"metadata": {"annotations": {FENCE: mark}, "resourceVersion": version}}
        return self._replace(kind, merged(held, change), status=False)

    def open_gate(self, key: str, pod: Manifest, *, annotations: Mapping[str, str] | None = None) -> Manifest:
        self._permit("patch", "Pod")
        held = existing(self, "Pod", key)
        version = {"metadata": {"resourceVersion": pod["metadata"]["resourceVersion"]}}
        return self._replace("Pod", merged(without_gate(held, annotations), version), status=False)

    def set_condition(self, key: str, condition: Manifest, *, uid: str) -> None:
        self._permit("patch", "Pod", "status")
        held = existing(self, "Pod", key)
        if held["metadata"]["uid"] != uid:
            raise CallRefusedError(Refusal.INVALID, f'Pod "{key}": metadata.uid: field is immutable')
        self._replace("Pod", with_condition(held, condition), status=True)

    def tell(self, event: Manifest) -> None:
        self._permit("create", "Event")
        self.told.append(event)

    def bind_pod(
        self, key: str, *, uid: str, version: str, node: str, annotations: Mapping[str, str] | None = None
    ) -> None:
        self._permit("create", "Pod", "binding")
        held = self._objects.get(("Pod", key))
        # Preconditions come first, and neither says more than that it is not the pod that was meant.
        if held is not None and (metadata(held.manifest or {}).get("uid"), str(held.rv)) != (uid, version):
            raise CallRefusedError(
                Refusal.CONFLICT, f'Pod "{key}" is not the pod {uid} at version {version} any more'
            )
        now = self.now_text()
        self._write("Pod", key, lambda state: bind_pod(state, key, uid=uid, node=node, now=now, notes=annotations))

    def unassign_pod(self, key: str, *, uid: str, reason: str) -> Manifest:
        if not self.capabilities.can_unassign:
            raise CallRefusedError(
                Refusal.INVALID, f'Pod "{key}": this cluster takes no pod off its node; delete it'
            )
        now = self.now_text()
        return self._write("Pod", key, lambda state: unassign_pod(state, key, uid=uid, reason=reason, now=now))

    @property
    def head(self) -> str:
        """The version of the last write of all."""
        return str(self._version)

    def changes_between(self, after: int, until: int) -> tuple[PortChange, ...]:
        """Copies, because whoever watches may keep and change what it gets."""
        return tuple(_copied(change) for change in self._history if after < int(change.version) <= until)

    def forget_history(self, *kinds: str) -> None:
        """Every cursor of these kinds, or of all, that is not at the head becomes too old."""
        for kind in kinds or NOUN_OF_KIND:
            self._forgotten[kind] = self._version
        self._history = [change for change in self._history if kinds and change.kind not in kinds]

    def _permit(self, verb: str, kind: str, subresource: str = "") -> None:
        permission = Permission(verb, kind, subresource)
        if permission in self.forbidden:
            raise CallRefusedError(Refusal.FORBIDDEN, f"we may not {permission}; ask an administrator for it")

    def _write(self, kind: str, key: str, decide: Callable[[State | None], NewEvent | None]) -> Manifest:
        held = self._objects.get((kind, key))
        try:
            event = decide(held)
        except RejectedError as error:
            raise refused(error) from error
        if event is None:
            return _shown(held) or {}
        self._version += 1
        become = evolve(held, event.type, version=0, position=self._version, at=0, data=deepcopy(dict(event.data)))
        assert isinstance(become, ObjectState)
        if become.manifest is None:
            del self._objects[kind, key]
        else:
            self._objects[kind, key] = become
        self._history.append(PortChange(kind, key, _shown(become), self.head))
        return _shown(become) or _shown(held) or {}


def _copied(change: PortChange) -> PortChange:
    return replace(change, manifest=deepcopy(change.manifest))


def _shown(state: ObjectState | None) -> dict[str, Any] | None:
    """A copy of the manifest with its version, as the server hands it out."""
    if state is None or state.manifest is None:
        return None
    # A manifest is JSON, and through JSON it is copied several times faster than by `deepcopy`. Not by orjson: a
    # server may hold numbers that are too large for it.
    manifest: dict[str, Any] = json.loads(json.dumps(state.manifest))
    manifest["metadata"]["resourceVersion"] = str(state.rv)
    return manifest


# What happens to a call is drawn from a generator that is passed in, or said by a test for exactly one call:
# a run is repeated by repeating its seed. The objects themselves are in `foreign`, which is also how tests
# write as somebody else, without faults.

Answer = TypeVar("Answer")


class Fate(StrEnum):
    """What becomes of a call."""

    ANSWERED = "answered"
    LOST = "lost"
    """Carried out, and the answer is lost."""
    FAILED = "failed"
    """Never arrives."""
    SLOW = "slow"
    """Nobody waits for it any more, but it is under way and will be carried out later: a zombie."""
    LIMITED = "limited"
    """Turned away by an overloaded server (429), which says when to come back; certainly not carried out."""
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
    silent: float = 0
    """The chance that one kind tells nothing in a watch, while the others go on: its connection is dead."""
    torn: float = 0
    """The chance that a list breaks off before its last page."""


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

    def describe(self, permissions: Sequence[Permission] = ()) -> ClusterIdentity:
        return self.api.describe(permissions)

    def list(self, kind: str, known: KnownVersions = NOTHING_KNOWN) -> Iterator[ListPage]:
        """One call, whose fate is drawn once, however many pages it has."""
        pages = self._call(Call("list", kind, ""), lambda: tuple(self.api.list(kind, known)))
        if self.faults.torn and self._happens(self.faults.torn):
            yield from (ListPage(page.objects) for page in pages[: max(len(pages) - 1, 1)])
            raise UnansweredError(f"list {kind}: the stream ended before the list did; list again")
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

    def tell(self, event: Manifest) -> None:
        self._call(Call("tell", "Event", ""), lambda: self.api.tell(event))

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

    def _watch(self, cursors: Cursors, limit: int) -> Watched:
        if self._happens(self.faults.expired):
            kind = self.random.choice(sorted(cursors))
            raise ExpiredError(kind, f"{kind}: the cursor {cursors[kind]} is too old; list again")
        self._heads = [*self._heads, int(self.api.head)][-1 - self.faults.lag :]
        until = self._heads[0] if len(self._heads) > self.faults.lag else 0
        watched = self.api.watch(cursors, limit=limit)
        shown = tuple(change for change in watched.changes if int(change.version) <= until)
        reached = _reached(cursors, watched, until)
        if self.faults.silent and self._happens(self.faults.silent):
            kind = self.random.choice(sorted(cursors))
            shown = tuple(change for change in shown if change.kind != kind)
            reached = {**reached, kind: cursors[kind]}
        if self._happens(self.faults.coalesced):
            shown = _last_of_each(shown)
        if self._happens(self.faults.repeated):
            latest = max(int(cursor) for cursor in cursors.values())
            again = self.api.changes_between(self.random.randint(0, latest), latest)
            # What a cursor does not cover is no repetition, and would come before its turn.
            told = (change for change in again if int(change.version) <= int(cursors.get(change.kind, "0")))
            shown = (*told, *shown)
        return Watched(shown, reached)

    def _happens(self, chance: float) -> bool:
        return self.random.random() < chance


def _land(slow: _UnderWay) -> None:
    try:
        slow.carry_out()
    except ClusterError:
        # Nobody is left to get the answer.
        return


def _last_of_each(changes: tuple[PortChange, ...]) -> tuple[PortChange, ...]:
    last = {(change.kind, change.key): change for change in changes}
    return tuple(change for change in changes if last[change.kind, change.key] is change)


def _reached(cursors: Cursors, watched: Watched, until: int) -> Cursors:
    """No cursor goes further than what was shown, and none goes back."""
    return {
        kind: str(max(int(cursor), min(int(watched.cursors[kind]), until))) for kind, cursor in cursors.items()
    }
