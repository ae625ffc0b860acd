"""Writes of ours that come too late: a worker slept, or its call was long under way, and the leg has ended.

Such a write carries its binding's stamp, so it is known when it is seen: its leg has ended as never written, or as
undone. It is then undone like any other leg, by an effect in the leg's own lane, and the leg says what came of it.
The mark that a release puts on a claim can come late as well; it names its binding, and is taken off again.
The write and the end of the leg may become known in either order. Whoever records the second of the two, under
the head lock, sees both and queues the effect: the mirror (`undoing`) or the executor (`landed_since`).

Rejected: preventing it. No lease or fence of ours is known to a foreign cluster, and a version that the plan has
seen is still the object's when a late call for it arrives.
"""

from volsched.binding.rules.phases import SETTLED, LegPhase
from volsched.binding.rules.saga import RELEASE, LegOutcome
from volsched.kube.manifest import Manifest, annotations, claim_of, metadata, uid
from volsched.kube.meta import BINDING_STAMP, ROLLBACK, SELECTED_NODE
from volsched.log.events.decision import NOTHING, Decision, NewEffect, States
from volsched.log.events.envelope import NewEvent
from volsched.log.events.fold import BindingState, LegState, ObjectState
from volsched.log.events.object_states import binding_stream, living, origin_version

UNDO = "undo"
"""A kind of effect; it stands in the queue of releases."""
ENDED_WITHOUT = frozenset({LegPhase.VOIDED, LegPhase.RELEASED})
"""How a leg ends that has nothing in the cluster."""
UNDONE = "written late, after the leg had ended, and undone"


def stamp_of(manifest: Manifest) -> str | None:
    """The binding that wrote the object last; what cannot be an id of ours is none."""
    return _id_in(manifest, BINDING_STAMP)


def writers_of(manifest: Manifest) -> tuple[str, ...]:
    """The bindings that have left something on the object: a stamp, or on a claim the mark of a release."""
    found = (_id_in(manifest, BINDING_STAMP), _id_in(manifest, ROLLBACK))
    return tuple(dict.fromkeys(it for it in found if it is not None))


def undoing(stream: str, manifest: Manifest, states: States) -> tuple[NewEffect, ...]:
    """The effects that undo what is seen on this object, where it is a stray."""
    found: list[NewEffect] = []
    for binding in writers_of(manifest):
        state = states.get(binding_stream(binding))
        for index, leg in enumerate(state.legs if isinstance(state, BindingState) else ()):
            if _is_stray(binding, leg, stream, manifest):
                found.append(_undo(binding, index, leg, manifest))
    return tuple(found)


def landed_since(
    binding: str, index: int, recorded: Decision, seen: States, states: States
) -> tuple[NewEffect, ...]:
    """The same for a leg that is recorded now: the mirror has seen something newer than what the act looked at."""
    state = states.get(binding_stream(binding))
    if not isinstance(state, BindingState):
        return ()
    moves = [event.data for event in recorded.events if event.type == "LegMoved"]
    leg = state.legs[index]._replace(written_rv=None, **({"state": moves[-1]["state"]} if moves else {}))
    for stream in dict.fromkeys((_written_stream(leg), f"claim/{leg.claim}")):
        looked_at, mirrored = living(seen, stream), living(states, stream)
        if looked_at is None or mirrored is None or mirrored.manifest is None:
            continue
        if _number(mirrored) > _number(looked_at) and _is_stray(binding, leg, stream, mirrored.manifest):
            return (_undo(binding, index, leg, mirrored.manifest),)
    return ()


def record_undone(binding: str, index: int, outcome: LegOutcome, states: States) -> Decision:
    """The outcome of an undoing; the binding itself has mostly ended long ago, and stays as it is."""
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
    # Seen late, the mark of a release is one that the release itself has taken off since.
    is_old = leg.written_rv is not None and int(metadata(manifest)["resourceVersion"]) <= int(leg.written_rv)
    return marked and leg.state in SETTLED and not is_old


def _written_stream(leg: LegState) -> str:
    return f"claim/{leg.claim}" if leg.dynamic else f"volume/{leg.volume}"


def _holds(manifest: Manifest, leg: LegState) -> bool:
    """What we wrote is still there; somebody who changed it since may have left our stamp on."""
    if leg.dynamic:
        return uid(manifest) == leg.claim_uid and SELECTED_NODE in annotations(manifest)
    reference = claim_of(manifest)
    return reference is not None and reference.get("uid") == leg.claim_uid


def _number(state: ObjectState) -> int:
    return int(origin_version(state) or state.rv)


def _undo(binding: str, index: int, leg: LegState, manifest: Manifest) -> NewEffect:
    version = manifest["metadata"].get("resourceVersion", "")
    claim = f"claim/{leg.claim}"
    streams = (claim,) if leg.volume is None else (claim, f"volume/{leg.volume}")
    return NewEffect(
        # Another stray of the leg, at another version, is another effect.
        key=f"{binding}/{index}/{UNDO}/{version}",
        lane=f"{binding}/{index}",
        queue=RELEASE,
        kind=UNDO,
        data={"leg": index, "streams": streams},
        binding=binding,
    )
