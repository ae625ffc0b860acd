"""Late writes and claimed completions, checked against the binding in the log."""

from volsched.binding.rules.effects import ANNOTATE, BIND_POD, PREBIND, RELEASE, LegOutcome, leg_streams
from volsched.binding.rules.phases import SETTLED, LegPhase, Phase
from volsched.binding.rules.reasons import UNDONE
from volsched.kube.manifest import Manifest, annotations, claim_of, metadata, uid
from volsched.kube.meta import BINDING_STAMP, ROLLBACK, SELECTED_NODE
from volsched.log.events.envelope import NewEvent
from volsched.log.events.fold import (
    NOTHING,
    BindingState,
    Decision,
    LegState,
    NewEffect,
    ObjectState,
    States,
    binding_stream,
    living,
    origin_version,
)

# A late write carries its binding's stamp, and its leg has ended as never written or undone. It is undone
# like any other leg, by an effect in the leg's own lane, and the leg records the outcome. The mark that a
# release puts on a claim can be late as well; it names its binding and is removed. The write and the end of the
# leg may become known in either order. The process that records the second of the two, under the head lock,
# sees both and queues the effect: the mirror (`undoing`) or the executor (`landed_since`).
#
# Rejected: prevention. A foreign cluster ignores our leases and fences, and the version that the plan has seen
# may still be current when a late call arrives.

UNDO = "undo"
"""A kind of effect; it uses the queue of releases."""
ENDED_WITHOUT = frozenset({LegPhase.VOIDED, LegPhase.RELEASED})
"""Final phases of a leg that left nothing in the cluster."""


def stamp_of(manifest: Manifest) -> str | None:
    """The binding that wrote the object last; None if the stamp cannot be one of our ids."""
    return _id_in(manifest, BINDING_STAMP)


def writers_of(manifest: Manifest) -> tuple[str, ...]:
    """The bindings that left a trace on the object: a stamp, or on a claim the mark of a release."""
    found = (_id_in(manifest, BINDING_STAMP), _id_in(manifest, ROLLBACK))
    return tuple(dict.fromkeys(it for it in found if it is not None))


def undoing(stream: str, manifest: Manifest, states: States) -> tuple[NewEffect, ...]:
    """The effects that undo the late writes on this object, if there are any."""
    effects: list[NewEffect] = []
    for binding in writers_of(manifest):
        state = states.get(binding_stream(binding))
        for index, leg in enumerate(state.legs if isinstance(state, BindingState) else ()):
            if _is_stray(binding, leg, stream, manifest):
                effects.append(_undo(binding, index, leg, manifest))
    return tuple(effects)


def landed_since(
    binding: str, index: int, recorded: Decision, before: States, states: States
) -> tuple[NewEffect, ...]:
    """The undoing effects for a leg that is recorded now: the mirror has a newer version than the act read."""
    state = states.get(binding_stream(binding))
    if not isinstance(state, BindingState):
        return ()
    moves = [event.data for event in recorded.events if event.type == "LegMoved"]
    leg = state.legs[index]._replace(written_rv=None, **({"state": moves[-1]["state"]} if moves else {}))
    for stream in dict.fromkeys((_written_stream(leg), f"claim/{leg.claim}")):
        looked_at, mirrored = living(before, stream), living(states, stream)
        if looked_at is None or mirrored is None or mirrored.manifest is None:
            continue
        if _number(mirrored) > _number(looked_at) and _is_stray(binding, leg, stream, mirrored.manifest):
            return (_undo(binding, index, leg, mirrored.manifest),)
    return ()


def record_undone(binding: str, index: int, outcome: LegOutcome, states: States) -> Decision:
    """Record the outcome of an undo; the binding has usually ended long ago and does not change."""
    state = states.get(binding_stream(binding))
    if not isinstance(state, BindingState) or index >= len(state.legs):
        return NOTHING
    leg = state.legs[index]
    if leg.state not in ENDED_WITHOUT or leg.state == outcome.phase:
        return NOTHING
    data: dict[str, object] = {"leg": index, "state": outcome.phase.value, "open": False}
    data |= {"reason": outcome.reason or UNDONE} | ({} if outcome.rv is None else {"rv": outcome.rv})
    event = NewEvent(stream=binding_stream(binding), type="LegMoved", data=data, binding=binding)
    return Decision(events=(event,))


def _id_in(manifest: Manifest, annotation: str) -> str | None:
    found = annotations(manifest).get(annotation)
    return found if isinstance(found, str) and found and found.isprintable() else None


def _is_stray(binding: str, leg: LegState, stream: str, manifest: Manifest) -> bool:
    if stream == _written_stream(leg) and stamp_of(manifest) == binding and leg.state in ENDED_WITHOUT:
        return _holds(manifest, leg)
    marked = stream == f"claim/{leg.claim}" and annotations(manifest).get(ROLLBACK) == binding
    if not marked or leg.state not in SETTLED:
        return False
    # An older version shows a mark that the release has removed since. A finished release recorded the claim's
    # version, whatever kind of object the leg wrote before.
    return leg.written_rv is None or int(metadata(manifest)["resourceVersion"]) > int(leg.written_rv)


def _written_stream(leg: LegState) -> str:
    return f"claim/{leg.claim}" if leg.dynamic else f"volume/{leg.volume}"


def _holds(manifest: Manifest, leg: LegState) -> bool:
    """Whether our write is still there; another writer may have changed the object and kept our stamp."""
    if leg.dynamic:
        return uid(manifest) == leg.claim_uid and SELECTED_NODE in annotations(manifest)
    reference = claim_of(manifest)
    return reference is not None and reference.get("uid") == leg.claim_uid


def _number(state: ObjectState) -> int:
    return int(origin_version(state) or state.rv)


def _undo(binding: str, index: int, leg: LegState, manifest: Manifest) -> NewEffect:
    version = manifest["metadata"].get("resourceVersion", "")
    return NewEffect(
        # A second late write of the leg, at another version, is another effect.
        key=f"{binding}/{index}/{UNDO}/{version}",
        lane=f"{binding}/{index}",
        queue=RELEASE,
        kind=UNDO,
        data={"leg": index, "streams": leg_streams(leg)},
        binding=binding,
    )


# Whether the outcome of work that was reported done is recorded in the binding's log.

KINDS = frozenset({PREBIND, ANNOTATE, RELEASE, BIND_POD, UNDO})
_BEFORE_POD = frozenset({Phase.RESERVED, Phase.PREBINDING, Phase.WAITING, Phase.COMMITTING})


def contradiction(kind: str, part: str, state: BindingState) -> str | None:
    """Why work of this kind on a part of the binding (a leg's number or `pod`) cannot be done; None: it can."""
    if kind == BIND_POD:
        return f"the log has the binding {state.state}" if state.state in _BEFORE_POD else None
    if not part.isdecimal() or int(part) >= len(state.legs):
        return f"the log has a binding of {len(state.legs)} legs, and none with number {part}"
    leg = state.legs[int(part)]
    waits = (
        (state.open and leg.state == LegPhase.ASSUMED)
        if kind in (PREBIND, ANNOTATE)
        else (kind == RELEASE and leg.state not in SETTLED)
    )
    return f"the log has leg {part} {leg.state}" if waits else None
