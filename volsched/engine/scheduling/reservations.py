"""How much of each capacity object is promised: from the plan on, until the object itself shows what was taken.

A driver publishes its room now and then. When a volume exists and its room is still published, the binding may be
long over; what was reserved for it is held until the capacity object changes after the volume appeared. A driver
that publishes nothing new is not waited for beyond a cap in time.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from volsched.core.binding.seen import annotations, claim_of, living, spec, uid
from volsched.core.fold import BindingState, LegState
from volsched.engine.clock import SECOND
from volsched.engine.world import World
from volsched.model.meta import SELECTED_NODE
from volsched.store.promised import Promised, promised_since

HOLD_AT_MOST = 120 * SECOND
"""After the end of its binding."""


@dataclass(slots=True)
class _Held:
    binding: str
    capacity: str
    bytes: int
    appeared_at: int | None = None
    """A position at which its volume was there."""
    settled: bool = False
    """The capacity object shows it; nothing is held any more."""
    closed: bool = False
    until: int | None = None


@dataclass(slots=True)
class Reservations:
    world: World
    change: Callable[[str, int], None]
    """Told of every capacity object of which more or less is reserved, and how much."""
    _held: dict[str, _Held] = field(default_factory=dict)
    """By the claim's uid: a claim gets one volume, however many plans it is in."""

    def follow(self, binding: str, before: BindingState | None, after: BindingState | None) -> None:
        """A binding has moved on; None: it is not, or no longer, under way."""
        wanted = {leg.claim_uid: leg for leg in (() if after is None else after.legs) if _reserves(leg)}
        for claim_uid, leg in wanted.items():
            held = self._held.get(claim_uid)
            if held is None or (held.binding != binding and leg.owner):
                self._hold(claim_uid, _Held(binding, leg.capacity or "", leg.bytes or 0))
        for leg in () if before is None else before.legs:
            held = self._held.get(leg.claim_uid)
            if held is not None and held.binding == binding and leg.claim_uid not in wanted:
                self._close(leg, held)

    def look(self, noun: str, key: str) -> None:
        """A volume or a capacity object may have changed."""
        if not self._held:
            return
        state = living(self.world.states, f"{noun}/{key}")
        if state is None or state.manifest is None:
            return
        if noun == "capacity":
            for held in self._held.values():
                if held.capacity == key and held.appeared_at is not None and state.rv > held.appeared_at:
                    self._settle(held)
            self._forget_settled()
            return
        held_for_it = self._held.get(str((claim_of(state.manifest) or {}).get("uid")))
        if held_for_it is not None and held_for_it.appeared_at is None:
            held_for_it.appeared_at = state.rv
            self.look("capacity", held_for_it.capacity)

    def expire(self, now: int) -> None:
        """Let go of what was held long enough."""
        for claim_uid, held in tuple(self._held.items()):
            if held.closed and held.until is None:
                held.until = now + HOLD_AT_MOST
            elif held.until is not None and held.until <= now:
                self._drop(claim_uid)

    def recall(self, now: int) -> None:
        """After a start: what ended bindings took may not be published yet, and they are not in the world."""
        if not any(stream.startswith("capacity/") for stream in self.world.states):
            return
        with self.world.database.read() as connection:
            promised = promised_since(connection, now - HOLD_AT_MOST)
        for it in promised:
            if it.claim_uid not in self._held and not self._is_published(it) and self._is_asked_for(it):
                self._hold(it.claim_uid, _Held(it.binding, it.capacity, it.bytes, it.appeared_at, closed=True))

    def _is_published(self, it: Promised) -> bool:
        state = living(self.world.states, f"capacity/{it.capacity}")
        return state is not None and it.appeared_at is not None and state.rv > it.appeared_at

    def _close(self, leg: LegState, held: _Held) -> None:
        """The leg has ended. A claim that let go of its node gets nothing; for any other a volume may come."""
        held.closed = True
        if held.settled or not self._is_asked_for(leg):
            self._drop(leg.claim_uid)

    def _is_asked_for(self, leg: LegState | Promised) -> bool:
        claim = living(self.world.states, f"claim/{leg.claim}")
        if claim is None or claim.manifest is None or uid(claim.manifest) != leg.claim_uid:
            return False
        return bool(spec(claim.manifest).get("volumeName")) or SELECTED_NODE in annotations(claim.manifest)

    def _hold(self, claim_uid: str, held: _Held) -> None:
        self._drop(claim_uid)
        self._held[claim_uid] = held
        self.change(held.capacity, held.bytes)

    def _settle(self, held: _Held) -> None:
        if not held.settled:
            held.settled = True
            self.change(held.capacity, -held.bytes)

    def _drop(self, claim_uid: str) -> None:
        held = self._held.pop(claim_uid, None)
        if held is not None:
            self._settle(held)

    def _forget_settled(self) -> None:
        """One whose binding goes on is kept, or the next move would reserve anew."""
        for claim_uid in [it for it, held in self._held.items() if held.settled and held.closed]:
            del self._held[claim_uid]


def _reserves(leg: LegState) -> bool:
    return leg.open and leg.capacity is not None and leg.bytes is not None
