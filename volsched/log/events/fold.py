"""The fold: a stream's state after an event; the events and effects of decisions; objects by stream."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from volsched.kube.manifest import Manifest, metadata
from volsched.kube.patches import merged, without_nulls
from volsched.log.events.catalogue import CATALOGUE, StateChange
from volsched.log.events.envelope import NewEvent

# A stream's state depends on the stream's own events only, so streams can be folded in any order and a single one
# can be checked alone. Unknown event types raise only the version: a newer program wrote them.
#
# A million events are folded one by one. So states are tuples (created at a third of the cost of frozen
# dataclasses), and the handler is looked up by the event's type instead of matched.

Data = Mapping[str, Any]


class Assumed(NamedTuple):
    """A patch laid over an object by a binding; it applies while `rv` is the object's."""

    binding: str
    patch: Data
    rv: int


class ObjectState(NamedTuple):
    """`manifest` is None once the object is deleted; the stream continues if the name is used again."""

    version: int
    rv: int = 0
    manifest: Data | None = None
    assumed: Assumed | None = None

    @property
    def is_assumed(self) -> bool:
        """Whether an assumption applies: a write ends it, also one that carries out what was assumed."""
        return self.assumed is not None and self.assumed.rv == self.rv


class LegState(NamedTuple):
    claim: str
    volume: str | None
    owner: bool
    open: bool = True
    state: str = "assumed"
    reason: str | None = None
    claim_uid: str = ""
    dynamic: bool = False
    """Planned without a volume: one was to be provisioned, and may exist by now."""
    rv: str = ""
    written_rv: str | None = None
    joins: str | None = None
    capacity: str | None = None
    bytes: int | None = None


class BindingState(NamedTuple):
    version: int
    plan: Data
    planned_at: int
    state: str = "prebinding"
    open: bool = True
    reason: str | None = None
    ended_at: int | None = None
    legs: tuple[LegState, ...] = ()


class AttemptState(NamedTuple):
    version: int
    made: Data
    first_at: int
    last_at: int
    decided_at: int
    times: int = 1


class TokenState(NamedTuple):
    """The last token issued under a name."""

    version: int
    id: str
    roles: tuple[str, ...]
    namespaces: tuple[str, ...] | None
    expires: int | None
    fingerprint: str | None
    """None: an earlier program issued it."""
    revoked_at: int | None = None


class LeaseState(NamedTuple):
    version: int
    epoch: int
    """The lease has had this epoch, or a later one, since it was last freed by hand."""


class UnknownState(NamedTuple):
    """A stream of which this program knows no event yet."""

    version: int


State = ObjectState | BindingState | AttemptState | TokenState | LeaseState | UnknownState


class FoldError(Exception):
    """An event that cannot follow its stream's state: we did not write this log."""


def versioned(state: ObjectState) -> dict[str, Any]:
    """The manifest as the API shows it: with its resourceVersion."""
    manifest = dict(state.manifest or {})
    manifest["metadata"] = {**manifest.get("metadata", {}), "resourceVersion": str(state.rv)}
    return manifest


def evolve(state: State | None, type_: str, version: int, position: int, at: int, data: Data) -> State:
    """The stream's state after the event."""
    return _STEPS.get(type_, _pass)(state, version, position, at, data)


def _write(state: State | None, version: int, position: int, _at: int, data: Data) -> State:
    if isinstance(state, ObjectState) and state.manifest is not None:
        return ObjectState(version, position, merged(state.manifest, data["patch"]), state.assumed)
    return ObjectState(version, position, without_nulls(data["patch"]))


def _delete(_: State | None, version: int, position: int, _at: int, _data: Data) -> State:
    return ObjectState(version, position)


def _assume(state: State | None, version: int, _position: int, _at: int, data: Data) -> State:
    held = _object(state, "assumed")
    return ObjectState(version, held.rv, held.manifest, Assumed(data["binding"], data["patch"], data["rv"]))


def _free(state: State | None, version: int, _position: int, _at: int, data: Data) -> State:
    before = _object(state, "freed")
    mine = before.assumed is not None and before.assumed.binding == data["binding"]
    return ObjectState(version, before.rv, before.manifest, None if mine else before.assumed)


def _plan(state: State | None, version: int, _position: int, at: int, data: Data) -> State:
    if isinstance(state, BindingState):
        raise FoldError("a binding is planned a second time")
    return BindingState(version, data, at, legs=tuple(_leg(leg, bool(data.get("staged"))) for leg in data["legs"]))


def _leg(planned: Data, staged: bool) -> LegState:
    volume, owner = planned.get("volume"), planned.get("owner", True)
    return LegState(
        claim=planned["claim"],
        volume=volume,
        owner=owner,
        state=("planned" if staged else "assumed") if owner else "joined",
        claim_uid=planned.get("claim_uid", ""),
        dynamic=volume is None,
        rv=planned.get("rv", ""),
        joins=planned.get("joins"),
        capacity=planned.get("capacity"),
        bytes=planned.get("bytes"),
    )


def _move_binding(state: State | None, version: int, _position: int, at: int, data: Data) -> State:
    binding, is_open = _binding(state), data["open"]
    ended_at = None if is_open else at
    # When a binding ends, its legs release their volumes and claims.
    legs = binding.legs if is_open else tuple(leg._replace(open=False) for leg in binding.legs)
    plan = {**binding.plan, "deadline": data["deadline"]} if "deadline" in data else binding.plan
    return BindingState(
        version, plan, binding.planned_at, data["state"], is_open, data.get("reason"), ended_at, legs
    )


def _move_leg(state: State | None, version: int, _position: int, _at: int, data: Data) -> State:
    binding, index = _binding(state), data["leg"]
    if not 0 <= index < len(binding.legs):
        raise FoldError(f"leg {index} is moved, and the binding has only {len(binding.legs)}")
    leg, legs = binding.legs[index], list(binding.legs)
    legs[index] = leg._replace(
        volume=data.get("volume", leg.volume),
        open=data["open"],
        state=data["state"],
        reason=data.get("reason"),
        written_rv=data.get("rv", leg.written_rv),
    )
    return BindingState(
        version,
        binding.plan,
        binding.planned_at,
        binding.state,
        binding.open,
        binding.reason,
        binding.ended_at,
        tuple(legs),
    )


def _attempt(_: State | None, version: int, _position: int, at: int, data: Data) -> State:
    return AttemptState(version, data, at, at, data["decided_at"])


def _repeat(state: State | None, version: int, _position: int, at: int, data: Data) -> State:
    if not isinstance(state, AttemptState):
        raise FoldError("an attempt is repeated before it is recorded")
    return AttemptState(version, state.made, state.first_at, at, data["decided_at"], state.times + 1)


def _fail(state: State | None, version: int, _position: int, at: int, data: Data) -> State:
    """The attempt's binding failed. When it was decided, and how often, does not change."""
    if not isinstance(state, AttemptState):
        raise FoldError("an attempt fails before it is recorded")
    failure = {"at": at} | {name: it for name, it in data.items() if name != "message"}
    detail = {**state.made["detail"], "message": data["message"], "failure": failure}
    return state._replace(version=version, made={**state.made, "outcome": "failed", "detail": detail})


def _issue(_: State | None, version: int, _position: int, _at: int, data: Data) -> State:
    within = data.get("namespaces")
    return TokenState(
        version=version,
        id=data["id"],
        roles=tuple(data["roles"]),
        namespaces=None if within is None else tuple(within),
        expires=data.get("expires"),
        fingerprint=data.get("fingerprint"),
    )


def _revoke(state: State | None, version: int, position: int, at: int, data: Data) -> State:
    if isinstance(state, TokenState) and state.id == data["id"]:
        return state._replace(version=version, revoked_at=at)
    # Writers do not load the issue data, and a base of an earlier program does not have it.
    return _pass(state, version, position, at, data)


def _take_away(_: State | None, version: int, _position: int, _at: int, data: Data) -> State:
    return LeaseState(version, data["epoch"] + 1)


def _pass(state: State | None, version: int, _position: int, _at: int, _data: Data) -> State:
    return UnknownState(version) if state is None else state._replace(version=version)


def _object(state: State | None, verb: str) -> ObjectState:
    # A deleted object counts as absent: the views have no row of it, so a live fold would not find it either.
    if not isinstance(state, ObjectState) or state.manifest is None:
        raise FoldError(f"an absent object is {verb}")
    return state


def _binding(state: State | None) -> BindingState:
    if not isinstance(state, BindingState):
        raise FoldError("a binding is moved before it is planned")
    return state


_Step = Callable[[State | None, int, int, int, Data], State]
_STEP_OF_CHANGE: Mapping[StateChange, _Step] = {
    StateChange.CREATE: _write,
    StateChange.PATCH: _write,
    StateChange.DELETE: _delete,
    StateChange.ASSUME: _assume,
    StateChange.FREE: _free,
    StateChange.PLAN: _plan,
    StateChange.MOVE_BINDING: _move_binding,
    StateChange.MOVE_LEG: _move_leg,
    StateChange.ATTEMPT: _attempt,
    StateChange.FAIL: _fail,
    StateChange.REPEAT: _repeat,
    StateChange.NOTE: _pass,
    StateChange.ISSUE: _issue,
    StateChange.REVOKE: _revoke,
    StateChange.ASK: _pass,
    StateChange.TAKE_AWAY: _take_away,
    StateChange.CORRECT: _pass,
}
_STEPS: Mapping[str, _Step] = {name: _STEP_OF_CHANGE[entry.change] for name, entry in CATALOGUE.items()}


# The result of a decision: events to write, and work to queue in the same transaction.

States = Mapping[str, State]
"""Stream → its state. A stream without events is missing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewEffect:
    """Work to be done outside the log after the commit. `key` is unique and never reused."""

    key: str
    lane: str
    """Effects of one lane are done one after the other."""
    queue: str
    kind: str
    data: Mapping[str, Any] = field(default_factory=dict)
    due: int = 0
    binding: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    events: tuple[NewEvent, ...] = ()
    effects: tuple[NewEffect, ...] = ()
    result: Mapping[str, Any] = field(default_factory=dict)
    """Stored with the idempotency key and returned again to a repeat."""
    basis: Any = None
    """Further data for the caller's answer: not stored, and a repeat gets none."""


NOTHING = Decision()


# Object states by stream: the live object, its manifest and version, and the streams of a binding.


def binding_stream(binding: str) -> str:
    return f"binding/{binding}"


def pod_stream(state: BindingState) -> str:
    return f"pod/{state.plan['pod']}"


def node_stream(state: BindingState) -> str:
    return f"node/{state.plan['node']}"


def living(states: States, stream: str) -> ObjectState | None:
    """The live object of a stream; None if it never existed or is deleted."""
    state = states.get(stream)
    return state if isinstance(state, ObjectState) and state.manifest is not None else None


def manifest_of(states: States, stream: str) -> Manifest | None:
    state = living(states, stream)
    return None if state is None else state.manifest


def origin_version(state: ObjectState) -> str | None:
    """The version that a foreign cluster gave the object; None where the object lives in our log."""
    found = metadata(state.manifest or {}).get("resourceVersion")
    return None if found is None else str(found)


def version(state: ObjectState) -> str:
    """The version that the object's next write must be conditional on."""
    return origin_version(state) or str(state.rv)
