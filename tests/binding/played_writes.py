"""How an act of a leg or of the pod is carried out on a scene: ask, write, ask again, until it has an outcome."""

from typing import Any

from tests.binding.rule_scenes import (
    CLAIM_STREAM,
    VOLUME,
    VOLUME_STREAM,
    B,
    Scene,
    binding_state,
    bound,
    changed,
    claim_ref,
    dynamic_leg,
    manifest_at,
    prebound,
    scene,
    selected,
    static_leg,
)
from volsched.binding.rules.effect_writes import next_step
from volsched.binding.rules.effects import (
    ANNOTATE,
    PREBIND,
    EffectWrite,
    FenceWrite,
    GateWrite,
    LegOutcome,
    Outcome,
)
from volsched.binding.rules.phases import LegPhase
from volsched.binding.rules.safe_release import Undecided
from volsched.kube.meta import BOUND_BY_CONTROLLER
from volsched.log.events.fold import ObjectState
from volsched.log.events.streams import stream_of

NOW = "2026-01-01T00:00:00Z"
PLACED = {"conditions": [{"type": "PodScheduled", "status": "True", "lastTransitionTime": NOW}]}
RELEASED = LegOutcome(phase=LegPhase.RELEASED)
DELETED = {"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}
OTHERS = {"spec": {"claimRef": claim_ref("uid-other", "other")}}


Step = EffectWrite | FenceWrite | GateWrite | Undecided | Outcome | None


def step(kind: str, states: Scene, **kw: Any) -> Step:
    return next_step(kind, B, 0, states, now=NOW, **kw)


def done(states: Scene, write: EffectWrite) -> Scene:
    """The write is carried out, if the object is still at the version it asks for."""
    stream = stream_of(write.kind, write.key)
    state = states[stream]
    assert isinstance(state, ObjectState)
    assert str(state.rv) == write.version
    return changed(states, stream, write.patch)


def played(kind: str, states: Scene, *, most: int = 8, **kw: Any) -> tuple[list[EffectWrite], Step, Scene]:
    """Ask and write until there is an outcome, or until `most` writes are done."""
    writes: list[EffectWrite] = []
    while isinstance(answer := step(kind, states, **kw), EffectWrite) and len(writes) < most:
        writes.append(answer)
        states = done(states, answer)
    return writes, answer, states


def notes(states: Scene, stream: str) -> dict[str, str]:
    found: dict[str, str] = manifest_at(states, stream)["metadata"].get("annotations", {})
    return found


def reference(states: Scene) -> dict[str, str] | None:
    found: dict[str, str] | None = manifest_at(states, VOLUME_STREAM)["spec"].get("claimRef")
    return found


def annotated(states: Scene, stream: str = CLAIM_STREAM, **annotations: str) -> Scene:
    return changed(states, stream, {"metadata": {"annotations": annotations}})


def half_bound(states: Scene, volume: str = VOLUME) -> Scene:
    marks = {"metadata": {"annotations": {BOUND_BY_CONTROLLER: "yes"}}}
    return changed(states, CLAIM_STREAM, {"spec": {"volumeName": volume}, **marks})


def data_state(states: Scene, value: str) -> Scene:
    return changed(states, CLAIM_STREAM, {"status": {"dataState": value}})


def namesake(states: Scene) -> Scene:
    return changed(states, CLAIM_STREAM, {"metadata": {"uid": "uid-namesake"}})


def phase_of_volume(states: Scene, phase: str) -> Scene:
    return changed(states, VOLUME_STREAM, {"status": {"phase": phase}})


FORWARD = {PREBIND: static_leg, ANNOTATE: dynamic_leg}
WRITTEN_STREAM = {PREBIND: VOLUME_STREAM, ANNOTATE: CLAIM_STREAM}


def planned(kind: str, phase: str = "prebinding") -> Scene:
    return scene(binding_state(FORWARD[kind](), phase=phase))


def releasing(*, by_controller: bool = True) -> Scene:
    states = scene(binding_state(static_leg("releasing"), phase="compensating"))
    return prebound(states, by_controller=by_controller)


def releasing_dynamic() -> Scene:
    return selected(scene(binding_state(dynamic_leg("releasing"), phase="compensating")))


def committing(*legs: Any) -> Scene:
    """A binding of these legs, each complete."""
    return bound(prebound(scene(binding_state(*(legs or (static_leg("bound"),)), phase="committing"))))
