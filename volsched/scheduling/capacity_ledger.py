"""How many bytes of each capacity object are promised: from the plan until the object itself shows the use.

A driver publishes its capacity periodically. The binding may be long over while the published capacity still
includes its volume; so the reservation is held until the capacity object changes after the volume appeared. A cap
in time covers a driver that publishes nothing new.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from volsched.kube.manifest import annotations, claim_of, metadata, spec, uid
from volsched.kube.meta import SELECTED_NODE
from volsched.log.events.fold import BindingState, LegState, living
from volsched.log.reads.open_bindings import Promised, promised_since
from volsched.runtime.clock import SECOND, rfc3339
from volsched.runtime.world import World
from volsched.scheduling.rules.configuration import CAPACITY_HOLD_SECONDS
from volsched.scheduling.rules.dynamic_volumes import PromisedCapacity, promised_room, selected_by_others

HOLD_AT_MOST = CAPACITY_HOLD_SECONDS * SECOND
"""How long room stays reserved after its binding ended, in microseconds, unless configured otherwise."""
NOBODY = ""
"""Stands for the binding of a claim that was promised room without a pod, or that another scheduler placed."""


@dataclass(slots=True)
class _Hold:
    binding: str
    capacity: str
    bytes: int
    appeared_at: int | None = None
    """A log position at which its volume existed; None: no volume was seen yet."""
    settled: bool = False
    """The capacity object shows the use; nothing is held any more."""
    closed: bool = False
    until: int | None = None


@dataclass(slots=True)
class CapacityLedger:
    world: World
    change: Callable[[str, str, int], None]
    """Called with a claim (by uid), a capacity object, and the change of the reserved bytes."""
    room_of_others: Callable[[str], PromisedCapacity | None]
    """The room that a claim (by key) takes on the node that another scheduler chose; None: not known."""
    hold: int = HOLD_AT_MOST
    _holds: dict[str, _Hold] = field(default_factory=dict)
    """The holds by claim uid: a claim gets one volume, however many plans it is in."""
    _alone: dict[str, str] = field(default_factory=dict)
    """Claims that were promised room without a pod or by another scheduler, by key, with their uids."""
    _unplaced: set[str] = field(default_factory=set)
    """Claims with a node of another scheduler, by key, whose class, driver, node or capacity is not known yet."""

    def follow(self, binding: str, before: BindingState | None, after: BindingState | None) -> None:
        """Apply a change of a binding; None: the binding is not open."""
        wanted = {leg.claim_uid: leg for leg in (() if after is None else after.legs) if _reserves(leg)}
        for claim_uid, leg in wanted.items():
            hold = self._holds.get(claim_uid)
            if hold is None or (hold.binding != binding and leg.owner):
                self._hold(claim_uid, _Hold(binding, leg.capacity or "", leg.bytes or 0))
        for leg in () if before is None else before.legs:
            hold = self._holds.get(leg.claim_uid)
            if hold is not None and hold.binding == binding and leg.claim_uid not in wanted:
                self._close(leg, hold)

    def holds(self, claim_uid: str) -> bool:
        """Whether room is held for this claim."""
        hold = self._holds.get(claim_uid)
        return hold is not None and not hold.settled

    def update(self, noun: str, key: str) -> None:
        """Read a volume, a claim or a capacity object again that may have changed."""
        if noun == "claim":
            self._update_claim(key)
            return
        if not self._holds:
            return
        state = living(self.world.states, f"{noun}/{key}")
        if state is None or state.manifest is None:
            return
        if noun == "capacity":
            for claim_uid, hold in self._holds.items():
                if hold.capacity == key and hold.appeared_at is not None and state.rv > hold.appeared_at:
                    self._settle(claim_uid, hold)
            self._forget_settled()
            return
        hold_of_claim = self._holds.get(str((claim_of(state.manifest) or {}).get("uid")))
        if hold_of_claim is not None and hold_of_claim.appeared_at is None:
            hold_of_claim.appeared_at = state.rv
            self.update("capacity", hold_of_claim.capacity)

    def _update_claim(self, key: str) -> None:
        """Hold or release the claim's room. Only `recall` can tell whether a bound claim's use is unpublished."""
        state = living(self.world.states, f"claim/{key}")
        manifest: Mapping[str, Any] = {} if state is None else state.manifest or {}
        self._unplaced.discard(key)
        room = promised_room(annotations(manifest)) if manifest else None
        theirs = bool(manifest) and selected_by_others(annotations(manifest)) is not None
        known = self._alone.get(key)
        if known is not None and (not (room or theirs) or known != uid(manifest)):
            del self._alone[key]
            if (hold := self._holds.get(known)) is not None and hold.binding == NOBODY:
                self._drop(known)
        if not (room or theirs):
            return
        hold = self._holds.get(uid(manifest))
        if spec(manifest).get("volumeName"):
            if hold is not None and hold.binding == NOBODY:
                hold.closed = True
        elif hold is None:
            room = room or self.room_of_others(key)
            if room is None:
                self._unplaced.add(key)
                return
            self._alone[key] = uid(manifest)
            self._hold(uid(manifest), _Hold(NOBODY, room.capacity, room.bytes))

    def expire(self, now: int) -> None:
        """Release what was held long enough, and hold what could not be placed before."""
        for key in tuple(self._unplaced):
            self._update_claim(key)
        for claim_uid, hold in tuple(self._holds.items()):
            if hold.closed and hold.until is None:
                hold.until = now + self.hold
            elif hold.until is not None and hold.until <= now:
                self._drop(claim_uid)

    def recall(self, now: int) -> None:
        """Restore holds after a start: ended bindings are not in the world, and their use may be unpublished."""
        if not any(stream.startswith("capacity/") for stream in self.world.states):
            return
        with self.world.database.read() as connection:
            promised = promised_since(connection, now - self.hold)
        for it in promised:
            if it.claim_uid not in self._holds and not self._is_published(it) and self._is_requested(it):
                self._hold(it.claim_uid, _Hold(it.binding, it.capacity, it.bytes, it.appeared_at, closed=True))
        since = rfc3339(now - self.hold)
        for stream in [stream for stream in self.world.states if stream.startswith("claim/")]:
            self._recall_alone(stream, since)

    def _recall_alone(self, stream: str, since: str) -> None:
        """Restore the hold of a claim without a pod: a volume created recently may not be published yet."""
        claim = living(self.world.states, stream)
        manifest: Mapping[str, Any] = {} if claim is None else claim.manifest or {}
        room = promised_room(annotations(manifest)) if manifest else None
        if room is None or uid(manifest) in self._holds:
            return
        volume = living(self.world.states, f"volume/{spec(manifest).get('volumeName')}")
        if volume is None or str(metadata(volume.manifest or {}).get("creationTimestamp", "")) < since:
            return
        published = living(self.world.states, f"capacity/{room.capacity}")
        if published is None or published.rv < volume.rv:
            self._hold(uid(manifest), _Hold(NOBODY, room.capacity, room.bytes, volume.rv, closed=True))

    def _is_published(self, hold: Promised) -> bool:
        state = living(self.world.states, f"capacity/{hold.capacity}")
        return state is not None and hold.appeared_at is not None and state.rv > hold.appeared_at

    def _close(self, leg: LegState, hold: _Hold) -> None:
        """Close the hold of an ended leg. A claim without a selected node gets no volume; others still may."""
        hold.closed = True
        if hold.settled or not self._is_requested(leg):
            self._drop(leg.claim_uid)

    def _is_requested(self, leg: LegState | Promised) -> bool:
        claim = living(self.world.states, f"claim/{leg.claim}")
        if claim is None or claim.manifest is None or uid(claim.manifest) != leg.claim_uid:
            return False
        return bool(spec(claim.manifest).get("volumeName")) or SELECTED_NODE in annotations(claim.manifest)

    def _hold(self, claim_uid: str, hold: _Hold) -> None:
        self._drop(claim_uid)
        self._holds[claim_uid] = hold
        self.change(claim_uid, hold.capacity, hold.bytes)

    def _settle(self, claim_uid: str, hold: _Hold) -> None:
        if not hold.settled:
            hold.settled = True
            self.change(claim_uid, hold.capacity, -hold.bytes)

    def _drop(self, claim_uid: str) -> None:
        hold = self._holds.pop(claim_uid, None)
        if hold is not None:
            self._settle(claim_uid, hold)

    def _forget_settled(self) -> None:
        """Entries of open bindings are kept; otherwise the binding's next move would reserve again."""
        for claim_uid in [it for it, hold in self._holds.items() if hold.settled and hold.closed]:
            del self._holds[claim_uid]


def _reserves(leg: LegState) -> bool:
    return leg.open and leg.capacity is not None and leg.bytes is not None
