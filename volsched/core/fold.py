"""The fold: what a stream has become after an event. The same function live, in replay and in verification.

A stream's state depends on the stream's own events only, so streams can be folded in any order and a single one
can be checked alone. Unknown event types move the version and nothing else: a newer program wrote them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from volsched.events.catalogue import CATALOGUE, Change
from volsched.events.patch import merged

Data = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Assumed:
    """A patch laid over an object by a binding; it counts while `rv` is the object's."""

    binding: str
    patch: Data
    rv: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectState:
    """`manifest` is None once the object is deleted; its stream goes on if the name is used again."""

    version: int
    rv: int = 0
    manifest: Data | None = None
    assumed: Assumed | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LegState:
    claim: str
    volume: str | None
    owner: bool
    open: bool = True
    state: str = "assumed"
    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BindingState:
    version: int
    plan: Data
    planned_at: int
    state: str = "prebinding"
    open: bool = True
    reason: str | None = None
    ended_at: int | None = None
    legs: tuple[LegState, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptState:
    version: int
    made: Data
    first_at: int
    last_at: int
    decided_at: int
    count: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class UnknownState:
    """A stream of which no event is known to this program yet."""

    version: int


State = ObjectState | BindingState | AttemptState | UnknownState


class FoldError(Exception):
    """An event that cannot follow what its stream has become: the log is not one that we wrote."""


def evolve(state: State | None, *, type_: str, version: int, position: int, at: int, data: Data) -> State:
    """The stream's state after the event."""
    entry = CATALOGUE.get(type_)
    match entry.change if entry else None:
        case Change.CREATE | Change.PATCH:
            manifest = state.manifest if isinstance(state, ObjectState) and state.manifest is not None else {}
            assumed = state.assumed if isinstance(state, ObjectState) else None
            return ObjectState(
                version=version, rv=position, manifest=merged(manifest, data["patch"]), assumed=assumed
            )
        case Change.DELETE:
            return ObjectState(version=version, rv=position)
        case Change.ASSUME:
            assumed = Assumed(data["binding"], data["patch"], data["rv"])
            return replace(_object(state, type_), version=version, assumed=assumed)
        case Change.FREE:
            current = _object(state, type_)
            mine = current.assumed is not None and current.assumed.binding == data["binding"]
            return replace(current, version=version, assumed=None if mine else current.assumed)
        case Change.PLAN:
            legs = tuple(
                LegState(claim=leg["claim"], volume=leg.get("volume"), owner=leg.get("owner", True))
                for leg in data["legs"]
            )
            return BindingState(version=version, plan=data, planned_at=at, legs=legs)
        case Change.MOVE_BINDING:
            return replace(
                _binding(state, type_),
                version=version,
                state=data["state"],
                open=data["open"],
                reason=data.get("reason"),
                ended_at=None if data["open"] else at,
            )
        case Change.MOVE_LEG:
            return _with_leg(_binding(state, type_), version, data)
        case Change.ATTEMPT:
            return AttemptState(version=version, made=data, first_at=at, last_at=at, decided_at=data["decided_at"])
        case Change.REPEAT:
            if not isinstance(state, AttemptState):
                raise FoldError(f"{type_} before the attempt it repeats")
            return replace(
                state, version=version, last_at=at, decided_at=data["decided_at"], count=state.count + 1
            )
        case _:
            return UnknownState(version=version) if state is None else replace(state, version=version)


def _with_leg(binding: BindingState, version: int, data: Data) -> BindingState:
    legs = list(binding.legs)
    if not 0 <= data["leg"] < len(legs):
        raise FoldError(f"LegMoved names leg {data['leg']} of {len(legs)}")
    leg = legs[data["leg"]]
    legs[data["leg"]] = replace(
        leg,
        state=data["state"],
        open=data["open"],
        volume=data.get("volume", leg.volume),
        reason=data.get("reason"),
    )
    return replace(binding, version=version, legs=tuple(legs))


def _object(state: State | None, type_: str) -> ObjectState:
    if not isinstance(state, ObjectState):
        raise FoldError(f"{type_} on an object that never was")
    return state


def _binding(state: State | None, type_: str) -> BindingState:
    if not isinstance(state, BindingState):
        raise FoldError(f"{type_} before the binding was planned")
    return state
